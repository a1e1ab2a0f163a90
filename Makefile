# Needs Go, git and make. With a C compiler the tests run under the race detector.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The formatter and the linter are pinned in a module of their own (tools/go.mod), so that
# nothing of theirs enters the go.mod of those who import Punctual.
TOOL := go tool -modfile=tools/go.mod

# The race detector needs cgo, and go turns cgo off by itself where no C compiler is found.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# bin keeps itself out of version control.
MAKE_BIN := mkdir -p bin && echo '*' > bin/.gitignore

# Flags for the tests, for instance: make test TESTFLAGS='-run Cancel -v'
TESTFLAGS ?=

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-9s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build one static binary, ./bin/punctual
	@$(MAKE_BIN)
	CGO_ENABLED=0 go build -trimpath -o bin/punctual ./cmd/punctual

.PHONY: demo
demo: ## See orders closed on time, on a store in a temporary folder (about 15 s)
	go run ./cmd/punctual demo

# What the tests of redisstore start: the servers of Debian or Ubuntu, at least Redis 6.2, and
# for the durability class "replicated" one that has WAITAOF, which Debian 12 has in backports.
REDIS := redis-server redis-sentinel redis-cli
RECENT := valkey-server

.PHONY: deps
deps: ## Install what the tests need beside Go: Redis and Valkey, as root by apt-get
	@missing=; for p in $(REDIS) $(RECENT); do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	if [[ -z $$missing ]]; then exit 0; fi; \
	if [[ $$(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then \
		echo "the tests need$$missing (Redis 6.2, Valkey 7.2 or newer): install them, on Debian and Ubuntu with: sudo make deps" >&2; exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -q; \
	apt-get install -qy --no-install-recommends redis-server redis-sentinel redis-tools; \
	if ! apt-get install -qy --no-install-recommends valkey-server; then \
		. /etc/os-release; \
		if [[ $$ID != debian ]]; then echo "install valkey-server, 7.2 or newer, by other means" >&2; exit 1; fi; \
		echo "deb http://deb.debian.org/debian $$VERSION_CODENAME-backports main" >/etc/apt/sources.list.d/backports-for-valkey.list; \
		apt-get update -q; \
		apt-get install -qy --no-install-recommends -t $$VERSION_CODENAME-backports valkey-server; \
	fi

.PHONY: test
test: deps lint ## Check format and code, then run every test, with the race detector
	$(if $(RACE),,@echo 'note: no C compiler found, so the tests run without the race detector')
	go test $(RACE) -shuffle=on $(TESTFLAGS) ./...
	$(if $(RACE),go test -run '^TestMillionDueAtOnce$$' ./diskstore) # too slow under the race detector
	PUNCTUAL_REDIS_SERVER=$(RECENT) go test $(RACE) -run 'Replica|L11' ./redisstore # Redis 7.0 refuses what they ask for
	cd bench && go test $(RACE) -shuffle=on ./...

.PHONY: redis
redis: ## Test the stores in Redis on another server: make redis SERVER=/path/to/valkey-server
	@if [[ ! -x "$(SERVER)" ]]; then echo "name a server that can be run: make redis SERVER=/path/to/valkey-server" >&2; exit 1; fi
	PUNCTUAL_REDIS_SERVER=$(SERVER) go test $(RACE) -shuffle=on $(TESTFLAGS) ./redisstore

.PHONY: lint
lint: ## Check format (gofumpt) and code (go vet, staticcheck)
	@unformatted=$$($(TOOL) gofumpt -l .); \
	if [[ -n $$unformatted ]]; then echo "run make fmt, these files are not formatted:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	$(TOOL) staticcheck ./...
	cd bench && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...

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
# test goes through about 100.
CYCLES ?= 2000

.PHONY: torture
torture: ## Try the stores for long: random histories, races, kill -9, power cuts (CYCLES=2000)
	PUNCTUAL_TORTURE_CYCLES=$(CYCLES) PUNCTUAL_POWER_CUTS=$(CYCLES) \
		go test $(RACE) -count=1 -timeout=0 -run 'Random|Races|Kill|PowerCut' ./memstore ./diskstore -rapid.checks=$(CYCLES)

# What make bench measures: a regular expression; cd bench && go run . list names the scenarios.
ONLY ?= .

.PHONY: bench
bench: deps ## Measure, and write docs/performance.md with its charts (30 minutes; ONLY=^redis: 15)
	cd bench && go run . run -only '$(ONLY)' && go run . report

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf bin
