package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

const rescheduleHelp = `Reschedule moves the due time of messages that nobody works on yet, earlier or later; ID, body and
attempts stay. Each ID has a definite outcome: rescheduled (it is delivered at the new time only),
leased (too late, a consumer works on it) or not_found.

--by moves each message from the due time that it has: +1d later, -2h earlier. Of two shifts of one
message at the same time none is lost.

` + ifDueHelp + `

` + idsHelp

const rescheduleExample = `  punctual reschedule order-42 --in 1h
  punctual reschedule visit-7 --at 2026-11-21T09:00:00Z --topic reminder
  punctual reschedule visit-7 visit-8 --by +1d
  punctual reschedule 01KB1B2M8E6QZ4V9H2W3T5N7RD --now`

func newReschedule(a *app) *cobra.Command {
	var topic string
	var move moveFlags
	var by shiftFlag
	var only ifDueFlag
	cmd := &cobra.Command{
		Use:     "reschedule (ID...|-) (--in DURATION|--at TIME|--by SHIFT|--now)",
		Short:   "Move the due time of messages",
		Long:    rescheduleHelp,
		Example: rescheduleExample,
		Args:    takesIDs,
		RunE: a.action(func(ctx context.Context, ids []string) error {
			template, err := move.amendment(punctual.ChangeReschedule)
			if err != nil {
				return err
			}
			switch {
			case !move.given() && by == 0:
				return usagef("no new time is given: use --in, --at, --by or --now")
			case move.given() && by != 0:
				return usagef("--by is given with --in, --at or --now: use one")
			}
			c := change{template: template, by: time.Duration(by)}
			if c.template.IfDue, err = only.of(ids); err != nil {
				return err
			}
			return a.changeByID(ctx, topic, ids, c)
		}),
	}
	move.register(a, cmd.Flags())
	cmd.Flags().Var(&by, "by", "move the due time by this much: +1d, 90m, -2h")
	only.register(a, cmd.Flags())
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	return cmd
}

// moveFlags are --in, --at, --zone and --now.
type moveFlags struct {
	whenFlags
	now bool
}

func (f *moveFlags) register(a *app, flags *pflag.FlagSet) {
	f.whenFlags.register(a, flags)
	flags.BoolVar(&f.now, "now", false, "deliver now")
}

func (f *moveFlags) given() bool { return f.now || f.in.d != nil || f.at.text != "" }

// amendment returns change c to the time that the flags ask for, which is now if they ask for none.
func (f *moveFlags) amendment(c punctual.Change) (punctual.Amendment, error) {
	a := punctual.Amendment{Change: c}
	if _, given, err := f.when(); err != nil {
		return a, err
	} else if given && f.now {
		return a, usagef("--now is given with --in or --at: use one")
	}
	a.Delay = f.in.or(0)
	at, given, err := f.instant()
	if given {
		if at.IsZero() {
			return a, usagef("time %s cannot be told from none: use --now", stamp(at))
		}
		a.Due = at.Round(0).In(time.UTC)
	}
	return a, err
}

// shiftFlag is a flag that takes a duration with a sign; 0 means that it was not given.
type shiftFlag time.Duration

// Set, String and Type implement pflag.Value.
func (f *shiftFlag) Set(s string) error {
	size, earlier := strings.CutPrefix(s, "-")
	if !earlier {
		size = strings.TrimPrefix(s, "+")
	}
	d, err := typed(notation.ParseDuration(size))
	switch {
	case err != nil:
		return err
	case d == 0:
		return usagef("a shift of 0 changes nothing: write it like +1d, 90m or -2h")
	case earlier:
		d = -d
	}
	*f = shiftFlag(d)
	return nil
}

func (f *shiftFlag) String() string {
	if *f == 0 {
		return ""
	}
	return time.Duration(*f).String()
}

// Type is the word for the value in a command's help.
func (f *shiftFlag) Type() string { return "shift" }
