package punctual

import (
	"context"
	"time"
)

// A Store keeps messages, each at the time it next needs attention. That is the due time of a scheduled message, and
// the end of the lease of a leased one. That one idea carries every store. Claiming takes the earliest whose time has
// come and moves its time to the end of the lease. So the message of a consumer that died is simply due again, and
// nothing has to look for it.
//
// A message is named by its topic and its ID; the same ID in two topics is two
// messages. A topic comes into being on first push or with its first settings.
//
// All methods are safe for concurrent use. Slices and maps passed in are the caller's again after return; what is
// returned is the caller's too. Results are per item, in the order given, and items of one call take effect in that
// order. A non-nil error of the call means that no item's outcome is known beyond what the error says. Definite(err)
// tells whether the operation certainly did not happen. Item errors never stop the other items. A store may carry out
// a large call in several steps, in order. When it cannot make a later one its items have that error, a definite one,
// while those before have their results.
//
// An answer rests on what is as durable as the store promises. That holds too of an answer that
// changed nothing, such as that an ID is taken, or a message not found.
//
// The store's clock rules (P8): delays count from it, and no claim returns a
// message before its due time by it (P2). It never runs backwards. All times are
// whole milliseconds; due times are rounded up, the clock down.
//
// A store checks what it is given before it changes anything, and every method checks in the same order. The first
// of these that holds is the error of the call:
//
//  1. The store is closed: ErrClosed. Its medium has failed, now or earlier: ErrStoreFailed.
//  2. ctx has ended: the error of ctx.
//  3. The call is wrong as a whole: ErrTooLarge for more than MaxBatch items, ErrInvalid for a malformed Claim or
//     query.
//
// Then each item is checked by itself, so that a malformed one fails alone. Which of several faults the error of a
// malformed item names is open. A call without items passes the same checks and has nothing to do. Package storekit
// holds the rules (CheckPush, CheckClaim, CheckSettlement, CheckAmendment), and turns a time or delay into a due time
// (DueAt). Empty results of the methods of Store are empty slices, not nil.
//
// Close ends waiting claims, and a second Close returns nil or ErrClosed.
//
// What a store is beside a Store, such as an Inspector or a Checker, As finds, also below a wrapper that shows the store
// which it wraps. A wrapper writes every method of Store instead of embedding a Store, so that a method that comes later
// does not compile until its author has decided what the wrapper does there.
//
// The suite in package storetest checks all of this.
type Store interface {
	// Push stores messages. When it returns, those reported PushStored or
	// PushReplaced are as durable as the store promises, and so is the message that
	// a PushDuplicate refers to.
	//
	// A message is checked in this order: is it malformed, is its topic paused, is its ID
	// taken. So a repetition to a paused topic is ErrPaused though the first copy is stored.
	//
	// When the settings of the topic change during a call, each message meets them as they were before or after the
	// change. A call that begins when Inspector.Configure has returned meets the new ones.
	Push(ctx context.Context, ms []NewMessage) ([]PushResult, error)

	// Claim leases up to c.Max messages whose time has come. It takes from c.Topics in the order given, and within a
	// topic the earliest time first (P12), and returns them in that order. A topic that is named again counts at its
	// first place alone. Which of equals comes first is open. Each attempt is counted, durably against kill -9, before
	// Claim returns (P6). A lease ends at the store's clock, rounded down to milliseconds, plus its length, rounded
	// up.
	//
	// A message that must not be delivered is ended in one atomic step when a claim meets
	// it. The first of these reasons counts. One that was cancelled under its last lease is
	// removed. One whose attempts are used up becomes dead. One that has expired becomes
	// dead or is dropped. Until a claim meets it, it is ready, also in lists and counts.
	//
	// A lease that ran out becomes a Failure when a claim meets the message again. Failure.At, and Info.Died of a
	// message that ends in this way, are the store's clock at that claim, not the end of the lease. When a settlement
	// with the old token or a reschedule comes before that claim, the lapse is not recorded.
	//
	// A claim may return fewer than are due when they are large or part of them is slow to
	// reach. It returns deliveries or an error, never both: what fails after the first lease
	// ends the claim early, and the next call meets it.
	//
	// A claim that takes long returns no delivery whose lease has ended by the store's clock
	// when the answer leaves the store (P3). Such a message is given back unstarted,
	// and its attempt does not count, unless another claim has it by then. How long the answer travels is for the receiver to
	// judge, by Delivered, LeaseUntil and Now; Worker does.
	//
	// When nothing is due Claim waits up to c.Wait, asleep until the next due time or a hint. It returns an empty
	// slice and nil when that time has passed. A pause of a topic's deliveries does not end the claims that wait: they
	// go on waiting, and the end of the pause wakes them as a push does. When ctx ends first it returns ctx's error
	// and holds no lease. A store that learns later what it had leased releases it, the attempt uncounted. If it never
	// learns, the leases run out.
	Claim(ctx context.Context, c Claim) ([]Delivery, error)

	// Settle lets holders finish, give back, give up or extend. A token that is not
	// the current one of a leased message yields ErrLeaseLost for its item alone and
	// changes nothing (P4). A token stays current also when its lease has run out. It ends when
	// the message is claimed again, settled other than by an extension, replaced, purged or deleted.
	// When the lease is over it also ends with a reschedule or a cancel.
	//
	// A cancel under a lease leaves the token current: SettleAck and SettleDiscard succeed
	// as ever. SettleRetry, SettleSnooze and SettleRelease end the message and SettleExtend
	// leaves the lease as it is; all four yield ErrCancelled.
	//
	// A retry or snooze under a current token that would be due after MaxDue yields ErrInvalid and
	// changes nothing; the lease stays.
	//
	// A settlement is checked in this order: is it malformed, is its token current, was the message cancelled, would
	// it be due after MaxDue. Because items take effect in order, the second of two acks with one token is
	// ErrLeaseLost.
	Settle(ctx context.Context, ss []Settlement) ([]error, error)

	// Amend cancels, reschedules, requeues or deletes by ID, without a lease. Each item has a
	// definite answer. One that would be due after MaxDue is ErrInvalid, whether there is such a
	// message or not. A reschedule of a message that was cancelled under a lease which has run out
	// ends it and answers ErrNotFound. Of several changes of one message in a call each finds what the one before
	// has left.
	Amend(ctx context.Context, as []Amendment) ([]Amended, error)

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
	// time-ordered ID (storekit.NewID).
	ID string
	// Body is at most the store's limit, 1 MiB by default. An empty one is stored as nil.
	Body []byte
	// Headers are at most MaxHeaderBytes in all. An empty map is stored as nil.
	Headers map[string]string
	// Due is the time at which to deliver, rounded up to whole milliseconds. A time
	// in the past delivers at once. Zero means Delay after the store's clock. A time before
	// the year 1 or after MaxDue is ErrInvalid, and so is a Delay that leads beyond MaxDue.
	Due time.Time
	// Delay counts from the store's clock at the moment of storing. It must not be
	// negative, nor be given together with Due.
	Delay time.Duration
	// MaxAttempts overrides the topic's setting when positive; at most MaxAttemptsLimit. A negative one is ErrInvalid.
	MaxAttempts int
	// ExpireAfter, counted from the due time, ends the wish to deliver. 0 is never, and a negative one is ErrInvalid.
	// An expiry that would lie beyond MaxDue is no error, because nothing is due then: Message.Expires is the
	// millisecond after MaxDue.
	ExpireAfter time.Duration
	// DropExpired drops the message when it expires; otherwise it becomes dead.
	DropExpired bool
	// Remember takes the place of the topic's DedupeWindow when this message finishes, if positive. It is rounded up to whole
	// milliseconds; at most MaxFinishedRetention.
	Remember time.Duration
	// IfExists says what happens when the ID is taken.
	IfExists IfExists
}

// IfExists says what a push does when its topic holds a message with its ID
// (in any state), or remembers a finished one (Settings.DedupeWindow, NewMessage.Remember).
type IfExists uint8

// What a push with a taken ID does (P7).
const (
	// IfExistsKeep changes nothing. It reports PushDuplicate with the state of the message
	// that holds the ID, or none for a finished one that is remembered. A dead holder, which
	// nobody will deliver, is ErrDuplicate.
	IfExistsKeep IfExists = iota
	// IfExistsReplace puts the new message in the place of the old one in one step and
	// reports PushReplaced. A lease on the old one is lost to its holder, who learns
	// it from ErrLeaseLost. A dead message is replaced too; a remembered finished ID is
	// simply used again and reports PushStored.
	IfExistsReplace
	// IfExistsFail changes nothing and reports ErrDuplicate.
	IfExistsFail
	// IfExistsReplaceDead replaces a dead holder and reports PushReplaced, and keeps any
	// other, as IfExistsKeep does.
	IfExistsReplaceDead
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
	// ID and Topic name the message, also one that was refused. ID is the one that the store has made where the push
	// had none. Beside an ErrInvalid or ErrTooLarge it may be empty then.
	ID    string
	Topic string
	// Due is the due time in force: the new one, or that of the message kept.
	// It is zero when a remembered finished ID was met.
	Due    time.Time
	Status PushStatus
	// Existing is the state of the message that was kept, for PushDuplicate; StateNone says
	// that the ID belonged to a finished message still remembered. It is StateDead with
	// an ErrDuplicate for a dead holder.
	Existing State
	// Err is set when this message was refused; then nothing was stored for it, unless Definite(Err) is false.
	Err error
}

// Claim asks for due messages.
type Claim struct {
	// Topics in order of preference, 1 to MaxClaimTopics. A topic that does not exist
	// yet has no messages; once it comes into being a waiting claim sees them.
	Topics []string
	// Max bounds the number of deliveries, 1 to MaxClaim.
	Max int
	// PerTopic bounds how many of them are of any one topic; 0, as Max or more, is no bound of its own.
	PerTopic int
	// Wait is how long to wait when nothing is due. 0, the default, does not wait; less is ErrInvalid. The contract has no upper bound.
	// A server refuses more than its limit, 55 s by default, over HTTP; remotestore asks again until the whole Wait is over.
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
	// Delay is for SettleRetry and SettleSnooze the time until the next attempt. UseBackoff, for
	// SettleRetry only, is what the topic's backoff says. For SettleExtend it is the
	// new length of the lease from now, 0 for the topic's. A Delay with any other verb is ErrInvalid, because
	// an ack that was meant for later would finish the message for good.
	Delay time.Duration
	// Error is kept in the history by SettleRetry and SettleDiscard; the store shortens
	// it to MaxErrorBytes. The other verbs ignore it.
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
	// ChangeDelete removes a message in any state without a trace, as Inspector.Purge does: it leaves no story, and its
	// ID is free at once. The token of a leased one is stale from then on (ErrLeaseLost).
	ChangeDelete
)

var changeNames = [...]string{"", "cancel", "reschedule", "requeue", "delete"}

// String returns "cancel", "reschedule", "requeue" or "delete".
func (c Change) String() string { return name(changeNames[:], int(c)) }

// Amendment changes one message by its ID.
type Amendment struct {
	Change Change
	Topic  string
	ID     string
	// Due and Delay say when, for ChangeReschedule and ChangeRequeue, by the rules of
	// NewMessage. Both zero is now. A requeue moves the expiry along, too. With ChangeCancel and ChangeDelete,
	// which have no due time, either of them is ErrInvalid.
	Due   time.Time
	Delay time.Duration
}

// name is the word for a value of a closed list.
func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// Amended is the definite answer to one Amendment.
type Amended struct {
	// Due is the due time in force after a reschedule or requeue that was made.
	Due time.Time
	// Err is nil when the change was made. A cancelled or deleted message will never be returned by
	// a claim, a rescheduled or requeued one has only its new due time. Else it wraps
	//
	//   - ErrLeased: somebody works on the message. After a cancel no further attempt is
	//     made; a reschedule has no effect.
	//   - ErrNotFound: a cancel or reschedule found no scheduled, ready or leased message
	//     with this ID, a requeue or delete none at all.
	//   - ErrNotDead: the message to requeue is scheduled, ready or leased.
	//   - what refused the amendment; then nothing was changed by it.
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

// DurabilityReporter is an optional interface of stores that know their class of durability. As[DurabilityReporter] finds it.
type DurabilityReporter interface {
	Durability() Durability
}

// SpaceReporter is an optional interface of stores that know how much room their medium has. As[SpaceReporter] finds it.
type SpaceReporter interface {
	// Space says how much room there is now. ErrUnsupported: this medium does not tell.
	Space(ctx context.Context) (Space, error)
}

// Space is the room of a store's medium, in bytes.
type Space struct {
	// Free is what may still be written, Total the size of the medium.
	Free, Total int64
	// Reserve is kept for acks and cancels: pushes are refused with ErrNoSpace while less is free.
	Reserve int64
}
