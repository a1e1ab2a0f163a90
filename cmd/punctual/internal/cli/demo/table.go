package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
)

const (
	repaintEvery = 100 * time.Millisecond
	// liveWidth is how wide a terminal must be for painting in place, because a table whose lines
	// wrap cannot be painted over.
	liveWidth = 80
)

// showLive says what happens and, on a terminal of at least liveWidth columns, paints the table of
// the orders until the function that it returns is called.
func showLive(out *term.Output, l *ledger) (stop func()) {
	out.Printf("A shop closes orders that are not paid within %v. Orders come in, some are paid, one gets\nmore time, one fails and is retried, one can never be closed. Billing and mail are told of each\nclosed order, and a report is made every %v. This takes about 20 seconds.\n\n", payWithin, storyReportEvery)
	if !out.IsTerminal() || out.Width() < liveWidth {
		return func() {}
	}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		repaint(out, l, end)
	}()
	return func() {
		close(end)
		<-done
	}
}

// repaint paints the table over itself until end is closed. At the end it erases the table, because
// Show prints it once more.
func repaint(out *term.Output, l *ledger, end <-chan struct{}) {
	ticker := time.NewTicker(repaintEvery)
	defer ticker.Stop()
	lines := 0
	for {
		var b strings.Builder
		if lines > 0 {
			b.WriteString(text.CursorUp.Sprintn(lines))
		}
		b.WriteString("\r\x1b[J") // erases from the cursor to the end of the screen
		select {
		case <-end:
			out.Printf("%s", b.String())
			return
		default:
		}
		picture := ordersTable(out, l) + "\n" + others(l)
		b.WriteString(picture + "\n")
		out.Printf("%s", b.String())
		lines = strings.Count(picture, "\n") + 1
		select {
		case <-ticker.C:
		case <-end:
		}
	}
}

// ordersTable is the state of all orders. Times are seconds since the first order.
func ordersTable(out *term.Output, l *ledger) string {
	t := out.Table("ORDER", "PLACED", "DUE", "DELIVERED", "LATE MS", "TRIES", "OUTCOME")
	t.Style().Options = table.OptionsNoBordersAndSeparators
	term.RightAligned(t, 2, 3, 4, 5, 6)
	all := l.entries()
	for _, e := range all {
		first := all[0].placed
		delivered, late := "", ""
		if n := len(e.visits); n > 0 {
			v := e.visits[n-1]
			delivered, late = seconds(v.at, first), fmt.Sprint(v.late().Milliseconds())
		}
		t.AppendRow(table.Row{e.id, seconds(e.placed, first), seconds(e.due, first), delivered, late, len(e.visits), outcomeWord(out, e)})
	}
	return t.Render()
}

// others says in a line what came beside the orders.
func others(l *ledger) string {
	all := l.entries()
	told := make(map[string]int)
	var first time.Time
	for _, e := range all {
		if first.IsZero() {
			first = e.placed
		}
		for group, n := range e.told {
			told[group] += n
		}
	}
	var parts []string
	for _, group := range storyGroups() {
		parts = append(parts, fmt.Sprintf("%s was told of %d", group, told[group]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var times []string
	for _, o := range l.occurrences {
		times = append(times, fmt.Sprintf("%.3f", o.due.Sub(first).Seconds()))
	}
	if times == nil {
		times = []string{"not yet"}
	}
	return "Closed orders: " + strings.Join(parts, ", ") + ". Reports: " + strings.Join(times, ", ") + "."
}

func seconds(t, from time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%.3f", t.Sub(from).Seconds())
}

// outcomeWord is what became of an order so far.
func outcomeWord(out *term.Output, e entry) string {
	var last visit
	if len(e.visits) > 0 {
		last = e.visits[len(e.visits)-1]
	}
	switch {
	case e.cancelled:
		return out.Colour(text.FgCyan, "paid: cancelled")
	case len(e.visits) == 0 && e.moved:
		return out.Colour(text.FgYellow, "more time")
	case len(e.visits) == 0:
		return "waiting"
	case last.succeeded() && e.moved:
		return out.Colour(text.FgGreen, "closed at its new time")
	case last.succeeded() && len(e.visits) > 1:
		return out.Colour(text.FgGreen, "closed after a retry")
	case last.succeeded():
		return out.Colour(text.FgGreen, "closed")
	case last.over && last.attempt >= storyAttempts:
		return out.Colour(text.FgRed, "dead: attempts used up")
	case last.over:
		return out.Colour(text.FgYellow, "failed: to be retried")
	}
	return "being closed"
}

// Show prints the last table, how late the deliveries were, and which promises were kept.
func (r *Report) Show(out *term.Output) {
	out.Printf("%s\n%s\n\nTimes are seconds since the first order. DUE is the time agreed.\nA retry makes a new one: LATE MS is that of the last try.\n", ordersTable(out, r.ledger), others(r.ledger))
	out.Printf("Lateness of %d deliveries: p50 %d ms, p99 %d ms, max %d ms\n\n", r.Lateness.Count, r.Lateness.P50, r.Lateness.P99, r.Lateness.Max)
	for _, p := range r.Promises {
		if p.Kept {
			out.Printf("%s %s\n", out.Colour(text.FgGreen, "kept  "), p.Promise)
			continue
		}
		out.Printf("%s %s: %s\n", out.Colour(text.FgRed, "BROKEN"), p.Promise, p.Detail)
	}
}
