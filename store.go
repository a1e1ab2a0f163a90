package punctual

import (
	"context"
	"time"
)

// A Store keeps messages, each at the time it next needs attention: a scheduled
// message at its due time, a leased one at the end of its lease. That one idea
// carries every store. Claiming takes the earliest whose time has come and moves
// its time to the end of the lease, so the message of a consumer that died is
// simply due again, and nothing has to look for it.
//
// A message is named by its topic and its ID; the same ID in two topics is two
// messages. A topic comes into being on first push or with its first settings.
//
// All methods are safe for concurrent use. Slices and maps passed in are the
// caller's again after return; what is returned is the caller's too. Results are
// per item, in the order given, and items of one call take effect in that order.
// A non-nil error of the call means that no item's outcome is known beyond what
// the error says: Definite(err) tells whether the operation certainly did not
// happen. Item errors never stop the other items.
//
// The store's clock rules (P8): delays count from it, and no claim returns a
// message before its due time by it (P2). It never runs backwards. All times are
// whole milliseconds; due times are rounded up, the clock down.
//
// A store checks what it is given before it changes anything: NewMessage.Check,
// Settlement.Check, Amendment.Check and Claim.Check hold the rules, DueAt turns a time
// or delay into a due time. A malformed Claim fails as a whole, malformed items of the
// other methods alone.
//
// After Close every other method returns ErrClosed; Close ends waiting claims, and a
// second one returns nil or ErrClosed. A store whose medium failed returns
// ErrStoreFailed from then on.
//
// The suite in package storetest checks all of this.
type Store interface {
	// Push stores messages. When it returns, those reported PushStored or
	// PushReplaced are as durable as the store promises, and so is the message that
	// a PushDuplicate refers to.
	Push(ctx context.Context, ms []NewMessage) ([]PushResult, error)

	// Claim leases up to c.Max messages whose time has come, from c.Topics in the
	// order given, within a topic the earliest time first (P12; which of equals comes
	// first is open). Each attempt is counted, durably against kill -9, before Claim
	// returns (P6). A message that has no attempts left or has expired becomes dead
	// (or is dropped) in one atomic step instead of being returned; so does a message
	// that was cancelled under its last lease.
	//
	// When nothing is due Claim waits up to c.Wait, asleep until the next due time or
	// a hint, and returns an empty slice and nil when that time has passed. When
	// ctx ends first it returns ctx's error and leases nothing.
	Claim(ctx context.Context, c Claim) ([]Delivery, error)

	// Settle lets holders finish, give back, give up or extend. A token that is not
	// the current one of a leased message yields ErrLeaseLost for its item alone and
	// changes nothing (P4). A token stays current until the message is claimed
	// again, settled, or amended, even when the lease has run out meanwhile.
	// If a cancel was asked for during the lease, SettleRetry, SettleSnooze and
	// SettleRelease end the message and SettleExtend leaves the lease as it is; all
	// four yield ErrCancelled.
	Settle(ctx context.Context, ss []Settlement) ([]error, error)

	// Amend cancels, reschedules or requeues by ID, without a lease. Each item has a
	// definite outcome.
	Amend(ctx context.Context, as []Amendment) ([]Outcome, error)

	// Now is the store's clock (P8).
	Now(ctx context.Context) (time.Time, error)

	// Close releases what the store holds and waits for its goroutines. It does not
	// settle leases: they run out, or survive in a durable store.
	Close() error
}

// NewMessage is a message to be pushed.
type NewMessage struct {
	// Topic is required: 1 to 128 bytes of [A-Za-z0-9._:/-].
	Topic string
	// ID names the message within its topic. Empty asks the store for a new
	// time-ordered ID (NewID).
	ID string
	// Body is at most the store's limit, 1 MiB by default.
	Body []byte
	// Headers are at most MaxHeaderBytes in all.
	Headers map[string]string
	// Due is the time at which to deliver, rounded up to whole milliseconds. A time
	// in the past delivers at once. Zero means Delay after the store's clock.
	Due time.Time
	// Delay counts from the store's clock at the moment of storing. It must not be
	// negative, nor be given together with Due.
	Delay time.Duration
	// MaxAttempts overrides the topic's setting when positive.
	MaxAttempts int
	// ExpireAfter, counted from the due time, ends the wish to deliver. 0 is never.
	ExpireAfter time.Duration
	// DropExpired drops the message when it expires; otherwise it becomes dead.
	DropExpired bool
	// OnDuplicate says what happens when the ID is taken.
	OnDuplicate OnDuplicate
}

// OnDuplicate says what a push does when its topic holds a message with its ID
// (in any state), or remembers a finished one (Settings.Remember).
type OnDuplicate uint8

// What a push with a taken ID does (P7).
const (
	// KeepFirst changes nothing and reports PushDuplicate with the state of the
	// message that holds the ID.
	KeepFirst OnDuplicate = iota
	// ReplaceFirst puts the new message in the place of the old one in one step and
	// reports PushReplaced. A lease on the old one is lost to its holder, who learns
	// it from ErrLeaseLost. A dead message is replaced too; a remembered finished ID is
	// simply used again and reports PushStored.
	ReplaceFirst
	// FailDuplicate changes nothing and reports ErrDuplicate.
	FailDuplicate
)

// PushStatus is what became of one pushed message.
type PushStatus uint8

// What became of a pushed message. The zero value goes with a PushResult.Err.
const (
	PushNone PushStatus = iota
	// PushStored: the message is new and stored.
	PushStored
	// PushDuplicate: the ID was taken and the first message kept.
	PushDuplicate
	// PushReplaced: the message took the place of another one.
	PushReplaced
)

var pushNames = [...]string{"", "stored", "duplicate", "replaced"}

// String returns "stored", "duplicate", "replaced" or "".
func (s PushStatus) String() string { return name(pushNames[:], int(s)) }

// PushResult is the outcome of one pushed message.
type PushResult struct {
	ID    string
	Topic string
	// Due is the due time in force: the new one, or that of the message kept.
	// It is zero when a remembered finished ID was met.
	Due    time.Time
	Status PushStatus
	// Existing is the state of the message that was kept, for PushDuplicate.
	// StateNone says that the ID belonged to a finished message still remembered.
	Existing State
	// Err is set when this message was refused; then nothing was stored for it.
	Err error
}

// Claim asks for due messages.
type Claim struct {
	// Topics in order of preference; at least one. A topic that does not exist
	// yet has no messages; once it comes into being a waiting claim sees them.
	Topics []string
	// Max bounds the number of deliveries, 1 to MaxClaim.
	Max int
	// Wait is how long to wait when nothing is due; 0 does not wait.
	Wait time.Duration
	// Lease overrides the topic's lease length when positive.
	Lease time.Duration
}

// Verb is what the holder of a lease does with it.
type Verb uint8

// The verbs of Settle.
const (
	// SettleAck finishes the message.
	SettleAck Verb = iota + 1
	// SettleRetry gives it back; the attempt counts, and when it was the last the
	// message becomes dead. Settlement.Delay says when the next is due.
	SettleRetry
	// SettleSnooze gives it back after Settlement.Delay without counting the attempt.
	SettleSnooze
	// SettleDiscard gives up: the message becomes dead with ReasonDiscarded.
	SettleDiscard
	// SettleRelease gives it back unstarted, at once, due as before; the attempt
	// does not count.
	SettleRelease
	// SettleExtend moves the end of the lease to Settlement.Delay from now.
	SettleExtend
)

var verbNames = [...]string{"", "ack", "retry", "snooze", "discard", "release", "extend"}

// String returns the verb's word: "ack", "retry", "snooze", "discard",
// "release", "extend".
func (v Verb) String() string { return name(verbNames[:], int(v)) }

// UseBackoff as the Delay of a SettleRetry follows the topic's backoff.
const UseBackoff time.Duration = -1

// Settlement is what a holder says of one lease.
type Settlement struct {
	Topic string
	ID    string
	// Token is that of the Delivery.
	Token int64
	Verb  Verb
	// Delay: for SettleRetry and SettleSnooze the time until the next attempt
	// (UseBackoff, SettleRetry only: as the topic's backoff says); for SettleExtend the
	// new length of the lease from now, 0 for the topic's. Otherwise 0.
	Delay time.Duration
	// Error is kept in the history by SettleRetry and SettleDiscard, shortened
	// by TrimError.
	Error string
}

// Change is what an Amendment does.
type Change uint8

// The changes of Amend.
const (
	// ChangeCancel removes a message that is not yet worked on (P5).
	ChangeCancel Change = iota + 1
	// ChangeReschedule moves the due time of a scheduled or ready message, earlier or
	// later. ID, body, attempts and history stay; the expiry moves along.
	ChangeReschedule
	// ChangeRequeue moves a dead message back to scheduled with its attempts
	// starting anew; its history stays.
	ChangeRequeue
)

var changeNames = [...]string{"", "cancel", "reschedule", "requeue"}

// String returns "cancel", "reschedule" or "requeue".
func (c Change) String() string { return name(changeNames[:], int(c)) }

// Amendment changes one message by its ID.
type Amendment struct {
	Change Change
	Topic  string
	ID     string
	// Due and Delay say when, for ChangeReschedule and ChangeRequeue, by the rules of
	// NewMessage. Both zero is now. A requeue moves the expiry along, too.
	Due   time.Time
	Delay time.Duration
}

// OutcomeStatus is the definite answer to an Amendment.
type OutcomeStatus uint8

// The answers to an Amendment. The zero value goes with an Outcome.Err.
const (
	OutcomeNone OutcomeStatus = iota
	// Cancelled: no claim will ever return the message.
	Cancelled
	// Rescheduled: only the new due time counts.
	Rescheduled
	// Requeued: the dead message is scheduled again.
	Requeued
	// TooLate: the message is leased. A cancel still has the effect that no
	// further attempt is made after this one; a reschedule has none.
	TooLate
	// NotFound: for a cancel or reschedule there is no scheduled, ready or leased
	// message with this ID; for a requeue there is no message at all.
	NotFound
	// NotDead: the message to requeue is scheduled, ready or leased.
	NotDead
)

var outcomeNames = [...]string{"", "cancelled", "rescheduled", "requeued", "leased", "not_found", "not_dead"}

// String returns the word used on every surface: "cancelled", "rescheduled",
// "requeued", "leased" (TooLate), "not_found", "not_dead", or "".
func (s OutcomeStatus) String() string { return name(outcomeNames[:], int(s)) }

// name is the word for a value of a closed list.
func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// Outcome is the answer to one Amendment.
type Outcome struct {
	Status OutcomeStatus
	// Due is the due time in force after Rescheduled and Requeued.
	Due time.Time
	// Err is set when the amendment was refused as malformed.
	Err error
}

// Durability is the class of what a store promises for a reported push.
type Durability string

// The durability classes (promise P1).
const (
	// Fsync: survives kill -9 and power cuts of the machine.
	Fsync Durability = "fsync"
	// Replicated: survives also the loss of the primary machine.
	Replicated Durability = "replicated"
	// Volatile: may be lost; see the store's documentation for how much.
	Volatile Durability = "volatile"
)

// DurabilityReporter is an optional interface of stores that know their class.
type DurabilityReporter interface {
	Durability() Durability
}
