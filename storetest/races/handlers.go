package races

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/worker"
)

// raceWorkers is how many workers take part in a race, and raceHands how many handlers each runs at
// a time.
const (
	raceWorkers = 2
	raceHands   = 3
)

// raceWorker is a Worker that takes part in a race, and what it and its handlers saw: which message
// was handled from when to when, and under which lease. The worker uses a raceStore, which holds
// some answers back for longer than the leases last.
type raceWorker struct {
	*race
	lease time.Duration

	mu     sync.Mutex
	rnd    *rand.Rand              // guarded by mu
	events []event                 // guarded by mu
	known  map[raceLease]string    // the event.Life of each delivery; guarded by mu
	asked  map[raceLease]time.Time // the store's clock before the worker got the delivery, so before its handler could start; guarded by mu
	lapsed int                     // deliveries that came when their leases had ended; guarded by mu
	err    error                   // guarded by mu
}

// raceLease names one delivery.
type raceLease struct {
	id    string
	token int64
}

func newRaceWorker(r *race, number int) *raceWorker {
	return &raceWorker{
		race: r, lease: limits.MinLease + 15*time.Millisecond, rnd: rand.New(rand.NewPCG(uint64(number), 2)),
		known: make(map[raceLease]string), asked: make(map[raceLease]time.Time),
	}
}

// run handles messages until ctx ends.
func (w *raceWorker) run(ctx context.Context) {
	runner := worker.New(raceStore{w.store, w}, &worker.Config{
		Concurrency: raceHands, Lease: w.lease, Logger: slog.New(slog.DiscardHandler),
	})
	runner.Handle(orders, punctual.HandlerFunc(w.handle))
	w.failed(runner.Run(ctx))
}

// failed keeps the first error.
func (w *raceWorker) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// few returns a random delay below most.
func (w *raceWorker) few(most time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rnd.Int64N(int64(most)))
}

func (w *raceWorker) record(e event, call int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Topic, e.Call, e.Return = orders, call, w.order.Add(1)
	w.events = append(w.events, e)
	if e.Op == opDeliver {
		w.known[raceLease{e.ID, e.Token}] = e.Life
	}
}

// handle is the handler. It works for up to two leases, so that some of its leases have to be
// renewed.
func (w *raceWorker) handle(ctx context.Context, d *punctual.Delivery) error {
	call := w.order.Add(1)
	now, err := w.store.Now(w.ctx)
	if err != nil {
		w.failed(err)
	}
	w.mu.Lock()
	asked := w.asked[raceLease{d.ID, d.Token}]
	w.mu.Unlock()
	w.record(event{Op: opStart, ID: d.ID, Life: string(d.Body), Token: d.Token, Now: asked, After: now}, call)
	defer func() {
		call := w.order.Add(1)
		w.record(event{Op: opEnd, ID: d.ID, Life: string(d.Body), Token: d.Token}, call)
	}()
	select {
	case <-time.After(w.few(2 * w.lease)):
	case <-ctx.Done():
	}
	switch w.few(4) {
	case 0:
		return punctual.Snooze(w.few(4 * time.Millisecond))
	case 1:
		return punctual.RetryAfter(w.few(4*time.Millisecond), errors.New("again"))
	}
	return nil
}

// raceStore is the store as a worker in a race sees it. It records claims and settlements, and
// hands the other calls on. It has no Unwrap, because a worker needs only the Store.
type raceStore struct {
	store punctual.Store
	w     *raceWorker
}

// Claim waits 50 ms at most. It holds about every fourth answer with deliveries back for up to two
// leases.
func (s raceStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	c.Wait = min(c.Wait, 50*time.Millisecond)
	call := s.w.order.Add(1)
	ds, err := s.store.Claim(ctx, c)
	for _, d := range ds {
		s.w.record(deliveryEvent(d), call)
	}
	if len(ds) == 0 {
		return ds, err
	}
	if s.w.few(4) == 0 {
		time.Sleep(s.w.few(2 * s.w.lease))
	}
	now, nowErr := s.store.Now(s.w.ctx)
	s.w.failed(nowErr)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, d := range ds {
		s.w.asked[raceLease{d.ID, d.Token}] = now
		if !now.Before(d.LeaseUntil) {
			s.w.lapsed++
		}
	}
	return ds, err
}

// Settle records what the worker does with its leases.
func (s raceStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	now, err := s.store.Now(s.w.ctx)
	if err != nil {
		return nil, err
	}
	call := s.w.order.Add(1)
	answers, err := s.store.Settle(ctx, ss)
	after, nowErr := s.store.Now(s.w.ctx)
	s.w.failed(nowErr)
	for i, x := range ss {
		e := event{Op: opSettle, ID: x.ID, Token: x.Token, Verb: x.Verb, Delay: x.Delay, Now: now, After: after, Err: err}
		if err == nil {
			e.Err = answers[i]
		}
		s.w.mu.Lock()
		e.Life = s.w.known[raceLease{x.ID, x.Token}]
		s.w.mu.Unlock()
		s.w.record(e, call)
	}
	return answers, err
}

// Push implements punctual.Store.
func (s raceStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return s.store.Push(ctx, ms)
}

// Amend implements punctual.Store.
func (s raceStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (s raceStore) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// Close implements punctual.Store.
func (s raceStore) Close() error { return s.store.Close() }

func deliveryEvent(d punctual.Delivery) event {
	return event{
		Op: opDeliver, ID: d.ID, Life: string(d.Body), Token: d.Token, Attempt: d.Attempt,
		Due: d.Due, Delivered: d.Delivered, LeaseUntil: d.LeaseUntil,
	}
}
