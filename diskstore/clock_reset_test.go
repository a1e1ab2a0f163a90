package diskstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/examine"
	"github.com/punctualmq/punctual/storekit"
)

// TestAbsurdClock: a machine's clock that is further than examine.MaxClockStep from the store's is
// refused, in either direction, and the store's clock stays where it was.
func TestAbsurdClock(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	closeStore(t, openAt(t, dir, &Options{Clock: clock}))
	for _, step := range []time.Duration{10 * examine.MaxClockStep, examine.MaxClockStep + time.Hour, -examine.MaxClockStep - time.Hour} {
		wrong := storekit.NewManualClock(testStart.Add(step))
		s, err := Open(dir, &Options{Clock: wrong, Logger: quiet})
		if err == nil {
			closeStore(t, s)
		}
		if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "punctual clock "+dir) {
			t.Errorf("open with a clock %v from the store's: %v, want ErrInvalid with the remedy", step, err)
		}
	}
	s := openAt(t, dir, &Options{Clock: clock})
	if now, err := s.Now(t.Context()); err != nil || !now.Equal(testStart) {
		t.Errorf("P8: after refusals the clock says %v, %v; want %v", now, err, testStart)
	}
}

// TestResetClock: a clock that read ten years ahead while the store ran is set right on the stopped
// store.
func TestResetClock(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	s, err := Open(dir, &Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "t", ID: "tomorrow", Delay: 24 * time.Hour}, punctual.NewMessage{Topic: "p", ID: "ran-out"},
		punctual.NewMessage{Topic: "q", ID: "acked"})
	claim(t, s, "p", 1)
	if err := settle(t, s, claim(t, s, "q", 1)[0], punctual.SettleAck); err != nil {
		t.Fatal(err)
	}
	if _, err := ResetClock(dir, &Options{Clock: clock}); !errors.Is(err, punctual.ErrLocked) {
		t.Errorf("of a store that is open: %v, want ErrLocked", err)
	}
	clock.Advance(10 * examine.MaxClockStep)
	push(t, s, punctual.NewMessage{Topic: "o", ID: "now"})
	push(t, s, punctual.NewMessage{Topic: "t", ID: "in a minute", Delay: time.Minute})
	held := claim(t, s, "o", 10)[0]
	closeStore(t, s)

	clock.Set(testStart.Add(time.Minute))
	if _, err := Open(dir, &Options{Clock: clock, Logger: quiet}); !errors.Is(err, punctual.ErrInvalid) {
		t.Fatalf("open ten years behind the store: %v, want ErrInvalid", err)
	}
	r, err := ResetClock(dir, &Options{Clock: clock})
	if err != nil || !r.Reset || !r.Stored.Equal(testStart.Add(10*examine.MaxClockStep)) || !r.Machine.Equal(clock.Now()) {
		t.Fatalf("reset: %+v, %v", r, err)
	}
	s = openAt(t, dir, &Options{Clock: clock})
	if now, err := s.Now(t.Context()); err != nil || !now.Equal(clock.Now()) {
		t.Errorf("P8: the clock says %v, %v; want %v", now, err, clock.Now())
	}
	if info, err := s.Get(t.Context(), "o", "now"); err != nil || info.State != punctual.StateLeased || info.LeaseUntil.Sub(clock.Now()) != punctual.DefaultSettings().Lease {
		t.Errorf("P3 one holder: the lease that ran is %+v, %v; want what was left of it", info, err)
	}
	if ds := claim(t, s, "p", 10); len(ds) != 1 || ds[0].Attempt != 2 || ds[0].Token <= held.Token {
		t.Errorf("P4 fencing, P6 attempts: of a lease that had run out claimed %+v, want attempt 2 with a token above %d", ds, held.Token)
	}
	if err := settle(t, s, held, punctual.SettleAck); err != nil {
		t.Errorf("the holder cannot ack after the reset: %v", err)
	}
	if ds := claim(t, s, "q", 1); len(ds) != 0 {
		t.Errorf("claimed %+v, which was acked before the reset", ds)
	}
	clock.Advance(time.Minute)
	if ds := claim(t, s, "t", 10); len(ds) != 1 || ds[0].ID != "in a minute" {
		t.Errorf("P2 never early: claimed %+v, want what was pushed with a delay of a minute while the clock was ahead", ds)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "soon", Delay: time.Minute})
	clock.Advance(time.Minute)
	if ds := claim(t, s, "o", 10); len(ds) != 1 || ds[0].ID != "soon" {
		t.Errorf("claimed %+v, want what was pushed after the reset", ds)
	}
	mustBeSound(t, s)
}

// TestResetClockThatIsRight: ResetClock finds no store, does not reset a clock that Open would
// bring to the machine's time by itself, and does reset one that is two years behind.
func TestResetClockThatIsRight(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	if _, err := ResetClock(dir, &Options{Clock: clock}); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("where no store is: %v, want ErrNotFound", err)
	}
	closeStore(t, openAt(t, dir, &Options{Clock: clock}))
	clock.Advance(time.Hour)
	if r, err := ResetClock(dir, &Options{Clock: clock}); err != nil || r.Reset {
		t.Errorf("of a clock that is right: %+v, %v", r, err)
	}
	clock.Advance(2 * examine.MaxClockStep)
	if r, err := ResetClock(dir, &Options{Clock: clock}); err != nil || !r.Reset {
		t.Errorf("of a store that was not used for two years: %+v, %v", r, err)
	}
	closeStore(t, openAt(t, dir, &Options{Clock: clock}))
}
