package punctual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// One message's way through a worker, in order: claimLoop, claim, begin, handOut, hand, work, attempt,
// finish, settle.

// claimWait is how long one claim waits in the store when nothing is due.
const claimWait = 30 * time.Second

// claimLoop claims for free hands until claims are over (nil) or the store cannot
// recover (the error). Only the claimer calls it.
func (w *Worker) claimLoop(s *session) error {
	var pace pacing
	for {
		hands := w.takeHands(s.claims)
		if hands == 0 {
			return nil
		}
		got, err := w.claim(s.claims, w.claimOf(w.claimOrder(), hands))
		w.freeHands(hands - len(got.deliveries))
		w.handOut(s, w.begin(s, got))
		if s.claims.Err() != nil {
			return nil
		}
		if err := w.paceClaims(s.claims, &pace, got, err); err != nil {
			return err
		}
	}
}

// takeHands waits for a free hand and takes all that are free; 0 when claims are over.
func (w *Worker) takeHands(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-w.hands:
	case <-ctx.Done():
		return 0
	}
	// Settlements come home in batches and free many hands at once: let all of them run to
	// here, or the claims would go out for one message each (BenchmarkWorker, msgs/claim). To go on
	// as long as more come makes claims larger, but each message dearer.
	runtime.Gosched()
	n := 1
	for ; n < w.cfg.Concurrency; n++ {
		select {
		case <-w.hands:
		default:
			return n
		}
	}
	return n
}

func (w *Worker) freeHands(n int) {
	for range n {
		w.hands <- struct{}{}
	}
}

func (w *Worker) claimOf(topics []string, n int) Claim {
	return Claim{Topics: topics, Max: n, Wait: claimWait, Lease: w.cfg.Lease}
}

// claimed is the answer to one claim. It does not change once the claim has returned.
type claimed struct {
	deliveries []Delivery
	// sent and received are local instants between which the store answered.
	sent, received time.Time
}

func (w *Worker) claim(ctx context.Context, c Claim) (*claimed, error) {
	got := &claimed{sent: time.Now()}
	var err error
	got.deliveries, err = w.store.Claim(ctx, c)
	got.received = time.Now()
	if err != nil {
		return got, fmt.Errorf("claim: %w", err)
	}
	if n := len(got.deliveries); n > c.Max {
		got.deliveries = got.deliveries[:c.Max]
		err = errorf(ErrIndeterminate, "claim: the store gave %d messages for %d hands: the others are delivered again when their leases end", n, c.Max)
		return got, err
	}
	w.cfg.Observer.claimed(len(got.deliveries), got.received.Sub(got.sent))
	return got, nil
}

// paceClaims keeps the claim loop from running hot: it waits after an error, and after
// an empty answer that came at once, as from a store or proxy that does not wait.
// It returns an error that ends the loop.
func (w *Worker) paceClaims(ctx context.Context, pace *pacing, got *claimed, err error) error {
	switch {
	case err == nil && len(got.deliveries) == 0 && got.received.Sub(got.sent) < shortestPace:
		pause(ctx, shortestPace)
	case err == nil:
		if pace.reset() {
			w.cfg.Logger.Info("claims succeed again")
		}
	case unrecoverable(err):
		w.cfg.Observer.failed("claim", err)
		w.cfg.Logger.Error("worker claims nothing more: the store cannot recover", "err", err)
		return err
	default:
		w.cfg.Observer.failed("claim", err)
		if pace.tries == 0 {
			w.cfg.Logger.Warn("claim failed; trying again until it succeeds", "err", err)
		}
		pause(ctx, pace.next())
	}
	return nil
}

// unrecoverable tells errors that no repetition mends.
func unrecoverable(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrStoreFailed) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrInvalid)
}

// handOut gives claimed messages to hands, and sees that there are as many goroutines as hands in use.
// Only the claimer calls it.
func (w *Worker) handOut(s *session, hs []*hold) {
	for inUse := cap(w.hands) - len(w.hands); s.crew < inUse; s.crew++ {
		s.crewAtWork.Go(func() { w.hand(s) })
	}
	for _, h := range hs {
		s.todo <- h
	}
}

// hand is a goroutine that handles one message after the other. When a handler ends it
// (runtime.Goexit) another one takes its place.
func (w *Worker) hand(s *session) {
	over := false
	defer func() {
		if !over {
			s.crewAtWork.Go(func() { w.hand(s) })
		}
	}()
	for h := range s.todo {
		w.handle(s, h)
	}
	over = true
}

func (w *Worker) handle(s *session, h *hold) {
	defer w.freeHands(1)
	_ = w.work(s, h) // work has reported it
}

// work runs the handler of h and settles the message, also when the handler panics or ends
// its goroutine (runtime.Goexit). The error says that the message could not be settled; it
// has been logged.
func (w *Worker) work(s *session, h *hold) (err error) {
	if s.claims.Err() != nil { // the worker stops and this one was not started
		return w.finish(h, outcome{verb: SettleRelease})
	}
	var o outcome
	returned := false
	defer func() {
		if !returned {
			o = judged(errors.New("the handler ended its goroutine with runtime.Goexit"))
		}
		w.cfg.Observer.finished(h.delivery, o.verb, time.Since(h.began), o.err)
		err = w.finish(h, o)
	}()
	h.began, h.started = time.Now(), true
	w.cfg.Observer.started(h.delivery)
	o = h.atStop(attempt(h))
	returned = true
	return nil
}

// outcome is what is to become of a message.
type outcome struct {
	verb  Verb
	delay time.Duration
	text  string // for the history
	err   error  // what the handler returned
}

func judged(err error) outcome {
	verb, delay, text := judge(err)
	return outcome{verb: verb, delay: delay, text: text, err: err}
}

// attempt runs the handler and turns a panic into an error.
func attempt(h *hold) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = judged(newPanicError(p))
		}
	}()
	return judged(h.route.handler.Handle(h.ctx, h.delivery))
}

// finish settles the message of h. After the store has said that the lease is lost
// there is nothing to settle.
func (w *Worker) finish(h *hold, o outcome) error {
	defer h.cancel(nil)
	end := w.leases.drop(h)
	if h.lost {
		return nil
	}
	err := w.settle(h, o, end)
	switch {
	case err == nil:
		w.logOutcome(h, o)
		return nil
	case errors.Is(err, ErrLeaseLost), errors.Is(err, ErrCancelled):
		if h.over == nil {
			w.reportLoss(h, err)
		}
		return nil
	}
	w.cfg.Observer.failed("settle", err)
	w.log(h, slog.LevelError, "message could not be settled; it is delivered again when its lease ends",
		"verb", o.verb.String(), "err", err)
	return err
}

// logOutcome logs what went wrong with an attempt, or nothing.
func (w *Worker) logOutcome(h *hold, o outcome) {
	if o.verb == SettleAck {
		return
	}
	var p *panicError
	switch {
	case errors.As(o.err, &p):
		w.log(h, slog.LevelError, "handler panicked", "err", o.err)
	case o.verb == SettleRetry:
		w.log(h, slog.LevelWarn, "attempt failed", "err", o.err)
	case o.verb == SettleDiscard:
		w.log(h, slog.LevelWarn, "message discarded", "err", o.err)
	case o.verb == SettleRelease:
		w.log(h, slog.LevelInfo, "message given back, the worker stops")
	}
}

func (w *Worker) log(h *hold, level slog.Level, text string, args ...any) {
	logger := w.cfg.Logger.With("topic", h.lease.Topic, "id", h.lease.ID, "attempt", h.attempt)
	logger.Log(h.ctx, level, text, args...)
}
