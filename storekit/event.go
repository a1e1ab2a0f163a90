package storekit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
)

// EventTopic returns the companion to which the events of a topic go: orders@events for orders, and
// also for orders@g.billing, the topic of a group.
func EventTopic(topic string) string {
	parent, _ := Companion(topic)
	return parent + EventSuffix
}

// EventID returns the ID of an event, such as 0~000000000000002f. The store takes number, which no
// other event has, from the counter that gives the leases of the EventTopic their tokens. So the
// IDs of events in one partition are in the order of the events. The text home has a few bytes and
// no "~". It is the stem of the ID, so that the store chooses by it the partition of the event,
// which is that of the message. It is "0" in a store that keeps each topic in one partition.
func EventID(home string, number int64) string { return fmt.Sprintf("%s~%016x", home, number) }

// EventBody returns the body of the message that tells of e. All stores write the same bytes for
// one event, which docs/format.md describes: the members of the object have a fixed order, there
// are no spaces between them, and only the bytes " and \ of an ID are escaped, each by a \ in
// front.
func EventBody(e *event.Event) []byte {
	b := make([]byte, 0, 256)
	text := func(name, value string) {
		b = append(append(append(b, `,"`...), name...), `":"`...)
		for i := range len(value) {
			if c := value[i]; c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, value[i])
		}
		b = append(b, '"')
	}
	number := func(name string, value int64) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = strconv.AppendInt(b, value, 10)
	}
	text("event", e.Event.String())
	text("topic", e.Topic)
	text("id", e.ID)
	if e.Reason != "" {
		text("reason", string(e.Reason))
	}
	number("attempt", int64(e.Attempt))
	number("at", Millis(e.At))
	number("created", Millis(e.Created))
	number("first_due", Millis(e.FirstDue))
	number("due", Millis(e.Due))
	if !e.Delivered.IsZero() {
		number("delivered", Millis(e.Delivered))
	}
	b[0] = '{' // in place of the first comma
	return append(b, '}')
}

// EventMessage returns the message that tells of e. It is due at once, by a delay of nothing, so
// that a step of the clock carries it over (lifecycle.Message.Since). It is dropped when nobody has
// taken it for keep, which is Settings.EmitKeep of the topic of e. A store stores it as a push
// would that replaces, in the same atomic step as the change that e tells of. It goes to
// EventTopic, which comes into being with it.
//
// A durable store calls SweepEvents from time to time (SweepEventsUntil), so that events which
// nobody reads do not accumulate for much longer than keep. Pauses make no difference to that.
func EventMessage(e *event.Event, id string, keep time.Duration) punctual.NewMessage {
	return punctual.NewMessage{
		Topic: EventTopic(e.Topic), ID: id, Body: EventBody(e), ExpireAfter: keep, DropExpired: true, IfExists: punctual.IfExistsReplace,
	}
}

// EventSuffix ends the name of a companion: orders@events has what orders tells of its messages
// (Settings.Emit).
const EventSuffix = "@events"
