package worker

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual/limits"
)

// TestClockBound: the bound is never before what the store's clock can show. Of two bounds the
// earlier one counts unless the clock was seen beyond it.
func TestClockBound(t *testing.T) {
	local, store := time.Now(), time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) // nothing is common to them but their speed
	after := func(d time.Duration) time.Time { return local.Add(d) }
	var b clockBound
	b.wall = func(t time.Time) time.Time { return t.Round(0) }
	want := func(what string, now, latest time.Duration) {
		t.Helper()
		if got := b.latestAt(after(now)).Sub(store); got != latest {
			t.Errorf("%s: after %v the store's clock shows at most %v, want %v", what, now, got, latest)
		}
	}
	if got := b.latestAt(local); !got.Equal(limits.MaxDue) {
		t.Errorf("a clock that was never seen shows at most %v", got)
	}
	b.observe(after(0), after(time.Second), store) // it showed 0 between 0 s and 1 s
	want("after one answer", time.Second, 1001*time.Millisecond+tick)
	want("it may be a thousandth faster", 1001*time.Second, time.Millisecond+1001*time.Second+1001*time.Millisecond)
	b.observe(after(2*time.Second), after(20*time.Second), store.Add(19*time.Second)) // after a long wait: says less
	want("the earlier bound counts", 20*time.Second, 20*time.Second+20*time.Millisecond+tick)
	b.observe(after(30*time.Second), after(30*time.Second), store.Add(29*time.Second)) // says more
	want("the earlier bound counts", 30*time.Second, 29*time.Second+tick)
	b.observe(after(31*time.Second), after(40*time.Second), store.Add(time.Hour)) // it was set forward
	want("after a step", 40*time.Second, time.Hour+9*time.Second+9*time.Millisecond+tick)
}
