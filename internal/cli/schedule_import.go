package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/crontab"
	"github.com/punctualmq/punctual/internal/importer"
	"github.com/punctualmq/punctual/schedule"
)

func newScheduleImport(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "import",
		Short: "Make schedules of what another system has",
		Long: `Import makes schedules of the entries of a crontab, of asynq's periodic tasks or of BullMQ's job
schedulers. Without --yes it changes nothing and says what it would do. What means something else
here is named, and nothing is guessed.`,
		Example: `  punctual schedule import crontab /var/spool/cron/crontabs/shop --topic jobs --zone Europe/Berlin
  punctual schedule import crontab mycrontab --topic jobs --zone Europe/Berlin --yes
  crontab -l | punctual schedule import crontab - --topic jobs --zone UTC
  punctual schedule import asynq --zone UTC --from redis://localhost
  punctual schedule import bullmq reports --zone Europe/Berlin --from redis://localhost --yes`,
	}, newScheduleImportCrontab(a), newScheduleImportAsynq(a), newScheduleImportBull(a))
}

const importCrontabHelp = `Make a schedule of each line of a crontab. The body of its messages is the command, so that a
consumer of the topic can run it. Times, steps, ranges and names mean what they mean to cron, and
both days given mean either of them, as there.

Cron starts a command although the one before still runs, and makes up for nothing: so --overlap
is allow and --missed is none here, unless you say otherwise. Cron's clock is that of its machine,
which the file does not name: say which zone that is with --zone, unless lines CRON_TZ= do.

Lines that mean something else are named and left out, and the exit code is 1: @reboot, random
times with ~. What is for commands alone (PATH, MAILTO, a % in the command) is named, too. The
name of a schedule comes from its command: importing the file again after an edit changes what was
edited.

--system reads the form of /etc/crontab and /etc/cron.d, with a user before the command; the header
crontab-user has that name.`

const importCrontabExample = `  punctual schedule import crontab mycrontab --topic jobs --zone Europe/Berlin
  crontab -l | punctual schedule import crontab - --topic jobs --zone Europe/Berlin --yes
  punctual schedule import crontab /etc/crontab --system --topic jobs --zone UTC --missed latest --yes`

func newScheduleImportCrontab(a *app) *cobra.Command {
	var topic, zone, overlap, missed string
	var spread durationFlag
	var system, yes bool
	cmd := &cobra.Command{
		Use:     "crontab FILE|-",
		Short:   "Make schedules of the lines of a crontab",
		Long:    importCrontabHelp,
		Example: importCrontabExample,
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if topic == "" {
			return usagef("name the topic of the messages with --topic")
		}
		template := schedule.Schedule{Topic: topic, Zone: zone, Spread: spread.or(0)}
		var err error
		if template.Overlap, err = schedule.ParseOverlap(overlap); err != nil {
			return err
		}
		if template.Missed, err = schedule.ParseMissed(missed); err != nil {
			return err
		}
		text, err := a.readFile(args[0])
		if err != nil {
			return err
		}
		entries, problems := crontab.Read(string(text), system)
		var all []schedule.Schedule
		for _, e := range entries {
			s := template
			s.Name, s.Spec, s.Body = e.Name, e.Spec, []byte(e.Command)
			if e.Zone != "" {
				s.Zone = e.Zone
			}
			if s.Zone == "" {
				return usagef("line %d: say with --zone which zone's clock the times mean: cron's is that of its machine", e.Line)
			}
			if e.User != "" {
				s.Headers = map[string]string{"crontab-user": e.User}
			}
			if _, err := s.Preview(a.now(), 0); err != nil {
				return usagef("line %d: %v", e.Line, err)
			}
			all = append(all, s)
		}
		return a.importSchedules(ctx, all, func(changed bool) error { return a.crontabProblems(args[0], problems, changed) }, yes)
	})
	flags := cmd.Flags()
	flags.StringVar(&topic, "topic", "", "the `TOPIC` of the messages")
	flags.StringVar(&zone, "zone", "", "the `ZONE` of the machine that the crontab is from, like Europe/Berlin")
	flags.StringVar(&overlap, "overlap", "allow", "when a time comes and the message before is not finished: `skip|allow|replace`")
	flags.StringVar(&missed, "missed", "none", "which of the times that came while nobody stored them are made up for: `latest|all|none`")
	flags.Var(&spread, "spread", "come later by a part of this that topic and name decide, the same each time")
	flags.BoolVar(&system, "system", false, "a user stands before each command, as in /etc/crontab")
	flags.BoolVar(&yes, "yes", false, "import; without it nothing is changed")
	return cmd
}

// importSchedules puts schedules, or says what would be put. problems tells at the end what was left out; changed says whether a schedule
// was put.
func (a *app) importSchedules(ctx context.Context, all []schedule.Schedule, problems func(changed bool) error, yes bool) error {
	show := func(s *schedule.Schedule, result string) error {
		p, err := s.Preview(a.now(), 0)
		if err != nil {
			return err
		}
		return a.printScheduleResult(s.Topic, s.Name, result, p.Words)
	}
	if !yes {
		for i := range all {
			if err := show(&all[i], "found"); err != nil {
				return err
			}
		}
		if !a.json && len(all) > 0 {
			fmt.Fprintf(a.errs, "Nothing was changed. To import, run the same command with --yes.\n")
		}
		return problems(false)
	}
	put := 0
	err := a.withSchedules(ctx, orCreate, func(q *punctual.Queue) error {
		for i := range all {
			status, err := schedule.Put(ctx, q, all[i])
			if err != nil {
				return err
			}
			if status != punctual.PushDuplicate {
				put++
			}
			result := map[punctual.PushStatus]string{punctual.PushStored: "new", punctual.PushReplaced: "changed", punctual.PushDuplicate: "unchanged"}[status]
			if err := show(&all[i], result); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return soFar(err, put > 0, "schedules imported before that: %d", put)
	}
	return problems(put > 0)
}

// crontabProblems names what was not taken over. Lines that were left out are an error.
func (a *app) crontabProblems(file string, problems []crontab.Problem, changed bool) error {
	left := 0
	for _, p := range problems {
		left += a.importProblem(file, p.Left, p)
	}
	return leftOut("lines", left, changed)
}

// importProblem names what was not taken over. It returns 1 if a schedule was left out.
func (a *app) importProblem(where string, left bool, p fmt.Stringer) int {
	what, n := "note", 0
	if left {
		what, n = "left out", 1
	}
	fmt.Fprintf(a.errs, "punctual: %s%s: %s: %v\n", a.prefix(), where, what, p)
	return n
}

// leftOut is the error of an import that has left something out. changed says whether the import has changed anything.
func leftOut(what string, n int, changed bool) error {
	if n == 0 {
		return nil
	}
	return &failure{code: codeSomeFailed, exit: exitError, definite: !changed, text: fmt.Sprintf("%s left out: %d", what, n)}
}

const importAsynqSchedulesHelp = `Make a schedule of each periodic task of asynq. A scheduler writes down its tasks in Redis while it
runs, so leave it running until they are read, and stop it then: nothing is changed in Redis, and
both would push.

A task goes into the topic of its queue, with --by-type into that of its type, or into --topic. Its
payload is the body, its type the header asynq-type; the retries become attempts. The zone of a
scheduler is not stored: say which one it is with --zone, UTC if its Location was not set.

asynq enqueues although the one before still runs, and makes up for nothing: so --overlap is allow
and --missed is none here, unless you say otherwise. In a gap of daylight saving asynq leaves a
fixed time out, and here it comes behind the gap. What else means something else is named and left
out, and the exit code is 1.`

const importAsynqSchedulesExample = `  punctual schedule import asynq --zone UTC --from redis://localhost
  punctual schedule import asynq --zone Europe/Berlin --by-type --overlap skip --from redis://localhost --yes
  punctual schedule import asynq --zone UTC --topic jobs --missed latest --from redis://localhost --yes`

func newScheduleImportAsynq(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	cmd := &cobra.Command{
		Use:     "asynq",
		Short:   "Make schedules of asynq's periodic tasks",
		Long:    importAsynqSchedulesHelp,
		Example: importAsynqSchedulesExample,
		Args:    cobra.NoArgs,
		RunE:    f.action(a, "tasks", importer.Asynq),
	}
	f.register(a, cmd, "allow", "none")
	cmd.Flags().BoolVar(&f.opt.ByType, "by-type", false, "make the type of a task its topic")
	return cmd
}

const importBullSchedulesHelp = `Make a schedule of each job scheduler of BullMQ: of the queues that are named, or of all that are
found. Nothing is changed in Redis, so remove the scheduler there when it is here
(removeJobScheduler), because both would push.

A schedule goes into the topic that has the queue's name, or into --topic. The data is the body, the
job's name the header bullmq-name; attempts, limit, start and end are taken over. A pattern without
tz means the clock of BullMQ's machine: say which zone that is with --zone.

BullMQ adds the next job when the last one is started. So two of them never wait, and one that
waited is late: --overlap is skip and --missed is latest here, unless you say otherwise. What
means something else is named, or left out with exit code 1.`

const importBullSchedulesExample = `  punctual schedule import bullmq --zone UTC --from redis://localhost
  punctual schedule import bullmq reports mail --zone Europe/Berlin --from redis://localhost --yes
  punctual schedule import bullmq --prefix myapp --topic jobs --missed none --from redis://localhost --yes`

func newScheduleImportBull(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	cmd := &cobra.Command{
		Use:     "bullmq [QUEUE...]",
		Short:   "Make schedules of BullMQ's job schedulers",
		Long:    importBullSchedulesHelp,
		Example: importBullSchedulesExample,
		RunE:    f.action(a, "schedulers", importer.BullMQ),
	}
	f.register(a, cmd, "skip", "latest")
	cmd.Flags().StringVar(&f.opt.Prefix, "prefix", "bull", "the `PREFIX` of BullMQ's keys")
	return cmd
}

// scheduleImportFlags are those of the systems that keep their schedules in Redis.
type scheduleImportFlags struct {
	from, overlap, missed string
	yes                   bool
	opt                   importer.ScheduleOptions
}

func (f *scheduleImportFlags) register(a *app, cmd *cobra.Command, overlap, missed string) {
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "the Redis to import from: `redis://HOST[:PORT][/DATABASE]`, redis+sentinel://... or redis+cluster://... ("+fromVariable+")")
	flags.StringVar(&f.opt.Topic, "topic", "", "the `TOPIC` of all messages")
	flags.StringVar(&f.opt.Zone, "zone", "", "the `ZONE` whose clock the times mean that name none, like Europe/Berlin")
	flags.StringVar(&f.overlap, "overlap", overlap, "when a time comes and the message before is not finished: `skip|allow|replace`")
	flags.StringVar(&f.missed, "missed", missed, "which of the times that came while nobody stored them are made up for: `latest|all|none`")
	flags.BoolVar(&f.yes, "yes", false, "import; without it nothing is changed")
}

// action is the RunE of both kinds; what is the word for their schedules.
func (f *scheduleImportFlags) action(a *app, what string, kind importer.Kind) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, args []string) (err error) {
		o := f.opt
		o.Queues, o.Now = args, a.now()
		if o.Overlap, err = schedule.ParseOverlap(f.overlap); err != nil {
			return err
		}
		if o.Missed, err = schedule.ParseMissed(f.missed); err != nil {
			return err
		}
		if o.ByType && o.Topic != "" {
			return usagef("--topic and --by-type contradict each other: use one")
		}
		from := cmp.Or(f.from, a.getenv(fromVariable))
		if from == "" {
			return usagef("name the Redis to import from, with --from redis://HOST:PORT/DATABASE or %s", fromVariable)
		}
		all, problems, err := importer.ReadSchedules(ctx, from, kind, o)
		if err != nil {
			return err
		}
		if len(all)+len(problems) == 0 {
			return usagef("there are no %s: name the Redis and the database that they are in", what)
		}
		return a.importSchedules(ctx, all, func(changed bool) error {
			left := 0
			for _, p := range problems {
				left += a.importProblem("import", p.Left, p)
			}
			return leftOut(what, left, changed)
		}, f.yes)
	})
}
