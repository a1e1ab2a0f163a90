package cli

import (
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/internal/takeover"
)

const importZSetHelp = `Import what a program keeps in a plain sorted set: the member is the body, the score the time at
which it is due, in seconds or milliseconds since 1970. Without --yes and --unit the unit is
guessed from the scores, and shown.

A message's ID is made from key, score and member, so that the same one is never stored twice.

Consumers that remove a member first and work on it only if the removal succeeded may run
meanwhile. For those that work first and remove afterwards use --leave with more time than they
need for one message.`

const importZSetExample = `  punctual import zset jobs --topic jobs --from redis://localhost
  punctual import zset jobs --topic jobs --from redis://localhost --unit s --yes
  punctual import zset jobs --topic jobs --from redis://localhost --unit s --leave 1m --yes`

func newImportZSet(a *app) *cobra.Command {
	f := &importFlags{opt: takeover.Options{Kind: takeover.ZSet}}
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
	f := &importFlags{opt: takeover.Options{Kind: takeover.BeeDelayQueue}}
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

--codec says how the bodies were written. raw keeps the bytes as they are, whatever wrote them;
string (StringCodec) and json (JsonJacksonCodec) do so, too, and refuse what is not UTF-8 or
JSON; json-text takes the text out of JSON strings.`

const importRedissonExample = `  punctual import redisson --from redis://localhost
  punctual import redisson orders --codec json --from redis://localhost --yes
  punctual import redisson orders --topic order.cancel --codec json-text --from redis://localhost --yes`

func newImportRedisson(a *app) *cobra.Command {
	f := &importFlags{opt: takeover.Options{Kind: takeover.Redisson}}
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

const importAsynqHelp = `Import the tasks that asynq has scheduled, and those that wait for a retry: of the queues that are
named, or of all that are found. A task's payload is the body; its type, timeout and last error are
in the headers asynq-type, asynq-timeout and asynq-error, beside its own. It keeps its ID if
that is a UUID, as asynq makes them; one that a program chose is in the header asynq-id. The retries
that are left become attempts, and its deadline its expiry.

A task goes into the topic that has the queue's name; with --by-type into that of its type. A unique
lock stays with asynq until its time is over; asynq's retention has no counterpart. Tasks that
are pending, active, grouped or archived stay.`

const importAsynqExample = `  punctual import asynq --from redis://localhost
  punctual import asynq default critical --from redis://localhost --yes
  punctual import asynq --by-type --part scheduled --from redis://localhost --yes`

func newImportAsynq(a *app) *cobra.Command {
	f := &importFlags{opt: takeover.Options{Kind: takeover.Asynq}}
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
