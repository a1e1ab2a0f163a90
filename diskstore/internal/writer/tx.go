package writer

import (
	"cmp"
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
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// deleteAcked is how many acked messages one transaction deletes.
const deleteAcked = 8192

// Tx is one transaction, from Begin to Close. It is for one goroutine.
type Tx struct {
	Now time.Time // the store's clock, fine
	Ms  int64     // the same in whole milliseconds, rounded down

	w     *Writer
	disk  *database.Tx
	held  bool // the write lock is to be given back
	added []memory.Added
	// detached is how many messages left memory and have not been changed on disk.
	detached int
}

// Maintenance changes what nobody can claim: dead messages, remembered IDs, settings, watermarks.
type Maintenance interface {
	Size() int
	SetClock()
	SetLowest(*database.Topic, record.Position)
	PutSettings(*database.Topic, punctual.Settings)
	Remembered(*database.Topic, string) (bool, error)
	Forget(*database.Topic, string)
	SweepDead(*database.Topic, record.Position, int) (*database.DeadSweep, error)
	RemoveSwept(*database.DeadSweep) (bool, error)
	SweepFinished(database.Order, int) (*database.ForgetSweep, error)
	ForgetSwept(*database.ForgetSweep) bool
}

// Maintenance returns what changes no live message.
func (tx *Tx) Maintenance() Maintenance { return tx.disk }

// Full tells whether the transaction holds as much as it should.
func (tx *Tx) Full() bool { return tx.disk.Size() >= txBytes }

// Close gives the write lock back if Commit has not. err is the error of the function that defers it. The store ends
// when something was changed and not committed, or taken out of memory and not changed, or when the transaction
// panicked. The error is then the store's failure.
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
	w.lock <- struct{}{} // the batch is left as it is: it may be broken
	*err = w.opt.State.Failure()
}

// Commit applies the transaction, gives the write lock back and waits until it is durable, with all that
// it has seen. One that changes nothing waits for that, too: "nothing to do" is an answer about what is
// there, and about the time. When it returns an error the outcome is open, and often the store has failed.
func (tx *Tx) Commit(ctx context.Context) error {
	w := tx.w
	if tx.detached != 0 {
		return nil // Close fails the store
	}
	if tx.disk.Size() == 0 {
		tx.held = false
		w.lock <- struct{}{}
		if err := w.waitDurable(ctx, tx.disk.Num-1); err != nil {
			return errkind.HalfDone(err) // what it saw may or may not have happened
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

// start begins to commit. It has memory expect what the transaction brings.
func (tx *Tx) start() <-chan error {
	w := tx.w
	expected := w.opt.Index.Expect(tx.added, tx.Ms)
	done := make(chan error, 1)
	w.commits.Add(1)
	tx.held = false // run gives it back
	go w.run(tx, expected, done)
	return done
}

// Found is the message that holds an ID.
type Found struct {
	Topic *topics.Topic
	ID    string
	Place database.Place
	State punctual.State
	// Next is when a live message next needs attention, in Unix milliseconds: its due time, or the end of its lease.
	Next int64
}

// Exists tells whether a message holds the ID.
func (f Found) Exists() bool { return !f.Place.Nowhere() }

// Find returns the message that holds an ID, stored or stored by this transaction. One that is finished, or dead and past its
// retention, is met here: it goes, and is not found.
func (tx *Tx) Find(t *topics.Topic, id string) (Found, error) {
	p, err := tx.disk.Find(t.Disk, id)
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
	// An ack needs no write lock, so Detach looks again.
	if f.State, f.Next = t.Memory.State(p.At, tx.Ms); f.State == punctual.StateNone {
		_, _ = tx.Detach(f)
		return Found{}, nil
	}
	return f, nil
}

// RetentionEnd returns the position below which a topic's dead messages are past their retention at now.
func RetentionEnd(s *punctual.Settings, now int64) record.Position {
	return record.Position{Ms: lifecycle.DeadSince(s, now)}
}

// Read returns the record of a message that was found.
func (tx *Tx) Read(f Found) (*record.Record, error) { return tx.disk.Read(f.Topic.Disk, f.Place) }

// ReadHeld returns the record of a leased message, with what its leases added.
func (tx *Tx) ReadHeld(h memory.Held) (*record.Record, error) {
	r, err := tx.disk.Read(tx.topic(h.Topic).Disk, database.Place{Order: database.Live, At: h.Lease.At})
	if err != nil {
		return nil, err
	}
	h.Lease.AddTo(r)
	r.CancelRequested = r.CancelRequested || h.Cancelled
	return r, nil
}

// topic is the topic of a part of memory. It is there: topics are removed with the write lock held.
func (tx *Tx) topic(m *memory.Topic) *topics.Topic { return tx.w.opt.Topics.Get(m.Name) }

// Detach takes a live message out of memory; from then on no claim can return it. It is false when the message was acked since
// it was found: then it goes.
func (tx *Tx) Detach(f Found) (memory.Detached, bool) {
	return tx.took(f, f.Topic.Memory.Detach(f.Place.At))
}

// DetachUnleased does the same, but for a message that somebody holds a lease on at this very moment: leased.
func (tx *Tx) DetachUnleased(f Found) (d memory.Detached, leased, ok bool) {
	d, free := f.Topic.Memory.DetachUnleased(f.Place.At, storekit.Millis(tx.w.opt.Now()))
	if !free {
		return d, true, false
	}
	d, ok = tx.took(f, d)
	return d, false, ok
}

// Cancel does the same, and sees to it that a leased message gets no further attempt (P5).
func (tx *Tx) Cancel(f Found) (d memory.Detached, leased, ok bool, err error) {
	d, free := f.Topic.Memory.Cancel(f.Place.At, storekit.Millis(tx.w.opt.Now()))
	if free {
		d, ok = tx.took(f, d)
		return d, false, ok, nil
	}
	r, err := tx.Read(f)
	if err != nil {
		return d, true, false, err
	}
	r.CancelRequested = true
	tx.disk.Rewrite(f.Topic.Disk, f.Place.At, r)
	return d, true, false, nil
}

// took counts what has left memory. What this very transaction was to bring there stays outside.
func (tx *Tx) took(f Found, d memory.Detached) (memory.Detached, bool) {
	tx.detached++
	if f.Place.Own {
		tx.added = slices.DeleteFunc(tx.added, func(a memory.Added) bool { return a.At.Seq == f.Place.At.Seq })
	}
	if d.Finished {
		tx.Remove(d, f.ID)
		return d, false
	}
	return d, true
}

// DetachHeld takes a leased message out of memory. It is false when the lease was ended since, or is another's.
func (tx *Tx) DetachHeld(h memory.Held) (memory.Detached, bool) {
	d, ok := tx.w.opt.Index.DetachHeld(h)
	if ok {
		tx.detached++
	}
	return d, ok
}

// DetachTaken takes a message out of memory that a claim has taken and must not deliver. It is false when somebody else has.
func (tx *Tx) DetachTaken(c *memory.Taken) (memory.Detached, bool) {
	d, ok := tx.w.opt.Index.DetachTaken(c)
	if ok {
		tx.detached++
	}
	return d, ok
}

// put stores a message that was somewhere, or nowhere, and has it enter memory when the transaction is durable.
func (tx *Tx) put(t *topics.Topic, from database.Place, r *record.Record) {
	s := tx.disk.Put(t.Disk, from, r)
	tx.added = append(tx.added, memory.Added{Topic: t.Memory, At: s.At, Record: s.Record})
}

// Insert stores a new message.
func (tx *Tx) Insert(t *topics.Topic, r *record.Record) { tx.put(t, database.Place{}, r) }

// Apply carries out what was decided about a live message that has left memory. r is its record with what its leases added,
// changed by the decision; of a message that finishes it may be an ID alone, unless KeepsRecord.
//
// The decision must take the message elsewhere. Close fails the store after Stay and Leased, because memory would miss the
// message.
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
}

// Remove deletes a message without a trace.
func (tx *Tx) Remove(d memory.Detached, id string) {
	tx.detached--
	tx.disk.Remove(tx.topic(d.Topic).Disk, database.Place{Order: database.Live, At: d.Lease.At}, id)
}

// finish deletes a message and keeps its ID and its finished record, as the message and its topic ask.
func (tx *Tx) finish(d memory.Detached, r *record.Record, how punctual.Outcome) {
	tx.Remove(d, r.ID)
	t := tx.topic(d.Topic)
	keep := r.Keep(t.Settings(), tx.Ms)
	if keep.ID != 0 {
		tx.disk.Remember(t.Disk, r.ID, keep.ID)
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
	tx.disk.Tell(t.Disk, &f)
}

// KeepsRecord tells whether Apply needs the stored record of a message that finishes: for the finished record, or because
// the message says itself how long its ID is remembered.
func KeepsRecord(f Found) bool {
	return f.Topic.Settings().FinishedRetention > 0 || f.Place.Remembers
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

// Topic returns a topic, which is made when it is new.
func (tx *Tx) Topic(name string) (*topics.Topic, error) {
	if t := tx.w.opt.Topics.Get(name); t != nil {
		return t, nil
	}
	disk, err := tx.disk.AddTopic(name, punctual.DefaultSettings())
	if err != nil {
		return nil, err
	}
	return tx.w.opt.Topics.Add(disk, punctual.DefaultSettings()), nil
}

// DeleteTopic deletes a topic with all that is in it, and returns how many messages that was. keys are those that were read before,
// nil if none were.
func (tx *Tx) DeleteTopic(t *topics.Topic, keys *database.TopicKeys) int64 {
	n := t.Disk.Live() + t.Disk.Dead()
	tx.disk.DeleteTopic(t.Disk, keys)
	tx.added = slices.DeleteFunc(tx.added, func(a memory.Added) bool { return a.Topic == t.Memory })
	return n - int64(tx.w.opt.Topics.Remove(t))
}

// Clear removes all live messages of a topic, or all dead ones, and returns how many that was. What begins it must be current.
func (tx *Tx) Clear(t *topics.Topic, c *database.Clear, of database.Order) int64 {
	n := tx.disk.Clear(c)
	if of == database.Live {
		n -= int64(t.Memory.Clear())
	}
	return n
}

// DeleteAcked deletes messages that are acked, and tells whether there are more.
func (tx *Tx) DeleteAcked() (more bool) {
	done, more := tx.w.opt.Index.TakeFinished(deleteAcked)
	tx.detached += len(done)
	// Neighbours on disk are written one after the other, which is several times cheaper.
	slices.SortFunc(done, func(a, b memory.Detached) int {
		p, q := a.Lease, b.Lease
		return cmp.Or(cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.At.Ms, q.At.Ms), cmp.Compare(p.At.Seq, q.At.Seq))
	})
	for _, d := range done {
		tx.Remove(d, d.ID)
	}
	return more
}

// DeleteAcked deletes all messages that are acked.
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
	return more, tx.Commit(ctx)
}

// Barrier is DeleteAcked that returns when all that was changed before is durable too, above all
// what others have deleted.
func (w *Writer) Barrier(ctx context.Context) error {
	return cmp.Or(w.DeleteAcked(ctx), w.WaitDurable(ctx))
}
