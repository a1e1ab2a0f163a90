package cli

import (
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/internal/importer"
)

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

func newImportZSet(a *app) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: importer.ZSet}}
	cmd := &cobra.Command{
		Use:     "zset KEY",
		Short:   "Import from a plain sorted set",
		Long:    importZSetHelp,
		Example: importZSetExample,
		Args:    cobra.ExactArgs(1),
		RunE:    f.action(a),
	}
	f.add(cmd)
	cmd.Flags().Var(unitFlag{&f.opt.Unit}, "unit", "what the scores count: `s|ms`")
	return cmd
}

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

func newImportBee(a *app) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: importer.BeeDelayQueue}}
	cmd := &cobra.Command{
		Use:     "beedelayqueue [TOPIC...]",
		Short:   "Import from BeeDelayQueue",
		Long:    importBeeHelp,
		Example: importBeeExample,
		RunE:    f.action(a),
	}
	f.add(cmd)
	f.addMap(cmd, "topic")
	cmd.Flags().StringSliceVar(&f.opt.Parts, "part", nil, "which messages: `order,ack`; default order")
	return cmd
}

const importRedissonHelp = `Import what Redisson's delayed queues (RDelayedQueue) hold: of the queues that are named, or of all
that are found. Each element goes into the topic that has the queue's name. What a client has
moved to the destination queue already stays for the old consumers.

--codec says how the bodies were written. raw keeps the bytes as they are, whatever wrote them.
string (StringCodec) and json (JsonJacksonCodec) do so, too, and refuse what is not UTF-8 or JSON.
json-text takes the text out of JSON strings.`

const importRedissonExample = `  punctual import redisson --from redis://localhost
  punctual import redisson orders --codec json --from redis://localhost --yes
  punctual import redisson orders --topic order.cancel --codec json-text --from redis://localhost --yes`

func newImportRedisson(a *app) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: importer.Redisson}}
	cmd := &cobra.Command{
		Use:     "redisson [QUEUE...]",
		Short:   "Import from Redisson's delayed queue",
		Long:    importRedissonHelp,
		Example: importRedissonExample,
		RunE:    f.action(a),
	}
	f.add(cmd)
	f.addMap(cmd, "queue")
	cmd.Flags().StringVar((*string)(&f.opt.Codec), "codec", "raw", "how the bodies were written: `raw|string|json|json-text`")
	return cmd
}

const importAsynqHelp = `Import the tasks that asynq has scheduled, and those that wait for a retry. They are those of the
queues that are named, or of all that are found. A task's payload is the body; its type, timeout
and last error are in the headers asynq-type, asynq-timeout and asynq-error, beside its own. It
keeps its ID if that is a UUID, as asynq makes them; one that a program chose is in the header
asynq-id. The retries that are left become attempts, and its deadline its expiry.

A task goes into the topic that has the queue's name; with --by-type into that of its type. A unique
lock stays with asynq until its time is over; asynq's retention has no counterpart. Tasks that
are pending, active, grouped or archived stay.`

const importAsynqExample = `  punctual import asynq --from redis://localhost
  punctual import asynq default critical --from redis://localhost --yes
  punctual import asynq --by-type --part scheduled --from redis://localhost --yes`

func newImportAsynq(a *app) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: importer.Asynq}}
	cmd := &cobra.Command{
		Use:     "asynq [QUEUE...]",
		Short:   "Import from asynq",
		Long:    importAsynqHelp,
		Example: importAsynqExample,
		RunE:    f.action(a),
	}
	f.add(cmd)
	f.addMap(cmd, "queue")
	cmd.Flags().BoolVar(&f.opt.ByType, "by-type", false, "the type of a task is its topic")
	cmd.Flags().StringSliceVar(&f.opt.Parts, "part", nil, "which tasks: `scheduled,retry`; default both")
	return cmd
}

const importPostgresHelp = `Import what a program keeps in a table of its own. Its rows have an ID, a due time and a body, in
the columns that --id, --due and --body name. The ID's column is unique by itself, mostly the
primary key; it becomes the message's ID, so that the program can cancel by it. The due time is a
timestamp, or a number of seconds or milliseconds since 1970 (--unit). A body is taken byte for
byte from a bytea, and as text from any other type.

--where is a condition in SQL that only pending rows meet. Imported rows are deleted from the
table. Rows that a transaction has locked stay, so consumers that select with FOR UPDATE and
delete in the same transaction may run meanwhile. Those that mark a row as running, work, and
delete it later may run if --where leaves such rows out.

Do not import rows of a table that has other uses, such as orders. Push a message for each of
them, or let Reconcile do so (docs/reconcile.md).`

const importPostgresExample = `  punctual import postgres jobs --id id --due run_at --body payload --topic jobs --from postgres://localhost/shop
  punctual import postgres jobs --id id --due run_at --body payload --topic jobs --from postgres://localhost/shop --yes
  punctual import postgres jobs --id id --due run_at --body payload --where "state = 'pending'" --topic jobs --from postgres://localhost/shop --yes`

func newImportPostgres(a *app) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: importer.Postgres}}
	cmd := &cobra.Command{
		Use:     "postgres TABLE",
		Short:   "Import from a table in PostgreSQL",
		Long:    importPostgresHelp,
		Example: importPostgresExample,
		Args:    cobra.ExactArgs(1),
		RunE:    f.action(a),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.opt.Columns.ID, "id", "", "the `COLUMN` that names a row")
	flags.StringVar(&f.opt.Columns.Due, "due", "", "the `COLUMN` that says when it is due")
	flags.StringVar(&f.opt.Columns.Body, "body", "", "the `COLUMN` with the body")
	flags.StringVar(&f.opt.Where, "where", "", "a `CONDITION` in SQL that pending rows meet; default all rows")
	flags.Var(unitFlag{&f.opt.Unit}, "unit", "what a due time that is a number counts: `s|ms`")
	return cmd
}

const importRiverHelp = `Import the jobs that River has scheduled, and those that wait for a retry. They are those of the
queues that are named, or of all that are found. A job's arguments are the body, as JSON. Its
kind, priority, tags, metadata and last error are in the headers river-kind, river-priority,
river-tags, river-metadata and river-error. Its ID is river- and the number that it had. The
attempts that are left stay.

A job goes into the topic that has the queue's name; with --by-type into that of its kind. River
frees the key of a unique job with it, so that old producers may insert the same again. Jobs
that are available, running, pending or done stay.`

const importRiverExample = `  punctual import river --from postgres://localhost/shop
  punctual import river default mail --from postgres://localhost/shop --yes
  punctual import river --by-type --part scheduled --from postgres://localhost/shop --yes`

func newImportRiver(a *app) *cobra.Command {
	f := &importFlags{opt: importer.Options{Kind: importer.River}}
	cmd := &cobra.Command{
		Use:     "river [QUEUE...]",
		Short:   "Import from River",
		Long:    importRiverHelp,
		Example: importRiverExample,
		RunE:    f.action(a),
	}
	f.add(cmd)
	f.addMap(cmd, "queue")
	cmd.Flags().BoolVar(&f.opt.ByType, "by-type", false, "the kind of a job is its topic")
	cmd.Flags().StringSliceVar(&f.opt.Parts, "part", nil, "which jobs: `scheduled,retryable`; default both")
	cmd.Flags().StringVar(&f.opt.Table, "table", "", "River's `TABLE`, where it is not found as river_job: schema.river_job")
	return cmd
}
