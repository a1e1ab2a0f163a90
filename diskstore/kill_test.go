package diskstore

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/punctualmq/punctual/storetest/ledger"
)

// killCycles is how often the ordinary test run kills the process; PUNCTUAL_TORTURE_CYCLES
// asks for another number.
const killCycles = 40

func tortureSeed(t *testing.T) uint64 { return ledger.TortureSeed(t) }

// expected are the errors that calls of a healthy store may end with: the workload ends some of
// them early.
var expected = []string{"deadline", "canceled", "indeterminate"}

// newLedger returns a ledger that judges a diskstore.
func newLedger() *ledger.Ledger {
	l := ledger.New(ledger.KeepsTransactions)
	l.Expected = expected
	return l
}

// TestSlowKill kills a process that works on a store, again and again, at random moments, some of
// them during recovery. It compares all that was ever acknowledged with what the store has.
func TestSlowKill(t *testing.T) {
	t.Parallel()
	k := &killRun{t: t, dir: t.TempDir(), ledger: newLedger(), rng: rand.New(rand.NewPCG(tortureSeed(t), 0))}
	cycles := ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", killCycles)
	began := time.Now()
	for i := range cycles {
		k.cycle(i)
		if t.Failed() {
			t.Fatalf("in cycle %d of %d", i+1, cycles)
		}
		if (i+1)%100 == 0 {
			t.Logf("%d cycles in %v: %s", i+1, time.Since(began).Round(time.Second), k.ledger)
		}
	}
	audit(t, k.ledger, filepath.Join(k.dir, "store"), Options{})
	t.Logf("%d kills, %d of them during recovery, in %v: %s", cycles, k.early, time.Since(began).Round(time.Second), k.ledger)
	if k.ledger.Deliveries == 0 || k.ledger.Acknowledged == 0 {
		t.Error("the cycles were too short for anything to happen")
	}
}

// auditProcess is the number of the process that compares a store with its history in the end.
const auditProcess = 1 << 30

// auditStore opens a store that a workload left behind and lets the ledger compare what is in it.
// An error is for a store that cannot be opened or read.
func auditStore(l *ledger.Ledger, dir string, o Options) (err error) {
	clock := &ledger.ShiftedClock{}
	o.Clock, o.Logger = clock, quiet
	s, err := Open(dir, &o)
	if err != nil {
		return err
	}
	err = l.Audit(context.Background(), s, auditProcess, clock)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	return err
}

// audit is auditStore, and fails the test for everything that is wrong.
func audit(t *testing.T, l *ledger.Ledger, dir string, o Options) {
	t.Helper()
	if err := auditStore(l, dir, o); err != nil {
		t.Errorf("after %d crashes: %v", l.Crashes, err)
	}
	for _, p := range l.Problems() {
		t.Error(p)
	}
}

// killRun is the parent of the processes that are killed.
type killRun struct {
	t      *testing.T
	dir    string
	ledger *ledger.Ledger
	rng    *rand.Rand
	early  int
	lines  []ledger.Line // the last lines of the history
}

// cycle runs a child and kills it: mostly some time after it has opened the store, sometimes
// soon after it began to open the store.
func (k *killRun) cycle(i int) {
	early := i%5 == 4
	after, sign := time.Duration(30+k.rng.IntN(250))*time.Millisecond, ledger.Working
	if early {
		k.early++
		after, sign = time.Duration(k.rng.IntN(20_000))*time.Microsecond, ledger.Opening
	}
	c := ledger.Child{
		Store: filepath.Join(k.dir, "store"), Journal: filepath.Join(k.dir, "journal"),
		Process: int64(i + 1), Seed: k.rng.Uint64(), Look: i%5 == 2,
	}
	p, err := ledger.StartChild("TestKillChild", c)
	if err != nil {
		k.t.Fatal(err)
	}
	for what := range p.Said {
		if what == sign {
			break
		}
	}
	time.Sleep(after)
	if err := p.Kill(); err != nil {
		k.t.Errorf("cycle %d: %v", i, err)
	}
	add := func(e ledger.Line) {
		k.lines = append(k.lines, e)
		k.ledger.Add(e)
	}
	if err := ledger.ReadJournal(c.Journal, add); err != nil && !(early && os.IsNotExist(err)) {
		k.t.Error(err)
	}
	_ = os.Remove(c.Journal) // which is not there if the child was killed before it made the file
	k.ledger.End(time.Now().UnixMilli())
	for _, p := range k.ledger.Problems() {
		k.t.Error(p)
	}
	if k.t.Failed() {
		dump(k.t, k.lines)
	}
	if len(k.lines) > linesKept {
		k.lines = nil
	}
}

// linesKept is about how many lines are kept at most, to find out later what broke a promise. Then
// all are dropped.
const linesKept = 500_000

// TestKillChild is the process that TestSlowKill starts and kills; by itself it does nothing.
func TestKillChild(t *testing.T) {
	c, ok := ledger.ChildOf(t)
	if !ok {
		t.Skip("this is the child process of TestSlowKill")
	}
	j, err := ledger.OpenJournal(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	c.Say(ledger.Opening)
	// The segments are small, so that some kills come while one is replaced.
	s, err := Open(c.Store, &Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), claimLimit: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	w := &ledger.Workload{Store: s, Process: c.Process, Seed: c.Seed, Emit: j.Write, Deadlines: true, Worker: true, BigBodies: true, PurgeLive: true}
	w.Begin()
	if c.Look {
		if err := w.Recorder().Look(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	c.Say(ledger.Working)
	w.Run(context.Background())
}

// dump writes the history of a run that broke a promise to a file.
func dump(t *testing.T, lines []ledger.Line) {
	t.Helper()
	name, err := ledger.DumpLines(lines)
	t.Logf("the lines are in %s (%v)", name, err)
}
