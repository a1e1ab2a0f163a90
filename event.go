package punctual

import (
	"strings"
)

// Events is a set of things that can happen to a message. Settings.Emit says of which a topic
// tells.
type Events uint16

// What can happen to a message, as far as a topic can tell of it. Purging, deleting and replacing a
// message is no event, and neither is the end of the time for which a dead one is kept.
const (
	// EventAcked: the message was acked.
	EventAcked Events = 1 << iota
	// EventDead: the message is dead. Event.Reason says why.
	EventDead
	// EventCancelled: the message was cancelled and will not be delivered any more. Where the
	// cancel came under a lease, the event comes when the lease has ended.
	EventCancelled
	// EventExpired: the message was dropped because it had expired (NewMessage.DropExpired).
	EventExpired
	// EventPushed: a message was stored by a push, also in the place of another one, or as a
	// follow-up.
	EventPushed
	// EventRetried: an attempt has failed, and the message is to be delivered again (SettleRetry).
	EventRetried
	// EventMissed: times of a schedule of the topic were not stored, because no duty got to them in
	// time (Schedule.Missed).
	EventMissed
	// EventSkipped: times of a schedule of the topic were left out on purpose. Event.Why says by
	// what.
	EventSkipped
)

// eventNames are the names of the bits of Events, from the lowest one.
var eventNames = [...]string{"acked", "dead", "cancelled", "expired", "pushed", "retried", "missed", "skipped"}

// String returns the names of the events with commas between them, such as "acked,dead", or "none".
// Bits without a meaning are left out.
func (e Events) String() string {
	var names []string
	for i, name := range eventNames {
		if e&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

// ParseEvents is the inverse of Events.String: it returns the events whose names stand in text with
// commas between them, in any order; "none" is none. Any other text is an ErrInvalid.
func ParseEvents(text string) (Events, error) {
	if text == "none" {
		return 0, nil
	}
	var events Events
	for name := range strings.SplitSeq(text, ",") {
		e := eventOf(name)
		if e == 0 {
			return 0, invalidf("event %q: use %s with commas between them, or none", name, strings.Join(eventNames[:], ", "))
		}
		events |= e
	}
	return events, nil
}

// eventOf returns the event with the name, or 0.
func eventOf(name string) Events {
	for i, known := range eventNames {
		if known == name {
			return 1 << i
		}
	}
	return 0
}
