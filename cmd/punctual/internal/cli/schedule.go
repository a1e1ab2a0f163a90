package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/view"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

func newSchedule(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "schedule",
		Short: "Push messages again and again, at the times of a cron expression",
		Long: `A schedule pushes a message to a topic at the times of a cron expression. Each time is stored once,
whatever crashes. 'punctual serve' and workers with schedules store the messages when their time
comes; one of them has to run.

An expression has five fields: minute, hour, day of month, month, day of week. A sixth in front is
the second, a seventh behind is the year:

  0 9 * * MON-FRI      at 9:00 on working days         */5 * * * *    every five minutes
  0 12 1,15 * *        at noon of the 1st and 15th     0 0 L * *      on the last day of a month
  30 8 * * FRI#1       on the first Friday             0 9 1 * +MON   on the 1st if it is a Monday
  @daily, @hourly, ... as their names say              @every 90s     every 90 s, counted from 1970

Several are divided by ";". 'punctual schedule preview' says in words what an expression means.`,
		Example: `  punctual schedule preview '0 9 * * MON-FRI' --zone Europe/Berlin
  punctual schedule put reports daily '0 9 * * MON-FRI' --zone Europe/Berlin --body '{"report":"daily"}'
  punctual schedule list
  punctual schedule pause reports daily 'until the API is back'`,
	},
		newSchedulePut(a), newScheduleList(a), newScheduleShow(a), newSchedulePreview(a),
		newSchedulePause(a), newScheduleResume(a), newScheduleRun(a), newScheduleSkip(a), newScheduleBackfill(a), newScheduleRemove(a),
		newScheduleSync(a), newScheduleImport(a),
	)
}

// withSchedules is withStore for the commands of schedules, which work with a Queue.
func (a *app) withSchedules(ctx context.Context, create bool, f func(q *punctual.Queue) error) error {
	return a.withStore(ctx, create, func(s punctual.Store) error { return f(punctual.NewQueue(s, nil)) })
}

// timingFlags adds the flags that say when a schedule comes, beside its expression.
func (a *app) timingFlags(flags *pflag.FlagSet, s *wire.ScheduleItem) {
	flags.StringVar((*string)(&s.Zone), "zone", "", "the `ZONE` whose clock the expression means, like Europe/Berlin (default UTC)")
	a.timeTextVar(flags, &s.From, "from", "the first instant at which it may come")
	a.timeTextVar(flags, &s.Until, "until", "the last instant at which it may come")
	flags.StringSliceVar((*[]string)(&s.Except), "except", nil, "`DAYS` on which it does not come: 2026-12-24, or 12-25 for every year")
	durationTextVar(flags, &s.Spread, "spread", "come later by a part of this that topic and name decide, the same each time")
}

// dialectFlag adds the flag that says whose cron an expression is written for.
func dialectFlag(flags *pflag.FlagSet, into *string) {
	flags.StringVar(into, "dialect", "", "read the expression as `asynq|bullmq|crontab|eventbridge|kubernetes|quartz|spring` does")
}

// translated returns an expression of a dialect as Punctual reads it, and says so if it is another
// one. Without a dialect it is the expression itself.
func (a *app) translated(about, spec, dialect string) (string, error) {
	if dialect == "" {
		return spec, nil
	}
	t, err := cron.Translate(spec, cron.Dialect(dialect))
	if err != nil {
		return "", usagef("%v", err)
	}
	if t.Text != spec {
		a.warn(about, []string{fmt.Sprintf("%s of %s is %s here", spec, dialect, t.Text)})
	}
	return t.Text, nil
}

// scheduleFlags are the flags of put. Most of them are members of item, a schedule as the HTTP
// interface and sync take it.
type scheduleFlags struct {
	item          wire.ScheduleItem
	body, dialect string
	headers       []string
}

func (f *scheduleFlags) register(a *app, flags *pflag.FlagSet) {
	a.timingFlags(flags, &f.item)
	dialectFlag(flags, &f.dialect)
	flags.StringVar(&f.body, "body", "", "the body of the messages: text, `@FILE`, or - for standard input")
	flags.StringArrayVar(&f.headers, "header", nil, "add a header, `NAME=VALUE` (repeatable)")
	registerPolicies(flags, (*string)(&f.item.Overlap), (*string)(&f.item.Missed), "skip", "latest")
	durationTextVar(flags, &f.item.Grace, "grace", "how late a time may be stored before it counts as missed (default 1m)")
	flags.Int64Var(&f.item.Limit, "limit", 0, "end after `N` messages; 0 is no limit")
	flags.IntVar(&f.item.MaxDead, "max-dead", 0, "pause when `N` messages in a row are dead, 1 to 10; 0 is never")
	flags.IntVar(&f.item.MaxAttempts, "max-attempts", 0, "deliver each message at most this often (default: as the topic says)")
	durationTextVar(flags, &f.item.Expire, "expire", "stop delivering a message this long after its due time")
	flags.BoolVar(&f.item.DropExpired, "drop-expired", false, "drop a message when it expires, instead of keeping it among the dead")
	attributeFlags(flags, &f.item.Attributes)
}

// schedule returns the schedule that the flags describe.
func (f *scheduleFlags) schedule(a *app, topic, name, spec string) (s schedule.Schedule, err error) {
	headers, err := readHeaders(f.headers)
	if err != nil {
		return s, err
	}
	body, err := a.bodyOf(f.body)
	if err != nil {
		return s, err
	}
	if spec, err = a.translated(name, spec, f.dialect); err != nil {
		return s, err
	}
	f.item.Spec, f.item.Body, f.item.Headers = wire.Given(spec), wire.BodyOf(body), wire.HeadersOf(headers)
	return typed(f.item.Schedule(topic, name))
}

// readHeaders reads headers that are each written as NAME=VALUE.
func readHeaders(texts []string) (map[string]string, error) {
	var out map[string]string
	for _, h := range texts {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usagef("header %q is not understood: write it like NAME=VALUE", h)
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[name] = value
	}
	return out, nil
}

// bodyOf returns the body that a flag gives: its text, for @FILE the content of the file without a
// line break at its end, or for "-" standard input.
func (a *app) bodyOf(text string) ([]byte, error) {
	if text == "-" {
		return readBody(a.in)
	}
	if file, ok := strings.CutPrefix(text, "@"); ok {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, usagef("read the body: %v", err)
		}
		return bytes.TrimSuffix(body, []byte("\n")), nil
	}
	return []byte(text), nil
}

// timesShown is how many of the next times a line has at most.
const timesShown = 3

// whenItComes says when a schedule comes, in words and with its next times.
func whenItComes(t *schedule.Times, zone string, now time.Time) string {
	text := t.Words
	if len(t.Next) == 0 {
		return text + ". It does not come any more."
	}
	text += ". Next: "
	loc := zoneOf(zone)
	for i, o := range t.Next[:min(len(t.Next), timesShown)] {
		if i > 0 {
			text += ", "
		}
		text += clockOf(o.Due, now, loc)
	}
	if len(t.Next) > timesShown {
		text += ", …"
	}
	return text
}

// zoneOf is the zone of a schedule for showing its times; UTC if it is not known here.
func zoneOf(name string) *time.Location {
	if loc, err := cron.LoadZone(name); err == nil {
		return loc
	}
	return time.UTC
}

// clockOf is a time in the zone of its schedule, with the year if that is not the present one.
func clockOf(t, now time.Time, loc *time.Location) string {
	t, now = t.In(loc), now.In(loc)
	layout := "Mon 2 Jan 15:04:05"
	if t.Year() != now.Year() {
		layout = "Mon 2 Jan 2006 15:04:05"
	}
	if t.Nanosecond() != 0 {
		layout += ".000"
	}
	return t.Format(layout)
}

// nearClockOf is clockOf, but has the weekday alone in place of the date for times less than six
// days from now.
func nearClockOf(t, now time.Time, loc *time.Location) string {
	const days = 6 * 24 * time.Hour
	if d := t.Sub(now); d > -days && d < days {
		return t.In(loc).Format("Mon 15:04:05")
	}
	return clockOf(t, now, loc)
}

// warn prints warnings about a schedule on standard error.
func (a *app) warn(about string, warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(a.errs, "punctual: %s%s: note: %s\n", a.prefix(), about, w)
	}
}

func newSchedulePut(a *app) *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{
		Use:   "put TOPIC NAME SPEC",
		Short: "Store a schedule, or change it",
		Long: `Put stores a schedule, or changes the one with this topic and name. The same again changes
nothing, so a program or a script may declare its schedules whenever it starts. A changed schedule
keeps its counters and its pause.

--missed says what becomes of the times that came while neither a server nor a worker ran: one
message for the latest of them, one for each, or none. --overlap says what happens when a time
comes while the message before it is still waiting or being worked on.

See 'punctual schedule --help' for what an expression may be.`,
		Example: `  punctual schedule put reports daily '0 9 * * MON-FRI' --zone Europe/Berlin --body @report.json --spread 5m
  punctual schedule put sync often '@every 90s' --overlap allow --missed none
  punctual schedule put invoices monthly '0 6 1 * *' --zone America/New_York --except 01-01 --missed all`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		s, err := f.schedule(a, args[0], args[1], args[2])
		if err != nil {
			return err
		}
		if _, err := s.Preview(a.now(), 0); err != nil {
			return err // before a store is made for it
		}
		return a.withSchedules(ctx, orCreate, func(q *punctual.Queue) error {
			status, err := schedule.Put(ctx, q, s)
			if err != nil {
				return err
			}
			if err := a.showChanged(ctx, q, s.Topic, s.Name, status.String()); err != nil || a.json || status != punctual.PushDuplicate {
				return err
			}
			fmt.Fprintf(a.errs, "punctual: %sunchanged\n", a.prefix())
			return nil
		})
	})
	f.register(a, cmd.Flags())
	return cmd
}

// showChanged shows a schedule after a change. result is the result of the change for --json; it
// may be empty.
func (a *app) showChanged(ctx context.Context, q *punctual.Queue, topic, name, result string) error {
	info, err := schedule.Get(ctx, q, topic, name)
	if err != nil {
		return err
	}
	if a.json {
		out := wire.ScheduleOf(&info)
		out.Result = result
		return a.out.writeJSON(out)
	}
	now, err := q.Store().Now(ctx)
	if err != nil {
		return err
	}
	words := whenItComes(&info.Times, info.Zone, now)
	if info.Paused != nil {
		words = fmt.Sprintf("%s; 'punctual schedule resume %s %s' ends that", pauseWords(info.Paused), topic, name)
	}
	a.printf("%s in %s, %s\n", name, topic, words)
	a.warn(name, info.Warnings)
	return nil
}

// pauseWords says that a schedule is paused, by whom and why: "paused by anna: until the API is
// back".
func pauseWords(p *schedule.Paused) string {
	text := "paused"
	if p.By != "" {
		text += " by " + term.Printable(p.By)
	}
	if p.Note != "" {
		text += ": " + term.Printable(p.Note)
	}
	return text
}

func newSchedulePreview(a *app) *cobra.Command {
	var item wire.ScheduleItem
	var next int
	var after time.Time
	var dialect string
	cmd := &cobra.Command{
		Use:   "preview SPEC",
		Short: "Say in words when an expression comes, without a store",
		Long: `Preview says in words what an expression means, and when it comes next. It needs no store. With
--json the object has the members words, warnings and next.`,
		Example: `  punctual schedule preview '0 9 * * MON-FRI' --zone Europe/Berlin
  punctual schedule preview '0 0 9 ? * 2-6' --dialect quartz --next 20
  punctual schedule preview '30 2 * * *' --zone America/New_York --after 2027-03-13T00:00:00Z`,
	}
	cmd.RunE = a.action(func(_ context.Context, args []string) error {
		spec, err := a.translated("preview", args[0], dialect)
		if err != nil {
			return err
		}
		item.Spec = wire.Given(spec)
		s, err := typed(item.Schedule("", ""))
		if err != nil {
			return err
		}
		now := a.now()
		start := after
		if after.IsZero() {
			start = now
		}
		p, err := s.Preview(start, next)
		if err != nil {
			return previewError(err)
		}
		if a.json {
			return a.out.writeJSON(previewJSON{p.Words, p.Warnings, wire.OccurrencesOf(p.Next)})
		}
		a.printf("%s\n", p.Words)
		loc := zoneOf(s.Zone)
		for _, o := range p.Next {
			in := o.Due.In(loc)
			a.printf("  %s  %s  %s\n", in.Format("Mon 2006-01-02 15:04:05 -07:00"), o.Due.Format(time.RFC3339), fromNow(o.Due.Sub(now)))
		}
		a.warn("preview", p.Warnings)
		return nil
	})
	a.timingFlags(cmd.Flags(), &item)
	dialectFlag(cmd.Flags(), &dialect)
	cmd.Flags().IntVar(&next, "next", 10, "how many times to show, 0 to 10000")
	a.timeVar(cmd.Flags(), &after, "after", "show the times behind this one, in place of now")
	return cmd
}

// previewJSON is what schedule preview prints.
type previewJSON struct {
	Words    string            `json:"words"`
	Warnings []string          `json:"warnings,omitempty"`
	Next     []wire.Occurrence `json:"next"`
}

// previewError is err without the name of the schedule, which preview does not have.
func previewError(err error) error {
	text := strings.TrimPrefix(strings.TrimSuffix(err.Error(), ": "+punctual.ErrInvalid.Error()), "schedule preview in topic: ")
	return usagef("%s", text)
}

// fromNow writes how far from now a time is: "in 3d4h", or "3d4h ago".
func fromNow(d time.Duration) string {
	const coarse = time.Hour
	round := func(d time.Duration) string {
		if d >= 24*coarse {
			return notation.FormatDuration(d.Round(coarse))
		}
		return notation.FormatDuration(d.Round(time.Second))
	}
	if d < 0 {
		return round(-d) + " ago"
	}
	return "in " + round(d)
}

func newScheduleList(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "List schedules with their next and last times",
		Long: `List shows the schedules of a topic, or of all, in the order in which they come next. Times are by
the clock of each schedule's zone. LAST has the last time and what became of it: the state of its
message, or how that ended where the topic keeps finished records. "finished" says that the
message is gone and no record is kept.`,
		Example: `  punctual schedule list
  punctual schedule list reports --json
  punctual schedule list --limit 20`,
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

func newScheduleShow(a *app) *cobra.Command {
	var next int
	cmd := &cobra.Command{
		Use:   "show TOPIC NAME",
		Short: "Show a schedule with its next and last times",
		Long: `Show prints all that is known of a schedule: its definition, its counters, its next times, and its
last 10 times with what became of each.`,
		Example: `  punctual schedule show reports daily
  punctual schedule show reports daily --next 100
  punctual schedule show reports daily --json`,
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
	var rows view.Rows
	rows.Add("topic", s.Topic)
	rows.Add("name", s.Name)
	rows.Add("spec", s.Spec)
	rows.Add("when", s.Words)
	rows.Add("problem", s.Problem)
	if p := s.Paused; p != nil {
		rows.Add("paused", strings.TrimPrefix(pauseWords(p), "paused ")+" since "+clockOf(p.At, now, loc))
	}
	if s.Ended {
		rows.Add("ended", "it does not come any more")
	}
	rows.Add("zone", s.Zone)
	rows.Time("from", s.From, stamp)
	rows.Time("until", s.Until, stamp)
	rows.Add("except", strings.Join(s.Except, ", "))
	addDuration(&rows, "spread", s.Spread)
	rows.Number("limit", s.Limit)
	rows.Number("max dead", int64(s.MaxDead))
	rows.Add("overlap", s.Overlap.String())
	rows.Add("missed", s.Missed.String()+", after "+notation.FormatDuration(s.Grace))
	rows.Headers(s.Headers)
	rows.Number("max attempts", int64(s.MaxAttempts))
	addDuration(&rows, "expire", s.ExpireAfter)
	if s.DropExpired {
		rows.Add("drop expired", "yes")
	}
	for _, attribute := range wire.AttributesToShow(s.Attributes()) {
		rows.Add(attribute.Name, attribute.Value)
	}
	rows = append(rows, [2]string{"body", term.OneLine(string(s.Body), 200)})
	rows.Add("counts", fmt.Sprintf("%d stored, %d missed, %d skipped", s.Counts.Stored, s.Counts.Missed, s.Counts.Skipped))
	rows.Add("created", when(s.Created))
	rows.Add("changed", when(s.Changed))
	for _, o := range s.Next {
		rows.Add("next", clockOf(o.Due, now, loc))
	}
	for _, o := range s.Last {
		rows.Add("last", fmt.Sprintf("%s  %s  %s", clockOf(o.Due, now, loc), o.Status, o.ID))
	}
	a.showRows(rows)
	a.warn(s.Name, s.Warnings)
	return nil
}

func addDuration(rows *view.Rows, name string, d time.Duration) {
	if d > 0 {
		rows.Add(name, notation.FormatDuration(d))
	}
}

// newScheduleChange completes cmd, a command for one schedule. The command calls change, and then
// shows the schedule.
func newScheduleChange(a *app, cmd *cobra.Command, change func(ctx context.Context, q *punctual.Queue, topic, name string, args []string) error) *cobra.Command {
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
			if err := change(ctx, q, args[0], args[1], args[2:]); err != nil {
				return err
			}
			return a.showChanged(ctx, q, args[0], args[1], "")
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
	}, func(ctx context.Context, q *punctual.Queue, topic, name string, _ []string) error {
		_, err := schedule.Skip(ctx, q, topic, name, n)
		return err
	})
	cmd.Flags().IntVar(&n, "times", 1, fmt.Sprintf("how many times, 1 to %d", schedule.MaxSkip))
	return cmd
}

func newScheduleBackfill(a *app) *cobra.Command {
	var from, to time.Time
	var dry bool
	cmd := &cobra.Command{
		Use:   "backfill TOPIC NAME",
		Short: "Store the messages between two instants of the past",
		Long: `Backfill stores the messages that a schedule has between two instants of the past, by the
definition that it has now, with the IDs that they would have had: those that are there already
stay as they are. They are due at once. --dry-run shows them and stores nothing. A message that
has finished is stored again unless its topic remembers IDs (--dedupe-window).`,
		Example: `  punctual schedule backfill reports daily --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run
  punctual schedule backfill reports daily --from '2026-11-01 0:00' --to '2026-11-08 0:00'
  punctual schedule backfill reports daily --from '2026-11-01 0:00' --to '2026-11-08 0:00' --json`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if from.IsZero() || to.IsZero() {
			return usagef("say from when to when with --from and --to")
		}
		return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
			b, err := schedule.Backfill(ctx, q, args[0], args[1], from, to, dry)
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
	a.timeVar(cmd.Flags(), &from, "from", "the first instant: "+timeForms)
	a.timeVar(cmd.Flags(), &to, "to", "the last instant, at most now")
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
