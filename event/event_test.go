package event

import (
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

func TestParseEvent(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	for body, want := range map[string]Event{
		`{"event":"dead","topic":"orders","id":"A-17","reason":"attempts used up","attempt":10,"at":1795176000123,"created":1,"first_due":2,"due":3,"delivered":4}`: {
			Event: punctual.EventDead, Topic: "orders", ID: "A-17", Reason: punctual.ReasonAttemptsUsedUp, Attempt: 10, At: at(1795176000123), Created: at(1), FirstDue: at(2), Due: at(3), Delivered: at(4),
		},
		`{"event":"cancelled","topic":"a:1/x","id":"\"\\","attempt":0,"at":0,"created":-5,"first_due":-4,"due":0,"later":{"x":1}}`: {
			Event: punctual.EventCancelled, Topic: "a:1/x", ID: `"\`, At: at(0), Created: at(-5), FirstDue: at(-4), Due: at(0),
		},
		`{"event":"skipped","topic":"reports","id":"daily~20261123T080000Z","at":9,"first_due":5,"due":7,"count":3,"why":"overlap"}`: {
			Event: punctual.EventSkipped, Topic: "reports", ID: "daily~20261123T080000Z", At: at(9), FirstDue: at(5), Due: at(7), Count: 3, Why: "overlap",
		},
	} {
		if got, err := Parse([]byte(body)); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v; want %+v", body, got, err, want)
		}
	}
	for body, want := range map[string]error{
		"": punctual.ErrInvalid, "paid": punctual.ErrInvalid, "null": punctual.ErrInvalid, "[]": punctual.ErrInvalid, "{}": punctual.ErrInvalid, `{"event":"dead"}`: punctual.ErrInvalid,
		`{"event":"dead","topic":"orders","id":"a"}`: punctual.ErrInvalid, `{"event":7,"topic":"orders","id":"a","at":1}`: punctual.ErrInvalid,
		`{"event":"folded","topic":"orders","id":"a","at":1}`: punctual.ErrUnsupported,
	} {
		if got, err := Parse([]byte(body)); !errors.Is(err, want) || got != (Event{}) {
			t.Errorf("%q is read as %+v, %v; want %v", body, got, err, want)
		}
	}
}
