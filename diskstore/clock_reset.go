package diskstore

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/examine"
	"github.com/punctualmq/punctual/storekit"
)

// The store's clock never runs backwards, and follows the machine's forward. So a machine that has once said 2036 would
// leave the store there for good. Open refuses steps that no clock makes, in either direction, before the store's clock takes
// them over. ResetClock makes the step to the right time.

// checkClock refuses a machine's clock that is further than examine.MaxClockStep from passed. passed is what the store's clock has passed,
// zero if that is not known, as in a new store.
func checkClock(machine, passed time.Time, dir string) error {
	tooFar := examine.ClockTooFar(machine, passed)
	if passed.IsZero() || tooFar == "" {
		return nil
	}
	return fmt.Errorf("the machine's clock says %s, which is %s %s: %w; set the machine's clock right, or if it is right run 'punctual clock %s'",
		machine.UTC().Format(time.RFC3339), tooFar, passed.UTC().Format(time.RFC3339), punctual.ErrInvalid, dir)
}

// ClockReset is what ResetClock has found and done.
type ClockReset struct {
	// Stored is what the store's clock had reached; zero when the store has never been used. Machine is the machine's clock.
	Stored, Machine time.Time
	// Reset tells that the store's clock was set to Machine. Otherwise Open would have been enough: it has the store's clock catch up
	// with the machine's.
	Reset bool
	// Leases is how many leases were moved with the clock, so that each lasts as long as it would have.
	Leases int
}

// ResetClock sets the clock of a store that is not open to the machine's clock (Options.Clock), back or forward. Nothing else sets
// it back. When Open would bring the store's clock there by itself, ResetClock does no more than Open and Close do.
//
// Due times and expiries are kept, and so are the times at which something was pushed, died or finished. What was pushed with a delay
// while the clock was wrong is due that long after the wrong time. Leases keep what is left of them. Tokens do not come from
// the clock. The error is ErrLocked while the store is open, ErrNotFound when there is none, and otherwise as of Open.
func ResetClock(dir string, o *Options) (r ClockReset, err error) {
	opt := o.withDefaults()
	if err := opt.check(); err != nil {
		return r, fmt.Errorf("set the clock of store %s: %w", dir, err)
	}
	path, err := existing(opt.fs, dir)
	if err != nil {
		return r, fmt.Errorf("set the clock of store %s: %w", dir, err)
	}
	s := newStore(path, opt)
	s.reset = &r
	if err := s.open(); err != nil {
		return ClockReset{}, fmt.Errorf("set the clock of store %s: %w", dir, err)
	}
	if err := s.Close(); err != nil {
		return r, fmt.Errorf("set the clock of store %s: %w", dir, err)
	}
	return r, nil
}

// existing returns the resolved path of a directory that holds a store, or ErrNotFound if there is none.
func existing(fs vfs.FS, dir string) (string, error) {
	names, err := fs.List(dir)
	if directory.IsMissing(err) {
		return "", fmt.Errorf("there is no such directory: %w", punctual.ErrNotFound)
	}
	if err != nil {
		return "", err
	}
	there, err := directory.HoldsStore(names)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("there is no store: %w", punctual.ErrNotFound)
	}
	return directory.Make(fs, dir)
}

// startClock decides where the store's clock begins: where it had been, or at the machine's clock if ResetClock sets it.
func (s *Store) startClock(logged *claimlog.Contents, passed time.Time) (time.Time, error) {
	machine := s.opt.Clock.Now().Round(0)
	if s.reset == nil {
		return passed, checkClock(machine, passed, s.dir)
	}
	s.reset.Stored, s.reset.Machine = passed, machine
	if passed.IsZero() || !passed.After(machine) && checkClock(machine, passed, s.dir) == nil {
		return passed, nil
	}
	s.reset.Reset = true
	s.reset.Leases = logged.MoveLeases(storekit.Millis(passed), storekit.Millis(machine))
	return machine, nil
}
