package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

const topicSetHelp = `Set changes those settings of a topic whose flags are given, for every process that uses the
store, and shows all of them. A backoff is a list of delays, the last one for all that follow, or
exp:BASE..MAX with an optional jitter of 0 to 1. Several partitions let a topic in Redis use more
cores, and the servers of a cluster; order holds within each. Their number can be set only while
there is no such topic. With a finished retention 'punctual get' tells whether a message that was
acked, cancelled or dropped fired, when, and how late. Its body is not kept.`

const topicSetExample = `  punctual topic set order.cancel --lease 1m --max-attempts 5
  punctual topic set notify --max-attempts 8 --backoff 2m,10m,10m,1h,2h,6h,15h
  punctual topic set jobs --backoff exp:1s..1h,jitter=0.2
  punctual topic set order.cancel --dedupe-window 1d --dead-retention 4w --finished-retention 30d
  punctual topic set jobs --partitions 8 --store redis://localhost`

func newTopicSet(a *app) *cobra.Command {
	var lease, retention, dedupe, finished durationFlag
	var maxAttempts, partitions int
	var backoff string
	cmd := &cobra.Command{
		Use:               "set TOPIC",
		Short:             "Change settings",
		Long:              topicSetHelp,
		Example:           topicSetExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopics(1),
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		p := punctual.SettingsPatch{Lease: lease.d, DeadRetention: retention.d, DedupeWindow: dedupe.d, FinishedRetention: finished.d}
		if cmd.Flags().Changed("max-attempts") {
			p.MaxAttempts = &maxAttempts
		}
		if cmd.Flags().Changed("partitions") {
			p.Partitions = &partitions
		}
		if cmd.Flags().Changed("backoff") {
			b, err := typed(notation.ParseBackoff(backoff))
			if err != nil {
				return err
			}
			p.Backoff = &b
		}
		if p == (punctual.SettingsPatch{}) {
			return usagef("no setting is given: see 'punctual topic set --help'")
		}
		return a.configure(ctx, orCreate, args[0], p)
	})
	flags := cmd.Flags()
	flags.Var(&lease, "lease", "how long a claim may work before the message is ready again, unless renewed (30s)")
	flags.IntVar(&maxAttempts, "max-attempts", 0, "how many deliveries a message gets before it is dead (10)")
	flags.StringVar(&backoff, "backoff", "", "the `DELAYS` before retries (exp:1s..1h,jitter=0.2)")
	flags.Var(&retention, "dead-retention", "how long dead messages are kept; 0: until purged (0)")
	flags.Var(&dedupe, "dedupe-window", "how long the IDs of finished messages count as taken (0)")
	flags.Var(&finished, "finished-retention", "how long the story of a finished message is kept; 0: not at all (0)")
	flags.IntVar(&partitions, "partitions", 0, "into how many parts the topic is divided, on stores that can; fixed once the topic is there (1)")
	return cmd
}
