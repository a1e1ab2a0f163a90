package main

import (
	"context"
	"fmt"
	"time"
)

// scenario is one thing to measure. A round of it is one process.
type scenario struct {
	name  string
	about string
	// procs is the GOMAXPROCS of its process; 0 is what cmd/punctual sets.
	procs int
	// maxRounds bounds the rounds of long scenarios; 0 is no bound.
	maxRounds int
	// pending tells that it works on the one large store that pending/fill makes; the others
	// have a fresh one.
	pending bool
	// after names a scenario whose process is killed with SIGKILL under load before each
	// round of this one; empty for none.
	after string
	// hidden scenarios are only run as the after of another.
	hidden bool
	// takes guesses the length of a round, for the time left.
	takes func(sizes) time.Duration
	run   func(context.Context, *env) error
}

// env is what a round works with.
type env struct {
	dir   string // the store's directory, or the servers' on Redis; it may not exist yet
	kept  string // a folder that outlives the round, for pending/*
	sizes sizes
	round int
	// say shows a phase of the round as progress.
	say func(format string, args ...any)
	// ready tells the parent that a process which is to be killed is under load.
	ready func()
	out   *Result
}

// scenarios returns all scenarios in the order in which they run. Those on fresh stores run round
// by round, then those on the large store one after the other.
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

// spans guesses a round's length as a number of spans and something fixed.
func spans(n float64, fixed time.Duration) func(sizes) time.Duration {
	return func(z sizes) time.Duration { return time.Duration(n*float64(z.Span)) + fixed }
}

func windowPlus(fixed time.Duration) func(sizes) time.Duration {
	return func(z sizes) time.Duration { return z.Window + fixed }
}
