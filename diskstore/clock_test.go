package diskstore

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// TestAfterMeetsAnAdvance: a wait that begins while the clock is moved, and read by others,
// ends when the clock has reached the time asked for (P11).
func TestAfterMeetsAnAdvance(t *testing.T) {
	source := storekit.NewManualClock(time.Unix(1_000_000, 0))
	c := clock{storekit.NewSteadyClock(source, time.Time{})}
	for range 3000 {
		due := c.ms() + 1000
		var reached <-chan time.Time
		var stop func()
		var all sync.WaitGroup
		all.Go(func() { reached, stop = c.after(due, maxSleep) })
		all.Go(func() {
			source.Advance(time.Second)
			c.Now()
		})
		all.Wait()
		select {
		case <-reached:
		default:
			t.Fatalf("P11: the clock has reached %d, a wait until then goes on", due)
		}
		stop()
	}
}

// afterPowerCut returns what is on the disk when all that was not synced is lost.
func afterPowerCut(mem *vfs.MemFS) *vfs.MemFS { return mem.CrashClone(vfs.CrashCloneCfg{}) }

// clockOf opens a store from a copy of files and returns where its clock starts. The machine's
// clock was set back by a day before.
func clockOf(t *testing.T, files *vfs.MemFS, now time.Time) time.Time {
	t.Helper()
	s, err := Open("store", &Options{fs: files, Clock: storekit.NewManualClock(now.Add(-24 * time.Hour)), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	at, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestClockAfterPowerCut: after a power cut the clock is not behind a change that was durable, and
// once maintenance has run it is at most watermarkInterval behind any other time that was given
// out.
func TestClockAfterPowerCut(t *testing.T) {
	mem, clock := vfs.NewCrashableMem(), storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{fs: mem, Clock: clock, Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	clock.Advance(time.Hour)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: 1, Lease: 10 * time.Hour})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if got := clockOf(t, afterKill(mem), clock.Now()); got.Before(clock.Now()) {
		t.Errorf("P8: after a claim at %v and a kill the clock says %v", clock.Now(), got)
	}
	at := func(want time.Time, when string) {
		t.Helper()
		if err := s.maintain(false); err != nil {
			t.Fatal(err)
		}
		// The store's own maintenance may have begun to write the clock, and not have ended.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			got := clockOf(t, afterPowerCut(mem), clock.Now())
			if !got.Before(want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("P8: %s at %v and a power cut the clock says %v, want at least %v", when, clock.Now(), got, want)
			}
		}
	}
	at(clock.Now(), "after a claim an hour after the last transaction")
	clock.Advance(9 * time.Second)
	if err := settle(t, s, ds[0], punctual.SettleExtend); err != nil {
		t.Fatal(err)
	}
	at(clock.Now().Add(-watermarkInterval), "after an extension that is not durable")
	if err := settle(t, s, ds[0], punctual.SettleRelease); err != nil {
		t.Fatal(err)
	}
	at(clock.Now(), "after a release, which is durable,")
	clock.Advance(time.Hour)
	if _, err := s.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	at(clock.Now(), "after a look at the clock")
}

// TestUpkeepByItself lets time pass for a store that is used: the store writes watermarks and the
// clock without being asked or closed. While nobody uses it, the store changes no file.
func TestUpkeepByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, f := vfs.NewCrashableMem(), &faults{}
		s, err := Open("store", &Options{fs: hookFS{mem, f.hook}, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer closeStore(t, s)
		push(t, s, punctual.NewMessage{Topic: "o", ID: "a"}, punctual.NewMessage{Topic: "o", ID: "b", Delay: time.Millisecond})
		time.Sleep(time.Second)
		ds := claim(t, s, "o", 2)
		if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * watermarkInterval)
		mark := lowest(t, s, "o")
		if want := storekit.Millis(ds[1].Due); mark.Ms != want {
			t.Errorf("a while after the first of two messages was acked the watermark is at %v, want %d, the place of the other", mark, want)
		}
		for range 10 { // only the end of the lease changes, which is no transaction
			time.Sleep(5 * time.Second)
			if err := settle(t, s, ds[1], punctual.SettleExtend); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got, now := clockOf(t, afterPowerCut(mem), time.Now()), time.Now(); got.Before(now.Add(-watermarkInterval - time.Second)) {
			t.Errorf("P8: in use, the store wrote down the clock %v ago", now.Sub(got))
		}
		time.Sleep(2 * watermarkInterval)
		before, _, _ := f.state()
		time.Sleep(time.Hour)
		if after, _, _ := f.state(); after != before {
			t.Errorf("a store that nobody uses changed its files %d times in an hour", after-before)
		}
	})
}
