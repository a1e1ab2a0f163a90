package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

const listHelp = `List shows the messages of a topic: leased ones first, then ready, scheduled and dead ones, each
state in the order of time, or with --state one of them. It shows up to --limit messages and then
names a cursor; --after CURSOR continues behind them.`

const listExample = `  punctual list order.cancel
  punctual list order.cancel --state scheduled --limit 20
  punctual list reminder --state dead --newest --limit 5
  punctual list reminder --json --bare --limit 0 | head`

func newList(a *app) *cobra.Command {
	var state string
	var page pageFlags
	cmd := &cobra.Command{
		Use:     "list TOPIC",
		Short:   "List the messages of a topic",
		Long:    listHelp,
		Example: listExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			parts, err := partsOf(args[0], state)
			if err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				if _, err := topicStats(ctx, i, args[0]); err != nil {
					return err
				}
				return a.listPage(ctx, i, parts, page)
			})
		}),
	}
	cmd.Flags().StringVar(&state, "state", "", "only `scheduled|ready|leased|dead` ones")
	page.register(cmd)
	return cmd
}

// pageFlags say how much of a listing is shown, from which end, and whether with bodies.
type pageFlags struct {
	limit        int
	after        string
	newest, bare bool
}

func (f *pageFlags) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.limit, "limit", 100, "show at most this many; 0: all")
	cmd.Flags().StringVar(&f.after, "after", "", "continue behind a former page, with the `CURSOR` that it named")
	cmd.Flags().BoolVar(&f.newest, "newest", false, "show the latest of each state first, in place of the earliest")
	cmd.Flags().BoolVar(&f.bare, "bare", false, "leave out the bodies, so that a long list comes sooner")
}

// part is a list of one state of one topic; a listing is several parts one after the other.
type part struct {
	topic    string
	state    punctual.State
	from, to time.Time
	reason   punctual.DeathReason
}

func (p part) query(f pageFlags, limit int, after string) punctual.ListQuery {
	return punctual.ListQuery{
		Topic: p.topic, State: p.state, Reason: p.reason, From: p.from, To: p.to, Limit: limit, After: after, Descending: f.newest, Bare: f.bare,
	}
}

// name is how a cursor names the part: by its topic and its state.
func (p part) name() string { return p.topic + "@" + p.state.String() }

// partsOf returns the parts of a listing of one topic: that of one state, or those of all states if state is empty.
func partsOf(topic, state string) ([]part, error) {
	if err := storekit.CheckTopic(topic); err != nil {
		return nil, err
	}
	if state != "" {
		s, err := punctual.ParseState(state)
		return []part{{topic: topic, state: s}}, err
	}
	return []part{
		{topic: topic, state: punctual.StateLeased},
		{topic: topic, state: punctual.StateReady},
		{topic: topic, state: punctual.StateScheduled},
		{topic: topic, state: punctual.StateDead},
	}, nil
}

// listPage shows messages of the parts, as the flags say.
func (a *app) listPage(ctx context.Context, i punctual.Inspector, parts []part, f pageFlags) error {
	if f.limit < 0 {
		return usagef("limit %d: use 1 or more, or 0 for all", f.limit)
	}
	parts, inner, err := continueBehind(parts, f.after)
	if err != nil {
		return err
	}
	show := a.newLister()
	defer show.end()
	shown := 0
	left := f.limit
	for n, p := range parts {
		for {
			page, err := i.List(ctx, p.query(f, pageSize(f.limit, left), inner))
			if err != nil {
				return err
			}
			left -= len(page.Messages)
			shown += len(page.Messages)
			next := cursorBehind(parts[n:], page.Next)
			if err := show.page(page.Messages, next, f.limit > 0 && left == 0); err != nil {
				return err
			}
			if f.limit > 0 && left == 0 {
				return nil
			}
			inner = page.Next
			if inner == "" {
				break
			}
		}
	}
	if shown == 0 {
		what := "messages"
		if f.after != "" {
			what = "more messages"
		}
		a.sayNothing(what)
	}
	return nil
}

func pageSize(limit, left int) int {
	const most = 1000 // of one call, to keep memory small
	if limit == 0 {
		return most
	}
	return min(left, most)
}

// cursorBehind returns the cursor at which the list goes on: within the first of parts if inner is not empty, and otherwise at the start
// of the part behind it. It is empty when nothing can follow.
func cursorBehind(parts []part, inner string) string {
	switch {
	case inner != "":
		return parts[0].name() + "@" + inner
	case len(parts) > 1:
		return parts[1].name() + "@"
	}
	return ""
}

// continueBehind drops the parts before the one that the cursor after names. It returns the others, and the cursor within the first of
// them.
func continueBehind(parts []part, after string) ([]part, string, error) {
	if after == "" {
		return parts, "", nil
	}
	// The longest name is the one that was meant: the cursor orders@dead@dead@x begins with the name of orders, too. The cursors of stores
	// have no @.
	longest := -1
	for n, p := range parts {
		if strings.HasPrefix(after, p.name()+"@") && (longest < 0 || len(p.name()) > len(parts[longest].name())) {
			longest = n
		}
	}
	if longest >= 0 {
		return parts[longest:], after[len(parts[longest].name())+1:], nil
	}
	return nil, "", usagef("--after %q is not a cursor of this list: use what the former page named, with the same other arguments", after)
}

// lister shows the rows of a listing.
type lister[T any] struct {
	app     *app
	columns []any                       // the head of the table
	numbers []int                       // the columns of numbers, from 1
	wide    []int                       // the columns of text, from 1, that are cut where the terminal is too narrow for all
	footer  []any                       // of the table; may be nil
	row     func(v *T) []any            // of the table
	line    func(v *T, next string) any // of --json; next is empty unless the list goes on behind v
	rows    [][]any
}

func (a *app) newLister() *lister[punctual.Info] {
	return &lister[punctual.Info]{
		app: a, columns: []any{"ID", "TOPIC", "STATE", "DUE", "ATTEMPTS", "NOTE", "BODY"}, numbers: []int{5}, wide: []int{2, 6, 7}, row: listRow,
		line: func(m *punctual.Info, next string) any { return messageJSON{Message: wire.MessageOf(m), Next: next} },
	}
}

// page shows some rows. If they are the last ones to show, next is shown with them: the cursor that continues the list.
func (l *lister[T]) page(vs []T, next string, last bool) error {
	for n := range vs {
		v := &vs[n]
		if !l.app.json {
			l.rows = append(l.rows, l.row(v))
			continue
		}
		behind := ""
		if last && n == len(vs)-1 {
			behind = next
		}
		if err := l.app.out.writeJSON(l.line(v, behind)); err != nil {
			return err
		}
	}
	if last && next != "" && !l.app.json {
		l.end()
		fmt.Fprintf(l.app.errs, "there may be more: go on with --after '%s'\n", next)
	}
	if len(l.rows) >= tableRows {
		l.end()
	}
	return nil
}

// tableRows is from how many rows on a table is printed, and the next one begun. The rows wait in memory until then, because the widths
// of the columns are known only when all rows of a table are.
const tableRows = 1000

// end prints the rows since the last call of end as a table.
func (l *lister[T]) end() {
	if len(l.rows) == 0 {
		return
	}
	t := l.app.out.Table(l.columns...)
	term.RightAligned(t, l.numbers...)
	l.app.out.Fit(l.columns, l.rows, l.wide...)
	for _, row := range l.rows {
		t.AppendRow(row)
	}
	if l.footer != nil {
		t.AppendFooter(l.footer)
	}
	l.rows = nil
	l.app.printf("%s\n", t.Render())
}

// all shows the rows of a whole listing, or that it has none.
func (l *lister[T]) all(vs []T, what string) error {
	if len(vs) == 0 {
		l.app.sayNothing(what)
	}
	err := l.page(vs, "", false)
	l.end()
	return err
}

func listRow(m *punctual.Info) []any {
	return []any{m.ID, m.Topic, m.State.String(), stamp(m.Due), m.Attempt, term.OneLine(listNote(*m), 40), term.OneLine(view.BodyText(m.Body), 40)}
}

// listNote is what is worth saying of a message besides its columns.
func listNote(m punctual.Info) string {
	switch {
	case m.State == punctual.StateDead && len(m.Failures) > 0:
		return string(m.Reason) + ": " + m.Failures[len(m.Failures)-1].Error
	case m.State == punctual.StateDead:
		return string(m.Reason)
	case m.CancelRequested:
		return "cancel asked for"
	case m.State == punctual.StateLeased:
		return "until " + stamp(m.LeaseUntil).String()
	case len(m.Failures) > 0:
		return m.Failures[len(m.Failures)-1].Error
	}
	return ""
}
