package worker

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
)

// A lease ends by the store's clock (P8), which a worker sees only in answers. To start a
// handler it must know that the lease surely still holds (P3). So it keeps a bound: a time
// that the store's clock has surely not passed. A lease that ends behind the bound holds.
//
// The bound rests on two facts. The store's clock never runs backwards. When an answer to a call sent at s shows the
// time D, the store's clock had not passed D at s. So at any later instant it shows at most D and what has passed
// since s. Every claim that brought something gives such a bound, and so does every call of Now.
//
//   - A claim that waited gives a bound that is its waiting too late: the lease may seem over
//     while it holds. There an earlier bound is better; of two bounds the earlier one counts.
//   - What has passed is counted on the local monotonic clock. The two may differ in speed by
//     one part in a thousand, which is more than synchronized or merely bad clocks do. While the
//     store's clock runs slower, at half speed say, the bound is later than need be.
//   - The monotonic clock may stand still while the machine is suspended; the wall clock does
//     not. So where the wall clock has gone further, that counts. If it was only set, the bound
//     is later than need be until the next answer.
//   - A step of the store's clock to later makes the bound wrong, until an answer shows a time
//     beyond it. Then that answer's own bound takes its place. A step that comes after the answer
//     which brought a message is not seen before that message starts: only the store could tell.
//   - Where the clocks of several nodes make up the store's, the bound may be early by as much as
//     they differ.
//
// A bound that is too late costs one renewal before the start (Worker.ensureLease), and no message.

const (
	// tick is how finely stores tell the time: what they show was rounded down to it.
	tick = time.Millisecond
	// driftPer is the inverse of how much faster than the local clock the store's may run.
	driftPer = 1000
	// lookEvery is how old a bound may become before the worker calls Now. By then drift has
	// made it 60 ms later than it was.
	lookEvery = time.Minute
	// lookTime is how long that call may take.
	lookTime = time.Second
)

// clockBound is a time that the store's clock has surely not passed. The zero value says
// nothing of it.
type clockBound struct {
	// At the local instant at the store's clock showed at most latest.
	at, latest time.Time
	// wall returns the wall clock of a local instant, without its monotonic reading.
	wall func(time.Time) time.Time
}

// passed is how much time may have passed between two local instants, suspension included.
func (b *clockBound) passed(from, to time.Time) time.Duration {
	d := to.Sub(from)
	if slept := b.wall(to).Sub(b.wall(from)); slept > d+tick { // a reading of both clocks is not one instant
		d = slept
	}
	return d
}

// latestAt is the latest time that the store's clock can show at the local instant now, or
// MaxDue when nothing is known of it.
func (b *clockBound) latestAt(now time.Time) time.Time {
	if b.at.IsZero() {
		return punctual.MaxDue
	}
	return b.after(b.at, b.latest, now)
}

// after is the latest time that a clock can show at the local instant now which showed at most
// latest at from.
func (b *clockBound) after(from, latest, now time.Time) time.Time {
	d := b.passed(from, now)
	return latest.Add(d + d/driftPer)
}

// observe takes note that the answer to a call, sent and received at these local instants, showed
// the store's clock.
func (b *clockBound) observe(sent, received, shown time.Time) {
	bound := b.after(sent, shown.Add(tick), received)
	old := b.latestAt(received)
	if bound.Before(old) || old.Before(shown) {
		b.at, b.latest = received, bound
	}
}

// lookAtClock asks for the store's clock. When the store does not answer the bound stays as it is;
// the claim that follows meets the same store and reports it.
func (w *Worker) lookAtClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	sent := time.Now()
	if shown, err := w.store.Now(ctx); err == nil {
		w.inflight.observe(sent, time.Now(), shown)
	}
}

// boundAge is how long ago the store's clock was seen last, for ever if it was not.
func (f *inflight) boundAge(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock.at.IsZero() {
		return 1<<63 - 1
	}
	return now.Sub(f.clock.at)
}
