package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/health"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"

	"github.com/punctualmq/punctual/storetest/races"
)

// do steers a server and must succeed.
func do(t testing.TB, s *redisrig.Server, words ...string) string {
	t.Helper()
	reply, err := s.Do(words...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// situations fills a topic with a message in each state, and one finished ID that is remembered. It
// returns the lease of the one that is leased.
func situations(t testing.TB, s *Store) punctual.Delivery {
	t.Helper()
	keep := time.Hour
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DedupeWindow: &keep}); err != nil {
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

// changes returns calls that change a topic, by name. The deletions of the topic and of a message,
// and a snooze, are not among them.
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
			_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: "scheduled", IfExists: punctual.IfExistsReplace}, {Topic: "orders"}})
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
			_, err := s.Configure(ctx, "orders", punctual.SettingsPatch{PushPaused: &on})
			return err
		},
		"purge": func(ctx context.Context) error {
			_, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "orders"})
			return err
		},
	}
}

// always has no script take its fast path.
func always() bool { return true }

// Z15: without fast paths a key of a wrong type, wherever it is, makes each of the changes fail
// before its first write.
func TestClassic_Z15_WrongTypes(t *testing.T) {
	server := redisrig.Start(t, "--enable-debug-command", "yes")
	s := openStore(t, connect(t, server), &Options{general: always})
	held := situations(t, s)
	keepFinished(t, s, time.Hour)
	p := s.names.Partition("orders", 0)
	for _, key := range append(p.Keys(), p.Finished()...) {
		kept := do(t, server, "EXISTS", key) == "1"
		if kept {
			do(t, server, "RENAME", key, "kept")
		}
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
		if kept {
			do(t, server, "RENAME", "kept", key)
		}
	}
	ack(t, s, held)
}

// Z15: a fast path does not read every key. With one of a wrong type it fails and leaves the data
// as they were, or passes because it does not need that key.
func TestWrongTypesOnFastPaths(t *testing.T) {
	server := redisrig.Start(t, "--enable-debug-command", "yes")
	failed := make(map[string]bool)
	for _, keep := range []time.Duration{0, time.Hour} { // of finished records, and of finished IDs
		for n := range keys.Count + 2 {
			for _, name := range []string{"push", "claim", "ack"} {
				s := openStore(t, connect(t, server), &Options{Prefix: fresh()})
				if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{FinishedRetention: &keep, DedupeWindow: &keep}); err != nil {
					t.Fatal(err)
				}
				push(t, s, punctual.NewMessage{ID: "leased", Due: time.Unix(1, 0)})
				held := claimOne(t, s, 0)
				push(t, s, punctual.NewMessage{ID: "ready", Due: time.Unix(1, 0)})
				changes := changes(s, held)
				changes["push"] = func(ctx context.Context) error {
					_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", Delay: time.Hour}})
					return err
				}
				p := s.names.Partition("orders", 0)
				key := append(p.Keys(), p.Finished()...)[n]
				kept := do(t, server, "EXISTS", key) == "1"
				if kept {
					do(t, server, "RENAME", key, "kept")
				}
				do(t, server, "SET", key, "planted")
				before := do(t, server, "DEBUG", "DIGEST")
				err := changes[name](t.Context())
				failed[name] = failed[name] || err != nil
				if err != nil && (!errors.Is(err, punctual.ErrCorrupt) || !punctual.Definite(err)) {
					t.Errorf("P13: %s with a planted %s, finished kept for %v = %v; want ErrCorrupt", name, key, keep, err)
				}
				if after := do(t, server, "DEBUG", "DIGEST"); err != nil && after != before {
					t.Errorf("P13: %s with a planted %s, finished kept for %v, failed and changed the data all the same", name, key, keep)
				}
				do(t, server, "DEL", key)
				if kept {
					do(t, server, "RENAME", "kept", key)
				}
				wantSound(t, s)
			}
		}
	}
	for _, name := range []string{"push", "claim", "ack"} {
		if !failed[name] {
			t.Errorf("this test shows nothing: %s never failed", name)
		}
	}
}

// A damaged record is reported, and nothing is changed on the way.
func TestSlowDamagedRecords(t *testing.T) {
	server := redisrig.Start(t, "--enable-debug-command", "yes")
	s := openStore(t, connect(t, server), &Options{general: always})
	held := situations(t, s)
	keys := s.names.Partition("orders", 0).Keys()
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

// L09: the data set was wiped, here by FLUSHALL. Then the store stops at the next call, whichever
// that is, and says why. Further pushes fail, too.
func TestClassic_L09_Wiped(t *testing.T) {
	server := redisrig.Start(t)
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
	server := redisrig.Start(t)
	old := openStore(t, connect(t, server), nil)
	push(t, old, punctual.NewMessage{ID: "x"})
	do(t, server, "FLUSHALL")
	openStore(t, connect(t, server), nil)
	if _, err := old.Now(t.Context()); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("P13: Now after the data set was begun anew = %v; want ErrStoreFailed", err)
	}
}

// A server out of memory refuses pushes, and lets calls pass that free memory or must go on.
func TestOutOfMemory(t *testing.T) {
	server := redisrig.Start(t)
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
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	held := situations(t, s)
	do(t, server, "REPLICAOF", "127.0.0.1", "1") // nobody is there
	for name, change := range changes(s, held) {
		if name == "configure" {
			continue // configure reads first, and then fails as a push does
		}
		if err := change(t.Context()); !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) {
			t.Errorf("P13: %s on a replica = %v; want ErrUnreachable", name, err)
		}
	}
	do(t, server, "REPLICAOF", "NO", "ONE")
	ack(t, s, held)
}

func TestTooFewReplicas(t *testing.T) {
	server := redisrig.Start(t)
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
	server := redisrig.Start(t, "--busy-reply-threshold", "1")
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
	server := redisrig.Start(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
					t.Errorf("script flush: %v", err)
				}
			}
		}
	}()
	races.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openStore(t, connect(t, server), &Options{clock: clock})
	}, storetest.WithLossyClaims())
	close(stop)
	<-done
	if n := errorReplies(t, server, "NOSCRIPT"); n <= len(scripts()) {
		t.Errorf("this test shows nothing: %d times a script was unknown; want more than those of their first use", n)
	}
}

// errorReplies returns how many errors with a prefix a server has answered.
func errorReplies(t testing.TB, s *redisrig.Server, prefix string) int {
	t.Helper()
	count, found := strings.CutPrefix(health.ParseInfo(do(t, s, "INFO", "errorstats"))["errorstat_"+prefix], "count=")
	if !found {
		return 0
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// trouble runs a consumer and a producer while something is done to the server. Then everything
// that was reported stored must be delivered (P1), without a new push.
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
	waitLimit := time.After(time.Minute)
	for len(stored) > 0 {
		select {
		case id := <-delivered:
			delete(stored, id)
		case <-waitLimit:
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
func clientsOf(t *testing.T, s *redisrig.Server) func() redis.UniversalClient {
	return func() redis.UniversalClient { return hastyClient(t, s) }
}

// hastyClient is a client that does not wait long for an answer.
func hastyClient(t *testing.T, s *redisrig.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: 500 * time.Millisecond})
	closeAtEnd(t, c.Close)
	return c
}

// timeouts counts the commands of a client whose answer did not come in time.
type timeouts struct {
	n    atomic.Int64
	each func() // called after each of these commands, unless it is nil
}

func (*timeouts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*timeouts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (x *timeouts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		var waited net.Error
		if errors.As(err, &waited) && waited.Timeout() {
			x.n.Add(1)
			if x.each != nil {
				x.each()
			}
		}
		return err
	}
}

// awaitTimeouts waits until something timed out in each client, from now on.
func awaitTimeouts(of []*timeouts) {
	for _, x := range of {
		for before := x.n.Load(); x.n.Load() == before; {
			time.Sleep(time.Millisecond)
		}
	}
}

// pushedMore waits until topic orders was changed again, which its clock shows.
func pushedMore(t testing.TB, s *redisrig.Server) {
	t.Helper()
	count := func() string { return do(t, s, "HGET", "punctual:{orders#0}:g", "clock") }
	for before := count(); count() == before; {
		time.Sleep(time.Millisecond)
	}
}

// Kill -9 and restart with the append-only file, again and again: class fsync.
func TestKilledServer(t *testing.T) {
	server := redisrig.Start(t, "--appendfsync", "always")
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

// T06: a server hangs, with its connections open.
func TestClassic_T06_StoppedServer(t *testing.T) {
	server := redisrig.Start(t)
	var hooks []*timeouts // of the producer's client and of the consumer's
	clients := func() redis.UniversalClient {
		c, x := hastyClient(t, server), &timeouts{}
		c.AddHook(x)
		hooks = append(hooks, x)
		return c
	}
	trouble(t, clients, func() {
		for range 3 {
			pushedMore(t, server)
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			awaitTimeouts(hooks)
			if err := server.Continue(); err != nil {
				t.Fatal(err)
			}
		}
		pushedMore(t, server)
	})
}

// T06: the server cuts connections of every kind, as proxies do.
func TestClassic_T06_KilledConnections(t *testing.T) {
	server := redisrig.Start(t)
	trouble(t, clientsOf(t, server), func() {
		kills, notifications := 0, 0
		for deadline := time.Now().Add(time.Minute); kills < 20 || notifications == 0 && time.Now().Before(deadline); kills++ {
			pushedMore(t, server)
			if do(t, server, "CLIENT", "KILL", "TYPE", "normal") == "0" {
				t.Error("this test shows nothing: there was no connection to cut")
			}
			if do(t, server, "CLIENT", "KILL", "TYPE", "pubsub") != "0" {
				notifications++
			}
		}
		if notifications == 0 {
			t.Error("this test shows nothing: there was never a connection of notifications to cut")
		}
		pushedMore(t, server)
	})
}

// A consumer that was blocked while the server was away goes on without a new push: the
// message was there all the time.
func TestBlockedThroughRestart(t *testing.T) {
	server := redisrig.Start(t, "--appendfsync", "always")
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
	got, failed := make(chan punctual.Delivery, 1), make(chan error, 1)
	go func() {
		for {
			ds, err := s.Claim(context.Background(), orders(24*time.Hour))
			if errors.Is(err, punctual.ErrClosed) {
				return
			}
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			if len(ds) == 1 {
				got <- ds[0]
				return
			}
		}
	}()
	awaitAsleep(t, s, 1)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * time.Second) // the waiting claim polls each second
	<-failed                       // and has done so while the server was away
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	select {
	case d := <-got:
		if d.ID != "x" || d.Late() < 0 {
			t.Errorf("delivered %+v; want x, not early", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("P11: a consumer that waited through a restart still sleeps")
	}
}
