package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	netrig "github.com/punctualmq/punctual/internal/rigs/net"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// killRounds is how many rounds the ordinary test run makes; PUNCTUAL_TORTURE_CYCLES asks for
// another number.
const killRounds = killFaults

// killFaults is the number of rounds after which TestSlowKill begins anew with its faults.
const killFaults = 6

// killClients is how many processes work at the same time.
const killClients = 2

// killReadTimeout is for how long the processes of TestSlowKill wait for an answer of the server.
const killReadTimeout = 2 * time.Second

// timedOut is what such a process says when it has waited for an answer for that long.
const timedOut byte = 't'

// killPartitions is how many partitions a topic has. A claim that asks several partitions or topics
// may lease messages in one and give them back when another is slow. The ledger cannot tell those
// leases from leases that nobody made.
const killPartitions = 1

// TestSlowKill has processes work on one server. In each round the server is killed, hangs or cuts
// all connections but those of notifications, or its network carries nothing in one direction, and
// then the processes are killed. The ledger compares the answers that they got with what they and a
// read of everything find.
func TestSlowKill(t *testing.T) {
	t.Parallel()
	server := redisrig.Start(t, "--appendfsync", "always")
	wire := netrig.StartWire(t, server.Addr)
	k := newKillRun(t, ledger.KeepsAll, "redis://"+wire.Addr, "fsync")
	k.quiet = func() bool { return strings.Count(do(t, server, "CLIENT", "LIST"), " addr=") <= 1 }
	kills, halts, cuts, networks, outlasted := 0, 0, 0, make(map[netrig.Direction]int), make(map[netrig.Direction]int)
	rounds := ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", killRounds)
	k.run(rounds, func(i int) {
		k.pause(200, 700)
		switch i % killFaults {
		case 0, 2:
			kills++
			k.kill(server)
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
		case 1:
			halts++
			stopped(t, server)
			k.pause(100, 500)
			goOn(t, server)
		case 3:
			cuts++
			if do(t, server, "CLIENT", "KILL", "TYPE", "normal") == "0" {
				t.Error("this test shows nothing: there was no connection to cut")
			}
		case 4, 5: // in one direction requests are late, in the other one they are carried out and the answers are late
			direction := netrig.Direction(i % 2)
			networks[direction]++
			wire.Cut(direction)
			wire.AwaitHeld(t, direction, killClients)
			if i/killFaults%2 == 0 { // what is held arrives when its client no longer waits for it
				k.awaitTimeouts()
				outlasted[direction]++
			}
			k.pause(100, 2000)
			wire.Mend(direction)
		}
		k.pause(200, 700)
	})
	k.audit(connect(t, server))
	t.Logf("the server was killed %d times with %d calls under way, halted %d times, all connections cut %d times, the network in one direction %v times, of these %v times for longer than clients wait",
		kills, k.underWay, halts, cuts, networks, outlasted)
	if rounds >= killFaults && (outlasted[netrig.ToServer] == 0 || outlasted[netrig.FromServer] == 0) {
		t.Error("this test shows nothing of one direction of the network: it was never cut for longer than clients wait")
	}
}

// killRun is the parent of the processes that are killed.
type killRun struct {
	t       *testing.T
	url     string // for reads between the rounds; that of the processes asks for a class, too
	class   string
	path    string
	journal *ledger.Journal
	ledger  *ledger.Ledger
	rng     *rand.Rand
	// quiet reports whether the servers have seen the end of all connections, so that nothing of
	// the killed processes can come any more.
	quiet func() bool
	// caughtUp, if not nil, has the replicas get all that was done in a round.
	caughtUp  func()
	process   int64                  // the number of the last process
	processes []*ledger.ChildProcess // those of this round
	lines     []ledger.Line          // the last lines of the journal
	round     int                    // where the lines of this round begin in lines
	kills     [][2]int64             // of this round: the times between which a server was killed, in ms
	underWay  int                    // how many calls were under way during the kills of all rounds
	records   int                    // how many finished records were looked up that had to be there
	began     time.Time
}

func newKillRun(t *testing.T, d ledger.Durable, url, class string) *killRun {
	path := filepath.Join(t.TempDir(), "journal")
	journal, err := ledger.OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	k := &killRun{
		t: t, url: url, class: class, path: path, journal: journal, ledger: ledger.New(d),
		rng: rand.New(rand.NewPCG(ledger.TortureSeed(t), 0)), began: time.Now(),
	}
	k.ledger.GivesBack = true
	k.ledger.Anew = killReadTimeout.Milliseconds()
	k.ledger.Earlier = 1000 // because attempts that are late hand what they have leased to a later claim
	k.ledger.Expected = []string{"deadline", "canceled", "indeterminate", "overloaded", "unreachable"}
	return k
}

// auditProcess is the number of the process that makes the audit in the end. The reads between the
// rounds have the numbers after it.
const auditProcess = 1 << 20

// manyRounds is the number of rounds in which some topic is sure to have kept a finished record.
const manyRounds = 50

// linesKept is about how many lines are kept, from which the cause of a broken promise can be
// found.
const linesKept = 100_000

// run makes rounds. In each it lets processes work, also during the fault of the round, and kills
// them.
func (k *killRun) run(rounds int, fault func(i int)) {
	for i := range rounds {
		k.processes = k.start()
		fault(i)
		for _, p := range k.processes {
			if err := p.Kill(); err != nil {
				k.t.Error(err)
			}
		}
		k.read(i)
		if k.caughtUp != nil {
			k.caughtUp()
		}
		if k.t.Failed() {
			name, err := ledger.DumpLines(k.lines)
			k.t.Fatalf("in round %d of %d; the lines are in %s (%v)", i+1, rounds, name, err)
		}
		if (i+1)%10 == 0 {
			k.t.Logf("%d rounds in %v: %s", i+1, time.Since(k.began).Round(time.Second), k.ledger)
		}
	}
	if k.ledger.Deliveries == 0 || k.ledger.Acknowledged == 0 {
		k.t.Error("the rounds were too short for anything to happen")
	}
	if rounds >= manyRounds && k.records == 0 {
		k.t.Error("this test shows nothing of finished records: none had to be there")
	}
	if k.ledger.UnderWay == 0 || k.underWay == 0 {
		k.t.Error("this test shows nothing: no call was under way when a process was killed, or none when a server was")
	}
}

// read hands the lines of a round to the ledger, and then what is in the store after the round.
func (k *killRun) read(i int) {
	waitUntil(k.t, "the connections of processes that were killed are gone", k.quiet)
	if len(k.lines) > linesKept {
		k.lines = nil
	}
	k.round = len(k.lines)
	if err := ledger.ReadJournal(k.path, k.add); err != nil {
		k.t.Error(err)
	}
	for _, kill := range k.kills {
		k.underWay += k.during(kill)
	}
	k.kills = nil
	if err := os.Truncate(k.path, 0); err != nil {
		k.t.Error(err)
	}
	k.ledger.End(time.Now().UnixMilli())
	if err := k.look(auditProcess + 1 + int64(i)); err != nil {
		k.t.Error(err)
	}
	k.report()
}

// kill kills a server.
func (k *killRun) kill(server *redisrig.Server) {
	from := time.Now().UnixMilli()
	if err := server.Kill(); err != nil {
		k.t.Fatal(err)
	}
	k.kills = append(k.kills, [2]int64{from, time.Now().UnixMilli()})
}

// during counts the calls of a round that were under way while a server was killed.
func (k *killRun) during(kill [2]int64) (n int) {
	begun := make(map[int64]bool)
	for _, e := range k.lines[k.round:] {
		switch {
		case !e.Answer && e.At <= kill[0]:
			begun[e.N] = true
		case e.Answer && e.At < kill[1]:
			delete(begun, e.N)
		}
	}
	return len(begun)
}

// start starts the processes of a round, and returns when all have opened the store.
func (k *killRun) start() (ps []*ledger.ChildProcess) {
	for range killClients {
		k.process++
		c := ledger.Child{Store: k.url + "?durability=" + k.class, Journal: k.path, Process: k.process, Seed: k.rng.Uint64()}
		p, err := ledger.StartChild("TestKillChild", c)
		if err != nil {
			k.t.Fatal(err)
		}
		ps = append(ps, p)
	}
	for _, p := range ps {
		working := false
		for what := range p.Said {
			if working = what == ledger.Working; working {
				break
			}
		}
		if !working {
			k.t.Fatal(p.Kill()) // the process has ended
		}
	}
	return ps
}

// awaitTimeouts waits until each process of TestSlowKill has waited in vain for an answer, from now
// on.
func (k *killRun) awaitTimeouts() {
	for _, p := range k.processes {
		for len(p.Said) > 0 {
			<-p.Said
		}
		select {
		case what := <-p.Said:
			if what != timedOut {
				k.t.Fatal(p.Kill()) // the process has ended
			}
		case <-time.After(time.Minute):
			k.t.Fatal("a process waits for answers without end, or sends nothing")
		}
	}
}

// pause lets the processes work for some milliseconds.
func (k *killRun) pause(least, most int) {
	time.Sleep(time.Duration(least+k.rng.IntN(most-least)) * time.Millisecond)
}

func (k *killRun) add(e ledger.Line) {
	k.lines = append(k.lines, e)
	k.ledger.Add(e)
}

// look reads all that is in the store. Without that, the number of states that the kills leave
// possible would multiply from round to round.
func (k *killRun) look(process int64) error {
	s, err := OpenURL(k.t.Context(), k.url, &Options{Partitions: killPartitions, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	r := ledger.NewRecorder(s, process, nil, k.add)
	err = r.Look(k.t.Context())
	kept, err2 := k.ledger.ReadRecords(k.t.Context(), r)
	k.records += kept
	return errors.Join(err, err2, s.Close())
}

// audit has all messages that are left delivered and acked in the end.
func (k *killRun) audit(client redis.UniversalClient) {
	clock := &ledger.ShiftedClock{}
	s := openStore(k.t, client, &Options{clock: clock, Partitions: killPartitions})
	if err := k.ledger.Audit(k.t.Context(), s, auditProcess, clock); err != nil {
		k.t.Error(err)
	}
	k.report()
	k.t.Logf("%d processes killed, %d finished records read that had to be there, in %v: %s", k.process, k.records, time.Since(k.began).Round(time.Second), k.ledger)
}

func (k *killRun) report() {
	for _, p := range k.ledger.Problems() {
		k.t.Error(p)
	}
}

// TestKillChild is a process that a killRun starts and kills; by itself it does nothing.
func TestKillChild(t *testing.T) {
	c, ok := ledger.ChildOf(t)
	if !ok {
		t.Skip("this is a child process of TestSlowKill and others")
	}
	j, err := ledger.OpenJournal(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openKillChild(c)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // until servers that have just changed their roles take changes
		s, err = openKillChild(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Say(ledger.Working)
	w := &ledger.Workload{
		Store: s, Process: c.Process, Seed: c.Seed, Emit: j.Write, Pause: ledger.Pause(),
		Deadlines: true, Worker: true, BigBodies: true, ClaimTopics: 1, FinishedRecords: true,
	}
	w.Run(context.Background())
}

// openKillChild opens the store of a process that a killRun has started. With a single server the
// process says when an answer did not come within killReadTimeout.
func openKillChild(c ledger.Child) (*Store, error) {
	o := Options{Partitions: killPartitions, Logger: slog.New(slog.DiscardHandler)}
	a, err := parseURL(c.Store)
	if err != nil || a.kind != "" {
		return OpenURL(context.Background(), c.Store, &o)
	}
	if o, err = a.options(o); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: a.hosts[0], ReadTimeout: killReadTimeout})
	client.AddHook(&timeouts{each: func() { c.Say(timedOut) }})
	s, err := Open(context.Background(), client, &o)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}
