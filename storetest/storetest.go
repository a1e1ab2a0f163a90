// Package storetest is the suite that every Punctual store passes.
//
// A store's own test is ten lines:
//
//	func TestStore(t *testing.T) { storetest.Run(t, open) }
//	func TestSlowTransitions(t *testing.T) { transitions.Run(t, open) }
//	func TestSlowRandom(t *testing.T) { random.Run(t, open) }
//	func TestSlowRaces(t *testing.T) { races.Run(t, open) }
//
//	func open(t *testing.T, clock storekit.Clock) punctual.Store {
//		s := mystore.New(clock)
//		t.Cleanup(func() { s.Close() })
//		return s
//	}
//
// One case alone: go test -run 'TestStore/settle/ack_twice'.
//
// Run has one small case per rule of the contract, as the files of the root package state it:
// store.go, message.go, inspector.go and those of the other optional interfaces. Most other
// packages of the suite need no cases, because each has another judge of what is right:
//
//   - transitions compares every operation in every situation of a message with package memstore.
//   - random compares long random histories with package memstore.
//   - races lets goroutines fight over a few messages and judges what they saw.
//   - ledger judges what callers saw of a store that is killed, cut off or loses power under load.
//   - duties has cases of its own: that the copies of groups, forwarded follow-ups and schedules
//     are whole, and made once.
//
// Every failure of Run begins with the promise that was broken (P1 to P14, package promise), and so
// do most failures of the other packages.
package storetest

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Open opens a fresh, empty store and has it closed by t.Cleanup. The store reads its time from
// clock, or from the system clock when clock is nil. Some cases close the store themselves, so a
// second Close must not fail the test.
type Open func(t *testing.T, clock storekit.Clock) punctual.Store

// Reopen ends old, which reads its time from clock, and opens the same data again on the same
// clock, as a restarted process would. It closes old, or leaves old as a kill would leave it. For a
// client of a server it may end the server in place of old, and return old.
type Reopen func(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store

// Option adjusts a suite to a store.
type Option func(*Options)

// Options are what the options of a suite say. Those who run a suite pass options; Run and packages
// random and races read them.
type Options struct {
	// Reopen is as WithReopen says; nil for a store that is not durable.
	Reopen Reopen
	// Partition is as WithPartitions says; nil for a store that keeps each topic in one.
	Partition func(id string) int
	// ClockElsewhere is as WithClockElsewhere says.
	ClockElsewhere bool
	// LossyClaims is as WithLossyClaims says.
	LossyClaims bool
}

// WithReopen tells the suite how to reopen a durable store. Without it Run skips the cases of group
// "reopen" and what other cases check of a store that was opened anew. With it random.Run reopens
// in the middle of its histories.
func WithReopen(r Reopen) Option {
	return func(o *Options) { o.Reopen = r }
}

// WithPartitions tells the suite that the store keeps its topics in several partitions. Order (P12)
// then holds only among messages for whose IDs of returns the same number.
func WithPartitions(of func(id string) int) Option {
	return func(o *Options) { o.Partition = of }
}

// WithClockElsewhere tells the suite that others than the callers of the store read its clock, such
// as a server.
func WithClockElsewhere() Option {
	return func(o *Options) { o.ClockElsewhere = true }
}

// WithLossyClaims tells the suite that the answer of a claim may be lost when its context ends. The
// store then gives back what the claim has leased, and the attempt is not counted. In races.Run,
// whose leases are short, the answer may also come after the leases have ended, as on a network.
// Then the claim does not return those messages, and the store may give them back too late, so that
// an attempt counts although nobody saw it.
func WithLossyClaims() Option {
	return func(o *Options) { o.LossyClaims = true }
}

// Collect returns what all options say together.
func Collect(opts []Option) Options {
	var o Options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Run runs every conformance case, each on a store of its own. The case moves the store's clock, so
// no case waits in real time for a message to become due. Cases that need an optional interface are
// skipped, and say so, when the store does not have it.
func Run(t *testing.T, open Open, opts ...Option) {
	o := Collect(opts)
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					runCase(t, c, opener{
						open:   func(clock storekit.Clock) punctual.Store { return open(t, clock) },
						reopen: reopenIn(t, o.Reopen), partition: o.Partition,
						elsewhere: o.ClockElsewhere, lossyClaims: o.LossyClaims,
					})
				})
			}
		})
	}
}

// RunReopen runs the cases of group "reopen" alone. It is for further ways in which the process of
// a durable store may end. For example, reopen may leave old as a kill would leave it, without
// Close, and open the data again.
func RunReopen(t *testing.T, open Open, reopen Reopen) {
	for _, c := range reopenCases() {
		t.Run(c.name, func(t *testing.T) {
			runCase(t, c, opener{
				open:   func(clock storekit.Clock) punctual.Store { return open(t, clock) },
				reopen: reopenIn(t, reopen),
			})
		})
	}
}

func reopenIn(t *testing.T, r Reopen) func(punctual.Store, storekit.Clock) punctual.Store {
	if r == nil {
		return nil
	}
	return func(old punctual.Store, clock storekit.Clock) punctual.Store { return r(t, old, clock) }
}

// groups lists the cases by the question that a reader has. Each group is one file, and
// finished_list.go and survey.go have further cases of the groups finished and inspect.
func groups() []group {
	return []group{
		{"push", pushCases()},
		{"duplicate", duplicateCases()},
		{"early", earlyCases()},
		{"claim", claimCases()},
		{"wait", waitCases()},
		{"settle", settleCases()},
		{"then", thenCases()},
		{"fencing", fencingCases()},
		{"attempts", attemptCases()},
		{"amend", amendCases()},
		{"ifdue", ifDueCases()},
		{"bulk", bulkCases()},
		{"expiry", expiryCases()},
		{"bounds", boundCases()},
		{"ids", idsCases()},
		{"keys", keyCases()},
		{"topics", topicCases()},
		{"companions", companionCases()},
		{"inspect", inspectCases()},
		{"purge", purgeCases()},
		{"finished", finishedCases()},
		{"events", eventCases()},
		{"clock", clockCases()},
		{"badinput", badInputCases()},
		{"ownership", ownershipCases()},
		{"together", togetherCases()},
		{"large", largeCases()},
		{"isolation", isolationCases()},
		{"repeat", repeatCases()},
		{"contract", contractCases()},
		{"close", closeCases()},
		{"reopen", reopenCases()},
	}
}

type group struct {
	name  string
	cases []testCase
}

// testCase is one rule of the contract.
type testCase struct {
	name    string
	promise string // what its failures say is broken
	run     func(s *harness)
}

// The promises by short names, for the tables of cases.
const (
	p1  = promise.P1
	p2  = promise.P2
	p3  = promise.P3
	p4  = promise.P4
	p5  = promise.P5
	p6  = promise.P6
	p7  = promise.P7
	p8  = promise.P8
	p9  = promise.P9
	p10 = promise.P10
	p11 = promise.P11
	p12 = promise.P12
	p13 = promise.P13
	p14 = promise.P14
)

// T is the part of *testing.T that a case needs. The suite's own test records failures
// through it to show that broken stores are caught.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// opener opens the store of one case.
type opener struct {
	open   func(storekit.Clock) punctual.Store
	reopen func(old punctual.Store, clock storekit.Clock) punctual.Store // nil: not durable
	// partition is as WithPartitions says; nil: each topic is one.
	partition func(id string) int
	// elsewhere is as WithClockElsewhere says.
	elsewhere bool
	// lossyClaims is as WithLossyClaims says.
	lossyClaims bool
	// waitLimit is how long, in real time, something that must happen may take before the
	// case calls it a hang; 0 means defaultWaitLimit.
	waitLimit time.Duration
}

// defaultWaitLimit only bounds hangs. It is long so that a slow machine does not fail a case.
const defaultWaitLimit = 30 * time.Second

// runCase runs one case on a fresh store. Afterwards it checks the store for damage, unless the
// case has failed or has closed the store.
func runCase(t T, c testCase, o opener) {
	t.Helper()
	s := newHarness(t, c.promise, o)
	c.run(s)
	if !t.Failed() && !s.closed {
		s.checkSound()
	}
}
