package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const deadListHelp = `List shows the dead messages of a topic, or of all, in the order in which they died, with
the reason and the last error. --on keeps those of one day.`

const deadListExample = `  punctual dead list
  punctual dead list order.cancel --on 2026-11-20
  punctual dead list --json --limit 0`

func newDeadList(a *app) *cobra.Command {
	var on, after string
	var limit int
	cmd := &cobra.Command{
		Use:               "list [TOPIC]",
		Short:             "List dead messages",
		Long:              deadListHelp,
		Example:           deadListExample,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTopics(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			from, to, err := dayBounds(on)
			if err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				parts, err := deadParts(ctx, i, strings.Join(args, ""), from, to)
				if err != nil {
					return err
				}
				return a.listPage(ctx, i, parts, limit, after)
			})
		}),
	}
	dayFlag(cmd, &on)
	registerPage(cmd, &limit, &after)
	return cmd
}
