package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const deadListHelp = `List shows the dead messages of a topic, or of all topics one after the other, with the reason and
the last error, in the order in which they died. --on shows those that died on one day of the local
time zone (TZ), or with --utc of UTC; --reason those with one reason. With --json each message is
one object with all that is known about it. --json --limit 0 exports all dead messages, however many
there are, in little memory.`

const deadListExample = `  punctual dead list
  punctual dead list order.cancel --on 2026-11-20
  punctual dead list order.cancel --reason discarded
  punctual dead list --on 2026-11-20 --json --limit 0 > dead-2026-11-20.ndjson`

type deadListFlags struct {
	topic, reason string
	page          pageFlags
	day           dayFlags
}

func newDeadList(a *app) *cobra.Command {
	var f deadListFlags
	cmd := &cobra.Command{
		Use:     "list [TOPIC]",
		Short:   "List dead messages",
		Long:    deadListHelp,
		Example: deadListExample,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if len(args) > 0 && f.topic != "" {
				return usagef("the topic is given twice: as %s, and by --topic", args[0])
			}
			p := part{topic: strings.Join(append(args, f.topic), "")}
			var err error
			if p.from, p.to, err = f.day.bounds(a.localZone()); err != nil {
				return err
			}
			if p.reason, err = parseReason(f.reason); err != nil {
				return err
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				parts, err := deadParts(ctx, i, p)
				if err != nil {
					return err
				}
				return a.listPage(ctx, i, parts, f.page)
			})
		}),
	}
	cmd.Flags().StringVar(&f.topic, "topic", "", "the `TOPIC`, in place of the argument")
	f.day.register(cmd)
	registerReason(cmd, &f.reason)
	f.page.register(cmd)
	return cmd
}
