# Needs Go, git and make. With a C compiler the tests run under the race detector.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The formatter and the linter are pinned in a module of their own (tools/go.mod), so that
# nothing of theirs enters the go.mod of those who import Punctual.
TOOL := go tool -modfile=tools/go.mod

# Modules of their own beside the main one, whose dependencies are not for everybody (docs/dependencies.md). To
# compile the other queues that bench measures takes minutes, so it has a target of its own, testbench.
MODULES := metrics/punctualotel packaging

# The race detector needs cgo, and go turns cgo off by itself where no C compiler is found. The tag keeps the C compiler
# from the compression of the database engine, which takes it a minute.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race -tags=pebblegozstd)

# The compiler and the linter are faster with more memory. The tests run without that, because some measure memory.
BUILDGC := GOGC=200
TESTGC := -exec='env -u GOGC'

# bin keeps itself out of version control.
MAKE_BIN := mkdir -p bin && echo '*' > bin/.gitignore

# Flags for the tests, for instance: make test TESTFLAGS='-run Cancel -v'
TESTFLAGS ?=

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build one static binary, ./bin/punctual
	@$(MAKE_BIN)
	CGO_ENABLED=0 go build -trimpath -o bin/punctual ./cmd/punctual

.PHONY: demo
demo: ## See orders closed on time, on a store in a temporary folder (about 15 s)
	go run ./cmd/punctual demo

# What the tests start: the servers of Debian or Ubuntu, Redis of at least 6.2 and PostgreSQL of at least 13, and for
# the durability class "replicated" in Redis one that has WAITAOF, which not every distribution has. A Redis that
# apt-get installs may start by itself. A PostgreSQL does not: NOCLUSTER keeps its package from making a
# cluster of the system.
REDIS := redis-server redis-sentinel redis-cli
RECENT := valkey-server
POSTGRES := $(firstword $(shell command -v initdb) $(wildcard /usr/lib/postgresql/*/bin/initdb))
BOUNCER := $(firstword $(shell command -v pgbouncer) $(wildcard /usr/sbin/pgbouncer))
NOCLUSTER := /etc/postgresql-common/createcluster.d/punctual-make-deps.conf

.PHONY: deps
deps: ## Install what the tests need beside Go: Redis, PostgreSQL, pgbouncer and, where it is to be had, Valkey (as root by apt-get)
	@missing=; for p in $(REDIS); do command -v $$p >/dev/null || missing="redis-server redis-sentinel redis-tools"; done; \
	if [[ -z "$(POSTGRES)" ]]; then missing="$$missing postgresql"; fi; \
	if [[ -z "$(BOUNCER)" ]]; then missing="$$missing pgbouncer"; fi; \
	recent=; command -v $(RECENT) >/dev/null || recent=$(RECENT); \
	if [[ -z $$missing$$recent ]]; then exit 0; fi; \
	if [[ $$(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then \
		if [[ -z $$missing ]]; then exit 0; fi; \
		echo "the tests need $$missing (Redis 6.2 and PostgreSQL 13 or newer): install them, on Debian and Ubuntu with: sudo make deps" >&2; exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -q; \
	if [[ $$missing == *postgresql* ]]; then \
		mkdir -p $(dir $(NOCLUSTER)); echo 'create_main_cluster = false' > $(NOCLUSTER); trap 'rm -f $(NOCLUSTER)' EXIT; \
	fi; \
	if [[ -n $$missing ]]; then apt-get install -qy --no-install-recommends $$missing; fi; \
	if [[ -n $$recent ]] && apt-get install -qs $$recent >/dev/null 2>&1; then apt-get install -qy --no-install-recommends $$recent; fi

# These tests take minutes under the race detector and seconds without it. What runs at the same
# time in them runs in others too; make torture has them under the race detector.
SLOW := ^(TestMillionDueAtOnce|TestHandlersWithTransactions|TestManyTopicsShareTheBound|TestDamaged.*|TestEveryFault|TestFullDisk|TestFullDiskEmpties|TestKillAtEveryChange|TestNoTransactionIsLarge|TestWithLittleMemory|TestRandomHistories.*|TestKill|TestKillServer|TestKillOneOfTwoServers.*|TestKillOwner|TestPowerCut|TestCluster|TestServed|TestGeneralCases|TestManyTopics|TestStoppedNode|TestReplicatedKills.*|TestModel|TestOver(Memory|Owner|Disk|Postgres)|TestTransitions.*|TestRollingRestart|TestConformance|TestPartitions|TestServerGoneBetweenDoingAndAnswering|TestAheadDelaysNobody|TestFailedSyncOfTheLog|TestHangingDisk|TestManyTopicsWithManyMessages|TestFailedStoreLeavesItsFilesAlone|TestBacklogLargerThanMemory|TestCloseEndsA(Check|Compaction)|TestCheckEndsWithItsContext|TestMarkerNeedsItsDirectorySynced|TestTwoProcesses|TestManyLapsedLeases|TestClockStepsBetweenCopies|TestAccountOfMemory|TestSweepGoesOnWhereItEnded|TestSpaceComesBack|TestWorkload|TestLedgerCatchesMutants|TestSuiteKillsMutants|TestRandomKillsMutants|TestRacesKillMutants|TestLargeCallWhoseLaterStepFails|TestOneClaimIsBounded|TestCountsOfALargeTopic|TestNamesInDocuments|TestFilesNamedInComments|TestArchitecture|TestArchitecturePageShowsTheTable)$$
# The packages with such tests: those that take -rapid.checks, and the others. PLAIN are those that run without the race
# detector as a whole: they start processes and servers, and what is concurrent in them is in other packages. So do those
# of SEQUENTIAL, where neither code nor tests start a goroutine.
SLOWRANDOM := ./diskstore ./diskstore/internal/database ./diskstore/internal/memory ./redisstore ./pgstore ./remotestore ./sharedstore
SLOWOTHERS := . ./memstore ./redisstore/internal/wait ./storetest ./worker
PLAIN := ./console ./internal/cli ./internal/importer ./cmd/punctual
SEQUENTIAL := ./diskstore/internal/record ./examples/notify ./internal/heap ./internal/notation ./internal/slo ./internal/wire ./metrics/punctualprom ./redisstore/internal/errkind ./redisstore/internal/keys ./redisstore/internal/record ./redisstore/internal/script

# How many random histories make test goes through for each way to a store.
HISTORIES := 12

# Two lanes run side by side, because many tests wait more than they work: what needs the race detector, and what does
# not. The parts of a lane follow each other, because go commands that run at the same time compile the same packages
# twice. Tests are built without vet, because lint has it for all packages. Each part runs though another one fails.
.PHONY: test
test: deps ## Check format and code, then run every test, most of them with the race detector
	$(if $(RACE),,@echo 'note: no C compiler found, so the tests run without the race detector')
	@$(MAKE) --no-print-directory --jobs=2 --keep-going testraced testrest

.PHONY: testraced testrest
testraced: PARTS := testmost $(if $(TESTFLAGS),,testreplicated)
testrest: PARTS := $(if $(TESTFLAGS),,testslow) lint
testraced testrest:
	@failed=0; for part in $(PARTS); do $(MAKE) --no-print-directory $$part || failed=1; done; exit $$failed

# RACED are the packages whose tests run under the race detector, all if some tests alone are asked for.
RACED = $(if $(RACE)$(TESTFLAGS),$(if $(TESTFLAGS),./...,$$(comm -23 <(go list ./... | sort) <(go list $(PLAIN) $(SEQUENTIAL) | sort))),./...)

# Without the race detector nothing needs the C compiler.
.PHONY: testmost testslow testreplicated
testmost:
	$(BUILDGC) go test $(RACE) $(TESTGC) -vet=off -p 4 -shuffle=on -timeout=25m $(if $(RACE),$(if $(TESTFLAGS),,-skip '$(SLOW)')) $(TESTFLAGS) $(RACED) # a loaded machine takes long

testslow: export CGO_ENABLED = 0
testslow:
	$(if $(RACE),$(BUILDGC) go test $(TESTGC) -vet=off -p 3 -shuffle=on -timeout=25m -run '$(SLOW)' $(SLOWRANDOM) -rapid.checks=$(HISTORIES))
	$(if $(RACE),$(BUILDGC) go test $(TESTGC) -vet=off -shuffle=on -timeout=25m $(PLAIN) $(SEQUENTIAL))
	$(if $(RACE),$(BUILDGC) go test $(TESTGC) -vet=off -shuffle=on -timeout=25m -run '$(SLOW)' $(SLOWOTHERS))
	for module in $(MODULES); do (cd $$module && $(BUILDGC) go test $(TESTGC) -vet=off -shuffle=on ./...) || exit 1; done

testreplicated:
	@if command -v $(RECENT) >/dev/null; then \
		set -x; PUNCTUAL_REDIS_SERVER=$(RECENT) go test $(RACE) -vet=off -run 'Replica|L11' -skip 'ReplicatedKills' ./redisstore; \
		CGO_ENABLED=0 PUNCTUAL_REDIS_SERVER=$(RECENT) go test -vet=off -run 'ReplicatedKills' ./redisstore; \
	else \
		echo 'NOT TESTED: durability class "replicated" on Redis. It needs Redis or Valkey 7.2: install $(RECENT), on Debian 12 from backports.'; \
	fi

.PHONY: client
client: ## Have npm generate a client in TypeScript from /openapi.json, and try it (1 minute; needs npm and a network)
	PUNCTUAL_TEST_NPM=1 go test -count=1 -v -run '^TestGeneratedClient$$' ./server

.PHONY: redis
redis: ## Test the stores in Redis on another server: make redis SERVER=/path/to/valkey-server
	@if [[ ! -x "$(SERVER)" ]]; then echo "name a server that can be run: make redis SERVER=/path/to/valkey-server" >&2; exit 1; fi
	PUNCTUAL_REDIS_SERVER=$(SERVER) go test $(RACE) -shuffle=on $(TESTFLAGS) ./redisstore

.PHONY: postgres
postgres: ## Test the store in PostgreSQL on another version: make postgres BIN=/folder/of/initdb/and/postgres
	@if [[ ! -x "$(BIN)/postgres" ]]; then echo "name the folder of a server's programs: make postgres BIN=/path/to/bin" >&2; exit 1; fi
	PUNCTUAL_POSTGRES_BIN=$(BIN) go test -vet=off -shuffle=on -timeout=25m $(TESTFLAGS) ./pgstore -rapid.checks=$(HISTORIES)

.PHONY: lint
lint: export CGO_ENABLED = 0
lint: export GOGC = 200
lint: ## Check format (gofumpt) and code (go vet, staticcheck)
	@unformatted=$$($(TOOL) gofumpt -l .); \
	if [[ -n $$unformatted ]]; then echo "run make fmt, these files are not formatted:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	$(TOOL) staticcheck ./...
	for module in $(MODULES); do (cd $$module && go vet ./... && go tool -modfile="$(CURDIR)/tools/go.mod" staticcheck ./...) || exit 1; done

.PHONY: fmt
fmt: ## Format all Go files (gofumpt)
	$(TOOL) gofumpt -w .

.PHONY: cover
cover: ## Run the tests and show what they cover
	@$(MAKE_BIN)
	go test -shuffle=on -coverpkg=./... -coverprofile=bin/cover.out ./...
	go tool cover -func=bin/cover.out | tail -n 1
	go tool cover -html=bin/cover.out -o bin/cover.html
	@echo "by line: bin/cover.html"

# How many random histories, kills and power cuts make torture goes through for each store; make
# test goes through about 100. Each test logs one line with what it did.
CYCLES ?= 2000

.PHONY: torture
torture: deps ## Try the stores for long: random histories, races, kill -9, power cuts (CYCLES=2000)
	PUNCTUAL_TORTURE_CYCLES=$(CYCLES) PUNCTUAL_POWER_CUTS=$(CYCLES) \
		go test $(RACE) -count=1 -timeout=0 -v -run 'Random|Races|Workload|^TestKill|PowerCut|^TestServed|$(SLOW)' \
		$(SLOWRANDOM) -rapid.checks=$(CYCLES)
	go test $(RACE) -count=1 -timeout=0 -v -run '$(SLOW)' $(SLOWOTHERS)
	go test $(RACE) -count=1 -timeout=0 $(PLAIN) $(SEQUENTIAL)

.PHONY: latency-redis
latency-redis: deps ## Ask a server's latency log how long scripts take, whatever the state (1 to 5 minutes)
	PUNCTUAL_LATENCY=1 go test -count=1 -timeout=10m -v -run '^TestLatencyLog$$' ./redisstore

# How many faults make torture-redis brings about. It takes about an hour and a half.
KILLS ?= 200
FAILOVERS ?= 50

.PHONY: torture-redis
torture-redis: deps ## Kill Redis, cut its network and fail over under load, with the ledger (KILLS=200 FAILOVERS=50)
	PUNCTUAL_TORTURE_CYCLES=$$(($(KILLS) * 5 / 2)) go test -count=1 -timeout=0 -v -run '^TestKill$$' ./redisstore
	@if command -v $(RECENT) >/dev/null; then \
		set -x; PUNCTUAL_REDIS_SERVER=$(RECENT) PUNCTUAL_FAILOVERS=$(FAILOVERS) go test -count=1 -timeout=0 -v -run 'ReplicatedKills' ./redisstore; \
	else \
		echo 'NOT TESTED: failovers. They need Redis or Valkey 7.2: install $(RECENT), on Debian 12 from backports.' >&2; exit 1; \
	fi

.PHONY: torture-postgres
torture-postgres: deps ## Kill PostgreSQL, cut its network and fail over under load, with the ledger (KILLS=200 FAILOVERS=50)
	PUNCTUAL_TORTURE_CYCLES=$$(($(KILLS) * 5 / 2)) PUNCTUAL_FAILOVERS=$(FAILOVERS) go test -count=1 -timeout=0 -v -run '^TestKill$$|^TestReplicatedKills$$' -parallel 1 ./pgstore

# What make bench measures: a regular expression; cd bench && go run . list names the scenarios.
ONLY ?= .

.PHONY: testbench
testbench: deps ## Check and test the programs that measure, a module of their own (5 minutes)
	cd bench && go vet ./... && go tool -modfile="$(CURDIR)/tools/go.mod" staticcheck ./... && go test -vet=off -shuffle=on ./...

.PHONY: benchdeps
benchdeps:
	@if ! command -v beanstalkd >/dev/null; then \
		if [[ $$(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then \
			echo "the server is measured beside beanstalkd: install it, on Debian and Ubuntu with: sudo make benchdeps" >&2; exit 1; \
		fi; \
		apt-get update -q; DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends beanstalkd; \
	fi

.PHONY: bench
bench: deps benchdeps ## Measure, and write docs/performance.md with its charts (30 minutes; ONLY=^redis: 15)
	cd bench && go run . run -only '$(ONLY)' && go run . report

# What the tests in a browser look at: all kinds of store, or one: mem, disk, redis, postgres, or the URL of an empty Redis or
# PostgreSQL. PENDING is how many messages the largest store has, beside a tenth of that dead ones.
STORE ?= all
PENDING ?= 20000
BROWSER := $(firstword $(foreach p,chromium chromium-browser google-chrome google-chrome-stable,$(shell command -v $(p))))

.PHONY: browserdeps
browserdeps:
	@missing=; if [[ -z "$(BROWSER)" ]]; then missing=chromium; fi; \
	if ! command -v npm >/dev/null; then missing="$$missing npm"; fi; \
	if [[ -n $$missing ]]; then \
		if [[ $$(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then \
			echo "the tests in a browser need $$missing: install them, on Debian as root with make browser" >&2; exit 1; \
		fi; \
		apt-get update -q; DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; \
	fi
	cd console/browsertest && npm ci --no-audit --no-fund

.PHONY: browser
browser: deps browserdeps ## Test the console's pages in Chromium, with axe-core (6 minutes; STORE=all PENDING=20000)
	cd console/browsertest && go vet ./... && go tool -modfile="$(CURDIR)/tools/go.mod" staticcheck ./...
	cd console/browsertest && PUNCTUAL_BROWSER=required go test -count=1 -timeout=30m $(TESTFLAGS) . -args -store '$(STORE)' -pending '$(PENDING)'

# Which pictures of the console the documentation shows.
SHOWN := now-light now-dark ahead-light week-light topics-light message-dark dead-light

.PHONY: screens
screens: browserdeps ## Take pictures of all pages of the console into bin/console, and those that are shown into docs/img/console
	@$(MAKE_BIN)
	mkdir -p bin/console docs/img/console
	cd console/browsertest && PUNCTUAL_BROWSER=required go test -count=1 -run TestScreens . -args -store mem -screens '$(CURDIR)/bin/console'
	for name in $(SHOWN); do cp bin/console/$$name.png docs/img/console/; done

# The picture is the last frame of a recorded terminal.
.PHONY: picture
picture: build ## Draw the demo's picture for the README (needs asciinema and npx)
	asciinema rec --overwrite -q --cols 104 --rows 32 -c 'bin/punctual demo' bin/demo.cast </dev/null
	npx --yes svg-term-cli@2.1.1 --window --in bin/demo.cast --out docs/img/demo.svg --at "$$(tail -n 1 bin/demo.cast | awk -F '[[,]' '{ print int($$2 * 1000) + 1000 }')"

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf bin
