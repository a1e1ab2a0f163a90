package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

// deafStore does not answer a Settle before gate is closed, whatever becomes of ctx.
type deafStore struct {
	*spyStore
	gate chan struct{}
}

func (s *deafStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	<-s.gate
	return s.spyStore.Settle(ctx, ss)
}

// TestWorkerGivesUpOnADeafStoreWhenTheLeaseEnds: a settlement waits for its answer no longer than
// its lease lasts, short or long, even if the call never returns.
func TestWorkerGivesUpOnADeafStoreWhenTheLeaseEnds(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 15 * time.Second, 25 * time.Second, 10 * time.Minute} {
		t.Run(lease.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				seen, gate := &record{}, make(chan struct{})
				w := worker.New(&deafStore{r.store, gate}, r.config(worker.Config{Lease: lease}))
				w.Handle("t", acks(seen))
				r.push("t", "a", punctual.MaxAttempts(1))
				r.runs(w)
				time.Sleep(lease + time.Second)
				seen.want(t, "a")
				r.wantLog("could not be settled", 1)
				close(gate)
				r.stops(w)
			})
		})
	}
}

// TestWorkerSettlesOneAfterTheOtherForHours: contexts that settlements share end, and others
// take their place.
func TestWorkerSettlesOneAfterTheOtherForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", acks(seen))
		r.runs(w)
		for i := range 1000 {
			r.push("t", fmt.Sprint(i))
			time.Sleep(time.Duration(i%40) * time.Second)
			synctest.Wait()
			r.wantGone("t", fmt.Sprint(i))
		}
		if n := len(seen.all()); n != 1000 {
			t.Errorf("%d deliveries of 1000 messages", n)
		}
		r.wantLog("level=WARN", 0)
		r.stops(w)
	})
}

// TestWorkerSurvivesManyGoexits: as many slots are at work as before, although the goroutine of
// each was ended many times.
func TestWorkerSurvivesManyGoexits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const slots, n = 4, 100
		w := r.worker(worker.Config{Concurrency: slots})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			time.Sleep(time.Second)
			if d.Attempt == 1 {
				runtime.Goexit()
			}
			return nil
		}))
		r.configure("t", punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{time.Hour}}})
		for i := range n {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		// A second for each message, with four slots.
		time.Sleep(n/slots*time.Second + time.Millisecond)
		if s, err := r.mem.Stats(t.Context(), "t"); err != nil || s.Ready != 0 {
			t.Errorf("%+v, %v; want every message tried once by now", s, err)
		}
		time.Sleep(time.Hour + n/slots*time.Second)
		for i := range n {
			r.wantGone("t", fmt.Sprint(i))
		}
		r.stops(w)
	})
}

// TestWorkerSettlesOnceThoughAnswersGetLost: the first try took effect and its answer got lost. In
// one case the next try gets a definite error, which says nothing about the first. An ErrLeaseLost
// after that shows that the first try took effect.
func TestWorkerSettlesOnceThoughAnswersGetLost(t *testing.T) {
	for name, second := range map[string]error{"at once": nil, "after a definite error": punctual.ErrOverloaded} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				seen := &record{}
				tries := 0 // needs no lock, because only one call that settles is under way at a time
				r.store.spoil(nil, func([]punctual.Settlement) error {
					if tries++; tries == 2 {
						return second
					}
					return nil
				})
				r.store.afterSettle = func(context.Context, []punctual.Settlement) error {
					if tries == 1 {
						r.wantGone("t", "a") // it was done
						return punctual.ErrIndeterminate
					}
					return nil
				}
				o := &punctual.Observer{
					OnLeaseLost: func(_ context.Context, d *punctual.Delivery, err error) { seen.add("%s lost: %v", d.ID, err) },
					OnError:     func(_ context.Context, op string, err error) { seen.add("%s: %v", op, err) },
				}
				w := r.worker(worker.Config{Observer: o})
				w.Handle("t", acks(seen))
				r.push("t", "a")
				r.runs(w)
				time.Sleep(time.Minute)
				r.stops(w)
				seen.want(t, "a")
				if tries < 2 {
					t.Errorf("%d tries, want another one after the lost answer", tries)
				}
				r.wantLog("level=WARN", 0)
				r.wantLog("level=ERROR", 0)
			})
		})
	}
}
