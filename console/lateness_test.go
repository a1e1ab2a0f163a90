package console

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/overview"
)

// delivered tells the console's observer of a delivery that was late by the duration late, and
// happened the duration ago before now.
func (r *rig) delivered(topic string, late, ago time.Duration) {
	r.t.Helper()
	ctx := overview.At(r.t.Context(), time.Now().Add(-ago))
	r.console.Observer().OnStart(ctx, &punctual.Delivery{Message: punctual.Message{Topic: topic, Due: noon}, Delivered: noon.Add(late)})
}

// wordsOf returns the text of a page without its tags, in one line.
func wordsOf(page string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
}

// The page says how late deliveries were, in all topics together and in each, the latest topic
// first. It also says how long a message has been ready by now.
func TestLateness(t *testing.T) {
	r := newRig(t, nil)
	if text := r.page("/lateness"); !strings.Contains(text, "does not know how late") || strings.Contains(text, "<figure") {
		t.Error("nobody counts, and the page does not say so")
	}
	r.push("told@events", "e", 0) // an event that nobody has read yet is not late
	r.clock.Advance(time.Second)
	r.push("waits", "a", 0)
	r.clock.Advance(42 * time.Second)
	for n := range 200 {
		r.delivered("quick", 3*time.Millisecond, time.Duration(n%50)*time.Minute)
	}
	for range 3 {
		r.delivered("slow", 1900*time.Millisecond, 5*time.Minute)
		r.delivered("yesterday", 90*time.Second, 5*time.Hour)
	}
	page := wordsOf(r.page("/lateness"))
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(page, "in waits") && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		page = wordsOf(r.page("/lateness")) // until the store has answered how long messages have been ready
	}
	for _, want := range []string{
		"Deliveries 203 Later than 1 s 3 median 5 ms 99 of 100 1.9 s latest 1.9 s", "Ready for longest by now: 42 s, in waits",
		"slow median 1.9 s · 99 of 100 1.9 s · latest 1.9 s 3 over 1 s", "slow 3 3 1.9 s 1.9 s 1.9 s", "quick 200 0 3 ms 3 ms 3 ms",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
	if strings.Contains(page, "yesterday") || strings.Index(page, "slow") > strings.Index(page, "quick") {
		t.Error("the hour has what is older, or the latest topic is not the first")
	}
	day := wordsOf(r.page("/lateness?span=24h"))
	if !strings.Contains(day, "Deliveries 206") || !strings.Contains(day, "yesterday 3 3 1 min 30 s") || strings.Index(day, "yesterday") > strings.Index(day, "slow") {
		t.Errorf("the day is %s", day)
	}
	one := r.page("/lateness?topic=slow")
	if text := wordsOf(one); !strings.Contains(text, "Deliveries 3 ") || strings.Contains(text, "quick") || strings.Contains(text, "42 s") {
		t.Errorf("the page of one topic is %s", text)
	}
	if !strings.Contains(r.page("/fragment/lateness?topic=slow"), "1.9 s") || !strings.Contains(one, `data-from="/fragment/lateness?topic=slow"`) {
		t.Error("the page of one topic is not renewed")
	}
	if text := r.page("/"); !strings.Contains(text, `href="/lateness"`) {
		t.Error("the page Now does not lead to it")
	}
}

// A reader who may inspect some topics sees the numbers of those topics, and no sum of all topics.
func TestLatenessOfSomeTopics(t *testing.T) {
	r := newRig(t, &Options{Authenticate: who(access.Grant{Actions: access.All, Topics: "mine"})})
	r.push("theirs", "a", 0)
	r.clock.Advance(time.Minute)
	r.delivered("mine", time.Second, 0)
	r.delivered("theirs", 2*time.Hour, 0)
	if text := wordsOf(r.page("/lateness")); strings.Contains(text, "theirs") || strings.Contains(text, "2 h") || strings.Contains(text, "Deliveries 2") || !strings.Contains(text, "mine 1 0 1 s") {
		t.Errorf("the page is %s", text)
	}
}

// The line of the promise is below the point of a lateness that breaks the promise, and above the
// point of one that keeps it.
func TestHeightsOfLateness(t *testing.T) {
	h := heightsFor(100, 0, overview.Traffic{Max: time.Minute})
	kept, promise, broken, most := h.of(900*time.Millisecond), h.of(overview.PromptLimit), h.of(2*time.Second), h.of(time.Minute)
	if !(100 > kept && kept > promise && promise > broken && broken > most && most == 10) || h.of(0) != 100 {
		t.Errorf("%v %v %v %v", kept, promise, broken, most)
	}
	f := &frame{call: &call{look: look{language: &language{texts: map[string]string{"unit.s": "{0} s", "unit.ms": "{0} ms", "unit.min": "{0} min"}}}}}
	for d, want := range map[time.Duration]string{
		time.Second: "1 s", 1001 * time.Millisecond: "1.1 s", 2 * time.Second: "2 s", 9950 * time.Millisecond: "10 s", 12500 * time.Millisecond: "12 s", 999 * time.Millisecond: "999 ms",
	} {
		if got := f.Lateness(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// Only the mostSmall latest topics have a small curve; the table has all topics.
func TestManyTopicsAreLate(t *testing.T) {
	r := newRig(t, nil)
	for n := range mostSmall + 10 {
		r.delivered(fmt.Sprintf("t%02d", n), time.Duration(n+2)*time.Second, 0)
	}
	page := r.page("/lateness")
	if small, rows := strings.Count(page, `class="chart small"`), strings.Count(page, `<th scope="row" class="id">`); small != mostSmall || rows != mostSmall+10 {
		t.Errorf("%d small pictures, %d rows", small, rows)
	}
}

// The Now page says that the store's clock is ahead of the one that it follows, and for a day that
// it has stepped back.
func TestNowSaysHowTheClockStands(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "x", time.Hour)
	r.clock.Advance(time.Hour)
	if _, err := r.store.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(-time.Hour)
	if c, err := r.store.Clock(t.Context()); err != nil || c.Ahead != time.Hour {
		t.Fatalf("this test shows nothing: %+v, %v; want a clock that is an hour ahead", c, err)
	}
	wants := func(want string) {
		t.Helper()
		page := ""
		fresh := rigOver(t, r.store, r.store, r.clock, nil) // because a console asks the store for this twice a minute
		for end := time.Now().Add(20 * time.Second); !strings.Contains(page, want) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			page = fresh.page("/")
		}
		if !strings.Contains(page, want) {
			t.Errorf("no %q on the page:\n%s", want, page)
		}
	}
	wants("clock: 1h0m0s ahead of that of the machine. ")
	if _, err := r.store.StepClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants("clock steps: 1, the last one back from 2026-11-22T13:00:00Z to 2026-11-22T12:00:00Z. ")
}
