package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

const scheduleListHelp = `List shows the schedules of a topic, or of all, in the order in which they come next. Times are by
the clock of each schedule's zone. LAST has the last time and what became of it: the state of its
message, or how that ended where the topic keeps finished records. "finished" says that the
message is gone and no record is kept.`

const scheduleListExample = `  punctual schedule list
  punctual schedule list reports --json
  punctual schedule list --limit 20`

func newScheduleList(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list [TOPIC]",
		Short:   "List schedules with their next and last times",
		Long:    scheduleListHelp,
		Example: scheduleListExample,
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if limit < 0 {
			return usagef("limit %d is negative: use 0 for no limit", limit)
		}
		return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
			return a.listSchedules(ctx, q, strings.Join(args, ""), limit)
		})
	})
	cmd.Flags().IntVar(&limit, "limit", 1000, "show at most `N`; 0 shows all")
	return cmd
}

func (a *app) listSchedules(ctx context.Context, q *punctual.Queue, topic string, limit int) error {
	now, err := q.Store().Now(ctx)
	if err != nil {
		return err
	}
	show := lister[schedule.Info]{
		app: a, columns: []any{"TOPIC", "NAME", "SPEC", "ZONE", "NEXT", "LAST", "MISSED", "SKIPPED"}, numbers: []int{7, 8},
		row: func(s *schedule.Info) []any {
			return []any{s.Topic, s.Name, term.OneLine(s.Spec, 40), cmp.Or(s.Zone, "UTC"), nextOf(s, now), lastOf(s, now), s.Counts.Missed, s.Counts.Skipped}
		},
		line: func(s *schedule.Info, _ string) any { return wire.ScheduleOf(s) },
	}
	defer show.end()
	n := 0
	for s, err := range schedule.List(ctx, q, schedule.Query{Topic: topic, Next: 1, Last: 1}) {
		if err != nil {
			return err
		}
		if limit > 0 && n == limit {
			fmt.Fprintf(a.errs, "punctual: %sthe first %d are shown: --limit 0 shows all\n", a.prefix(), limit)
			return nil
		}
		n++
		if err := show.page([]schedule.Info{s}, "", false); err != nil {
			return err
		}
	}
	if n == 0 {
		a.sayNothing("schedules")
	}
	return nil
}

// nextOf says when a schedule comes next, or why it does not come.
func nextOf(s *schedule.Info, now time.Time) string {
	switch {
	case s.Problem != "":
		return "! " + term.OneLine(s.Problem, 60)
	case s.Paused != nil:
		return term.OneLine(pauseWords(s.Paused), 60)
	case s.Ended || len(s.Next) == 0:
		return "ended"
	}
	return nearClockOf(s.Next[0].Due, now, zoneOf(s.Zone))
}

func lastOf(s *schedule.Info, now time.Time) string {
	if len(s.Last) == 0 {
		return "-"
	}
	return nearClockOf(s.Last[0].Due, now, zoneOf(s.Zone)) + " " + string(s.Last[0].Status)
}

const scheduleShowHelp = `Show prints all that is known of a schedule: its definition, its counters, its next times, and its
last 10 times with what became of each.`

const scheduleShowExample = `  punctual schedule show reports daily
  punctual schedule show reports daily --next 100
  punctual schedule show reports daily --json`

func newScheduleShow(a *app) *cobra.Command {
	var next int
	cmd := &cobra.Command{
		Use:     "show TOPIC NAME",
		Short:   "Show a schedule with its next and last times",
		Long:    scheduleShowHelp,
		Example: scheduleShowExample,
		Args:    cobra.ExactArgs(2),
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
			info, err := schedule.Get(ctx, q, args[0], args[1])
			if err != nil {
				return err
			}
			now, err := q.Store().Now(ctx)
			if err != nil {
				return err
			}
			if info.Words != "" {
				if info.Next, err = schedule.Next(ctx, q, args[0], args[1], next); err != nil {
					return err
				}
			}
			return a.showSchedule(&info, now)
		})
	})
	cmd.Flags().IntVar(&next, "next", 10, "how many times ahead, 0 to 10000")
	return cmd
}

func (a *app) showSchedule(s *schedule.Info, now time.Time) error {
	if a.json {
		return a.out.writeJSON(wire.ScheduleOf(s))
	}
	loc := zoneOf(s.Zone)
	a.row("topic", "%s", s.Topic)
	a.row("name", "%s", s.Name)
	if s.Spec != "" {
		a.row("spec", "%s", term.Printable(s.Spec))
		a.row("when", "%s", s.Words)
	}
	if s.Problem != "" {
		a.row("problem", "%s", term.Printable(s.Problem))
	}
	if p := s.Paused; p != nil {
		a.row("paused", "%s since %s", strings.TrimPrefix(pauseWords(p), "paused "), clockOf(p.At, now, loc))
	}
	if s.Ended {
		a.row("ended", "it does not come any more")
	}
	optional := func(name, value string, shown bool) {
		if shown {
			a.row(name, "%s", value)
		}
	}
	optional("zone", s.Zone, s.Zone != "")
	optional("from", when(s.From), !s.From.IsZero())
	optional("until", when(s.Until), !s.Until.IsZero())
	optional("except", strings.Join(s.Except, ", "), len(s.Except) > 0)
	optional("spread", notation.FormatDuration(s.Spread), s.Spread > 0)
	optional("limit", fmt.Sprint(s.Limit), s.Limit > 0)
	optional("max dead", fmt.Sprint(s.MaxDead), s.MaxDead > 0)
	a.row("overlap", "%s", s.Overlap)
	a.row("missed", "%s, after %s", s.Missed, notation.FormatDuration(s.Grace))
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		a.row("header", "%s=%s", name, s.Headers[name])
	}
	optional("max attempts", fmt.Sprint(s.MaxAttempts), s.MaxAttempts > 0)
	optional("expire", notation.FormatDuration(s.ExpireAfter), s.ExpireAfter > 0)
	optional("drop expired", "yes", s.DropExpired)
	for _, attribute := range wire.AttributesToShow(s.Schedule.Attributes()) {
		a.row(attribute.Name, "%s", attribute.Value)
	}
	a.row("body", "%s", term.OneLine(string(s.Body), 200))
	a.row("counts", "%d stored, %d missed, %d skipped", s.Counts.Stored, s.Counts.Missed, s.Counts.Skipped)
	a.row("created", "%s", when(s.Created))
	a.row("changed", "%s", when(s.Changed))
	for i, o := range s.Next {
		name := ""
		if i == 0 {
			name = "next"
		}
		a.row(name, "%s", clockOf(o.Due, now, loc))
	}
	for i, o := range s.Last {
		name := ""
		if i == 0 {
			name = "last"
		}
		a.row(name, "%s  %s  %s", clockOf(o.Due, now, loc), o.Status, o.ID)
	}
	a.warn(s.Name, s.Warnings)
	return nil
}
