package memory

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Settled is what Index.Settle has done. The claim log is to have the acks and extensions.
type Settled struct {
	Errs            []error        // of each settlement
	Acked, Extended []record.Lease // an extended lease may be among the acked ones, too
	Undeleted       int            // how many messages of all topics are acked and still on disk
	// Refused tells that a settlement was refused because of the state of its message. The
	// transaction that made the state may not be durable yet.
	Refused bool
}

// Settle carries out settlements that change no message on disk: extensions, and acks without
// follow-ups of messages of which nothing is to be kept or told. If the call has any other
// settlement, Settle returns false and changes nothing, because the items of a call take effect in
// their order. The caller writes the claim log before it answers. now is the store's clock; Settle
// reads it under its lock, so that no step of the clock (Step) comes between the reading and an
// extension.
//
// Settle needs no write lock. Whoever holds the write lock and ends or moves a message detaches the
// message first, and learns from that whether it was acked meanwhile.
//
// What Settle answers follows lifecycle.Settle. Settle does not call that function, because the
// function needs the record, and acks are cheap because they read no record.
func (x *Index) Settle(ss []punctual.Settlement, now func() int64) (done Settled, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range ss {
		if x.needsDisk(&ss[i]) {
			return Settled{}, false
		}
	}
	done.Errs = make([]error, len(ss))
	for i := range ss {
		st := &ss[i]
		// The bound 0 of bodies does not matter, because it is for the bodies of follow-ups, and no
		// settlement here has any.
		if done.Errs[i] = storekit.CheckSettlement(st, 0); done.Errs[i] != nil {
			continue
		}
		switch m := x.holder(st); {
		case m == nil:
			done.Errs[i], done.Refused = storekit.SettleError(st, punctual.ErrLeaseLost), true
		case st.Verb == punctual.SettleAck:
			done.Acked = append(done.Acked, m.lease)
			x.move(m, stateAcked)
		case m.cancelled:
			done.Errs[i], done.Refused = storekit.SettleError(st, punctual.ErrCancelled), true
		default:
			m.lease.Since = now()
			m.next = lifecycle.LeaseEnd(st.Delay, m.topic.settings, m.lease.Since)
			m.lease.Until = m.next
			m.lease.Renewed++
			byTime.Fix(m.topic.leases, m)
			x.wake(m.topic, m.next)
			// Extended has a copy of the lease, because an ack may end the lease before the
			// extension is in the claim log, and a kill may then undo the ack.
			done.Extended = append(done.Extended, m.lease)
		}
	}
	done.Undeleted = x.acked
	return done, true
}

// needsDisk tells whether a settlement changes messages on disk. Called with mu held.
func (x *Index) needsDisk(st *punctual.Settlement) bool {
	switch {
	case len(st.Then) > 0:
		return true
	case st.Verb == punctual.SettleExtend:
		return false
	case st.Verb != punctual.SettleAck:
		return true
	}
	t := x.topics[st.Topic]
	return t != nil && t.writesAcks() || x.remembers(st)
}

// writesAcks tells whether something is written when a message of the topic is acked: its ID, its
// finished record, or an event. Called with mu held.
func (t *Topic) writesAcks() bool {
	s := t.settings
	return s.DedupeWindow != 0 || s.FinishedRetention != 0 || s.Emit&punctual.EventAcked != 0
}

// remembers tells whether the message of a settlement says itself that its ID is to be remembered.
// Called with mu held.
func (x *Index) remembers(st *punctual.Settlement) bool {
	if x.remembering == 0 {
		return false
	}
	m := x.holder(st)
	return m != nil && m.remembers
}

// holder returns the message that a settlement's token is current for, or nil (P4). Called with mu
// held.
func (x *Index) holder(st *punctual.Settlement) *message {
	m := x.leased[st.Token]
	if m == nil || m.id != st.ID || m.topic.Name != st.Topic {
		return nil
	}
	return m
}

// Held is a message with its lease, which may have run out.
type Held struct {
	Topic     *Topic
	ID        string
	Lease     record.Lease
	Cancelled bool // no attempt may follow the lease (P5)
	Remembers bool // the message says itself for how long its ID is remembered when it finishes
}

// Holder returns the message for which a settlement's token is current (P4); ok is false when there
// is none.
func (x *Index) Holder(st *punctual.Settlement) (h Held, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.holder(st)
	if m == nil {
		return Held{}, false
	}
	return m.asHeld(), true
}

func (m *message) asHeld() Held {
	return Held{Topic: m.topic, ID: m.id, Lease: m.lease, Cancelled: m.cancelled, Remembers: m.remembers}
}
