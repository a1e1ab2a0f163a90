package lifecycle

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// Event returns the event that a decision is, or 0 for none: a message that finishes or dies is
// one, and so is a retry. A message that is removed is none.
func (d Decision) Event() punctual.Events {
	switch {
	case d.To == Dead:
		return punctual.EventDead
	case d.To == Waiting && d.Failed: // a snooze and a release fail no attempt, and a lease that ran out keeps its message leased
		return punctual.EventRetried
	case d.To != Finished:
		return 0
	}
	switch d.Outcome {
	case punctual.OutcomeAcked:
		return punctual.EventAcked
	case punctual.OutcomeCancelled:
		return punctual.EventCancelled
	case punctual.OutcomeExpired:
		return punctual.EventExpired
	}
	return 0
}

// Event returns what the topic of the message tells of the decision d, and whether it tells of it
// (Settings.Emit). The facts are those that the deciding function has left. delivered is when the
// last lease of the message began, 0 if the store does not know. Topic, ID and Created of the event
// are the caller's, who then stores the storekit.EventMessage.
func (m *Message) Event(d Decision, set *punctual.Settings, delivered, now int64) (e event.Event, tell bool) {
	if e, tell = m.event(d.Event(), set, now); !tell {
		return e, false
	}
	leased := d.Failed || d.To == Finished && m.Token != 0
	if leased && delivered != 0 {
		e.Delivered = storekit.FromMillis(delivered)
	}
	return e, true
}

// PushEvent is Event for a message that was stored by a push or as a follow-up.
func (m *Message) PushEvent(set *punctual.Settings, now int64) (e event.Event, tell bool) {
	return m.event(punctual.EventPushed, set, now)
}

func (m *Message) event(kind punctual.Events, set *punctual.Settings, now int64) (e event.Event, tell bool) {
	if kind&set.Emit == 0 {
		return e, false
	}
	return event.Event{
		Event: kind, Reason: m.Reason, Attempt: m.Attempts, At: storekit.FromMillis(now),
		FirstDue: storekit.FromMillis(m.FirstDue), Due: storekit.FromMillis(m.Due),
	}, true
}
