package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// lasting handles for d, or until its context ends, and records how it went.
func lasting(r *rig, seen *record, d time.Duration) punctual.Handler {
	return handlerFunc(func(ctx context.Context, m *punctual.Delivery) error {
		select {
		case <-time.After(d):
			seen.add("%s done in attempt %d", m.ID, m.Attempt)
			return nil
		case <-ctx.Done():
			seen.add("%s ended at %v: %s", m.ID, r.about(), causeName(ctx))
			return ctx.Err()
		}
	})
}

func causeName(ctx context.Context) string { return storekit.ErrorCode(context.Cause(ctx)) }

func TestWorkerRenewsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		a, b := r.worker(worker.Config{}), r.worker(worker.Config{})
		for _, w := range []*worker.Worker{a, b} {
			w.Handle("t", lasting(r, seen, 10*time.Minute))
			r.runs(w)
		}
		r.push("t", "a")
		time.Sleep(time.Hour)
		seen.want(t, "a done in attempt 1")
		r.wantGone("t", "a")
		// Every 10 s of the 600, and no more.
		if _, _, extends := r.store.counts(); extends < 58 || extends > 62 {
			t.Errorf("%d renewals in 10 minutes of a lease of 30 s; want one each third", extends)
		}
		r.stops(a)
		r.stops(b)
	})
}

func TestWorkerRenewsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, 5*time.Minute))
		r.runs(w)
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			r.push("t", id)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		_, _, extends := r.store.counts()
		if extends > 32 {
			t.Errorf("%d calls to renew 4 leases for 5 minutes; want about 30", extends)
		}
		if first := r.store.extends[0]; !slices.Equal(first, ids) {
			t.Errorf("the first renewal was for %q, want those near as well: %q", first, ids)
		}
		if n := len(seen.all()); n != 4 {
			t.Errorf("%d deliveries, want 4: %q", n, seen.all())
		}
		r.stops(w)
	})
}

// shiftedClock runs with the local one, but shows another time.
type shiftedClock struct{ by time.Duration }

func (c shiftedClock) Now() time.Time { return time.Now().Add(c.by) }

func (c shiftedClock) After(at time.Time) (<-chan time.Time, func()) {
	return storekit.SystemClock{}.After(at.Add(-c.by))
}

func TestWorkerIgnoresItsOwnWallClock(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, time.Hour, 24 * 365 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOn(t, shiftedClock{by})
				seen := &record{}
				w := r.worker(worker.Config{})
				w.Handle("t", lasting(r, seen, 10*time.Minute))
				r.runs(w)
				r.push("t", "a", punctual.In(time.Minute))
				time.Sleep(time.Hour)
				seen.want(t, "a done in attempt 1")
				if _, _, extends := r.store.counts(); extends < 58 || extends > 62 {
					t.Errorf("P8: %d renewals in 10 minutes with the store's clock %v ahead of the local one", extends, by)
				}
				r.stops(w)
			})
		})
	}
}

func TestWorkerShortestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Lease: limits.MinLease})
		w.Handle("t", lasting(r, seen, time.Second))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Minute)
		seen.want(t, "a done in attempt 1")
		r.stops(w)
	})
}

func TestWorkerLostLeaseEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		o := &punctual.Observer{OnLeaseLost: func(_ context.Context, d *punctual.Delivery, err error) {
			seen.add("observed %s: %s", d.ID, storekit.ErrorCode(err))
		}}
		w := r.worker(worker.Config{Concurrency: 1, Observer: o})
		w.Handle("t", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			if string(d.Body) == "new" {
				seen.add("new body in attempt %d", d.Attempt)
				return nil
			}
			<-ctx.Done()
			seen.add("ended at %v: %s", r.about(), causeName(ctx))
			return nil
		}))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(12 * time.Second)
		var settled atomic.Int64
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			if ss[0].Verb != punctual.SettleExtend {
				settled.Add(1)
			}
			return nil
		})
		if _, err := r.q.Push(t.Context(), "t", []byte("new"), punctual.ID("a"), punctual.Replace()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		got := seen.all()
		slices.Sort(got) // the observer learns of it at the same time, perhaps after the next message
		if want := []string{"ended at 20s: lease_lost", "new body in attempt 1", "observed a: lease_lost"}; !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if settled.Load() != 1 {
			t.Errorf("%d settlements, want that of the new message alone: the old lease was known to be lost", settled.Load())
		}
		r.wantGone("t", "a")
		r.wantLog("lease of the message is lost", 1)
		r.stops(w)
	})
}

// TestWorkerLossIsReportedOnce: the lease ends by local time while an answer that reports the same
// loss is under way. The observer is notified once.
func TestWorkerLossIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		r.store.afterSettle = func(_ context.Context, ss []punctual.Settlement) error {
			seen.add("%s at %v", ss[0].Verb, r.about())
			time.Sleep(25 * time.Second)
			return nil
		}
		o := &punctual.Observer{OnLeaseLost: func(context.Context, *punctual.Delivery, error) { seen.add("notified at %v", r.about()) }}
		w := r.worker(worker.Config{Concurrency: 1, Observer: o})
		w.Handle("t", handlerFunc(func(context.Context, *punctual.Delivery) error {
			time.Sleep(40 * time.Second)
			return nil
		}))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Second)
		r.push("t", "a", punctual.Replace(), punctual.In(24*time.Hour))
		time.Sleep(time.Hour)
		seen.want(t, "extend at 10s", "notified at 30s") // and no settlement at 40 s
		r.stops(w)
	})
}

func TestWorkerCancelEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		var lost atomic.Int64
		o := &punctual.Observer{OnLeaseLost: func(_ context.Context, _ *punctual.Delivery, err error) {
			if errors.Is(err, punctual.ErrCancelled) {
				lost.Add(1)
			}
		}}
		w := r.worker(worker.Config{Observer: o})
		w.Handle("t", lasting(r, seen, time.Hour))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(5 * time.Second)
		if err := r.q.Cancel(t.Context(), "t", "a"); !errors.Is(err, punctual.ErrLeased) {
			t.Fatalf("cancel of a leased message: %v", err)
		}
		time.Sleep(24 * time.Hour)
		seen.want(t, "a ended at 10s: cancelled")
		r.wantGone("t", "a") // P5: no further attempt, though the handler returned an error
		if lost.Load() != 1 {
			t.Errorf("OnLeaseLost was called %d times with ErrCancelled, want 1", lost.Load())
		}
		r.stops(w)
	})
}

// TestWorkerSettlesWhatWasCancelled: a cancelled message is still this worker's, and ends when its
// handler has returned, whatever the handler made of it.
func TestWorkerSettlesWhatWasCancelled(t *testing.T) {
	for name, answer := range map[string]error{"ack": nil, "retry": errBroken, "snooze": punctual.Snooze(time.Minute), "discard": punctual.Discard(errBroken)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				w := r.worker(worker.Config{})
				w.Handle("t", handlerFunc(func(ctx context.Context, _ *punctual.Delivery) error {
					<-ctx.Done()
					return answer
				}))
				r.push("t", "a")
				r.runs(w)
				synctest.Wait()
				if err := r.q.Cancel(t.Context(), "t", "a"); !errors.Is(err, punctual.ErrLeased) {
					t.Fatalf("cancel of a leased message: %v", err)
				}
				time.Sleep(15 * time.Second) // one renewal, and long before the lease ends
				if name != "discard" {
					r.wantGone("t", "a")
				} else if i := r.get("t", "a"); i.State != punctual.StateDead {
					t.Errorf("after a discard: %+v", i)
				}
				r.stops(w)
			})
		})
	}
}

func TestWorkerLearnsOfACancelWhenItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		o := &punctual.Observer{OnLeaseLost: func(_ context.Context, _ *punctual.Delivery, err error) { seen.add("%s", storekit.ErrorCode(err)) }}
		w := r.worker(worker.Config{Observer: o})
		w.Handle("t", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			if err := r.q.Cancel(ctx, "t", d.ID); !errors.Is(err, punctual.ErrLeased) {
				return err
			}
			return errBroken
		}))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "cancelled")
		r.wantGone("t", "a")
		r.stops(w)
	})
}

func TestWorkerRenewalsFailUntilTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		var tries atomic.Int64
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend && r.since() < time.Minute {
				tries.Add(1)
				return errBroken
			}
			return nil
		})
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, 40*time.Second))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(35 * time.Second)
		seen.want(t, "a ended at 30s: lease_lost")
		if n := tries.Load(); n < 6 || n > 30 {
			t.Errorf("%d tries to renew within a lease of 30 s, want about 8, and some more at its end", n)
		}
		r.wantLog("leases could not be renewed", 1)
		time.Sleep(time.Hour)
		r.wantGone("t", "a")
		r.stops(w)
	})
}

func TestWorkerCountsAnewFromEachRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend && r.since() > 15*time.Second {
				return errBroken
			}
			return nil
		})
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, time.Hour))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(45 * time.Second)
		r.store.spoil(nil, nil)
		seen.want(t, "a ended at 40s: lease_lost") // renewed at 10 s, for 30 s
		time.Sleep(2 * time.Hour)
		r.stops(w)
	})
}

// TestWorkerCountsARenewalFromItsSending: a lease that was renewed ends its length after the store
// granted it, not after its answer came.
func TestWorkerCountsARenewalFromItsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var granted, ended time.Time
		r.store.afterSettle = func(_ context.Context, ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend && granted.IsZero() {
				granted = time.Now()
				time.Sleep(12 * time.Second)
			}
			return nil
		}
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend && !granted.IsZero() {
				return errBroken
			}
			return nil
		})
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(ctx context.Context, _ *punctual.Delivery) error {
			<-ctx.Done()
			if ended.IsZero() {
				ended = time.Now()
			}
			return ctx.Err()
		}))
		r.push("t", "a", punctual.MaxAttempts(1))
		r.runs(w)
		time.Sleep(time.Hour)
		r.stops(w)
		if granted.IsZero() {
			t.Fatal("no renewal was granted")
		}
		// The store counts the lease from its clock rounded down to a millisecond, so the lease may
		// end that much earlier.
		if lasted := ended.Sub(granted); lasted > 30*time.Second-time.Millisecond || lasted < 29*time.Second {
			t.Errorf("the context of the handler ended %v after its lease of 30s was renewed", lasted)
		}
	})
}

func TestWorkerRenewsForItsOwnLeaseLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Lease: 5 * time.Minute}) // the topic says 30 s
		w.Handle("t", lasting(r, seen, 30*time.Minute))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a done in attempt 1")
		if _, _, extends := r.store.counts(); extends < 16 || extends > 19 {
			t.Errorf("%d renewals in 30 minutes with a lease of 5, want one each 100 s", extends)
		}
		r.stops(w)
	})
}

// TestWorkerRenewsAShortLeaseBesideALongOne: the renewer sleeps for the long lease when the
// short one begins, and has to wake for it.
func TestWorkerRenewsAShortLeaseBesideALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		lease := time.Hour
		r.configure("long", punctual.SettingsPatch{Lease: &lease})
		w := r.worker(worker.Config{})
		w.Handle("long", lasting(r, seen, 100*time.Minute), worker.Timeout(-1))
		w.Handle("short", lasting(r, seen, 10*time.Minute))
		r.push("long", "l")
		r.push("short", "s", punctual.In(time.Minute))
		r.runs(w)
		time.Sleep(2 * time.Hour)
		seen.want(t, "s done in attempt 1", "l done in attempt 1")
		r.stops(w)
	})
}

// TestWorkerSettlesAfterTheLocalCountEnded: whether a late ack is good is for the store to say, and
// as long as nobody else has claimed the message it is.
func TestWorkerSettlesAfterTheLocalCountEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend {
				return errBroken
			}
			return nil
		})
		w := r.worker(worker.Config{Concurrency: 1})
		w.Handle("t", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			time.Sleep(time.Minute)
			seen.add("%s in attempt %d: %s", d.ID, d.Attempt, causeName(ctx))
			return nil
		}))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a in attempt 1: lease_lost")
		r.wantGone("t", "a")
		r.stops(w)
	})
}

// TestWorkerCountsAWaitingClaimFromItsAnswer checks when the worker considers a lease over after a
// claim that waited: the handler's context ends when the store's lease does, to within 50 ms.
func TestWorkerCountsAWaitingClaimFromItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		r.store.spoil(nil, func(ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend {
				return errBroken
			}
			return nil
		})
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, 40*time.Second))
		r.push("t", "a", punctual.In(29*time.Second))
		r.runs(w)
		time.Sleep(70 * time.Second)
		seen.want(t, "a ended at 59s: lease_lost") // 29 s + 30 s
		r.stops(w)
	})
}

func TestWorkerRenewalsFailForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		r.store.spoil(nil, func([]punctual.Settlement) error {
			if s := r.since(); s > 5*time.Second && s < 28*time.Second {
				return errBroken
			}
			return nil
		})
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, 10*time.Minute))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a done in attempt 1")
		r.wantGone("t", "a")
		r.stops(w)
	})
}

func TestWorkerRenewalThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := worker.New(&hangingStore{r.store, time.Now().Add(22 * time.Second)}, r.config(worker.Config{}))
		w.Handle("t", lasting(r, seen, 10*time.Minute))
		r.push("t", "a")
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a done in attempt 1")
		r.stops(w)
	})
}

func TestWorkerRenewalWithTooFewAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := worker.New(&mumblingStore{r.store}, r.config(worker.Config{}))
		w.Handle("t", lasting(r, seen, 10*time.Minute))
		r.push("t", "a", punctual.MaxAttempts(1))
		r.runs(w)
		time.Sleep(time.Hour)
		seen.want(t, "a ended at 30s: lease_lost")
		r.wantLog("0 answers for 1 renewals", 1)
		r.stops(w)
	})
}

// mumblingStore gives no answers to renewals.
type mumblingStore struct{ *spyStore }

func (s *mumblingStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if ss[0].Verb == punctual.SettleExtend {
		return nil, nil
	}
	return s.spyStore.Settle(ctx, ss)
}

func TestWorkerTimeoutEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Timeout: time.Minute})
		w.Handle("slow", lasting(r, seen, time.Hour))
		w.Handle("own", lasting(r, seen, time.Hour), worker.Timeout(2*time.Minute))
		w.Handle("patient", lasting(r, seen, 100*time.Minute), worker.Timeout(-1))
		r.push("slow", "a", punctual.MaxAttempts(1))
		r.push("own", "b", punctual.MaxAttempts(1))
		r.push("patient", "c", punctual.MaxAttempts(1))
		r.runs(w)
		time.Sleep(2 * time.Hour)
		seen.want(t, "a ended at 1m0s: deadline", "b ended at 2m0s: deadline", "c done in attempt 1")
		if i := r.get("slow", "a"); i.Reason != punctual.ReasonAttemptsUsedUp || i.Failures[0].Error != context.DeadlineExceeded.Error() {
			t.Errorf("after its timeout: %+v", i)
		}
		r.stops(w)
	})
}

// TestWorkerStuckHandlerDoesNotHoldItsMessage: after the handler's timeout the lease is not
// renewed, so that another worker gets the message, while the slot stays occupied.
func TestWorkerStuckHandlerDoesNotHoldItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		unstick := make(chan struct{})
		stuck := r.worker(worker.Config{Concurrency: 1, Timeout: time.Minute})
		stuck.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			seen.add("stuck with %s", d.ID)
			<-unstick
			return nil
		}))
		r.push("t", "a")
		r.runs(stuck)
		synctest.Wait()
		other := r.worker(worker.Config{Concurrency: 1})
		other.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			seen.add("%s again at %v in attempt %d", d.ID, r.since().Round(30*time.Second), d.Attempt)
			return nil
		}))
		r.runs(other)
		time.Sleep(time.Hour)
		r.stops(other)
		r.push("t", "b")
		time.Sleep(time.Hour)
		seen.want(t, "stuck with a", "a again at 1m30s in attempt 2")
		close(unstick)
		time.Sleep(time.Minute)
		seen.want(t, "stuck with a", "a again at 1m30s in attempt 2", "stuck with b")
		r.wantGone("t", "b")
		r.wantLog("lease of the message is lost", 1)
		r.stops(stuck)
	})
}

// TestWorkerSlowConsumers: where messages fall due faster than handlers take them, the backlog
// stays in the store: the worker has leases of what it handles and of little more. Messages are
// late, and each is handled once.
func TestWorkerSlowConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const slots, messages = 3, 300
		w := r.worker(worker.Config{Concurrency: slots})
		inspector, err := punctual.As[punctual.Inspector](r.store.Store)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var done, latest, mostLeased int64 // guarded by mu
		w.Handle("t", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			stats, err := inspector.Stats(ctx, "t")
			if err != nil || d.Attempt != 1 {
				t.Errorf("%s: attempt %d, %v", d.ID, d.Attempt, err)
			}
			mu.Lock()
			done++
			latest, mostLeased = max(latest, int64(d.Late())), max(mostLeased, stats.Leased)
			mu.Unlock()
			time.Sleep(10 * time.Second)
			return nil
		}))
		for i := range messages {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		time.Sleep(messages/slots*10*time.Second + time.Minute)
		r.stops(w)
		if done != messages {
			t.Errorf("P1, P3: %d messages were handled; want %d", done, messages)
		}
		if behind := time.Duration(latest); behind < 15*time.Minute {
			t.Errorf("this test shows nothing: the last message was %v late", behind)
		}
		if mostLeased > 2*slots {
			t.Errorf("%d slots had %d leases", slots, mostLeased)
		}
	})
}

func TestWorkerManyLeasesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var done atomic.Int64
		w := r.worker(worker.Config{Concurrency: 2000})
		w.Handle("t", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			time.Sleep(3 * time.Minute)
			if ctx.Err() != nil || d.Attempt != 1 {
				t.Errorf("%s: attempt %d, %v", d.ID, d.Attempt, context.Cause(ctx))
			}
			done.Add(1)
			return nil
		}))
		for i := range 2000 {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		time.Sleep(10 * time.Minute)
		if done.Load() != 2000 {
			t.Errorf("%d of 2000 done", done.Load())
		}
		r.stops(w)
	})
}
