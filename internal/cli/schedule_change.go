package cli

import (
	"context"
	"fmt"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

// newScheduleChange completes cmd, a command for one schedule. The command calls change, and then shows the schedule.
func newScheduleChange(a *app, cmd *cobra.Command, change func(ctx context.Context, q *punctual.Queue, topic, name string, args []string) error) *cobra.Command {
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
			if err := change(ctx, q, args[0], args[1], args[2:]); err != nil {
				return err
			}
			info, err := schedule.Get(ctx, q, args[0], args[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.out.writeJSON(wire.ScheduleOf(&info))
			}
			now, err := q.Store().Now(ctx)
			if err != nil {
				return err
			}
			if info.Paused != nil {
				a.printf("%s in %s, %s\n", info.Name, info.Topic, pauseWords(info.Paused))
				return nil
			}
			a.printf("%s in %s, %s\n", info.Name, info.Topic, whenItComes(&info.Times, info.Zone, now))
			return nil
		})
	})
	return cmd
}

func newSchedulePause(a *app) *cobra.Command {
	return newScheduleChange(a, &cobra.Command{
		Use:   "pause TOPIC NAME [NOTE]",
		Short: "Pause a schedule",
		Long: `Pause keeps a schedule from coming until 'punctual schedule resume'. What it has stored stays, and
is delivered. NOTE says why, for those who list schedules; the name of the user is noted, too.`,
		Example: `  punctual schedule pause reports daily
  punctual schedule pause reports daily 'until the API is back'
  punctual schedule pause reports daily --json`,
		Args: cobra.RangeArgs(2, 3),
	}, func(ctx context.Context, q *punctual.Queue, topic, name string, args []string) error {
		return schedule.Pause(ctx, q, topic, name, a.whoAmI(), strings.Join(args, ""))
	})
}

// whoAmI is the name of the user. It is what the variable USER says where the system does not tell.
func (a *app) whoAmI() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return a.getenv("USER")
}

func newScheduleResume(a *app) *cobra.Command {
	var catchUp bool
	cmd := newScheduleChange(a, &cobra.Command{
		Use:   "resume TOPIC NAME",
		Short: "End the pause of a schedule",
		Long: `Resume ends the pause of a schedule. The times that came meanwhile are left out and count as
skipped. With --catch-up they count as missed, and what the schedule's --missed says becomes of
them.`,
		Example: `  punctual schedule resume reports daily
  punctual schedule resume reports daily --catch-up
  punctual schedule resume reports daily --json`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, q *punctual.Queue, topic, name string, _ []string) error {
		return schedule.Resume(ctx, q, topic, name, catchUp)
	})
	cmd.Flags().BoolVar(&catchUp, "catch-up", false, "make up for the times of the pause as for missed ones")
	return cmd
}

func newScheduleRun(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run TOPIC NAME",
		Short: "Store a message of a schedule now",
		Long: `Run stores a message as the schedule would, due now, beside those of its times: also while the
schedule is paused, and whether the message before is finished or not. It prints the ID.`,
		Example: `  punctual schedule run reports daily
  punctual schedule run reports daily --json
  punctual schedule run invoices monthly`,
		Args: cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
				r, err := schedule.Run(ctx, q, args[0], args[1])
				if err != nil {
					return err
				}
				return a.printPushed(r)
			})
		}),
	}
}

func newScheduleSkip(a *app) *cobra.Command {
	n := 1
	cmd := newScheduleChange(a, &cobra.Command{
		Use:   "skip TOPIC NAME",
		Short: "Leave out the next time of a schedule, or several",
		Long: `Skip leaves out the next time of a schedule, or with --times the next few. They count as skipped
when they come. What comes then is printed.`,
		Example: `  punctual schedule skip reports daily
  punctual schedule skip reports daily --times 3
  punctual schedule skip reports daily --json`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, q *punctual.Queue, topic, name string, _ []string) error {
		_, err := schedule.Skip(ctx, q, topic, name, n)
		return err
	})
	cmd.Flags().IntVar(&n, "times", 1, fmt.Sprintf("how many times, 1 to %d", schedule.MaxSkip))
	return cmd
}

const scheduleBackfillHelp = `Backfill stores the messages that a schedule has between two instants of the past, by the
definition that it has now, with the IDs that they would have had: those that are there already
stay as they are. They are due at once. --dry-run shows them and stores nothing. A message that
has finished is stored again unless its topic remembers IDs (--dedupe-window).`

const scheduleBackfillExample = `  punctual schedule backfill reports daily --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run
  punctual schedule backfill reports daily --from '2026-11-01 0:00' --to '2026-11-08 0:00'
  punctual schedule backfill reports daily --from '2026-11-01 0:00' --to '2026-11-08 0:00' --json`

func newScheduleBackfill(a *app) *cobra.Command {
	from, to := timeFlag{read: a.readTime}, timeFlag{read: a.readTime}
	var dry bool
	cmd := &cobra.Command{
		Use:     "backfill TOPIC NAME",
		Short:   "Store the messages between two instants of the past",
		Long:    scheduleBackfillHelp,
		Example: scheduleBackfillExample,
		Args:    cobra.ExactArgs(2),
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if from.t == nil || to.t == nil {
			return usagef("say from when to when with --from and --to")
		}
		return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
			b, err := schedule.Backfill(ctx, q, args[0], args[1], *from.t, *to.t, dry)
			if err != nil {
				return err
			}
			if a.json {
				return a.out.writeJSON(wire.Occurrences{Occurrences: wire.OccurrencesOf(b.Times), Stored: b.Stored, Kept: b.Kept})
			}
			for _, o := range b.Times {
				a.printf("%s\n", strings.TrimSpace(o.ID+"  "+string(o.Status)))
			}
			switch {
			case dry:
				fmt.Fprintf(a.errs, "would store those of %d that are not there\n", len(b.Times))
			default:
				fmt.Fprintf(a.errs, "%d stored, %d were there\n", b.Stored, b.Kept)
			}
			return nil
		})
	})
	cmd.Flags().Var(&from, "from", "the first instant: "+timeForms)
	cmd.Flags().Var(&to, "to", "the last instant, at most now")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the times and store nothing")
	return cmd
}

func newScheduleRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm TOPIC NAME...",
		Short: "Remove schedules",
		Long: `Rm removes schedules, with their counters. The messages that they have stored stay, and are
delivered. To keep a schedule from coming for a while, use "schedule pause".`,
		Example: `  punctual schedule rm reports daily
  punctual schedule rm reports daily weekly monthly
  punctual schedule rm reports daily --json`,
		Args: cobra.MinimumNArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
				for _, name := range args[1:] {
					if err := schedule.Delete(ctx, q, args[0], name); err != nil {
						return err
					}
					if err := a.printScheduleResult(args[0], name, "removed", ""); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
}

// scheduleResultJSON is what schedule rm, sync and import print for each schedule.
type scheduleResultJSON struct {
	Topic  string `json:"topic"`
	Name   string `json:"name"`
	Result string `json:"result"`
	Words  string `json:"words,omitempty"`
}

func (a *app) printScheduleResult(topic, name, result, words string) error {
	if a.json {
		return a.out.writeJSON(scheduleResultJSON{topic, name, result, words})
	}
	if words != "" {
		words = ", " + words
	}
	a.printf("%-9s %s in %s%s\n", result, name, topic, words)
	return nil
}
