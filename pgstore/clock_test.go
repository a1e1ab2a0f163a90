package pgstore

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// P2, P8: the clock of the store pauses while the server's is behind. What is pushed without a
// delay then is claimed at once, whatever part of a millisecond the clock stands at.
func TestPushWhileTheClockStandsStill(t *testing.T) {
	t.Parallel()
	for _, part := range []time.Duration{0, time.Microsecond, 500 * time.Microsecond, 999 * time.Microsecond} {
		clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(part))
		s := openFresh(t, clock).(*Store)
		before, err := s.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(-8 * time.Second)
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "a"}})
		if err != nil || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
		if late := rs[0].Due.Sub(before); late < 0 || late > time.Millisecond {
			t.Errorf("P8: at %v into a millisecond a push is due %v behind the clock", part, late)
		}
		if ds := claimN(t, s, 1); len(ds) != 1 {
			t.Errorf("a clock that pauses at %v into a millisecond keeps a message from being claimed that is due at once", part)
		}
	}
}

// P3, P8: two processes whose clocks pause, because the server's has stepped back, come to stand at
// the same time. Otherwise the one that is ahead would see the leases of the other as over.
func TestClocksStandAtOneTime(t *testing.T) {
	t.Parallel()
	server := pgrig.StartShifted(t, "fsync=off")
	o := &Options{Migrate: true, OwnPool: true, NoListen: true}
	one, other := openStore(t, newPool(t, server), o), openStore(t, newPool(t, server), o)
	stepClock(t, server, -storekit.StepBeyond) // more would have the clock step
	stands := max(one.db.clock.latestMicros(), other.db.clock.latestMicros())
	if err := one.db.writeClockAt(t.Context(), stands, 0); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "both know the time that is written down", func() bool {
		return one.db.clock.keptMicros() == stands && other.db.clock.keptMicros() == stands
	})
	// One hears of half a second more than the other. As long as the clock moves, that is too
	// little to be written down.
	ahead := stands + 500_000
	one.db.clock.hear(ahead)
	waitUntil(t, "both clocks stand at one time", func() bool {
		a, errA := one.Now(t.Context())
		b, errB := other.Now(t.Context())
		return errA == nil && errB == nil && a.Equal(b) && a.UnixMicro() >= ahead/1000*1000
	})
	if behind := doIt(t, server, "select extract(epoch from clock_timestamp()) * 1000000 < "+"(select clock from punctual.store)"); behind != "t" {
		t.Error("this test shows nothing: the server's clock has caught up")
	}
}

// P8: no process sees the clock behind what it has heard, or behind what another one has written
// down. That holds for Now, pushes, claims and Get.
func TestClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := storekit.NewManualClock(start)
	pool := newPool(t, shared)
	t.Cleanup(pool.Close)
	o := &Options{Schema: fresh(), Migrate: true, clock: clock}
	s := openStore(t, pool, o)
	if err := s.db.writeClockAt(t.Context(), s.db.clock.latestMicros(), 0); err != nil {
		t.Fatal(err)
	}
	clock.Advance(-time.Hour)
	for name, x := range map[string]*Store{"the same": s, "another": openStore(t, pool, o)} {
		if now, err := x.Now(t.Context()); err != nil || now.Before(start) {
			t.Errorf("P8: the clock of %s process is %v, %v; it was %v before", name, now, err, start)
		}
		rs, err := x.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: name, Delay: time.Minute}})
		if err != nil || rs[0].Due.Before(start.Add(time.Minute)) {
			t.Errorf("P8: a push of %s process is due %v, %v; want a minute behind %v", name, rs, err, start)
		}
		if _, err := x.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: name + " now"}}); err != nil {
			t.Fatal(err)
		}
		ds := claimN(t, x, 1)
		if len(ds) != 1 || ds[0].Delivered.Before(start) || ds[0].LeaseUntil.Before(start.Add(limits.MinLease)) {
			t.Errorf("P8: a claim of %s process found %v; want the message, under a lease by the clock", name, ds)
		}
		i, err := x.Get(t.Context(), "orders", name+" now")
		if err != nil || i.State != punctual.StateLeased || i.Created.Before(start) {
			t.Errorf("P8: %s process sees %+v, %v; want it leased", name, i, err)
		}
	}
}

// One step of the clock after the other is carried over: the goroutine that has done so for the
// first does not keep the second from beginning.
func TestCarriesStepAfterStep(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, clock: clock})
	for step := range int64(2) {
		now := clock.Now().UnixMicro()
		s.steps.carryOver(clockSteps{steps: step + 1, from: now + 1_000_000, to: now})
		if s.steps.passed != step+1 {
			t.Fatalf("step %d is not carried over", step+1)
		}
		waitUntil(t, "the step is carried over", func() bool { return !s.steps.carrying.Load() })
	}
}
