package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/importer"
	"github.com/punctualmq/punctual/internal/wire"
)

// fromVariable names the source as --from does. Other users of the machine can see the arguments of
// a process, but not its environment.
const fromVariable = "PUNCTUAL_IMPORT_FROM"

// redisFrom is the help of --from for a Redis.
const redisFrom = "the Redis to import from: `redis://HOST[:PORT][/DATABASE]`, redis+sentinel://... or redis+cluster://... (" + fromVariable + ")"

// databaseFrom is the help of --from for a database whose URLs have a scheme.
func databaseFrom(scheme string) string {
	return "the database to import from: `" + scheme + "://HOST[:PORT]/DATABASE` (" + fromVariable + ")"
}

func newImport(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Take over what another delayed queue holds in Redis, a database or RabbitMQ",
		Long: `Import takes over the delayed messages that another system holds in Redis, PostgreSQL, MySQL or
RabbitMQ: none lost, and none delivered twice by the import.

Without --yes nothing is changed: the command counts what is there, says when it is due, shows
samples, and lists what cannot be imported and why.

With --yes each message is taken out of the other system in one step on its server, so that no old
consumer can have it as well, and is then pushed here. After a run was killed, the same command goes
on where it ended, and two runs at once do no harm. Producers and consumers of the other system may
go on meanwhile. Messages that cannot be imported stay where they are. What a message had there and
cannot have here is said. The exit code is 1 in both cases.

docs/importing.md has the steps for each system, with both systems running side by side.`,
		Example: `  punctual import zset jobs --topic jobs --from redis://localhost/0
  punctual import redisson --from redis://localhost/0 --store redis://localhost/1
  punctual import asynq --from redis://localhost/0 --store redis://localhost/1 --yes
  punctual import river --from postgres://localhost/shop --yes
  punctual import rabbitmq orders.wait --from amqp://guest:guest@localhost --yes`,
	}
	for _, k := range importKinds {
		cmd.AddCommand(newImportKind(a, k))
	}
	return cmd
}

// importFlags are the flags that all kinds have, and --map, which most have. The other flags of
// single kinds set fields of opt.
type importFlags struct {
	from, rejects  string
	yes, dryRun    bool
	maps, typeMaps []string
	opt            importer.Options
}

// add adds the flags that all kinds have, and --map if mapped is the word for what has a name in
// the other system.
func (f *importFlags) add(flags *pflag.FlagSet, mapped string) {
	from := redisFrom
	switch scheme := f.opt.Kind.Scheme(); scheme {
	case "postgres", "mysql":
		from = databaseFrom(scheme)
	case "amqp":
		from = "the broker to import from: `amqp://USER:PASSWORD@HOST[:PORT]/VHOST` (" + fromVariable + ")"
	}
	flags.StringVar(&f.from, "from", "", from)
	flags.BoolVar(&f.yes, "yes", false, "import; without it nothing is changed")
	flags.BoolVar(&f.dryRun, "dry-run", false, "change nothing, which is the default without --yes")
	flags.StringVar(&f.opt.Topic, "topic", "", "the `TOPIC` for all messages")
	flags.Int64Var(&f.opt.Limit, "limit", 0, "import at most `N` messages; 0 is no limit")
	durationVar(flags, &f.opt.Leave, "leave", "leave messages to the old consumers that are due or will be within this `DURATION`")
	durationVar(flags, &f.opt.Spread, "spread", "deliver messages whose time has passed over this `DURATION`, not all at once")
	flags.BoolVar(&f.opt.Follow, "follow", false, "go on until interrupted, and take over what old producers still add")
	flags.StringVar(&f.rejects, "rejects", "", "write what is left where it is to this `FILE`, one JSON object per line")
	durationVar(flags, &f.opt.DedupeWindow, "dedupe-window", "how long a run that was killed can be resumed; the duplicate window of the topics is set to at least this `DURATION` (7d)")
	flags.StringVar((*string)(&f.opt.Uncertain), "uncertain", "leave", "what to do with messages that an earlier run took, and perhaps stored, too long ago: `leave|push|drop|return`")
	if !f.opt.Kind.NamesMessages() {
		flags.StringVar(&f.opt.IDFrom, "id-from", "", "the field of a JSON body that becomes the message's ID: a JSON `POINTER` such as /order/no")
	}
	if f.opt.Kind.HasTypes() {
		flags.StringArrayVar(&f.typeMaps, "topic-of", nil, "with --by-type, another topic for one type: `TYPE=TOPIC`; may be given more than once")
	}
	if mapped != "" {
		flags.StringArrayVar(&f.maps, "map", nil, "import one "+mapped+" into a topic of another name: `NAME=TOPIC`; may be given more than once")
	}
}

// options checks the flags, and returns them as options of the importer.
func (f *importFlags) options(a *app, names []string) (importer.Options, error) {
	o := f.opt
	if len(names) > 0 {
		o.Names = names
	}
	o.Target, o.Logger = a.storeFingerprint(), a.logger()
	switch {
	case f.yes && f.dryRun:
		return o, usagef("--yes and --dry-run contradict each other: use one")
	case o.Follow && !f.yes:
		return o, usagef("--follow imports: use it with --yes")
	case f.yes && o.Kind == importer.ZSet && o.Unit == 0:
		return o, usagef("say what the scores count with --unit s or --unit ms: a run without --yes shows what they look like")
	case f.yes && strings.HasPrefix(a.storeName(), "mem:"):
		return o, usagef("a store in memory is gone when this command ends: name another one with --store")
	case o.Limit < 0:
		return o, usagef("limit %d is negative: use 0 for no limit", o.Limit)
	}
	var err error
	if o.Topics, err = pairs("map", f.maps); err != nil {
		return o, err
	}
	o.TopicOf, err = pairs("topic-of", f.typeMaps)
	return o, err
}

// pairs reads the values of a flag that are like oldname=new.topic.
func pairs(flag string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		at := strings.LastIndex(text, "=")
		if at < 1 || at == len(text)-1 {
			return nil, usagef("%s %q is not understood: write it like oldname=new.topic", flag, text)
		}
		out[text[:at]] = text[at+1:]
	}
	return out, nil
}

// storeFingerprint returns a hash of the name of the store without user and password, which tells
// apart the stores that messages may be imported into.
func (a *app) storeFingerprint() string {
	kind, where, _ := strings.Cut(a.storeName(), ":")
	if kind == "disk" {
		if full, err := filepath.Abs(where); err == nil {
			where = full
		}
	} else if at := strings.LastIndex(where, "@"); at >= 0 {
		where = "//" + where[at+1:]
	}
	sum := sha256.Sum256([]byte(kind + ":" + where))
	return hex.EncodeToString(sum[:8])
}

// action is the RunE of all kinds.
func (f *importFlags) action(a *app) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, args []string) error {
		o, err := f.options(a, args)
		if err != nil {
			return err
		}
		from, err := a.source(f.from, o.Kind)
		if err != nil {
			return err
		}
		return a.importFrom(ctx, from, o, f)
	})
}

// source returns what --from or its variable names.
func (a *app) source(from string, kind importer.Kind) (string, error) {
	if from = cmp.Or(from, a.getenv(fromVariable)); from != "" {
		return from, nil
	}
	what, form := "Redis", "redis://HOST:PORT/DATABASE"
	switch scheme := kind.Scheme(); scheme {
	case "postgres", "mysql":
		what, form = "database", scheme+"://HOST:PORT/DATABASE"
	case "amqp":
		what, form = "broker", "amqp://USER:PASSWORD@HOST:PORT/VHOST"
	}
	return "", usagef("name the %s to import from, with --from %s or %s", what, form, fromVariable)
}

// importFrom surveys the source, or with --yes imports from it, and shows what came of that.
func (a *app) importFrom(ctx context.Context, from string, o importer.Options, f *importFlags) (err error) {
	rejects, err := a.openRejects(f.rejects)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rejects.close()) }()
	o.Rejected = rejects.write

	message := "looked at"
	if f.yes {
		message = "imported"
	}
	bar := &term.Bar{}
	o.Started = func(total int64) {
		if o.Follow {
			total = 0
		}
		bar = a.newBar(message, total)
	}
	o.Progress = func(done int64) { bar.Set(done) }
	im, hangUp, err := importer.Open(ctx, from, o)
	if err != nil {
		return err
	}
	defer func() {
		if closing := hangUp(); closing != nil {
			err = errors.Join(err, fmt.Errorf("close the connection to the source: %w", closing))
		}
	}()
	report, err := a.lookOrMove(ctx, im, f.yes)
	bar.Stop(err)
	return a.endImport(report, rejects, f, err)
}

func (a *app) lookOrMove(ctx context.Context, im *importer.Importer, yes bool) (report *importer.Report, err error) {
	if !yes {
		return im.Survey(ctx)
	}
	opened := a.withStore(ctx, orCreate, func(s punctual.Store) error {
		report, err = im.Move(ctx, s)
		return nil
	})
	return report, errors.Join(err, opened)
}

// endImport shows the report, also that of a run that failed, and returns the error with which the
// command ends.
func (a *app) endImport(r *importer.Report, rejects *rejectLog, f *importFlags, err error) error {
	if r == nil || len(r.Sets) == 0 && err != nil {
		return err
	}
	if showing := a.showImport(r, f); showing != nil {
		return errors.Join(err, showing)
	}
	rejects.showRest(a, f.rejects)
	held := r.Add(func(s *importer.SetReport) int64 { return s.Held })
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("nothing is lost, the same command goes on: %w", err)
	case err != nil:
		return err
	case f.yes && r.Rejects() == 0 && held > 0:
		return &failure{code: codeSomeFailed, exit: exitError, text: fmt.Sprintf("not imported, because somebody works on them or has changed them: %d; run the command again", held)}
	case f.yes && r.Rejects() == 0 && r.Changed() > 0:
		return &failure{code: codeSomeFailed, exit: exitError, text: fmt.Sprintf("all arrived, but %d are not as they were there: other IDs, or what else is said above", r.Changed())}
	case r.Rejects() > 0:
		return &failure{
			code: codeSomeFailed, exit: exitError, definite: r.Add(func(s *importer.SetReport) int64 { return s.Stored + s.Duplicates + s.Dropped }) == 0,
			text: fmt.Sprintf("not imported, and left where they are: %d; the reasons are above, or with --rejects in a file", r.Rejects()),
		}
	}
	return nil
}

// unitVar adds --unit, which takes s or ms.
func unitVar(flags *pflag.FlagSet, p *time.Duration, usage string) {
	parsedVar(flags, p, "unit", usage, "s|ms", func(s string) (time.Duration, error) {
		unit, ok := map[string]time.Duration{"s": time.Second, "ms": time.Millisecond}[s]
		if !ok {
			return 0, usagef("unit %q: use s or ms", s)
		}
		return unit, nil
	})
}

const importZSetHelp = `Import what a program keeps in a plain sorted set. The member is the body. The score is the time
at which it is due, in seconds or milliseconds since 1970. Without --yes and --unit the unit is
guessed from the scores, and shown.

A message's ID is made from key, score and member, so that the same one is never stored twice.

Consumers that remove a member first and work on it only if the removal succeeded may run
meanwhile. For those that work first and remove afterwards use --leave with more time than they
need for one message.`

const importZSetExample = `  punctual import zset jobs --topic jobs --from redis://localhost
  punctual import zset jobs --topic jobs --from redis://localhost --unit s --yes
  punctual import zset jobs --topic jobs --from redis://localhost --unit s --leave 1m --yes`

const importBeeHelp = `Import what BeeDelayQueue keeps: the messages that wait, of the topics that are named, or of all
that are found. Each keeps its ID, body and time, and goes into the topic of the same name. How
often it was tried and when it was created are in the headers beedelayqueue-retry-count and
beedelayqueue-create-time.

Messages that were delivered and not acked yet stay, because a consumer may be working on them.
When no old consumer runs any more, --part order,ack takes those over, too. Discarded messages
stay.`

const importBeeExample = `  punctual import beedelayqueue --from redis://localhost/1
  punctual import beedelayqueue orderCancel --from redis://localhost/1 --yes
  punctual import beedelayqueue orderCancel --map orderCancel=order.cancel --from redis://localhost/1 --yes
  punctual import beedelayqueue --part order,ack --from redis://localhost/1 --yes`

const importRedissonHelp = `Import what Redisson's delayed queues (RDelayedQueue) hold: of the queues that are named, or of all
that are found. Each element goes into the topic that has the queue's name. What a client has
moved to the destination queue already stays for the old consumers.

--codec says how the bodies were written. raw keeps the bytes as they are, whatever wrote them.
string (StringCodec) and json (JsonJacksonCodec) do so, too, and refuse what is not UTF-8 or JSON.
json-text takes the text out of JSON strings.`

const importRedissonExample = `  punctual import redisson --from redis://localhost
  punctual import redisson orders --codec json --from redis://localhost --yes
  punctual import redisson orders --topic order.cancel --codec json-text --from redis://localhost --yes`

const importAsynqHelp = `Import the tasks that asynq has scheduled, and those that wait for a retry. They are those of the
queues that are named, or of all that are found. A task's payload is the body; its type, timeout
and last error are in the headers asynq-type, asynq-timeout and asynq-error, beside its own. It
keeps its ID. If another message has that ID here, it gets another one, the header asynq-id has its
own, and the command says so. The retries that are left become attempts, and its deadline its
expiry. A task whose deadline comes before it is due stays, because asynq never runs it.

A task goes into the topic that has the queue's name; with --by-type into that of its type, or the
one that --topic-of gives that type. A unique lock stays with asynq until its time is over; asynq's
retention has no counterpart. Tasks that are pending, active, grouped or archived stay.`

const importAsynqExample = `  punctual import asynq --from redis://localhost
  punctual import asynq default critical --from redis://localhost --yes
  punctual import asynq --by-type --topic-of order:close=order.close --from redis://localhost --yes
  punctual import asynq --id-from /order/no --part scheduled --from redis://localhost --yes`

const importBullHelp = `Import the jobs that BullMQ, or its predecessor Bull, has: those that are delayed, those that have a
priority, and those that wait, also in a queue that is paused. They are those of the queues that are
named, or of all that are found. A job's data is the body; its name, queue, attempts so far and last
error are in the headers bullmq-name, bullmq-queue, bullmq-attempts-made and bullmq-error. It keeps
its ID, unless another message has that here. The attempts that are left stay: a job that names none
runs once in BullMQ, and gets one here.

A job goes into the topic that has the queue's name; with --by-type into that of its name, or the
one that --topic-of gives that name. Priority, lifo and backoff have no counterpart in a message,
and the command says how many jobs have them. Jobs of flows and of job schedulers are rejected,
because BullMQ goes on with those when the job ends. Jobs that are active stay, and so do failed
ones without --part.`

const importBullExample = `  punctual import bullmq --from redis://localhost
  punctual import bullmq mail --map mail=mail.send --from redis://localhost --yes
  punctual import bullmq --by-type --part delayed --from redis://localhost --yes
  punctual import bullmq mail --part failed --spread 10m --from redis://localhost --yes`

const importCeleryHelp = `Import the tasks that wait in Celery's Redis broker: those of the queues that are named, or of all
that are found. The body of a message is that of the task, [args, kwargs, options] in JSON; its
name, queue, retries so far and time limits are in the headers celery-task, celery-queue,
celery-retries and celery-timelimit, beside its own. It keeps its ID, unless another message has
that here. Its ETA is the due time, its expires the expiry.

Workers hold the tasks that have an ETA. Stop them with TERM first: then they give those back to
their queues. Keep none running, or it takes them again.

A task goes into the topic that has the queue's name; with --by-type into that of its name, or the
one that --topic-of gives that name. Priorities have no counterpart in a message, and the command
says how many tasks have one. How often a task is retried is written in the program of Celery's
worker and not in the task, so here the topic's setting decides (punctual topic set
--max-attempts). Tasks that others follow (link, chain, chord) are rejected, because Celery starts
those when the task ends, and so are bodies that are not JSON.`

const importCeleryExample = `  punctual import celery --from redis://localhost
  punctual import celery --by-type --topic-of tasks.close_order=order.close --from redis://localhost --yes
  punctual import celery celery mail --map celery=jobs --from redis://localhost/1 --yes`

const importPostgresHelp = `Import what a program keeps in a table of its own. Its rows have an ID, a due time and a body, in
the columns that --id, --due and --body name. The ID's column is unique, mostly the primary key; it
becomes the message's ID, so that the program can cancel by it. A key of several columns is named
whole, as --id tenant,no, and the ID has its values with a colon between them. The due time is a
timestamp, or a number of seconds or milliseconds since 1970 (--unit). A body is taken byte for
byte from a bytea, and as text from any other type.

--where is a condition in SQL that only pending rows meet. Imported rows are deleted from the
table. Rows that a transaction has locked stay, so consumers that select with FOR UPDATE and
delete in the same transaction may run meanwhile. Those that mark a row as running, work, and
delete it later may run if --where leaves such rows out.

A table is refused where deleting a row may keep it or change others, because of a trigger, a
foreign key, a rule or row-level security. With --mark COLUMN=VALUE a row that is taken is updated
and not deleted; --where must leave such rows out.

Do not import rows of a table that has other uses, such as orders. Push a message for each of
them, or let Reconcile do so (docs/reconcile.md).

The last three examples are for pg-boss from version 10 on, db-scheduler, and Quartz. Triggers of
Quartz are marked, because other tables refer to them, and those that repeat are left out.`

const importPostgresExample = `  punctual import postgres jobs --id id --due run_at --body payload --topic jobs --from postgres://localhost/shop
  punctual import postgres jobs --id id --due run_at --body payload --where "state = 'pending'" --topic jobs --from postgres://localhost/shop --yes
  punctual import postgres pgboss.job --id name,id --due start_after --body data --where "state < 'active'" --topic jobs --from postgres://localhost/shop
  punctual import postgres scheduled_tasks --id task_name,task_instance --due execution_time --body task_data --where "not picked and task_name = 'close'" --topic close --from postgres://localhost/shop
  punctual import postgres qrtz_triggers --id trigger_group,trigger_name,sched_name --due next_fire_time --unit ms --body job_name --where "trigger_state = 'WAITING' and (sched_name, trigger_name, trigger_group) in (select sched_name, trigger_name, trigger_group from qrtz_simple_triggers where repeat_count = 0)" --mark trigger_state=PAUSED --topic jobs --from postgres://localhost/shop`

const importMySQLHelp = `Import what a program keeps in a table of its own, in MySQL from version 8.0 or MariaDB from 10.6
on. It is as "punctual import postgres", but for this. A body is taken byte for byte from a binary
type, and as UTF-8 from any other. A DATETIME or a DATE names no time zone: ?timezone=Europe/Berlin
behind the URL says in which the program means it. ?tls=true asks for TLS.

A table is refused unless InnoDB keeps it, or where a trigger for DELETE or a foreign key changes
more than the row that is deleted; --mark COLUMN=VALUE updates the row and does not delete it. To
see both, the user needs SELECT and TRIGGER on the whole database, and not only on the table.`

const importMySQLExample = `  punctual import mysql jobs --id id --due run_at --body payload --topic jobs --from "mysql://root@localhost/shop?timezone=UTC"
  punctual import mysql jobs --id id --due run_at --body payload --topic jobs --from "mysql://root@localhost/shop?timezone=UTC" --yes
  punctual import mysql jobs --id tenant,no --due due_ms --unit ms --body payload --where "state = 'pending'" --mark state=moved --topic jobs --from mysql://root@localhost/shop --yes
  punctual import mysql scheduled_tasks --id task_name,task_instance --due execution_time --body task_data --where "not picked and task_name = 'close'" --topic close --from mysql://root@localhost/shop`

const importRiverHelp = `Import the jobs that River has scheduled, and those that wait for a retry. They are those of the
queues that are named, or of all that are found. A job's arguments are the body, as JSON. Its
kind, priority, tags, metadata and last error are in the headers river-kind, river-priority,
river-tags, river-metadata and river-error. Its ID is river- and the number that it had, unless
--id-from names another. The attempts that are left stay.

A job goes into the topic that has the queue's name; with --by-type into that of its kind, or the
one that --topic-of gives that kind. River frees the key of a unique job with it, so that old
producers may insert the same again. Jobs that are available, running, pending or done stay.`

const importRiverExample = `  punctual import river --from postgres://localhost/shop
  punctual import river default mail --from postgres://localhost/shop --yes
  punctual import river --by-type --part scheduled --from postgres://localhost/shop --yes`

const importRabbitHelp = `Import the messages of queues of RabbitMQ in which they wait. When a message is due follows from the
first of these that it has: the header x-delay, its expiration or the TTL of its queue (the shorter
one). It is due if it has neither and x-delay is negative, because the delayed message exchange has
delayed it, or it was dead-lettered because its time was over. The TTL of a queue is found out where
this user may declare the queue; that of a policy is not, so that --ttl has to say it. A message of
which nothing says how long it waits is rejected, and --ttl 0s says that those are due.

A wait counts from the second after the timestamp. Without one, or if the message was dead-lettered
before, it counts from now, and the command says how often that was so. In a queue whose consumers
work on messages at once, expiration is a deadline and no delay: do not import such a queue.

Headers keep their names; tables and lists are JSON, x-death among them. Properties are in headers
such as rabbitmq-routing-key. The message-id is the ID. Without one and without --id-from, messages
get IDs by chance: two that are the same are two messages.

To be seen, a message has to be taken out and given back, after which RabbitMQ calls it redelivered.
Without --yes that are the first 100 of each queue, and none of a quorum queue, which counts how
often that is done. With --yes taken messages are staged in the queue punctual-import.QUEUE, and
nothing goes back from there. One import works on a queue at a time.`

const importRabbitExample = `  punctual import rabbitmq orders.wait --from amqp://guest:guest@localhost
  punctual import rabbitmq orders.wait --map orders.wait=order.close --from amqp://guest:guest@localhost --yes
  punctual import rabbitmq delayed --ttl 0s --by-type --from amqp://guest:guest@localhost/shop --yes
  punctual import rabbitmq orders.wait --topic order.close --from amqp://guest:guest@localhost --yes --follow`

// importKind is a subcommand of import.
type importKind struct {
	kind                      importer.Kind
	use, short, long, example string
	mapped                    string // the word for what --map maps; empty without --map
	flags                     func(flags *pflag.FlagSet, o *importer.Options)
}

var importKinds = []importKind{
	{
		importer.ZSet, "zset KEY", "Import from a plain sorted set", importZSetHelp, importZSetExample, "",
		func(flags *pflag.FlagSet, o *importer.Options) {
			unitVar(flags, &o.Unit, "what the scores count: `s|ms`")
		},
	},
	{
		importer.BeeDelayQueue, "beedelayqueue [TOPIC...]", "Import from BeeDelayQueue", importBeeHelp, importBeeExample, "topic",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.StringSliceVar(&o.Parts, "part", nil, "which messages: `order,ack`; default order")
		},
	},
	{
		importer.Redisson, "redisson [QUEUE...]", "Import from Redisson's delayed queue", importRedissonHelp, importRedissonExample, "queue",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.StringVar((*string)(&o.Codec), "codec", "raw", "how the bodies were written: `raw|string|json|json-text`")
		},
	},
	{
		importer.Asynq, "asynq [QUEUE...]", "Import from asynq", importAsynqHelp, importAsynqExample, "queue",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.BoolVar(&o.ByType, "by-type", false, "the type of a task is its topic")
			flags.StringSliceVar(&o.Parts, "part", nil, "which tasks: `scheduled,retry`; default both")
		},
	},
	{
		importer.BullMQ, "bullmq [QUEUE...]", "Import from BullMQ or Bull", importBullHelp, importBullExample, "queue",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.BoolVar(&o.ByType, "by-type", false, "the name of a job is its topic")
			flags.StringSliceVar(&o.Parts, "part", nil, "which jobs: `delayed,prioritized,wait,paused,failed`; default all but failed")
			flags.StringVar(&o.Prefix, "prefix", "bull", "the `PREFIX` of BullMQ's keys")
		},
	},
	{
		importer.Celery, "celery [QUEUE...]", "Import from Celery's Redis broker", importCeleryHelp, importCeleryExample, "queue",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.BoolVar(&o.ByType, "by-type", false, "the name of a task is its topic")
			flags.StringSliceVar(&o.Parts, "part", nil, "tasks of which priorities: `0,1,...,9`; default the lists that Celery makes, 0, 3, 6 and 9")
		},
	},
	{
		importer.Postgres, "postgres TABLE", "Import from a table in PostgreSQL", importPostgresHelp, importPostgresExample, "",
		tableFlags,
	},
	{importer.MySQL, "mysql TABLE", "Import from a table in MySQL or MariaDB", importMySQLHelp, importMySQLExample, "", tableFlags},
	{
		importer.River, "river [QUEUE...]", "Import from River", importRiverHelp, importRiverExample, "queue",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.BoolVar(&o.ByType, "by-type", false, "the kind of a job is its topic")
			flags.StringSliceVar(&o.Parts, "part", nil, "which jobs: `scheduled,retryable`; default both")
			flags.StringVar(&o.Table, "table", "", "River's `TABLE`, where it is not found as river_job: schema.river_job")
		},
	},
	{
		importer.RabbitMQ, "rabbitmq QUEUE...", "Import from queues of RabbitMQ", importRabbitHelp, importRabbitExample, "queue",
		func(flags *pflag.FlagSet, o *importer.Options) {
			flags.BoolVar(&o.ByType, "by-type", false, "the routing key of a message is its topic")
			givenDurationVar(flags, &o.TTL, "ttl", "how long messages wait that do not say so, where a policy and not the queue sets it: a `DURATION`; 0s if they are due")
		},
	},
}

// tableFlags are those of a program's table.
func tableFlags(flags *pflag.FlagSet, o *importer.Options) {
	flags.StringSliceVar(&o.Columns.ID, "id", nil, "the `COLUMN` that names a row; of a key of several columns all of them: tenant,no")
	flags.StringVar(&o.Columns.Due, "due", "", "the `COLUMN` that says when it is due")
	flags.StringVar(&o.Columns.Body, "body", "", "the `COLUMN` with the body")
	flags.StringVar(&o.Where, "where", "", "a `CONDITION` in SQL that pending rows meet; default all rows")
	flags.StringVar(&o.Mark, "mark", "", "set a column of a row that is taken, and do not delete the row: `COLUMN=VALUE`; needs a --where that leaves such rows out")
	unitVar(flags, &o.Unit, "what a due time that is a number counts: `s|ms`")
}

func newImportKind(a *app, k importKind) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: k.kind}}
	cmd := &cobra.Command{Use: k.use, Short: k.short, Long: k.long, Example: k.example, RunE: f.action(a)}
	f.add(cmd.Flags(), k.mapped)
	k.flags(cmd.Flags(), &f.opt)
	return cmd
}

// rejectJSON is one line of --rejects.
type rejectJSON struct {
	Key          string    `json:"key"`
	Member       wire.Text `json:"member,omitzero"`
	MemberBase64 []byte    `json:"member_base64,omitzero"`
	Score        string    `json:"score"`
	Reason       string    `json:"reason"`
	Message      string    `json:"message"`
}

func (a *app) showImport(r *importer.Report, f *importFlags) error {
	if a.json {
		return a.out.writeJSON(r)
	}
	if len(r.Sets) == 0 {
		a.printf("nothing of %s is there\n", r.Kind)
		return nil
	}
	if f.yes {
		a.showMoved(r)
	} else {
		a.showSurvey(r, f)
	}
	for _, s := range r.Sets {
		for _, what := range slices.Sorted(maps.Keys(s.Changed)) {
			a.printf("%s: %d with %s\n", setName(s), s.Changed[what], what)
		}
	}
	shown := 0
	for _, s := range r.Sets {
		for _, is := range slices.Sorted(maps.Keys(s.Renamed)) {
			if shown++; shown <= shownRejects {
				a.printf("%s: ID %s is in use or cannot be a message's, so it is %s here\n", setName(s), term.OneLine(s.Renamed[is], 60), is)
			}
		}
	}
	if shown > shownRejects {
		a.printf("and %d more IDs: --json names all of them\n", shown-shownRejects)
	}
	return nil
}

func (a *app) showSurvey(r *importer.Report, f *importFlags) {
	show := lister[*importer.SetReport]{
		app: a, columns: []any{"FROM", "TO TOPIC", "FOUND", "IMPORTABLE", "OVERDUE", "REJECTED", "LEFT", "STAGED", "FIRST DUE", "LAST DUE"}, numbers: []int{3, 4, 5, 6, 7, 8},
	}
	for _, s := range setsToShow(r) {
		show.rows = append(show.rows, []any{setName(s), topicsOf(s), s.Found, s.Importable, s.Overdue, rejected(s), s.Left, s.Staged, when(time.Time(s.FirstDue)), when(time.Time(s.LastDue))})
	}
	show.end()
	for _, s := range r.Sets {
		for _, m := range s.Samples {
			a.printf("%s: due %s, ID %s, body %s\n", setName(s), when(m.Due), term.Printable(m.ID), term.OneLine(string(m.Body), 60))
		}
		for _, note := range s.Notes {
			a.printf("%s: %s\n", setName(s), note)
		}
		if s.Staged > 0 {
			a.printf("%s: staged by an earlier run that did not end: %d; the next import begins with them\n", setName(s), s.Staged)
		}
	}
	if r.Guessed {
		a.printf("The scores look like %s: if that is right, import with --unit %s.\n", map[string]string{"s": "seconds", "ms": "milliseconds"}[r.Unit], r.Unit)
	}
	if r.Add(func(s *importer.SetReport) int64 { return s.Overdue }) > 0 && f.opt.Spread == 0 {
		a.printf("What is overdue is delivered at once: --spread 10m spreads it over ten minutes.\n")
	}
	a.printf("Nothing was changed. To import, run the same command with --yes.\n")
}

func (a *app) showMoved(r *importer.Report) {
	show := lister[*importer.SetReport]{
		app: a, columns: []any{"FROM", "TO TOPIC", "STORED", "STORED BEFORE", "REJECTED", "LEFT", "GONE", "PUT BACK", "DROPPED", "REMAINING", "STAGED"}, numbers: []int{3, 4, 5, 6, 7, 8, 9, 10, 11},
	}
	for _, s := range setsToShow(r) {
		show.rows = append(show.rows, []any{setName(s), topicsOf(s), s.Stored, s.Duplicates, rejected(s), s.Left, s.Gone, s.Returned, s.Dropped, s.Remaining, s.StillStaged})
	}
	show.end()
	for _, c := range r.Remembered {
		a.printf("The duplicate window of topic %s is %s now, so that a run that was killed can be resumed.\n", c.Topic, c.Now)
		a.printf("When the import is over: punctual topic set %s --dedupe-window %s\n", c.Topic, c.Was)
	}
}

// setsToShow returns the sets without those that have nothing, but for the first of each name.
func setsToShow(r *importer.Report) []*importer.SetReport {
	last := ""
	return slices.DeleteFunc(slices.Clone(r.Sets), func(s *importer.SetReport) bool {
		first := s.Name != last
		last = s.Name
		return !first && s.Found+s.Staged+s.Stored+s.Duplicates+s.StillStaged == 0
	})
}

// setName is a set as people call it.
func setName(s *importer.SetReport) string {
	if s.Part == "" {
		return term.Printable(s.Name)
	}
	return term.Printable(s.Name) + " (" + s.Part + ")"
}

func topicsOf(s *importer.SetReport) string {
	if s.Topic != "" {
		return s.Topic
	}
	if len(s.Topics) == 0 {
		return "by type"
	}
	return term.OneLine(strings.Join(slices.Sorted(maps.Keys(s.Topics)), ", "), 40)
}

// rejected is "0", or the number of rejects and how many of them each reason has: "5: 2 body, 3
// score".
func rejected(s *importer.SetReport) string {
	var total int64
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(s.Rejected)) {
		total += s.Rejected[reason]
		parts = append(parts, fmt.Sprintf("%d %s", s.Rejected[reason], reason))
	}
	if total == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", total, strings.Join(parts, ", "))
}

// shownRejects is how many rejects at most are printed on standard error. The file of --rejects
// gets all of them.
const shownRejects = 10

// rejectLog notes the messages that were not imported and stay where they are.
type rejectLog struct {
	app  *app
	file *os.File // nil without --rejects
	n    int
	kept []string // the first ones as lines, to be printed when the bar has ended
}

// openRejects opens the file for --rejects, and adds to one that is there.
func (a *app) openRejects(name string) (*rejectLog, error) {
	l := &rejectLog{app: a}
	if name == "" {
		return l, nil
	}
	var err error
	if l.file, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("open the file for --rejects: %w", err)
	}
	return l, nil
}

func (l *rejectLog) write(r importer.Reject) error {
	if l.n++; l.n <= shownRejects {
		l.kept = append(l.kept, fmt.Sprintf("left in %s: %s: %s", term.Printable(r.Set), term.OneLine(r.Member, 60), term.Printable(r.Text)))
	}
	if l.file == nil {
		return nil
	}
	member := wire.BodyOf([]byte(r.Member))
	line, err := jsonLine(rejectJSON{
		Key: r.Set, Member: member.Text, MemberBase64: member.Base64,
		Score: strconv.FormatFloat(r.Score, 'g', -1, 64), Reason: string(r.Reason), Message: r.Text,
	})
	if err == nil {
		_, err = l.file.Write(line)
	}
	if err != nil {
		return fmt.Errorf("write to the file for --rejects: %w", err)
	}
	return nil
}

// showRest prints the first rejects, and says where all of them are or could be. With --json it
// prints nothing.
func (l *rejectLog) showRest(a *app, file string) {
	if a.json {
		return
	}
	for _, line := range l.kept {
		fmt.Fprintf(a.errs, "%s\n", line)
	}
	switch more := l.n - len(l.kept); {
	case more > 0 && file == "":
		fmt.Fprintf(a.errs, "and %d more: --rejects FILE writes all of them to a file\n", more)
	case l.n > 0 && file != "":
		fmt.Fprintf(a.errs, "all %d are in %s\n", l.n, file)
	}
}

func (l *rejectLog) close() error {
	if l.file == nil {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return errors.Join(fmt.Errorf("write to the file for --rejects: %w", err), l.file.Close())
	}
	return l.file.Close()
}
