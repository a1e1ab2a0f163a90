package storekit

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
)

func TestEventBody(t *testing.T) {
	at := func(ms int64) time.Time { return FromMillis(ms) }
	e := event.Event{
		Event: punctual.EventDead, Topic: "orders", ID: `A"17\<&>`, Reason: punctual.ReasonDiscarded, Attempt: 2,
		At: at(1795176000000), Created: at(-1), FirstDue: at(2), Due: at(3), Delivered: at(4),
	}
	const want = `{"event":"dead","topic":"orders","id":"A\"17\\<&>","reason":"discarded","attempt":2,"at":1795176000000,"created":-1,"first_due":2,"due":3,"delivered":4}`
	if got := EventBody(&e); string(got) != want {
		t.Errorf("the body is\n%s\nwant\n%s", got, want)
	}
	m := EventMessage(&e, EventID("0", 47), time.Hour)
	if err := CheckPush(&m, limits.DefaultMaxBody); err != nil || m.Topic != "orders@events" || m.ID != "0~000000000000002f" {
		t.Errorf("the message is %+v, %v", m, err)
	}
}

// TestEventBodyIsReadAgain: event.Parse reads what EventBody writes, whatever topic and ID are.
func TestEventBodyIsReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instant := func(name string) time.Time {
			return FromMillis(rapid.Int64Range(minDue, limits.MaxDue.UnixMilli()).Draw(t, name))
		}
		e := event.Event{
			Event: 1 << rapid.IntRange(0, 5).Draw(t, "event"),
			Topic: rapid.StringMatching(`[A-Za-z0-9._:/-]{1,128}`).Draw(t, "topic"), ID: rapid.StringMatching(`[ -~]{1,128}`).Draw(t, "id"),
			Attempt: rapid.IntRange(0, limits.MaxAttemptsLimit).Draw(t, "attempt"), At: instant("at"), Created: instant("created"),
			FirstDue: instant("first due"), Due: instant("due"),
		}
		if rapid.Bool().Draw(t, "leased") {
			e.Delivered = instant("delivered")
		}
		if e.Event == punctual.EventDead {
			e.Reason = punctual.ReasonExpired
		}
		got, err := event.Parse(EventBody(&e))
		if e.Delivered.Equal(time.Time{}) {
			e.Delivered = time.Time{}
		}
		if err != nil || got != e {
			t.Fatalf("%s is read as %+v, %v; want %+v", EventBody(&e), got, err, e)
		}
	})
}
