package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/limits"
)

// scheduled is the JavaScript expression of the number of scheduled messages that the first page
// shows.
const scheduled = `document.querySelector("#live .numbers-row dd").textContent`

// When the store fails, a page that is open keeps its values, marked as old, and a page that is
// opened says what has failed. When the store answers again, pages can be opened again.
func TestStoreFails(t *testing.T) {
	s := newTroubled(openStore(t, stores()[0]))
	r := newRig(t, s, nil)
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour})
	for _, path := range []string{"/", "/topics", "/topics/t", "/topics/t/messages/a"} {
		s.set(0, false)
		r.open(path)
		shown := `document.querySelector("#live").innerText.includes("1") && !document.querySelector("#live").classList.contains("old")`
		r.until(path+" shows the values", shown)
		s.set(0, true)
		r.until(path+" says that its values are old", `document.querySelector("#live.old") !== null`)
		r.until(path+" greys its values", `[...document.querySelectorAll("#live *")].some(e => getComputedStyle(e).opacity === "0.5")`)
		if path == "/" && eval[string](r, scheduled) != "1" {
			t.Error("the old values are gone")
		}
		r.submit("nav a[data-key=t]")
		r.until(path+" leads to a page that says what failed and leads on", `location.pathname === "/topics" && document.body.innerText.includes("unreachable") && document.querySelectorAll("nav a").length > 5`)
		s.set(0, false)
		r.submit("nav a[data-key=t]")
		r.until("the topics are back", `document.querySelector("#live table.rows") !== null`)
	}
	if r.forgive() == 0 {
		t.Error("the browser saw no failure, so this test shows nothing")
	}
}

// An open page that the store answers again is no longer old.
func TestStoreComesBack(t *testing.T) {
	s := newTroubled(openStore(t, stores()[0]))
	r := newRig(t, s, nil)
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour})
	r.open("/")
	s.set(0, true)
	r.until("the values are old", `document.querySelector("#live.old") !== null`)
	s.set(0, false)
	r.push(punctual.NewMessage{Topic: "t", ID: "b", Delay: time.Hour})
	r.until("the values are new", `document.querySelector("#live.old") === null && `+scheduled+` === "2"`)
	r.forgive()
}

// A store that takes 2 s for each call is asked seldom, and its pages come.
func TestSlowStore(t *testing.T) {
	s := newTroubled(openStore(t, stores()[0]))
	r := newRig(t, s, nil)
	r.push(punctual.NewMessage{Topic: "t", ID: "a", Delay: time.Hour}, punctual.NewMessage{Topic: "t", ID: "b", Delay: time.Hour})
	s.set(2*time.Second, false)
	for _, path := range []string{"/", "/topics", "/topics/t", "/topics/t/messages/a", "/dead", "/find?id=a&stay=1"} {
		began := time.Now()
		r.open(path)
		t.Logf("%s of a store that takes 2 s for each call: %v", path, time.Since(began).Round(10*time.Millisecond))
	}
	r.open("/topics/t/messages/a")
	before := s.called()
	time.Sleep(10 * time.Second) // over a quick store the page would be renewed five times
	if n := s.called() - before; n > 8 {
		t.Errorf("an open page of a slow store made %d calls in 10 s", n)
	}
	r.do(clickOn(`section.do button[value=now]`))
	r.stored("the message is due", "t", "a", func(m punctual.Info) bool { return m.State == punctual.StateReady })
}

// For the day on which clocks go forward, the page Week marks the hour that does not exist, the
// page Ahead counts a day of 23 hours, and a time within the hour that does not exist is refused.
func TestClocksChange(t *testing.T) {
	berlin := must(time.LoadLocation("Europe/Berlin"))
	now := time.Date(2027, 3, 27, 22, 0, 0, 0, time.UTC) // clocks go from 2 to 3 in the next night
	r := newRig(t, openAt(t, now), &console.Options{Location: berlin})
	for n := range 48 {
		r.push(punctual.NewMessage{Topic: "t", ID: fmt.Sprint("m", n), Due: now.Add(time.Duration(n)*time.Hour + 30*time.Minute)})
	}
	r.open("/week?topic=t")
	r.until("the hour that is not there is marked", `document.querySelectorAll("table.week td.lacking").length === 1`)
	if n := eval[int](r, `[...document.querySelectorAll("table.week tbody tr")].findIndex(tr => tr.querySelector("td.lacking"))`); n != 1 {
		t.Errorf("the hour is lacking on day %d from today; want the next", n)
	}
	r.open("/")
	r.until("the days are counted", `document.querySelectorAll('details.numbers:has(a[href*="span=90d"]) tbody tr').length >= 2`)
	rows := eval[string](r, `[...document.querySelectorAll('details.numbers:has(a[href*="span=90d"]) tbody tr')].map(tr => tr.textContent.trim().replace(/\s+/g, " ")).join("|")`)
	if !strings.Contains(rows, "2027-03-28") || !strings.Contains(strings.Split(rows, "|")[1], "23") {
		t.Errorf("the day of 23 hours does not have the 23 messages that are due in it: %s", rows)
	}
	r.open("/topics/t/messages/m5")
	r.fill(`section.do input[name=at]`, "2027-03-28T02:30:00")
	r.submit(`section.do label:has(input[name=at]) ~ button`)
	r.until("the time that there is not is refused", `document.querySelector(".problem") !== null && document.querySelector(".problem").innerText.includes("02:30")`)
	r.forgive()
	r.open("/topics/t/messages/m5")
	r.fill(`section.do input[name=at]`, "2027-03-28T03:30:00")
	r.submit(`section.do label:has(input[name=at]) ~ button`)
	r.stored("the message is due half an hour after clocks changed", "t", "m5", func(m punctual.Info) bool {
		return m.Due.Equal(time.Date(2027, 3, 28, 1, 30, 0, 0, time.UTC))
	})
	r.open("/topics/t?state=scheduled")
	r.fill(`form.filter input[name=from]`, "2027-03-28T00:00:00")
	r.fill(`form.filter input[name=to]`, "2027-03-29T00:00:00")
	r.submit(`form.filter button`)
	if n := eval[int](r, `document.querySelectorAll("table.rows tbody tr").length`); n != 23 {
		t.Errorf("the day has %d messages; want 23", n)
	}
}

// The number of elements and rows on a page is bounded, however many messages there are.
func TestManyMessages(t *testing.T) { overStores(t, manyMessages) }

func manyMessages(t *testing.T, s punctual.Store) {
	r := newRig(t, s, nil)
	live := make([]punctual.NewMessage, *pending)
	for n := range live {
		live[n] = punctual.NewMessage{Topic: fmt.Sprintf("t%d", n%7), Delay: time.Minute + time.Duration(n%100_000)*time.Second, Body: []byte(`{"n":1}`)}
	}
	dead := make([]punctual.NewMessage, *pending/10)
	for n := range dead {
		dead[n] = punctual.NewMessage{Topic: "failed"}
	}
	began := time.Now()
	r.push(live...)
	r.push(dead...)
	for n := len(dead); n > 0; n -= min(n, limits.MaxBatch) {
		r.kill("failed", fmt.Sprintf("the endpoint answered %d", 500+n/limits.MaxBatch%4), min(n, limits.MaxBatch))
	}
	t.Logf("%d messages are stored and %d are dead after %v", len(live), len(dead), time.Since(began).Round(time.Second))
	for _, path := range []string{"/", "/", "/week", "/topics", "/topics/t1", "/topics/t1?span=90d", "/topics/t1/settings", "/topics/t1/events", "/topics/t1/schedules", "/topics/t1/bulk", "/schedules", "/topics/t1?state=scheduled&prefix=none", "/dead", "/topics/failed?state=dead", "/find?topic=t1&state=scheduled&name=none&value=x", "/audit"} {
		began := time.Now()
		r.open(path)
		took := time.Since(began)
		nodes, rows := eval[int](r, `document.querySelectorAll("*").length`), eval[int](r, `document.querySelectorAll("table.rows tbody tr").length`)
		t.Logf("%s with %d messages: %v to load, %d elements, %d rows", path, *pending, took.Round(time.Millisecond), nodes, rows)
		if nodes > 6000 || rows > 100 {
			t.Errorf("%s has %d elements and %d rows", path, nodes, rows)
		}
	}
	r.open("/")
	r.until("all is counted", `document.querySelectorAll("#live figure.chart").length === 3`)
	r.open("/topics/t1?state=scheduled")
	for range 3 {
		r.submit(`nav.pager a[rel=next]`)
		if n := eval[int](r, `document.querySelectorAll("table.rows tbody tr").length`); n != 50 {
			t.Fatalf("a further page has %d rows", n)
		}
	}
}
