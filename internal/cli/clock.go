package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual/diskstore"
)

const clockHelp = `Clock sets the clock of a store in a directory to the machine's clock. The store must be stopped.

A running store follows a machine's clock that was set back after 5 seconds. But a store refuses to
open when the machine's clock is more than a year away from the store's, because nobody can tell
which of the two is right. See to the machine's clock first, then run this command.

Due times that somebody named stay as they are. What was set by a delay while the clock was ahead
keeps what is left of that delay, and so do leases.`

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
		return a.out.writeJSON(clockJSON{Store: stamp(r.Stored), Machine: stamp(r.Machine), Reset: r.Reset})
	}
	if !r.Reset {
		a.printf("the store's clock is right, or gets there by itself: nothing was changed\n")
		return nil
	}
	a.printf("the store's clock was %s and is now %s\n", when(r.Stored), when(r.Machine))
	return nil
}

// clockJSON is what clock prints with --json.
type clockJSON struct {
	Store   stamp `json:"store,omitzero"` // what the store's clock had reached
	Machine stamp `json:"machine"`
	Reset   bool  `json:"reset"`
}
