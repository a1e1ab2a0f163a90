package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cli/term"
	"github.com/punctualmq/punctual/internal/cli/view"
)

const topicsHelp = `Topics lists the topics of the store with the number of their messages and the next due
time. A topic comes into being with its first message or its first settings.`

const topicsExample = `  punctual topics
  punctual topics --json
  punctual topics --store disk:/var/lib/punctual`

func newTopics(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "topics",
		Short:   "List the topics",
		Long:    topicsHelp,
		Example: topicsExample,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withInspector(ctx, mustExist, func(i punctual.Inspector, _ punctual.Store) error {
				all, err := i.Topics(ctx)
				if err != nil {
					return err
				}
				return a.showTopics(all)
			})
		}),
	}
}

func (a *app) showTopics(all []punctual.TopicStats) error {
	if a.json {
		return a.topicLines(all)
	}
	if len(all) == 0 {
		a.sayNothing("topics")
		return nil
	}
	t := a.out.Table("TOPIC", "LIVE", "DEAD", "NEXT DUE", "PAUSED")
	term.RightAligned(t, 2, 3)
	for _, s := range all {
		t.AppendRow([]any{s.Topic, s.Live(), s.Dead, when(s.NextDue), view.PausedWord(s.Settings)})
	}
	a.printf("%s\n", t.Render())
	return nil
}

func (a *app) topicLines(all []punctual.TopicStats) error {
	for _, s := range all {
		if err := a.out.writeJSON(topicOf(s)); err != nil {
			return err
		}
	}
	return nil
}
