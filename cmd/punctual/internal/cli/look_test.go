package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

func TestCancel(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("push", "t", "x", "--id", "b").ok()
	r.claim("t", 1)
	r.run("cancel", "a", "--json").ok().prints(`{"id":"a","topic":"t","outcome":"cancelled"}` + "\n")
	r.run("cancel", "b", "--json").exits(exitUnwished).prints(`{"id":"b","topic":"t","outcome":"leased"}`+"\n").failsWith("leased", true)
	r.run("cancel", "a", "--json").exits(exitUnwished).prints(`{"id":"a","outcome":"not_found"}`+"\n").failsWith("not_found", true)
	r.run("cancel", "a", "b", "--topic", "t").exits(exitUnwished, "2 of 2 messages were not cancelled").prints("a not_found\nb leased\n")
	r.run("cancel", "a\x01").exits(exitUsage, "not printable")
	r.run("cancel", "a", "--topic", "a b").exits(exitUsage, `topic "a b"`)
	r.run("cancel").exits(exitUsage)
}

func TestCancelledIsNeverDelivered(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("push", "t", "x", "--id", "b", "--in", "1h").ok()
	r.run("cancel", "a").ok().prints("a cancelled\n")
	r.clock.Advance(time.Hour)
	if got := r.run("consume", "t", "--until-empty").ok(); strings.Contains(got.out, `"id":"a"`) {
		t.Errorf("P5: a cancelled message was delivered: %s", got.out)
	}
}

func TestAnIDInSeveralTopics(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("push", "u", "x", "--id", "a", "--in", "1h").ok()
	r.run("push", "u", "x", "--id", "b", "--in", "1h").ok()
	for _, args := range [][]string{{"cancel", "b", "a"}, {"reschedule", "b", "a", "--now"}, {"get", "a"}, {"dead", "requeue", "a"}} {
		r.run(args...).exits(exitUsage, `ID "a" is in the topics t, u: name one with --topic`).prints("")
	}
	if m := r.get("u", "b"); !m.Due.Equal(start.Add(time.Hour)) {
		t.Errorf("b was changed by a command that was refused: due %v", m.Due)
	}
	r.run("cancel", "a", "--topic", "u").ok()
	r.run("cancel", "a").ok()
}

func TestReschedule(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("reschedule", "a", "--in", "2h", "--json").ok().printsJSON(`{"id":"a","topic":"t","outcome":"rescheduled","due":"2026-11-20T12:00:00.000Z"}`)
	r.run("reschedule", "a", "--at", "2026-11-20T10:30:00.0005Z").ok().prints("a rescheduled, due 2026-11-20T10:30:00.001Z\n")
	r.run("reschedule", "a", "--now", "--topic", "t").ok().prints("a rescheduled, due 2026-11-20T10:00:00.000Z\n")
	r.claim("t", 1)
	r.run("reschedule", "a", "--in", "1h").exits(exitUnwished, "too late").prints("a leased\n")
	r.run("reschedule", "none", "--now", "--json").exits(exitUnwished).printsJSON(`{"id":"none","outcome":"not_found"}`)
	r.run("reschedule", "a").exits(exitUsage, "--in, --at or --now")
	r.run("reschedule", "a", "--now", "--in", "1h").exits(exitUsage, "use one")
	r.run("reschedule", "a", "--at", "10000-01-01T00:00:00Z").exits(exitUsage, "9999-12-31")
	r.run("reschedule", "a", "--at", "0001-01-01T00:00:00Z").exits(exitUsage, "--now")
}

func TestGet(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "hello", "--id", "a", "--in", "1h", "--expire", "1h", "--max-attempts", "2", "--header", "k=v").ok()
	r.run("get", "a", "--json").ok().printsJSON(`{"id":"a","topic":"t","state":"scheduled","body":"hello","headers":{"k":"v"},
		"due":"2026-11-20T11:00:00.000Z","first_due":"2026-11-20T11:00:00.000Z","created":"2026-11-20T10:00:00.000Z","attempt":0,"max_attempts":2,"expires":"2026-11-20T12:00:00.000Z"}`)
	r.run("get", "a").ok().contains("scheduled", "hello", "k=v")
	r.run("push", "t", "x\x1b[2J", "--id", "b").ok()
	r.run("get", "b").ok().contains("x�[2J")
	r.run("push", "t", "dead", "--id", "c", "--topic", "no").exits(exitUsage)
	r.run("get", "a", "none", "--json").exits(exitUnwished).failsWith("not_found", true).contains(`"id":"a"`)
	r.run("get", "a", "--topic", "other").exits(exitUnwished, "not found")
}

func TestGetOfTheDeadAndTheLeased(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	r.kill("t")
	r.run("get", "a", "--json").ok().printsJSON(`{"id":"a","topic":"t","state":"dead","body":"x","headers":{},
		"due":"2026-11-20T10:00:00.000Z","first_due":"2026-11-20T10:00:00.000Z","created":"2026-11-20T10:00:00.000Z","attempt":1,
		"died":"2026-11-20T10:00:00.000Z","reason":"discarded","failures":[{"attempt":1,"at":"2026-11-20T10:00:00.000Z","error":"no such customer"}]}`)
	r.run("get", "a").ok().contains("discarded", "1 at 2026-11-20T10:00:00.000Z: no such customer")
	r.run("push", "t", "x", "--id", "b").ok()
	r.claim("t", 1)
	r.run("cancel", "b").exits(exitUnwished)
	r.run("get", "b", "--json").ok().printsJSON(`{"id":"b","topic":"t","state":"leased","body":"x","headers":{},
		"due":"2026-11-20T10:00:00.000Z","first_due":"2026-11-20T10:00:00.000Z","created":"2026-11-20T10:00:00.000Z","attempt":1,"lease_until":"2026-11-20T10:00:30.000Z","cancel_requested":true}`)
	r.run("get", "b").ok().contains("no further attempt")
}

func TestListGoesThroughAllStates(t *testing.T) {
	r := newRig(t)
	for n, in := range []string{"0s", "1s", "2s", "1h", "2h", "3h"} {
		r.run("push", "t", "x", "--id", fmt.Sprint(n), "--in", in).ok()
	}
	r.kill("t")                  // 0 is dead
	r.clock.Advance(time.Second) // 1 is due
	r.claim("t", 1)              // 1 is leased
	r.clock.Advance(time.Second) // 2 is ready
	const want = "1 leased, 2 ready, 3 scheduled, 4 scheduled, 5 scheduled, 0 dead"
	if got, _ := listed(t, r.run("list", "t", "--json").ok()); got != want {
		t.Errorf("list: %s\nwant  %s", got, want)
	}
	for _, limit := range []string{"1", "2", "4", "5"} {
		var pages []string
		after := ""
		for range 10 {
			page, next := listed(t, r.run("list", "t", "--json", "--limit", limit, "--after", after).ok())
			if page != "" {
				pages = append(pages, page)
			}
			if after = next; after == "" {
				break
			}
		}
		if got := strings.Join(pages, ", "); got != want {
			t.Errorf("list in pages of %s: %s\nwant %s", limit, got, want)
		}
	}
	if got, _ := listed(t, r.run("list", "t", "--state", "scheduled", "--json").ok()); got != "3 scheduled, 4 scheduled, 5 scheduled" {
		t.Errorf("list --state scheduled: %s", got)
	}
	r.run("list", "t").ok().contains("ID", "leased", "2026-11-20T13:00:00.000Z", "no such customer")
	r.run("list", "t", "--limit", "2").exits(exitOK, "--after 't@scheduled@")
}

// Lists of companions, and of the dead messages of all topics, go on behind a page, whatever the
// companions are called.
func TestListOfCompanionsInPages(t *testing.T) {
	r := newRig(t)
	for _, topic := range []string{"orders", "orders@dead", "orders@g.mail", "orders@scheduled"} {
		for _, id := range []string{"x", "y"} {
			r.run("push", topic, "x", "--id", id).ok()
			r.kill(topic)
		}
		r.run("push", topic, "x", "--id", "z", "--in", "1h").ok()
	}
	pages := func(args ...string) string {
		t.Helper()
		var all []string
		for after := ""; ; {
			ids, next := listed(t, r.run(append(args, "--json", "--limit", "1", "--after", after)...).ok())
			if ids != "" {
				all = append(all, ids)
			}
			if after = next; after == "" || len(all) > 10 {
				return strings.Join(all, ", ")
			}
		}
	}
	for _, topic := range []string{"orders@dead", "orders@g.mail", "orders@scheduled"} {
		if got, want := pages("list", topic), "z scheduled, x dead, y dead"; got != want {
			t.Errorf("the pages of %s: %s, want %s", topic, got, want)
		}
	}
	if got, want := pages("dead", "list"), strings.TrimSuffix(strings.Repeat("x dead, y dead, ", 4), ", "); got != want {
		t.Errorf("the pages of all dead messages: %s, want %s", got, want)
	}
}

// listed returns the IDs and states of the messages in a list, and the cursor that continues it.
func listed(t *testing.T, r result) (ids, next string) {
	t.Helper()
	var parts []string
	for line := range strings.Lines(r.out) {
		m := decode(t, line).(map[string]any)
		parts = append(parts, fmt.Sprint(m["id"], " ", m["state"]))
		if n, ok := m["next"].(string); ok {
			next = n
		}
	}
	return strings.Join(parts, ", "), next
}

func TestListRefusesBadInput(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x").ok()
	r.run("list").exits(exitUsage)
	r.run("list", "t", "--state", "sleeping").exits(exitUsage, "scheduled, ready, leased or dead")
	r.run("list", "t", "--limit", "-1").exits(exitUsage, "limit -1")
	r.run("list", "t", "--after", "u@dead@x").exits(exitUsage, "not a cursor of this list")
	r.run("list", "none").exits(exitUnwished, "not found")
	r.run("list", "none", "--json").exits(exitUnwished).failsWith("not_found", true)
}

func TestTopicsAndStats(t *testing.T) {
	r := newRig(t)
	r.run("topics", "--json").ok().prints("")
	r.run("topics").exits(exitOK, "no topics\n").prints("")
	r.run("stats").exits(exitOK, "no topics\n").prints("")
	r.run("dead", "list").exits(exitOK, "no messages\n").prints("")
	r.run("push", "t", "x", "--in", "1h").ok()
	r.run("push", "u", "x", "--id", "a").ok()
	r.run("push", "u", "x", "--id", "b").ok()
	r.kill("u")
	r.run("topic", "pause", "u", "--push", "--delivery").ok()
	rules := func(paused bool) string { // all settings that there are, as JSON
		s := punctual.DefaultSettings()
		s.PushPaused, s.DeliveryPaused = paused, paused
		text, err := wire.Encode(wire.SettingsOf(s))
		if err != nil || !strings.Contains(string(text), `"backoff":"exp:1s..1h,jitter=0.2"`) {
			t.Fatalf("%s: %v", text, err)
		}
		return `"settings":` + string(text)
	}
	lineT := `{"topic":"t","scheduled":1,"ready":0,"leased":0,"dead":0,"next_due":"2026-11-20T11:00:00.000Z","push_paused":false,"delivery_paused":false,` + rules(false) + `}`
	lineU := `{"topic":"u","scheduled":0,"ready":1,"leased":0,"dead":1,"next_due":"2026-11-20T10:00:00.000Z","push_paused":true,"delivery_paused":true,` + rules(true) + `}`
	r.run("topics", "--json").ok().printsJSON(lineT, lineU)
	r.run("stats", "--json").ok().printsJSON(lineT, lineU)
	r.run("stats", "u", "--json").ok().printsJSON(lineU)
	r.run("stats").ok().contains("SCHEDULED", "total", "push and delivery")
	r.run("list", "t", "--state", "dead").exits(exitOK, "no messages\n").prints("")
	r.run("list", "t", "--state", "dead", "--json").ok().prints("")
	r.run("topics").ok().contains("u", "push and delivery", "2026-11-20T11:00:00.000Z")
	r.run("stats", "none", "--json").exits(exitUnwished).failsWith("not_found", true)
	r.run("stats", "a", "b").exits(exitUsage)
}

func TestForecast(t *testing.T) {
	r := newRig(t)
	for _, in := range []string{"0s", "10m", "70m", "80m", "1000h"} {
		r.run("push", "t", "x", "--in", in).ok()
	}
	r.run("push", "u", "x", "--in", "10m").ok()
	r.run("forecast", "t", "--buckets", "3", "--json").ok().printsJSON(`{"topic":"t","by":"hour","overdue":1,"beyond":1,"buckets":[
		{"from":"2026-11-20T10:00:00.000Z","count":1},{"from":"2026-11-20T11:00:00.000Z","count":2},{"from":"2026-11-20T12:00:00.000Z","count":0}]}`)
	r.run("forecast", "--by", "day", "--utc", "--buckets", "1", "--json").ok().printsJSON(`{"by":"day","overdue":1,"beyond":1,"buckets":[{"from":"2026-11-20T00:00:00.000Z","count":4}]}`)
	bars := strings.Split(r.run("forecast", "t", "--buckets", "3").ok().out, "\n")
	if len(bars) != 7 || strings.Count(bars[3], "█") <= strings.Count(bars[2], "█") || strings.Contains(bars[4], "█") {
		t.Errorf("bars do not follow the counts 1, 2, 0:\n%s", strings.Join(bars, "\n"))
	}
	for _, line := range bars {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("line of %d columns: %q", n, line)
		}
	}
	r.run("forecast", "--by", "year").exits(exitUsage, "minute, hour or day")
	r.run("forecast", "--buckets", "-1").exits(exitUsage, "--buckets -1: use 1 to 200")
	r.run("forecast", "--buckets", "201").exits(exitUsage, "use 1 to 200")
	r.run("forecast", "none").exits(exitUnwished, "not found")
}

// The steps of a forecast begin with a minute, an hour or a day of the time zone. One day of this
// test has 25 hours.
func TestForecastFollowsTheCalendar(t *testing.T) {
	r := newRig(t)
	r.env["TZ"] = "Europe/Berlin" // clocks are set back on 2027-10-31
	r.clock.Set(time.Date(2027, 10, 30, 9, 20, 30, 0, time.UTC))
	for _, due := range []string{
		"2027-10-30T09:59:59.999Z", "2027-10-30T10:00:00Z", "2027-10-30T21:59:59.999Z", // on Saturday
		"2027-10-30T22:00:00Z", "2027-10-31T22:59:59.999Z", // on Sunday, which has 25 hours
		"2027-10-31T23:00:00Z", // on Monday
		"2027-11-01T23:00:00Z",
	} {
		r.run("push", "t", "x", "--at", due).ok()
	}
	r.run("forecast", "--by", "day", "--buckets", "3", "--json").ok().printsJSON(`{"by":"day","overdue":0,"beyond":1,"buckets":[
		{"from":"2027-10-29T22:00:00.000Z","count":3},{"from":"2027-10-30T22:00:00.000Z","count":2},{"from":"2027-10-31T23:00:00.000Z","count":1}]}`)
	r.run("forecast", "--by", "day", "--buckets", "2").ok().contains("in local time", "2027-10-30  3", "2027-10-31  2")
	r.run("forecast", "--by", "day", "--utc", "--buckets", "1").ok().contains("in UTC", "2027-10-30  4")
	r.run("forecast", "--buckets", "2", "--json").ok().printsJSON(`{"by":"hour","overdue":0,"beyond":5,"buckets":[
		{"from":"2027-10-30T09:00:00.000Z","count":1},{"from":"2027-10-30T10:00:00.000Z","count":1}]}`)
	r.run("forecast", "--by", "minute", "--buckets", "1", "--json").ok().contains(`"from":"2027-10-30T09:20:00.000Z"`)
	r.run("forecast", "--by", "day", "--buckets", "200", "--json").ok().contains(`"beyond":0`)
}

func TestCheck(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--in", "1h").ok()
	r.run("push", "t", "x").ok()
	r.kill("t")
	r.run("check", "--json").ok().printsJSON(`{"topics":1,"live":1,"dead":1,"problems":[]}`)
	r.run("check").ok().contains("live messages 1", "no problems")
}

func TestVersion(t *testing.T) {
	if a, b := newRig(t).run("--version").ok(), newRig(t).run("version").ok(); a.out != b.out {
		t.Errorf("--version prints %q, version %q", a.out, b.out)
	}
	newRig(t).run("--version", "--json").ok().contains(`"platform"`)
	newRig(t).run("nonsense", "--version").exits(exitUsage, "nonsense")
	r := newRig(t)
	v := decode(t, r.run("version", "--json").ok().out).(map[string]any)
	if v["go"] == "" || v["platform"] == "" || v["version"] == "" {
		t.Errorf("version %v", v)
	}
	r.run("version").ok().contains("punctual ", "go1.")
}
