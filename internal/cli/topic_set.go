package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/settings"
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
	var p punctual.SettingsPatch
	cmd := &cobra.Command{
		Use:     "set TOPIC",
		Short:   "Change settings",
		Long:    topicSetHelp,
		Example: topicSetExample,
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = a.action(func(ctx context.Context, args []string) error {
		if p == (punctual.SettingsPatch{}) {
			return usagef("no setting is given: see 'punctual topic set --help'")
		}
		return a.configure(ctx, orCreate, args[0], p)
	})
	for _, row := range settings.Table {
		if !row.Pause {
			cmd.Flags().Var(&settingFlag{row, &p}, row.Flag(), row.Usage())
		}
	}
	return cmd
}

// settingFlag is a flag that changes a setting.
type settingFlag struct {
	row *settings.Setting
	p   *punctual.SettingsPatch
}

// Set, String and Type implement pflag.Value.
func (f *settingFlag) Set(text string) error {
	_, err := typed(f.p, f.row.Parse(f.p, text))
	return err
}

func (f *settingFlag) String() string {
	if f.p == nil || !f.row.Given(f.p) {
		return ""
	}
	var s punctual.Settings
	f.row.Apply(&s, f.p)
	return f.row.Text(&s)
}

// Type is the word for the value in a command's help.
func (f *settingFlag) Type() string { return f.row.Kind().String() }
