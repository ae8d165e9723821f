#!/usr/bin/env bash
# Runs the tests that stand beside the sources, and 2,000 histories of the simulator. What has passed is not run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.sh

find_redis
go test -vet=off ./cmd/... ./internal/... ./sdk/... ./scripts ./test/mutants
go test -vet=off ./test/sim -run 'TestSimulation$'
