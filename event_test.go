package punctual_test

import (
	"errors"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
)

func TestEventsAreWrittenAndRead(t *testing.T) {
	for e := range event.All + 1 {
		got, err := punctual.ParseEvents(e.String())
		if err != nil || got != e {
			t.Errorf("%q is read as %q, %v", e, got, err)
		}
	}
	if got, err := punctual.ParseEvents("expired,dead,dead"); err != nil || got != punctual.EventDead|punctual.EventExpired {
		t.Errorf("events in another order: %q, %v", got, err)
	}
	for _, text := range []string{"", "dead,", ",dead", "Dead", "dead, acked", "none,dead", "dead,none", "all"} {
		if got, err := punctual.ParseEvents(text); !errors.Is(err, punctual.ErrInvalid) || got != 0 {
			t.Errorf("%q is read as %q, %v; want an punctual.ErrInvalid", text, got, err)
		}
	}
	if text := (event.All + 1).String(); text != "none" {
		t.Errorf("a bit without a meaning is written as %q", text)
	}
}
