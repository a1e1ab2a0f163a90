package writer

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// deleteAcked is how many acked messages one transaction deletes at most.
const deleteAcked = 8192

// Tx is one transaction, from Begin to Close. It is for one goroutine.
type Tx struct {
	Now time.Time // by the store's clock, when the transaction began
	Ms  int64     // Now in whole Unix milliseconds, rounded down

	w     *Writer
	disk  *database.Tx
	held  bool // Close or Commit has to give the write lock back
	added []memory.Added
	// detached counts the messages that have left memory and that the transaction has not changed
	// on disk yet.
	detached int
	// failed is the first error of Options.Tell. Commit returns it.
	failed error
}

// Maintenance changes what nobody can claim: dead messages, remembered IDs, finished records,
// settings, watermarks, and the clock on disk.
type Maintenance interface {
	Size() int
	SetClock()
	SetStep(s record.Step, carry bool)
	SetLowest(*database.Topic, record.Position)
	PutSettings(*database.Topic, punctual.Settings)
	Remembered(*database.Topic, string, *database.Look) (bool, error)
	Forget(*database.Topic, string)
	SweepDead(*database.Topic, record.Position, int) (*database.DeadSweep, error)
	RemoveSwept(*database.DeadSweep) (bool, error)
	SweepFinished(database.Order, int) (*database.ForgetSweep, error)
	ForgetSwept(*database.ForgetSweep) bool
}

// Maintenance returns that part of the transaction which changes no live message.
func (tx *Tx) Maintenance() Maintenance { return tx.disk }

// Full tells whether the transaction has reached its size, so that what is left should go into the
// next one.
func (tx *Tx) Full() bool { return tx.disk.Size() >= txBytes }

// Close gives the write lock back if Commit has not. err is the error of the function that defers
// Close. The store fails, and err becomes its failure, when a change was not committed, when a
// message has left memory and was not changed on disk, or when the transaction panicked.
func (tx *Tx) Close(err *error) {
	if !tx.held {
		return
	}
	w := tx.w
	tx.held = false
	switch cause := recover(); {
	case cause != nil:
		w.opt.Log.Error("a change broke off", "dir", w.opt.Dir, "panic", cause, "stack", string(debug.Stack()))
		w.opt.State.Fail(fmt.Errorf("a change broke off in a panic, which is a mistake in this program or in its database: %v", cause))
	case tx.detached == 0 && tx.disk.Size() == 0:
		w.lock <- struct{}{}
		return
	case w.opt.State.HasFailed():
	case *err != nil:
		w.opt.State.Fail(fmt.Errorf("a change could not be finished because reading failed: %w", *err))
	default:
		w.opt.State.Fail(fmt.Errorf("a change was not finished, which is a mistake in this program: %d messages have left memory", tx.detached))
	}
	w.lock <- struct{}{} // the batch is left as it is, because after a panic it may be broken
	*err = w.opt.State.Failure()
}

// Commit applies the transaction, gives the write lock back, and waits until the transaction and
// all that it has read are durable. A transaction that changes nothing waits, too, because "nothing
// to do" is an answer about what is stored, and about the time. After an error the outcome is open,
// and often the store has failed.
func (tx *Tx) Commit(ctx context.Context) error {
	if err := tx.commit(ctx); err != nil {
		return err
	}
	if err := tx.w.deleteRefused(ctx); err != nil {
		return errkind.HalfDone(err)
	}
	return nil
}

// commit is Commit, but may return while there are acks that the claim log has refused.
func (tx *Tx) commit(ctx context.Context) error {
	w := tx.w
	if tx.detached != 0 || tx.failed != nil {
		return tx.failed // Close fails the store
	}
	if tx.disk.Size() == 0 {
		tx.held = false
		w.lock <- struct{}{}
		if err := w.waitDurable(ctx, tx.disk.Num-1); err != nil {
			return errkind.HalfDone(err) // what the transaction read may not survive
		}
		return w.opt.ClaimLog.KeepClock(tx.Ms)
	}
	done := tx.start()
	timer := time.NewTimer(w.opt.Timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		if err == nil {
			if err = w.waitLogged(ctx); err != nil {
				err = errkind.HalfDone(err)
			}
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the disk: %w: %w", punctual.ErrIndeterminate, errkind.Ended(ctx))
	case <-timer.C:
		w.opt.State.FailHung("write to the log")
	case <-w.opt.State.Failed():
	}
	return w.opt.State.Indeterminate()
}

// start begins to commit in a goroutine that Writer.Close waits for. Memory expects from now on
// what the transaction adds.
func (tx *Tx) start() <-chan error {
	w := tx.w
	expected := w.opt.Index.Expect(tx.added, tx.Ms)
	done := make(chan error, 1)
	w.commits.Add(1)
	tx.held = false // run gives the write lock back
	go w.run(tx, expected, done)
	return done
}

// Found is the message that holds an ID.
type Found struct {
	Topic *topics.Topic
	ID    string
	Place database.Place
	State punctual.State
	// Due is when a live message is due, in Unix milliseconds. It lies before its place if a step
	// of the clock has moved it (Lease.Due).
	Due int64
	// Next is when a live message next needs attention, in Unix milliseconds: the end of a lease
	// that has not run out, else its due time.
	Next int64
	// Cancelled says that no attempt may follow the last lease of a live message (P5).
	Cancelled bool
}

// Exists tells whether a message holds the ID.
func (f Found) Exists() bool { return !f.Place.Nowhere() }

// Find returns the message that holds an ID, also one that this transaction stores. A message that
// was acked, or that is dead and past its retention, counts as not there; Find deletes it. look is
// what was found of the ID without the write lock; it may be nil.
func (tx *Tx) Find(t *topics.Topic, id string, look *database.Look) (Found, error) {
	p, err := tx.disk.Find(t.Disk, id, look)
	if err != nil || p.Nowhere() {
		return Found{}, err
	}
	f := Found{Topic: t, ID: id, Place: p, State: punctual.StateDead}
	if p.Order == database.Dead {
		if p.At.Less(RetentionEnd(t.Settings(), tx.Ms)) {
			tx.RemoveDead(f)
			return Found{}, nil
		}
		return f, nil
	}
	// An ack needs no write lock, so the message may still be acked after this look at memory.
	// Detach tells its caller.
	if f.State, f.Due, f.Next, f.Cancelled = t.Memory.State(p.At, tx.Ms); f.State == punctual.StateNone {
		_, _ = tx.Detach(f)
		return Found{}, nil
	}
	return f, nil
}

// Place returns where the message with an ID is, also one that was acked or that is past its
// retention, and leaves the message there. look is as for Find.
func (tx *Tx) Place(t *topics.Topic, id string, look *database.Look) (database.Place, error) {
	return tx.disk.Find(t.Disk, id, look)
}

// RetentionEnd returns the position below which a topic's dead messages are past their retention at
// now.
func RetentionEnd(s *punctual.Settings, now int64) record.Position {
	return record.Position{Ms: lifecycle.DeadSince(s, now)}
}

// Read returns the stored record of a message that was found, without what its leases added. look
// is the one that was given to Find, or nil.
func (tx *Tx) Read(f Found, look *database.Look) (*record.Record, error) {
	return tx.disk.Read(f.Topic.Disk, f.Place, look)
}

// ReadHeld returns the record of a message with its lease, which may have run out, and with what
// its leases added.
func (tx *Tx) ReadHeld(h memory.Held) (*record.Record, error) {
	r, err := tx.disk.Read(tx.topic(h.Topic).Disk, database.Place{Order: database.Live, At: h.Lease.At}, nil)
	if err != nil {
		return nil, err
	}
	h.Lease.AddTo(r)
	r.CancelRequested = r.CancelRequested || h.Cancelled
	return r, nil
}

// topic returns the topic whose messages in memory m has. The topic exists, because topics are
// removed only with the write lock held.
func (tx *Tx) topic(m *memory.Topic) *topics.Topic { return tx.w.opt.Topics.Get(m.Name) }

// Detach takes a live message out of memory, so that no claim can return it any more. It returns
// false when the message was acked since it was found, and has deleted the message then.
func (tx *Tx) Detach(f Found) (memory.Detached, bool) {
	return tx.took(f, f.Topic.Memory.Detach(f.Place.At))
}

// DetachUnleased is Detach, unless the message is under a lease at this very moment: then leased is
// true, and the message stays.
func (tx *Tx) DetachUnleased(f Found) (d memory.Detached, leased, ok bool) {
	d, free := f.Topic.Memory.DetachUnleased(f.Place.At, storekit.Millis(tx.w.opt.Now()))
	if !free {
		return d, true, false
	}
	d, ok = tx.took(f, d)
	return d, false, ok
}

// Cancel is DetachUnleased which, in the same step, marks a leased message in memory so that no
// attempt follows the lease (P5). Cancel then writes the mark into the record, too; err is an error
// of reading the record.
func (tx *Tx) Cancel(f Found) (d memory.Detached, leased, ok bool, err error) {
	d, free := f.Topic.Memory.Cancel(f.Place.At, storekit.Millis(tx.w.opt.Now()))
	if free {
		d, ok = tx.took(f, d)
		return d, false, ok, nil
	}
	r, err := tx.Read(f, nil)
	if err != nil {
		return d, true, false, err
	}
	r.CancelRequested = true
	tx.disk.Rewrite(f.Topic.Disk, f.Place.At, r)
	return d, true, false, nil
}

// took counts a message that has left memory, and deletes it if it was acked.
func (tx *Tx) took(f Found, d memory.Detached) (memory.Detached, bool) {
	tx.left(f)
	if d.Acked {
		tx.Remove(d, f.ID)
		return d, false
	}
	return d, true
}

// left counts a live message that was found and has left memory. If this very transaction stores
// the message, left sees to it that the message does not enter memory at the end.
func (tx *Tx) left(f Found) {
	tx.detached++
	if f.Place.Own {
		tx.added = slices.DeleteFunc(tx.added, func(a memory.Added) bool { return a.At.Seq == f.Place.At.Seq })
	}
}

// DetachHeld takes a message out of memory whose lease is still that of h. It returns false when
// the lease has ended since.
func (tx *Tx) DetachHeld(h memory.Held) (memory.Detached, bool) {
	d, ok := tx.w.opt.Index.DetachHeld(h)
	if ok {
		tx.detached++
	}
	return d, ok
}

// Beside is a live message that was found for a follow-up of a settlement.
type Beside struct {
	Found
	Goes bool // the follow-up replaces the message
}

// DetachTogether is DetachHeld for a settlement with follow-ups: in one step it takes the settled
// message and those that follow-ups replace out of memory. The latter are returned in the order of
// beside. ok is false, and nothing has left memory, when the lease has ended since, or when one of
// beside was acked since it was found. Then the caller decides anew.
func (tx *Tx) DetachTogether(h memory.Held, beside []Beside) (d memory.Detached, replaced []memory.Detached, ok bool) {
	others := make([]memory.Beside, len(beside))
	for i, b := range beside {
		others[i] = memory.Beside{Topic: b.Topic.Memory, At: b.Place.At, Goes: b.Goes}
	}
	if d, replaced, ok = tx.w.opt.Index.DetachTogether(h, others); !ok {
		return d, nil, false
	}
	tx.detached++
	for _, b := range beside {
		if b.Goes {
			tx.left(b.Found)
		}
	}
	return d, replaced, true
}

// DetachReserved takes a message out of memory that a claim has reserved and must not deliver. It
// returns false when another transaction was first.
func (tx *Tx) DetachReserved(c *memory.Reserved) (memory.Detached, bool) {
	d, ok := tx.w.opt.Index.DetachReserved(c)
	if ok {
		tx.detached++
	}
	return d, ok
}

// put stores a live message, which is new or was stored at from. The message can be claimed once
// the transaction is durable.
func (tx *Tx) put(t *topics.Topic, from database.Place, r *record.Record) {
	s := tx.disk.Put(t.Disk, from, r)
	tx.added = append(tx.added, memory.Added{Topic: t.Memory, At: s.At, Record: s.Record})
}

// Insert stores a new message, and an event of the push if the topic tells of pushes.
func (tx *Tx) Insert(t *topics.Topic, r *record.Record) {
	tx.put(t, database.Place{}, r)
	if e, tell := r.PushEvent(t.Settings(), tx.Ms); tell {
		tx.tell(t, r, e)
	}
}

// tell completes an event of a message and hands it to Options.Tell. After an error of Tell it does
// nothing any more.
func (tx *Tx) tell(t *topics.Topic, r *record.Record, e event.Event) {
	e.Topic, e.ID, e.Created = t.Name, r.ID, storekit.FromMillis(r.Created)
	if tx.failed == nil {
		tx.failed = tx.w.opt.Tell(tx, t, &e)
	}
}

// Apply carries out what was decided about a live message that has left memory, and stores the
// event if the topic tells of it. r is the record of the message with what its leases added,
// changed by the decision. For a message that is removed r needs no more than the ID and those
// additions, and for one that is acked or cancelled neither, unless KeepsRecord or KeepsRecords is
// true.
//
// The decision must take the message elsewhere. Close fails the store after Stay and Leased,
// because memory would miss the message.
func (tx *Tx) Apply(d memory.Detached, r *record.Record, to lifecycle.Decision) {
	if to.Failed {
		r.Failures = storekit.AddFailure(r.Failures, to.Failure)
	}
	switch to.To {
	case lifecycle.Waiting:
		tx.detached--
		tx.put(tx.topic(d.Topic), database.Place{Order: database.Live, At: d.Lease.At}, r)
	case lifecycle.Dead:
		tx.deadLetter(d, r)
	case lifecycle.Finished:
		tx.finish(d, r, to.Outcome)
	case lifecycle.Removed:
		tx.Remove(d, r.ID)
	}
	t, at := tx.topic(d.Topic), tx.Ms
	if to.To == lifecycle.Dead {
		at = r.Died // when it died by the decision
	}
	if e, tell := r.Event(to, t.Settings(), d.Began, at); tell {
		tx.tell(t, r, e)
	}
}

// Remove deletes a message that has left memory. It keeps nothing of the message.
func (tx *Tx) Remove(d memory.Detached, id string) {
	tx.detached--
	tx.disk.Remove(tx.topic(d.Topic).Disk, database.Place{Order: database.Live, At: d.Lease.At}, id)
}

// finish deletes a message and keeps its ID and its finished record, as the message and its topic
// ask.
func (tx *Tx) finish(d memory.Detached, r *record.Record, how punctual.Outcome) {
	tx.Remove(d, r.ID)
	t := tx.topic(d.Topic)
	keep := r.Keep(t.Settings(), tx.Ms)
	if keep.ID != 0 {
		tx.disk.Remember(t.Disk, r.ID, tx.Ms, keep.ID)
	}
	if keep.Record == 0 {
		return
	}
	f := punctual.Finished{
		ID: r.ID, Outcome: how, At: storekit.FromMillis(tx.Ms), Created: storekit.FromMillis(r.Created),
		FirstDue: storekit.FromMillis(r.FirstDue), Due: storekit.FromMillis(r.Due), Attempt: r.Attempts, Failures: r.Failures,
		KeptUntil: storekit.FromMillis(keep.Record),
	}
	if d.Began != 0 {
		f.Delivered = storekit.FromMillis(d.Began)
	}
	tx.disk.KeepFinished(t.Disk, &f)
}

// KeepsRecord tells whether Apply needs the stored record of a message that is cancelled: for its
// finished record or the event, or because the message says itself how long its ID is remembered.
func KeepsRecord(f Found) bool {
	return f.Place.Remembers || KeepsRecords(f.Topic.Settings(), punctual.EventCancelled)
}

// KeepsRecords tells whether Apply needs the stored records of all messages of a topic that end in
// one way: for their finished records, or for the events. end is punctual.EventAcked or
// punctual.EventCancelled.
func KeepsRecords(s *punctual.Settings, end punctual.Events) bool {
	return s.FinishedRetention > 0 || s.Emit&end != 0
}

// deadLetter moves a message to the dead.
func (tx *Tx) deadLetter(d memory.Detached, r *record.Record) {
	tx.detached--
	t := tx.topic(d.Topic)
	tx.disk.DeadLetter(t.Disk, d.Lease.At, r)
	tx.w.opt.Died(t)
}

// Requeue moves a dead message back to the live ones, to the due time of its record.
func (tx *Tx) Requeue(f Found, r *record.Record) { tx.put(f.Topic, f.Place, r) }

// RemoveDead deletes a dead message.
func (tx *Tx) RemoveDead(f Found) { tx.disk.Remove(f.Topic.Disk, f.Place, f.ID) }

// Carry carries over a step of the clock what a database.Carry has found, unless it was set anew
// since. A message that was leased since its record was written stays where it is, because its
// lease has moved, and counts.
func (tx *Tx) Carry(a *database.Ahead, s record.Step) error {
	t := tx.Existing(a.Topic)
	switch {
	case a.Order == database.Remembered || a.Order == database.FinishedRecords:
		return tx.disk.CarryEnd(nil, a, s)
	case t == nil || t.Disk.Num() != a.Num: // the topic was deleted
		return nil
	case a.Order == database.Dead:
		err := tx.disk.CarryEnd(t.Disk, a, s)
		tx.w.opt.Died(t)
		return err
	}
	r, err := tx.disk.ReadAhead(a)
	if err != nil || r == nil {
		return err
	}
	d, ok := t.Memory.DetachWaiting(a.At)
	if !ok {
		return nil
	}
	tx.detached++
	s.Carry(&r.Message)
	tx.Apply(d, r, lifecycle.Decision{To: lifecycle.Waiting})
	return nil
}

// Existing returns the topic with a name, or nil if there is none.
func (tx *Tx) Existing(name string) *topics.Topic { return tx.w.opt.Topics.Get(name) }

// Topic returns the topic with a name. It makes the topic if there is none; see MakeTopics.
func (tx *Tx) Topic(name string) (*topics.Topic, error) {
	if t := tx.Existing(name); t != nil {
		return t, nil
	}
	if err := tx.MakeTopics(name); err != nil {
		return nil, err
	}
	return tx.Existing(name), nil
}

// MakeTopics makes those of the named topics that there are not, and with each companion the topic
// that the companion belongs to. If the store has too few numbers left for new topics, MakeTopics
// makes none and returns ErrNoSpace.
func (tx *Tx) MakeTopics(names ...string) error {
	var missing []string
	for _, name := range names {
		parent, _ := storekit.Companion(name)
		for _, n := range [...]string{parent, name} { // the same name twice if it is no companion
			if tx.Existing(n) == nil && !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
		}
	}
	if missing == nil {
		return nil
	}
	return tx.addTopics(missing, false)
}

// EventTopic returns the companion to which the events of a topic go. It makes the companion if
// there is none.
func (tx *Tx) EventTopic(t *topics.Topic) (*topics.Topic, error) {
	name := storekit.EventTopic(t.Name)
	if tx.Existing(name) == nil {
		if err := tx.addTopics([]string{name}, true); err != nil {
			return nil, err
		}
	}
	return tx.Existing(name), nil
}

// addTopics makes topics that there are not; spare is that of database.Tx.AddTopics.
func (tx *Tx) addTopics(names []string, spare bool) error {
	made, err := tx.disk.AddTopics(names, punctual.DefaultSettings(), spare)
	for _, disk := range made {
		tx.w.opt.Topics.Add(disk, punctual.DefaultSettings())
	}
	return err
}

// DeleteTopic deletes a topic with all that is in it, and returns how many messages that was,
// without acked ones. keys are the topic's as they were read before; nil if they were not.
func (tx *Tx) DeleteTopic(t *topics.Topic, keys *database.TopicKeys) int64 {
	n := t.Disk.Live() + t.Disk.Dead()
	tx.disk.DeleteTopic(t.Disk, keys)
	tx.added = slices.DeleteFunc(tx.added, func(a memory.Added) bool { return a.Topic == t.Memory })
	return n - int64(tx.w.opt.Topics.Remove(t))
}

// Clear removes all live messages of a topic, or all dead ones, and returns how many that was,
// without acked ones. c must be current (database.Clear.Current).
func (tx *Tx) Clear(t *topics.Topic, c *database.Clear, of database.Order) int64 {
	n := tx.disk.Clear(c)
	if of == database.Live {
		n -= int64(t.Memory.Clear())
	}
	return n
}

// DeleteAcked deletes up to deleteAcked messages from disk that are acked, and tells whether there
// are more.
func (tx *Tx) DeleteAcked() (more bool) {
	done, more := tx.w.opt.Index.DetachAcked(deleteAcked)
	tx.detached += len(done)
	for _, d := range done {
		tx.Remove(d, d.ID)
	}
	return more
}

// DeleteAcked deletes all messages from disk that are acked, in as many transactions as that needs.
func (w *Writer) DeleteAcked(ctx context.Context) error {
	for {
		if more, err := w.deleteSomeAcked(ctx); err != nil || !more {
			return err
		}
	}
}

func (w *Writer) deleteSomeAcked(ctx context.Context) (more bool, err error) {
	tx, err := w.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Close(&err)
	if more = tx.DeleteAcked(); tx.disk.Size() == 0 {
		return false, nil
	}
	return more, tx.commit(ctx) // not Commit, which would delete acked messages in its turn
}
