package top

import (
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/punctualmq/punctual"
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
