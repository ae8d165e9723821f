#!/usr/bin/env bash
# Runs every test, with the race detector where goroutines meet.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tests.sh

find_redis
find_chromium
find_race
# What go vet finds, `make lint` finds.
#
# The race detector makes code that computes ten times slower, and finds nothing in code that runs in one goroutine: the
# core, prompts, judges, calls written as text, the cases of policies, and the simulator, whose fibers take turns. Histories that are played
# side by side show what they share.
computes='internal/(config|core|prompt|judge|llm/texttools)|test/(sim|policies)'
go test -count=1 -vet=off -timeout 0 ./test/sim -sim.seeds="${SEEDS:-100000}"
go test -vet=off $(go list ./internal/... | grep -E "/($computes)\$")
go test -count=1 -vet=off ./test/policies -policies.cases=3000
go test -vet=off $race ./test/sim -run 'TestSimulation$' -sim.seeds=200
# Servers of a cluster elect others when one does not answer in time: they have the machine for themselves.
go test -vet=off -timeout 20m ./test/cluster
# Most tests wait for a disk, a lease or a timer, not for a processor: more of them run at once than there are processors.
go test -vet=off $race -timeout 20m -parallel 4 $(go list ./... | grep -vE "/($computes|test/cluster)\$")
(cd examples/traveldesk && go test -vet=off $race ./...)
(cd test/outside && go test -vet=off $race ./...)
(cd test/browser && go test -vet=off ./...)
(cd scripts/release && go test -vet=off ./...)
