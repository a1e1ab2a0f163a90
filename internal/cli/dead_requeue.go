package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const deadRequeueHelp = `Requeue schedules dead messages again, now or at the time of --in or --at. Their attempts are
counted from 1 again, and the history of failures stays. Give IDs, or --all for every dead message
of a topic, or of all topics when none is given. When the first argument is the name of a topic and
IDs follow, only that topic is searched; --topic says the same without doubt. With --all, --on
requeues only those that died on one day of the local time zone (TZ), or with --utc of UTC, and
--reason only those with one reason.

` + ifDueHelp + `

` + idsHelp

const deadRequeueExample = `  punctual dead requeue order-42
  punctual dead requeue order.cancel order-42 order-43 --in 10m
  punctual dead requeue order.cancel --all --on 2026-11-20
  punctual dead requeue order.cancel - < ids.txt
  punctual dead requeue --all`

type requeueFlags struct {
	topic  string
	all    bool
	reason string
	day    dayFlags
	when   whenFlags
	only   ifDueFlag
}

func newDeadRequeue(a *app) *cobra.Command {
	var f requeueFlags
	cmd := &cobra.Command{
		Use:     "requeue [TOPIC] (ID...|-|--all)",
		Short:   "Schedule dead messages again",
		Long:    deadRequeueHelp,
		Example: deadRequeueExample,
		Args: func(_ *cobra.Command, args []string) error {
			return f.checkArgs(args)
		},
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		move := moveFlags{whenFlags: f.when}
		template, err := move.amendment(punctual.ChangeRequeue)
		if err != nil {
			return err
		}
		c := change{template: template}
		return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
			if f.all {
				return a.requeueAll(ctx, i, s, args, &f, c)
			}
			topic, ids, err := topicAndIDs(ctx, i, f.topic, args)
			if err != nil {
				return err
			}
			if c.template.IfDue, err = f.only.of(ids); err != nil {
				return err
			}
			return a.changeIDs(ctx, i, s, topic, ids, c)
		})
	})
	cmd.Flags().StringVar(&f.topic, "topic", "", topicFlagHelp)
	cmd.Flags().BoolVar(&f.all, "all", false, "requeue all dead messages of the topic, or of every topic")
	f.day.register(cmd)
	registerReason(cmd, &f.reason)
	f.when.register(a, cmd.Flags())
	f.only.register(a, cmd.Flags())
	return cmd
}

func (f *requeueFlags) checkArgs(args []string) error {
	switch {
	case !f.all && len(args) == 0:
		return usagef("nothing to requeue is named: give IDs, or --all")
	case !f.all && f.day.on != "":
		return usagef("--on goes with --all: IDs name their messages already")
	case f.all && f.only.given():
		return usagef("--if-due goes with one ID, and not with --all")
	case !f.all && f.reason != "":
		return usagef("--reason goes with --all: IDs name their messages already")
	case f.all && len(args) > 1, f.all && len(args) == 1 && f.topic != "":
		return usagef("--all takes at most one TOPIC: name IDs, or --all, not both")
	}
	return nil
}

// topicAndIDs divides args into a topic and IDs. The topic is the one given by --topic, or else the first of several arguments if a topic
// has that name. It is empty when none is named.
func topicAndIDs(ctx context.Context, i punctual.Inspector, given string, args []string) (topic string, ids []string, err error) {
	topic, ids = given, args
	if topic == "" && len(args) > 1 {
		topics, err := i.Topics(ctx)
		if err != nil {
			return "", nil, err
		}
		if slices.ContainsFunc(topics, func(s punctual.TopicStats) bool { return s.Topic == args[0] }) {
			topic, ids = args[0], args[1:]
		}
	}
	if len(ids) > 1 && slices.Contains(ids, stdinIDs) {
		return "", nil, errStdinAlone()
	}
	return topic, ids, nil
}

// requeueAll requeues the dead messages of a topic, or of every topic but the audit log, in pages. It leaves alone messages that die after
// the millisecond in which it has begun, so that one that dies again is requeued only once.
func (a *app) requeueAll(ctx context.Context, i punctual.Inspector, s punctual.Store, args []string, f *requeueFlags, c change) error {
	dead := part{topic: strings.Join(append(args, f.topic), "")}
	var err error
	if dead.from, dead.to, err = f.day.bounds(a.localZone()); err != nil {
		return err
	}
	if dead.reason, err = parseReason(f.reason); err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	if end := now.Add(time.Millisecond); dead.to.IsZero() || end.Before(dead.to) {
		dead.to = end
	}
	parts, err := deadParts(ctx, i, dead)
	if err != nil {
		return err
	}
	t := &tally{change: c.template.Change}
	for _, p := range parts {
		if err := a.requeuePart(ctx, i, s, p, c, t); err != nil {
			return t.cutShort(err)
		}
		if t.others > 0 {
			break
		}
	}
	return t.result()
}

// requeuePart requeues what a part lists, page by page, up to the page with a message that could not be requeued.
func (a *app) requeuePart(ctx context.Context, i punctual.Inspector, s punctual.Store, p part, c change, t *tally) error {
	for after := ""; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		page, err := i.List(ctx, p.query(pageFlags{}, pageSize(0, 0), after))
		if err != nil {
			return err
		}
		places := make([]found, len(page.Messages))
		for n, m := range page.Messages {
			places[n] = found{m.ID, m.Topic}
		}
		if err := a.changeFound(context.WithoutCancel(ctx), i, s, places, c, t); err != nil {
			return err
		}
		if t.others > 0 || page.Next == "" {
			return nil
		}
		after = page.Next
	}
}
