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

// TestOrderAcrossTheWindow: messages come by their due time (P12), whether they are in memory or on disk, moved, retried,
// or behind a restart. Memory holds a few of them only.
func TestOrderAcrossTheWindow(t *testing.T) {
	const n = 200
	clock := storekit.NewManualClock(testStart)
	o := &Options{fs: vfs.NewMem(), Clock: clock, MemoryBytes: 40 * memory.MessageBytes, byHand: true}
	s := openAt(t, "store", o)
	at := func(i int) time.Time { return testStart.Add(time.Hour + time.Duration(i)*time.Millisecond) }
	for i := range n { // in an order of its own: 7 and 200 have no common factor
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
	var want []string
	want = append(want, fmt.Sprint(n-1))
	for i := 1; i < n-1; i++ {
		want = append(want, fmt.Sprint(i))
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
		if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCancelIsDefinite: what was told to be cancelled is never delivered (P5), wherever the message was. That holds behind
// kill -9, too.
func TestCancelIsDefinite(t *testing.T) {
	for _, c := range []struct {
		name string
		// make makes message a, and tells what its cancel is to answer.
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

// TestTimeThatWasToldDoesNotComeAgain: whatever tells a time, a store after kill -9 does not begin behind it (P8), although the
// machine's clock was set back meanwhile.
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
