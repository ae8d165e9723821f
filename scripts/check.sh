#!/usr/bin/env bash
# Runs the tests that stand beside the sources, and 2,000 histories of the simulator. What has passed is not run again.
#
# Packages whose tests start whole systems take minutes after every change of what all are built of: `make test` has them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.sh

find_redis
systems='cmd/agentd|internal/(conformance|console|reconcile)'
go test -vet=off $(go list ./cmd/... ./internal/... ./sdk/... ./scripts ./test/mutants | grep -vE "/($systems)\$")
go test -vet=off ./test/sim -run 'TestSimulation$'
