package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
)

// Keys is what ? shows: keys, and what they do. Most second keys for the same, such as h for Esc,
// are not among them.
func Keys() [][2]string {
	return [][2]string{
		{"j k ↓ ↑", "down, up; PgDn PgUp Home End in larger steps"},
		{"Enter", "open what is chosen"},
		{"Esc", "back"},
		{"g n  g t", "go to Now, Topics"},
		{"/", "find a message by its ID"},
		{"Tab", "next state of the messages of a topic"},
		{"]  [", "next, previous part of a list"},
		{"c", "cancel the message that is chosen"},
		{"s", "reschedule it: deliver at another time, or now"},
		{"u", "requeue it, when it is dead"},
		{"p  P", "pause or resume deliveries of the topic, pushes to it"},
		{"?  q", "these keys, quit"},
	}
}

// key does what a key stands for. Before each change of the store it asks.
func (t *model) key(k tea.KeyPressMsg) {
	name := k.String()
	switch {
	case name == "ctrl+c":
		t.leave = true
	case t.asked != nil:
		t.answer(name, k.Text)
	case t.keys:
		t.keys = false
	case t.going:
		t.going = false
		t.jump(name)
	default:
		t.note = ""
		if !t.move(name) {
			t.act(name)
		}
	}
}

// jump does what the key after g stands for.
func (t *model) jump(name string) {
	switch name {
	case "n":
		t.goTo(page{kind: pageNow})
	case "t":
		t.goTo(page{kind: pageTopics})
	}
}

// move moves the choice, and tells whether the key was for that.
func (t *model) move(name string) bool {
	p := t.page()
	screen := max(1, t.height-6)
	switch name {
	case "j", "down":
		p.cursor++
	case "k", "up":
		p.cursor--
	case "pgdown", "ctrl+d", "space":
		p.cursor += screen
	case "pgup", "ctrl+u":
		p.cursor -= screen
	case "home":
		p.cursor = 0
	case "end":
		p.cursor = 1 << 30 // reduced to the last row below
	default:
		return false
	}
	p.cursor = max(0, min(p.cursor, len(t.body().rows)-1))
	return true
}

// act does what the other keys stand for.
func (t *model) act(name string) {
	switch name {
	case "q":
		t.leave = true
	case "?":
		t.keys = true
	case "g":
		t.going = true
	case "/":
		t.asked = &question{text: "ID: ", line: true, answer: t.find}
	case "esc", "backspace", "left", "h":
		t.back()
	case "enter", "right", "l":
		if r := t.chosen(); r != nil && r.open != nil {
			t.open(*r.open)
		}
	case "tab":
		t.turn(1)
	case "shift+tab":
		t.turn(-1)
	case "]":
		t.nextPart()
	case "[":
		t.previousPart()
	default:
		t.change(name)
	}
}

// turn shows the next state of a topic, or the one before.
func (t *model) turn(by int) {
	if p := t.page(); p.kind == pageTopic {
		n := (slices.Index(stateTabs, p.state) + by + len(stateTabs)) % len(stateTabs)
		*p = page{kind: pageTopic, topic: p.topic, state: stateTabs[n]}
		t.load()
	}
}

// stateTabs are the states in the order of their tabs.
var stateTabs = []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead}

// nextPart shows the messages behind those that are shown.
func (t *model) nextPart() {
	if p := t.page(); p.list != nil && p.list.Next != "" {
		p.before = append(p.before, p.after)
		t.showPart(p.list.Next)
	}
}

func (t *model) previousPart() {
	if p := t.page(); len(p.before) > 0 {
		after := p.before[len(p.before)-1]
		p.before = p.before[:len(p.before)-1]
		t.showPart(after)
	}
}

func (t *model) showPart(after string) {
	p := t.page()
	p.after, p.list, p.cursor, p.first = after, nil, 0, 0
	t.load()
}

// answer takes a key as the answer to what was asked, or as a part of it.
func (t *model) answer(name, text string) {
	q := t.asked
	switch {
	case !q.line:
		t.asked = nil
		if t.note = "nothing was changed"; name == "y" {
			t.note = "…"
			q.answer("")
		}
	case name == "esc":
		t.asked = nil
	case name == "enter":
		t.asked = nil
		q.answer(q.typed)
	case name == "backspace":
		_, size := utf8.DecodeLastRuneInString(q.typed)
		q.typed = q.typed[:len(q.typed)-size]
	case len(q.typed)+len(text) <= 256:
		q.typed += text
	}
}

// change begins the change that a key stands for, with a question. It does nothing for a key that
// changes nothing here.
func (t *model) change(name string) {
	r := t.chosen()
	if p := t.page(); p.kind == pageMessage {
		r = &row{topic: p.topic, id: p.id}
	}
	switch name {
	case "c", "s", "u":
		if r != nil && r.id != "" {
			t.changeMessage(name, r.topic, r.id)
		}
	case "p", "P":
		topic := t.page().topic
		if topic == "" && r != nil {
			topic = r.topic
		}
		if topic != "" {
			t.pause(topic, name == "P")
		}
	}
}

func (t *model) changeMessage(name, topic, id string) {
	a := punctual.Amendment{Topic: topic, ID: id}
	switch name {
	case "c":
		a.Change = punctual.ChangeCancel
		t.confirm("cancel "+id+"? It will never be delivered", func() { t.amend(a) })
	case "u":
		a.Change = punctual.ChangeRequeue
		t.confirm("requeue "+id+"? It is delivered now, and its attempts start anew", func() { t.amend(a) })
	case "s":
		a.Change = punctual.ChangeReschedule
		t.asked = &question{text: "deliver " + term.OneLine(id, 30) + " when (now, 30m, 9:30, 2026-11-20 9:00)? ", line: true, answer: func(typed string) {
			if err := t.readWhen(typed, &a); err != nil {
				t.note = term.OneLine(err.Error(), 200)
				return
			}
			t.confirm(fmt.Sprintf("reschedule %s to %s?", id, t.whenOf(a)), func() { t.amend(a) })
		}}
	}
}

// readWhen reads when a message is to be delivered: now, in some time, or at a time.
func (t *model) readWhen(typed string, a *punctual.Amendment) (err error) {
	typed = strings.TrimSpace(typed)
	if typed == "now" {
		return nil
	}
	if d, err := notation.ParseDuration(strings.TrimPrefix(typed, "in ")); err == nil && d >= 0 {
		a.Delay = d
		return nil
	}
	a.Due, err = t.readTime(typed)
	return err
}

func (t *model) whenOf(a punctual.Amendment) string {
	switch {
	case !a.Due.IsZero():
		return a.Due.In(t.zone).Format("2006-01-02 15:04:05 MST")
	case a.Delay > 0:
		return notation.FormatDuration(a.Delay) + " from now"
	}
	return "now"
}

// confirm asks a question, and calls do when the answer is yes.
func (t *model) confirm(text string, do func()) {
	t.asked = &question{text: term.OneLine(text, 200) + " [y/N] ", answer: func(string) { do() }}
}

// amend changes one message.
func (t *model) amend(a punctual.Amendment) {
	t.run(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		out, err := t.store.Amend(ctx, []punctual.Amendment{a})
		if err == nil {
			err = out[0].Err
		}
		switch {
		case err == nil && a.Change == punctual.ChangeCancel:
			return doneMsg{a.ID + " is " + wire.OutcomeWord(a.Change)}
		case err == nil:
			return doneMsg{fmt.Sprintf("%s is %s, due %s", a.ID, wire.OutcomeWord(a.Change), out[0].Due.In(t.zone).Format("2006-01-02 15:04:05.000 MST"))}
		case view.Refused(err):
			return doneMsg{a.ID + ": " + view.Explain(err, a.Change)}
		}
		return doneMsg{failed(a.Change.String()+" "+a.ID, err)}
	})
}

// pause asks whether to pause or resume a topic's deliveries or pushes.
func (t *model) pause(topic string, pushes bool) {
	s, ok := t.statsOf(topic)
	if !ok {
		return
	}
	what, paused := "deliveries of", !s.Settings.DeliveryPaused
	p := punctual.SettingsPatch{DeliveryPaused: &paused}
	if pushes {
		what, paused = "pushes to", !s.Settings.PushPaused
		p = punctual.SettingsPatch{PushPaused: &paused}
	}
	verb := "resume"
	if paused {
		verb = "pause"
	}
	t.confirm(fmt.Sprintf("%s %s %s? This is so for all processes", verb, what, topic), func() {
		t.run(func(ctx context.Context) tea.Msg {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if _, err := t.inspector.Configure(ctx, topic, p); err != nil {
				return doneMsg{failed(verb+" "+topic, err)}
			}
			return doneMsg{fmt.Sprintf("%s %s: %sd", what, topic, verb)}
		})
	})
}

// statsOf returns the statistics of a topic in the last overview, and whether that has any.
func (t *model) statsOf(topic string) (punctual.TopicStats, bool) {
	if t.o != nil {
		for _, s := range t.o.Topics {
			if s.Topic == topic {
				return s, true
			}
		}
	}
	return punctual.TopicStats{}, false
}
