package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const topicPurgeHelp = `Purge removes messages of a topic without delivering them: with --state those of one state, else all
that are not dead, leased ones included. The topic and its settings stay.`

const topicPurgeExample = `  punctual topic purge order.cancel --yes
  punctual topic purge order.cancel --state scheduled --yes
  punctual topic purge order.cancel`

func newTopicPurge(a *app) *cobra.Command {
	var yes bool
	var state string
	cmd := &cobra.Command{
		Use:     "purge TOPIC",
		Short:   "Remove messages without delivering them",
		Long:    topicPurgeHelp,
		Example: topicPurgeExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			q := punctual.PurgeQuery{Topic: args[0]}
			what, kind := "all messages of "+q.Topic+" that are not dead", ""
			if state != "" {
				var err error
				if q.State, err = punctual.ParseState(state); err != nil {
					return err
				}
				what, kind = "all "+state+" messages of "+q.Topic, state+" "
			}
			if err := a.confirm(q.Topic, what, yes); err != nil {
				return err
			}
			return a.purge(ctx, q, kind)
		}),
	}
	cmd.Flags().StringVar(&state, "state", "", "only `scheduled|ready|leased|dead` ones")
	yesFlag(cmd, &yes)
	return cmd
}
