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

// killRounds is how many rounds the ordinary test run makes; PUNCTUAL_TORTURE_CYCLES asks for another number.
const killRounds = killFaults

// killFaults is how many kinds of faults TestSlowKill takes turns with.
const killFaults = 6

// killClients is how many processes work at the same time.
const killClients = 2

// killPartitions is into how many parts a topic is divided. A claim that looks into several parts or topics may lease
// messages in one and give them back when another is slow. The ledger cannot tell those from leases that nobody made.
const killPartitions = 1

// TestSlowKill has processes work on one server. In each round something happens to the server, and then the processes are
// killed. It is killed, hangs, cuts all connections, or its network carries nothing in one direction. What they were
// told is held against what they and a look at everything find.
func TestSlowKill(t *testing.T) {
	t.Parallel()
	server := redisrig.Start(t, "--appendfsync", "always")
	wire := netrig.StartWire(t, server.Addr)
	k := newKillRun(t, ledger.KeepsAll, "redis://"+wire.Addr, "fsync")
	k.quiet = func() bool { return strings.Count(do(t, server, "CLIENT", "LIST"), " addr=") <= 1 }
	kills, halts, cuts, networks := 0, 0, 0, make(map[netrig.Direction]int)
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
		case 4, 5: // requests are carried out and their answers are late, or the requests are
			direction := netrig.Direction(i % 2)
			networks[direction]++
			wire.Cut(direction)
			wire.AwaitHeld(t, direction, killClients)
			k.pause(1000, 5000) // a client waits 3 s for an answer
			wire.Mend(direction)
		}
		k.pause(200, 700)
	})
	k.audit(connect(t, server))
	t.Logf("the server was killed %d times with %d calls under way, halted %d times, all connections cut %d times, the network in one direction %v times",
		kills, k.underWay, halts, cuts, networks)
	if rounds >= killFaults && (networks[netrig.ToServer] == 0 || networks[netrig.FromServer] == 0) {
		t.Error("this test shows nothing of one direction of the network: it was never cut")
	}
}

// killRun is the parent of the processes that are killed.
type killRun struct {
	t       *testing.T
	url     string // for a look; that of the processes asks for a class, too
	class   string
	path    string
	journal *ledger.Journal
	ledger  *ledger.Ledger
	rng     *rand.Rand
	// quiet tells whether the servers have seen the end of all connections, behind which nothing of theirs can come.
	quiet func() bool
	// caughtUp, if not nil, has the replicas get all that was done in a round.
	caughtUp func()
	process  int64
	lines    []ledger.Line // the last ones
	round    int           // where those of this round begin in lines
	kills    [][2]int64    // clocks between which a server was killed, in this round
	underWay int           // calls during those of all rounds
	stories  int           // that had to be there, when looked at
	began    time.Time
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
	k.ledger.Earlier = 1000 // polls that are late hand their answers to the next claim
	k.ledger.Expected = []string{"deadline", "canceled", "indeterminate", "overloaded", "unreachable"}
	return k
}

// auditProcess is the number of the process that reads what is there; those that look between the rounds have the numbers behind it.
const auditProcess = 1 << 20

// manyRounds is in how many rounds some topic is sure to have kept a story.
const manyRounds = 50

// linesKept is about how many lines are kept for a look at what broke a promise.
const linesKept = 100_000

// run makes rounds: it lets processes work, during the fault of the round too, and kills them.
func (k *killRun) run(rounds int, fault func(i int)) {
	for i := range rounds {
		ps := k.start()
		fault(i)
		for _, p := range ps {
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
	if rounds >= manyRounds && k.stories == 0 {
		k.t.Error("this test shows nothing of stories: none had to be there")
	}
	if k.ledger.UnderWay == 0 || k.underWay == 0 {
		k.t.Error("this test shows nothing: no call was under way when a process was killed, or none when a server was")
	}
}

// read hands the lines of a round to the ledger, and what is there behind it.
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

// during counts the calls of a round that were under way between two clocks.
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
			k.t.Fatal(p.Kill()) // it has ended
		}
	}
	return ps
}

// pause lets the processes work for some milliseconds.
func (k *killRun) pause(least, most int) {
	time.Sleep(time.Duration(least+k.rng.IntN(most-least)) * time.Millisecond)
}

func (k *killRun) add(e ledger.Line) {
	k.lines = append(k.lines, e)
	k.ledger.Add(e)
}

// look reads all that is there. Without it, what each kill leaves open would multiply from round to round.
func (k *killRun) look(process int64) error {
	s, err := OpenURL(k.t.Context(), k.url, &Options{Partitions: killPartitions, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	r := ledger.NewRecorder(s, process, nil, k.add)
	err = r.Look(k.t.Context())
	kept, err2 := k.ledger.LookAtStories(k.t.Context(), r)
	k.stories += kept
	return errors.Join(err, err2, s.Close())
}

// audit has all that is left delivered and acknowledged in the end.
func (k *killRun) audit(client redis.UniversalClient) {
	clock := &ledger.ShiftedClock{}
	s := openStore(k.t, client, &Options{clock: clock, Partitions: killPartitions})
	if err := k.ledger.Audit(k.t.Context(), s, auditProcess, clock); err != nil {
		k.t.Error(err)
	}
	k.report()
	k.t.Logf("%d processes killed, %d stories looked at that had to be there, in %v: %s", k.process, k.stories, time.Since(k.began).Round(time.Second), k.ledger)
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
	s, err := OpenURL(context.Background(), c.Store, &Options{Partitions: killPartitions, Logger: slog.New(slog.DiscardHandler)})
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // servers that have just changed their roles
		s, err = OpenURL(context.Background(), c.Store, &Options{Partitions: killPartitions, Logger: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Say(ledger.Working)
	w := &ledger.Workload{
		Store: s, Process: c.Process, Seed: c.Seed, Emit: j.Write, Pause: ledger.Pause(),
		Deadlines: true, Worker: true, BigBodies: true, ClaimTopics: 1, Stories: true,
	}
	w.Run(context.Background())
}
