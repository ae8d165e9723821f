# `make` lists the targets.
GO            ?= go
BIN           := bin
SEEDS         ?= 20000
GOLANGCI      := $(BIN)/golangci-lint
GOLANGCI_VERSION := v2.15.0
GO_LICENSES_VERSION := v1.6.0
MODULES       := . examples/traveldesk test/outside test/browser test/deploy scripts/release

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

.PHONY: go
go:
	@command -v $(GO) >/dev/null || { echo "agentd is built with Go 1.26: install it from https://go.dev/dl" >&2; exit 1; }

.PHONY: build
build: go ## build bin/agentd and the example's services
	$(GO) build -o $(BIN)/agentd ./cmd/agentd
	cd examples/traveldesk && $(GO) build -o ../../$(BIN)/traveldesk ./...

.PHONY: run
run: build ## run the travel desk example, everything embedded
	./examples/traveldesk/run.sh

.PHONY: test
test: go ## run all tests with the race detector; finds or installs the redis-server that they start
	./scripts/test.sh

.PHONY: bare
bare: go ## as root: make run and make test on a bare machine, which has Debian's base, make and Go
	./scripts/bare.sh

.PHONY: check
check: go lint ## what to run before every commit, in two or three minutes: the linter, unit tests, 2,000 histories
	./scripts/check.sh

.PHONY: race
race: test ## the same as test

.PHONY: lint
lint: $(GOLANGCI) ## run the linter, with the import rules, and see whether go mod tidy would change anything
	$(GOLANGCI) run ./...
	cd examples/traveldesk && $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...
	cd test/browser && $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...
	cd scripts/release && $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...
	for module in $(MODULES); do (cd $$module && $(GO) mod tidy -diff) || exit 1; done

# With the 0.9 that is the tool's own threshold, the BSD licence of modernc.org/mathutil is not recognised.
.PHONY: licenses
licenses: go ## check that the licences of everything that the command is built from allow its distribution
	$(GO) run github.com/google/go-licenses@$(GO_LICENSES_VERSION) check ./cmd/agentd --confidence_threshold=0.85 \
		--allowed_licenses=Apache-2.0,MIT,BSD-2-Clause,BSD-3-Clause,ISC

.PHONY: module
module: go ## give the module the path under which others depend on it: make module MODULE=github.com/acme/agentd
	@test -n "$(MODULE)" || { echo "say which path: make module MODULE=github.com/acme/agentd" >&2; exit 2; }
	$(GO) run ./scripts/module . $(MODULE)

.PHONY: release
release: go ## make a release of the commit in dist/, twice, and compare: binaries, packages, images, checksums
	cd scripts/release && $(GO) run . --out $(CURDIR)/dist $(if $(TARGETS),--targets $(TARGETS)) $(CURDIR)

.PHONY: fmt
fmt: $(GOLANGCI) ## format the sources
	$(GOLANGCI) fmt ./...

.PHONY: sim
sim: ## run the simulator: make sim SEEDS=100000, with FIRST=0 for fresh seeds, or make sim SEED=42 to replay one
	$(GO) test ./test/sim -run 'TestSimulation$$' -count=1 -v -timeout 0 -sim.seeds=$(SEEDS) \
		$(if $(FIRST),-sim.first=$(FIRST)) $(if $(SEED),-sim.seed=$(SEED))

.PHONY: policies
policies: ## play random policies, calls and decisions against a second evaluator: make policies CASES=100000, or SEED=42 to replay one
	$(GO) test ./test/policies -run 'TestPolicies$$' -count=1 -v -timeout 0 -policies.cases=$(or $(CASES),100000) \
		$(if $(FIRST),-policies.first=$(FIRST)) $(if $(SEED),-policies.seed=$(SEED))

.PHONY: mutants
mutants: ## break agentd on purpose, one behaviour at a time; what must notice it, must
	$(GO) run ./test/mutants

.PHONY: e2e
e2e: build ## replay recorded conversations of a real model through the built binaries
	$(GO) test ./test/e2e -run TestRecordedConversations -count=1 -v -timeout 30m -e2e

.PHONY: chaos
chaos: ## hurt real processes for 5 minutes on both stores: make chaos, or make chaos DURATION=1h STORE=redis SEED=7 CLUSTER=3 PARTITIONS=4, or SET_BACK=1
	$(GO) run $(if $(CLUSTER),-overlay "$$($(GO) run ./test/movableclock bin/movableclock)" -tags movable_clock) ./test/chaos $(if $(DURATION),-d $(DURATION)) $(if $(STORE),-store $(STORE)) $(if $(SEED),-seed $(SEED)) $(if $(CLUSTER),-cluster $(CLUSTER)) $(if $(PARTITIONS),-partitions $(PARTITIONS)) $(if $(SET_BACK),-set-back)

.PHONY: upgrade
upgrade: ## let workers of an older version, this one and a later one serve the same runs, on both stores: make upgrade OUTAGE=3m
	$(GO) test ./test/upgrade -run TestUpgrade -count=1 -v -timeout 40m -upgrade $(if $(OUTAGE),-outage $(OUTAGE))

.PHONY: deploy
deploy: $(GOLANGCI) ## render the Helm chart, build the images, and run docker-compose.yml with them, and projects of agentd init in theirs; without Docker only the chart
	cd test/deploy && $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./... && $(GO) test -count=1 -timeout 40m ./...
	$(GO) test ./test/interop -run TestInit_ProjectsRunInContainers -count=1 -timeout 40m -compose

.PHONY: browser
browser: go ## drive the console in chromium, with a broker that is away for a minute; without chromium, the tests say so
	cd test/browser && $(GO) test -count=1 -v . -browser.away=1m -browser.within=1s

.PHONY: screenshots
screenshots: go ## take pictures of every page of the console, light and dark, wide and narrow: make screenshots DIR=/tmp/console
	cd test/browser && $(GO) test -count=1 -run TestScreenshots -v . -browser.screenshots=$(abspath $(or $(DIR),bin/screenshots))

.PHONY: site
site: ## build the documentation as a site with search in dist/site; needs Node 20: make site SOURCE=https://github.com/acme/agentd/blob/main BASE=/agentd/
	@command -v npm >/dev/null || { echo "the site is built with Node 20 or newer: install it from https://nodejs.org" >&2; exit 1; }
	cd site && npm ci --no-audit --no-fund --loglevel=error && SOURCE=$(SOURCE) BASE=$(or $(BASE),/) npm run --silent build

.PHONY: bench
bench: ## measure runs/s, latencies and bytes per step on both stores, and what validation costs
	$(GO) run ./test/bench
	$(GO) test ./internal/schema -run '^$$' -bench . -benchmem

$(GOLANGCI): Makefile
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
