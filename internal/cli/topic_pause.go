package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
)

const topicPauseHelp = `Pause holds back the deliveries of a topic (--delivery, the default), refuses pushes to it (--push),
or both. Messages are kept and fall due as before, and a handler that already works on a message
goes on. 'punctual topic resume' ends the pause.`

const topicPauseExample = `  punctual topic pause order.cancel
  punctual topic pause order.cancel --push
  punctual topic pause order.cancel --push --delivery`

func newTopicPause(a *app) *cobra.Command {
	return newPausing(a, true, &cobra.Command{
		Use:     "pause TOPIC",
		Short:   "Hold back deliveries or refuse pushes",
		Long:    topicPauseHelp,
		Example: topicPauseExample,
	})
}

const topicResumeHelp = `Resume ends the pause of deliveries (--delivery) or of pushes (--push), and both when neither is
given. Messages that fell due meanwhile are delivered at once.`

const topicResumeExample = `  punctual topic resume order.cancel
  punctual topic resume order.cancel --push
  punctual topic resume order.cancel --delivery --json`

func newTopicResume(a *app) *cobra.Command {
	return newPausing(a, false, &cobra.Command{
		Use:     "resume TOPIC",
		Short:   "End a pause",
		Long:    topicResumeHelp,
		Example: topicResumeExample,
	})
}

// newPausing completes cmd, which sets the topic's pauses to paused.
func newPausing(a *app, paused bool, cmd *cobra.Command) *cobra.Command {
	var push, delivery bool
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		var p punctual.SettingsPatch
		neither := !push && !delivery
		if push || neither && !paused {
			p.PushPaused = &paused
		}
		if delivery || neither {
			p.DeliveryPaused = &paused
		}
		return a.configure(ctx, mustExist, args[0], p)
	})
	cmd.Flags().BoolVar(&push, "push", false, "pushes")
	cmd.Flags().BoolVar(&delivery, "delivery", false, "deliveries")
	return cmd
}
