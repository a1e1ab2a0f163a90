package diskstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
)

// TestSlowManyTopicsWithManyMessages: the bound is not only for bodies. When many messages without
// bodies are due in many topics, not all of them are in memory either.
func TestSlowManyTopicsWithManyMessages(t *testing.T) {
	const topics, each, bound = 200, 100, 200 * memory.MessageBytes * 10
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart), MemoryBytes: bound})
	for i := range each {
		var ms []punctual.NewMessage
		for topic := range topics {
			ms = append(ms, punctual.NewMessage{Topic: fmt.Sprint(topic), ID: fmt.Sprint(i)})
		}
		push(t, s, ms...)
		mustBeAccounted(t, s, 1000)
	}
	for topic := range topics {
		got := 0
		for ds := claim(t, s, fmt.Sprint(topic), 30); len(ds) > 0; ds = claim(t, s, fmt.Sprint(topic), 30) {
			for _, d := range ds {
				if d.ID != fmt.Sprint(got) {
					t.Fatalf("P12 order: %s came as number %d", d.ID, got)
				}
				if err := settle(t, s, d, punctual.SettleAck); err != nil {
					t.Fatal(err)
				}
				got++
			}
			mustBeAccounted(t, s, 1000)
		}
		if got != each {
			t.Errorf("P1 no loss: %d of %d messages came from topic %d", got, each, topic)
		}
	}
}

// TestBacklogLeavesRoomForOthers: a topic with a backlog that nobody claims does not take the
// memory of one that has few messages.
func TestBacklogLeavesRoomForOthers(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock, MemoryBytes: 1 << 20})
	for range 40 {
		var ms []punctual.NewMessage
		for range 100 {
			ms = append(ms, punctual.NewMessage{Topic: "backlog", Body: make([]byte, 1000)})
		}
		push(t, s, append(ms, punctual.NewMessage{Topic: "o"})...)
	}
	mustBeAccounted(t, s, 2000)
	if o := s.topics.Get("o").Memory.Stats(); o.Window != 40 || o.DiskNext != record.MaxPosition {
		t.Errorf("P14 isolation: of 40 messages of a topic %d are in memory, beside a backlog of another one", o.Window)
	}
}

// TestSlowOneClaimIsBounded: a claim for many large messages brings some of them, in order, and the
// next claim brings the others.
func TestSlowOneClaimIsBounded(t *testing.T) {
	const size, n = 1 << 20, 80
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock})
	for i := range n {
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Body: make([]byte, size)})
	}
	for round := range 2 { // the second round claims messages whose leases ran out, so their bodies are on disk alone
		got := 0
		for _, want := range []int{claimBytes/size + 1, n - claimBytes/size - 1, 0} {
			ds := claim(t, s, "o", n)
			if max(len(ds)-want, want-len(ds)) > 1 {
				t.Errorf("P10 bounded: round %d: a claim brought %d messages of a MiB, want about %d", round, len(ds), want)
			}
			for _, d := range ds {
				if d.ID != fmt.Sprint(got) {
					t.Fatalf("P12 order: %s came as number %d", d.ID, got)
				}
				got++
			}
			mustBeAccounted(t, s, size+1000)
		}
		if got != n {
			t.Errorf("P1 no loss: %d of %d messages came", got, n)
		}
		clock.Advance(time.Minute)
	}
}

// TestSlowAccountOfMemory: after each of many random calls the account of the memory is the sum of
// what the messages in memory cost, and within the bound.
func TestSlowAccountOfMemory(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			r := &accountRig{t: t, rng: rand.New(rand.NewPCG(seed, 8)), clock: storekit.NewManualClock(testStart)}
			r.s = openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: r.clock, MemoryBytes: 60 * memory.MessageBytes})
			for range 1500 {
				r.step()
				mustBeAccounted(t, r.s, 5000)
			}
			for len(r.held) > 0 {
				r.settle()
			}
			for name := range 5 {
				if _, err := r.s.DeleteTopic(t.Context(), fmt.Sprint(name)); err != nil && !errors.Is(err, punctual.ErrNotFound) {
					t.Error(err)
				}
			}
			mustBeAccounted(t, r.s, 0)
			if in := r.s.index.Stats(); in.Bytes != 0 || in.HeldBytes != 0 || in.Window+in.Pending+in.Held+in.Acked != 0 {
				t.Errorf("P10 bounded: an empty store has %+v in memory", in)
			}
		})
	}
}

type accountRig struct {
	t     *testing.T
	s     *Store
	rng   *rand.Rand
	clock *storekit.ManualClock
	held  []punctual.Delivery
}

func (r *accountRig) topic() string { return fmt.Sprint(r.rng.IntN(5)) }
func (r *accountRig) id() string    { return fmt.Sprint(r.rng.IntN(200)) }

func (r *accountRig) step() {
	switch r.rng.IntN(20) {
	case 0:
		r.clock.Advance(time.Duration(r.rng.IntN(20_000)) * time.Millisecond)
	case 1:
		_, err := r.s.DeleteTopic(r.t.Context(), r.topic())
		r.must(err)
	case 2:
		_, err := r.s.Purge(r.t.Context(), punctual.PurgeQuery{Topic: r.topic()})
		r.must(err)
	case 3, 4, 5:
		a := punctual.Amendment{Change: punctual.Change(1 + r.rng.IntN(3)), Topic: r.topic(), ID: r.id()}
		if a.Change != punctual.ChangeCancel {
			a.Delay = time.Duration(r.rng.IntN(30)) * time.Second
		}
		_, err := r.s.Amend(r.t.Context(), []punctual.Amendment{a})
		r.must(err)
	case 6, 7, 8:
		c := punctual.Claim{Topics: []string{r.topic(), r.topic()}, Max: 1 + r.rng.IntN(30), Lease: time.Duration(1+r.rng.IntN(20)) * time.Second}
		if c.Topics[0] == c.Topics[1] {
			c.Topics = c.Topics[:1]
		}
		ds, err := r.s.Claim(r.t.Context(), c)
		r.must(err)
		r.held = append(r.held, ds...)
	case 9, 10, 11, 12:
		r.settle()
	default:
		r.push()
	}
}

func (r *accountRig) must(err error) {
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		r.t.Helper()
		r.t.Fatal(err)
	}
}

func (r *accountRig) push() {
	var ms []punctual.NewMessage
	for range 1 + r.rng.IntN(20) {
		m := punctual.NewMessage{
			Topic: r.topic(), ID: r.id(), IfExists: punctual.IfExists(r.rng.IntN(2)),
			Body: make([]byte, r.rng.IntN(4000)/(1+r.rng.IntN(40))), ExpireAfter: time.Duration(r.rng.IntN(2)) * time.Minute,
		}
		if r.rng.IntN(2) == 0 {
			m.Delay = time.Duration(r.rng.IntN(20_000)) * time.Millisecond
		}
		ms = append(ms, m)
	}
	rs, err := r.s.Push(r.t.Context(), ms)
	r.must(err)
	for _, p := range rs {
		if p.Existing != punctual.StateDead {
			r.must(p.Err)
		}
	}
}

func (r *accountRig) settle() {
	var ss []punctual.Settlement
	for n := r.rng.IntN(20); n > 0 && len(r.held) > 0; n-- {
		i := r.rng.IntN(len(r.held))
		d := r.held[i]
		r.held = append(r.held[:i], r.held[i+1:]...)
		st := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.Verb(1 + r.rng.IntN(6))}
		switch st.Verb {
		case punctual.SettleRetry, punctual.SettleSnooze:
			st.Delay = time.Duration(r.rng.IntN(20)) * time.Second
		case punctual.SettleExtend:
			st.Delay = time.Second
		}
		ss = append(ss, st)
	}
	if len(ss) > 0 {
		_, err := r.s.Settle(r.t.Context(), ss)
		r.must(err)
	}
}

// mustBeAccounted compares the account of the memory with the messages in memory and with the
// bound. largest is what a message costs at most.
func mustBeAccounted(t *testing.T, s *Store, largest int64) {
	t.Helper()
	if in := s.index.Stats(); in.Bytes > in.Bound+largest {
		t.Fatalf("P10 bounded: messages in the window cost %d, those not durable yet %d, all with what is loaded %d; the bound is %d", in.WindowBytes, in.PendingBytes, in.Bytes, in.Bound)
	}
	if err := s.index.Verify(); err != nil {
		t.Fatal(err)
	}
}
