package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
)

const bulkHelp = `Bulk changes all messages of a topic that match: by their state, the time they are due, the
reason they died of, a text in their last error, the beginning of their ID, and their headers.
What is given together has to hold together.

Each message is changed on the condition that its due time is still the one that was read, so
what somebody else changes meanwhile stays, and is counted. --dry-run counts what would be
changed and shows the first ten. A bulk that ends early, or is killed, is continued by the same
command; within a day no message is shifted twice.`

func newBulk(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bulk",
		Short: "Change all messages that match",
		Long:  bulkHelp,
		Example: `  punctual bulk shift reminders --by +1h --from 'tomorrow 9:00' --to 'tomorrow 12:00' --dry-run
  punctual bulk cancel reminders --header campaign=autumn --yes
  punctual bulk requeue payment.notice --error 'HTTP 503' --in 10m --rate 50`,
	}
	for _, k := range bulkKinds {
		cmd.AddCommand(newBulkKind(a, k))
	}
	return cmd
}

// bulkKind is one subcommand of bulk.
type bulkKind struct {
	do             bulk.Change
	short          string
	states         string // the values of --state, and what it means when it is left out
	done           string // the word for what was done
	long, example  string
	dead           bool // it can select dead messages, so it has --reason
	removes, moves bool // removes: it asks before it removes messages; moves: it has --in, --at, --zone and --now
}

var bulkKinds = []bulkKind{
	{
		do: bulk.Cancel, short: "Cancel all messages that match", states: "scheduled, ready or leased; left out: scheduled and ready",
		done: "cancelled", removes: true,
		long: "Bulk cancel takes back all messages that match and nobody works on. With --state leased it has\nthose that somebody works on get no further attempt.",
		example: `  punctual bulk cancel reminders --header campaign=autumn --dry-run
  punctual bulk cancel reminders --header campaign=autumn --yes
  punctual bulk cancel order.close --id-prefix shop-7- --rate 500 --yes`,
	},
	{
		do: bulk.Delete, short: "Delete all messages that match", states: "scheduled, ready, leased or dead; it has to be given",
		done: "deleted", removes: true, dead: true,
		long: "Bulk delete removes all messages that match without a trace. Whoever works on one loses its lease.",
		example: `  punctual bulk delete payment.notice --state dead --error 'no such account' --yes
  punctual bulk delete payment.notice --state dead --reason expired --to 2026-11-01T00:00:00Z
  punctual bulk delete trial --state scheduled --dry-run`,
	},
	{
		do: bulk.Requeue, short: "Requeue all dead messages that match", states: "dead",
		done: "requeued", dead: true, moves: true,
		long: "Bulk requeue delivers all dead messages that match again, now unless --in or --at says when.\nTheir attempts count from 1.",
		example: `  punctual bulk requeue payment.notice --error 'HTTP 503' --in 10m --rate 50
  punctual bulk requeue payment.notice --reason attempts-used-up
  punctual bulk requeue payment.notice --from 'today 9:00' --dry-run`,
	},
	{
		do: bulk.Reschedule, short: "Give all messages that match one due time", states: "scheduled or ready; left out: both",
		done: "rescheduled", moves: true,
		long: "Bulk reschedule gives all messages that match the same due time.",
		example: `  punctual bulk reschedule reminders --id-prefix visit- --at 'mon 9:00'
  punctual bulk reschedule reminders --state ready --in 1h
  punctual bulk reschedule search.index --now --rate 200`,
	},
	{
		do: bulk.Shift, short: "Move the due times of all messages that match", states: "scheduled or ready; left out: both, or scheduled when --by leads earlier",
		done: "moved",
		long: "Bulk shift moves each message that matches from its own due time: --by +1h later, --by -30m earlier.",
		example: `  punctual bulk shift reminders --by +1h --from 'tomorrow 9:00' --to 'tomorrow 12:00'
  punctual bulk shift reminders --by -30m --header campaign=autumn --dry-run
  punctual bulk shift reminders --by +1d --id holiday-2026`,
	},
}

// bulkFlags are the flags of the subcommands; each subcommand has some of them. Most of them are
// members of request, a bulk as the HTTP interface takes it.
type bulkFlags struct {
	request wire.BulkRequest
	reason  string
	headers []string
	yes     bool
	when    whenFlags
}

func newBulkKind(a *app, k bulkKind) *cobra.Command {
	var f bulkFlags
	cmd := &cobra.Command{
		Use:     k.do.String() + " TOPIC",
		Short:   k.short,
		Long:    k.long + "\n\n" + bulkHelp,
		Example: k.example,
		RunE: a.action(func(ctx context.Context, args []string) error {
			b, err := f.bulk(k, args[0])
			if err != nil {
				return err
			}
			if k.removes && !f.request.DryRun {
				if err := a.confirm(args[0], "all messages of "+args[0]+" that match", f.yes); err != nil {
					return err
				}
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
				if _, err := topicStats(ctx, i, args[0]); err != nil {
					return err
				}
				return a.bulk(ctx, s, b, k.done)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar((*string)(&f.request.State), "state", "", "only messages in this `STATE`: "+k.states)
	a.timeTextVar(flags, &f.request.From, "from", "only messages at this `TIME` or later: when they are due, or died")
	a.timeTextVar(flags, &f.request.To, "to", "only messages before this `TIME`")
	flags.StringVar((*string)(&f.request.Prefix), "id-prefix", "", "only messages whose ID begins with this `TEXT`")
	flags.StringVar((*string)(&f.request.Key), "key", "", "only messages with this `KEY`")
	flags.StringArrayVar(&f.headers, "header", nil, "only messages with this header, `NAME=VALUE` (repeatable)")
	flags.StringVar((*string)(&f.request.Error), "error", "", "only messages whose last failure has this `TEXT`")
	flags.IntVar(&f.request.Rate, "rate", 0, "change at most `N` messages a second; 0 is no bound")
	flags.BoolVar(&f.request.DryRun, "dry-run", false, "count what would be changed, and change nothing")
	if k.dead {
		registerReason(cmd, &f.reason)
	}
	if k.removes {
		yesFlag(cmd, &f.yes)
	}
	if k.moves {
		f.when.register(a, flags)
		f.when.registerNow(flags)
	}
	if k.do == bulk.Shift {
		parsedVar(flags, &f.request.By, "by", "move the due time by this much: +1d, 90m, -2h", "shift", func(s string) (wire.Given, error) {
			_, err := typed(wire.ParseShift("by", s))
			return wire.Given(s), err
		})
		flags.StringVar((*string)(&f.request.ID), "id", "", "name the shift, so that it is made once for a day however often the command is given")
	}
	registerCompletion(cmd, "state", fixedValues("scheduled", "ready", "leased", "dead"))
	return cmd
}

// bulk returns the bulk that the flags describe. It leaves most checks to bulk.Run.
func (f *bulkFlags) bulk(k bulkKind, topic string) (b bulk.Job, err error) {
	f.request.Do = k.do.String()
	if f.request.Header, err = readHeaders(f.headers); err != nil {
		return b, err
	}
	if b, err = typed(f.request.Bulk(topic)); err != nil {
		return b, err
	}
	if b.Select.Reason, err = parseReason(f.reason); err != nil {
		return b, err
	}
	b.When, err = f.when.when()
	if err == nil && k.do == bulk.Reschedule && !f.when.given() {
		err = usagef("no new time is given: use --in, --at or --now")
	}
	return b, err
}

// bulkJSON is what a bulk prints.
type bulkJSON struct {
	Topic string `json:"topic"`
	wire.BulkReport
}

// bulk carries out a bulk, with a bar of what it has done so far, and prints the report. done is
// the word for what it does to a message.
func (a *app) bulk(ctx context.Context, s punctual.Store, b bulk.Job, done string) error {
	bar := a.newBar("messages "+done, 0)
	b.Progress = func(r bulk.Report) { bar.Set(r.Done) }
	started := time.Now()
	r, err := bulk.Run(ctx, punctual.NewQueue(s, nil), b)
	bar.Stop(err)
	if a.json {
		if printed := a.out.writeJSON(bulkJSON{b.Select.Topic, wire.BulkEnd(r, err)}); printed != nil {
			return printed
		}
	} else {
		a.printBulk(&r, &b, done, time.Since(started))
	}
	switch {
	case err != nil && r.Looked > 0:
		return soFar(err, r.Done > 0, "done before that: %d; the same command goes on", r.Done)
	case err == nil && r.Failed > 0:
		return &failure{
			code: codeSomeFailed, exit: exitError, cause: r.Failure,
			text: fmt.Sprintf("%d of %d were refused, the first with: %v", r.Failed, r.Matched, r.Failure),
		}
	}
	return err
}

// printBulk prints a report in a line or two, and for a dry run the first messages.
func (a *app) printBulk(r *bulk.Report, b *bulk.Job, done string, took time.Duration) {
	a.printf("%s: ", b.Select.Topic)
	if !r.Continued.IsZero() {
		a.printf("continued what began at %s: ", when(r.Continued))
	}
	if b.DryRun {
		a.printf("would %s %d of %d looked at\n", b.Do, r.Matched, r.Looked)
		for _, m := range r.First {
			if m.NewDue.IsZero() {
				a.printf("  %s  %s\n", m.ID, when(m.Due))
			} else {
				a.printf("  %s  %s → %s\n", m.ID, when(m.Due), when(m.NewDue))
			}
		}
		return
	}
	parts := []string{fmt.Sprintf("%d %s", r.Done, done)}
	for _, p := range []struct {
		n    int64
		text string
	}{
		{r.Changed, "had changed meanwhile"}, {r.Leased, "were being worked on"}, {r.Gone, "had ended meanwhile"}, {r.Failed, "were refused"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	a.printf("%s (%d looked at, %s)\n", strings.Join(parts, ", "), r.Looked, notation.FormatDuration(took.Round(time.Millisecond)))
}
