package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const deadRequeueHelp = `Requeue schedules dead messages again, now or when --in or --at says, with their attempts
starting anew; the history stays. Name IDs, or take --all dead messages of a topic, or of every
topic when none is named. A first argument that is the name of a topic is taken as one
when IDs follow; --topic names it in any case.`

const deadRequeueExample = `  punctual dead requeue order-42
  punctual dead requeue order.cancel order-42 order-43 --in 10m
  punctual dead requeue order.cancel --all --on 2026-11-20
  punctual dead requeue --all`

type requeueFlags struct {
	topic string
	all   bool
	on    string
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
			places, err := f.find(ctx, i, args)
			if err != nil {
				return err
			}
			return a.changeFound(ctx, s, places, template, punctual.Requeued)
		})
	})
	cmd.Flags().StringVar(&f.topic, "topic", "", topicFlagHelp)
	cmd.Flags().BoolVar(&f.all, "all", false, "requeue all dead messages of the topic, or of every topic")
	dayFlag(cmd, &f.on)
	f.when.register(cmd.Flags(), "deliver")
	return cmd
}

func (f *requeueFlags) checkArgs(args []string) error {
	switch {
	case !f.all && len(args) == 0:
		return usagef("nothing to requeue is named: give IDs, or --all")
	case !f.all && f.on != "":
		return usagef("--on goes with --all: IDs name their messages already")
	case f.all && len(args) > 1, f.all && len(args) == 1 && f.topic != "":
		return usagef("--all takes at most one TOPIC: name IDs, or --all, not both")
	}
	return nil
}

// find is what to requeue.
func (f *requeueFlags) find(ctx context.Context, i punctual.Inspector, args []string) ([]found, error) {
	if f.all {
		topic := f.topic
		if len(args) == 1 {
			topic = args[0]
		}
		return f.findAll(ctx, i, topic)
	}
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

// findAll lists the dead of a topic, or of every one. All IDs are read before the first is
// requeued, so that one that dies again meanwhile is not requeued twice.
func (f *requeueFlags) findAll(ctx context.Context, i punctual.Inspector, topic string) ([]found, error) {
	from, to, err := dayBounds(f.on)
	if err != nil {
		return nil, err
	}
	parts, err := deadParts(ctx, i, topic, from, to)
	if err != nil {
		return nil, err
	}
	var out []found
	for _, p := range parts {
		q := punctual.ListQuery{Topic: p.topic, State: p.state, From: p.from, To: p.to, Limit: 1000}
		for {
			page, err := i.List(ctx, q)
			if err != nil {
				return nil, err
			}
			for _, m := range page.Messages {
				out = append(out, found{m.ID, m.Topic})
			}
			if page.Next == "" {
				break
			}
			q.After = page.Next
		}
	}
	return out, nil
}
