package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/crontab"
	"github.com/punctualmq/punctual/internal/importer"
	"github.com/punctualmq/punctual/schedule"
)

func newScheduleImport(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "import",
		Short: "Make schedules of what another system has",
		Long: `Import makes schedules of the entries of a crontab, of asynq's periodic tasks, of BullMQ's job
schedulers, of the CronJobs of Kubernetes or of Quartz's triggers. Without --yes it changes nothing
and says what it would do. What means something else here is named, and nothing is guessed: exit
code 0 means that all mean what they meant there.`,
		Example: `  punctual schedule import crontab /var/spool/cron/crontabs/shop --topic jobs --zone Europe/Berlin
  punctual schedule import asynq --zone UTC --from redis://localhost
  punctual schedule import bullmq reports --zone Europe/Berlin --from redis://localhost --yes
  kubectl get cronjobs -A -o yaml | punctual schedule import kubernetes - --topic jobs --zone UTC
  punctual schedule import quartz --from postgres://localhost/shop`,
	}, newScheduleImportCrontab(a), newScheduleImportAsynq(a), newScheduleImportBull(a), newScheduleImportKubernetes(a), newScheduleImportQuartz(a))
}

func newScheduleImportCrontab(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	var spread time.Duration
	var system, prune bool
	cmd := &cobra.Command{
		Use:   "crontab FILE|-",
		Short: "Make schedules of the lines of a crontab",
		Long: `Make a schedule of each line of a crontab. The body of its messages is the command, so that a
consumer of the topic can run it, with % for each \%. Times, steps, ranges and names mean what they
mean to the crons of Debian and Red Hat, also when clocks change, and an expression that would mean
something else here is written anew and named. Both days given mean either of them, as there.

Cron starts a command although the one before still runs, and makes up for nothing: so --overlap
is allow and --missed is none here, unless you say otherwise. Cron's clock is that of its machine,
which the file does not name: say which zone that is with --zone, unless lines CRON_TZ= do.

Cron does not start a command again that has failed, so a message is delivered once, and is dead if
the command fails; --max-attempts says otherwise.

Lines that mean something else are named and left out, and the exit code is 1: @reboot, random
times with ~, standard input behind a %, a CRON_TZ that is no name of the IANA database. What is for
commands alone (PATH, MAILTO) is named, too.

The name of a schedule comes from the content of its line, so lines may be moved. When the file was
edited, its import again names the schedules whose lines are gone, which stay, and --prune removes
them. It looks at all schedules of the topic that came from a crontab, so give each crontab a topic
of its own.

--system reads the form of /etc/crontab and /etc/cron.d, with a user before the command; the header
crontab-user has that name.`,
		Example: `  punctual schedule import crontab mycrontab --topic jobs --zone Europe/Berlin
  crontab -l | punctual schedule import crontab - --topic jobs --zone Europe/Berlin --yes
  punctual schedule import crontab /etc/crontab --system --topic jobs --zone UTC --missed latest --yes`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		text, err := f.readFile(a, args[0])
		if err != nil {
			return err
		}
		entries, findings := crontab.Read(string(text), system)
		var all []importer.FoundSchedule
		for _, e := range entries {
			s := schedule.Schedule{
				Topic: f.opt.Topic, Name: e.Name, Body: []byte(e.Command), Zone: cmp.Or(e.Zone, f.opt.Zone), Spread: spread,
				Overlap: *f.opt.Overlap, Missed: *f.opt.Missed,
			}
			where := fmt.Sprintf("line %d", e.Line)
			if s.Zone == "" {
				return usagef("%s: say with --zone which zone's clock the times mean: cron's is that of its machine", where)
			}
			loc, err := cron.LoadZone(s.Zone)
			if err != nil {
				return usagef("%s: %v", where, err)
			}
			if e.User != "" {
				s.Headers = map[string]string{"crontab-user": e.User}
			}
			var found []cron.Finding
			s.Spec, found = e.Times.In(where, loc, a.now())
			findings = append(findings, found...)
			if _, err := s.Preview(a.now(), 0); err != nil {
				return usagef("%s: %v", where, err)
			}
			s.MaxAttempts = cmp.Or(f.opt.MaxAttempts, 1)
			all = append(all, importer.FoundSchedule{Schedule: s})
		}
		fmt.Fprintf(a.errs, "punctual: %s%s: note: cron sets no time limit; consume --exec ends a command after 1h unless --timeout says otherwise\n", a.prefix(), args[0])
		put, err := a.importSchedules(ctx, all, f.yes)
		if err != nil {
			return err
		}
		if f.yes || prune {
			if err := a.pruneCrontab(ctx, f.opt.Topic, all, prune, f.yes); err != nil {
				return err
			}
		}
		return a.sayFindings(args[0], "lines", findings, put)
	})
	flags := cmd.Flags()
	f.register(flags, "allow", "none")
	durationVar(flags, &spread, "spread", "come later by a part of this that topic and name decide, the same each time")
	flags.BoolVar(&prune, "prune", false, "remove the schedules of an earlier import whose lines are gone")
	flags.BoolVar(&system, "system", false, "a user stands before each command, as in /etc/crontab")
	return cmd
}

// importSchedules puts schedules, or says what would be put. It returns how many it has put.
func (a *app) importSchedules(ctx context.Context, all []importer.FoundSchedule, yes bool) (put int, err error) {
	show := func(s *schedule.Schedule, result string) error {
		p, err := s.Preview(a.now(), 0)
		if err != nil {
			return err
		}
		return a.printScheduleResult(s.Topic, s.Name, result, p.Words)
	}
	if !yes {
		for i := range all {
			if err := show(&all[i].Schedule, "found"); err != nil {
				return 0, err
			}
		}
		if !a.json && len(all) > 0 {
			fmt.Fprintf(a.errs, "Nothing was changed. To import, run the same command with --yes.\n")
		}
		return 0, nil
	}
	err = a.withSchedules(ctx, orCreate, func(q *punctual.Queue) error {
		for i := range all {
			status, err := putFound(ctx, q, &all[i])
			if err != nil {
				return err
			}
			if status != punctual.PushDuplicate {
				put++
			}
			if err := show(&all[i].Schedule, putWord(status)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return put, soFar(err, put > 0, "schedules imported before that: %d", put)
	}
	return put, nil
}

func putFound(ctx context.Context, q *punctual.Queue, s *importer.FoundSchedule) (punctual.PushStatus, error) {
	if s.Paused == "" {
		return schedule.Put(ctx, q, s.Schedule)
	}
	return schedule.PutPaused(ctx, q, s.Schedule, "punctual schedule import", s.Paused)
}

// putWord says what putting a schedule has done.
func putWord(status punctual.PushStatus) string {
	return map[punctual.PushStatus]string{punctual.PushStored: "new", punctual.PushReplaced: "changed", punctual.PushDuplicate: "unchanged"}[status]
}

// pruneCrontab removes the schedules of a topic that an import of a crontab has put and that are
// not among all, or only names them.
func (a *app) pruneCrontab(ctx context.Context, topic string, all []importer.FoundSchedule, prune, yes bool) error {
	return a.withSchedules(ctx, mustExist, func(q *punctual.Queue) error {
		for s, err := range schedule.List(ctx, q, schedule.Query{Topic: topic}) {
			if err != nil {
				return err
			}
			if !crontab.IsName(s.Name) || slices.ContainsFunc(all, func(n importer.FoundSchedule) bool { return n.Name == s.Name }) {
				continue
			}
			if !prune {
				fmt.Fprintf(a.errs, "punctual: %s%s in %s goes on, and its line is gone: --prune removes it\n", a.prefix(), s.Name, topic)
				continue
			}
			if err := a.prune(ctx, q, &s, "delete", !yes); err != nil {
				return err
			}
		}
		return nil
	})
}

// sayFindings says what an import has to say of single schedules. It returns an error if one was
// left out or means something else here. what is the word for them, and put how many were put.
func (a *app) sayFindings(where, what string, findings []cron.Finding, put int) error {
	words := map[cron.FindingKind]string{cron.Noted: "note", cron.Changed: "changed", cron.Left: "left out"}
	n := make(map[cron.FindingKind]int)
	for _, f := range findings {
		n[f.Kind]++
		fmt.Fprintf(a.errs, "punctual: %s%s: %s: %v\n", a.prefix(), where, words[f.Kind], f)
	}
	var parts []string
	if n[cron.Left] > 0 {
		parts = append(parts, fmt.Sprintf("%s left out: %d", what, n[cron.Left]))
	}
	if n[cron.Changed] > 0 {
		parts = append(parts, fmt.Sprintf("what means something else here: %d, named above as changed", n[cron.Changed]))
	}
	if parts == nil {
		return nil
	}
	return &failure{code: codeSomeFailed, exit: exitError, definite: put == 0, text: strings.Join(parts, "; ")}
}

func newScheduleImportAsynq(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	cmd := &cobra.Command{
		Use:   "asynq",
		Short: "Make schedules of asynq's periodic tasks",
		Long: `Make a schedule of each periodic task of asynq. A scheduler writes down its tasks in Redis while it
runs, so leave it running until they are read, and stop it then: nothing is changed in Redis, and
both would push.

A task goes into the topic of its queue, with --by-type into that of its type, or into --topic. Its
payload is the body, its type the header asynq-type; the retries become attempts, 26 where MaxRetry
is not set. The zone of a scheduler is not stored: say which one it is with --zone, UTC if its
Location was not set.

asynq enqueues although the one before still runs, and makes up for nothing: so --overlap is allow
and --missed is none here, unless you say otherwise. An expression that asynq reads in another way
is written anew: */2 beside another day is either of the two there, and both here. In a gap of
daylight saving asynq leaves a time out, and runs it twice when clocks are set back; here a fixed
time comes once. Which clock changes of the next two years make a difference is named for each task.
What means something else is named, or left out, and the exit code is 1.`,
		Example: `  punctual schedule import asynq --zone UTC --from redis://localhost
  punctual schedule import asynq --zone Europe/Berlin --by-type --overlap skip --from redis://localhost --yes
  punctual schedule import asynq --zone UTC --topic jobs --missed latest --from redis://localhost --yes`,
		RunE: f.action(a, "tasks", importer.Asynq),
	}
	f.register(cmd.Flags(), "allow", "none")
	cmd.Flags().StringVar(&f.from, "from", "", redisFrom)
	cmd.Flags().BoolVar(&f.opt.ByType, "by-type", false, "make the type of a task its topic")
	return cmd
}

func newScheduleImportBull(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	cmd := &cobra.Command{
		Use:   "bullmq [QUEUE...]",
		Short: "Make schedules of BullMQ's job schedulers",
		Long: `Make a schedule of each job scheduler of BullMQ: of the queues that are named, or of all that are
found. Nothing is changed in Redis, so remove the scheduler there when it is here
(removeJobScheduler), because both would push.

A schedule goes into the topic that has the queue's name, or into --topic. The data is the body, the
job's name the header bullmq-name; attempts (one, where none are set), limit, start and end are
taken over. A pattern without tz means the clock of BullMQ's machine: say which zone that is with
--zone.

BullMQ adds the next job when the last one is started. So two of them never wait, and one that
waited is late: --overlap is skip and --missed is latest here, unless you say otherwise. A pattern
that BullMQ reads in another way is written anew: 1/3 in the weekdays goes on to Sunday there, and
*/2 beside another day is either of the two. In a gap of daylight saving BullMQ runs a time in the
hour behind the gap, or leaves it out; here it comes at the end of the gap. Which clock changes of
the next two years make a difference is named for each scheduler. What means something else is
named, or left out, and the exit code is 1.`,
		Example: `  punctual schedule import bullmq --zone UTC --from redis://localhost
  punctual schedule import bullmq reports mail --zone Europe/Berlin --from redis://localhost --yes
  punctual schedule import bullmq --prefix myapp --topic jobs --missed none --from redis://localhost --yes`,
		RunE: f.action(a, "schedulers", importer.BullMQ),
	}
	f.register(cmd.Flags(), "skip", "latest")
	cmd.Flags().StringVar(&f.from, "from", "", redisFrom)
	cmd.Flags().StringVar(&f.opt.Prefix, "prefix", "bull", "the `PREFIX` of BullMQ's keys")
	return cmd
}

// scheduleImportFlags are the flags of the commands that import schedules; those for a crontab have
// no --from.
type scheduleImportFlags struct {
	from, overlap, missed string
	yes                   bool
	opt                   importer.ScheduleOptions
}

func (f *scheduleImportFlags) register(flags *pflag.FlagSet, overlap, missed string) {
	flags.StringVar(&f.opt.Topic, "topic", "", "the `TOPIC` of all messages")
	flags.StringVar(&f.opt.Zone, "zone", "", "the `ZONE` whose clock the times mean that name none, like Europe/Berlin")
	registerPolicies(flags, &f.overlap, &f.missed, overlap, missed)
	flags.IntVar(&f.opt.MaxAttempts, "max-attempts", 0, "deliver each message at most this often (default: as often as the other system would)")
	flags.BoolVar(&f.yes, "yes", false, "import; without it nothing is changed")
}

// registerPolicies adds --overlap and --missed with their defaults.
func registerPolicies(flags *pflag.FlagSet, overlap, missed *string, overlapDefault, missedDefault string) {
	flags.StringVar(overlap, "overlap", overlapDefault, "when a time comes and the message before is not finished: `skip|allow|replace`")
	flags.StringVar(missed, "missed", missedDefault, "which of the times that came while nobody stored them are made up for: `latest|all|none`")
}

// readPolicies reads --overlap and --missed.
func (f *scheduleImportFlags) readPolicies() (err error) {
	if f.opt.Overlap, err = policyOf(f.overlap, schedule.ParseOverlap); err == nil {
		f.opt.Missed, err = policyOf(f.missed, schedule.ParseMissed)
	}
	return err
}

// readFile reads the file of a system that names no topics, behind the flags.
func (f *scheduleImportFlags) readFile(a *app, name string) ([]byte, error) {
	if f.opt.Topic == "" {
		return nil, usagef("name the topic of the messages with --topic")
	}
	if err := f.readPolicies(); err != nil {
		return nil, err
	}
	return a.readFile(name)
}

// policyOf parses the value of a flag. Of one that is empty it is nil.
func policyOf[T any](text string, parse func(string) (T, error)) (*T, error) {
	if text == "" {
		return nil, nil
	}
	value, err := parse(text)
	return &value, err
}

// action is the RunE of the systems that keep their schedules in a source; what is the word for
// these.
func (f *scheduleImportFlags) action(a *app, what string, kind importer.Kind) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, args []string) error {
		if err := f.readPolicies(); err != nil {
			return err
		}
		o := f.opt
		o.Queues, o.Now = args, a.now()
		if o.ByType && o.Topic != "" {
			return usagef("--topic and --by-type contradict each other: use one")
		}
		from, err := a.source(f.from, kind)
		if err != nil {
			return err
		}
		all, findings, err := importer.ReadSchedules(ctx, from, kind, o)
		if err != nil {
			return err
		}
		return a.importFound(ctx, what, "name the server and the database that they are in", all, findings, f.yes)
	})
}

// importFound imports what was read, or says what would be imported. what is the word for it, and
// remedy says what to do where there is none.
func (a *app) importFound(ctx context.Context, what, remedy string, all []importer.FoundSchedule, findings []cron.Finding, yes bool) error {
	if len(all)+len(findings) == 0 {
		return usagef("there are no %s: %s", what, remedy)
	}
	put, err := a.importSchedules(ctx, all, yes)
	if err != nil {
		return err
	}
	return a.sayFindings("import", what, findings, put)
}

func newScheduleImportKubernetes(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	cmd := &cobra.Command{
		Use:   "kubernetes FILE|-",
		Short: "Make schedules of the CronJobs of Kubernetes",
		Long: `Make a schedule of each CronJob that kubectl get cronjobs -o yaml (or json) has written. Nothing is
changed in Kubernetes, so suspend a CronJob when its schedule is here, because both would run. One
that is suspended is put as paused, until punctual schedule resume.

Without timeZone the clock of kube-controller-manager is meant: say which one that is with --zone.
concurrencyPolicy and startingDeadlineSeconds decide, unless --overlap and --missed do for all. The
body is the jobTemplate as JSON. A consumer can have Kubernetes run the Job of a suspended CronJob,
as in the second example; backoffLimit becomes attempts here, but a Job has it itself, so say
--max-attempts 1 then. What means something else is named, or left out, and the exit code is 1:
docs/schedules.md has all, and a consumer that waits for the end of the Job.`,
		Example: `  kubectl get cronjobs -A -o yaml | punctual schedule import kubernetes - --topic jobs --zone UTC
  punctual consume jobs --exec 'kubectl -n "$PUNCTUAL_HEADER_KUBERNETES_NAMESPACE" create job --from=cronjob/"$PUNCTUAL_HEADER_KUBERNETES_CRONJOB" "$(echo "${PUNCTUAL_ID#*.}" | tr A-Z~ a-z-)"'
  kubectl -n shop patch cronjob nightly -p '{"spec":{"suspend":true}}'
  punctual schedule import kubernetes cronjobs.yaml --topic jobs --zone UTC --max-attempts 1 --overlap skip --yes`,
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		text, err := f.readFile(a, args[0])
		if err != nil {
			return err
		}
		var documents []any
		if err := yaml.Load(text, &documents, yaml.WithAllDocuments()); err != nil {
			return usagef("%s: %v", args[0], inYAML(err))
		}
		list, err := json.Marshal(documents)
		if err != nil {
			return usagef("%s: %v", args[0], err)
		}
		o := f.opt
		o.Now = a.now()
		all, findings, err := importer.KubernetesSchedules(list, o)
		if err != nil {
			return err
		}
		return a.importFound(ctx, "CronJobs", "kubectl get cronjobs -A -o yaml writes those of all namespaces", all, findings, f.yes)
	})
	f.register(cmd.Flags(), "", "")
	return cmd
}

func newScheduleImportQuartz(a *app) *cobra.Command {
	f := &scheduleImportFlags{}
	cmd := &cobra.Command{
		Use:   "quartz [SCHEDULER...]",
		Short: "Make schedules of Quartz's triggers in PostgreSQL",
		Long: `Make a schedule of each CronTrigger and repeating SimpleTrigger that Quartz 2 has in PostgreSQL: of
the schedulers (instanceName) that are named, or of all. Nothing is changed there, so shut Quartz
down when its schedules are here, because both would run. A trigger that is paused is put as paused,
until punctual schedule resume.

A schedule goes into the topic that has the job's name, or into --topic. Its name is the trigger's,
with GROUP. in front unless that is DEFAULT. The body is the data of job and trigger. Misfire
instructions and DisallowConcurrentExecution decide, unless --missed and --overlap do for all.
Triggers that come once, with a calendar, or of other types are left out. What means something else
is named, and the exit code is 1: docs/schedules.md has all.`,
		Example: `  punctual schedule import quartz --from postgres://localhost/shop
  punctual schedule import quartz --topic jobs --prefix quartz.qrtz_ --from postgres://localhost/shop --yes
  punctual schedule import quartz ShopScheduler --overlap skip --missed latest --from postgres://localhost/shop --yes`,
		RunE: f.action(a, "triggers", importer.Quartz),
	}
	f.register(cmd.Flags(), "", "")
	cmd.Flags().StringVar(&f.from, "from", "", databaseFrom("postgres"))
	cmd.Flags().StringVar(&f.opt.Prefix, "prefix", "qrtz_", "the `PREFIX` of Quartz's tables, their schema included: quartz.qrtz_")
	return cmd
}
