package punctual

import "time"

// Message is what a store keeps and a handler receives. Times are whole
// milliseconds in UTC. A Message that a store returned belongs to the caller.
type Message struct {
	// ID names the message within its topic: 1 to 128 printable ASCII bytes,
	// a time-ordered ULID unless the pusher chose one.
	ID string
	// Topic is the stream that the message belongs to.
	Topic string
	// Body is handed over byte for byte; nil when it is empty.
	Body []byte
	// Headers travel with the body; nil when there are none.
	Headers map[string]string
	// Due is the earliest instant at which the message may be delivered. A retry or
	// snooze moves it to the time of the next attempt.
	Due time.Time
	// FirstDue is when the message was to be delivered for the first time. It is the due time of its push, or of the
	// last reschedule or requeue.
	FirstDue time.Time
	// Attempt counts the deliveries so far, this one included. Snooze and
	// Release take theirs back.
	Attempt int
	// MaxAttempts bounds Attempt (P6). 0 follows the topic's setting.
	MaxAttempts int
	// Created is the store's clock when the message was pushed.
	Created time.Time
	// Expires is the instant from which the message is not delivered any more;
	// zero means never. It lies ExpireAfter behind FirstDue, and so moves with a
	// reschedule but not with a retry. One that would lie beyond MaxDue is the millisecond after MaxDue.
	Expires time.Time
	// DropExpired asks that an expired message vanishes; otherwise it becomes dead
	// with ReasonExpired.
	DropExpired bool
	// Remember is how long the ID is taken as a duplicate after the message finished, in whole milliseconds. 0 follows
	// the topic's Settings.DedupeWindow.
	Remember time.Duration
}

// State is where a message is in its life; see the picture in the package comment.
type State uint8

// The states of a stored message. A message that was acked, cancelled or
// dropped is not stored and has none.
const (
	// StateNone is the zero value; in a ListQuery it stands for any state.
	StateNone State = iota
	// StateScheduled is a message whose due time lies ahead.
	StateScheduled
	// StateReady is a message whose time has come, including one whose lease ran out.
	StateReady
	// StateLeased is a message that somebody works on under an unexpired lease.
	StateLeased
	// StateDead is a message that was given up on, kept until requeued or purged.
	StateDead
)

var stateNames = [...]string{"", "scheduled", "ready", "leased", "dead"}

// String returns the state's word as used everywhere: "scheduled", "ready",
// "leased", "dead", or "" for StateNone.
func (s State) String() string { return name(stateNames[:], int(s)) }

// ParseState is the inverse of State.String for the four named states.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name && n != "" {
			return State(i), nil
		}
	}
	return StateNone, invalidf("state %q: use scheduled, ready, leased or dead", name)
}

// DeathReason says why a message is dead.
type DeathReason string

// The reasons for which a message becomes dead.
const (
	// ReasonDiscarded: the holder of its lease gave up on it.
	ReasonDiscarded DeathReason = "discarded"
	// ReasonAttemptsUsedUp: as many attempts were made as MaxAttempts allows.
	ReasonAttemptsUsedUp DeathReason = "attempts used up"
	// ReasonExpired: its expiry passed before it was delivered.
	ReasonExpired DeathReason = "expired"
)

// Failure is one attempt that did not end with an ack. Snoozed and released
// attempts leave none.
type Failure struct {
	// Attempt is the number of the attempt that failed, from 1.
	Attempt int
	// At is the store's clock when the failure was recorded. For a lease that ran out that is the claim which met
	// the message next, so the lease itself ended earlier.
	At time.Time
	// Error is what the holder said, at most MaxErrorBytes of it; "lease ran out" when the
	// holder said nothing.
	Error string
}

// Info is a stored message with all that the store knows of it.
type Info struct {
	Message
	// State as of the store's clock when the Info was read.
	State State
	// LeaseUntil is the end of the lease; zero unless State is StateLeased.
	LeaseUntil time.Time
	// CancelRequested tells that a leased message was cancelled: no further
	// attempt will be made after the one under way (P5).
	CancelRequested bool
	// Died and Reason are set when State is StateDead.
	Died   time.Time
	Reason DeathReason
	// Failures is the history of failed attempts, oldest first, at most MaxFailures.
	Failures []Failure
}

// Delivery is a message under a lease, as a Claim returns it.
type Delivery struct {
	Message
	// Token proves the lease. It grows with every claim of a topic's ID, also
	// across messages that used the same ID one after the other (P4).
	Token int64
	// Delivered is the store's clock at the claim; never before Due (P2).
	Delivered time.Time
	// LeaseUntil is when the lease ends unless extended.
	LeaseUntil time.Time
	// Failures is the history of earlier attempts, oldest first.
	Failures []Failure
}

// Late is how long after the due time of this attempt the message was claimed; never
// negative.
func (d *Delivery) Late() time.Duration { return d.Delivered.Sub(d.Due) }

// ReadyFor is how long the message could have been claimed before it was. It counts from the due time of this
// attempt, or from its push when that came later. It is the lateness that metrics and consoles show.
func (d *Delivery) ReadyFor() time.Duration {
	if d.Created.After(d.Due) {
		return d.Delivered.Sub(d.Created)
	}
	return d.Late()
}

// TotalLate is how long after FirstDue the message was claimed: its lateness end to end,
// with all attempts that failed before; never negative.
func (d *Delivery) TotalLate() time.Duration { return d.Delivered.Sub(d.FirstDue) }
