package sharedstore_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/storetest/ledger"
)

const (
	// killRounds is how many rounds the ordinary test run makes; PUNCTUAL_TORTURE_CYCLES asks for
	// another number.
	killRounds = 2
	// killProcesses is how many processes use the directory at the same time.
	killProcesses = 3
	// killsPerRound is how often the owner is killed in a round, before all processes are killed.
	killsPerRound = 3
)

// becameOwner is what a child says when it owns the directory.
const becameOwner byte = 'O'

// TestSlowKillOwner kills the owner of a directory again and again while other processes call it.
// Each time another process becomes the next owner. The ledger compares the answers that all
// processes got with the messages that are in the store after each round.
func TestSlowKillOwner(t *testing.T) {
	t.Parallel()
	k := &killRun{
		t: t, dir: filepath.Join(t.TempDir(), "store"), journal: filepath.Join(t.TempDir(), "journal"),
		ledger: ledger.New(ledger.KeepsTransactions), rng: rand.New(rand.NewPCG(ledger.TortureSeed(t), 0)),
	}
	// The answer of a claim may be lost with its owner, and the leases that the claim got then run
	// out.
	k.ledger.Lossy, k.ledger.GivesBack = true, true
	k.ledger.Expected = []string{"deadline", "canceled", "indeterminate", "unreachable", "overloaded"}
	t.Cleanup(func() {
		for p := range k.running {
			_ = p.Kill() // the test has failed already
		}
	})
	rounds := ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", killRounds)
	for i := range rounds {
		k.round(i)
		if t.Failed() {
			name, err := ledger.DumpLines(k.lines)
			t.Fatalf("in round %d of %d; the lines are in %s (%v)", i+1, rounds, name, err)
		}
	}
	k.audit()
	t.Logf("%d rounds: owners killed %d times, %d of them with calls of others under way; %v", rounds, k.killed, k.loaded, k.ledger)
	if k.loaded == 0 || k.ledger.Deliveries == 0 || k.ledger.Acknowledged == 0 {
		t.Error("owners were not killed under load, so this shows nothing")
	}
}

// killRun is the parent of the processes that are killed.
type killRun struct {
	t            *testing.T
	dir, journal string
	ledger       *ledger.Ledger
	rng          *rand.Rand
	process      int64
	running      map[*ledger.ChildProcess]int64 // the processes that run, with their numbers
	owner        *ledger.ChildProcess           // nil until a process is known to own the directory
	kills        []ownerKill                    // those of this round
	// killed is how many owners killOwner has killed in all rounds, loaded how many of them with
	// calls of other processes under way.
	killed, loaded int
	lines          []ledger.Line // those of this round
}

// ownerKill is the kill of an owner, between two times in Unix milliseconds.
type ownerKill struct {
	process  int64
	from, to int64
}

// round lets processes work, kills one owner after the other, then all processes, and reads what is
// in the store.
func (k *killRun) round(i int) {
	k.running, k.kills, k.lines = make(map[*ledger.ChildProcess]int64), nil, nil
	said := make(chan said, 100)
	for range killProcesses {
		k.start(said)
	}
	for range killsPerRound {
		k.awaitOwner(said)
		time.Sleep(time.Duration(50+k.rng.IntN(300)) * time.Millisecond) // the processes work meanwhile
		k.killOwner()
		k.start(said)
	}
	k.awaitOwner(said)
	// The owner is killed last, so that no other process becomes the owner without being counted.
	for p := range k.running {
		if p != k.owner {
			k.kill(p)
		}
	}
	k.kill(k.owner)
	k.read()
	k.ledger.End(time.Now().UnixMilli())
	s, err := sharedstore.Open(k.t.Context(), k.dir, &sharedstore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		k.t.Fatal(err)
	}
	if !s.Owner() {
		k.t.Error("somebody else owns the directory when all processes have ended")
	}
	rec := ledger.NewRecorder(s, auditProcess+1+int64(i), nil, k.add)
	if err := errors.Join(rec.Look(k.t.Context()), s.Close()); err != nil {
		k.t.Error(err)
	}
	for _, p := range k.ledger.Problems() {
		k.t.Error(p)
	}
}

// auditProcess is the number under which audit reads the store at the end. The readings after the
// rounds have the numbers after it.
const auditProcess = 1 << 20

// said is a byte that a child process has said to its parent.
type said struct {
	process *ledger.ChildProcess
	what    byte
}

// start starts a process and returns when its store is open. What the process says after that goes
// to all.
func (k *killRun) start(all chan<- said) {
	k.process++
	p, err := ledger.StartChild("TestKillOwnerChild", ledger.Child{Store: k.dir, Journal: k.journal, Process: k.process, Seed: k.rng.Uint64()})
	if err != nil {
		k.t.Fatal(err)
	}
	k.running[p] = k.process
	for what := range p.Said {
		if what != ledger.Working {
			all <- said{p, what}
			continue
		}
		go func() { // ends with the process
			for what := range p.Said {
				all <- said{p, what}
			}
		}()
		return
	}
	k.t.Fatal(p.Kill()) // the process has ended before it opened its store
}

// awaitOwner waits until a process that runs owns the directory.
func (k *killRun) awaitOwner(all <-chan said) {
	for k.owner == nil {
		select {
		case s := <-all:
			if _, runs := k.running[s.process]; runs && s.what == becameOwner {
				k.owner = s.process
			}
		case <-time.After(time.Minute):
			k.t.Fatal("no process took the directory over")
		}
	}
}

func (k *killRun) killOwner() {
	x := ownerKill{process: k.running[k.owner], from: time.Now().UnixMilli()}
	k.kill(k.owner)
	x.to = time.Now().UnixMilli()
	k.kills = append(k.kills, x)
	k.killed++
	k.owner = nil
}

func (k *killRun) kill(p *ledger.ChildProcess) {
	delete(k.running, p)
	if err := p.Kill(); err != nil {
		k.t.Error(err)
	}
}

// read hands the lines of the journal to the ledger, and counts the kills of the round during which
// calls of other processes were under way.
func (k *killRun) read() {
	for _, x := range k.kills {
		k.ledger.ServerKilled(x.from, x.to)
	}
	k.owner = nil
	began := make(map[int64]int64)
	met := make(map[ownerKill]bool)
	ended := 0
	err := ledger.ReadJournal(k.journal, func(e ledger.Line) {
		// The calls that an owner has made itself end when it is killed.
		for ; ended < len(k.kills) && k.kills[ended].to < e.At; ended++ {
			k.ledger.End(k.kills[ended].to, k.kills[ended].process)
		}
		k.add(e)
		switch {
		case e.Call == ledger.LineStart || e.Call == ledger.LineStop:
		case !e.Answer:
			began[e.N] = e.At
		default:
			for _, x := range k.kills {
				if ledger.ProcessOf(e.N) != x.process && began[e.N] < x.from && x.to < e.At {
					met[x] = true
				}
			}
		}
	})
	k.loaded += len(met)
	if err := errors.Join(err, os.Remove(k.journal)); err != nil {
		k.t.Error(err)
	}
}

func (k *killRun) add(e ledger.Line) {
	k.lines = append(k.lines, e)
	k.ledger.Add(e)
}

// audit has the ledger deliver and read all messages that are left.
func (k *killRun) audit() {
	clock := &ledger.ShiftedClock{}
	s, err := diskstore.Open(k.dir, &diskstore.Options{Clock: clock, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		k.t.Fatal(err)
	}
	if err := errors.Join(k.ledger.Audit(k.t.Context(), s, auditProcess, clock), s.Close()); err != nil {
		k.t.Error(err)
	}
	for _, p := range k.ledger.Problems() {
		k.t.Error(p)
	}
}

// TestKillOwnerChild is a process that uses the directory until its parent kills it. When it is run
// without a parent, it is skipped.
func TestKillOwnerChild(t *testing.T) {
	c, ok := ledger.ChildOf(t)
	if !ok {
		t.Skip("this is a child process of another test")
	}
	j, err := ledger.OpenJournal(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sharedstore.Open(t.Context(), c.Store, &sharedstore.Options{Wait: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.Say(ledger.Working)
	go func() {
		for !s.Owner() {
			time.Sleep(time.Millisecond)
		}
		c.Say(becameOwner)
	}()
	w := &ledger.Workload{
		Store: s, Process: c.Process, Seed: c.Seed, Emit: j.Write, Pause: ledger.Pause(),
		Deadlines: true, Worker: true, BigBodies: true, ClaimTopics: 1,
	}
	w.Run(context.Background())
}
