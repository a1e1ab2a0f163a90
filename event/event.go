// Package event reads what a topic tells of its messages (punctual.Settings.Emit).
package event

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// All are all events that there are.
const All = punctual.EventAcked | punctual.EventDead | punctual.EventCancelled | punctual.EventExpired | punctual.EventPushed | punctual.EventRetried | punctual.EventMissed | punctual.EventSkipped

// Event is what a message of the companion T@events tells about a message of the topic T: see
// punctual.Settings.Emit and Parse. It has neither the body of that message nor the texts of its
// failures.
type Event struct {
	// Event is what happened: one of the Events.
	Event punctual.Events
	// Topic and ID name the message to which it happened.
	Topic, ID string
	// Reason says why the message is dead, beside EventDead alone.
	Reason punctual.DeathReason
	// Attempt is the number of attempts that were made by then.
	Attempt int
	// At is the time of the event by the store's clock.
	At time.Time
	// Created is when the message was pushed, FirstDue when it was due for the first time, and Due
	// the due time that it had at the event: of the attempt that the event ended, or of the next
	// attempt. Beside EventRetried, Due is when the next attempt is due.
	Created, FirstDue, Due time.Time
	// Delivered is when the last attempt began. It is zero when the message never had a lease, or
	// had given it back before the event. A store that was opened anew under the lease may have
	// lost it.
	Delivered time.Time
	// Count, beside EventMissed and EventSkipped alone, is how many times of a schedule the event
	// tells of. FirstDue is the first of these times and Due the last one, to which ID would have
	// belonged.
	Count int64
	// Why, beside EventSkipped alone, is overlap, skipped or paused: the schedule.OccurrenceStatus
	// of the times.
	Why string
}

// eventBody is an Event as the body of a message. Package storekit writes the same.
type eventBody struct {
	Event     string               `json:"event"`
	Topic     string               `json:"topic"`
	ID        string               `json:"id"`
	Reason    punctual.DeathReason `json:"reason"`
	Attempt   int                  `json:"attempt"`
	At        *int64               `json:"at"`
	Created   *int64               `json:"created"`
	FirstDue  *int64               `json:"first_due"`
	Due       *int64               `json:"due"`
	Delivered *int64               `json:"delivered"`
	// Count and Why are members of the events of schedules, which a Scheduler writes and no store.
	Count int64  `json:"count"`
	Why   string `json:"why"`
}

// Parse returns the event that the body of a message of a companion events tells of: the object
//
//	{"event":"dead","topic":"orders","id":"A-17","reason":"discarded","attempt":2,"at":1795176000000,
//	 "created":…,"first_due":…,"due":…,"delivered":…}
//
// with times in Unix milliseconds. Only a dead event has a reason, and delivered is there only
// where Event.Delivered is not zero. The events missed and skipped have count in the place of
// attempt, created and delivered, and skipped has why as well. Parse passes over members that it
// does not know, because a later release may add some. A body that is no event, such as that of a
// message which somebody has pushed into the companion, is an ErrInvalid; an event with a name that
// this release does not know is an ErrUnsupported.
func Parse(body []byte) (Event, error) {
	var b eventBody
	if err := json.Unmarshal(body, &b); err != nil {
		return Event{}, fmt.Errorf("body is no event: %w: %w", punctual.ErrInvalid, err)
	}
	if b.Event == "" || b.Topic == "" || b.ID == "" || b.At == nil {
		return Event{}, fmt.Errorf("body is no event: event, topic, id or at is missing: %w", punctual.ErrInvalid)
	}
	kind, err := punctual.ParseEvents(b.Event)
	if err != nil || kind == 0 || strings.Contains(b.Event, ",") {
		return Event{}, fmt.Errorf("event %q of a newer program: %w", b.Event, punctual.ErrUnsupported)
	}
	return Event{
		Event: kind, Topic: b.Topic, ID: b.ID, Reason: b.Reason, Attempt: b.Attempt, At: instantOf(b.At),
		Created: instantOf(b.Created), FirstDue: instantOf(b.FirstDue), Due: instantOf(b.Due), Delivered: instantOf(b.Delivered),
		Count: b.Count, Why: b.Why,
	}, nil
}

// instantOf returns the time of Unix milliseconds, or the zero Time for nil.
func instantOf(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms).UTC()
}
