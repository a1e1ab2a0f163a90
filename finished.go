package punctual

import (
	"context"
	"time"
)

// FinishedKeeper is an optional interface of stores that keep the story of finished messages for as long as their
// topic asks (Settings.FinishedRetention). As[FinishedKeeper] finds it. A store without it refuses a
// FinishedRetention above 0 with ErrUnsupported.
//
// The story is written in the same atomic step as the end of the message. So it is never wrong, and as durable as
// that end. A message that is purged, or deleted with its topic, leaves none. A dead message is not finished: it is
// there, with its history, for Settings.DeadRetention.
//
// A story does not hold the ID; Settings.DedupeWindow does that. So an ID can have a stored message and the story of
// an earlier one. Inspector.Get returns the first, Finished the second. The next message with the ID that leaves a
// story replaces it.
type FinishedKeeper interface {
	// Finished returns the story of the message with this ID that finished last, or ErrNotFound when none is kept. A
	// wrapper of another store answers ErrUnsupported when that one keeps none.
	Finished(ctx context.Context, topic, id string) (Finished, error)
}

// Finished is the story of a message that has ended: did it fire, when, and how late. Body and headers are not kept.
// Times are whole milliseconds in UTC.
type Finished struct {
	ID    string
	Topic string
	// Outcome says how it ended.
	Outcome Outcome
	// At is the store's clock when it ended.
	At time.Time
	// Created, FirstDue and Due are those of the message; Due is the due time of its last attempt.
	Created  time.Time
	FirstDue time.Time
	Due      time.Time
	// Attempt counts its deliveries, without those that were snoozed or released.
	Attempt int
	// Delivered is when its last lease began. It is zero when the message never had one, or had given it back. A store
	// may have lost it when it was opened anew, or its server's clock stood still, between that claim and the end.
	Delivered time.Time
	// Failures is the history of failed attempts, oldest first, as the message had it.
	Failures []Failure
	// KeptUntil is when the store forgets the story.
	KeptUntil time.Time
}

// ReadyFor is how long the message could have been claimed before its last lease began, as Delivery.ReadyFor says. It is
// 0 when Delivered is zero.
func (f *Finished) ReadyFor() time.Duration {
	if f.Delivered.IsZero() {
		return 0
	}
	return (&Delivery{Message: Message{Due: f.Due, Created: f.Created}, Delivered: f.Delivered}).ReadyFor()
}

// TotalLate is how long after FirstDue its last lease began: its lateness end to end. It is 0 when Delivered is zero.
func (f *Finished) TotalLate() time.Duration {
	if f.Delivered.IsZero() {
		return 0
	}
	return f.Delivered.Sub(f.FirstDue)
}

// Outcome says how a finished message ended.
type Outcome string

// The ways in which a message ends and leaves a story.
const (
	// OutcomeAcked: the holder of its lease acked it.
	OutcomeAcked Outcome = "acked"
	// OutcomeCancelled: it was cancelled, perhaps under its last lease.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeExpired: it expired and was dropped (NewMessage.DropExpired).
	OutcomeExpired Outcome = "expired"
)
