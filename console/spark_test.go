package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
)

// The heights of the lines of a topic are in proportion to the counts, and the numbers beside the
// lines are the sums of the counts.
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

// The table of topics shows the last hour of each topic for which something was counted. Without an
// observer the table has no such column.
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
	if !strings.Contains(text, "in 3, out 1, most ") || strings.Count(text, `class="in"`) != 1 || !strings.Contains(text, "Last hour") {
		t.Errorf("the page does not show what passed: %s", text)
	}
}

// The heights of the bars of a topic are in proportion to what is due, and hours that are over have
// no bars.
func TestSparksAhead(t *testing.T) {
	a := &overview.Ahead{Counts: []int64{4, 0, 2}, Edges: []time.Time{noon, noon.Add(time.Hour), noon.Add(2 * time.Hour), noon.Add(3 * time.Hour)}, Beyond: 1}
	if s := sparkAheadOf(a, noon); s.Sum != 6 || s.Most != 4 || s.Bars != "M0.5 20V2M2.5 20V11" || !s.Later {
		t.Errorf("%+v", s)
	}
	if s := sparkAheadOf(a, noon.Add(time.Hour)); s.Sum != 2 || s.Most != 2 || s.Bars != "M1.5 20V2" {
		t.Errorf("an hour later: %+v", s)
	}
	if s := sparkAheadOf(a, noon.Add(9*time.Hour)); s.Sum != 0 || s.Bars != "" {
		t.Errorf("much later: %+v", s)
	}
}

// The table of topics shows what falls due in each topic, and its renewals ask the store for at
// most one forecast per row and second.
func TestTopicsAhead(t *testing.T) {
	r, s := newCounted(t)
	for n := range pageRows + 20 {
		r.push(fmt.Sprintf("t%02d", n), "a", time.Duration(n+1)*time.Hour)
		r.push(fmt.Sprintf("t%02d", n), "b", time.Duration(n+1)*time.Hour)
	}
	r.push("late", "a", 0)
	began := time.Now()
	page := r.page("/topics")
	for end := time.Now().Add(2 * time.Minute); strings.Contains(page, "…") && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		page = r.page("/fragment/topics")
	}
	if bars, later := strings.Count(page, ">2, most 2/h<"), strings.Count(page, `<span class="none">later</span>`); bars != 47 || later != 2 {
		t.Errorf("%d topics have bars, %d are due later; 47 and 2 would be right: %s", bars, later, page)
	}
	for range 20 {
		r.page("/fragment/topics")
	}
	if most := int64(pageRows) * (1 + int64(time.Since(began)/time.Second)); s.forecasts.Load() > most {
		t.Errorf("%d forecasts; at most %d a second are needed", s.forecasts.Load(), pageRows)
	}
}
