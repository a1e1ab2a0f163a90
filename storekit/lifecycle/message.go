package lifecycle

import (
	"cmp"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// Message is the facts of a stored message on which its life depends. A store embeds it in what it
// keeps of a message.
type Message struct {
	// Due is when the next attempt is due; FirstDue is the due time of the push, or of the last
	// reschedule or requeue.
	Due, FirstDue int64
	// Since is when the time that the message waits for was set by a length: for a leased message
	// when its lease was granted or last extended, for a waiting one when the delay began at whose
	// end it is due. 0 stands for a due time that somebody named, as NewMessage.Due does. Step
	// reads it.
	Since int64
	// ExpireAfter is how long after FirstDue the message expires; 0 is never. See Expires.
	ExpireAfter int64
	DropExpired bool // an expired message is dropped instead of becoming dead
	// Remember is how long the ID is remembered when the message finishes; 0 follows the topic's
	// DedupeWindow.
	Remember int64
	// Attempts counts the deliveries since the push or the last requeue that were not given back;
	// MaxAttempts bounds them, and 0 follows the topic's setting.
	Attempts, MaxAttempts int
	// Token is that of the last lease, and LeaseUntil its end. They stay when the lease runs out,
	// because its holder may still settle unless a claim or a change by ID comes first. Token 0
	// means that there is no lease; LeaseUntil is 0 then.
	Token, LeaseUntil int64
	CancelRequested   bool // no attempt may follow the lease (P5); never without a token
	// Reason and Died are set of a dead message alone. A dead message has no token.
	Reason punctual.DeathReason
	Died   int64
}

// New returns the facts of a message that is pushed at now and due at due.
func New(n *punctual.NewMessage, due, now int64) Message {
	return Message{
		Due: due, FirstDue: due, Since: since(n.Due, now), ExpireAfter: storekit.CeilDuration(n.ExpireAfter), DropExpired: n.DropExpired,
		Remember: storekit.CeilDuration(n.Remember), MaxAttempts: n.MaxAttempts,
	}
}

// Fill sets those fields of a public message that depend on the facts. ID, topic, body, headers,
// timeout and the time of creation are the caller's.
func (m *Message) Fill(out *punctual.Message) {
	out.Due, out.FirstDue = storekit.FromMillis(m.Due), storekit.FromMillis(m.FirstDue)
	out.Attempt, out.MaxAttempts = m.Attempts, m.MaxAttempts
	out.DropExpired, out.Remember = m.DropExpired, time.Duration(m.Remember)*time.Millisecond
	out.Expires = time.Time{}
	if at, ok := m.Expires(); ok {
		out.Expires = storekit.FromMillis(at)
	}
}

// At is when a message next needs attention: the end of its lease, else its due time. For a dead
// message, which needs none, At is when it died. Stores order messages by it.
func (m *Message) At() int64 {
	switch {
	case m.Reason != "":
		return m.Died
	case m.Token != 0:
		return m.LeaseUntil
	}
	return m.Due
}

// State is the state of a message at now. A lease that ends at now has run out. Whether a dead
// message is past its retention is not asked here; see PastRetention.
func (m *Message) State(now int64) punctual.State {
	switch {
	case m.Reason != "":
		return punctual.StateDead
	case m.At() <= now:
		return punctual.StateReady
	case m.Token != 0:
		return punctual.StateLeased
	}
	return punctual.StateScheduled
}

// Expires returns the instant from which the message must not be delivered any more, and whether
// there is one. It never passes limits.MaxDue by more than a millisecond, since nothing can be due
// after that. A retry or snooze does not move it.
func (m *Message) Expires() (at int64, ok bool) {
	if m.ExpireAfter <= 0 {
		return 0, false
	}
	return min(m.FirstDue+m.ExpireAfter, limits.MaxDue.UnixMilli()+1), true
}

// Expired tells whether the message must not be delivered at now because it has expired.
func (m *Message) Expired(now int64) bool {
	at, ok := m.Expires()
	return ok && at <= now
}

// attemptsUsedUp tells whether as many attempts were made as the message allows, or else its topic
// (P6).
func (m *Message) attemptsUsedUp(set *punctual.Settings) bool {
	return m.Attempts >= cmp.Or(m.MaxAttempts, set.MaxAttempts)
}

// since returns Message.Since for a due time: 0 if somebody named it, or now if a delay that begins
// now leads to it.
func since(named time.Time, now int64) int64 {
	if named.IsZero() {
		return now
	}
	return 0
}

// moveTo gives the message a new first due time; its expiry moves along.
func (m *Message) moveTo(due, since int64) { m.Due, m.FirstDue, m.Since = due, due, since }

// wait ends the lease or the death of the message, and lets it wait for its due time.
func (m *Message) wait() Decision {
	m.Token, m.LeaseUntil, m.CancelRequested = 0, 0, false
	m.Reason, m.Died = "", 0
	return Decision{To: Waiting}
}

// die gives up on the message.
func (m *Message) die(reason punctual.DeathReason, now int64) Decision {
	m.Token, m.LeaseUntil, m.CancelRequested = 0, 0, false
	m.Reason, m.Died = reason, now
	return Decision{To: Dead}
}

func finished(how punctual.Outcome) Decision { return Decision{To: Finished, Outcome: how} }

// failed is the decision d, of a message whose attempt has failed.
func (d Decision) failed(attempt int, now int64, text string) Decision {
	d.Failed = true
	d.Failure = punctual.Failure{Attempt: attempt, At: storekit.FromMillis(now), Error: storekit.TrimError(text)}
	return d
}
