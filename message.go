package punctual

import "time"

// Message is what a store keeps and a handler receives. Times are whole
// milliseconds in UTC. A Message that a store returned belongs to the caller.
type Message struct {
	// ID names the message within its topic: 1 to 128 printable ASCII bytes. Unless the pusher
	// chose one it is a ULID, which is ordered by time unless the push came with a key by which it
	// can be sent again (storekit.IDOfKey).
	ID string
	// Topic is the name of the topic that the message was pushed to.
	Topic string
	// Body is the body as it was pushed, byte for byte; nil when it is empty.
	Body []byte
	// Headers are the headers as they were pushed; nil when there are none.
	Headers map[string]string
	// Due is the earliest instant at which the message may be delivered. A retry or
	// snooze moves it to the time of the next attempt.
	Due time.Time
	// FirstDue is the due time of the first attempt: the one that the push, or the last reschedule
	// or requeue, asked for. A retry or snooze leaves it as it is.
	FirstDue time.Time
	// Attempt is the number of deliveries since the push or the last requeue, this one included. A
	// delivery that ended with a snooze or a release does not count.
	Attempt int
	// MaxAttempts is the most attempts that the message gets (P6). 0 follows the topic's setting.
	MaxAttempts int
	// Created is the store's clock when the message was pushed.
	Created time.Time
	// Expires is the instant from which the message is not delivered any more; zero means that it
	// does not expire. It is NewMessage.ExpireAfter after FirstDue, so that a reschedule or requeue
	// moves it and a retry does not. An expiry that would lie beyond limits.MaxDue is the
	// millisecond after limits.MaxDue.
	Expires time.Time
	// DropExpired has the message dropped when it expires; otherwise it becomes dead with
	// ReasonExpired.
	DropExpired bool
	// Remember is how long the ID stays in use after the message has finished, in whole
	// milliseconds. 0 follows the topic's Settings.DedupeWindow.
	Remember time.Duration
	// Timeout is how long a handler may work on the message, in whole milliseconds. 0 leaves that
	// to whoever handles it.
	Timeout time.Duration
	// Key is what the message was pushed with (NewMessage.Key); empty when it has none.
	Key string
}

// NewMessage is a message to be pushed.
type NewMessage struct {
	// Topic is required: 1 to 128 bytes of [A-Za-z0-9._:/-]. A companion topic has "@" and 1 to 64
	// bytes of [A-Za-z0-9._-] behind that, as in orders@events; see Store.
	Topic string
	// ID names the message within its topic: 1 to 128 printable ASCII bytes. When it is empty the
	// store makes a ULID: one that is ordered by time (storekit.NewID), or one that follows from
	// the key of a push that can be sent again (storekit.IDOfKey).
	ID string
	// Body is at most as long as the store allows, by default 1 MiB (limits.DefaultMaxBody). An
	// empty Body is stored as nil.
	Body []byte
	// Headers are at most limits.MaxHeaderBytes in all, names and values together. Both may be any
	// bytes, and a name may be empty. An empty map is stored as nil.
	Headers map[string]string
	// Due is the time at which to deliver the message, rounded up to whole milliseconds. If it lies
	// in the past the message is due at once. The zero Time means Delay after the store's clock. A
	// time before the year 1 or after limits.MaxDue is ErrInvalid.
	Due time.Time
	// Delay is the time from the moment of storing, by the store's clock, until the message is due,
	// rounded up to whole milliseconds. A negative Delay, one that leads beyond limits.MaxDue, and
	// one that is given together with Due are ErrInvalid.
	Delay time.Duration
	// MaxAttempts takes the place of Settings.MaxAttempts for this message: 1 to
	// limits.MaxAttemptsLimit. 0, the default, follows the topic's setting. A negative number is
	// ErrInvalid.
	MaxAttempts int
	// ExpireAfter is how long after its due time the message may still be delivered, rounded up to
	// whole milliseconds. It counts from Message.FirstDue, so that a reschedule or requeue moves
	// the expiry and a retry or snooze does not. 0, the default, is without end; a negative one is
	// ErrInvalid. An expiry beyond limits.MaxDue is no error, because nothing is due then:
	// Message.Expires is the millisecond after limits.MaxDue.
	ExpireAfter time.Duration
	// DropExpired has the message dropped when it expires; otherwise it becomes dead with
	// ReasonExpired.
	DropExpired bool
	// Remember takes the place of Settings.DedupeWindow for this message: how long its ID stays in
	// use after the message has finished. It is rounded up to whole milliseconds and at most
	// limits.MaxFinishedRetention. 0, the default, follows the topic's setting.
	Remember time.Duration
	// Timeout is how long a handler may work on the message. A Worker counts it from the claim and
	// ends the context of the handler then, in the place of its own timeouts; whoever claims
	// without a Worker reads the time from Message.Timeout. It is rounded up to whole milliseconds
	// and at most limits.MaxTimeout; 0, the default, leaves the time to the Worker. A negative one
	// is ErrInvalid.
	Timeout time.Duration
	// Key says which messages the topic's bounds count together, such as those of one customer:
	// Settings.MaxKeyLeases, MaxKeyRate and InOrder. The keys of a topic take turns. It is 1 to 128
	// printable ASCII bytes (limits.MaxKeyBytes) without "~", or empty, the default, for none. A
	// topic without keys (Settings.Keyed) refuses it with ErrInvalid. A push with a Key that
	// creates a topic makes it a topic with keys. A store without keys (Abilities.Keys) refuses
	// every Key with ErrUnsupported.
	Key string
	// IfExists says what the push does when the ID is already in use. Default IfExistsKeep.
	IfExists IfExists
	// IfDue, with IfExistsReplace, replaces only a stored message whose Due is this instant, so
	// that a program which has read a message does not overwrite what somebody else has made of it
	// since. If the stored message is due at another instant, or no message has the ID, the push
	// fails with ErrChanged. The Due of a dead message counts as well. IfDue is rounded up to whole
	// milliseconds; the zero Time sets no condition. An IfDue with another IfExists is ErrInvalid.
	IfDue time.Time
}

// State is where a message is in its life; see the picture in the package comment.
type State uint8

// The states of a stored message. A message that was acked, cancelled or
// dropped is not stored and has none.
const (
	// StateNone is the zero value; in a PurgeQuery it stands for every state except dead.
	StateNone State = iota
	// StateScheduled is a message whose due time lies in the future.
	StateScheduled
	// StateReady is a message whose time has come, including one whose lease ran out.
	StateReady
	// StateLeased is a message that somebody works on under an unexpired lease.
	StateLeased
	// StateDead is a message that was given up on. The store keeps it until somebody requeues,
	// purges, deletes or replaces it, or until the topic's Settings.DeadRetention is over.
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
	// ReasonExpired: its expiry had passed when a claim encountered it, before its first delivery
	// or before a later one.
	ReasonExpired DeathReason = "expired"
)

// Failure is one attempt that failed: it ended with a retry or a discard, or its lease ran out. An
// attempt that ended with a snooze or a release leaves none.
type Failure struct {
	// Attempt is the number of the attempt that failed, from 1.
	Attempt int
	// At is the store's clock when the failure was recorded. A lease that ran out is recorded by
	// the next claim that encounters the message, so the lease itself ended earlier.
	At time.Time
	// Error is the text that the holder of the lease gave, at most limits.MaxErrorBytes of it;
	// "lease ran out" when the lease ended without a settlement.
	Error string
}

// Info is a stored message with its state and all else that the store knows of it.
type Info struct {
	Message
	// State is the state by the store's clock when the Info was read.
	State State
	// LeaseUntil is the end of the lease; zero unless State is StateLeased.
	LeaseUntil time.Time
	// CancelRequested tells that the message was cancelled under a lease: it gets no attempt after
	// the one under way (P5).
	CancelRequested bool
	// Waiting tells that the message is ready and waits for its key: others of its key come first,
	// or the bounds of the topic let no further lease of its key begin now.
	Waiting bool
	// Died is the store's clock when the message became dead, and Reason why it did. Both are zero
	// unless State is StateDead.
	Died   time.Time
	Reason DeathReason
	// Failures is the history: the latest failed attempts, at most 16 (storekit.MaxFailures), the
	// oldest first.
	Failures []Failure
}

// Delivery is a message under a lease, as a Claim returns it.
type Delivery struct {
	Message
	// Token identifies the lease in a Settlement. It grows with every claim of an ID in a topic,
	// also from one message to a later one with the same ID (P4). So it can serve as a fence: a
	// database row that stores the highest Token seen refuses the writes of a worker whose lease
	// has ended.
	Token int64
	// Delivered is the store's clock at the claim; never before Due (P2).
	Delivered time.Time
	// LeaseUntil is when the lease ends, by the store's clock, unless it is extended.
	LeaseUntil time.Time
	// Turn, for a message with a key, is the earliest time at which the message could be claimed.
	// The turn came when the message was due, the one of its key before it was leased or had left
	// room, and the rate of its key let a lease begin. A message without a key has the zero Turn.
	Turn time.Time
	// Failures is the history of earlier attempts, as in Info.
	Failures []Failure
}

// Late is how long after the due time of this attempt the message was claimed. It is never
// negative.
func (d *Delivery) Late() time.Duration { return d.Delivered.Sub(d.Due) }

// ReadyFor is how long the message was ready before it was claimed: since the due time of this
// attempt, or since its push if that came later. For example, a message pushed at 12:00 with a due
// time of 11:00 and claimed at 12:01 was ready for a minute, while Late says an hour and a minute.
// After a lease that ran out, ReadyFor contains that lease, because the due time of the message
// stays. A message with a key counts as ready since its Turn at the earliest, because a wait for
// the key is no lateness. Metrics and the console show ReadyFor as lateness.
//
// ReadyFor is never negative. A push while the store's clock was ahead does not count once the
// clock has stepped back (P8).
func (d *Delivery) ReadyFor() time.Duration {
	ready := d.Due
	for _, t := range [...]time.Time{d.Created, d.Turn} {
		if t.After(ready) && !t.After(d.Delivered) {
			ready = t
		}
	}
	return max(0, d.Delivered.Sub(ready))
}

// TotalLate is how long after FirstDue the message was claimed: its lateness end to end, in which
// the attempts that failed before and their backoff are included. It is never negative.
func (d *Delivery) TotalLate() time.Duration { return max(0, d.Delivered.Sub(d.FirstDue)) }
