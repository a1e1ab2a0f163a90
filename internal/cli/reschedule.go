package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
)

const rescheduleHelp = `Reschedule moves the due time of messages that are not yet worked on, earlier or later; ID,
body and attempts stay. Each ID has a definite outcome: rescheduled (only the new time
counts), leased (too late) or not_found.`

const rescheduleExample = `  punctual reschedule order-42 --in 1h
  punctual reschedule visit-7 --at 2026-11-21T09:00:00Z --topic reminder
  punctual reschedule 01KB1B2M8E6QZ4V9H2W3T5N7RD --now`

func newReschedule(a *app) *cobra.Command {
	var topic string
	var move moveFlags
	cmd := &cobra.Command{
		Use:     "reschedule ID... (--in DURATION|--at TIME|--now)",
		Short:   "Move the due time of messages",
		Long:    rescheduleHelp,
		Example: rescheduleExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, ids []string) error {
			template, err := move.amendment(punctual.ChangeReschedule)
			if err != nil {
				return err
			}
			if !move.given() {
				return usagef("no new time is given: use --in, --at or --now")
			}
			return a.changeByID(ctx, topic, ids, template, punctual.Rescheduled)
		}),
	}
	move.register(cmd.Flags())
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	return cmd
}

// moveFlags are --in, --at and --now.
type moveFlags struct {
	whenFlags
	now bool
}

func (f *moveFlags) register(flags *pflag.FlagSet) {
	f.whenFlags.register(flags, "deliver")
	flags.BoolVar(&f.now, "now", false, "deliver now")
}

func (f *moveFlags) given() bool { return f.now || f.in.d != nil || f.at.t != nil }

// amendment is a change to the time asked for, now when none is.
func (f *moveFlags) amendment(c punctual.Change) (punctual.Amendment, error) {
	a := punctual.Amendment{Change: c}
	if _, given, err := f.when(); err != nil {
		return a, err
	} else if given && f.now {
		return a, usagef("--now is given with --in or --at: use one")
	}
	a.Delay = f.in.or(0)
	if f.at.t != nil {
		if f.at.t.IsZero() {
			return a, usagef("time %s cannot be told from none: use --now", stamp(*f.at.t))
		}
		a.Due = f.at.t.Round(0).In(time.UTC)
	}
	return a, nil
}
