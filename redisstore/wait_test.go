package redisstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// twoProcesses is two Stores on the same data: one only claims, the other does all else. So only
// notifications can wake a claim, because the clock of a test stands still, and so no poll comes
// by itself.
type twoProcesses struct {
	*Store
	claims *Store
}

// Claim first has the process that claims hear the time that the other one knows, because the suite
// supposes one process, which never sees the clock run backwards.
func (p twoProcesses) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	p.claims.clock.Learn(p.clock.Era(), p.clock.LowerBound())
	return p.claims.Claim(ctx, c)
}

// Push also does what a poll would do for messages that are due too far ahead to be notified,
// because while the clock stands still there is no poll.
func (p twoProcesses) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	rs, err := p.Store.Push(ctx, ms)
	for _, r := range rs {
		if r.Due.Sub(storekit.FromMillis(p.clock.LowerBound())) > 2*time.Second {
			n := keys.Home(r.ID, p.topics.Known(r.Topic).Size())
			p.claims.waits.waiter.Notice(partOf(p.names.Partition(r.Topic, n)), -wait.Never)
		}
	}
	return rs, err
}

func (p twoProcesses) Close() error {
	return errors.Join(p.claims.Close(), p.Store.Close())
}

// P11: notifications wake the claims of another process at once, whatever the cases of the suite
// do. make torture runs all groups of the suite.
func TestSlowTwoProcesses(t *testing.T) {
	t.Parallel()
	waits := regexp.MustCompile("/(claim|wait|clock|together|isolation|close|keys)/")
	storetest.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		if !ledger.Tortured() && !waits.MatchString(t.Name()) {
			t.Skip("skipped: only in make torture")
		}
		o := &Options{Prefix: fresh(), clock: clock}
		return twoProcesses{openStore(t, connect(t, shared), o), openStore(t, connect(t, shared), o)}
	})
}

func orders(wait time.Duration) punctual.Claim {
	return punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: wait}
}

func push(t testing.TB, s *Store, ms ...punctual.NewMessage) {
	t.Helper()
	for i := range ms {
		if ms[i].Topic == "" {
			ms[i].Topic = "orders"
		}
	}
	rs, err := s.Push(t.Context(), ms)
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	for _, r := range rs {
		if r.Err != nil {
			t.Fatalf("push of %s: %v", r.ID, r.Err)
		}
	}
}

func claimOne(t testing.TB, s *Store, wait time.Duration) punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), orders(wait))
	if err != nil || len(ds) != 1 {
		t.Fatalf("claim: %v, %v; want one message", ds, err)
	}
	return ds[0]
}

func ack(t testing.TB, s *Store, d punctual.Delivery) {
	t.Helper()
	errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
	if err != nil || errs[0] != nil {
		t.Fatalf("ack of %s: %v, %v", d.ID, err, errs)
	}
}

// A user who may not publish or subscribe has no notifications at all. Then waiting claims find
// messages by their polls, once a second (P11).
func TestWithoutNotifications(t *testing.T) {
	server := redisrig.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "mute", "on", "nopass", "~*", "resetchannels", "+@all"); err != nil {
		t.Fatal(err)
	}
	open := func() *Store {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "mute", Password: "any"})
		closeAtEnd(t, c.Close)
		return openStore(t, c, nil)
	}
	consumer, producer := open(), open()
	done := make(chan error, 1)
	go func() {
		_, err := consumer.Claim(context.Background(), orders(time.Minute))
		done <- err
	}()
	awaitAsleep(t, consumer, 1)
	push(t, producer, punctual.NewMessage{ID: "x"})
	if err := <-done; err != nil {
		t.Fatalf("P11: a claim without notifications: %v", err)
	}
	if log := do(t, server, "ACL", "LOG"); !strings.Contains(log, "punctual:{orders#0}:notify") {
		t.Errorf("this test shows nothing: no notification was refused: %s", log)
	}
	if s, err := producer.Stats(t.Context(), "orders"); err != nil || s.Leased != 1 {
		t.Errorf("P11: after a claim without notifications: %+v, %v; want the message leased", s, err)
	}
}

// calls returns how many scripts a server has run.
func calls(t testing.TB, s *redisrig.Server) int {
	t.Helper()
	info, err := s.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n += calls
	}
	return n
}

// polls returns how often the next due times of a partition have been read, by scripts or without.
// Each time is two ZRANGE.
func polls(t testing.TB, s *redisrig.Server) int {
	t.Helper()
	got := regexp.MustCompile(`cmdstat_zrange:calls=(\d+)`).FindStringSubmatch(do(t, s, "INFO", "commandstats"))
	if got == nil {
		return 0
	}
	n, err := strconv.Atoi(got[1])
	if err != nil {
		t.Fatal(err)
	}
	return n / 2
}

// However many claims wait, an idle topic costs a poll each second.
func TestIdleCost(t *testing.T) {
	const waiters = 50
	looks, seconds := idle(t, &Options{}, waiters)
	// The subscription causes one more poll. One poll of 16 is a script, which reads the same.
	if float64(looks) > seconds+2 {
		t.Errorf("%d claims that waited %.1f s read heads %d times; want once a second", waiters, seconds, looks)
	}
}

// idle has claims wait for a topic in which nothing is due, and returns how often next due times
// were read in how many seconds.
func idle(t *testing.T, o *Options, waiters int) (looks int, seconds float64) {
	t.Helper()
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), o)
	push(t, s, punctual.NewMessage{ID: "first", Due: time.Unix(1, 0)}, punctual.NewMessage{ID: "far", Delay: time.Hour})
	ack(t, s, claimOne(t, s, time.Minute)) // the server knows the scripts from now on
	before, begin := polls(t, server), time.Now()
	var waiting sync.WaitGroup
	for range waiters {
		waiting.Go(func() {
			if ds, err := s.Claim(context.Background(), orders(2500*time.Millisecond)); err != nil || len(ds) > 0 {
				t.Errorf("claim: %v, %v", ds, err)
			}
		})
	}
	waiting.Wait()
	return polls(t, server) - before, time.Since(begin).Seconds()
}

// A message that falls due costs about one claim script, not one for each claim that waits.
func TestOneLookPerMessage(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	const waiters, messages = 16, 16
	var waiting sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	push(t, s, punctual.NewMessage{ID: "first", Delay: time.Hour})
	for range waiters {
		waiting.Go(func() {
			for ctx.Err() == nil {
				ds, err := s.Claim(ctx, orders(time.Hour))
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("claim: %v", err)
				}
				for _, d := range ds {
					ack(t, s, d)
				}
			}
		})
	}
	for n := 0; n < waiters; n = s.waiters("orders") {
		time.Sleep(time.Millisecond)
	}
	before, begin := calls(t, server), time.Now()
	for i := range messages {
		push(t, s, punctual.NewMessage{ID: fmt.Sprint(i), Delay: time.Duration(20+i) * time.Millisecond})
	}
	for live := int64(2); live > 1; {
		st, err := s.Stats(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		live = st.Live()
		before++ // for the script of Stats
	}
	n, seconds := calls(t, server)-before, time.Since(begin).Seconds()
	end()
	waiting.Wait()
	// Each message needs a push, a claim and an ack. A claim script may come a little early, and
	// after a message was leased another script asks whether it was the last one.
	if float64(n) > 7*messages+seconds+5 {
		t.Errorf("%d messages through their lives with %d claims waiting took %d scripts", messages, waiters, n)
	}
}

// waiters returns how many claims wait for a topic.
func (s *Store) waiters(topic string) int {
	n, _ := s.waits.waiter.Waiting(topic)
	return n
}

// awaitAsleep waits until so many claims wait for the topic orders and nothing is asked for them.
func awaitAsleep(t testing.TB, s *Store, claims int) {
	t.Helper()
	for {
		if n, quiet := s.waits.waiter.Waiting("orders"); n == claims && quiet {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// The next claim goes by what is known from the last poll and from notifications, and reads
// nothing.
func TestClaimsShareWhatIsKnown(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "later", Delay: time.Hour})
	for range 100 { // the first claim polls, because nothing is known, and so does one each second
		before := polls(t, server)
		if ds, err := s.Claim(t.Context(), orders(20*time.Millisecond)); err != nil || len(ds) > 0 {
			t.Fatalf("claimed %v, %v; want nothing", ds, err)
		}
		if polls(t, server) == before {
			return
		}
	}
	t.Error("each claim of a hundred has asked")
}

// The processes that wait for a topic are counted by their subscriptions. For a user who may not
// count these there are none.
func TestProcesses(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	p := wait.Part{Topic: "orders"}
	if n := s.waits.Processes(p); n != 0 {
		t.Errorf("%d processes wait before anybody does", n)
	}
	var claims sync.WaitGroup
	defer claims.Wait()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 3 {
		other := openStore(t, connect(t, server), nil)
		claims.Go(func() { _, _ = other.Claim(ctx, orders(time.Hour)) })
	}
	for deadline := time.Now().Add(time.Minute); s.waits.Processes(p) != 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes wait; want 3", s.waits.Processes(p))
		}
	}
	do(t, server, "ACL", "SETUSER", "blind", "on", "nopass", "~*", "&*", "+@all", "-pubsub")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "blind", Password: "any"})
	closeAtEnd(t, client.Close)
	blind := openStore(t, client, nil)
	if n := blind.waits.Processes(p); n != 0 {
		t.Errorf("who may not count the processes knows of %d", n)
	}
	if log := do(t, server, "ACL", "LOG"); !strings.Contains(log, "pubsub") {
		t.Errorf("this test shows nothing: nobody was refused: %s", log)
	}
}
