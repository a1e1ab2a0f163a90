# Needs Go, git and make. With a C compiler the tests run under the race detector.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The formatter and the linter are pinned in a module of their own, so that go.mod of those who import Punctual stays free of them.
TOOL := GOFLAGS= CGO_ENABLED=0 go tool -modfile=$(CURDIR)/tools/go.mod
MODULE := github.com/punctualmq/punctual
MAKE_BIN := mkdir -p bin && echo '*' > bin/.gitignore

# Modules of their own that make test covers (docs/dependencies.md). bench, console/browsertest and packaging/cluster have targets of
# their own.
MODULES := metrics/punctualotel packaging

# The race detector needs cgo. The tag spares the C compiler the compression of the database engine, a minute's work.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race -tags=pebblegozstd)

# The compiler is faster with more memory, and the linker without what debuggers read. The tests run without the former, because some
# measure memory. make lint vets.
GOTEST := GOGC=200 go test -exec='env -u GOGC' -ldflags='-s -w' -vet=off -shuffle=on -timeout=25m
LONG := go test -count=1 -timeout=0 -v

# Tests that take more than some ten seconds of processor time under the race detector are called TestSlow: kills, power cuts, full
# disks, clusters, whole suites over several ways to a store. make slow has them, and make torture has all tests for long.
SLOW = $$(go list -f '{{.Dir}}' ./... | while read -r d; do if grep -qs '^func TestSlow' "$$d"/*_test.go; then echo "$$d"; fi; done)

# Random histories for each way to a store.
export PUNCTUAL_HISTORIES ?= 12
# Of so many situations of a message, one is taken in each kind of topic when all its transitions are tried.
export PUNCTUAL_TRANSITIONS ?= 3
# For instance: make test TESTFLAGS='-run Cancel -v'
TESTFLAGS ?=

help: ## Show this list
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-17s %s\n", $$1, $$2 }'

build: ## Build one static binary, ./bin/punctual
	@$(MAKE_BIN)
	CGO_ENABLED=0 go build -trimpath -o bin/punctual ./cmd/punctual

demo: ## See orders closed on time, on a store in a temporary folder (20 s)
	go run ./cmd/punctual demo

deps: ## Install what the tests start (as root by apt-get): Redis, PostgreSQL, pgbouncer, RabbitMQ, MariaDB, Python, Node, TypeScript, Java; Valkey where it is to be had
	@tools/deps.sh tests

# Half of the time goes into compiling where nothing is compiled yet. So the tests, the programs that they build and the linters have the
# same flags, and all is compiled once. Each part runs though another one fails.
test: export GOFLAGS := $(strip $(GOFLAGS) $(RACE))
test: deps ## Run every test that is not slow, under the race detector, and check format and code (15 minutes on two cores)
	$(if $(RACE),,@echo 'note: no C compiler found, so the tests run without the race detector')
	@failed=0; try() { echo "+ $$*"; env "$$@" || failed=1; }; \
	if [[ -n '$(TESTFLAGS)' ]]; then try $(GOTEST) -p 4 $(TESTFLAGS) ./...; exit $$failed; fi; \
	try $(GOTEST) -p 6 -skip '^TestSlow' ./...; \
	for m in $(MODULES); do (cd $$m && env $(GOTEST) -skip '^TestSlow' ./...) || failed=1; done; \
	try tools/recent.sh $(GOTEST) -run 'Replica|L11' -skip '^TestSlow' ./redisstore; \
	$(if $(RACE),CGO_ENABLED=1) $(MAKE) --no-print-directory lint || failed=1; exit $$failed

slow: export CGO_ENABLED = 0
slow: deps ## Run the slow tests, without the race detector (10 minutes): kills, faults, clusters, power cuts
	@failed=0; try() { echo "+ $$*"; env "$$@" || failed=1; }; \
	try $(GOTEST) -p 3 -run '^TestSlow' $(TESTFLAGS) $(SLOW); \
	try tools/recent.sh $(GOTEST) -run '^TestSlowReplicated' ./redisstore; exit $$failed

# What needs no server and hardly waits.
QUICK := . ./worker ./duty ./storekit/... ./memstore ./storetest ./storetest/ledger ./internal/batch ./internal/cron ./internal/duties ./schedule/... ./bulk ./event ./diskstore/internal/...
quick: export CGO_ENABLED = 0
quick: ## Run the tests that need no server, in a random order and without the race detector (30 s once compiled)
	$(GOTEST) -p 6 -count=1 -skip '^TestSlow' $(QUICK)

size: ## Print the shipped lines of each package, without comments and blank lines, and the names of the root
	@go test -count=1 -v -run '^(TestSize|TestRootIsSmall)$$' . | sed -n 's/^ *size_test.go:[0-9]*: //p'
lint: export CGO_ENABLED ?= 0
lint: export GOGC = 200
lint: ## Check format (gofumpt) and code (go vet, staticcheck)
	@unformatted=$$($(TOOL) gofumpt -l .); if [[ -n $$unformatted ]]; then echo "run make fmt, these files are not formatted:"; echo "$$unformatted"; exit 1; fi
	check=$$($(TOOL) -n staticcheck); for m in . $(MODULES); do (cd $$m && go vet ./... && $$check ./...) || exit 1; done
fmt: ## Format all Go files (gofumpt)
	$(TOOL) gofumpt -w .
proto: ## Generate internal/wire/compact from server/punctual.proto
	@plugins=(); for p in go go-vtproto; do plugins+=("--plugin=protoc-gen-$$p=$$($(TOOL) -n protoc-gen-$$p)"); done; \
	cd server && $(TOOL) goprotoc "$${plugins[@]}" --go_out=module=$(MODULE):.. --go-vtproto_out=features=marshal+unmarshal_unsafe+size,module=$(MODULE):.. punctual.proto
cover: ## Run the tests and show what they cover, by line in bin/cover.html
	@$(MAKE_BIN)
	go test -shuffle=on -coverpkg=./... -coverprofile=bin/cover.out ./...
	go tool cover -func=bin/cover.out | tail -n 1
	go tool cover -html=bin/cover.out -o bin/cover.html

redis: ## Test the stores in Redis on another server: make redis SERVER=/path/to/valkey-server
	@if [[ ! -x '$(SERVER)' ]]; then echo 'name a server that can be run: make redis SERVER=/path/to/valkey-server' >&2; exit 1; fi
	PUNCTUAL_REDIS_SERVER='$(SERVER)' go test $(RACE) -shuffle=on $(TESTFLAGS) ./redisstore
postgres: ## Test the store in PostgreSQL on another version: make postgres BIN=/folder/of/initdb/and/postgres
	@if [[ ! -x '$(BIN)/postgres' ]]; then echo "name the folder of a server's programs: make postgres BIN=/path/to/bin" >&2; exit 1; fi
	PUNCTUAL_POSTGRES_BIN='$(BIN)' $(GOTEST) $(TESTFLAGS) ./pgstore
client: ## Have clients in TypeScript and Go generated from /openapi.json, and try them (1 minute; needs npm and a network)
	PUNCTUAL_TEST_NPM=1 $(LONG) -run '^TestGeneratedClient' ./server
clients: ## Build the clients of other languages into bin/clients: a wheel for Python, a package for npm
	@$(MAKE_BIN); tools/clients.sh
cluster: ## Read the chart, the manifests and the Compose file as Helm, Kubernetes, KEDA and Compose do (needs a network)
	cd packaging/cluster && go vet ./... && $(TOOL) staticcheck ./... && go test -count=1 -v ./...
newcomer: ## Do what the README says, command by command, in an empty directory (1 minute)
	PUNCTUAL_NEWCOMER=1 $(LONG) -run '^TestReadmeCommands$$' ./cmd/punctual/internal/cli

# How many random histories, kills and power cuts make torture goes through for each store. Each test logs what it did.
CYCLES ?= 2000
torture: deps ## Try everything for long, under the race detector: histories, races, kill -9, power cuts (CYCLES=2000)
	PUNCTUAL_TRANSITIONS=1 PUNCTUAL_HISTORIES=$(CYCLES) PUNCTUAL_TORTURE_CYCLES=$(CYCLES) PUNCTUAL_POWER_CUTS=$(CYCLES) $(LONG) $(RACE) ./...
# How many faults make torture-redis and torture-postgres bring about. Two of six rounds kill Redis, and two of five kill PostgreSQL.
KILLS ?= 200
FAILOVERS ?= 50
torture-redis: deps ## Kill Redis, cut its network and fail over under load, with the ledger (90 minutes; KILLS=200 FAILOVERS=50)
	PUNCTUAL_TORTURE_CYCLES=$$(($(KILLS) * 3)) $(LONG) -run '^TestSlowKill$$' ./redisstore
	PUNCTUAL_FAILOVERS=$(FAILOVERS) tools/recent.sh --required $(LONG) -run '^TestSlowReplicatedKills' ./redisstore
torture-postgres: deps ## Kill PostgreSQL, cut its network and fail over under load, with the ledger (KILLS=200 FAILOVERS=50)
	PUNCTUAL_TORTURE_CYCLES=$$(($(KILLS) * 5 / 2)) PUNCTUAL_FAILOVERS=$(FAILOVERS) $(LONG) -parallel 1 -run '^TestSlow(Replicated)?Kills?$$' ./pgstore
latency-redis: deps ## Ask a server's latency log how long scripts take, whatever the state (1 to 5 minutes)
	PUNCTUAL_LATENCY=1 $(LONG) -run '^TestLatencyLog$$' ./redisstore

# What make bench measures: a regular expression; cd bench && go run . list names the scenarios.
ONLY ?= .
bench: ## Measure, and write the tables and charts of docs/performance.md and docs/lab/measurements.md (2 hours; ONLY=^redis: 15 minutes)
	@tools/deps.sh tests bench
	cd bench && go run . run -only '$(ONLY)' && go run . report
docs: ## Write what programs make of docs: cli-commands.md, and the tables and charts of what was measured (3 minutes)
	go generate ./cmd/punctual/internal/cli
	cd bench && go run . report
testbench: deps ## Check and test the programs that measure, a module of their own (5 minutes)
	cd bench && go vet ./... && $(TOOL) staticcheck ./... && go test -vet=off -shuffle=on ./...

# What the tests in a browser look at: all kinds of store, or one: mem, disk, redis, postgres, or the URL of an empty Redis or
# PostgreSQL. PENDING is how many messages the largest store has, beside a tenth of that dead ones.
STORE ?= all
PENDING ?= 20000
browser: ## Test the console's pages in Chromium, with axe-core (6 minutes; STORE=all PENDING=20000)
	@tools/deps.sh tests browser
	cd console/browsertest && go vet ./... && $(TOOL) staticcheck ./...
	cd console/browsertest && PUNCTUAL_BROWSER=required go test -count=1 -timeout=30m $(TESTFLAGS) . -args -store '$(STORE)' -pending '$(PENDING)'
screens picture: build ## Take the pictures of the console, or of the demo, that the documents show
	tools/$@.sh
clean: ## Remove bin, with what the other targets made there
	rm -rf bin

.PHONY: $(shell sed -n 's/^\([a-z -]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))
