#!/usr/bin/env bash
# Runs every test with the race detector.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.sh

find_redis
find_race
# What go vet finds, `make lint` finds.
# The simulator explores more without the race detector, which slows it tenfold: with it, 2,000 histories follow.
go test -count=1 -timeout 0 ./test/sim -sim.seeds="${SEEDS:-100000}"
# Most tests wait for a disk, a lease or a timer, not for a processor: more of them run at once than there are processors.
go test $race -timeout 9m -parallel 4 ./...
(cd examples/traveldesk && go test $race ./...)
