package diskstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/examine"
)

// When a store is opened, nobody can tell which clock is right if the machine's is years away from
// the store's. A machine whose clock starts in 1970 until it has asked for the time would take the
// store there, and all delays with it. So Open refuses steps that no clock makes, in either
// direction. ResetClock makes the step once somebody has looked.

// checkClock refuses a machine's clock that is further than examine.MaxClockStep from passed.
// passed is what the store's clock has passed, zero if that is not known, as in a new store.
func checkClock(machine, passed time.Time, dir string) error {
	tooFar := examine.ClockTooFar(machine, passed)
	if passed.IsZero() || tooFar == "" {
		return nil
	}
	return fmt.Errorf("the machine's clock says %s, which is %s %s: %w; set the machine's clock right, or if it is right run 'punctual clock %s --set'",
		machine.UTC().Format(time.RFC3339), tooFar, passed.UTC().Format(time.RFC3339), punctual.ErrInvalid, dir)
}

// ClockReset is what ResetClock has found and done.
type ClockReset struct {
	// Stored is what the store's clock had reached; zero when the store has never been used.
	// Machine is the machine's clock.
	Stored, Machine time.Time
	// Reset tells that the store's clock was set to Machine, back or more than a year forward.
	// Otherwise it was right, or behind by so little that it follows when the store is opened.
	Reset bool
}

// ResetClock sets the clock of a store that is not open to the machine's clock (Options.Clock),
// back or forward. A step back is that of StepClock: what was set while the clock was ahead moves
// along. A step forward lets a store open again that was not used for more than a year. The error
// is ErrLocked while the store is open, ErrNotFound when there is none, and otherwise as of Open.
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
	before := s.stepping.last.Load().Count
	state, err := s.StepClock(context.Background())
	r.Reset = !r.Stored.IsZero() && (state.Steps > before || examine.ClockTooFar(r.Machine, r.Stored) != "")
	if err := errors.Join(err, s.Close()); err != nil {
		return r, fmt.Errorf("set the clock of store %s: %w", dir, err)
	}
	return r, nil
}

// existing returns the resolved path of a directory that holds a store, or ErrNotFound if there is
// none.
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

// startClock refuses a machine's clock that is too far from where the store's clock had been,
// unless ResetClock sets that.
func (s *Store) startClock(passed time.Time) error {
	machine := s.opt.Clock.Now().Round(0)
	if s.reset == nil {
		return checkClock(machine, passed, s.dir)
	}
	s.reset.Stored, s.reset.Machine = passed, machine
	return nil
}
