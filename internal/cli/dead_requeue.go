package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const deadRequeueHelp = `Requeue schedules dead messages again, now or when --in or --at says, with their attempts
starting anew; the history stays. Name IDs, or take --all dead messages of a topic, or of every
topic when none is named. A first argument that is the name of a topic is taken as one
when IDs follow; --topic names it in any case. --on takes those that died on a day of the local
time zone (TZ), or with --utc of UTC.`

const deadRequeueExample = `  punctual dead requeue order-42
  punctual dead requeue order.cancel order-42 order-43 --in 10m
  punctual dead requeue order.cancel --all --on 2026-11-20
  punctual dead requeue --all`

type requeueFlags struct {
	topic string
	all   bool
	day   dayFlags
	when  whenFlags
}

func newDeadRequeue(a *app) *cobra.Command {
	var f requeueFlags
	cmd := &cobra.Command{
		Use:               "requeue [TOPIC] (ID...|--all)",
		Short:             "Schedule dead messages again",
		Long:              deadRequeueHelp,
		Example:           deadRequeueExample,
		ValidArgsFunction: a.completeTopics(1),
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
		return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
			if f.all {
				return a.requeueAll(ctx, i, s, strings.Join(append(args, f.topic), ""), f.day, template)
			}
			places, err := f.find(ctx, i, args)
			if err != nil {
				return err
			}
			return a.changeFound(ctx, s, places, template, punctual.Requeued)
		})
	})
	cmd.Flags().StringVar(&f.topic, "topic", "", topicFlagHelp)
	cmd.Flags().BoolVar(&f.all, "all", false, "requeue all dead messages of the topic, or of every topic")
	f.day.register(cmd)
	f.when.register(cmd.Flags(), "deliver")
	return cmd
}

func (f *requeueFlags) checkArgs(args []string) error {
	switch {
	case !f.all && len(args) == 0:
		return usagef("nothing to requeue is named: give IDs, or --all")
	case !f.all && f.day.on != "":
		return usagef("--on goes with --all: IDs name their messages already")
	case f.all && len(args) > 1, f.all && len(args) == 1 && f.topic != "":
		return usagef("--all takes at most one TOPIC: name IDs, or --all, not both")
	}
	return nil
}

// find is the messages that the arguments name.
func (f *requeueFlags) find(ctx context.Context, i punctual.Inspector, args []string) ([]found, error) {
	topic := f.topic
	if topic == "" && len(args) > 1 {
		topics, err := i.Topics(ctx)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(topics, func(s punctual.TopicStats) bool { return s.Topic == args[0] }) {
			topic, args = args[0], args[1:]
		}
	}
	return lookUp(ctx, i, topic, args)
}

// requeueAll requeues the dead of a topic, or of every one, in pages. It leaves alone what
// dies while it works, so that a message that dies again at once is requeued once only.
func (a *app) requeueAll(ctx context.Context, i punctual.Inspector, s punctual.Store, topic string, day dayFlags, template punctual.Amendment) error {
	from, to, err := day.bounds(a.localZone())
	if err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	if end := now.Add(time.Millisecond); to.IsZero() || end.Before(to) {
		to = end
	}
	parts, err := deadParts(ctx, i, topic, from, to)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := a.requeuePart(ctx, i, s, p, template); err != nil {
			return err
		}
	}
	return nil
}

// requeuePart takes the first page again and again: what was requeued is not in it any more.
func (a *app) requeuePart(ctx context.Context, i punctual.Inspector, s punctual.Store, p part, template punctual.Amendment) error {
	for {
		page, err := i.List(ctx, punctual.ListQuery{Topic: p.topic, State: p.state, From: p.from, To: p.to, Limit: pageSize(0, 0)})
		if err != nil || len(page.Messages) == 0 {
			return err
		}
		places := make([]found, len(page.Messages))
		for n, m := range page.Messages {
			places[n] = found{m.ID, m.Topic}
		}
		if err := a.changeFound(ctx, s, places, template, punctual.Requeued); err != nil {
			return err
		}
	}
}
