package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
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
	t := a.newTable("TOPIC", "LIVE", "DEAD", "NEXT DUE", "PAUSED")
	rightAligned(t, 2, 3)
	for _, s := range all {
		t.AppendRow([]any{s.Topic, s.Live(), s.Dead, when(s.NextDue), pausedWord(s.Settings)})
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

func pausedWord(s punctual.Settings) string {
	switch {
	case s.PushPaused && s.DeliveryPaused:
		return "push and delivery"
	case s.PushPaused:
		return "push"
	case s.DeliveryPaused:
		return "delivery"
	}
	return "-"
}
