package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const deadDeleteHelp = `Delete removes the dead messages whose IDs are given, for good. Each ID has a definite outcome:
deleted, not_dead (the message is still to be delivered, and stays) or not_found. When the first
argument is the name of a topic and IDs follow, only that topic is searched; --topic says the same
without doubt. To remove many, use "dead purge".

` + ifDueHelp + `

` + idsHelp

const deadDeleteExample = `  punctual dead delete order-42
  punctual dead delete order.cancel order-42 order-43
  punctual dead delete --topic order.cancel - < ids.txt`

func newDeadDelete(a *app) *cobra.Command {
	var topic string
	var only ifDueFlag
	cmd := &cobra.Command{
		Use:     "delete [TOPIC] (ID...|-)",
		Short:   "Remove single dead messages for good",
		Long:    deadDeleteHelp,
		Example: deadDeleteExample,
		Args:    cobra.MinimumNArgs(1), // topicAndIDs checks that "-" stands alone behind the topic
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
				topic, ids, err := topicAndIDs(ctx, i, topic, args)
				if err != nil {
					return err
				}
				due, err := only.of(ids)
				if err != nil {
					return err
				}
				return a.changeIDs(ctx, i, s, topic, ids, change{template: punctual.Amendment{Change: punctual.ChangeDelete, IfDue: due}})
			})
		}),
	}
	only.register(a, cmd.Flags())
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	return cmd
}
