package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// row is a row that can be chosen. topic and id name what keys change when it is chosen, and open
// is the page that Enter shows.
type row struct {
	text      string
	colour    text.Color // 0 for the usual one
	open      *page
	topic, id string
}

// content is what a page shows between the title and the last lines: fixed lines, and rows that can
// be chosen.
type content struct {
	fixed []string
	rows  []row
	empty string // stands in place of rows
}

// paint colours s. bubbletea leaves out the colours that the terminal does not have, or that
// NO_COLOR forbids.
func paint(c text.Color, s string) string {
	if c == 0 || s == "" {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", int(c), s)
}

// fit is one line of exactly n columns.
func fit(s string, n int) string {
	if n <= 0 {
		return ""
	}
	return text.Pad(text.Snip(strings.ReplaceAll(s, "\n", " "), n, "…"), n, ' ')
}

// right is s in the last of n columns.
func right(s string, n int) string { return strings.Repeat(" ", max(0, n-text.StringWidth(s))) + s }

// View implements tea.Model.
func (t *model) View() tea.View {
	v := tea.NewView(strings.Join(t.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "punctual top"
	return v
}

// screen is what is shown: a title, the page, and two lines at the bottom.
func (t *model) screen() []string {
	lines := []string{paint(text.ReverseVideo, fit(t.title(), t.width))}
	room := t.height - 3
	if t.keys {
		for _, k := range Keys() {
			lines = append(lines, fit(fmt.Sprintf("  %-10s%s", k[0], k[1]), t.width))
		}
	} else {
		lines = append(lines, t.drawBody(room)...)
	}
	lines = lines[:min(len(lines), room+1)]
	for len(lines) < room+1 {
		lines = append(lines, "")
	}
	return append(lines, t.noteLine(), paint(text.Faint, fit("j k move  Enter open  Esc back  g n|t go  / find  ? keys  q quit", t.width)))
}

// title says which page this is, and when by the store's clock the ready messages of the overview
// were counted.
func (t *model) title() string {
	p := t.page()
	name := [...]string{"Now", "Topics", "Topic " + p.topic, "Message " + p.id}[p.kind]
	if t.keys {
		name = "Keys"
	}
	asOf := "…"
	if t.o != nil {
		asOf = "as of " + t.o.AsOf.In(t.zone).Format("15:04:05 MST")
	}
	name = " " + term.Printable(name)
	return fit(name, t.width-text.StringWidth(asOf)-2) + " " + asOf + " "
}

// noteLine is what is asked, else what the last action came to, else what is wrong, else which keys
// may follow g.
func (t *model) noteLine() string {
	switch {
	case t.asked != nil:
		return paint(text.Bold, fit(t.asked.text+t.asked.typed+"▏", t.width))
	case t.note != "":
		return paint(text.Bold, fit(t.note, t.width))
	case t.oErr != nil:
		return paint(text.FgRed, fit(term.OneLine(t.oErr.Error(), 400), t.width))
	case t.o != nil && t.o.Err != nil:
		return paint(text.FgRed, fit("old values: "+term.OneLine(t.o.Err.Error(), 400), t.width))
	case t.going:
		return fit("g: n Now, t Topics", t.width)
	}
	return ""
}

// drawBody draws the page in about room lines, with the chosen row among them.
func (t *model) drawBody(room int) []string {
	b, p := t.body(), t.page()
	lines := make([]string, 0, room)
	lines = append(lines, b.fixed...)
	room -= len(lines)
	if len(b.rows) == 0 {
		return append(lines, fit("  "+b.empty, t.width))
	}
	room = max(1, room)
	p.cursor = max(0, min(p.cursor, len(b.rows)-1))
	p.first = max(0, min(p.first, p.cursor, len(b.rows)-room))
	p.first = max(p.first, p.cursor-room+1)
	for n := p.first; n < min(len(b.rows), p.first+room); n++ {
		r := b.rows[n]
		if n == p.cursor {
			lines = append(lines, paint(text.ReverseVideo, fit("> "+r.text, t.width)))
		} else {
			lines = append(lines, paint(r.colour, fit("  "+r.text, t.width)))
		}
	}
	return lines
}

// chosen is the row under the cursor, if there is one.
func (t *model) chosen() *row {
	rows := t.body().rows
	if n := t.page().cursor; n < len(rows) {
		return &rows[n]
	}
	return nil
}

// body is what the page shows.
func (t *model) body() content {
	if t.o == nil {
		return content{empty: "reading the store …"}
	}
	switch p := t.page(); p.kind {
	case pageTopics:
		return t.topicsBody()
	case pageTopic:
		return t.topicBody(p)
	case pageMessage:
		return t.messageBody(p)
	}
	return t.nowBody()
}

// nowBody answers: are messages in time, what comes in the next hour, what needs attention.
func (t *model) nowBody() content {
	o := t.o
	b := content{empty: "Nothing needs attention."}
	sentence, colour := "Punctual: no message waits.", text.FgGreen
	switch {
	case !o.Inspected:
		sentence, colour = "This store cannot be inspected.", text.FgYellow
	case o.Oldest != nil && o.Oldest.Late >= time.Second:
		sentence, colour = fmt.Sprintf("Late: the oldest ready message, of %s, waits for %s.", o.Oldest.Topic, overview.Short(o.Oldest.Late)), text.FgYellow
	case o.Oldest != nil:
		sentence = "Punctual: what is ready waits for less than a second."
	}
	b.fixed = append(b.fixed, paint(colour, fit("  "+sentence, t.width)), fit(fmt.Sprintf("  scheduled %s   ready %s   leased %s   dead %s   topics %s",
		overview.Grouped(o.Totals.Scheduled), overview.Grouped(o.Totals.Ready), overview.Grouped(o.Totals.Leased), overview.Grouped(o.Totals.Dead),
		overview.Grouped(int64(len(o.Topics)))), t.width), "")
	if o.Inspected && len(o.Topics) == 0 {
		b.fixed = append(b.fixed, fit("  Nothing was pushed yet. Try: punctual push order.cancel '{\"order\":42}' --in 30m", t.width))
	} else if o.Inspected {
		b.fixed = append(b.fixed, t.hour(max(3, min(8, t.height-16)))...)
	}
	b.fixed = append(b.fixed, "")
	for _, f := range o.Attention {
		b.rows = append(b.rows, findingRow(f))
	}
	return b
}

// hour draws the next 60 minutes, or those of them for which there is room, as columns, with the
// number of overdue messages left of them.
func (t *model) hour(height int) []string {
	a := t.o.Minutes.All
	if a == nil {
		return []string{fit("  the next 60 minutes are being counted …", t.width)}
	}
	most := int64(1)
	for _, c := range a.Counts {
		most = max(most, c)
	}
	lines := []string{fit(fmt.Sprintf("  due in the next 60 minutes: %s, at most %s a minute; later: %s",
		overview.Grouped(a.Sum()), overview.Grouped(most*min(1, a.Sum())), overview.Grouped(a.Beyond)), t.width)}
	counts := a.Counts[:max(0, min(len(a.Counts), t.width-18))]
	for level := height; level > 0; level-- {
		var row strings.Builder
		for _, c := range counts {
			row.WriteString(column(c, most, height, level))
		}
		left := ""
		if level == 1 {
			left = "overdue " + overview.Grouped(a.Overdue)
		}
		lines = append(lines, right(left, 16)+" │"+paint(text.FgCyan, row.String()))
	}
	var axis strings.Builder
	axis.WriteString(fit("", 18) + fit("now", 15))
	for n := 15; n < len(counts); n += 15 {
		axis.WriteString(fit(a.Edges[n].Format("15:04"), 15))
	}
	return append(lines, fit(axis.String(), t.width))
}

// column is the part of a column that lies in a level of a picture of some height. A number above 0
// has at least an eighth of a line.
func column(n, most int64, height, level int) string {
	eighths := int(float64(n) / float64(most) * float64(height*8))
	if n > 0 {
		eighths = max(eighths, 1)
	}
	return []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}[max(0, min(8, eighths-(level-1)*8))]
}

// findingRow is a finding, with the page that shows what it is about, if there is one.
func findingRow(f overview.Finding) row {
	mark, colour := view.Mark(f.Severity)
	words := f.Text
	if f.Remedy != "" {
		words += ": " + f.Remedy
	}
	r := row{text: mark + " " + term.OneLine(words, 400), colour: colour, topic: f.Topic}
	switch {
	case f.Topic != "":
		r.open = &page{kind: pageTopic, topic: f.Topic, state: max(f.State, punctual.StateScheduled), from: f.From}
	case f.Kind == overview.KindDead, f.Others > 0:
		r.open = &page{kind: pageTopics}
	}
	return r
}

// tabs names some choices; the present one is in brackets, for those who see no colours.
func tabs(names []string, present int) string {
	var out []string
	for n, name := range names {
		if n == present {
			out = append(out, paint(text.Bold, "["+name+"]"))
		} else {
			out = append(out, " "+name+" ")
		}
	}
	return strings.Join(out, " ")
}

// topicsBody is the table of the topics.
func (t *model) topicsBody() content {
	b := content{empty: "Nothing was pushed yet."}
	name := max(12, t.width-67)
	columns := func(topic, scheduled, ready, leased, dead, next, paused string) string {
		return fit(topic, name) + right(scheduled, 11) + right(ready, 9) + right(leased, 7) + right(dead, 8) + "  " + fit(next, 10) + " " + paused
	}
	b.fixed = append(b.fixed, paint(text.Bold, fit("  "+columns("TOPIC", "SCHEDULED", "READY", "LEASED", "DEAD", "NEXT DUE", "PAUSED"), t.width)))
	for _, s := range t.o.Topics {
		r := row{topic: s.Topic, open: &page{kind: pageTopic, topic: s.Topic, state: punctual.StateScheduled}}
		r.text = columns(s.Topic, overview.Grouped(s.Scheduled), overview.Grouped(s.Ready), overview.Grouped(s.Leased), overview.Grouped(s.Dead),
			t.until(s.NextDue), view.PausedWord(s.Settings))
		if s.Settings.PushPaused || s.Settings.DeliveryPaused {
			r.colour = text.FgYellow
		}
		b.rows = append(b.rows, r)
	}
	return b
}

// until says when at is, seen from the store's clock: "in 5m", "3s ago".
func (t *model) until(at time.Time) string {
	switch d := at.Sub(t.o.AsOf); {
	case at.IsZero():
		return "-"
	case d >= 0:
		return "in " + overview.Short(d)
	default:
		return overview.Short(-d) + " ago"
	}
}

// topicBody lists the messages of a topic in one state.
func (t *model) topicBody(p *page) content {
	var b content
	s, ok := t.statsOf(p.topic)
	if !ok {
		b.empty = "There is no topic of this name."
		return b
	}
	n := 0
	var names []string
	for k, state := range stateTabs {
		if state == p.state {
			n = k
		}
		names = append(names, fmt.Sprintf("%s %s", state, overview.Grouped([]int64{s.Scheduled, s.Ready, s.Leased, s.Dead}[k])))
	}
	settings := fmt.Sprintf("lease %s, %d attempts, paused: %s", overview.Short(s.Settings.Lease), s.Settings.MaxAttempts, view.PausedWord(s.Settings))
	if s.Settings.MaxLeases > 0 {
		settings += fmt.Sprintf("; %d of %d at work", s.Leased, s.Settings.MaxLeases)
	}
	if s.Settings.Keyed {
		settings += fmt.Sprintf("; %s wait for their keys", overview.Grouped(s.Waiting))
	}
	if p.workers != "" {
		settings += "; " + p.workers
	}
	what := [...]string{"DUE", "READY SINCE", "LEASE ENDS", "DIED"}[n]
	b.fixed = append(b.fixed, "  "+tabs(names, n), fit("  "+settings, t.width),
		paint(text.Bold, fit("  "+fit("ID", t.idWidth(p))+" "+fit(what, 30)+" ATTEMPTS, LAST ERROR", t.width)))
	switch {
	case p.err != nil:
		b.empty = failed("list", p.err)
		return b
	case p.list == nil:
		b.empty = "…"
		return b
	}
	b.empty = "No " + p.state.String() + " messages."
	if len(p.before) > 0 || !p.from.IsZero() {
		b.empty = "No more " + p.state.String() + " messages."
	}
	for _, m := range p.list.Messages {
		b.rows = append(b.rows, t.messageRow(m, t.idWidth(p)))
	}
	if p.list.Next != "" {
		b.rows = append(b.rows, row{text: "] shows more", colour: text.Faint})
	}
	return b
}

// idWidth is how wide the column of the IDs is: as wide as they are, but not more than leaves room
// for the times.
func (t *model) idWidth(p *page) int {
	widest := 8
	if p.list != nil {
		for _, m := range p.list.Messages {
			widest = max(widest, len(m.ID))
		}
	}
	return max(8, min(widest, t.width-60))
}

// messageRow is a message in the list of its topic.
func (t *model) messageRow(m punctual.Info, idWidth int) row {
	at := m.Due
	switch m.State {
	case punctual.StateLeased:
		at = m.LeaseUntil
	case punctual.StateDead:
		at = m.Died
	}
	last := string(m.Reason)
	if n := len(m.Failures); n > 0 {
		last = strings.TrimPrefix(last+": "+term.OneLine(m.Failures[n-1].Error, 200), ": ")
	}
	return row{
		text:  fit(term.Printable(m.ID), idWidth) + " " + at.In(t.zone).Format(time.DateTime) + " " + fit(t.until(at), 10) + fmt.Sprintf(" %d %s", m.Attempt, last),
		topic: m.Topic, id: m.ID, open: &page{kind: pageMessage, topic: m.Topic, id: m.ID},
	}
}

// messageBody is one message with its history.
func (t *model) messageBody(p *page) content {
	var b content
	switch {
	case p.err != nil && storekit.ErrorCode(p.err) == "not_found":
		b.empty = "This message is not there any more: it was acked, cancelled or purged."
		return b
	case p.err != nil:
		b.empty = failed("get", p.err)
		return b
	case p.message == nil:
		b.empty = "…"
		return b
	}
	m := *p.message
	b.fixed = append(b.fixed, "  "+lifeOf(m.State), "")
	for _, l := range t.history(m) {
		b.rows = append(b.rows, row{text: l, topic: m.Topic, id: m.ID})
	}
	return b
}

// lifeOf draws the life of a message with the present state in brackets.
func lifeOf(state punctual.State) string {
	word := func(s punctual.State) string {
		if s == state {
			return paint(text.Bold, "["+s.String()+"]")
		}
		return s.String()
	}
	return word(punctual.StateScheduled) + " ──▶ " + word(punctual.StateReady) + " ──▶ " + word(punctual.StateLeased) + " ──▶ done, or " + word(punctual.StateDead)
}

// history is all that the store knows about a message, line by line.
func (t *model) history(m punctual.Info) []string {
	size := len(m.Body)
	m.Body = m.Body[:min(size, mostShown)]
	rows := view.MessageRows(&m, func(at time.Time) string {
		return at.In(t.zone).Format("2006-01-02 15:04:05.000 MST") + "  " + t.until(at)
	})
	if size > mostShown {
		rows.Add("", "… "+overview.Grouped(int64(size))+" bytes in all: see punctual get --json")
	}
	var lines []string
	for _, r := range rows {
		name := r[0]
		for l := range strings.SplitSeq(term.Printable(r[1]), "\n") {
			lines = append(lines, fmt.Sprintf("%-12s %s", name, strings.ReplaceAll(l, "\t", "    ")))
			name = ""
		}
	}
	return lines
}

// mostShown bounds how much of a body is shown.
const mostShown = 64 << 10
