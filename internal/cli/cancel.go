package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

const cancelHelp = `Cancel removes messages that nobody works on yet. Each ID has a definite outcome:

  cancelled  the message will never be delivered
  leased     too late: a consumer works on it; if that attempt fails, no further one follows
  not_found  there is no such message to be delivered

A topic with groups keeps one message until it is due: cancelled before, it is so for all groups at
once. After that each group has a copy. --group all cancels the message and all copies, and says of
each topic what became of it there; the ID counts as leased if one of them is being worked on, else
as cancelled if one was cancelled, and else as changed if one is due at another time than --if-due.

` + ifDueHelp + `

` + idsHelp

const cancelExample = `  punctual cancel 01KB1B2M8E6QZ4V9H2W3T5N7RD
  punctual cancel order-42 --topic order.cancel
  punctual cancel visit-7 visit-8 --json
  punctual cancel order-42 --topic orders --group all
  punctual cancel - --topic order.cancel < paid.txt`

func newCancel(a *app) *cobra.Command {
	var topic, group string
	var only ifDueFlag
	cmd := &cobra.Command{
		Use:     "cancel ID...|-",
		Short:   "Take back messages that are not yet worked on",
		Long:    cancelHelp,
		Example: cancelExample,
		Args:    takesIDs,
		RunE: a.action(func(ctx context.Context, ids []string) error {
			due, err := only.of(ids)
			if err != nil {
				return err
			}
			c := change{template: punctual.Amendment{Change: punctual.ChangeCancel, IfDue: due}}
			if group == "" {
				return a.changeByID(ctx, topic, ids, c)
			}
			return a.cancelInGroups(ctx, topic, group, ids, c)
		}),
	}
	only.register(a, cmd.Flags())
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	cmd.Flags().StringVar(&group, "group", "", "cancel the copy of this `GROUP` of the topic, or for \"all\" the message and every copy")
	return cmd
}

// cancelInGroups cancels the copies of a group, or the messages of the topic and the copies of all its groups.
func (a *app) cancelInGroups(ctx context.Context, topic, group string, ids []string, c change) error {
	if topic == "" {
		return usagef("--group %s: name the topic with --topic", group)
	}
	if group != allGroups {
		if err := checkGroupFlag([]string{topic}, group); err != nil {
			return err
		}
		return a.changeByID(ctx, punctual.GroupTopic(topic, group), ids, c)
	}
	if err := storekit.CheckTopic(topic); err != nil {
		return err
	}
	return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
		topics, err := groupTopics(ctx, i, s, topic)
		if err != nil {
			return err
		}
		t := &tally{change: c.template.Change}
		return a.eachID(ctx, ids, t, func(ctx context.Context, ids []string) error {
			return a.cancelEverywhere(ctx, i, s, topics, ids, c, t)
		})
	})
}

// cancelEverywhere cancels each ID in each of the topics, prints what became of it there, and counts one outcome for each ID.
func (a *app) cancelEverywhere(ctx context.Context, i punctual.Inspector, s punctual.Store, topics, ids []string, c change, t *tally) error {
	for _, id := range ids {
		if err := storekit.CheckID(id); err != nil {
			return err
		}
	}
	var printing error // the first one; the other IDs are cancelled all the same, as those of one topic are
	for _, id := range ids {
		places := make([]found, len(topics))
		for n, topic := range topics {
			places[n] = found{id, topic}
		}
		done, err := amend(ctx, i, s, c, places, t)
		if err != nil {
			return err
		}
		all := amended{found{id, topics[0]}, punctual.Amended{Err: punctual.ErrNotFound}}
		for _, d := range done {
			err := d.outcome.Err
			if err != nil && exitOf(punctual.ErrorCode(err)) != exitUnwished {
				return fmt.Errorf("ID %q in %s: %w", id, d.topic, err)
			}
			if printing == nil {
				printing = a.printAmendedIn(d, c.template.Change)
			}
			if cancelRank(err) > cancelRank(all.outcome.Err) {
				all = d
			}
		}
		t.add(all)
	}
	return printing
}

// cancelRank orders the outcomes of a cancel in several topics: the highest one counts for the ID.
func cancelRank(err error) int {
	switch {
	case errors.Is(err, punctual.ErrLeased):
		return 3
	case err == nil:
		return 2
	case errors.Is(err, punctual.ErrChanged):
		return 1
	}
	return 0
}
