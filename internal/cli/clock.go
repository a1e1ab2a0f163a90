package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

const clockHelp = `Clock shows how a store's clock stands to the one that it follows, that of the machine, the Redis
server or the PostgreSQL server, and when it last stepped back to that clock. STORE is named as with
--store.

A store's clock does not run backwards, so it is ahead after the other clock was set back. When it
has been ahead by more than 2 seconds for 5 seconds, it steps back by itself. With --set it does so
at once.

A store in a directory refuses to open when the machine's clock is more than a year away from the
store's, because nobody can tell which of the two is right. See to the machine's clock first, then
run this command with --set while no process has the store open.

Due times that somebody named stay as they are. What was set by a delay while the clock was ahead
keeps what is left of that delay, and so do leases.`

const clockExample = `  punctual clock redis://localhost
  punctual clock postgres://localhost/jobs --set
  punctual clock /var/lib/punctual --json`

func newClock(a *app) *cobra.Command {
	var set bool
	cmd := &cobra.Command{
		Use:     "clock [STORE]",
		Short:   "Show how a store's clock stands, and set it right",
		Long:    clockHelp,
		Example: clockExample,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if len(args) > 0 {
				a.storeFlag = args[0]
			}
			keep := punctual.ClockKeeper.Clock
			if set {
				keep = punctual.ClockKeeper.StepClock
				if err := a.setStopped(); err != nil {
					return err
				}
			}
			return a.withStore(ctx, mustExist, func(s punctual.Store) error {
				keeper, err := punctual.As[punctual.ClockKeeper](s)
				if err != nil {
					return err
				}
				state, err := keep(keeper, ctx)
				if err != nil {
					return err
				}
				return a.showClock(state)
			})
		}),
	}
	cmd.Flags().BoolVar(&set, "set", false, "step the store's clock back if it is ahead; of a stopped store in a directory, set it forward, too")
	return cmd
}

// setStopped sets the clock of a store in a directory, unless a process has the store open. It does nothing with another store.
func (a *app) setStopped() error {
	s, p, err := a.place(a.storeName())
	if err != nil || s.name != "disk" {
		return err
	}
	_, err = diskstore.ResetClock(p.where, &diskstore.Options{Logger: a.logger()})
	if errors.Is(err, punctual.ErrLocked) {
		return nil
	}
	return err
}

func (a *app) showClock(state punctual.ClockState) error {
	if a.json {
		return a.out.writeJSON(wire.ClockStateOf(state))
	}
	a.printf("the store's clock says %s\n", when(state.Now))
	return a.showFindings(storekit.ClockFindings(state))
}
