package top

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
)

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
