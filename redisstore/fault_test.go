package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
	"github.com/punctualmq/punctual/storetest"
	"github.com/redis/go-redis/v9"
)

// do steers a server and must succeed.
func do(t testing.TB, s *redistest.Server, words ...string) string {
	t.Helper()
	reply, err := s.Do(words...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// situations fills a topic with a message in each state, and one finished ID that is
// remembered, and returns the lease of the one that is leased.
func situations(t testing.TB, s *Store) punctual.Delivery {
	t.Helper()
	keep := time.Hour
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{Remember: &keep}); err != nil {
		t.Fatal(err)
	}
	past := time.Unix(1, 0)
	push(t, s, punctual.NewMessage{ID: "done", Due: past})
	ack(t, s, claimOne(t, s, 0))
	push(t, s, punctual.NewMessage{ID: "dead", Due: past})
	d := claimOne(t, s, 0)
	if errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard}}); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	push(t, s, punctual.NewMessage{ID: "leased", Due: past})
	d = claimOne(t, s, 0)
	push(t, s, punctual.NewMessage{ID: "ready", Due: past}, punctual.NewMessage{ID: "scheduled", Delay: time.Hour})
	return d
}

// changes are all methods that change a topic, by name.
func changes(s *Store, held punctual.Delivery) map[string]func(context.Context) error {
	settle := func(v punctual.Verb) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Settle(ctx, []punctual.Settlement{{Topic: "orders", ID: held.ID, Token: held.Token, Verb: v}})
			return err
		}
	}
	amend := func(c punctual.Change, id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Amend(ctx, []punctual.Amendment{{Change: c, Topic: "orders", ID: id}})
			return err
		}
	}
	return map[string]func(context.Context) error{
		"push": func(ctx context.Context) error {
			_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: "scheduled", OnDuplicate: punctual.ReplaceFirst}, {Topic: "orders"}})
			return err
		},
		"claim":      func(ctx context.Context) error { _, err := s.Claim(ctx, orders(0)); return err },
		"ack":        settle(punctual.SettleAck),
		"retry":      settle(punctual.SettleRetry),
		"discard":    settle(punctual.SettleDiscard),
		"release":    settle(punctual.SettleRelease),
		"extend":     settle(punctual.SettleExtend),
		"cancel":     amend(punctual.ChangeCancel, "scheduled"),
		"reschedule": amend(punctual.ChangeReschedule, "ready"),
		"requeue":    amend(punctual.ChangeRequeue, "dead"),
		"configure": func(ctx context.Context) error {
			on := true
			_, err := s.Configure(ctx, "orders", punctual.SettingsPatch{PausedIn: &on})
			return err
		},
		"purge": func(ctx context.Context) error {
			_, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "orders"})
			return err
		},
	}
}

// Z15: a key of a wrong type, wherever it is, makes every change fail before its first write.
func TestClassic_Z15_WrongTypes(t *testing.T) {
	server := redistest.Start(t, "--enable-debug-command", "yes")
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	for _, key := range s.names.partition("orders", 0).keys() {
		do(t, server, "RENAME", key, "kept")
		do(t, server, "SET", key, "planted")
		before := do(t, server, "DEBUG", "DIGEST")
		for name, change := range changes(s, held) {
			err := change(t.Context())
			if !errors.Is(err, punctual.ErrCorrupt) || !punctual.Definite(err) {
				t.Errorf("P13: %s with a planted %s = %v; want ErrCorrupt", name, key, err)
			}
			if after := do(t, server, "DEBUG", "DIGEST"); after != before {
				t.Fatalf("P13: %s with a planted %s failed and changed the data all the same", name, key)
			}
		}
		do(t, server, "DEL", key)
		do(t, server, "RENAME", "kept", key)
	}
	ack(t, s, held)
}

// A damaged record is reported, and nothing is changed on the way.
func TestDamagedRecords(t *testing.T) {
	server := redistest.Start(t, "--enable-debug-command", "yes")
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	keys := s.names.partition("orders", 0).keys()
	messages, states := keys[4], keys[5]
	do(t, server, "HSET", states, "leased", "\x02nonsense")
	do(t, server, "HSET", states, "ready", "\x01")
	do(t, server, "HDEL", messages, "ready")
	before := do(t, server, "DEBUG", "DIGEST")
	for _, name := range []string{"claim", "ack", "retry", "release", "reschedule"} {
		if err := changes(s, held)[name](t.Context()); !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("P13: %s of a damaged message = %v; want ErrCorrupt", name, err)
		}
		if after := do(t, server, "DEBUG", "DIGEST"); after != before {
			t.Fatalf("P13: %s of a damaged message failed and changed the data all the same", name)
		}
	}
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) < 3 {
		t.Errorf("Check of damaged messages: %q, %v; want both states and the missing message", r.Problems, err)
	}
}

// L09: when the data set was wiped, by FLUSHALL or a server that came back empty, the store
// stops and says so; it takes no message for stored.
func TestClassic_L09_Wiped(t *testing.T) {
	server := redistest.Start(t)
	for name := range changes(nil, punctual.Delivery{}) {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, connect(t, server), nil)
			held := situations(t, s)
			do(t, server, "FLUSHALL")
			err := changes(s, held)[name](t.Context())
			if !errors.Is(err, punctual.ErrStoreFailed) || !strings.Contains(err.Error(), "wiped") {
				t.Errorf("P13: the first %s after FLUSHALL = %v; want ErrStoreFailed that says why", name, err)
			}
			if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "other"}}); !errors.Is(err, punctual.ErrStoreFailed) {
				t.Errorf("P1: a push after that = %v; want ErrStoreFailed", err)
			}
		})
	}
}

// Another process may begin the data set anew; the old one still must not go on.
func TestWipedAndBegunAnew(t *testing.T) {
	server := redistest.Start(t)
	old := openStore(t, connect(t, server), nil)
	push(t, old, punctual.NewMessage{ID: "x"})
	do(t, server, "FLUSHALL")
	openStore(t, connect(t, server), nil)
	if _, err := old.Now(t.Context()); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("P13: Now after the data set was begun anew = %v; want ErrStoreFailed", err)
	}
}

// A server out of memory refuses pushes and lets all through that frees some or must go on.
func TestOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	for range 2 {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "more"}})
		if !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) {
			t.Errorf("P13: push to a server out of memory = %v; want ErrNoSpace", err)
		}
	}
	if _, err := s.Get(t.Context(), "orders", "more"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("P13: a push that was refused left something: %v", err)
	}
	for _, name := range []string{"extend", "cancel", "claim", "retry"} {
		if err := changes(s, held)[name](t.Context()); err != nil {
			t.Errorf("%s on a server out of memory = %v; want it to pass", name, err)
		}
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	push(t, s, punctual.NewMessage{ID: "more"})
}

// Z13: a server demoted with its sockets open refuses definitely; when it is a primary again
// the same store goes on.
func TestClassic_Z13_Demoted(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	do(t, server, "REPLICAOF", "127.0.0.1", "1") // nobody is there
	for name, change := range changes(s, held) {
		if name == "configure" {
			continue // reads first, and then is as a push
		}
		if err := change(t.Context()); !errors.Is(err, punctual.ErrOverloaded) || !punctual.Definite(err) {
			t.Errorf("P13: %s on a replica = %v; want ErrOverloaded", name, err)
		}
	}
	do(t, server, "REPLICAOF", "NO", "ONE")
	ack(t, s, held)
}

func TestTooFewReplicas(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	do(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
	for name, change := range changes(s, held) {
		if err := change(t.Context()); !errors.Is(err, punctual.ErrDurability) || !punctual.Definite(err) {
			t.Errorf("P13: %s without replicas = %v; want ErrDurability", name, err)
		}
	}
}

func TestBusyServer(t *testing.T) {
	server := redistest.Start(t, "--busy-reply-threshold", "1")
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	stuck := make(chan error, 1)
	go func() {
		_, err := server.Do("EVAL", "while true do end", "0")
		stuck <- err
	}()
	err := error(nil)
	for err == nil {
		err = changes(s, held)["extend"](t.Context())
	}
	if !errors.Is(err, punctual.ErrOverloaded) || !punctual.Definite(err) {
		t.Errorf("P13: extend on a busy server = %v; want ErrOverloaded", err)
	}
	do(t, server, "SCRIPT", "KILL")
	if err := <-stuck; err == nil {
		t.Error("the endless script ended well")
	}
	ack(t, s, held)
}

// Z14: scripts that are forgotten under load are sent again, and nothing happens twice.
func TestClassic_Z14_ScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if _, err := server.Do("SCRIPT", "FLUSH"); err == nil {
					n++
				}
			}
		}
	}()
	storetest.RunRaces(t, func(t *testing.T, clock punctual.Clock) punctual.Store {
		return openStore(t, connect(t, server), &Options{clock: clock})
	})
	close(stop)
	if n := <-done; n == 0 {
		t.Error("the scripts were never forgotten")
	}
}

// lossy makes connections of which the next answers to scripts can be thrown away, each with
// its connection.
type lossy struct {
	addr   string
	left   atomic.Int32 // how many are to be lost
	refuse atomic.Bool  // once nothing is left to be lost, no connection can be made
}

func (l *lossy) lose(n int32) { l.left.Store(n) }

func (l *lossy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	if l.refuse.Load() && l.left.Load() <= 0 {
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused by the test")}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, l.addr)
	return &lossyConn{Conn: c, of: l}, err
}

type lossyConn struct {
	net.Conn
	of    *lossy
	heard bool // an answer to a script is awaited and must be lost
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "evalsha") && c.of.left.Add(-1) >= 0 {
		c.heard = true
	}
	return c.Conn.Write(b)
}

// Read loses what it has read: the server has done its work, and nobody learns of it.
func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.heard && err == nil {
		return 0, errors.Join(io.EOF, c.Conn.Close())
	}
	return n, err
}

// P13: when no answer comes the error says that it may have happened. What has receipts was
// sent as often as is sensible, anything else once.
func TestLostReply(t *testing.T) {
	server := redistest.Start(t)
	s, l := openLossy(t, server)
	sure := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	for name, change := range changes(s, held) {
		if name == "configure" || name == "purge" {
			continue // several scripts
		}
		before := calls(t, server)
		l.lose(tries)
		if err := change(t.Context()); !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("P13: %s whose answers were lost = %v; want ErrIndeterminate", name, err)
		}
		l.lose(0)
		if got := calls(t, server) - before; got != tries {
			t.Errorf("P13: %s whose answers were lost was sent %d times; want %d", name, got, tries)
		}
	}
	if r, err := sure.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("after lost answers: %q, %v", r.Problems, err)
	}
}

// trouble runs a consumer and a producer while something is done to the server, and then
// expects everything that was reported stored to be delivered (P1), without a new push.
func trouble(t *testing.T, client func() redis.UniversalClient, cause func()) {
	t.Helper()
	troubleFor(t, client, func(*Store) {}, cause)
}

// troubleFor is trouble for stores to which something is done first.
func troubleFor(t *testing.T, client func() redis.UniversalClient, prepare func(*Store), cause func()) {
	t.Helper()
	producer, consumer := openStore(t, client(), nil), openStore(t, client(), nil)
	prepare(producer)
	prepare(consumer)
	push(t, producer, punctual.NewMessage{ID: "first"})
	stored := map[string]bool{"first": true}
	stop := make(chan struct{})
	pushed := make(chan struct{})
	go func() {
		defer close(pushed)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id := fmt.Sprint(i)
			rs, err := producer.Push(context.Background(), []punctual.NewMessage{{Topic: "orders", ID: id, Delay: time.Duration(i%50) * time.Millisecond}})
			if err == nil && rs[0].Status == punctual.PushStored {
				stored[id] = true
			}
		}
	}()
	delivered := make(chan string, 1000)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		defer close(delivered)
		consumeAll(ctx, consumer, delivered)
	}()
	cause()
	close(stop)
	<-pushed
	patience := time.After(time.Minute)
	for len(stored) > 0 {
		select {
		case id := <-delivered:
			delete(stored, id)
		case <-patience:
			t.Fatalf("P1: %d messages were not delivered after the trouble was over", len(stored))
		}
	}
	end()
	for range delivered {
	}
}

// consumeAll claims and acks until ctx ends, whatever happens.
func consumeAll(ctx context.Context, s *Store, delivered chan<- string) {
	for ctx.Err() == nil {
		ds, _ := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 100, Wait: time.Minute, Lease: time.Second})
		for _, d := range ds {
			_, _ = s.Settle(ctx, []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
			select {
			case delivered <- d.ID:
			case <-ctx.Done():
			}
		}
	}
}

// clientsOf makes clients of a server that a test does something to.
func clientsOf(t *testing.T, s *redistest.Server) func() redis.UniversalClient {
	return func() redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: 500 * time.Millisecond})
		closeAtEnd(t, c.Close)
		return c
	}
}

// pushedMore waits until some more was changed.
func pushedMore(t testing.TB, s *redistest.Server) {
	t.Helper()
	count := func() string { return do(t, s, "HGET", "punctual:{orders#0}:g", "clock") }
	for before := count(); count() == before; {
		time.Sleep(time.Millisecond)
	}
}

// Kill -9 and restart with the append-only file, again and again: class fsync.
func TestKilledServer(t *testing.T) {
	server := redistest.Start(t, "--appendfsync", "always")
	trouble(t, clientsOf(t, server), func() {
		for range 5 {
			pushedMore(t, server)
			if err := errors.Join(server.Kill(), server.Restart()); err != nil {
				t.Fatal(err)
			}
		}
		pushedMore(t, server)
	})
}

// T06: a server that hangs, with its connections open.
func TestClassic_T06_StoppedServer(t *testing.T) {
	server := redistest.Start(t)
	trouble(t, clientsOf(t, server), func() {
		for range 3 {
			pushedMore(t, server)
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(700 * time.Millisecond) // longer than the client's patience
			if err := server.Continue(); err != nil {
				t.Fatal(err)
			}
		}
		pushedMore(t, server)
	})
}

// T06: connections of every kind cut by the server, as proxies do.
func TestClassic_T06_KilledConnections(t *testing.T) {
	server := redistest.Start(t)
	trouble(t, clientsOf(t, server), func() {
		for range 20 {
			pushedMore(t, server)
			do(t, server, "CLIENT", "KILL", "TYPE", "normal")
			do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		pushedMore(t, server)
	})
}

// A consumer that was blocked while the server was away goes on without a new push: the
// message was there all the time.
func TestBlockedThroughRestart(t *testing.T) {
	server := redistest.Start(t, "--appendfsync", "always")
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Second})
	got := make(chan punctual.Delivery, 1)
	go func() {
		for {
			ds, err := s.Claim(context.Background(), orders(time.Minute))
			if errors.Is(err, punctual.ErrClosed) {
				return
			}
			if len(ds) == 1 {
				got <- ds[0]
				return
			}
		}
	}()
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-got:
		if d.ID != "x" || d.Late() < 0 {
			t.Errorf("delivered %+v; want x, not early", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("P11: a consumer that waited through a restart still sleeps")
	}
}
