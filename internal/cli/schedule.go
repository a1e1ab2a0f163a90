package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

const scheduleHelp = `A schedule pushes a message to a topic at the times of a cron expression. Each time is stored once,
whatever crashes. 'punctual serve' and workers with schedules store the messages when their time
comes; one of them has to run.

An expression has five fields: minute, hour, day of month, month, day of week. A sixth in front is
the second, a seventh behind is the year:

  0 9 * * MON-FRI      at 9:00 on working days         */5 * * * *    every five minutes
  0 12 1,15 * *        at noon of the 1st and 15th     0 0 L * *      on the last day of a month
  30 8 * * FRI#1       on the first Friday             0 9 1 * +MON   on the 1st if it is a Monday
  @daily, @hourly, ... as their names say              @every 90s     every 90 s, counted from 1970

Several are divided by ";". 'punctual schedule preview' says in words what an expression means.`

func newSchedule(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "schedule",
		Short: "Push messages again and again, at the times of a cron expression",
		Long:  scheduleHelp,
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

// timingFlags say when a schedule comes, beside its expression.
type timingFlags struct {
	zone        string
	from, until timeFlag
	except      []string
	spread      durationFlag
}

func (f *timingFlags) register(a *app, flags *pflag.FlagSet) {
	f.from.read, f.until.read = a.readTime, a.readTime
	flags.StringVar(&f.zone, "zone", "", "the `ZONE` whose clock the expression means, like Europe/Berlin (default UTC)")
	flags.Var(&f.from, "from", "the first instant at which it may come")
	flags.Var(&f.until, "until", "the last instant at which it may come")
	flags.StringSliceVar(&f.except, "except", nil, "`DAYS` on which it does not come: 2026-12-24, or 12-25 for every year")
	flags.Var(&f.spread, "spread", "come later by a part of this that topic and name decide, the same each time")
}

func (f *timingFlags) set(s *schedule.Schedule) {
	s.Zone, s.Except, s.Spread = f.zone, f.except, f.spread.or(0)
	s.From, s.Until = f.from.orZero(), f.until.orZero()
}

// scheduleFlags are the flags of put.
type scheduleFlags struct {
	timingFlags
	body            string
	headers         []string
	overlap, missed string
	grace           durationFlag
	limit           int64
	maxDead         int
	maxAttempts     int
	expire          durationFlag
	attributes      attributeFlags
	dropExpired     bool
}

func (f *scheduleFlags) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	f.timingFlags.register(a, flags)
	flags.StringVar(&f.body, "body", "", "the body of the messages: text, `@FILE`, or - for standard input")
	flags.StringArrayVar(&f.headers, "header", nil, "add a header, `NAME=VALUE` (repeatable)")
	flags.StringVar(&f.overlap, "overlap", "skip", "when a time comes and the message before is not finished: `skip|allow|replace`")
	flags.StringVar(&f.missed, "missed", "latest", "which of the times that came while nobody stored them are made up for: `latest|all|none`")
	flags.Var(&f.grace, "grace", "how late a time may be stored before it counts as missed (default 1m)")
	flags.Int64Var(&f.limit, "limit", 0, "end after `N` messages; 0 is no limit")
	flags.IntVar(&f.maxDead, "max-dead", 0, "pause when `N` messages in a row are dead, 1 to 10; 0 is never")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "deliver each message at most this often (default: as the topic says)")
	flags.Var(&f.expire, "expire", "stop delivering a message this long after its due time")
	flags.BoolVar(&f.dropExpired, "drop-expired", false, "drop a message when it expires, instead of keeping it among the dead")
	f.attributes.register(flags)
}

// schedule returns the schedule that the flags describe.
func (f *scheduleFlags) schedule(a *app, topic, name, spec string) (s schedule.Schedule, err error) {
	s = schedule.Schedule{
		Topic: topic, Name: name, Spec: spec, Grace: f.grace.or(0), Limit: f.limit, MaxDead: f.maxDead, MaxAttempts: f.maxAttempts,
		ExpireAfter: f.expire.or(0), DropExpired: f.dropExpired,
	}
	s.SetAttributes(f.attributes.attributes())
	f.set(&s)
	if s.Overlap, err = schedule.ParseOverlap(f.overlap); err != nil {
		return s, err
	}
	if s.Missed, err = schedule.ParseMissed(f.missed); err != nil {
		return s, err
	}
	if s.Headers, err = readHeaders(f.headers); err != nil {
		return s, err
	}
	s.Body, err = a.bodyOf(f.body)
	return s, err
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

// bodyOf returns the body that a flag gives: its text, for @FILE the content of the file without a line break at its end, or for "-"
// standard input.
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
	if loc, err := time.LoadLocation(name); err == nil {
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

// nearClockOf is clockOf, but has the weekday alone in place of the date for times less than six days from now.
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

const schedulePutHelp = `Put stores a schedule, or changes the one with this topic and name. The same again changes
nothing, so a program or a script may declare its schedules whenever it starts. A changed schedule
keeps its counters and its pause.

--missed says what becomes of the times that came while neither a server nor a worker ran: one
message for the latest of them, one for each, or none. --overlap says what happens when a time
comes while the message before it is still waiting or being worked on.

See 'punctual schedule --help' for what an expression may be.`

const schedulePutExample = `  punctual schedule put reports daily '0 9 * * MON-FRI' --zone Europe/Berlin --body @report.json --spread 5m
  punctual schedule put sync often '@every 90s' --overlap allow --missed none
  punctual schedule put invoices monthly '0 6 1 * *' --zone America/New_York --except 01-01 --missed all`

func newSchedulePut(a *app) *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{
		Use:     "put TOPIC NAME SPEC",
		Short:   "Store a schedule, or change it",
		Long:    schedulePutHelp,
		Example: schedulePutExample,
		Args:    cobra.ExactArgs(3),
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
			return a.showPut(ctx, q, s.Topic, s.Name, status)
		})
	})
	f.register(a, cmd)
	return cmd
}

// showPut shows a schedule that was put.
func (a *app) showPut(ctx context.Context, q *punctual.Queue, topic, name string, status punctual.PushStatus) error {
	info, err := schedule.Get(ctx, q, topic, name)
	if err != nil {
		return err
	}
	if a.json {
		out := wire.ScheduleOf(&info)
		out.Result = status.String()
		return a.out.writeJSON(out)
	}
	now, err := q.Store().Now(ctx)
	if err != nil {
		return err
	}
	a.printf("%s in %s, %s\n", name, topic, whenItComes(&info.Times, info.Zone, now))
	if status == punctual.PushDuplicate {
		fmt.Fprintf(a.errs, "punctual: %sunchanged\n", a.prefix())
	}
	if info.Paused != nil {
		fmt.Fprintf(a.errs, "punctual: %s%s: 'punctual schedule resume %s %s' ends that\n", a.prefix(), pauseWords(info.Paused), topic, name)
	}
	a.warn(name, info.Warnings)
	return nil
}

// pauseWords says that a schedule is paused, by whom and why: "paused by anna: until the API is back".
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

const schedulePreviewHelp = `Preview says in words what an expression means, and when it comes next. It needs no store. With
--json the object has the members words, warnings and next.`

const schedulePreviewExample = `  punctual schedule preview '0 9 * * MON-FRI' --zone Europe/Berlin
  punctual schedule preview '0 12 1 * MON' --next 20
  punctual schedule preview '30 2 * * *' --zone America/New_York --after 2027-03-13T00:00:00Z`

func newSchedulePreview(a *app) *cobra.Command {
	var f timingFlags
	var next int
	after := timeFlag{read: a.readTime}
	cmd := &cobra.Command{
		Use:     "preview SPEC",
		Short:   "Say in words when an expression comes, without a store",
		Long:    schedulePreviewHelp,
		Example: schedulePreviewExample,
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = a.action(func(_ context.Context, args []string) error {
		s := schedule.Schedule{Spec: args[0]}
		f.set(&s)
		now := a.now()
		start := now
		if after.t != nil {
			start = *after.t
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
	f.register(a, cmd.Flags())
	cmd.Flags().IntVar(&next, "next", 10, "how many times to show, 0 to 10000")
	cmd.Flags().Var(&after, "after", "show the times behind this one, in place of now")
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
