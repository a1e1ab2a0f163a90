package main

import (
	"context"
	"fmt"
	"time"
)

// scenario is one thing to measure. Each of its rounds runs in one process.
type scenario struct {
	name  string
	about string
	// procs is the GOMAXPROCS of the process; 0 stands for one for each CPU but at least 4, as in
	// cmd/punctual.
	procs int
	// maxRounds bounds the rounds of long scenarios; 0 is no bound.
	maxRounds int
	// pending tells that the scenario works on the one large store that pending/fill makes. All
	// other scenarios have a fresh store in each round.
	pending bool
	// after names a scenario that runs before each round of this one and whose process is killed
	// with SIGKILL under load; empty for none.
	after string
	// hidden scenarios run only where another scenario names them in after.
	hidden bool
	// takes guesses how long a round takes. The progress shows the sum for the rounds that are
	// left.
	takes func(sizes) time.Duration
	run   func(context.Context, *env) error
}

// env is what a round works with.
type env struct {
	dir   string // the directory of the store or of the servers; it may not exist yet
	kept  string // a folder that outlives the round: for the IDs of pending/*, and for the file that limit.measure writes
	sizes sizes
	round int
	// say shows, as progress, which phase of the round has begun.
	say func(format string, args ...any)
	// ready tells the parent that this process is under load, so that the parent may kill it.
	ready func()
	out   *Result
}

// scenarios returns all scenarios. First run those on fresh stores, round by round, and then those
// on the large store, one scenario after the other (plan); within a round they run in the order of
// this list.
func scenarios() []scenario {
	var all []scenario
	all = append(all, scheduleScenarios()...)
	all = append(all, drainScenario())
	all = append(all, steadyScenarios()...)
	all = append(all, busyScenarios()...)
	all = append(all, redisScheduleScenarios()...)
	all = append(all, redisDrainScenarios()...)
	all = append(all, redisLatenessScenarios()...)
	all = append(all, bullmqScenarios()...)
	all = append(all, redisCostScenarios()...)
	all = append(all, redisTopicsScenarios()...)
	all = append(all, postgresScenarios()...)
	all = append(all, serverScenarios()...)
	all = append(all, consoleScenarios()...)
	all = append(all, followScenarios()...)
	return append(all, pendingScenarios()...)
}

func scenarioNamed(name string) (scenario, error) {
	for _, s := range scenarios() {
		if s.name == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("there is no scenario %q: see bench list", name)
}

// spans returns a guess of a round's length: n times the span of a measurement, and a fixed time.
func spans(n float64, fixed time.Duration) func(sizes) time.Duration {
	return func(z sizes) time.Duration { return time.Duration(n*float64(z.Span)) + fixed }
}

func windowPlus(fixed time.Duration) func(sizes) time.Duration {
	return func(z sizes) time.Duration { return z.Window + fixed }
}
