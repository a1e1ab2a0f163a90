package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

func newDead(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, requeue or purge dead messages",
		Long: `A message is dead when it was discarded, has no attempts left, or expired. It is kept with its
reason and history until it is requeued or purged, or its topic's retention ends.`,
		Example: `  punctual dead list
  punctual dead requeue order-42
  punctual dead purge order.cancel --before 2026-11-01`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeadList(a), newDeadRequeue(a), newDeadPurge(a))
	return cmd
}

// noSuchCommand refuses arguments of a command that only has subcommands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown command %q: see '%s --help'", args[0], cmd.CommandPath())
	}
	return nil
}

// dayFlag adds --on, a day of UTC.
func dayFlag(cmd *cobra.Command, on *string) {
	cmd.Flags().StringVar(on, "on", "", "only those that died on this `DAY` (UTC), like 2026-11-20")
}

// dayBounds are the bounds of the day on, none when it is empty.
func dayBounds(on string) (from, to time.Time, err error) {
	if on == "" {
		return from, to, nil
	}
	return parseDay(on)
}

// deadParts are the lists of dead messages of one topic, or of all when topic is empty.
func deadParts(ctx context.Context, i punctual.Inspector, topic string, from, to time.Time) ([]part, error) {
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
		parts = append(parts, part{s.Topic, punctual.StateDead, from, to})
	}
	return parts, nil
}
