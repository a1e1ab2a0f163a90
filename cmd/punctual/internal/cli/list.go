package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

func newList(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list TOPIC",
		Short: "List the messages of a topic",
		Long: `List shows the messages of a topic: leased ones first, then ready, scheduled and dead ones, each
state in the order of time, or with --state one of them. It shows up to --limit messages and then
names a cursor; --after CURSOR continues behind them.`,
		Example: `  punctual list order.cancel
  punctual list order.cancel --state scheduled --limit 20
  punctual list reminder --state dead --newest --limit 5
  punctual list reminder --json --bare --limit 0 | head`,
		RunE: a.action(func(ctx context.Context, args []string) error { return f.list(ctx, a, args) }),
	}
	cmd.Flags().StringVar(&f.state, "state", "", "only `scheduled|ready|leased|dead` ones")
	f.page.registerBare(cmd)
	return cmd
}

// listFlags are the flags of list and dead list.
type listFlags struct {
	topic, state, reason string
	day                  dayFlags
	page                 pageFlags
}

// list shows the messages of the topic in args. If args is empty, it shows those of all topics but
// the audit log, one topic after the other.
func (f *listFlags) list(ctx context.Context, a *app, args []string) (err error) {
	states := []punctual.State{punctual.StateLeased, punctual.StateReady, punctual.StateScheduled, punctual.StateDead}
	if f.state != "" {
		if states[0], err = punctual.ParseState(f.state); err != nil {
			return err
		}
		states = states[:1]
	}
	var p part
	if p.from, p.to, err = f.day.bounds(a.localZone()); err != nil {
		return err
	}
	if p.reason, err = parseReason(f.reason); err != nil {
		return err
	}
	for _, topic := range args {
		if err := storekit.CheckTopic(topic); err != nil {
			return err
		}
	}
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
		topics, err := statsOf(ctx, i, args)
		if err != nil {
			return err
		}
		var parts []part
		for _, t := range topics {
			for _, state := range states {
				p.topic, p.state = t.Topic, state
				parts = append(parts, p)
			}
		}
		return a.listPage(ctx, i, parts, f.page)
	})
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
	cmd.Flags().BoolVar(&f.newest, "newest", false, "show the latest first, of each state, in place of the earliest")
}

func (f *pageFlags) registerBare(cmd *cobra.Command) {
	f.register(cmd)
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

// listPage shows messages of the parts, as the flags say.
func (a *app) listPage(ctx context.Context, i punctual.Inspector, parts []part, f pageFlags) error {
	if len(parts) == 0 {
		a.sayNothing("messages")
		return nil
	}
	show := &lister[punctual.Info]{
		app: a, columns: []any{"ID", "TOPIC", "STATE", "DUE", "ATTEMPTS", "NOTE", "BODY"}, numbers: []int{5}, wide: []int{2, 6, 7}, row: listRow,
		line: func(m *punctual.Info, next string) any { return messageJSON{Message: wire.MessageOf(m), Next: next} },
	}
	shown, err := show.pages(f, func(after string, limit int) ([]punctual.Info, string, error) {
		rest, inner, err := continueBehind(parts, after)
		if err != nil {
			return nil, "", err
		}
		page, err := i.List(ctx, rest[0].query(f, limit, inner))
		return page.Messages, cursorBehind(rest, page.Next), err
	})
	if err == nil && shown == 0 {
		what := "messages"
		if f.after != "" {
			what = "more messages"
		}
		a.sayNothing(what)
	}
	return err
}

func pageSize(limit, left int) int {
	const most = 1000 // of one call, to keep memory small
	if limit == 0 {
		return most
	}
	return min(left, most)
}

// cursorBehind returns the cursor at which the list goes on: within the first of parts if inner is
// not empty, and otherwise at the start of the part behind it. It is empty when nothing can follow.
func cursorBehind(parts []part, inner string) string {
	switch {
	case inner != "":
		return parts[0].name() + "@" + inner
	case len(parts) > 1:
		return parts[1].name() + "@"
	}
	return ""
}

// continueBehind drops the parts before the one that the cursor after names. It returns the others,
// and the cursor within the first of them.
func continueBehind(parts []part, after string) ([]part, string, error) {
	if after == "" {
		return parts, "", nil
	}
	// The longest name is the one that was meant: the cursor orders@dead@dead@x begins with the
	// name of orders, too. The cursors of stores have no @.
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

// pages shows what read returns page by page, as the flags say, and returns how many rows that
// were. read returns a page of at most limit rows behind the cursor after, and the cursor at which
// the listing goes on.
func (l *lister[T]) pages(f pageFlags, read func(after string, limit int) ([]T, string, error)) (shown int, err error) {
	if f.limit < 0 {
		return 0, usagef("limit %d: use 1 or more, or 0 for all", f.limit)
	}
	defer l.end()
	for after := f.after; ; {
		vs, next, err := read(after, pageSize(f.limit, f.limit-shown))
		if err != nil {
			return shown, err
		}
		shown += len(vs)
		last := f.limit > 0 && shown == f.limit
		if err := l.page(vs, next, last); err != nil || last || next == "" {
			return shown, err
		}
		after = next
	}
}

// page shows some rows. If they are the last ones to show, next is shown with them: the cursor that
// continues the list.
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

// tableRows is from how many rows on a table is printed, and the next one begun. The rows wait in
// memory until then, because the widths of the columns are known only when all rows of a table are.
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
		return "until " + stamp(m.LeaseUntil)
	case m.Waiting:
		return "waits for its key " + m.Key
	case len(m.Failures) > 0:
		return m.Failures[len(m.Failures)-1].Error
	}
	return ""
}

type finishedFlags struct {
	day      dayFlags
	from, to string
	last     time.Duration
	outcome  string
	page     pageFlags
}

func newFinished(a *app) *cobra.Command {
	var f finishedFlags
	cmd := &cobra.Command{
		Use:   "finished TOPIC",
		Short: "List the records of finished messages",
		Long: `Finished shows the records of a topic's messages that were acked, cancelled or dropped: how each
ended, when, and how late it was delivered. A topic keeps records for as long as its finished
retention says ('punctual topic set TOPIC --finished-retention 30d'). --on shows the messages that
finished on one day of the local time zone (TZ), or with --utc of UTC; --last those of the last
hours or minutes; --from and --to those between two times; --outcome those that ended in one way.

The records are listed in the order in which they go, which is the order in which the messages
finished unless the finished retention was changed meanwhile. Finished shows up to --limit records
and then names a cursor; --after CURSOR continues behind them.`,
		Example: `  punctual finished order.cancel --newest --limit 20
  punctual finished order.cancel --outcome cancelled --last 2h
  punctual finished reminder --from 2026-11-20T22:00:00Z --to 2026-11-21T06:00:00Z
  punctual finished reminder --on 2026-11-20 --json --limit 0 > finished-2026-11-20.ndjson`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			q, err := f.query(args[0], a.localZone())
			if err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
				return a.finished(ctx, i, s, q, f)
			})
		}),
	}
	cmd.Flags().StringVar(&f.day.on, "on", "", "only messages that finished on this `DAY` of the local time zone, like 2026-11-20")
	cmd.Flags().StringVar(&f.from, "from", "", "only messages that finished at this `TIME` or later: a day, or a time like 2026-11-20T10:00:00Z")
	cmd.Flags().StringVar(&f.to, "to", "", "only messages that finished before this `TIME`")
	cmd.Flags().BoolVar(&f.day.utc, "utc", false, "the day of --on, --from and --to is one of UTC")
	durationVar(cmd.Flags(), &f.last, "last", "only messages that finished in the last 2h, 1d ...")
	cmd.Flags().StringVar(&f.outcome, "outcome", "", "only messages that ended in this way: `acked|cancelled|expired`")
	f.page.register(cmd)
	return cmd
}

// query returns the query that the flags describe, except for --last, which counts back from the
// store's clock.
func (f *finishedFlags) query(topic string, local *time.Location) (q punctual.FinishedQuery, err error) {
	if given(f.day.on != "", f.from != "" || f.to != "", f.last != 0) > 1 {
		return q, usagef("--on, --last, and --from with --to say the time in different ways: use one of them")
	}
	q = punctual.FinishedQuery{Topic: topic, Outcome: punctual.Outcome(f.outcome), Descending: f.page.newest}
	if q.From, q.To, err = f.day.bounds(local); err != nil {
		return q, err
	}
	if f.from != "" {
		if q.From, err = f.day.instant(f.from, local); err != nil {
			return q, err
		}
	}
	if f.to != "" {
		if q.To, err = f.day.instant(f.to, local); err != nil {
			return q, err
		}
	}
	_, err = typed(storekit.CheckFinished(q))
	return q, err
}

// finished shows the records that q selects, as the flags say.
func (a *app) finished(ctx context.Context, i punctual.Inspector, s punctual.Store, q punctual.FinishedQuery, f finishedFlags) error {
	stats, err := topicStats(ctx, i, q.Topic)
	if err != nil {
		return err
	}
	keeper, err := punctual.As[punctual.FinishedKeeper](s)
	if err != nil {
		return err
	}
	if f.last != 0 {
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		q.From = now.Add(-f.last)
	}
	show := &lister[punctual.Finished]{
		app: a, columns: []any{"ID", "OUTCOME", "FINISHED", "DUE", "LATE", "ATTEMPTS", "NOTE"}, numbers: []int{6}, wide: []int{7}, row: finishedRow,
		line: func(f *punctual.Finished, next string) any {
			return finishedJSON{Finished: wire.FinishedOf(f), Next: next}
		},
	}
	shown, err := show.pages(f.page, func(after string, limit int) ([]punctual.Finished, string, error) {
		q.After, q.Limit = after, limit
		page, err := keeper.ListFinished(ctx, q)
		return page.Records, page.Next, err
	})
	if err != nil || shown > 0 {
		return err
	}
	a.sayNothing("finished records")
	if stats.Settings.FinishedRetention == 0 && !a.json {
		fmt.Fprintf(a.errs, "%s keeps none: 'punctual topic set %s --finished-retention 30d' keeps those of messages that finish from then on\n", q.Topic, q.Topic)
	}
	return nil
}

// finishedJSON is a line of finished --json.
type finishedJSON struct {
	wire.Finished
	Next string `json:"next,omitzero"`
}

func finishedRow(f *punctual.Finished) []any {
	late, note := "", ""
	if !f.Delivered.IsZero() {
		late = notation.FormatDuration(f.ReadyFor())
	}
	if n := len(f.Failures); n > 0 {
		note = f.Failures[n-1].Error
	}
	return []any{f.ID, string(f.Outcome), stamp(f.At), stamp(f.Due), late, f.Attempt, term.OneLine(note, 40)}
}
