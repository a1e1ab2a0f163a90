package console

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
)

// The lines of a topic have the height of what they count, and the numbers beside them are its sums.
func TestSparks(t *testing.T) {
	s := sparkOf([]overview.Traffic{{Pushes: 10, Deliveries: 0}, {Pushes: 5, Deliveries: 20}})
	if s.Pushes != 15 || s.Deliveries != 20 || s.Most != 20 {
		t.Errorf("%+v", s)
	}
	if s.In != "M0.5 10L1.5 14.5" || s.Out != "M0.5 19L1.5 1" {
		t.Errorf("in %s, out %s", s.In, s.Out)
	}
	if s := sparkOf(make([]overview.Traffic, 60)); s.Most != 0 || s.In != "" {
		t.Errorf("of an hour in which nothing passed: %+v", s)
	}
}

// The table of topics has the last hour of each that was counted. Without an observer it has no such column.
func TestSparksOfTopics(t *testing.T) {
	r := newRig(t, nil)
	r.push("counted", "a", time.Hour)
	r.push("quiet", "a", time.Hour)
	if text := r.page("/topics"); strings.Contains(text, "Last hour") {
		t.Errorf("nobody counts, and the page has a column for it: %s", text)
	}
	o := r.console.Observer()
	for range 3 {
		o.OnPush(t.Context(), punctual.PushResult{Topic: "counted", Status: punctual.PushStored}, time.Millisecond)
	}
	o.OnStart(t.Context(), &punctual.Delivery{Message: punctual.Message{Topic: "counted", Due: noon}, Delivered: noon})
	text := r.page("/topics")
	if !strings.Contains(text, "in 3, out 1, most ") || strings.Count(text, `<span class="spark">`) != 1 || !strings.Contains(text, "Last hour") {
		t.Errorf("the page does not show what passed: %s", text)
	}
}
