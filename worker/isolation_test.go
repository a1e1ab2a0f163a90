package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	hungrig "github.com/punctualmq/punctual/internal/rigs/hung"
	"github.com/punctualmq/punctual/worker"
)

// A slow or failing topic delays no other one by more than 1 s (P14). The tests of that show first
// that one topic hangs or fails, then what became of the others.

const hung = hungrig.Topic

// healthy are the topics beside the hung one.
var healthy = []string{"a", "b", "c"}

// isolated is how long a healthy topic may have to wait for a hung one (P14).
const isolated = time.Second

// besideHung returns a worker on s that handles the hung topic and the healthy ones with h.
func besideHung(r *rig, s punctual.Store, h punctual.Handler) *worker.Worker {
	w := worker.New(s, r.config(worker.Config{Concurrency: 8}))
	for _, topic := range append([]string{hung}, healthy...) {
		w.Handle(topic, h)
	}
	return w
}

// leftOf returns the healthy topics that still hold message x.
func (r *rig) leftOf() (left []string) {
	r.t.Helper()
	for _, topic := range healthy {
		if _, err := r.mem.Get(r.t.Context(), topic, "x"); err == nil {
			left = append(left, topic)
		}
	}
	return left
}

func TestWorkerClaimsBesideAHungTopic(t *testing.T) { handlesBesideHung(t, "claim") }

func TestWorkerSettlesBesideAHungTopic(t *testing.T) { handlesBesideHung(t, "ack", "x") }

// Topics that outnumber the slots do not get a claim each after a late one, because the last of
// them would be asked for when all others have waited. They are asked for in groups. A topic that
// is in a group with the hung one waits until that group has been divided often enough to separate
// the two; the test allows 4 s for it.
func TestWorkerClaimsManyTopicsBesideAHungOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := hungrig.New(r.mem, "claim")
		seen := &record{}
		w := worker.New(s, r.config(worker.Config{Concurrency: 8}))
		h := handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			seen.add("%s", d.Topic)
			return nil
		})
		const many = 400
		w.Handle(hung, h)
		for i := range many {
			w.Handle(fmt.Sprint("topic-", i), h)
		}
		last := fmt.Sprint("topic-", many-1)
		r.runs(w)
		time.Sleep(isolated)
		synctest.Wait()
		s.WantHanging(t)
		r.push(last, "x")
		time.Sleep(4 * isolated)
		synctest.Wait()
		s.WantHanging(t)
		if got := seen.all(); !slices.Equal(got, []string{last}) {
			t.Errorf("P14: %v after the last of %d topics had a message, these were handled: %q", 4*isolated, many, got)
		}
		s.Mend()
		r.stops(w)
	})
}

// handlesBesideHung has op hang for the hung topic, which holds the messages named. The messages of
// the other topics must be handled and acked in time.
func handlesBesideHung(t *testing.T, op string, inHung ...string) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := hungrig.New(r.mem, op)
		w := besideHung(r, s, acks(&record{}))
		for _, id := range inHung {
			r.push(hung, id)
		}
		r.runs(w)
		synctest.Wait()
		s.WantHanging(t)
		for _, topic := range healthy {
			r.push(topic, "x")
		}
		time.Sleep(isolated)
		synctest.Wait()
		s.WantHanging(t)
		if left := r.leftOf(); len(left) > 0 {
			t.Errorf("P14: %v after they were pushed the messages of %q are not handled and acked", isolated, left)
		}
		s.Mend()
		r.stops(w)
	})
}

func TestWorkerRenewsBesideAHungTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := hungrig.New(r.mem, "extend")
		seen := &record{}
		w := besideHung(r, s, handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			select {
			case <-time.After(2 * time.Minute):
				return nil
			case <-ctx.Done():
				seen.add("%s", d.Topic)
				return ctx.Err()
			}
		}))
		for _, topic := range append([]string{hung}, healthy...) {
			r.push(topic, "x")
		}
		r.runs(w)
		time.Sleep(11 * time.Second) // a third of a lease, and the first renewals are on their way
		s.WantHanging(t)
		time.Sleep(time.Minute)
		lost := slices.DeleteFunc(seen.all(), func(topic string) bool { return topic == hung })
		if len(lost) > 0 {
			t.Errorf("P14: the leases of %q were lost beside a topic whose renewals hang", lost)
		}
		s.Mend()
		r.stops(w)
	})
}

// TestWorkerHandlesBesideHangingHandlers: here the handlers of one topic hang, and the store does
// not.
func TestWorkerHandlesBesideHangingHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		mended := make(chan struct{})
		running := &record{}
		w := besideHung(r, hungrig.New(r.mem), handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			if d.Topic == hung {
				running.add("%s", d.ID)
				<-mended
			}
			return nil
		}))
		for i := range 20 {
			r.push(hung, fmt.Sprint(i))
		}
		r.runs(w)
		synctest.Wait()
		if len(running.all()) == 0 {
			t.Error("no handler hangs, so this test shows nothing")
		}
		for _, topic := range healthy {
			r.push(topic, "x")
		}
		time.Sleep(isolated)
		synctest.Wait()
		if left := r.leftOf(); len(left) > 0 {
			t.Errorf("P14: %v after they were pushed the messages of %q are not handled, while %d handlers of another topic hang",
				isolated, left, len(running.all()))
		}
		close(mended)
		r.stops(w)
	})
}

// TestWorkerClaimsBesideAFailingTopic: claims for one topic fail for an hour, and those for the
// others do not wait for it.
func TestWorkerClaimsBesideAFailingTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &partlyFailing{Store: r.mem}
		w := besideHung(r, s, acks(&record{}))
		r.runs(w)
		time.Sleep(time.Hour)
		if s.failed.Load() == 0 {
			t.Error("no claim has failed, so this test shows nothing")
		}
		for _, topic := range healthy {
			r.push(topic, "x")
		}
		time.Sleep(isolated)
		synctest.Wait()
		if left := r.leftOf(); len(left) > 0 {
			t.Errorf("P14: %v after they were pushed the messages of %q are not handled", isolated, left)
		}
		r.wantLog("claim failed", 1)
		r.stops(w)
	})
}

// partlyFailing is a store in which every claim for topic hung fails.
type partlyFailing struct {
	punctual.Store
	failed atomic.Int32
}

func (s *partlyFailing) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if slices.Contains(c.Topics, hung) {
		s.failed.Add(1)
		return nil, errBroken
	}
	return s.Store.Claim(ctx, c)
}

// TestWorkerTakesWhatALateClaimBrings: a claim that was given up has leased messages after all.
// What finds a free slot is handled, and the rest is given back unstarted.
func TestWorkerTakesWhatALateClaimBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 6 {
			r.push("a", fmt.Sprint(i))
		}
		time.Sleep(time.Millisecond)
		s := &lateOnce{Store: r.mem}
		seen := &record{}
		w := worker.New(s, r.config(worker.Config{Concurrency: 4}))
		for _, topic := range healthy {
			w.Handle(topic, handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
				time.Sleep(time.Minute)
				seen.add("%s attempt %d", d.ID, d.Attempt)
				return nil
			}))
		}
		r.runs(w)
		time.Sleep(time.Second)
		r.wantLog("a claim does not return", 1)
		time.Sleep(time.Hour)
		if got := s.brought.Load(); got < 2 {
			t.Errorf("the late claim brought %d messages, so this test shows nothing", got)
		}
		want := []string{"0 attempt 1", "1 attempt 1", "2 attempt 1", "3 attempt 1", "4 attempt 1", "5 attempt 1"}
		if got := slices.Sorted(slices.Values(seen.all())); !slices.Equal(got, want) {
			t.Errorf("handled %q, want %q", got, want)
		}
		r.stops(w)
	})
}

// What a late claim brings does not give a topic more handlers than it may have.
func TestWorkerMaxSlotsOfLateClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 3 {
			r.push("a", fmt.Sprint(i))
		}
		time.Sleep(time.Millisecond)
		s := &lateOnce{Store: r.mem}
		var busy, most atomic.Int32
		w := worker.New(s, r.config(worker.Config{Concurrency: 4}))
		w.Handle("a", handlerFunc(func(context.Context, *punctual.Delivery) error {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			time.Sleep(time.Minute)
			return nil
		}), worker.MaxSlots(1))
		r.runs(w)
		time.Sleep(time.Hour)
		if got := s.brought.Load(); got == 0 {
			t.Error("the late claim brought nothing, so this test shows nothing")
		}
		if most.Load() != 1 {
			t.Errorf("up to %d handlers at a time, want 1", most.Load())
		}
		for i := range 3 {
			r.wantGone("a", fmt.Sprint(i))
		}
		r.stops(w)
	})
}

// lateOnce is a store whose first claim answers after ten seconds, whatever becomes of its context.
type lateOnce struct {
	punctual.Store
	calls, brought atomic.Int32
}

func (s *lateOnce) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if s.calls.Add(1) > 1 {
		return s.Store.Claim(ctx, c)
	}
	ds, err := s.Store.Claim(context.Background(), c)
	s.brought.Store(int32(len(ds)))
	time.Sleep(10 * time.Second)
	return ds, err
}

// TestWorkerMaxSlots: a topic has no more handlers at work than it may, and the others have the
// rest.
func TestWorkerMaxSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		busy, most := map[string]int{}, map[string]int{}
		w := worker.New(r.mem, r.config(worker.Config{Concurrency: 8}))
		work := handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			add := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				busy[d.Topic] += n
				most[d.Topic] = max(most[d.Topic], busy[d.Topic])
			}
			add(1)
			time.Sleep(time.Second)
			add(-1)
			return nil
		})
		w.Handle("a", work, worker.MaxSlots(2))
		w.Handle("b", work)
		for i := range 30 {
			r.push("a", fmt.Sprint(i))
			r.push("b", fmt.Sprint(i))
		}
		r.runs(w)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most["a"] != 2 || most["b"] < 6 {
			t.Errorf("at most %v handlers were at work at a time, want 2 of a and at least 6 of b", most)
		}
		for _, topic := range []string{"a", "b"} {
			for i := range 30 {
				r.wantGone(topic, fmt.Sprint(i))
			}
		}
		r.stops(w)
	})
}

// P11, P14: a claim hangs, as one does whose connection carries nothing any more. A worker with one
// topic does not wait for it, be it the first claim, the second or the fifth. When the claim
// returns after all, the message that it brings is handled in its first attempt, whether there is a
// slot for it or it is given back, and so are further messages.
func TestWorkerClaimsBesideAHungClaim(t *testing.T) {
	for _, hangs := range []int32{1, 2, 5} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprintf("claim %d, deaf %v", hangs, deaf), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					s := &hangsOnce{Store: r.mem, nth: hangs, deaf: deaf, mended: make(chan struct{})}
					seen := &record{}
					w := worker.New(s, r.config(worker.Config{Concurrency: 2}))
					w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
						seen.add("%s attempt %d", d.ID, d.Attempt)
						return nil
					}))
					r.runs(w)
					for s.hanging.Load() == 0 {
						time.Sleep(time.Millisecond)
					}
					r.push("t", "x")
					time.Sleep(isolated)
					synctest.Wait()
					if s.hanging.Load() != 1 {
						t.Fatal("no claim hangs, so this test shows nothing")
					}
					seen.want(t, "x attempt 1")
					r.wantLog("a claim does not return", 1)
					time.Sleep(time.Minute)
					if deaf == (s.hanging.Load() == 0) {
						t.Errorf("after a minute %d claims hang; want one if it does not hear its context, and none else", s.hanging.Load())
					}
					want := []string{"x attempt 1"}
					s.alone.Store(true)
					time.Sleep(time.Second) // from now on only the claim that hangs finds something
					if deaf {
						r.push("t", "z")
						want = append(want, "z attempt 1")
					}
					close(s.mended)
					synctest.Wait()
					if n := s.brought.Load(); (n == 1) != deaf {
						t.Fatalf("the claim that hung brings %d messages, so this test shows nothing", n)
					}
					s.alone.Store(false)
					time.Sleep(time.Second)
					r.push("t", "y")
					time.Sleep(isolated)
					seen.want(t, append(want, "y attempt 1")...)
					r.stops(w)
				})
			})
		}
	}
}

// P11: after a while without messages claims are long and few, and there are two of them, so that
// what becomes due is found by the other one if one hangs. No topic has more handlers than it may,
// even if both bring something.
func TestWorkerClaimsBesideAHungLongClaim(t *testing.T) {
	for _, c := range []worker.Config{{Concurrency: 1}, {Concurrency: 2}, {Concurrency: 8}} {
		for _, maxSlots := range []int{0, 1} {
			for _, hangs := range []int32{7, 8, 9, 10, 11} {
				t.Run(fmt.Sprintf("%d slots, %d for the topic, claim %d", c.Concurrency, maxSlots, hangs), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t)
						s := &hangsOnce{Store: r.mem, nth: hangs, mended: make(chan struct{})}
						var opts []worker.HandleOption
						slots := c.Concurrency
						if maxSlots > 0 {
							opts, slots = append(opts, worker.MaxSlots(maxSlots)), maxSlots
						}
						seen := &record{}
						var busy, most atomic.Int32
						w := worker.New(s, r.config(c))
						w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
							most.Store(max(most.Load(), busy.Add(1)))
							defer busy.Add(-1)
							seen.add("%s attempt %d, late %v", d.ID, d.Attempt, time.Since(d.Due) > isolated)
							time.Sleep(100 * time.Millisecond)
							return nil
						}), opts...)
						r.runs(w)
						for s.hanging.Load() == 0 {
							time.Sleep(time.Millisecond)
						}
						if r.since() < 3*time.Second {
							t.Fatalf("the claim hangs after %v, when claims are short, so this test shows nothing", r.since())
						}
						time.Sleep(2 * time.Second)
						var want []string
						for i := range 6 * slots {
							id := fmt.Sprintf("%02d", i)
							r.push("t", id)
							want = append(want, id+" attempt 1, late false")
						}
						time.Sleep(isolated)
						synctest.Wait()
						if s.hanging.Load() != 1 {
							t.Fatal("no claim hangs, so this test shows nothing")
						}
						got := seen.all()
						if slices.Sort(got); !slices.Equal(got, want) {
							t.Errorf("got  %q\nwant %q", got, want)
						}
						close(s.mended)
						time.Sleep(time.Minute)
						for i := range slots {
							id := fmt.Sprintf("y%02d", i)
							r.push("t", id)
							want = append(want, id+" attempt 1, late false")
						}
						time.Sleep(isolated)
						got = seen.all()
						if slices.Sort(got); !slices.Equal(got, want) {
							t.Errorf("later: got  %q\nwant %q", got, want)
						}
						if int(most.Load()) > slots {
							t.Errorf("%d handlers at a time, want at most %d", most.Load(), slots)
						}
						r.stops(w)
					})
				})
			}
		}
	}
}

// A worker with one topic that finds nothing sends few claims, and is as prompt as ever.
func TestWorkerClaimsRarelyWhenIdle(t *testing.T) {
	for _, n := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			seen := &record{}
			w := r.worker(worker.Config{Concurrency: n})
			w.Handle("t", acks(seen))
			r.runs(w)
			time.Sleep(time.Minute)
			_, before, _ := r.store.counts()
			time.Sleep(10 * time.Minute)
			_, after, _ := r.store.counts()
			if claims := after - before; claims < 20 || claims > 70 {
				t.Errorf("P10: %d slots: %d claims in ten idle minutes; want about 6 a minute", n, claims)
			}
			var want []string
			for i := range 20 { // now the first claim finds them, now the second one
				id := fmt.Sprint(i)
				r.push("t", id)
				time.Sleep(10 * time.Millisecond)
				r.wantGone("t", id)
				want = append(want, id)
				time.Sleep(11 * time.Second)
			}
			seen.want(t, want...)
			r.wantLog("a claim does not return", 0)
			r.stops(w)
		})
	}
}

// A store that hangs for ever is not asked more and more often: the late claims of a topic are
// bounded.
func TestWorkerBoundsLateClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := hungrig.New(r.mem, "claim")
		w := worker.New(s, r.config(worker.Config{Concurrency: 2}))
		w.Handle(hung, acks(&record{}))
		r.runs(w)
		most := 0
		for range 100 {
			time.Sleep(time.Second)
			most = max(most, s.Hanging())
		}
		if most < 2 || most > 4 {
			t.Errorf("P10: up to %d claims of one topic hang at a time; want a few", most)
		}
		r.push(hung, "x")
		s.Mend()
		time.Sleep(isolated)
		r.wantGone(hung, "x")
		r.stops(w)
	})
}

// hangsOnce is a store one of whose claims hangs until the test mends it or, unless it is deaf, its
// context ends.
type hangsOnce struct {
	punctual.Store
	nth            int32
	deaf           bool
	mended         chan struct{}
	calls, hanging atomic.Int32
	// brought is how many messages the claim that hung has brought in the end. While alone is set
	// the other claims find nothing.
	brought atomic.Int32
	alone   atomic.Bool
}

func (s *hangsOnce) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if s.calls.Add(1) != s.nth {
		if s.alone.Load() {
			time.Sleep(c.Wait)
			return nil, nil
		}
		return s.Store.Claim(ctx, c)
	}
	s.hanging.Add(1)
	defer s.hanging.Add(-1)
	ended := ctx.Done()
	if s.deaf {
		ended = nil
	}
	select {
	case <-s.mended:
		ds, err := s.Store.Claim(context.WithoutCancel(ctx), punctual.Claim{Topics: c.Topics, Max: c.Max})
		s.brought.Add(int32(len(ds)))
		return ds, err
	case <-ended:
		return nil, fmt.Errorf("claim: %w: %w", punctual.ErrIndeterminate, ctx.Err())
	}
}
