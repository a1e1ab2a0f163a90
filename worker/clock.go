package worker

import (
	"context"
	"time"

	"github.com/punctualmq/punctual/limits"
)

// A lease ends by the store's clock (P8), which a worker sees only in answers. To start a handler
// the worker must know that the lease surely still holds (P3). So it keeps an upper bound: a time
// that the store's clock has surely not passed. A lease that ends after the bound holds.
//
// The bound rests on two facts. First, the store's clock does not run backwards, but for a step.
// Second, when the answer to a call sent at s shows the time D, the store's clock had not passed D
// at s. So at any later instant the store's clock shows at most D and the time that has passed
// since s. Every claim that brought a message gives such a bound, and so does every call of Now.
//
//   - A claim that waited gives a bound that is too late by its wait, so that a lease may seem over
//     while it holds. An earlier bound is better then, so the earlier one of two bounds counts.
//   - The time that has passed is counted on the local monotonic clock. The store's clock may run
//     faster by one part in a thousand, which is more than synchronized clocks and even bad ones
//     differ. While the store's clock runs slower, for example at half speed, the bound is later
//     than need be.
//   - The monotonic clock may pause while the machine is suspended; the wall clock does not. So
//     where the wall clock has advanced further, its time counts. If the wall clock was only set,
//     the bound is later than need be until the next answer.
//   - After a step of the store's clock back the bound is later than need be, until the next
//     answer.
//   - A step of the store's clock to later makes the bound wrong, until an answer shows a time
//     beyond the bound. Then the bound of that answer replaces it. The worker may not notice a step
//     that comes after the answer which brought a message and before that message starts.
//   - Where the store's clock consists of the clocks of several nodes, the bound may be early by as
//     much as these differ.
//
// A bound that is too late costs one renewal before the start (Worker.ensureLease), and no message.

const (
	// tick is the resolution of the stores' clocks: the times that they show are rounded down to
	// it.
	tick = time.Millisecond
	// driftPer is the inverse of the rate by which the store's clock may run faster than the local
	// one.
	driftPer = 1000
	// clockEvery is how old a bound may become before the worker calls Now. By then driftPer has
	// added 60 ms to the bound.
	clockEvery = time.Minute
	// clockTimeout is how long that call may take.
	clockTimeout = time.Second
)

// clockBound is an upper bound of the store's clock. While at is zero nothing is known of that
// clock. wall must be set.
type clockBound struct {
	// At the local instant at, the store's clock showed at most latest.
	at, latest time.Time
	// wall returns the wall clock of a local instant, without its monotonic reading.
	wall func(time.Time) time.Time
}

// passed returns how much time may have passed between two local instants, suspension included.
func (b *clockBound) passed(from, to time.Time) time.Duration {
	d := to.Sub(from)
	if slept := b.wall(to).Sub(b.wall(from)); slept > d+tick { // a reading of both clocks is not one instant
		d = slept
	}
	return d
}

// latestAt returns the latest time that the store's clock can show at the local instant now, or
// limits.MaxDue when nothing is known of that clock.
func (b *clockBound) latestAt(now time.Time) time.Time {
	if b.at.IsZero() {
		return limits.MaxDue
	}
	return b.after(b.at, b.latest, now)
}

// after returns the latest time that a clock can show at the local instant now, if it showed at
// most latest at the local instant from.
func (b *clockBound) after(from, latest, now time.Time) time.Time {
	d := b.passed(from, now)
	return latest.Add(d + d/driftPer)
}

// observe updates the bound from an answer that showed the store's clock. The call was sent and its
// answer received at these local instants.
func (b *clockBound) observe(sent, received, shown time.Time) {
	bound := b.after(sent, shown.Add(tick), received)
	old := b.latestAt(received)
	if bound.Before(old) || old.Before(shown) {
		b.at, b.latest = received, bound
	}
}

// readClock reads the store's clock to update the bound. When the store does not answer, the bound
// stays as it is.
func (w *Worker) readClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	sent := time.Now()
	shown, err := w.store.Now(ctx)
	if err == nil {
		w.inflight.observe(sent, time.Now(), shown)
	}
	return err
}

// boundAge returns how long ago an answer last changed the bound; the longest Duration if none has.
func (f *inflight) boundAge(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock.at.IsZero() {
		return 1<<63 - 1
	}
	return now.Sub(f.clock.at)
}
