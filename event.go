package punctual

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Events is a set of things that can happen to a message. Settings.Emit says of which a topic tells.
type Events uint16

// What can happen to a message, as far as a topic can tell of it. Purging, deleting and replacing a message is no event, and
// neither is the end of the time for which a dead one is kept.
const (
	// EventAcked: the message was acked.
	EventAcked Events = 1 << iota
	// EventDead: the message is dead. Event.Reason says why.
	EventDead
	// EventCancelled: the message was cancelled and will not be delivered any more. Where the cancel came under a lease, the
	// event comes when the lease has ended.
	EventCancelled
	// EventExpired: the message was dropped because it had expired (NewMessage.DropExpired).
	EventExpired
	// EventPushed: a message was stored by a push, also in the place of another one, or as a follow-up.
	EventPushed
	// EventRetried: an attempt has failed, and the message is to be delivered again (SettleRetry).
	EventRetried
	// EventMissed: times of a schedule of the topic were not stored, because no duty got to them in time (Schedule.Missed).
	EventMissed
	// EventSkipped: times of a schedule of the topic were left out on purpose. Event.Why says by what.
	EventSkipped
)

// eventNames are the names of the bits of Events, from the lowest one.
var eventNames = [...]string{"acked", "dead", "cancelled", "expired", "pushed", "retried", "missed", "skipped"}

// AllEvents are all events that there are.
const AllEvents = EventAcked | EventDead | EventCancelled | EventExpired | EventPushed | EventRetried | EventMissed | EventSkipped

// String returns the names of the events with commas between them, such as "acked,dead", or "none". Bits without a meaning are
// left out.
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

// ParseEvents is the inverse of Events.String: it returns the events whose names stand in text with commas between them, in any
// order; "none" is none. Any other text is an ErrInvalid.
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

// Event is what a message of the companion T@events tells about a message of the topic T: see Settings.Emit and ParseEvent. It
// has neither the body of that message nor the texts of its failures.
type Event struct {
	// Event is what happened: one of the Events.
	Event Events
	// Topic and ID name the message to which it happened.
	Topic, ID string
	// Reason says why the message is dead, beside EventDead alone.
	Reason DeathReason
	// Attempt is the number of attempts that were made by then.
	Attempt int
	// At is the time of the event by the store's clock.
	At time.Time
	// Created is when the message was pushed, FirstDue when it was due for the first time, and Due the due time that it had at the
	// event: of the attempt that the event ended, or of the next attempt. Beside EventRetried, Due is when the next attempt is due.
	Created, FirstDue, Due time.Time
	// Delivered is when the last attempt began. It is zero when the message never had a lease, or had given it back before the
	// event. A store that was opened anew under the lease may have lost it.
	Delivered time.Time
	// Count, beside EventMissed and EventSkipped alone, is how many times of a schedule the event tells of. FirstDue is the first
	// of these times and Due the last one, to which ID would have belonged.
	Count int64
	// Why, beside EventSkipped alone, is overlap, skipped or paused: the schedule.OccurrenceStatus of the times.
	Why string
}

// eventBody is an Event as the body of a message. Package storekit writes the same.
type eventBody struct {
	Event     string      `json:"event"`
	Topic     string      `json:"topic"`
	ID        string      `json:"id"`
	Reason    DeathReason `json:"reason"`
	Attempt   int         `json:"attempt"`
	At        *int64      `json:"at"`
	Created   *int64      `json:"created"`
	FirstDue  *int64      `json:"first_due"`
	Due       *int64      `json:"due"`
	Delivered *int64      `json:"delivered"`
	// Count and Why are members of the events of schedules, which a Scheduler writes and no store.
	Count int64  `json:"count"`
	Why   string `json:"why"`
}

// ParseEvent returns the event that the body of a message of a companion events tells of: the object
//
//	{"event":"dead","topic":"orders","id":"A-17","reason":"discarded","attempt":2,"at":1795176000000,
//	 "created":…,"first_due":…,"due":…,"delivered":…}
//
// with times in Unix milliseconds. Only a dead event has a reason, and delivered is there only where Event.Delivered is not zero.
// The events missed and skipped have count in the place of attempt, created and delivered, and skipped has why as well.
// ParseEvent passes over members that it does not know, because a later release may add some. A body that is no event, such
// as that of a message which somebody has pushed into the companion, is an ErrInvalid; an event with a name that this
// release does not know is an ErrUnsupported.
func ParseEvent(body []byte) (Event, error) {
	var b eventBody
	if err := json.Unmarshal(body, &b); err != nil {
		return Event{}, fmt.Errorf("body is no event: %w: %w", ErrInvalid, err)
	}
	if b.Event == "" || b.Topic == "" || b.ID == "" || b.At == nil {
		return Event{}, invalidf("body is no event: event, topic, id or at is missing")
	}
	e := Event{
		Event: eventOf(b.Event), Topic: b.Topic, ID: b.ID, Reason: b.Reason, Attempt: b.Attempt, At: instantOf(b.At),
		Created: instantOf(b.Created), FirstDue: instantOf(b.FirstDue), Due: instantOf(b.Due), Delivered: instantOf(b.Delivered),
		Count: b.Count, Why: b.Why,
	}
	if e.Event == 0 {
		return Event{}, errorf(ErrUnsupported, "event %q of a newer program", b.Event)
	}
	return e, nil
}

// instantOf returns the time of Unix milliseconds, or the zero Time for nil.
func instantOf(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms).UTC()
}
