package duties

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// TestPostponed: the delays of a message that is put off again and again are those of the backoff,
// one after the other.
func TestPostponed(t *testing.T) {
	start := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		backoff punctual.Backoff
		want    []time.Duration
	}{
		"doubling": {punctual.Backoff{Base: time.Second, Max: 5 * time.Second}, []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}},
		"list":     {punctual.Backoff{Delays: []time.Duration{time.Minute, time.Second, time.Hour}}, []time.Duration{60e9, 1e9, 3600e9, 3600e9}},
		"none":     {punctual.Backoff{}, []time.Duration{1e8, 1e8, 1e8}},
	} {
		d := &punctual.Delivery{Message: punctual.Message{Due: start, FirstDue: start}}
		for i, want := range c.want {
			got := Postponed(d, c.backoff)
			if got != want {
				t.Errorf("%s: delay %d is %v; want %v", name, i+1, got, want)
			}
			d.Due = d.Due.Add(got)
		}
	}
	// Jitter lengthens delays, and does not make the next one be skipped.
	d := &punctual.Delivery{Message: punctual.Message{Due: start.Add(1100 * time.Millisecond), FirstDue: start}}
	if got := Postponed(d, punctual.Backoff{Base: time.Second, Max: time.Hour, Jitter: 0.2}); got < 2*time.Second || got > 2400*time.Millisecond {
		t.Errorf("with jitter the second delay is %v", got)
	}
}
