package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/cli/view"
)

func newStats(a *app) *cobra.Command {
	groups := false
	cmd := &cobra.Command{
		Use:     "stats [TOPIC]",
		Aliases: []string{"topics"},
		Short:   "List the topics, and count their messages by state",
		Long: `Stats lists the topics, or one of them, with the number of their messages by state and the next due
time. The numbers are of one instant of the store's clock. A topic comes into being with its first
message or its first settings. The audit log of the console, punctual.audit, is listed only when it
is named. 'punctual topics' is the same command.`,
		Example: `  punctual stats
  punctual stats order.cancel
  punctual stats orders --groups
  punctual stats --json`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if groups && len(args) == 0 {
				return usagef("--groups: name the topic whose groups to count")
			}
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, s punctual.Store) error {
				all, err := statsOf(ctx, i, args)
				if err == nil && groups {
					all, err = groupStats(ctx, i, s, all[0])
				}
				if err != nil {
					return err
				}
				return a.showStats(all)
			})
		}),
	}
	cmd.Flags().BoolVar(&groups, "groups", false, "count the copies of each group of the topic as well")
	return cmd
}

// groupStats returns the statistics of the topic of, and behind them those of its groups.
func groupStats(ctx context.Context, i punctual.Inspector, s punctual.Store, of punctual.TopicStats) ([]punctual.TopicStats, error) {
	topics, err := groupTopics(ctx, i, s, of.Topic)
	if err != nil {
		return nil, err
	}
	all := []punctual.TopicStats{of}
	for _, topic := range topics[1:] {
		stats, err := i.Stats(ctx, topic)
		if errors.Is(err, punctual.ErrNotFound) {
			stats, err = punctual.TopicStats{Topic: topic, Settings: punctual.DefaultSettings()}, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, stats)
	}
	return all, nil
}

// statsOf returns the statistics of the topic named in args, or of all topics but the audit log if
// args is empty.
func statsOf(ctx context.Context, i punctual.Inspector, args []string) ([]punctual.TopicStats, error) {
	if len(args) == 0 {
		all, err := i.Topics(ctx)
		return slices.DeleteFunc(all, func(t punctual.TopicStats) bool { return t.Topic == access.AuditTopic }), err
	}
	s, err := topicStats(ctx, i, args[0])
	return []punctual.TopicStats{s}, err
}

// topicStats returns the statistics of a topic that a command names and that must exist.
func topicStats(ctx context.Context, i punctual.Inspector, topic string) (punctual.TopicStats, error) {
	s, err := i.Stats(ctx, topic)
	if errors.Is(err, punctual.ErrNotFound) {
		return s, unwishedf("not_found", "topic %q: not found: 'punctual topics' lists those that there are", topic)
	}
	return s, err
}

func (a *app) showStats(all []punctual.TopicStats) error {
	show := lister[punctual.TopicStats]{
		app: a, columns: []any{"TOPIC", "SCHEDULED", "READY", "LEASED", "DEAD", "NEXT DUE", "PAUSED"}, numbers: []int{2, 3, 4, 5},
		row: func(s *punctual.TopicStats) []any {
			return []any{s.Topic, s.Scheduled, s.Ready, s.Leased, a.deadCount(s.Dead), when(s.NextDue), view.PausedWord(s.Settings)}
		},
		line: func(s *punctual.TopicStats, _ string) any { return topicOf(*s) },
	}
	if len(all) > 1 {
		var sum punctual.TopicStats
		for _, s := range all {
			sum.Scheduled += s.Scheduled
			sum.Ready += s.Ready
			sum.Leased += s.Leased
			sum.Dead += s.Dead
		}
		show.footer = []any{"total", sum.Scheduled, sum.Ready, sum.Leased, sum.Dead, "", ""}
	}
	return show.all(all, "topics")
}

// deadCount is the number of dead messages, in red unless it is 0.
func (a *app) deadCount(n int64) any {
	if n == 0 {
		return n
	}
	return a.out.Colour(text.FgRed, fmt.Sprint(n))
}
