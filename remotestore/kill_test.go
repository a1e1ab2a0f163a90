package remotestore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// How many rounds the tests make at least, on a directory and with two servers, unless
// PUNCTUAL_TORTURE_CYCLES asks for another number.
const (
	killRounds           = 2
	killRoundsTwoServers = 1
)

// killClients is how many processes work at the same time.
const killClients = 2

// The servers are processes of the command itself, "punctual serve".

// TestSlowKillServer kills the server of a directory again and again while processes work through
// it. Half of the processes use a network that delays, resets connections and loses answers. The
// ledger compares the answers that the processes got with what they and a reading of the whole
// store find later.
func TestSlowKillServer(t *testing.T) {
	t.Parallel()
	k := newKillRun(t, ledger.KeepsTransactions, diskPrefix+filepath.Join(t.TempDir(), "store"), 1)
	p := newRoughProxy(t, k.servers[0].addr, k.rng.Uint64())
	k.urls = []string{"http://" + k.servers[0].addr, "http://" + p.addr}
	rough := func() bool { return p.resets.Load() > 0 && p.lost.Load() > 0 && p.delays.Load() > 0 }
	k.run(killRounds, rough)
	t.Logf("the network: %v", p)
	if !rough() {
		t.Error("the network was sound, so this shows nothing of it")
	}
}

// TestSlowKillOneOfTwoServers kills one of two servers over one Redis, in turn and about a second
// apart, while processes work through both. In every other round it kills one of them once more
// while that starts. The other server knows what became of the requests, so the ledger need not be
// told of kills.
func TestSlowKillOneOfTwoServers(t *testing.T) {
	t.Parallel()
	rs := redisrig.Start(t, "--appendfsync", "always")
	k := newKillRun(t, ledger.KeepsAll, redisPrefix+rs.Addr+"/0?durability=fsync", 2)
	k.sharesAnswers = true
	k.idle = func() (bool, error) {
		list, err := rs.Do("CLIENT", "LIST")
		return strings.Count(list, " addr=") <= 1, err
	}
	k.useBoth()
	k.run(killRoundsTwoServers, func() bool { return true })
}

// TestSlowKillOneOfTwoServersOnPostgres does the same over one PostgreSQL. There only the server
// that gave an answer knows it.
func TestSlowKillOneOfTwoServersOnPostgres(t *testing.T) {
	t.Parallel()
	ps := pgrig.Start(t)
	k := newKillRun(t, ledger.KeepsAll, ps.URL("postgres"), 2)
	k.idle = func() (bool, error) {
		n, err := ps.Do("select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()")
		return strings.TrimSpace(n) == "0", err
	}
	k.useBoth()
	k.run(killRoundsTwoServers, func() bool { return true })
}

// useBoth gives the clients the URLs of both servers, half of them in one order and half in the
// other.
func (k *killRun) useBoth() {
	a, b := "http://"+k.servers[0].addr, "http://"+k.servers[1].addr
	k.urls = []string{a + "," + b, b + "," + a}
}

// The prefixes of the names of stores, as the command line writes them.
const (
	diskPrefix  = "disk:"
	redisPrefix = "redis://"
)

// killRun is a run in the parent of the processes that are killed.
type killRun struct {
	t       *testing.T
	dir     string
	program string // the command
	store   string
	servers []*killedServer
	urls    []string // of the clients in turn
	// sharesAnswers says that the store keeps answers for all servers, so the ledger need not be
	// told of kills.
	sharesAnswers bool
	// idle reports whether nobody is connected to the Redis or PostgreSQL below; nil for a
	// directory.
	idle    func() (bool, error)
	ledger  *ledger.Ledger
	rng     *rand.Rand
	process int64
	lines   []ledger.Line // the latest lines, about linesKept of them at most
	// kills are the kills of this round. killed, loaded and starting count the kills of servers
	// beside working clients: all of them, those with calls under way, and those of servers that
	// were starting; clients counts the kills of clients. underWay counts the calls that were under
	// way at a kill; answered, doubtful and rests count them by what became of them.
	kills                               []interval
	killed, loaded, starting, clients   int
	underWay, answered, doubtful, rests int
}

// interval is the time between two readings of the clock, in ms since 1970.
type interval struct{ from, to int64 }

// killedServer is a server with an address of its own.
type killedServer struct {
	addr    string
	process *ledger.ChildProcess
}

func newKillRun(t *testing.T, keeps ledger.Durable, store string, servers int) *killRun {
	t.Helper()
	k := &killRun{t: t, dir: t.TempDir(), program: buildCommand(t), store: store, ledger: ledger.New(keeps), rng: rand.New(rand.NewPCG(ledger.TortureSeed(t), 0))}
	// A copy of a claim may come when the leases of the first copy have run out, and is then
	// answered without those messages.
	k.ledger.Lossy, k.ledger.GivesBack = true, true
	k.ledger.Expected = []string{"deadline", "canceled", "indeterminate", "unreachable", "overloaded"}
	for range servers {
		k.servers = append(k.servers, &killedServer{addr: freeAddr(t)})
	}
	t.Cleanup(func() {
		for _, s := range k.servers {
			if s.process != nil {
				_ = s.process.Kill() // an error does not matter, because the test has failed already
			}
		}
	})
	return k
}

// freeAddr returns an address on which nobody listens. On Linux no outgoing connection has this
// address as its own, which would keep a server from listening there again.
func freeAddr(t *testing.T) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = "127.0.0.2"
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run makes that many rounds, or as many as PUNCTUAL_TORTURE_CYCLES says, and up to ten times as
// many in all until enough returns true, because some faults happen only by chance.
func (k *killRun) run(rounds int, enough func() bool) {
	t := k.t
	rounds = ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", rounds)
	began := time.Now()
	most := 10 * rounds
	for i := 0; i < rounds || i < most && !enough(); i++ {
		k.round(i)
		if t.Failed() {
			name, err := ledger.DumpLines(k.lines)
			t.Fatalf("in round %d of %d; the lines are in %s (%v)", i+1, rounds, name, err)
		}
		if (i+1)%100 == 0 {
			t.Logf("%d rounds in %v: %v", i+1, time.Since(began).Round(time.Second), k)
		}
	}
	k.audit()
	k.report()
	t.Logf("%d rounds in %v: %v", rounds, time.Since(began).Round(time.Second), k)
	if k.loaded == 0 || k.answered == 0 || k.ledger.Deliveries == 0 || k.ledger.Acknowledged == 0 {
		t.Error("the servers were not killed under load, so this shows nothing")
	}
}

// audit delivers and reads all that is left in a directory, with a clock that it shifts to the due
// times. The clocks of Redis and PostgreSQL cannot be shifted, so there audit only has the store
// check itself. What is there was read at the end of the last round.
func (k *killRun) audit() {
	ctx, quiet := k.t.Context(), slog.New(slog.DiscardHandler)
	if dir, ok := strings.CutPrefix(k.store, diskPrefix); ok {
		clock := &ledger.ShiftedClock{}
		s, err := diskstore.Open(dir, &diskstore.Options{Logger: quiet, Clock: clock})
		if err != nil {
			k.t.Fatal(err)
		}
		if err := errors.Join(k.ledger.Audit(ctx, s, auditProcess, clock), s.Close()); err != nil {
			k.t.Error(err)
		}
		return
	}
	var s punctual.Store
	var err error
	if strings.HasPrefix(k.store, redisPrefix) {
		s, err = redisstore.OpenURL(ctx, k.store, &redisstore.Options{Logger: quiet})
	} else {
		s, err = pgstore.OpenURL(ctx, k.store, &pgstore.Options{Logger: quiet})
	}
	if err != nil {
		k.t.Fatal(err)
	}
	c, err := punctual.As[storekit.Checker](s)
	if err != nil {
		k.t.Fatal(err)
	}
	r, err := c.Check(ctx, nil)
	if len(r.Problems) > 0 {
		k.t.Errorf("check: %q", r.Problems)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		k.t.Error(err)
	}
}

// String sums up what has happened in the run.
func (k *killRun) String() string {
	return fmt.Sprintf("servers killed %d times, %d of them with calls under way and %d while they started, clients %d times; of %d calls under way %d were answered, %d indeterminate, %d failed otherwise or ended with their process: %v",
		k.killed, k.loaded, k.starting, k.clients, k.underWay, k.answered, k.doubtful, k.rests, k.ledger)
}

// auditProcess is the number of the process of the audit. The readings at the end of the rounds
// have the numbers after it.
const auditProcess = 1 << 20

// linesKept is about how many lines are kept at most, so that they can be read when a promise was
// broken.
const linesKept = 200_000

// killsPerRound is how often servers are killed in a round before all are. In every other round a
// server is also killed while it starts.
const killsPerRound = 2

// round lets processes work and kills servers meanwhile. Then it kills all processes and servers,
// and reads what is in the store.
func (k *killRun) round(i int) {
	for _, s := range k.servers {
		k.start(s)
	}
	journal := filepath.Join(k.dir, "journal")
	clients := k.startClients(journal)
	for n := range killsPerRound {
		s := k.servers[n%len(k.servers)]
		if len(k.servers) > 1 {
			time.Sleep(time.Duration(900+k.rng.IntN(200)) * time.Millisecond)
		} else {
			time.Sleep(time.Duration(50+k.rng.IntN(400)) * time.Millisecond)
		}
		k.kill(s)
		if n == 1 && i%2 == 0 { // kill it once more, while it starts
			k.launch(s)
			time.Sleep(time.Duration(k.rng.IntN(150_000)) * time.Microsecond)
			k.kill(s)
			k.starting++
		}
		k.start(s)
	}
	time.Sleep(time.Duration(50+k.rng.IntN(200)) * time.Millisecond)
	for _, p := range clients {
		k.clients++
		if err := p.Kill(); err != nil {
			k.t.Error(err)
		}
	}
	for _, s := range k.servers {
		k.stop(s)
	}
	k.awaitQuiet()
	if len(k.lines) > linesKept {
		k.lines = nil
	}
	k.read(journal)
	k.ledger.End(time.Now().UnixMilli())
	k.start(k.servers[0])
	if err := k.look(auditProcess + 1 + int64(i)); err != nil {
		k.t.Error(err)
	}
	k.stop(k.servers[0])
	k.awaitQuiet()
	k.kills = nil
	k.report()
}

// launch starts the process of a server and returns when that is about to run the command, before
// the store is opened.
func (k *killRun) launch(s *killedServer) {
	p, err := ledger.StartChild("TestKillServerChild", ledger.Child{Program: k.program, Store: k.store, Journal: s.addr})
	if err != nil {
		k.t.Fatal(err)
	}
	s.process = p
	k.await(p, ledger.Opening)
}

// start starts a server that does not run, and returns when the server listens.
func (k *killRun) start(s *killedServer) {
	if s.process == nil {
		k.launch(s)
		k.await(s.process, serving)
	}
}

// serving is the first letter of what serve prints when it listens: "Serving STORE on ADDRESS".
const serving byte = 'S'

func (k *killRun) await(p *ledger.ChildProcess, sign byte) {
	for what := range p.Said {
		if what == sign {
			return
		}
	}
	k.t.Fatal(p.Kill()) // the process has ended without the sign, and Kill returns why
}

// stop ends a server as kill -9 does.
func (k *killRun) stop(s *killedServer) {
	if err := s.process.Kill(); err != nil {
		k.t.Error(err)
	}
	s.process = nil
}

// kill stops a server while clients work on it.
func (k *killRun) kill(s *killedServer) {
	from := time.Now().UnixMilli()
	k.stop(s)
	k.killed++
	k.kills = append(k.kills, interval{from, time.Now().UnixMilli()})
}

func (k *killRun) startClients(journal string) (ps []*ledger.ChildProcess) {
	for i := range killClients {
		k.process++
		c := ledger.Child{Store: k.urls[i%len(k.urls)], Journal: journal, Process: k.process, Seed: k.rng.Uint64()}
		p, err := ledger.StartChild("TestKillClientChild", c)
		if err != nil {
			k.t.Fatal(err)
		}
		ps = append(ps, p)
	}
	for _, p := range ps {
		k.await(p, ledger.Working)
	}
	return ps
}

// read hands the lines of a round to the ledger, counts the calls that were under way at a kill,
// and removes the journal.
func (k *killRun) read(journal string) {
	if !k.sharesAnswers {
		for _, x := range k.kills {
			k.ledger.ServerKilled(x.from, x.to)
		}
	}
	began := make(map[int64]int64)
	loaded := make(map[interval]bool)
	note := func(from, to int64) (met bool) {
		for _, x := range k.kills {
			if from < x.from && x.to < to {
				loaded[x], met = true, true
			}
		}
		if met {
			k.underWay++
		}
		return met
	}
	err := ledger.ReadJournal(journal, func(e ledger.Line) {
		k.add(e)
		switch {
		case e.Call == ledger.LineStart || e.Call == ledger.LineStop:
		case !e.Answer:
			began[e.N] = e.At
		default:
			met := note(began[e.N], e.At)
			delete(began, e.N)
			switch {
			case !met:
			case e.Code == "":
				k.answered++
			case e.Code == "indeterminate":
				k.doubtful++
			default:
				k.rests++
			}
		}
	})
	for _, at := range began {
		if note(at, 1<<62) {
			k.rests++
		}
	}
	k.loaded += len(loaded)
	if err := errors.Join(err, os.Remove(journal)); err != nil {
		k.t.Error(err)
	}
}

// awaitQuiet waits until the Redis or PostgreSQL below has seen the end of all connections, so that
// no change can come from killed processes any more.
func (k *killRun) awaitQuiet() {
	if k.idle == nil {
		return
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		quiet, err := k.idle()
		if err != nil {
			k.t.Fatal(err)
		}
		if quiet {
			return
		}
	}
	k.t.Fatal("the connections of processes that were killed are still there")
}

func (k *killRun) add(e ledger.Line) {
	k.lines = append(k.lines, e)
	k.ledger.Add(e)
}

// look reads all that is in the store. Otherwise the outcomes that each kill leaves open would
// multiply from round to round.
func (k *killRun) look(process int64) error {
	s, err := remotestore.Open(k.t.Context(), []string{"http://" + k.servers[0].addr}, nil)
	if err != nil {
		return err
	}
	return errors.Join(ledger.NewRecorder(s, process, nil, k.add).Look(k.t.Context()), s.Close())
}

func (k *killRun) report() {
	for _, p := range k.ledger.Problems() {
		k.t.Error(p)
	}
}

// TestKillServerChild becomes a server that its parent kills; by itself it does nothing.
func TestKillServerChild(t *testing.T) {
	c, ok := ledger.ChildOf(t)
	if !ok {
		t.Skip("this is a child process of another test")
	}
	c.Say(ledger.Opening)
	// The output of the command goes to the parent by file descriptor 3. A shell redirects it,
	// because the system call for that has different names on different systems.
	serve := []string{"/bin/sh", "-c", `exec "$0" "$@" >&3`, c.Program, "serve", "--no-console", "--rate", "1000000", "--store", c.Store, "--listen", c.Journal}
	t.Fatal(syscall.Exec(serve[0], serve, os.Environ()))
}

// TestKillClientChild is a process that works on a server; by itself it does nothing.
func TestKillClientChild(t *testing.T) {
	c, ok := ledger.ChildOf(t)
	if !ok {
		t.Skip("this is a child process of another test")
	}
	j, err := ledger.OpenJournal(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	urls := strings.Split(c.Store, ",")
	var s *remotestore.Store
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		// The proxy may reset the connection while the store is opened, so Open is tried again.
		if s, err = remotestore.Open(t.Context(), urls, &remotestore.Options{Logger: slog.New(slog.DiscardHandler)}); err == nil {
			break
		}
		if !errors.Is(err, punctual.ErrUnreachable) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	c.Say(ledger.Working)
	w := &ledger.Workload{
		Store: s, Process: c.Process, Seed: c.Seed, Emit: j.Write, Pause: ledger.Pause(),
		Deadlines: true, Worker: true, BigBodies: true, ClaimTopics: 1,
	}
	w.Run(context.Background())
}
