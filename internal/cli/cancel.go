package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const cancelHelp = `Cancel removes messages that nobody works on yet. Each ID has a definite outcome:

  cancelled  the message will never be delivered
  leased     too late: a consumer works on it; if that attempt fails, no further one follows
  not_found  there is no such message to be delivered

` + ifDueHelp + `

` + idsHelp

const cancelExample = `  punctual cancel 01KB1B2M8E6QZ4V9H2W3T5N7RD
  punctual cancel order-42 --topic order.cancel
  punctual cancel visit-7 visit-8 --json
  punctual cancel - --topic order.cancel < paid.txt`

func newCancel(a *app) *cobra.Command {
	var topic string
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
			return a.changeByID(ctx, topic, ids, change{template: punctual.Amendment{Change: punctual.ChangeCancel, IfDue: due}})
		}),
	}
	only.register(a, cmd.Flags())
	cmd.Flags().StringVar(&topic, "topic", "", topicFlagHelp)
	a.completeTopicFlag(cmd)
	return cmd
}
