package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// What punctual demo shows: a table that is painted anew in place on a terminal, and the
// end of the story everywhere.

const (
	repaintEvery = 100 * time.Millisecond
	// demoWidth is how wide a terminal must be for painting in place: a table whose lines
	// wrap cannot be painted over.
	demoWidth = 80
)

// showLive paints the table until the function that it returns is called. Without a
// terminal it only says what happens.
func (a *app) showLive(l *ledger) (stop func()) {
	if a.json {
		return func() {}
	}
	a.printf("A shop closes orders that are not paid within %v. Orders come in, some are paid, one gets\nmore time, one fails and is retried, one can never be closed. This takes about 15 seconds.\n\n", payWithin)
	if !isTerminal(a.out) || width(a.out) < demoWidth {
		return func() {}
	}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		a.repaint(l, end)
	}()
	return func() {
		close(end)
		<-done
	}
}

// repaint paints the table over itself until end, and leaves nothing of it: the end of the story
// prints it once more.
func (a *app) repaint(l *ledger, end <-chan struct{}) {
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
			a.printf("%s", b.String())
			return
		default:
		}
		picture := a.demoTable(l)
		b.WriteString(picture + "\n")
		a.printf("%s", b.String())
		lines = strings.Count(picture, "\n") + 1
		select {
		case <-ticker.C:
		case <-end:
		}
	}
}

// demoTable is the state of all orders. Times are seconds since the first order.
func (a *app) demoTable(l *ledger) string {
	t := a.newTable("ORDER", "PLACED", "DUE", "DELIVERED", "LATE MS", "TRIES", "OUTCOME")
	t.Style().Options = table.OptionsNoBordersAndSeparators
	rightAligned(t, 2, 3, 4, 5, 6)
	all := l.entries()
	for _, e := range all {
		first := all[0].placed
		delivered, late := "", ""
		if n := len(e.visits); n > 0 {
			v := e.visits[n-1]
			delivered, late = seconds(v.at, first), fmt.Sprint(v.late().Milliseconds())
		}
		t.AppendRow(table.Row{e.id, seconds(e.placed, first), seconds(e.due, first), delivered, late, len(e.visits), a.outcomeWord(e)})
	}
	return t.Render()
}

func seconds(t, from time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%.3f", t.Sub(from).Seconds())
}

// outcomeWord is what became of an order so far.
func (a *app) outcomeWord(e entry) string {
	var last visit
	if len(e.visits) > 0 {
		last = e.visits[len(e.visits)-1]
	}
	switch {
	case e.cancelled:
		return a.colour(text.FgCyan, "paid: cancelled")
	case len(e.visits) == 0 && e.moved:
		return a.colour(text.FgYellow, "more time")
	case len(e.visits) == 0:
		return "waiting"
	case last.succeeded() && e.moved:
		return a.colour(text.FgGreen, "closed at its new time")
	case last.succeeded() && len(e.visits) > 1:
		return a.colour(text.FgGreen, "closed after a retry")
	case last.succeeded():
		return a.colour(text.FgGreen, "closed")
	case last.over && last.attempt >= storyAttempts:
		return a.colour(text.FgRed, "dead: attempts used up")
	case last.over:
		return a.colour(text.FgYellow, "failed: to be retried")
	}
	return "being closed"
}

// showEnd prints the last table, the lateness and the results.
func (a *app) showEnd(l *ledger, results []outcome) {
	s := l.lateness()
	a.printf("%s\n\nTimes are seconds since the first order. DUE is the time agreed.\nA retry makes a new one: LATE MS is that of the last try.\n", a.demoTable(l))
	a.printf("Lateness of %d deliveries: p50 %d ms, p99 %d ms, max %d ms\n\n",
		s.n, s.p50.Milliseconds(), s.p99.Milliseconds(), s.max.Milliseconds())
	for _, v := range results {
		if v.kept {
			a.printf("%s %s\n", a.colour(text.FgGreen, "kept  "), v.promise)
			continue
		}
		a.printf("%s %s: %s\n", a.colour(text.FgRed, "BROKEN"), v.promise, v.detail)
	}
}
