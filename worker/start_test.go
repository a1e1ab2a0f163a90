package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// No handler starts under a lease that has ended (P3). Most tests here bring it about that a lease
// ends between the store's claim and the handler's start, and show first that it did.

// watched is a rig whose handlers check that their lease holds, by the store's clock, when they
// start.
type watched struct {
	*rig
	seen *record // what the handlers and the observer saw
}

func newWatched(t *testing.T, clock storekit.Clock) *watched {
	return &watched{rig: newRigOn(t, clock), seen: &record{}}
}

// observer fails the test when a worker starts a message whose lease it does not hold, and records
// each lease that is lost.
func (r *watched) observer() *punctual.Observer {
	return &punctual.Observer{
		OnStart: func(_ context.Context, d *punctual.Delivery) { r.wantHeld(d) },
		OnLeaseLost: func(_ context.Context, d *punctual.Delivery, err error) {
			r.seen.add("%s lost: %s", d.ID, storekit.ErrorCode(err))
		},
	}
}

// handler records each start and handles for d.
func (r *watched) handler(d time.Duration) punctual.Handler {
	return handlerFunc(func(_ context.Context, m *punctual.Delivery) error {
		r.wantHeld(m)
		r.seen.add("%s handled in attempt %d", m.ID, m.Attempt)
		time.Sleep(d)
		return nil
	})
}

// wantHeld checks that d is leased under its own token. It extends the lease to where it ends
// already, which memstore grants to no other token.
func (r *watched) wantHeld(d *punctual.Delivery) {
	r.t.Helper()
	i, err := r.mem.Get(context.Background(), d.Topic, d.ID)
	if err != nil || i.State != punctual.StateLeased {
		r.t.Errorf("P3: %s is started in attempt %d while it is %v, %v", d.ID, d.Attempt, i.State, err)
		return
	}
	now, err := r.mem.Now(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	same := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleExtend, Delay: i.LeaseUntil.Sub(now)}
	if errs, err := r.mem.Settle(context.Background(), []punctual.Settlement{same}); err != nil || errs[0] != nil {
		r.t.Errorf("P3: %s is started in attempt %d though another one holds it: %v, %v", d.ID, d.Attempt, errs, err)
	}
}

// takes claims n messages as another worker would, which shows that they were leased to nobody.
func (r *watched) takes(n int) []punctual.Delivery {
	r.t.Helper()
	ds, err := r.mem.Claim(context.Background(), punctual.Claim{Topics: []string{"t"}, Max: 100})
	if err != nil || len(ds) != n {
		r.t.Fatalf("another claim got %d messages, %v; want %d whose leases have ended", len(ds), err, n)
	}
	return ds
}

func (r *watched) acks(ds []punctual.Delivery) {
	r.t.Helper()
	for _, d := range ds {
		errs, err := r.mem.Settle(context.Background(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
		if err != nil || errs[0] != nil {
			r.t.Fatalf("ack of %s by the other holder: %v, %v", d.ID, errs, err)
		}
	}
}

// holdsBack keeps the first answer that brings message a from the worker for d.
func (r *watched) holdsBack(d time.Duration) {
	hold := r.holder(d)
	r.store.afterClaim = func(ds []punctual.Delivery) {
		if slices.ContainsFunc(ds, func(d punctual.Delivery) bool { return d.ID == "a" }) {
			hold()
		}
	}
}

// holder returns a function that sleeps for d when it is first called. Claims that the worker sends
// meanwhile reach the store after that time, so the test can be another holder.
func (r *watched) holder(d time.Duration) func() {
	over := make(chan struct{})
	var held atomic.Bool
	r.store.gate = func() {
		if held.Load() {
			<-over
		}
	}
	return sync.OnceFunc(func() {
		held.Store(true)
		time.Sleep(d)
		close(over)
	})
}

func (r *watched) wantSeen(want ...string) {
	r.t.Helper()
	got := r.seen.all()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestWorkerStartsNothingThatAnotherHolds: the answer to a claim comes when another worker has the
// messages, or has finished them.
func TestWorkerStartsNothingThatAnotherHolds(t *testing.T) {
	for _, finished := range []bool{false, true} {
		t.Run(fmt.Sprint("finished ", finished), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newWatched(t, nil)
				r.holdsBack(40 * time.Second)
				w := r.worker(worker.Config{Concurrency: 2, Observer: r.observer()})
				w.Handle("t", r.handler(0))
				r.push("t", "a")
				r.push("t", "b")
				r.runs(w)
				time.Sleep(35 * time.Second)
				other := r.takes(2)
				if finished {
					r.acks(other)
				}
				time.Sleep(20 * time.Second)
				r.wantSeen("a lost: lease_lost", "b lost: lease_lost")
				r.wantLog("lease of the message is lost", 2)
				if !finished {
					r.acks(other)
				}
				time.Sleep(time.Hour)
				r.wantSeen("a lost: lease_lost", "b lost: lease_lost")
				r.stops(w)
			})
		})
	}
}

// TestWorkerStartsNothingThatWaitedTooLong: what comes between the answer and the handler takes
// longer than the lease.
func TestWorkerStartsNothingThatWaitedTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWatched(t, nil)
		o := r.observer()
		hold := r.holder(40 * time.Second)
		o.OnClaim = func(_ context.Context, n int, _ time.Duration) {
			if n == 4 {
				hold()
			}
		}
		w := r.worker(worker.Config{Concurrency: 4, Observer: o})
		w.Handle("t", r.handler(0))
		var lost []string
		for i := range 4 {
			r.push("t", fmt.Sprint(i))
			lost = append(lost, fmt.Sprint(i, " lost: lease_lost"))
		}
		r.runs(w)
		time.Sleep(35 * time.Second)
		other := r.takes(4)
		time.Sleep(20 * time.Second)
		r.wantSeen(lost...)
		r.acks(other)
		time.Sleep(time.Hour)
		r.wantSeen(lost...)
		r.stops(w)
	})
}

// TestWorkerRenewsWhatMayHaveEnded: nobody else has claimed the message meanwhile, so the worker
// takes it up under a new lease, in the same attempt.
func TestWorkerRenewsWhatMayHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWatched(t, nil)
		r.holdsBack(40 * time.Second)
		w := r.worker(worker.Config{Concurrency: 1, Observer: r.observer()})
		w.Handle("t", r.handler(5*time.Minute))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(35 * time.Second)
		if i := r.get("t", "a"); i.State != punctual.StateReady {
			t.Fatalf("the lease has not ended: %+v", i)
		}
		time.Sleep(time.Minute)
		if i := r.get("t", "a"); i.State != punctual.StateLeased || i.Attempt != 1 {
			t.Errorf("after the renewal: %+v", i)
		}
		time.Sleep(time.Hour)
		r.wantSeen("a handled in attempt 1")
		r.wantGone("t", "a")
		r.stops(w)
	})
}

// TestWorkerGivesBackWhatItCannotRenew: the renewal before the start fails, so whether the lease
// holds is not known.
func TestWorkerGivesBackWhatItCannotRenew(t *testing.T) {
	for name, renewal := range map[string]func() error{
		"refused": func() error { return punctual.ErrOverloaded },
		"unknown": func() error { return errBroken },
		"hangs": func() error {
			time.Sleep(31 * time.Second)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newWatched(t, nil)
				r.holdsBack(40 * time.Second)
				var spoilt atomic.Bool
				r.store.spoil(nil, func(ss []punctual.Settlement) error {
					if ss[0].Verb == punctual.SettleExtend && spoilt.CompareAndSwap(false, true) {
						return renewal()
					}
					return nil
				})
				w := r.worker(worker.Config{Concurrency: 1, Observer: r.observer()})
				w.Handle("t", r.handler(0))
				r.push("t", "a", punctual.MaxAttempts(1)) // given back unstarted, it uses up none
				r.runs(w)
				time.Sleep(35 * time.Second)
				if i := r.get("t", "a"); i.State != punctual.StateReady {
					t.Fatalf("the lease has not ended: %+v", i)
				}
				time.Sleep(time.Hour)
				if !spoilt.Load() {
					t.Fatal("no renewal was tried")
				}
				r.wantSeen("a handled in attempt 1", "a lost: lease_lost")
				r.wantLog("lease of the message is lost", 1)
				r.wantGone("t", "a")
				r.stops(w)
			})
		})
	}
}

// TestWorkerStartsNothingCancelledMeanwhile: the renewal before the start is told that the message
// was cancelled, and the message ends.
func TestWorkerStartsNothingCancelledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWatched(t, nil)
		r.holdsBack(40 * time.Second)
		w := r.worker(worker.Config{Concurrency: 1, Observer: r.observer()})
		w.Handle("t", r.handler(0))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Second)
		if err := r.q.Cancel(t.Context(), "t", "a"); !errors.Is(err, punctual.ErrLeased) {
			t.Fatalf("cancel of a leased message: %v", err)
		}
		time.Sleep(time.Hour)
		r.wantSeen("a lost: cancelled")
		r.wantGone("t", "a")
		r.stops(w)
	})
}

// TestDrainGoesOnAfterALapsedLease: Drain does not count a message that it may not start, and
// handles what else is due.
func TestDrainGoesOnAfterALapsedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWatched(t, nil)
		r.holdsBack(40 * time.Second)
		w := r.worker(worker.Config{Observer: r.observer()})
		w.Handle("t", r.handler(0))
		r.push("t", "a")
		time.Sleep(time.Millisecond)
		r.push("t", "b")
		go func() {
			time.Sleep(35 * time.Second)
			ds, err := r.mem.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 2})
			if err != nil || len(ds) != 2 {
				t.Errorf("another claim got %d messages, %v; want both, the first one's lease having ended", len(ds), err)
			}
			for _, d := range ds {
				if d.ID == "b" {
					_, _ = r.mem.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: "b", Token: d.Token, Verb: punctual.SettleRelease}})
				}
			}
		}()
		n, err := w.Drain(t.Context())
		if n != 1 || err != nil {
			t.Errorf("drained %d, %v; want b alone", n, err)
		}
		r.wantSeen("a lost: lease_lost", "b handled in attempt 1")
	})
}

// steppedClock runs with the local clock, and can be set forward and back.
type steppedClock struct {
	mu sync.Mutex
	by time.Duration // guarded by mu
}

func (c *steppedClock) shift() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by
}

func (c *steppedClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += by
}

func (c *steppedClock) Now() time.Time { return time.Now().Round(0).Add(c.shift()) }

func (c *steppedClock) After(at time.Time) (<-chan time.Time, func()) {
	return shiftedClock{c.shift()}.After(at)
}

// TestWorkerAfterAStepOfTheStoresClock: once the store's clock was set forward, the worker judges
// by the new time.
func TestWorkerAfterAStepOfTheStoresClock(t *testing.T) {
	for _, step := range []time.Duration{time.Minute, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &steppedClock{by: -time.Hour}
				r := newWatched(t, clock)
				r.holdsBack(40 * time.Second)
				w := r.worker(worker.Config{Observer: r.observer()})
				w.Handle("t", r.handler(0))
				r.push("t", "before")
				r.runs(w)
				time.Sleep(time.Second)
				clock.step(step)
				r.push("t", "a")
				time.Sleep(35 * time.Second)
				other := r.takes(1)
				time.Sleep(20 * time.Second)
				r.wantSeen("a lost: lease_lost", "before handled in attempt 1")
				r.acks(other)
				r.push("t", "after")
				time.Sleep(time.Minute)
				r.wantSeen("a lost: lease_lost", "after handled in attempt 1", "before handled in attempt 1")
				r.stops(w)
			})
		})
	}
}

// TestWorkerAfterASuspend: the machine of the worker is suspended between answer and start. Its
// monotonic clock pauses as well, but its wall clock shows the time that has passed.
func TestWorkerAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &steppedClock{}
		r := newWatched(t, clock)
		var awake atomic.Pointer[time.Time] // the local instant at which the machine went on
		o := r.observer()
		var other atomic.Pointer[[]punctual.Delivery]
		o.OnClaim = func(_ context.Context, n int, _ time.Duration) {
			if n > 0 && other.Load() == nil {
				time.Sleep(time.Second)
				slept := time.Now()
				awake.Store(&slept)
				clock.step(time.Minute)
				got := r.takes(1)
				other.Store(&got)
			}
		}
		w := r.worker(worker.Config{Observer: o})
		w.SetWallClock(func(at time.Time) time.Time {
			if slept := awake.Load(); slept != nil && !at.Before(*slept) {
				return at.Round(0).Add(time.Minute)
			}
			return at.Round(0)
		})
		w.Handle("t", r.handler(0))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(20 * time.Second)
		r.wantSeen("a lost: lease_lost")
		r.acks(*other.Load())
		r.push("t", "b")
		time.Sleep(time.Minute)
		r.wantSeen("a lost: lease_lost", "b handled in attempt 1")
		r.stops(w)
	})
}

// TestWorkerStartsNothingAfterASuspendedRenewal: the machine is suspended while the answer to the
// renewal before a start is under way. The lease ends meanwhile and another worker has the message.
// The monotonic clock paused, but the wall clock shows the time.
func TestWorkerStartsNothingAfterASuspendedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &steppedClock{}
		r := newWatched(t, clock)
		r.holdsBack(40 * time.Second)
		var awake atomic.Pointer[time.Time]
		var other atomic.Pointer[[]punctual.Delivery]
		r.store.afterSettle = func(_ context.Context, ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend && awake.Load() == nil {
				time.Sleep(time.Second)
				slept := time.Now()
				awake.Store(&slept)
				clock.step(time.Minute)
				got := r.takes(1)
				other.Store(&got)
			}
			return nil
		}
		w := r.worker(worker.Config{Concurrency: 1, Observer: r.observer()})
		w.SetWallClock(func(at time.Time) time.Time {
			if slept := awake.Load(); slept != nil && !at.Before(*slept) {
				return at.Round(0).Add(time.Minute)
			}
			return at.Round(0)
		})
		w.Handle("t", r.handler(0))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(45 * time.Second)
		if other.Load() == nil {
			t.Fatal("this test shows nothing: no lease was renewed before a start")
		}
		r.wantSeen("a lost: lease_lost")
		r.acks(*other.Load())
		time.Sleep(time.Hour)
		r.wantSeen("a lost: lease_lost")
		r.stops(w)
	})
}

// farStore is reached over a slow network: each call takes latency, half of it before the store.
type farStore struct {
	*spyStore
	latency time.Duration

	mu   sync.Mutex
	nows int // calls of Now; guarded by mu
}

func (s *farStore) travel() { time.Sleep(s.latency / 2) }

func (s *farStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.travel()
	defer s.travel()
	return s.spyStore.Claim(ctx, c)
}

func (s *farStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.travel()
	defer s.travel()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.spyStore.Settle(ctx, ss)
}

func (s *farStore) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	s.nows++
	s.mu.Unlock()
	s.travel()
	defer s.travel()
	return s.spyStore.Now(ctx)
}

func (s *farStore) clockReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nows
}

// TestWorkerOverASlowNetwork: a lease of a second suffices, though each call takes 300 ms and
// claims wait for long. As long as handlers are quick, no call is made to start them.
func TestWorkerOverASlowNetwork(t *testing.T) {
	for _, c := range []struct {
		name    string
		clock   storekit.Clock
		handler time.Duration
		every   time.Duration // time between two messages
		extends int           // at most
	}{
		{"busy", nil, 0, 10 * time.Millisecond, 0},
		{"now and then", nil, 0, 20 * time.Second, 0},
		{"seldom", nil, 0, 20 * time.Minute, 0},
		{"store of another time", shiftedClock{-1000 * time.Hour}, 0, 20 * time.Second, 0},
		{"slow handlers", nil, 3 * time.Second, 20 * time.Second, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 50
				r := newWatched(t, c.clock)
				far := &farStore{spyStore: r.store, latency: 300 * time.Millisecond}
				w := worker.New(far, r.config(worker.Config{Lease: time.Second, Observer: r.observer()}))
				w.Handle("t", r.handler(c.handler))
				r.runs(w)
				for i := range n {
					time.Sleep(c.every)
					r.push("t", fmt.Sprint(i))
				}
				time.Sleep(time.Minute)
				for _, line := range r.seen.all() {
					if !strings.Contains(line, "handled in attempt 1") {
						t.Errorf("%s", line)
					}
				}
				if got := len(r.seen.all()); got != n {
					t.Errorf("%d lines, want %d messages handled once", got, n)
				}
				if _, _, extends := r.store.counts(); extends > c.extends {
					t.Errorf("%d renewals of leases that surely held, want at most %d", extends, c.extends)
				}
				if most := 2 + int(r.since()/time.Minute); far.clockReads() > most {
					t.Errorf("the worker read the store's clock %d times in %v, want at most once a minute", far.clockReads(), r.since())
				}
				r.stops(w)
			})
		})
	}
}

// TestWorkerWithoutTheStoresClock: messages are handled although the store's Now fails or hangs.
func TestWorkerWithoutTheStoresClock(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newWatched(t, nil)
				timeless := &timelessStore{spyStore: r.store, hangs: hangs}
				w := worker.New(timeless, r.config(worker.Config{Lease: 2 * time.Second, Observer: r.observer()}))
				w.Handle("t", r.handler(0))
				r.runs(w)
				time.Sleep(20 * time.Second)
				r.push("t", "a") // it finds a claim that has waited for longer than its lease
				time.Sleep(10 * time.Minute)
				r.wantSeen("a handled in attempt 1")
				if timeless.asked.Load() == 0 {
					t.Error("the store was not asked for its time")
				}
				r.stops(w)
			})
		})
	}
}

// timelessStore is a store whose Now fails or hangs.
type timelessStore struct {
	*spyStore
	hangs bool
	asked atomic.Int64
}

func (s *timelessStore) Now(ctx context.Context) (time.Time, error) {
	s.asked.Add(1)
	if s.hangs {
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	}
	return time.Time{}, errBroken
}

// The zero Worker is an error that says what to do, and no panic.
func TestZeroWorker(t *testing.T) {
	var w worker.Worker
	w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil }))
	_, drained := w.Drain(t.Context())
	for call, err := range map[string]error{"Start": w.Start(t.Context()), "Run": w.Run(t.Context()), "Drain": drained} {
		if !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", call, err)
		}
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
