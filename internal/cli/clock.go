package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/diskstore"
)

const clockHelp = `Clock sets the clock of a store in a directory to the machine's clock. The store must be stopped.

The clock of a store never runs backwards. When the clock of the machine was years ahead once, the
store's clock stays ahead, and the store refuses to open when the machine's clock is right again.
This command mends that. It also lets a store open that was not used for more than a year. Where the
store would catch up by itself the command changes nothing.

Due times stay as they are. A message that was pushed with a delay while the clock was wrong is due
years too late: find it with 'punctual list', and move it with 'punctual reschedule'. Leases keep
the time that they had left.`

const clockExample = `  punctual clock /var/lib/punctual
  punctual clock ./punctual-data
  punctual clock /var/lib/punctual --json`

func newClock(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "clock DIR",
		Short:   "Set the clock of a stopped store to the machine's",
		Long:    clockHelp,
		Example: clockExample,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(_ context.Context, args []string) error {
			r, err := diskstore.ResetClock(args[0], &diskstore.Options{Logger: a.logger()})
			if err != nil {
				return err
			}
			return a.showClock(r)
		}),
	}
}

func (a *app) showClock(r diskstore.ClockReset) error {
	if a.json {
		return a.out.writeJSON(clockJSON{Store: stamp(r.Stored), Machine: stamp(r.Machine), Reset: r.Reset, Leases: r.Leases})
	}
	if !r.Reset {
		a.printf("the store's clock is right, or gets there by itself: nothing was changed\n")
		return nil
	}
	a.printf("the store's clock was %s and is now %s; %d leases keep what is left of them\n", when(r.Stored), when(r.Machine), r.Leases)
	return nil
}

// clockJSON is what clock prints with --json.
type clockJSON struct {
	Store   stamp `json:"store,omitzero"` // what the store's clock had reached
	Machine stamp `json:"machine"`
	Reset   bool  `json:"reset"`
	Leases  int   `json:"leases"` // how many were moved with the clock
}
