package top

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// screenOf is top on the rig's store, without a terminal: what it runs is carried out at once.
type screenOf struct {
	*model
	r       *rig
	results []tea.Msg
}

// start is where the rig's clock stands first.
var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// rig is a store in memory with a clock that the test moves.
type rig struct {
	*memstore.Store
	t     *testing.T
	clock *storekit.ManualClock
	// consumers, if not nil, is what the store knows of consumers.
	consumers *storekit.Consumers
}

func newRig(t *testing.T) *rig {
	t.Helper()
	clock := storekit.NewManualClock(start)
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() { s.Close() })
	return &rig{Store: s, t: t, clock: clock}
}

// Consumers implements storekit.ConsumerReporter.
func (r *rig) Consumers(context.Context, string) (storekit.Consumers, error) {
	if r.consumers == nil {
		return storekit.Consumers{}, fmt.Errorf("this store does not know who claims: %w", punctual.ErrUnsupported)
	}
	return *r.consumers, nil
}

// get returns a stored message.
func (r *rig) get(topic, id string) punctual.Info {
	r.t.Helper()
	m, err := r.Get(r.t.Context(), topic, id)
	if err != nil {
		r.t.Fatalf("get %s of %s: %v", id, topic, err)
	}
	return m
}

// kill makes the due message of a topic dead.
func (r *rig) kill(topic string) {
	r.t.Helper()
	ds, err := r.Claim(r.t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1})
	if err != nil || len(ds) != 1 {
		r.t.Fatalf("claim: %v, %v", ds, err)
	}
	errs, err := r.Settle(r.t.Context(), []punctual.Settlement{{Topic: topic, ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleDiscard, Error: "no such customer"}})
	if err != nil || errs[0] != nil {
		r.t.Fatalf("discard: %v, %v", err, errs)
	}
}

// readTime reads RFC 3339 alone. The command line's own reader has its own tests.
func readTime(s string) (time.Time, error) { return notation.ParseTime(s) }

func (r *rig) top() *screenOf {
	r.t.Helper()
	reader, err := overview.New(r, &overview.Options{Patience: time.Minute})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { reader.Close() })
	s := &screenOf{model: newModel(r, r, reader, Options{Zone: time.UTC, ReadTime: readTime}), r: r}
	s.run = func(f func(context.Context) tea.Msg) { s.results = append(s.results, f(r.t.Context())) }
	s.send(tickMsg{})
	return s
}

// send gives top a message, and then the messages that come of it.
func (s *screenOf) send(m tea.Msg) {
	s.Update(m)
	for len(s.results) > 0 {
		m := s.results[0]
		s.results = s.results[1:]
		s.Update(m)
	}
}

// reread makes top read the store anew.
func (s *screenOf) reread() {
	s.reader.Expire()
	s.send(tickMsg{})
}

// typed types keys. The name of a key, such as enter, is that key; of any other text each character
// is a key.
func (s *screenOf) typed(keys ...string) *screenOf {
	s.r.t.Helper()
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "backspace": tea.KeyBackspace, "end": tea.KeyEnd, "home": tea.KeyHome, "pgdown": tea.KeyPgDown, "down": tea.KeyDown}
	for _, k := range keys {
		if code, ok := named[k]; ok {
			s.send(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, c := range k {
			s.send(tea.KeyPressMsg{Code: c, Text: string(c)})
		}
	}
	s.fits()
	return s
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// text is the screen without colours.
func (s *screenOf) text() string {
	return colours.ReplaceAllString(strings.Join(s.screen(), "\n"), "")
}

// shows fails the test unless the screen has each text.
func (s *screenOf) shows(texts ...string) *screenOf {
	s.r.t.Helper()
	for _, want := range texts {
		if !strings.Contains(s.text(), want) {
			s.r.t.Errorf("the screen does not show %q:\n%s", want, s.text())
		}
	}
	return s
}

func (s *screenOf) hides(texts ...string) *screenOf {
	s.r.t.Helper()
	for _, want := range texts {
		if strings.Contains(s.text(), want) {
			s.r.t.Errorf("the screen shows %q:\n%s", want, s.text())
		}
	}
	return s
}

// fits fails the test unless the screen has as many lines as the terminal, none of them wider than
// it.
func (s *screenOf) fits() {
	s.r.t.Helper()
	lines := strings.Split(s.text(), "\n")
	if len(lines) != s.height {
		s.r.t.Errorf("the screen has %d lines of %d:\n%s", len(lines), s.height, s.text())
	}
	for _, l := range lines {
		if n := text.StringWidth(l); n > s.width {
			s.r.t.Errorf("a line has %d columns of %d: %q", n, s.width, l)
		}
	}
}

func (r *rig) pushed1(topic, id, body string, in time.Duration) {
	r.t.Helper()
	out, err := r.Push(r.t.Context(), []punctual.NewMessage{{Topic: topic, ID: id, Body: []byte(body), Delay: in}})
	if err != nil || out[0].Err != nil {
		r.t.Fatal(err, out)
	}
}

func TestTopOfAnEmptyStore(t *testing.T) {
	s := newRig(t).top()
	s.shows("Nothing was pushed yet", "punctual push").typed("gt").shows("Nothing was pushed yet")
}

func TestTopShowsNow(t *testing.T) {
	r := newRig(t)
	r.pushed1("order.cancel", "a", "x", 10*time.Minute)
	r.pushed1("order.cancel", "b", "x", 10*time.Minute)
	r.pushed1("reminder", "c", "x", 30*time.Hour)
	s := r.top()
	s.shows("Punctual", "scheduled 3", "due in the next 60 minutes: 2, at most 2 a minute; later: 1", "as of 10:00:00 UTC", "█", "10:15", "! durability: volatile")
	r.clock.Advance(11 * time.Minute)
	s.reread()
	s.shows("Late: the oldest ready message, of order.cancel, waits for 1m", "! order.cancel: the first of 2 ready messages")
	s.typed("j", "enter").shows(" Now").typed("k", "enter").shows("Topic order.cancel", "[ready 2]", "a ", "b ").typed("esc").shows(" Now")
}

func TestTopWalksToAMessage(t *testing.T) {
	r := newRig(t)
	r.pushed1("t", "first", "<b>\x1b[2Jhello", time.Hour)
	r.pushed1("t", "second", "x", 2*time.Hour)
	s := r.top()
	s.typed("gt").shows("TOPIC", "SCHEDULED").typed("enter").shows("[scheduled 2]", "first", "in 1h", "second")
	s.typed("enter").shows("Message first", "[scheduled] ──▶ ready", "due          2026-11-20 11:00:00.000 UTC  in 1h", "body         <b>�[2Jhello")
	s.typed("esc", "j", "enter").shows("Message second").typed("esc", "esc").shows(" Topics ")
}

// The page of a topic says how many leases its consumers hold and how many claims wait, where the
// store knows.
func TestTopShowsConsumers(t *testing.T) {
	r := newRig(t)
	r.pushed1("t", "a", "x", time.Hour)
	if text := r.top().typed("g", "t", "enter").shows("lease 30s").text(); strings.Contains(text, "leases held") {
		t.Errorf("a store that does not know shows %s", text)
	}
	r.consumers = &storekit.Consumers{All: []storekit.Consumer{{User: "ann", Waiting: 1, Leases: 7}, {User: "bob", Leases: 2}}}
	r.top().typed("g", "t", "enter").shows("9 leases held, 1 claims wait")
	r.consumers = &storekit.Consumers{}
	r.top().typed("g", "t", "enter").shows("no consumers")
}

// The page of a topic with bounds says how many are at work and what waits for its key.
func TestTopShowsBounds(t *testing.T) {
	r := newRig(t)
	bound, keyed := 5, true
	if _, err := r.Configure(t.Context(), "calls", punctual.SettingsPatch{MaxLeases: &bound, Keyed: &keyed}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if _, err := r.Push(t.Context(), []punctual.NewMessage{{Topic: "calls", ID: id, Key: "c7"}}); err != nil {
			t.Fatal(err)
		}
	}
	r.top().typed("g", "t", "enter").shows("0 of 5 at work; 2 wait for their keys")
}

// A message is cancelled, rescheduled or requeued once the question about it is answered with yes.
// The answer no leaves it as it is.
func TestTopChangesAfterAQuestion(t *testing.T) {
	r := newRig(t)
	r.pushed1("t", "a", "x", time.Hour)
	r.pushed1("t", "b", "x", time.Hour)
	r.pushed1("t", "d", "x", 0)
	r.kill("t")
	s := r.top()
	s.typed("gt", "enter", "c").shows("cancel a? It will never be delivered [y/N]").typed("n").shows("nothing was changed")
	r.get("t", "a")
	s.typed("c", "y").shows("a is cancelled", "[scheduled 1]").hides("a  ")
	s.typed("s").shows("deliver b when").typed("nonsense", "enter").shows("nonsense").typed("s", "30x", "backspace", "m", "enter").shows("reschedule b to 30m from now?").typed("y").shows("b is rescheduled, due 2026-11-20 10:30:00.000 UTC")
	if m := r.get("t", "b"); !m.Due.Equal(start.Add(30 * time.Minute)) {
		t.Errorf("b is due %v", m.Due)
	}
	s.typed("enter", "s", "2026-11-21T09:00:00Z", "enter", "y").shows("Message b", "2026-11-21 09:00:00")
	s.typed("u", "y").shows("it is not dead")
	s.typed("gt", "enter", "tab", "tab", "tab").shows("[dead 1]", "discarded: no such customer").typed("u", "y").shows("d is requeued", "[dead 0]", "No dead messages")
	if m := r.get("t", "d"); m.State != punctual.StateReady {
		t.Errorf("d is %v", m.State)
	}
}

func TestTopPauses(t *testing.T) {
	r := newRig(t)
	r.pushed1("t", "a", "x", time.Hour)
	s := r.top()
	s.typed("gt", "p").shows("pause deliveries of t? This is so for all processes").typed("y").shows("deliveries of t: paused", "delivery")
	s.typed("P", "y").shows("pushes to t: paused", "push and delivery").typed("p", "y").shows("deliveries of t: resumed")
	if set, err := r.Settings(t.Context(), "t"); err != nil || set.DeliveryPaused || !set.PushPaused {
		t.Errorf("%+v, %v", set, err)
	}
	s.typed("gn").shows("! t: pushes are refused")
}

func TestTopFinds(t *testing.T) {
	r := newRig(t)
	r.pushed1("t", "a", "x", time.Hour)
	r.pushed1("u", "a", "x", time.Hour)
	r.pushed1("u", "b", "x", time.Hour)
	s := r.top()
	s.typed("/", "b", "enter").shows("Message b", "topic        u").typed("esc")
	s.typed("/", "a", "enter").shows("a is in t, u: open one of them").typed("/", "none", "enter").shows("none: not found").typed("/", "x\x01", "esc").hides("ID:")
	s.typed("gt", "enter", "/", "a", "enter").shows("Message a", "topic        t")
	if out, err := r.Amend(t.Context(), []punctual.Amendment{{Topic: "t", ID: "a", Change: punctual.ChangeCancel}}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	s.reread()
	s.shows("This message is not there any more")
}

func TestTopListsInParts(t *testing.T) {
	r := newRig(t)
	for n := range 100 {
		r.pushed1("t", fmt.Sprintf("m%03d", n), "x", time.Hour+time.Duration(n)*time.Second)
	}
	s := r.top()
	s.typed("gt", "enter").shows("m000").typed("end").shows("m023", "] shows more").typed("]").shows("m024").hides("m023").typed("]", "[", "[").shows("m000")
}

// While an ID is typed, letters are a part of it and not keys, so q leaves top only when no ID is
// typed.
func TestTopLeaves(t *testing.T) {
	s := newRig(t).top()
	if s.typed("/", "q", "g", "c").shows("ID: qgc"); s.leave {
		t.Error("q left while an ID was typed")
	}
	if s.typed("esc", "?").shows("requeue it, when it is dead").typed("?").hides("requeue it"); s.leave {
		t.Error("? left")
	}
	if s.typed("q"); !s.leave {
		t.Error("q did not leave")
	}
}

func TestTopShowsOldValues(t *testing.T) {
	r := newRig(t)
	r.pushed1("t", "a", "x", time.Hour)
	s := r.top()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s.reread()
	s.shows("scheduled 1", "old values", "closed", "✗ the store does not answer")
	s.typed("gt", "enter").shows("list: ")
}

// On terminals of several sizes the screen fits, also with long names, wide characters and control
// characters in messages.
func TestTopFits(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("世界 ", 200)
	for n := range 40 {
		r.pushed1(fmt.Sprintf("%s%02d", strings.Repeat("t", 100), n), strings.Repeat("i", 120), long+"\u202e\x1b[31m", time.Duration(n)*time.Hour)
	}
	if !utf8.ValidString(long) {
		t.Fatal("not text")
	}
	s := r.top()
	for _, size := range []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 40, Height: 10}, {Width: 200, Height: 60}, {Width: 81, Height: 25}} {
		s.send(size)
		for _, keys := range []string{"gn", "gt", "?", " "} {
			s.typed(keys).typed("j", "end", "pgdown", "home")
		}
		s.typed("gt", "enter", "enter", "end", "c", "n", "s", strings.Repeat("x", 300), "esc", "/", long, "esc")
	}
}
