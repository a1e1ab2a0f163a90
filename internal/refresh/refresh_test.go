package refresh

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A value is read again by the first use after the interval, once, and not before.
func TestGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(time.Second, 1, func(before int) int { return before + 1 })
		time.Sleep(time.Second - time.Nanosecond)
		if got := v.Get(); got != 1 {
			t.Errorf("within the interval: %d", got)
		}
		time.Sleep(time.Nanosecond)
		if first, second := v.Get(), v.Get(); first != 2 || second != 2 {
			t.Errorf("behind the interval: %d and %d", first, second)
		}
		time.Sleep(time.Hour)
		if got := v.Get(); got != 3 {
			t.Errorf("an hour later: %d", got)
		}
	})
}

// Callers that come at the same time, long after the last one, all wait for the one that reads:
// none gets what was read before.
func TestNobodyGetsWhatIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, reads := make(chan struct{}), 0
		v := New(time.Second, "old", func(string) string {
			reads++ // guarded by the turn
			<-release
			return "new"
		})
		time.Sleep(time.Minute)
		got := make(chan string, 10)
		for range cap(got) {
			go func() { got <- v.Get() }()
		}
		synctest.Wait() // one reads, the others wait
		if n := len(got); n > 0 {
			t.Errorf("%d callers did not wait; the first got %q", n, <-got)
		}
		close(release)
		synctest.Wait()
		for range len(got) {
			if value := <-got; value != "new" {
				t.Errorf("a caller got %q", value)
			}
		}
		if reads != 1 {
			t.Errorf("%d callers read; want one", reads)
		}
	})
}
