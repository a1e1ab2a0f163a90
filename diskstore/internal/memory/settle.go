package memory

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Settled is what a Settle has done, for the claim log.
type Settled struct {
	Errs            []error // of each settlement
	Acked, Extended []record.Lease
	Finished        int // how many messages are finished now and still on disk, over all topics
	// Refused tells that one was refused for the state of its message, which a transaction may have made that is not durable.
	Refused bool
}

// Settle does settlements that are all extensions, or acks of messages of which nothing is to be kept. They change no message on disk. Otherwise
// ok is false and nothing has changed, since the items of a call take effect in their order. The caller writes the
// claim log before it answers.
//
// It needs no write lock. Whoever holds that and acts on a message detaches it first, and learns whether it was acked
// meanwhile.
func (x *Index) Settle(ss []punctual.Settlement, now int64) (done Settled, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range ss {
		t := x.topics[ss[i].Topic]
		if ss[i].Verb != punctual.SettleExtend && (ss[i].Verb != punctual.SettleAck || t != nil && t.keepsFinished() || x.remembers(&ss[i])) {
			return Settled{}, false
		}
	}
	done.Errs = make([]error, len(ss))
	for i := range ss {
		st := &ss[i]
		if done.Errs[i] = storekit.CheckSettlement(st); done.Errs[i] != nil {
			continue
		}
		switch m := x.holder(st); {
		case m == nil:
			done.Errs[i], done.Refused = storekit.SettleError(st, punctual.ErrLeaseLost), true
		case st.Verb == punctual.SettleAck:
			done.Acked = append(done.Acked, m.lease)
			x.move(m, stateFinished)
		case m.cancelled:
			done.Errs[i], done.Refused = storekit.SettleError(st, punctual.ErrCancelled), true
		default:
			m.next = lifecycle.LeaseEnd(st.Delay, m.topic.settings, now)
			m.lease.Until = m.next
			m.lease.Renewed++
			byTime.Fix(m.topic.leases, m)
			x.wake(m.topic, m.next)
			done.Extended = append(done.Extended, m.lease) // as it is now: an ack may end it before it is logged, and a kill that ack
		}
	}
	done.Finished = x.finished
	return done, true
}

// keepsFinished tells whether something is to be kept of messages that finish. Called with mu held.
func (t *Topic) keepsFinished() bool {
	return t.settings.DedupeWindow != 0 || t.settings.FinishedRetention != 0
}

// remembers tells whether the ID of a message is to be remembered when it finishes, whatever its topic says. Called with mu held.
func (x *Index) remembers(st *punctual.Settlement) bool {
	if x.remembering == 0 {
		return false
	}
	m := x.holder(st)
	return m != nil && m.remembers
}

// holder returns the message that a settlement's token is current for, or nil (P4). Called with mu held.
func (x *Index) holder(st *punctual.Settlement) *message {
	m := x.leased[st.Token]
	if m == nil || m.id != st.ID || m.topic.Name != st.Topic {
		return nil
	}
	return m
}

// Held is a message under a lease, or with one that ran out.
type Held struct {
	Topic     *Topic
	ID        string
	Lease     record.Lease
	Cancelled bool // no attempt is to follow the lease
}

// Holder tells which message a settlement's token is current for (P4).
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
	return Held{Topic: m.topic, ID: m.id, Lease: m.lease, Cancelled: m.cancelled}
}
