package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
)

func newDead(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "dead",
		Short: "List, requeue, delete or purge dead messages",
		Long: `A message is dead when it was discarded, has no attempts left, or expired. It is kept with its
reason and history until it is requeued, deleted or purged, or its topic's retention ends.`,
		Example: `  punctual dead list --on 2026-11-20
  punctual dead requeue order-42
  punctual dead delete order-43
  punctual dead purge order.cancel --before 2026-11-01`,
	}, newDeadList(a), newDeadRequeue(a), newDeadDelete(a), newDeadPurge(a))
}

// noSuchCommand refuses arguments of a command that only has subcommands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if others := namedAlike(cmd.Root(), args[0]); len(others) == 1 {
		hint = fmt.Sprintf("there is '%s', or ", others[0].CommandPath())
	}
	return usagef("unknown command %q: %ssee '%s --help'", args[0], hint, cmd.CommandPath())
}

// namedAlike returns the commands below cmd that have this name.
func namedAlike(cmd *cobra.Command, name string) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			all = append(all, sub)
		}
		all = append(all, namedAlike(sub, name)...)
	}
	return all
}

// dayFlags are --on, which names a day, and --utc, which says that it is a day of UTC and not of
// the local time zone.
type dayFlags struct {
	on  string
	utc bool
}

// register adds the flags; others are flags of the command that take a day, too.
func (f *dayFlags) register(cmd *cobra.Command, others ...string) {
	cmd.Flags().StringVar(&f.on, "on", "", "only those that died on this `DAY` of the local time zone, like 2026-11-20")
	names := strings.Join(append([]string{"--on"}, others...), " and ")
	cmd.Flags().BoolVar(&f.utc, "utc", false, "the day of "+names+" is one of UTC")
}

// bounds returns the first instant of the day of --on and that of the next day, and zero times if
// --on is not given.
func (f *dayFlags) bounds(local *time.Location) (from, to time.Time, err error) {
	if f.on == "" {
		return from, to, nil
	}
	day, err := time.Parse(time.DateOnly, f.on)
	if err != nil {
		if notation.ImpossibleDay(f.on) {
			return from, to, usagef("day %q: the calendar has no such day: use one that it has", f.on)
		}
		return from, to, usagef("day %q is not understood: write it like 2026-11-20", f.on)
	}
	zone := f.zone(local)
	return overview.StartOfDay(day, zone), overview.StartOfDay(day.AddDate(0, 0, 1), zone), nil
}

// instant reads a day, for its first instant, or an RFC 3339 time.
func (f *dayFlags) instant(s string, local *time.Location) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return overview.StartOfDay(day, f.zone(local)), nil
	}
	return typed(notation.ParseTime(s))
}

func (f *dayFlags) zone(local *time.Location) *time.Location {
	if f.utc {
		return time.UTC
	}
	return local
}

// localZone is the time zone that TZ names, or else that of the machine.
func (a *app) localZone() *time.Location {
	if name := a.getenv("TZ"); name != "" {
		if zone, err := time.LoadLocation(strings.TrimPrefix(name, ":")); err == nil {
			return zone
		}
	}
	return time.Local
}

func registerReason(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "only those that are dead for this `REASON`: "+strings.Join(reasonWords(), ", "))
	registerCompletion(cmd, "reason", fixedValues(reasonWords()...))
}

// reasonWords are the values of --reason: the reasons, with hyphens for spaces.
func reasonWords() []string {
	var words []string
	for _, r := range []punctual.DeathReason{punctual.ReasonDiscarded, punctual.ReasonAttemptsUsedUp, punctual.ReasonExpired} {
		words = append(words, strings.ReplaceAll(string(r), " ", "-"))
	}
	return words
}

// parseReason reads a value of --reason, with hyphens or spaces.
func parseReason(word string) (punctual.DeathReason, error) {
	if word != "" && !slices.Contains(reasonWords(), strings.ReplaceAll(word, " ", "-")) {
		return "", usagef("reason %q: use one of %s", word, strings.Join(reasonWords(), ", "))
	}
	return punctual.DeathReason(strings.ReplaceAll(word, "-", " ")), nil
}

func newDeadList(a *app) *cobra.Command {
	f := listFlags{state: "dead"}
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "List dead messages",
		Long: `List shows the dead messages of a topic, or of all topics one after the other, with the reason and
the last error, in the order in which they died. --on shows those that died on one day of the local
time zone (TZ), or with --utc of UTC; --reason those with one reason. With --json each message is
one object with all that is known about it. --json --limit 0 exports all dead messages, however many
there are, in little memory.`,
		Example: `  punctual dead list
  punctual dead list order.cancel --on 2026-11-20
  punctual dead list order.cancel --reason discarded
  punctual dead list --on 2026-11-20 --json --limit 0 > dead-2026-11-20.ndjson`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if len(args) > 0 && f.topic != "" {
				return usagef("the topic is given twice: as %s, and by --topic", args[0])
			}
			if f.topic != "" {
				args = []string{f.topic}
			}
			return f.list(ctx, a, args)
		}),
	}
	cmd.Flags().StringVar(&f.topic, "topic", "", "the `TOPIC`, in place of the argument")
	f.day.register(cmd)
	registerReason(cmd, &f.reason)
	f.page.registerBare(cmd)
	return cmd
}

type requeueFlags struct {
	byIDFlags
	all    bool
	reason string
	day    dayFlags
	when   whenFlags
}

func newDeadRequeue(a *app) *cobra.Command {
	var f requeueFlags
	cmd := &cobra.Command{
		Use:   "requeue (ID...|-|--all [TOPIC])",
		Short: "Schedule dead messages again",
		Long: `Requeue schedules dead messages again, now or at the time of --in or --at. Their attempts are
counted from 1 again, and the history of failures stays. Give IDs, or --all for every dead message
of a topic, or of all topics when none is given. With --all, --on requeues only those that died on
one day of the local time zone (TZ), or with --utc of UTC, and --reason only those with one reason;
'punctual bulk requeue' selects by more than that.

` + ifDueHelp + `

` + idsHelp,
		Example: `  punctual dead requeue order-42
  punctual dead requeue order-42 order-43 --topic order.cancel --in 10m
  punctual dead requeue order.cancel --all --on 2026-11-20
  punctual dead requeue - --topic order.cancel < ids.txt
  punctual dead requeue --all`,
		Args: func(_ *cobra.Command, args []string) error {
			return f.checkArgs(args)
		},
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if !f.all {
			c, err := f.when.amendment(punctual.ChangeRequeue)
			if err != nil {
				return err
			}
			return f.change(ctx, a, args, c)
		}
		return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
			return a.requeueAll(ctx, i, s, args, &f)
		})
	})
	cmd.Flags().BoolVar(&f.all, "all", false, "requeue all dead messages of the topic, or of every topic")
	f.day.register(cmd)
	registerReason(cmd, &f.reason)
	f.when.register(a, cmd.Flags())
	f.byIDFlags.register(a, cmd.Flags())
	return cmd
}

func (f *requeueFlags) checkArgs(args []string) error {
	switch {
	case !f.all && len(args) == 0:
		return usagef("nothing to requeue is named: give IDs, or --all")
	case !f.all && f.day.on != "":
		return usagef("--on goes with --all: IDs name their messages already")
	case f.all && !f.ifDue.IsZero():
		return usagef("--if-due goes with one ID, and not with --all")
	case !f.all && f.reason != "":
		return usagef("--reason goes with --all: IDs name their messages already")
	case f.all && len(args) > 1, f.all && len(args) == 1 && f.topic != "":
		return usagef("--all takes at most one TOPIC: name IDs, or --all, not both")
	}
	return nil
}

// requeueAll requeues the dead messages of a topic, or of every topic but the audit log, each by a
// bulk.
func (a *app) requeueAll(ctx context.Context, i punctual.Inspector, s punctual.Store, args []string, f *requeueFlags) error {
	b := bulk.Job{Do: bulk.Requeue}
	var err error
	if b.When, err = f.when.when(); err != nil {
		return err
	}
	if b.Select.From, b.Select.To, err = f.day.bounds(a.localZone()); err != nil {
		return err
	}
	if b.Select.Reason, err = parseReason(f.reason); err != nil {
		return err
	}
	stats, err := statsOf(ctx, i, slices.DeleteFunc(append(args, f.topic), func(t string) bool { return t == "" }))
	if err != nil {
		return err
	}
	for _, t := range stats {
		if b.Select.Topic = t.Topic; t.Dead > 0 {
			if err := a.bulk(ctx, s, b, "requeued"); err != nil {
				return err
			}
		}
	}
	return nil
}

func newDeadDelete(a *app) *cobra.Command {
	var f byIDFlags
	cmd := &cobra.Command{
		Use:   "delete ID...|-",
		Short: "Remove single dead messages for good",
		Long: `Delete removes the dead messages whose IDs are given, for good. Each ID has a definite outcome:
deleted, not_dead (the message is still to be delivered, and stays), changed (somebody else changed
it at the same time, and it stays) or not_found. To remove many, use "dead purge".

` + ifDueHelp + `

` + idsHelp,
		Example: `  punctual dead delete order-42
  punctual dead delete order-42 order-43 --topic order.cancel
  punctual dead delete - --topic order.cancel < ids.txt`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			return f.change(ctx, a, args, punctual.Amendment{Change: punctual.ChangeDelete})
		}),
	}
	f.register(a, cmd.Flags())
	return cmd
}
