package punctual

import (
	"context"
	"time"
)

// A Store keeps messages in order of the time at which each next needs attention: the due time of a
// scheduled message, the end of the lease of a leased one. A claim takes the earliest message whose
// time has come and moves its time to the end of the new lease. So the message of a consumer that
// died becomes due again by itself when its lease ends, and no process has to search for such
// messages.
//
// A message is named by its topic and its ID. The same ID in two topics names two messages. The
// first push that is stored in a topic creates it, and so do its first settings. A push that is
// refused creates none. A topic stays when it is empty.
//
// The topic T@x is a companion of the topic T: a topic like any other, which belongs to T. A push
// or a change of settings that creates T@x creates T as well, and Inspector.DeleteTopic(T) deletes
// the companions of T, too. A companion has the Partitions of T, and it has no PushPaused and no
// Groups of its own, and Emit only if it is a group: Inspector.Configure refuses these there with
// ErrInvalid. A pause of T's pushes does not reach its companions. Punctual itself uses the
// companions events, cron, bulk, out and g.NAME; other names are free.
//
// All methods are safe for concurrent use. The caller may change the slices and maps that it passed
// in once the method has returned, and owns what the method returned. The items of a call take
// effect in the order given, and the results are in that order, one for each item. An item that
// fails never stops the other items. When a method returns an error for the whole call, nothing is
// known of any item beyond what the error says; Definite(err) tells whether the operation certainly
// did not happen. A store may carry out a large call in several steps, in order. If it cannot carry
// out a later step, the items of that step have its error, which is definite then, and the items of
// the steps before have their results.
//
// An answer depends only on data that is as durable as the store promises. So an answer that
// changed nothing, such as that an ID is already in use or that a message was not found, holds
// after a crash as well.
//
// Times are judged by the store's clock (P8): delays count from it, and no claim returns a message
// before its due time by it (P2). The clock does not run backwards, but for a step that the store
// records (storekit.ClockKeeper). All times are whole milliseconds; due times are rounded up, the
// clock is rounded down.
//
// A store checks its arguments before it changes anything, and every method checks in the same
// order. The first of these faults is the error of the call:
//
//  1. The store is closed: ErrClosed. Its medium has failed, now or earlier: ErrStoreFailed.
//  2. ctx has ended: the error of ctx.
//  3. The call is wrong as a whole: ErrTooLarge for more than limits.MaxBatch items, ErrInvalid for
//     a malformed Claim or query.
//
// Then each item is checked by itself, so that a malformed item fails alone. When an item has
// several faults, the store chooses which one its error names. A call without items passes the same
// checks and does nothing more. Package storekit holds the rules (CheckPush, CheckClaim,
// CheckSettlement, CheckAmendment) and turns a time or a delay into a due time (DueAt). Empty
// results of the methods of Store are empty slices, not nil.
//
// Close ends waiting claims, and a second Close returns nil or ErrClosed. A call under way when
// Close begins, a waiting claim too, succeeds or returns ErrClosed, and returns in any case.
//
// A topic that is slow or large delays the calls for other topics by no more than about a second
// (P14).
//
// As finds the optional interfaces that a store has beside Store, such as Inspector and Checker,
// also below a wrapper that shows the store which it wraps. A wrapper writes every method of Store
// instead of embedding a Store, so that when Store gets a further method the wrapper does not
// compile until its author has decided what the wrapper does there.
//
// The suite in package storetest checks this contract.
type Store interface {
	// Push stores messages. When it returns, the messages reported PushStored or PushReplaced are
	// as durable as the store promises, and so is the stored message that a PushDuplicate refers
	// to.
	//
	// Push checks a message in this order: is it malformed, does its topic refuse pushes, is its ID
	// already in use. So the repetition of a push to a paused topic is ErrPaused although the first
	// copy is stored.
	//
	// When the settings of the topic change during a call, the old or the new settings apply to
	// each message. The new ones apply to every call that begins after Inspector.Configure has
	// returned.
	Push(ctx context.Context, ms []NewMessage) ([]PushResult, error)

	// Claim leases up to c.Max messages whose time has come. It goes through c.Topics in the order
	// given, and takes the messages of a topic in order of time, the earliest first (P12), or those
	// with c.IDs in the order of these; it returns them in the order taken. A topic named twice
	// counts at its first place only. The store chooses among messages with equal times. Each
	// attempt is counted, so that the count survives kill -9, before Claim returns (P6). A lease
	// ends at the store's clock, rounded down to milliseconds, plus the length of the lease,
	// rounded up.
	//
	// A claim that encounters a message which must not be delivered ends it in one atomic step. The
	// first of these reasons counts: a message that was cancelled under its last lease is removed,
	// a message whose attempts are used up becomes dead, a message that has expired becomes dead or
	// is dropped. Until a claim encounters such a message it is ready, also in lists and counts.
	//
	// A lease that ran out becomes a Failure when a claim encounters the message again. Failure.At,
	// and Info.Died if the message becomes dead, are the store's clock at that claim, not the end
	// of the lease. When a settlement with the old token or a reschedule comes before that claim,
	// the lease that ran out leaves no Failure.
	//
	// A claim may return fewer messages than are due when they are large or when part of them is
	// slow to reach. It returns deliveries or an error, never both: an error after the first lease
	// ends the claim early, and if the cause lasts, the next claim returns it.
	//
	// A claim that takes long returns no delivery whose lease has ended by the store's clock when
	// the answer leaves the store (P3). The store gives such a message back, and its attempt does
	// not count, unless another claim has leased it by then. The receiver has to judge how long the
	// answer travelled, by Delivered, LeaseUntil and Now; Worker does so.
	//
	// When nothing is due, Claim waits up to c.Wait. It wakes at the next due time, or earlier when
	// it is notified of a change. When c.Wait has passed it returns an empty slice and nil. A claim
	// goes on waiting while the deliveries of its topic are paused, and the end of the pause wakes
	// it as a push does. When ctx ends first, Claim returns ctx's error, and its caller holds no
	// lease. If the store learns later that the claim had leased messages, it releases them and
	// their attempts do not count; if it never learns, their leases run out.
	Claim(ctx context.Context, c Claim) ([]Delivery, error)

	// Settle lets the holders of leases finish their messages, give them back, give up on them, or
	// extend their leases. An item whose token is not the current one of its message fails with
	// ErrLeaseLost and changes nothing (P4). A token stays current after its lease has run out. It
	// ends when the message is claimed again or ended by a claim, settled other than by an
	// extension, replaced, purged or deleted. Once the lease has run out, a reschedule or a cancel
	// ends it, too.
	//
	// A cancel under a lease leaves the token current. SettleAck and SettleDiscard then succeed as
	// without the cancel. SettleRetry, SettleSnooze and SettleRelease end the message, SettleExtend
	// leaves the lease as it is; all four return ErrCancelled.
	//
	// A retry or snooze under a current token after which the message would be due after
	// limits.MaxDue fails with ErrInvalid and changes nothing: the lease stays. A retry of the last
	// attempt fails so, too, although the message would be dead.
	//
	// An ack, a snooze and a discard may carry follow-ups (Settlement.Then): messages that are
	// stored in the same atomic step. Either the settlement and all its follow-ups take effect or
	// none of them does, whatever crashes, and nobody sees one before the others. The follow-ups
	// take effect after the settlement, in order, each as a push would. For example, the ID of the
	// acked message is free for a follow-up unless the topic remembers it, and after a discard it
	// is the ID of a dead message. A follow-up whose ID is in use and whose stored message is kept
	// is not stored, which is no error. A follow-up is refused if it is malformed, its topic
	// refuses pushes, the push of it would fail because of IfExists or IfDue, or there is no space.
	// Then nothing changes, the lease stays, and the item fails with the error of the first one
	// that is refused, whose text begins with "follow-up" and its number, from 1. When the
	// settlement itself fails, as with ErrLeaseLost or ErrCancelled, no follow-up is stored.
	//
	// Settle checks an item in this order: is it malformed, its follow-ups included, is its token
	// current, was the message cancelled, would the message be due after limits.MaxDue, is a
	// follow-up refused. A follow-up whose Delay leads beyond limits.MaxDue is refused. Because
	// items take effect in order, the second of two acks with one token fails with ErrLeaseLost.
	Settle(ctx context.Context, ss []Settlement) ([]error, error)

	// Amend cancels, reschedules, requeues or deletes messages by ID, without a lease. Each item
	// has a definite answer. An item with a due time after limits.MaxDue fails with ErrInvalid,
	// whether there is such a message or not. A reschedule of a message that was cancelled under a
	// lease which has run out ends the message and returns ErrNotFound. When several items of a
	// call change one message, each acts on what the one before has left.
	Amend(ctx context.Context, as []Amendment) ([]Amended, error)

	// Now returns the time of the store's clock (P8), in whole milliseconds.
	Now(ctx context.Context) (time.Time, error)

	// Close releases the resources of the store and waits for its goroutines. It settles no lease:
	// in a durable store the leases stay and run out.
	Close() error
}

// IfExists says what a push does when its ID is already in use: when its topic holds a message with
// the ID in any state, or remembers the ID of a finished one (Settings.DedupeWindow,
// NewMessage.Remember).
type IfExists uint8

// What a push does when its ID is already in use (P7).
const (
	// IfExistsKeep keeps the stored message. The push reports PushDuplicate with the state of that
	// message, or StateNone for the remembered ID of a finished one. If the stored message is dead,
	// so that it would not be delivered, the push fails with ErrDuplicate.
	IfExistsKeep IfExists = iota
	// IfExistsReplace puts the new message in the place of the stored one in one step, also of a
	// dead one, and reports PushReplaced. If somebody works on the stored message, its lease ends:
	// its holder gets ErrLeaseLost. A remembered ID of a finished message is used anew, and the
	// push reports PushStored.
	IfExistsReplace
	// IfExistsFail changes nothing; the push fails with ErrDuplicate.
	IfExistsFail
	// IfExistsReplaceDead replaces a dead message and reports PushReplaced. It keeps any other, as
	// IfExistsKeep does.
	IfExistsReplaceDead
)

// PushStatus is what became of one pushed message.
type PushStatus uint8

// What became of a pushed message.
const (
	// PushNone goes with a PushResult.Err: the message was refused.
	PushNone PushStatus = iota
	// PushStored: the message is new and stored.
	PushStored
	// PushDuplicate: the ID was already in use, and the stored message was kept.
	PushDuplicate
	// PushReplaced: the message took the place of another one.
	PushReplaced
)

var pushNames = [...]string{"", "stored", "duplicate", "replaced"}

// String returns "stored", "duplicate", "replaced" or "".
func (s PushStatus) String() string { return name(pushNames[:], int(s)) }

// PushResult is the outcome of one pushed message.
type PushResult struct {
	// ID and Topic name the message, also a refused one. Where the push had no ID, ID is the one
	// that the store made; beside an ErrInvalid or ErrTooLarge, and where a call of a Queue has
	// failed as a whole, it may then be empty.
	ID    string
	Topic string
	// Due is the due time of the message that is stored now: of the new one, or of the one that was
	// kept. It is zero when the message was refused, and when the push was a duplicate of a
	// finished message.
	Due time.Time
	// Status is what became of the message; PushNone when Err is set.
	Status PushStatus
	// Existing, beside PushDuplicate, is the state of the message that was kept; StateNone says
	// that the ID is the remembered ID of a finished message. Beside an ErrDuplicate it is
	// StateDead when a dead message holds the ID.
	Existing State
	// Err is why this message was refused, or nil. Nothing was stored for a refused message, unless
	// Definite(Err) is false.
	Err error
}

// Claim asks for due messages.
type Claim struct {
	// Topics are the topics to claim from, in order of preference, 1 to limits.MaxClaimTopics. A
	// topic that does not exist yet has no messages; a claim that waits when it is created gets its
	// messages.
	Topics []string
	// Max is the most deliveries that the claim may return, 1 to limits.MaxClaim. With IDs it may
	// be 0, which is as many as there are IDs.
	Max int
	// IDs, if there are any, are the only messages that the claim may lease, at most
	// limits.MaxClaim, and it takes them in this order. There has to be exactly one topic, and
	// PerTopic and Wait have to be 0. A message is left out without an error if it is not ready
	// (scheduled, leased, dead or not there), if it waits for its key, or if the bounds of the
	// topic do not let it be leased now. While the deliveries of the topic are paused, all are left
	// out. An ID named twice counts at its first place only. Everything else is as in any
	// claim: a message that must not be delivered any more is ended, and left out.
	IDs []string
	// PerTopic is the most deliveries of any one topic. 0, the default, sets no bound of its own; a
	// negative one is ErrInvalid.
	PerTopic int
	// Wait is how long to wait when nothing is due. 0, the default, does not wait; a negative one
	// is ErrInvalid. Stores set no upper bound. Over HTTP a server refuses more than its limit, by
	// default 55 s; remotestore asks again until the whole Wait is over.
	Wait time.Duration
	// Lease takes the place of Settings.Lease for this claim: limits.MinLease to limits.MaxLease.
	// 0, the default, follows the setting of each topic.
	Lease time.Duration
}

// Verb is what the holder of a lease does with it.
type Verb uint8

// The verbs of Settle.
const (
	// SettleAck finishes the message.
	SettleAck Verb = iota + 1
	// SettleRetry gives the message back, to be due after Settlement.Delay. The attempt counts; if
	// it was the last one, the message becomes dead with ReasonAttemptsUsedUp.
	SettleRetry
	// SettleSnooze gives the message back, to be due after Settlement.Delay. The attempt does not
	// count.
	SettleSnooze
	// SettleDiscard gives up on the message: it becomes dead with ReasonDiscarded.
	SettleDiscard
	// SettleRelease gives a message on which no work has begun back. It keeps its due time, so it
	// is ready at once, and the attempt does not count.
	SettleRelease
	// SettleExtend moves the end of the lease to Settlement.Delay after the store's clock.
	SettleExtend
)

var verbNames = [...]string{"", "ack", "retry", "snooze", "discard", "release", "extend"}

// String returns the verb's word: "ack", "retry", "snooze", "discard",
// "release", "extend".
func (v Verb) String() string { return name(verbNames[:], int(v)) }

// UseBackoff, as the Delay of a SettleRetry, has the message wait as long as the topic's Backoff
// says.
const UseBackoff time.Duration = -1

// Settlement is what the holder of a lease does with its message.
type Settlement struct {
	// Topic and ID name the message.
	Topic string
	ID    string
	// Token is the one of the Delivery.
	Token int64
	Verb  Verb
	// Delay, for SettleRetry and SettleSnooze, is the time until the message is due again;
	// UseBackoff, for SettleRetry only, stands for the delay that the topic's Backoff says. For
	// SettleExtend it is the new length of the lease from now, limits.MinLease to limits.MaxLease,
	// 0 for the topic's. With any other verb a Delay is ErrInvalid, because an ack that was meant
	// for later would finish the message for good.
	Delay time.Duration
	// Error is the text that SettleRetry and SettleDiscard add to the history of the message. The
	// store shortens it to limits.MaxErrorBytes and makes it valid UTF-8, as storekit.TrimError
	// does. The other verbs ignore it.
	Error string
	// Due, for SettleRetry and SettleSnooze, is the instant at which the message is due again, in
	// the place of Delay, rounded up to whole milliseconds. An instant in the past stays the due
	// time of the message, which is ready at once. With another verb, or together with a Delay, Due
	// is ErrInvalid.
	Due time.Time
	// Then are the follow-ups: messages that the store stores in the same atomic step, with
	// SettleAck, SettleSnooze or SettleDiscard; see Settle. They are at most limits.MaxThen, and
	// have at most limits.MaxThenBytes together, and no two of them have the same topic and ID;
	// else the item fails with ErrInvalid or ErrTooLarge. A store that cannot store a follow-up in
	// one step with this settlement fails the item with ErrUnsupported; Abilities.Follow says which
	// it can store. Then with any other verb is ErrInvalid.
	Then []NewMessage
}

// Change is what an Amendment does.
type Change uint8

// The changes of Amend.
const (
	// ChangeCancel removes a scheduled or ready message. A leased message gets no further attempt
	// after the one under way, and the cancel reports ErrLeased (P5).
	ChangeCancel Change = iota + 1
	// ChangeReschedule moves the due time of a scheduled or ready message, earlier or later. ID,
	// body, attempts and history stay; the expiry moves along. Amendments pass while
	// Settings.PushPaused refuses pushes.
	ChangeReschedule
	// ChangeRequeue schedules a dead message again. Its attempts count from 0 again; its history
	// stays.
	ChangeRequeue
	// ChangeDelete removes a message in any state, as Inspector.Purge does: the store keeps no
	// finished record of the message, and its ID may be used again at once. The holder of a leased
	// message gets ErrLeaseLost.
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
	// Due or Delay is the new due time for ChangeReschedule and ChangeRequeue, by the rules of
	// NewMessage. If both are zero it is the store's clock. A requeue moves the expiry along, too.
	// With ChangeCancel and ChangeDelete, which have no due time, either of them is ErrInvalid.
	Due   time.Time
	Delay time.Duration
	// IfDue changes only a message whose Due is this instant, so that a program which has read the
	// message does not undo what somebody else has made of it since. A message that is due at
	// another instant stays as it is, and the answer is ErrChanged. The state of the message is
	// judged first: where the change would fail without IfDue and without any effect, it fails with
	// the same error. For example, a reschedule of a leased message is ErrLeased in any case, while
	// a cancel of it is recorded only if the message is due at that instant. Rounded up to whole
	// milliseconds; the zero Time sets no condition.
	IfDue time.Time
}

// name returns the word of the i-th value of an enumeration, or "invalid" when there is none.
func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}

// Amended is the definite answer to one Amendment.
type Amended struct {
	// Due is the new due time after a reschedule or requeue that was made, else zero.
	Due time.Time
	// Err is nil when the change was made. No claim returns a cancelled or deleted message any
	// more, and a rescheduled or requeued one only at its new due time. Otherwise Err wraps one of
	//
	//   - ErrLeased: somebody works on the message. After a cancel it gets no further attempt; a
	//     reschedule has changed nothing.
	//   - ErrNotFound: a cancel or reschedule found no scheduled, ready or leased message with this
	//     ID, or a requeue or delete found none in any state. A reschedule also returns it for a
	//     message that was cancelled under a lease which has run out, and ends that message.
	//   - ErrChanged: the message is due at another instant than IfDue; nothing was changed.
	//   - ErrNotDead: the message to requeue is scheduled, ready or leased.
	//   - another error of the vocabulary; then nothing was changed, unless Definite(Err) is false.
	Err error
}

// Durability is the class of what a store promises for a message whose push it has reported as
// done.
type Durability string

// The durability classes (promise P1).
const (
	// Fsync: the message survives kill -9 and power cuts of the machine.
	Fsync Durability = "fsync"
	// Replicated: the message survives also the loss of the primary machine.
	Replicated Durability = "replicated"
	// Volatile: the message may be lost; the documentation of the store says how many may be and
	// when.
	Volatile Durability = "volatile"
)
