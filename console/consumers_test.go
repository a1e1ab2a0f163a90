package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// The page of a topic shows its consumers, as Options.Consumers reports them, and sums up those for
// whom there is no room.
func TestConsumersOfATopic(t *testing.T) {
	var told storekit.Consumers
	var fails error
	r := newRig(t, &Options{Consumers: func(_ context.Context, topic string) (storekit.Consumers, error) {
		if topic != "t" {
			t.Errorf("asked for topic %q", topic)
		}
		return told, fails
	}})
	r.push("t", "a", time.Hour)
	told.Since = noon
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, "Nobody claims from this topic") {
		t.Error("nobody works, and the page does not say so")
	}
	told.All = []storekit.Consumer{{User: "shop", Address: "10.0.0.7", Name: "web-3\u202e", Leases: 12, Waiting: 3, NextEnd: noon.Add(30 * time.Second), Claimed: 500, Settled: 250}}
	for n := range 30 {
		told.All = append(told.All, storekit.Consumer{User: fmt.Sprint("u", n), Leases: 2})
	}
	text := r.page("/topics/t/consumers")
	for _, want := range []string{`shop web-3\u202E`, "10.0.0.7", `<td class="n">12</td>`, `<td class="n">100</td><td class="n">50</td>`, "u18", "others", `<td class="n">22</td>`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %s", want)
		}
	}
	if strings.Contains(text, "u19") {
		t.Error("more than the most are shown")
	}
	fails = fmt.Errorf("no: %w", punctual.ErrUnsupported)
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, "does not know who claims") {
		t.Error("nobody knows, and the page does not say so")
	}
}

// The pages of a topic with ready messages and of a ready message say why they wait: a pause,
// nobody who claims, or consumers that all hold leases while no claim is under way. They say
// nothing while a consumer is free, while nobody knows the consumers, and about a message that is
// not due.
func TestWhyItWaits(t *testing.T) {
	told := storekit.Consumers{Since: noon.Add(-time.Hour)}
	var fails error
	r := newRig(t, &Options{Consumers: func(context.Context, string) (storekit.Consumers, error) { return told, fails }})
	says := func(what, want string) {
		t.Helper()
		for _, path := range []string{"/topics/t", "/topics/t/messages/ready"} {
			if text := wordsOf(r.page(path)); strings.Contains(text, "Why it waits:") != (want != "") || !strings.Contains(text, want) {
				t.Errorf("%s: %s does not say %q: %s", what, path, want, text)
			}
		}
		if text := r.page("/topics/t/messages/later"); strings.Contains(text, "Why it waits") {
			t.Errorf("%s: a message that is not due waits", what)
		}
	}
	r.push("t", "later", time.Hour)
	if text := r.page("/topics/t"); strings.Contains(text, "Why it waits") {
		t.Error("a topic without ready messages waits")
	}
	r.push("t", "ready", 0)
	says("nobody", "Why it waits: Nobody claims from this topic through this process, which has looked since 2026-11-22 11:00:00 UTC.")
	told.All = []storekit.Consumer{{Name: "a", Leases: 3, NextEnd: noon.Add(time.Minute)}}
	says("one busy", "Why it waits: no claim is under way, and the only consumer holds leases, the first until 2026-11-22 12:01:00 UTC.")
	told.All = append(told.All, storekit.Consumer{Name: "b", Leases: 1, NextEnd: noon.Add(30 * time.Second)})
	says("two busy", "Why it waits: no claim is under way, and all 2 consumers hold leases, the first until 2026-11-22 12:00:30 UTC.")
	told.All[1].Waiting = 1
	says("one with a claim under way", "")
	told.All[1] = storekit.Consumer{Name: "b"}
	says("one without leases", "")
	fails = fmt.Errorf("no: %w", punctual.ErrUnsupported)
	says("nobody knows", "")
	r.configure("t", func(s *punctual.Settings) { s.DeliveryPaused = true })
	says("paused", "Why it waits: deliveries from this topic are paused.")
	for _, pause := range []string{"false", "true"} {
		r.clock.Advance(time.Minute)
		r.sent("/topics/t/pause", url.Values{"what": {"delivery"}, "pause": {pause}})
	}
	r.clock.Advance(time.Minute)
	r.sent("/topics/other/pause", url.Values{"what": {"delivery"}, "pause": {"true"}})
	says("paused in the console", "Why it waits: this machine has paused deliveries from this topic since 2026-11-22 12:02:00 UTC.")
	r.sent("/topics/t/pause", url.Values{"what": {"delivery"}, "pause": {"false"}})
	r.configure("t", func(s *punctual.Settings) { s.DeliveryPaused = true })
	says("paused by somebody whom the audit log does not know", "Why it waits: deliveries from this topic are paused.")
	r.configure("t", func(s *punctual.Settings) { s.DeliveryPaused, s.MaxLeases = false, 1 })
	r.push("t", "leased", 0, func(m *punctual.NewMessage) { m.Due = noon.Add(-time.Hour) })
	if ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 2}); err != nil || len(ds) != 1 || ds[0].ID != "leased" {
		t.Fatal(ds, err)
	}
	says("at its bound", "Why it waits: 1 of 1 messages of the topic are at work, which is as many as may be leased at once.")
	r.configure("t", func(s *punctual.Settings) { s.MaxLeases, s.Groups = 0, []string{"mail", "billing"} })
	says("copied first", "Why it waits: it is copied to the groups of the topic (mail, billing) first, which a process that does the duties has not done yet.")
}

// The pages of a topic with keys say what waits for them.
func TestItWaitsForItsKey(t *testing.T) {
	r := newRig(t, nil)
	for _, id := range []string{"first", "second", "third"} {
		r.push("calls", id, 0, func(m *punctual.NewMessage) { m.Key = "c7" })
	}
	for path, want := range map[string]string{
		"/topics/calls":                 "Why it waits: 2 ready messages wait for their keys.",
		"/topics/calls/messages/second": "Why it waits: others of its key c7 come first, or as many of them are at work as may be.",
	} {
		if text := wordsOf(r.page(path)); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q: %s", path, want, text)
		}
	}
	if text := wordsOf(r.page("/topics/calls/messages/first")); strings.Contains(text, "its key") {
		t.Errorf("the first of its key waits for it: %s", text)
	}
}

// A console that is mounted in a program shows how many leases the program's own handlers hold,
// once its Observer is told of their deliveries.
func TestConsumersOfThisProgram(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "a", time.Hour)
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, "does not know who claims") {
		t.Error("nobody is observed, and the page does not say so")
	}
	o := r.console.Observer()
	d := &punctual.Delivery{Message: punctual.Message{Topic: "t", ID: "a"}, Token: 7, Delivered: noon, LeaseUntil: noon.Add(time.Hour)}
	o.OnStart(t.Context(), d)
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, wire.OwnName()) || !strings.Contains(text, `<td class="n">1</td>`) {
		t.Errorf("the page does not show what a handler holds: %s", text)
	}
	o.OnSettle(t.Context(), punctual.Settlement{Topic: "t", ID: "a", Token: 7, Verb: punctual.SettleAck}, 0, nil)
	if c, err := r.console.tracker.Consumers(t.Context(), "t"); err != nil || c.All[0].Leases != 0 || c.All[0].Settled != 1 {
		t.Errorf("after its ack: %+v, %v", c, err)
	}
}
