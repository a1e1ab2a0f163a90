package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
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

// dayFlags are --on, which names a day, and --utc, which says that it is a day of UTC and not of the local time zone.
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

// bounds returns the first instant of the day of --on and that of the next day, and zero times if --on is not given.
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

// deadParts returns the parts of a listing of dead messages with the bounds and the reason of p: that of p.topic, or, if that is empty,
// those of all topics but the audit log.
func deadParts(ctx context.Context, i punctual.Inspector, p part) ([]part, error) {
	topic := p.topic
	var args []string
	if topic != "" {
		args = []string{topic}
	}
	stats, err := statsOf(ctx, i, args)
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, s := range stats {
		p.topic, p.state = s.Topic, punctual.StateDead
		parts = append(parts, p)
	}
	return parts, nil
}
