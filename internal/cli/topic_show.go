package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const topicShowHelp = `Show prints the settings of a topic. 'punctual stats' counts its messages.`

const topicShowExample = `  punctual topic show order.cancel
  punctual topic show order.cancel --json
  punctual topic show jobs --store disk:/var/lib/punctual`

func newTopicShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "show TOPIC",
		Short:   "Show settings",
		Long:    topicShowHelp,
		Example: topicShowExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				s, err := topicStats(ctx, i, args[0])
				if err != nil {
					return err
				}
				return a.showSettings(args[0], s.Settings)
			})
		}),
	}
}
