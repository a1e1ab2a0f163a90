package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	netrig "github.com/punctualmq/punctual/internal/rigs/net"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// killRounds is how many rounds the ordinary test run makes, one of each fault;
// PUNCTUAL_TORTURE_CYCLES asks for another number.
const killRounds = 5

// killClients is how many processes work at the same time.
const killClients = 2

// TestSlowKill has processes work on one server. In each round there is one fault: the server is
// killed, is stopped at once or hangs, or all connections are ended, or the network carries nothing
// in one direction and then nothing in the other. Then the processes are killed. The ledger
// compares the answers that they got with what later processes, and a reading of everything, find.
func TestSlowKill(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t)
	wire := netrig.StartWire(t, server.Addr)
	k := newKillRun(t, server)
	k.address = wire.Addr
	kills, stops, halts, cuts, networks := 0, 0, 0, 0, 0
	k.run(ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", killRounds), func(i int) {
		k.pause(200, 700)
		switch i % 5 {
		case 0:
			kills++
			k.outage(server.Kill, server.Restart)
		case 1:
			cuts++
			if n := doIt(t, server, "select count(pg_terminate_backend(pid)) from "+clients); n == "0" {
				t.Error("this test shows nothing: there was no connection to cut")
			}
		case 2:
			stops++
			k.outage(server.StopImmediately, server.Restart)
		case 3:
			networks++
			for _, direction := range []netrig.Direction{netrig.FromServer, netrig.ToServer} { // answers are lost, and then requests
				wire.Cut(direction)
				wire.AwaitHeld(t, direction, killClients)
				k.pause(250, 1250)
				wire.Mend(direction)
			}
		case 4:
			halts++
			k.outage(server.Freeze, server.Thaw)
		}
		k.pause(200, 700)
	})
	k.audit()
	t.Logf("the server was killed %d times, stopped at once %d times and halted %d times with %d calls under way, all connections were ended %d times, the network was cut in each direction %d times",
		kills, stops, halts, k.underWay, cuts, networks)
}

// clients selects the sessions of all clients, but for the session that asks.
const clients = "pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"

// doIt carries out statements by psql.
func doIt(t testing.TB, s *pgrig.Server, statements ...string) string {
	t.Helper()
	out, err := s.Do(statements...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// killRun is the parent of the processes that are killed.
type killRun struct {
	t       *testing.T
	server  *pgrig.Server // the one that the store is on
	address string        // hosts and ports for the processes
	class   string        // the durability that the processes ask for
	path    string        // of the journal
	journal *ledger.Journal
	ledger  *ledger.Ledger
	rng     *rand.Rand
	// before, if not nil, makes the servers ready for a round, and deadlines has some calls end
	// early.
	before    func()
	deadlines bool
	process   int64
	lines     []ledger.Line // the last lines of the journal
	round     int           // where the lines of this round begin in lines
	outages   [][2]int64    // between which times a server went away, for each outage of this round
	underWay  int           // how many calls were under way when a server went away, in all rounds
	began     time.Time
}

func newKillRun(t *testing.T, server *pgrig.Server) *killRun {
	path := filepath.Join(t.TempDir(), "journal")
	journal, err := ledger.OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	k := &killRun{
		t: t, server: server, address: server.Addr, class: "fsync", path: path, journal: journal, ledger: ledger.New(ledger.KeepsAll),
		rng: rand.New(rand.NewPCG(ledger.TortureSeed(t), 0)), deadlines: true, began: time.Now(),
	}
	k.ledger.TellsGivenBack = true
	k.ledger.Expected = []string{"deadline", "canceled", "indeterminate", "overloaded", "unreachable"}
	pool := newPool(t, server)
	defer pool.Close()
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

// auditProcess is the number, in the ledger, of the process that reads everything in the end. Those
// that read between the rounds have the numbers behind it.
const auditProcess = 1 << 20

// linesKept is about how many lines are kept to show what broke a promise.
const linesKept = 100_000

// run makes rounds: it lets processes work, during the fault of the round too, and kills them.
func (k *killRun) run(rounds int, fault func(i int)) {
	for i := range rounds {
		if k.before != nil {
			k.before()
		}
		ps := k.start()
		fault(i)
		for _, p := range ps {
			if err := p.Kill(); err != nil {
				k.t.Error(err)
			}
		}
		k.read(i)
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
	if k.ledger.UnderWay == 0 || k.underWay == 0 {
		k.t.Error("this test shows nothing: no call was under way when a process was killed, or none when a server was")
	}
}

// read hands the lines of a round to the ledger, and then what a reading of everything finds.
func (k *killRun) read(i int) {
	// When all connections have ended nothing more of the killed processes can take effect.
	for limit := time.Now().Add(time.Minute); doIt(k.t, k.server, "select count(*) from "+clients) != "0"; {
		if time.Now().After(limit) {
			k.t.Fatal("the connections of processes that were killed do not go")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(k.lines) > linesKept {
		k.lines = nil
	}
	k.round = len(k.lines)
	if err := ledger.ReadJournal(k.path, k.add); err != nil {
		k.t.Error(err)
	}
	for _, away := range k.outages {
		k.underWay += k.during(away)
	}
	k.outages = nil
	if err := os.Truncate(k.path, 0); err != nil {
		k.t.Error(err)
	}
	k.ledger.End(time.Now().UnixMilli())
	if err := k.readAll(auditProcess + 1 + int64(i)); err != nil {
		k.t.Error(err)
	}
	k.report()
}

// outage takes a server away by begin, and brings a server back by end a moment later.
func (k *killRun) outage(begin, end func() error) {
	k.t.Helper()
	from := time.Now().UnixMilli()
	if err := begin(); err != nil {
		k.t.Fatal(err)
	}
	k.outages = append(k.outages, [2]int64{from, time.Now().UnixMilli()})
	k.pause(0, 300)
	if err := end(); err != nil {
		k.t.Fatal(err)
	}
}

// during counts the calls of a round that were under way all the time between two times.
func (k *killRun) during(away [2]int64) (n int) {
	begun := make(map[int64]bool)
	for _, e := range k.lines[k.round:] {
		switch {
		case !e.Answer && e.At <= away[0]:
			begun[e.N] = true
		case e.Answer && e.At < away[1]:
			delete(begun, e.N)
		}
	}
	return len(begun)
}

// start starts the processes of a round, and returns when all have opened the store.
func (k *killRun) start() (ps []*ledger.ChildProcess) {
	for range killClients {
		k.process++
		// The servers go away in the middle of a round, where the ledger knows of no ack that is
		// taken back.
		url := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=16&acks=durable&durability=%s", k.address, k.class)
		if !k.deadlines {
			url += "&" + noDeadlines
		}
		c := ledger.Child{Store: url, Journal: k.path, Process: k.process, Seed: k.rng.Uint64()}
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

// noDeadlines is the option in the URL of a store that tells its process to let no call end early.
const noDeadlines = "application_name=patient"

// pause lets the processes work for some milliseconds.
func (k *killRun) pause(least, most int) {
	time.Sleep(time.Duration(least+k.rng.IntN(most-least)) * time.Millisecond)
}

func (k *killRun) add(e ledger.Line) {
	k.lines = append(k.lines, e)
	k.ledger.Add(e)
}

// quietly returns the options of stores under kills: they log nothing, and their claims tell the
// ledger what they give back.
func quietly() *Options {
	return &Options{Logger: slog.New(slog.DiscardHandler), gaveBack: ledger.GaveBack}
}

// readAll has the ledger learn all that is there. Otherwise the calls whose outcome each kill
// leaves open would add up from round to round.
func (k *killRun) readAll(process int64) error {
	s, err := OpenURL(k.t.Context(), k.server.URL("postgres"), quietly())
	if err != nil {
		return err
	}
	err = ledger.NewRecorder(s, process, nil, k.add).Look(k.t.Context())
	return errors.Join(err, s.Close())
}

// audit has all that is left delivered and acked in the end, and reports the problems.
func (k *killRun) audit() {
	clock := &ledger.ShiftedClock{}
	o := quietly()
	o.clock, o.OwnPool = clock, true
	s := openStore(k.t, newPool(k.t, k.server), o)
	if err := k.ledger.Audit(k.t.Context(), s, auditProcess, clock); err != nil {
		k.t.Error(err)
	}
	k.report()
	k.t.Logf("%d processes killed, in %v: %s", k.process, time.Since(k.began).Round(time.Second), k.ledger)
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
	s, err := OpenURL(context.Background(), c.Store, quietly())
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // a server that has just started
		s, err = OpenURL(context.Background(), c.Store, quietly())
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Say(ledger.Working)
	w := &ledger.Workload{
		Store: s, Process: c.Process, Seed: c.Seed, Emit: j.Write, Pause: ledger.Pause(),
		Deadlines: !strings.Contains(c.Store, noDeadlines), Worker: true, BigBodies: true, ClaimTopics: 1,
	}
	w.Run(context.Background())
}
