# One verb for each intent; CI runs the same ones (.ci/run).

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.buildVersion=$(VERSION)

# How long: for each fuzz target, for each benchmark, and rounds of kill -9.
FUZZ_TIME    ?= 10s
BENCH_TIME   ?= 100ms
BENCH_COUNT  ?= 6
CRASH_ROUNDS ?= 20
SEEDS        ?= 5000
DAMAGED_COPIES ?= 10000
RANDOM_LOGS  ?= 20000
MEMBER_ROUNDS ?= 10

.PHONY: help build demo dev test race lint fmt fuzz bench bench-baseline bench-report test-crash test-topics test-members test-timers consistency-quick consistency consistency-long seeded-bugs random-logs sim damaged-copies compat check clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## bin/raftq
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/raftq ./cmd/raftq

demo: build ## three nodes, 1000 jobs, kill -9 of the leader: nothing is lost
	bin/raftq demo

dev: build ## three nodes in this terminal, data in ./raftq-local
	bin/raftq local

test: ## all tests, one package at a time: some measure time, some use both cores
	$(GO) test -p 1 -timeout 14m ./...

race: ## all tests under the race detector
	$(GO) test -race -timeout 20m ./...

lint: ## formatting, vet, staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "gofmt would change:"; echo "$$files"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

fmt: ## format the sources
	gofmt -w $$(git ls-files '*.go')

fuzz: ## every fuzz target for FUZZ_TIME
	@set -e; grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/func //' | while IFS=: read -r file name; do \
		echo "== $$(dirname $$file) $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 20x "$$(dirname $$file)"; \
	done

bench: ## every benchmark, BENCH_COUNT times for BENCH_TIME, against docs/bench-baseline.txt
	@mkdir -p bin
	$(GO) test -p 1 -run '^$$' -bench . -benchmem -benchtime $(BENCH_TIME) -count $(BENCH_COUNT) ./fsm ./httpapi ./respapi ./snapshot ./wal > bin/bench.txt || { cat bin/bench.txt; exit 1; }
	$(GO) tool benchstat $(wildcard docs/bench-baseline.txt) bin/bench.txt

bench-baseline: bench ## makes what bench measures the baseline
	cp bin/bench.txt docs/bench-baseline.txt

bench-report: build ## three nodes, the standard set, tables in docs/performance.md, charts in bin/bench-report.html
	bin/raftq bench report --docs docs/performance.md --html bin/bench-report.html --json bin/bench-report.json

test-crash: ## CRASH_ROUNDS rounds of kill -9 under load, on real processes
	RAFTQ_CRASH_ROUNDS=$(CRASH_ROUNDS) $(GO) test -count=1 -v -timeout 60m -run TestCrash ./consistency

test-members: ## MEMBER_ROUNDS times a cluster grows from one node to five and shrinks again, under load
	RAFTQ_MEMBER_ROUNDS=$(MEMBER_ROUNDS) $(GO) test -count=1 -v -timeout 60m -run 'TestMembersUnderLoad|TestLostDisk|TestRejoin' ./consistency

test-timers: ## 10,000 timers on real nodes: none early, none 100 ms late; wants a machine at rest
	RAFTQ_TIMERS=10000 $(GO) test -count=1 -v -timeout 20m -run 'TestTimers$$' ./consistency

test-topics: ## a million messages of 100 bytes, eight readers on three nodes, the leader killed; prints figures
	RAFTQ_TOPIC_MESSAGES=1000000 $(GO) test -count=1 -v -timeout 30m -run 'TestTopicStream$$' ./consistency

# The suite on real processes; as root with namespaces and loop devices, else with less.
SUITE = RAFTQ_CONSISTENCY=$(1) RAFTQ_CONSISTENCY_REPORT=$(CURDIR)/bin/consistency.html $(GO) test -count=1 -v -timeout $(2) \
	-run 'TestFaults|TestMixedFaults|TestDamagedFiles|TestCoordinatedPowerCut|TestPowerCutOfThePivot|TestFailedWrite|TestClocks|TestMembersInTheSuite|TestFailpoints|TestRollingUpgrade|TestNearlyFullDisk|TestFailingFiles|TestTornPowerCut|TestSnapshotSpoiledOnItsWay' ./consistency

consistency-quick: ## real processes under every kind of fault, 4 minutes; report in bin/consistency.html
	@mkdir -p bin
	$(call SUITE,quick,10m)

consistency: ## the same, 10 minutes
	@mkdir -p bin
	$(call SUITE,normal,20m)

consistency-long: ## the same, 75 minutes, 20 rounds of what other queues failed at
	@mkdir -p bin
	$(call SUITE,long,120m)

seeded-bugs: ## each bug on purpose: the tests must find it; table in bin/seeded-bugs.md
	@mkdir -p bin
	RAFTQ_SEEDED_BUGS=$(or $(SEEDED),cheapest) RAFTQ_SEEDED_REPORT=$(CURDIR)/bin/seeded-bugs.md $(GO) test -count=1 -v -timeout 60m -run TestSeededBugs ./consistency

random-logs: ## RANDOM_LOGS random logs, the machine against a naive model
	RAFTQ_RANDOM_LOGS=$(RANDOM_LOGS) $(GO) test -count=1 -v -timeout 0 -run 'TestRandomEntries$$' ./fsm

sim: ## SEEDS seeds of the simulator
	RAFTQ_SIM_SEEDS=$(SEEDS) $(GO) test -count=1 -v -timeout 0 -run 'TestSim$$' ./raftnode

damaged-copies: ## DAMAGED_COPIES damaged copies of data directories, each opened as a node does
	RAFTQ_DAMAGED_COPIES=$(DAMAGED_COPIES) $(GO) test -count=1 -v -timeout 30m -run 'TestDamagedCopies$$' ./raftnode

compat: ## clients of other people against three nodes; needs npm and redis-tools (Debian)
	RAFTQ_COMPAT=1 $(GO) test -count=1 -timeout 20m -run 'TestCompat$$' -v ./respapi

check: lint test ## what CI runs, and the race detector on the parts with goroutines
	$(GO) test -race -short -timeout 12m ./cluster ./cmd/raftq ./hangup ./httpapi ./raftnode ./respapi ./wal

clean: ## what was built
	rm -rf bin
