package punctual

import (
	"context"
	"time"
)

// FinishedKeeper is an optional interface of stores that keep a record of each finished message for
// as long as its topic says (Settings.FinishedRetention). As[FinishedKeeper] finds it. A store that
// is no FinishedKeeper refuses a FinishedRetention above 0 with ErrUnsupported.
//
// The store writes the finished record in the same atomic step that ends the message, so the record
// is as durable as the end of the message and never contradicts it. A message that is purged,
// deleted, replaced, or deleted with its topic leaves no record. A dead message is not finished: it
// stays stored, with its history, for Settings.DeadRetention.
//
// A finished record does not keep the ID in use; Settings.DedupeWindow and NewMessage.Remember do.
// So an ID can have a stored message, which Inspector.Get returns, and the record of an earlier
// message, which Finished returns. The record of the next message that finishes under the ID takes
// the place of the earlier record.
type FinishedKeeper interface {
	// Finished returns the record of the message that finished last under this ID, or ErrNotFound
	// when none is kept. A wrapper whose store keeps no records returns ErrUnsupported.
	Finished(ctx context.Context, topic, id string) (Finished, error)
	// ListFinished returns one page of a topic's finished records. Records past their retention are
	// not listed, and an ID has one record at most. The list of a topic that does not exist is
	// empty. A message that finishes under an ID already listed, while someone goes from page to
	// page, may bring the ID a second time, with its later record. A wrapper whose store keeps no
	// records returns ErrUnsupported.
	ListFinished(ctx context.Context, q FinishedQuery) (FinishedPage, error)
}

// Finished is the record of a finished message: whether it was handled, when, and how late. It has
// no body and no headers. Times are whole milliseconds in UTC.
type Finished struct {
	ID    string
	Topic string
	// Outcome says how the message ended.
	Outcome Outcome
	// At is the store's clock when the message ended.
	At time.Time
	// Created, FirstDue and Due are those of the message when it ended. Due is the due time of the
	// attempt that ended it, or of the next attempt if the message was cancelled while it waited
	// for that.
	Created  time.Time
	FirstDue time.Time
	Due      time.Time
	// Attempt is the number of deliveries since the push or the last requeue, without those that
	// ended with a snooze or a release.
	Attempt int
	// Delivered is the store's clock when the last lease of the message began. It is zero when the
	// message never had a lease or had given it back. A store may also leave it zero when it was
	// opened again, or its server's clock stood still, between that claim and the end of the
	// message.
	Delivered time.Time
	// Failures is the history of the message, as in Info.
	Failures []Failure
	// KeptUntil is when the store removes the record.
	KeptUntil time.Time
}

// ReadyFor is how long the message was ready before its last lease began, as Delivery.ReadyFor
// says, but with the wait for its key if it has one, because a record has no Turn. It is 0 when
// Delivered is zero.
func (f *Finished) ReadyFor() time.Duration {
	if f.Delivered.IsZero() {
		return 0
	}
	return (&Delivery{Message: Message{Due: f.Due, Created: f.Created}, Delivered: f.Delivered}).ReadyFor()
}

// TotalLate is how long after FirstDue the last lease of the message began: its lateness end to
// end. It is 0 when Delivered is zero.
func (f *Finished) TotalLate() time.Duration {
	if f.Delivered.IsZero() {
		return 0
	}
	return max(0, f.Delivered.Sub(f.FirstDue))
}

// FinishedQuery asks for one page of a topic's finished records.
//
// The records are listed in the order of KeptUntil, then of the ID, because stores have them in
// that order to remove them when their time is over. It is the order in which the messages
// finished, unless Settings.FinishedRetention was changed while they did: a record that is kept for
// a day then stands before the record of an earlier message that is kept for a week. From, To and
// Outcome select the right records all the same.
type FinishedQuery struct {
	Topic string
	// From and To bound Finished.At: From is the first time included, To the first one excluded.
	// The zero Time sets no bound. From later than To is ErrInvalid.
	From, To time.Time
	// Outcome selects the messages that ended in this way; empty selects all.
	Outcome Outcome
	// Limit is the size of the page, 1 to 10000; 0 means 100. A page may have fewer records, even
	// none, while FinishedPage.Next says where the list continues, because a store may stop when it
	// has read about 10,000 records for the page, selected or not.
	Limit int
	// After is the FinishedPage.Next of the page before; empty starts at the beginning.
	After string
	// Descending reverses the list, so that the message that finished last comes first. A page then
	// continues towards the earlier ones.
	Descending bool
}

// FinishedPage is a part of a list of finished records.
type FinishedPage struct {
	Records []Finished
	// Next is the FinishedQuery.After of the next page. It is empty when this page is the last one,
	// and may be set although this page is empty.
	Next string
}

// Outcome says how a finished message ended.
type Outcome string

// The outcomes of finished messages.
const (
	// OutcomeAcked: the holder of its lease acked the message.
	OutcomeAcked Outcome = "acked"
	// OutcomeCancelled: the message was cancelled, before a lease or under its last one.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeExpired: the message expired and was dropped (NewMessage.DropExpired).
	OutcomeExpired Outcome = "expired"
)
