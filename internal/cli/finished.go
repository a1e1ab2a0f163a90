package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

const finishedHelp = `Finished shows the records of a topic's messages that were acked, cancelled or dropped: how each
ended, when, and how late it was delivered. A topic keeps records for as long as its finished
retention says ('punctual topic set TOPIC --finished-retention 30d'). --on shows the messages that
finished on one day of the local time zone (TZ), or with --utc of UTC; --last those of the last
hours or minutes; --from and --to those between two times; --outcome those that ended in one way.

The records are listed in the order in which they go, which is the order in which the messages
finished unless the finished retention was changed meanwhile. Finished shows up to --limit records
and then names a cursor; --after CURSOR continues behind them.`

const finishedExample = `  punctual finished order.cancel --newest --limit 20
  punctual finished order.cancel --outcome cancelled --last 2h
  punctual finished reminder --from 2026-11-20T22:00:00Z --to 2026-11-21T06:00:00Z
  punctual finished reminder --on 2026-11-20 --json --limit 0 > finished-2026-11-20.ndjson`

type finishedFlags struct {
	day      dayFlags
	from, to string
	last     durationFlag
	outcome  string
	limit    int
	after    string
	newest   bool
}

func newFinished(a *app) *cobra.Command {
	var f finishedFlags
	cmd := &cobra.Command{
		Use:     "finished TOPIC",
		Short:   "List the records of finished messages",
		Long:    finishedHelp,
		Example: finishedExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if f.limit < 0 {
				return usagef("limit %d: use 1 or more, or 0 for all", f.limit)
			}
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
	cmd.Flags().Var(&f.last, "last", "only messages that finished in the last 2h, 1d ...")
	cmd.Flags().StringVar(&f.outcome, "outcome", "", "only messages that ended in this way: `acked|cancelled|expired`")
	cmd.Flags().IntVar(&f.limit, "limit", 100, "show at most this many; 0: all")
	cmd.Flags().StringVar(&f.after, "after", "", "continue behind a former page, with the `CURSOR` that it named")
	cmd.Flags().BoolVar(&f.newest, "newest", false, "show the message that finished last first")
	return cmd
}

// query returns the query that the flags describe, except for --last, which counts back from the store's clock.
func (f *finishedFlags) query(topic string, local *time.Location) (q punctual.FinishedQuery, err error) {
	ways := 0
	for _, given := range []bool{f.day.on != "", f.from != "" || f.to != "", f.last.or(0) != 0} {
		if given {
			ways++
		}
	}
	if ways > 1 {
		return q, usagef("--on, --last, and --from with --to say the time in different ways: use one of them")
	}
	q = punctual.FinishedQuery{Topic: topic, Outcome: punctual.Outcome(f.outcome), Descending: f.newest, After: f.after}
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
	if last := f.last.or(0); last != 0 {
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		q.From = now.Add(-last)
	}
	show := a.newFinishedLister()
	defer show.end()
	for shown := 0; ; {
		q.Limit = pageSize(f.limit, f.limit-shown)
		page, err := keeper.ListFinished(ctx, q)
		if err != nil {
			return err
		}
		shown += len(page.Records)
		last := f.limit > 0 && shown == f.limit
		if err := show.page(page.Records, page.Next, last); err != nil {
			return err
		}
		switch q.After = page.Next; {
		case last:
			return nil
		case page.Next == "" && shown == 0:
			a.sayNothing("finished records")
			if stats.Settings.FinishedRetention == 0 && !a.json {
				fmt.Fprintf(a.errs, "%s keeps none: 'punctual topic set %s --finished-retention 30d' keeps those of messages that finish from then on\n", q.Topic, q.Topic)
			}
			return nil
		case page.Next == "":
			return nil
		}
	}
}

// finishedJSON is a line of finished --json.
type finishedJSON struct {
	wire.Finished
	Next string `json:"next,omitzero"`
}

func (a *app) newFinishedLister() *lister[punctual.Finished] {
	return &lister[punctual.Finished]{
		app: a, columns: []any{"ID", "OUTCOME", "FINISHED", "DUE", "LATE", "ATTEMPTS", "NOTE"}, numbers: []int{6}, wide: []int{7}, row: finishedRow,
		line: func(f *punctual.Finished, next string) any {
			return finishedJSON{Finished: wire.FinishedOf(f), Next: next}
		},
	}
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
