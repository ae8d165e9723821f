#!/usr/bin/env bash
# Runs every test with the race detector. Tests that need Redis start a redis-server of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v redis-server >/dev/null; then
  echo "make test needs a redis-server to start. Install one, for example: apt-get install redis-server" >&2
  exit 1
fi

# What go vet finds, `make lint` finds.
# The simulator explores more without the race detector, which slows it tenfold: with it, 2,000 histories follow.
go test -count=1 -timeout 0 ./test/sim -sim.seeds="${SEEDS:-100000}"
# Most tests wait for a disk, a lease or a timer, not for a processor: more of them run at once than there are processors.
go test -race -timeout 9m -parallel 4 ./...
(cd examples/traveldesk && go test -race ./...)
