package diskstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/storekit"
)

// TestOrderAcrossTheWindow: messages are delivered by their due time (P12), whether they are in
// memory or on disk, also when they were rescheduled or retried, and after a restart. Memory holds
// only some of them.
func TestOrderAcrossTheWindow(t *testing.T) {
	const n = 200
	clock := storekit.NewManualClock(testStart)
	o := &Options{fs: vfs.NewMem(), Clock: clock, MemoryBytes: 40 * memory.MessageBytes, byHand: true}
	s := openAt(t, "store", o)
	at := func(i int) time.Time { return testStart.Add(time.Hour + time.Duration(i)*2*time.Millisecond) }
	for i := range n { // each place once, not in order: 7 and 200 have no common factor
		place := i * 7 % n
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(place), Due: at(place)})
	}
	moved, err := s.Amend(t.Context(), []punctual.Amendment{
		{Change: punctual.ChangeReschedule, Topic: "o", ID: "0", Due: at(n)},
		{Change: punctual.ChangeReschedule, Topic: "o", ID: fmt.Sprint(n - 1), Due: at(-1)},
	})
	if err != nil || moved[0].Err != nil || moved[1].Err != nil {
		t.Fatal(moved, err)
	}
	// After their first attempt two messages are retried: the first one to a time beyond the
	// restart, and 10 to one shortly ahead.
	retried := map[string]time.Time{fmt.Sprint(n - 1): at(150).Add(time.Millisecond), "10": at(12).Add(time.Millisecond)}
	want := []string{fmt.Sprint(n - 1)}
	for i := 1; i < n-1; i++ {
		want = append(want, fmt.Sprint(i))
		switch i {
		case 12:
			want = append(want, "10")
		case 150:
			want = append(want, fmt.Sprint(n-1))
		}
	}
	want = append(want, "0")
	clock.Set(at(n))
	for k, id := range want {
		if k == n/2 {
			closeStore(t, s)
			s = openAt(t, "store", o)
		}
		ds := claim(t, s, "o", 1)
		if len(ds) != 1 || ds[0].ID != id {
			t.Fatalf("P12 order: claim %d brought %+v, want %s", k, ds, id)
		}
		ss := settlement(ds[0], punctual.SettleAck)
		if due, ok := retried[id]; ok && ds[0].Attempt == 1 {
			ss[0].Verb, ss[0].Due = punctual.SettleRetry, due
		}
		if errs, err := s.Settle(t.Context(), ss); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
	}
	if r := mustBeSound(t, s); r.Live != 0 {
		t.Errorf("P12 order: %d messages are left", r.Live)
	}
}

// TestCancelIsDefinite: after a cancel the message is never delivered again (P5), wherever it was.
// That holds after kill -9, too.
func TestCancelIsDefinite(t *testing.T) {
	for _, c := range []struct {
		name string
		// make makes message a, and returns the error that its cancel is to answer.
		make func(t *testing.T, k *killRig) error
	}{
		{"on disk alone", func(t *testing.T, k *killRig) error {
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a", Delay: time.Hour})
			return nil
		}},
		{"in memory", func(t *testing.T, k *killRig) error {
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			return nil
		}},
		{"released", func(t *testing.T, k *killRig) error {
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			return settle(t, k, claim(t, k, "o", 1)[0], punctual.SettleRelease)
		}},
		{"its lease has run out", func(t *testing.T, k *killRig) error {
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			claim(t, k, "o", 1)
			k.clock.Advance(time.Hour)
			return nil
		}},
		{"leased", func(t *testing.T, k *killRig) error {
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			claim(t, k, "o", 1)
			return punctual.ErrLeased
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKillRig(t)
			want := c.make(t, k)
			out, err := k.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "a"}})
			if err != nil || !errors.Is(out[0].Err, want) {
				t.Fatalf("cancel: %+v, %v; want %v", out, err, want)
			}
			again := k.reopened(k.killed())
			k.clock.Advance(2 * time.Hour)
			for what, s := range map[string]punctual.Store{"the store": k, "the store after kill -9": again} {
				if ds := claim(t, s, "o", 10); len(ds) != 0 {
					t.Errorf("P5 cancel is definite: %s delivered %+v", what, ds)
				}
			}
		})
	}
}

// TestTimeThatWasToldDoesNotComeAgain: after a call that told a time and kill -9, the store's clock
// does not start before that time (P8), although the machine's clock was set back meanwhile.
func TestTimeThatWasToldDoesNotComeAgain(t *testing.T) {
	for name, tell := range map[string]func(t *testing.T, k *killRig) time.Time{
		"now": func(t *testing.T, k *killRig) time.Time {
			now, err := k.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now
		},
		"a push": func(t *testing.T, k *killRig) time.Time {
			return push(t, k, punctual.NewMessage{Topic: "o", ID: "b"})[0].Due
		},
		"a claim": func(t *testing.T, k *killRig) time.Time { return claim(t, k, "o", 1)[0].Delivered },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKillRig(t)
			push(t, k, punctual.NewMessage{Topic: "o", ID: "a"})
			k.clock.Advance(time.Hour)
			told := tell(t, k)
			if told.Before(testStart.Add(time.Hour)) {
				t.Fatalf("told of %v", told)
			}
			files := k.killed()
			k.clock.Advance(-2 * time.Hour)
			if now, err := k.reopened(files).Now(t.Context()); err != nil || now.Before(told) {
				t.Errorf("P8 one clock: after kill -9 it is %v, %v; %v had been told", now, err, told)
			}
		})
	}
}
