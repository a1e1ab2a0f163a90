package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const topicDeleteHelp = `Delete removes a topic with its settings and all its messages, dead and leased ones included. The
IDs of its duplicate window and its records of finished messages go as well. The topic comes into
being again, with default settings, when somebody pushes to it.`

const topicDeleteExample = `  punctual topic delete order.cancel --yes
  punctual topic delete order.cancel
  punctual topic delete old.jobs --yes --json`

func newTopicDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete TOPIC",
		Short:   "Remove a topic and all that it holds",
		Long:    topicDeleteHelp,
		Example: topicDeleteExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := a.confirm(args[0], "the topic "+args[0]+" with all its messages", yes); err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				n, err := i.DeleteTopic(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printPurged(args[0], n, "")
			})
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}
