package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// interrupt calls f in front of script number n, or behind it, that a store sends from now on.
// f may return an error, which the store gets in place of an answer.
type interrupt struct {
	n      int
	behind bool
	f      func() error

	mu   sync.Mutex
	seen int
	done bool // f was called
}

func (*interrupt) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*interrupt) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (x *interrupt) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" || !x.now() {
			return next(ctx, cmd)
		}
		if x.behind {
			if err := next(ctx, cmd); err != nil {
				x.passOver()
				return err
			}
			return x.f()
		}
		if err := x.f(); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// now counts a script and reports whether it is script number n.
func (x *interrupt) now() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.f == nil {
		return false
	}
	x.seen++
	if x.seen != x.n {
		return false
	}
	x.done = true
	return true
}

// passOver has the next script count as number n, because this one has done nothing.
func (x *interrupt) passOver() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n = x.seen + 1
	x.done = false
}

func (x *interrupt) arm(n int, behind bool, f func() error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n, x.behind, x.f, x.seen, x.done = n, behind, f, 0, false
}

// called reports whether f was called since arm, and disarms.
func (x *interrupt) called() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.f = nil
	return x.done
}

// process is a store with a client of its own that can be interrupted.
type process struct {
	*Store
	interrupt interrupt
}

func openProcess(t testing.TB, prefix string) *process {
	t.Helper()
	p := &process{}
	c := connect(t, shared)
	c.AddHook(&p.interrupt)
	p.Store = openStore(t, c, &Options{Prefix: prefix})
	return p
}

// divide makes a topic of n partitions.
func divide(t testing.TB, s *Store, topic string, n int) {
	t.Helper()
	if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{Partitions: &n}); err != nil {
		t.Fatalf("a topic of %d partitions: %v", n, err)
	}
}

// wanderer returns an ID that is in a partition of another number with 1, 4 and 8 partitions each.
func wanderer() string {
	for i := 0; ; i++ {
		id := fmt.Sprint("w", i)
		if keys.Home(id, 4) != 0 && keys.Home(id, 8) >= 4 {
			return id
		}
	}
}

// P1, P5, P7: a topic that was deleted may come again with another number of partitions. A process
// that still knows the old number finds each ID where it is now, whatever call it makes first.
func TestTopicMadeAnewWithOtherPartitions(t *testing.T) {
	id := wanderer()
	x := punctual.NewMessage{ID: id, Due: time.Unix(1, 0)}
	for name, use := range map[string]func(s *Store) error{
		"push": func(s *Store) error {
			rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id}})
			if err == nil && rs[0].Status != punctual.PushDuplicate {
				return fmt.Errorf("the ID was stored twice: %+v", rs)
			}
			return err
		},
		"get": func(s *Store) error { _, err := s.Get(t.Context(), "orders", id); return err },
		"reschedule": func(s *Store) error {
			out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: id, Due: x.Due}})
			return errors.Join(err, out[0].Err)
		},
		"count": func(s *Store) error {
			st, err := s.Stats(t.Context(), "orders")
			if st.Live() != 1 {
				return fmt.Errorf("%d messages are counted, %w", st.Live(), err)
			}
			return err
		},
		"claim": func(*Store) error { return nil }, // as below
	} {
		for _, sizes := range [][2]int{{1, 8}, {8, 1}, {4, 8}, {8, 4}} {
			prefix := fresh()
			stale, other := openStore(t, connect(t, shared), &Options{Prefix: prefix}), openStore(t, connect(t, shared), &Options{Prefix: prefix})
			divide(t, stale, "orders", sizes[0])
			push(t, stale, x)
			if _, err := other.DeleteTopic(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			divide(t, other, "orders", sizes[1])
			push(t, other, x)
			if l := stale.topics.Known("orders"); l.Size() != sizes[0] {
				t.Fatalf("this test shows nothing: the other process knows %d partitions", l.Size())
			}
			if err := use(stale); err != nil {
				t.Errorf("P1: %s by a process that knows %d partitions where there are %d: %v", name, sizes[0], sizes[1], err)
			}
			ack(t, stale, claimOne(t, stale, time.Minute))
			wantSound(t, other)
		}
	}
}

// A topic keeps the number of partitions with which it comes into being: that of a Configure, or
// else that of the store's options. Another number later is refused, and changes nothing.
func TestPartitionsAreFixed(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4})
	divide(t, s, "own", 2) // fewer than the store's
	push(t, s, punctual.NewMessage{Topic: "stores", ID: "x", Delay: time.Hour})
	keep := time.Hour
	for topic, size := range map[string]int{"own": 2, "stores": 4} {
		for _, n := range []int{1, 3, 5, 8} {
			if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{Partitions: &n, DedupeWindow: &keep}); n != size && !errors.Is(err, punctual.ErrInvalid) {
				t.Errorf("Configure of a topic of %d partitions with %d = %v; want ErrInvalid", size, n, err)
			}
		}
		if set, err := s.Settings(t.Context(), topic); err != nil || set.Partitions != size || set.DedupeWindow != 0 {
			t.Errorf("after refused changes %s has %+v, %v; want %d partitions and nothing else", topic, set, err, size)
		}
		divide(t, s, topic, size) // the same number is not another one
	}
}

// P13: when the context of a Configure ends behind any of its scripts, an error is ErrIndeterminate
// if the settings were stored.
func TestSettingsStoredAtTheLastMoment(t *testing.T) {
	p, partitions := openProcess(t, fresh()), 2
	for n, stored := 1, false; ; n++ {
		topic, keep := fmt.Sprint("orders", n), time.Hour
		ctx, end := context.WithCancel(t.Context())
		p.interrupt.arm(n, true, func() error { end(); return nil })
		_, err := p.Configure(ctx, topic, punctual.SettingsPatch{DedupeWindow: &keep, Partitions: &partitions})
		end()
		if !p.interrupt.called() {
			if !stored {
				t.Error("this test shows nothing: no call ended behind the change of the settings")
			}
			return
		}
		set, err2 := p.Settings(t.Context(), topic)
		if err2 != nil {
			t.Fatal(err2)
		}
		if err != nil && set.DedupeWindow == keep {
			stored = true
			wantIndeterminate(t, fmt.Sprintf("Configure whose context ended behind script %d, and which was done,", n), err)
		}
	}
}

// A claim that waits for a topic that does not exist gets a message, in any partition, when the
// topic is made. The clock stands still, so only a notification can wake the claim.
func TestWaitingClaimSeesTopicCome(t *testing.T) {
	o := &Options{Prefix: fresh(), clock: storekit.NewManualClock(time.Unix(1e9, 0))}
	consumer, producer := openStore(t, connect(t, shared), o), openStore(t, connect(t, shared), o)
	for size := 1; size <= 32; size *= 2 {
		topic := fmt.Sprint("orders", size)
		got := make(chan []punctual.Delivery, 1)
		go func() {
			ds, err := consumer.Claim(context.Background(), punctual.Claim{Topics: []string{"other", topic}, Max: 1, Wait: time.Minute})
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			got <- ds
		}()
		for consumer.waiters(topic) == 0 {
			time.Sleep(time.Millisecond)
		}
		divide(t, producer, topic, size)
		id := fmt.Sprint(size)
		for i := 0; keys.Home(id, size) < size/2; i++ {
			id = fmt.Sprint(size, "-", i)
		}
		push(t, producer, punctual.NewMessage{Topic: topic, ID: id})
		if ds := <-got; len(ds) != 1 || ds[0].ID != id {
			t.Fatalf("P11: a waiting claim returned %v; want %s, pushed when the topic had come with %d partitions", ds, id, size)
		}
	}
}

// A topic may be made while no claim waits for it any more. The next claim that waits gets messages
// of all partitions.
func TestTopicComesBetweenWaits(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh()})
	for _, size := range []int{2, 8, 3} {
		if ds, err := s.Claim(t.Context(), orders(time.Millisecond)); err != nil || len(ds) != 0 {
			t.Fatalf("claim: %v, %v", ds, err)
		}
		divide(t, s, "orders", size)
		for i := range 16 {
			push(t, s, punctual.NewMessage{ID: fmt.Sprint(size, "-", i), Due: time.Unix(1, 0)})
			ack(t, s, claimOne(t, s, time.Minute))
		}
		if _, err := s.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
}

// P1, P13: a partition that has lost its settings, as in a failover, gets them again from the first
// push. When partition 0 has lost a version, the newest that is left goes on.
func TestLostVersions(t *testing.T) {
	prefix := fresh()
	open := func() *Store { return openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 4}) }
	s := open()
	settings := func(n int) string { return s.names.Partition("orders", n).Keys()[6] }
	pushEverywhere := func(name string) {
		t.Helper()
		for i := range 32 {
			push(t, s, punctual.NewMessage{ID: fmt.Sprint(name, i), Due: time.Unix(1, 0)})
		}
	}
	pushEverywhere("a")
	do(t, shared, "DEL", settings(2))
	pushEverywhere("b")
	before := do(t, shared, "DUMP", settings(0))
	keep := time.Hour
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DedupeWindow: &keep}); err != nil {
		t.Fatal(err)
	}
	pushEverywhere("c")
	do(t, shared, "RESTORE", settings(0), "0", before, "REPLACE")
	if got := do(t, shared, "HGET", settings(0), "dedupe_window"); got != "0" {
		t.Fatalf("partition 0 remembers for %q ms; the test is to have it lose the change", got)
	}
	s = open()
	pushEverywhere("d")
	if set, err := s.Settings(t.Context(), "orders"); err != nil || set.DedupeWindow != keep || set.Partitions != 4 {
		t.Errorf("after partition 0 has lost a version the settings are %+v, %v; want the change", set, err)
	}
	if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 500}); err != nil || len(ds) != 4*32 {
		t.Errorf("P1: %d messages are delivered, %v; want %d", len(ds), err, 4*32)
	}
}

// However many claims wait, an idle topic costs a poll each second for each partition.
func TestIdleCostOfPartitions(t *testing.T) {
	const waiters = 20
	looks, seconds := idle(t, &Options{Partitions: 4}, waiters)
	// Each subscription causes one more poll.
	if float64(looks) > 4*(seconds+2) {
		t.Errorf("%d claims that waited %.1f s read heads %d times; want four times a second", waiters, seconds, looks)
	}
}
