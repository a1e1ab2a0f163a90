package cli

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// heldBackOnce holds back the first answer that brings messages until their leases have ended.
type heldBackOnce struct {
	punctual.Store
	held atomic.Int64 // how many messages the answer had
}

func (s *heldBackOnce) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	if len(ds) > 0 && s.held.CompareAndSwap(0, int64(len(ds))) {
		time.Sleep(time.Minute)
	}
	return ds, err
}

// counted runs consume with --count over a store, and returns the lines that it prints. The run has
// an hour.
func counted(t *testing.T, s punctual.Store, topic string, concurrency int, count int64) []string {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), time.Hour)
	defer end()
	var out, errs buffer
	a := (&rig{t: t, clock: storekit.NewManualClock(start)}).app(&out, &errs)
	if err := a.consume(ctx, s, []string{topic}, consumeFlags{concurrency: concurrency, count: count}); err != nil {
		t.Error(err)
	}
	if ctx.Err() != nil {
		t.Errorf("the run did not end within an hour; it printed %d lines", strings.Count(out.String(), "\n"))
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// A delivery whose lease had ended before its handler could begin is none of those that --count
// asks for, and the run still ends.
func TestConsumeCountsWhatItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		q := punctual.NewQueue(mem, nil)
		for i := range 2 {
			if _, err := q.Push(t.Context(), "t", nil, punctual.ID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		slow := &heldBackOnce{Store: mem}
		lines := counted(t, slow, "t", 2, 2)
		if n := slow.held.Load(); n != 2 {
			t.Fatalf("this test shows nothing: the first answer brought %d messages, want both, whose leases had ended", n)
		}
		if len(lines) != 2 || lines[0] == lines[1] {
			t.Errorf("printed %q, want both messages, of the claim behind the first one", lines)
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// releases counts what is given back to a store.
type releases struct {
	punctual.Store
	atomic.Int64
}

func (s *releases) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	for _, x := range ss {
		if x.Verb == punctual.SettleRelease || x.Verb == punctual.SettleSnooze {
			s.Add(1)
		}
	}
	return s.Store.Settle(ctx, ss)
}

// What a worker claims ahead of its slots, beyond the deliveries that --count asks for, is given
// back and has used no attempt. Whether it has claimed ahead when the last delivery ends is a
// matter of the order in which goroutines run, so this is tried until it has.
func TestConsumeGivesBackWhatIsBeyondTheCount(t *testing.T) {
	for range 50 {
		if consumedBeyondTheCount(t) > 0 || t.Failed() {
			return
		}
	}
	t.Error("this test shows nothing: in no try anything was given back")
}

// consumedBeyondTheCount consumes 2000 of 3000 messages, and returns how many more were given back.
func consumedBeyondTheCount(t *testing.T) (given int64) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		ms := make([]punctual.NewMessage, 3000)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "t"}
		}
		if _, err := punctual.NewQueue(mem, nil).PushMany(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		back := &releases{Store: mem}
		if lines := counted(t, back, "t", 4, 2000); len(lines) != 2000 {
			t.Errorf("%d messages were printed, want 2000", len(lines))
		}
		given = back.Load()
		page, err := mem.List(t.Context(), punctual.ListQuery{Topic: "t", State: punctual.StateReady, Limit: 2000})
		if err != nil || len(page.Messages) != 1000 {
			t.Fatalf("%d messages are ready behind it, %v; want 1000", len(page.Messages), err)
		}
		for _, m := range page.Messages {
			if m.Attempt != 0 {
				t.Errorf("%s has used %d attempts, and no handler saw it", m.ID, m.Attempt)
			}
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	return given
}

// The copies for groups, which the run of a group makes, do not count as its deliveries.
func TestConsumeCountsNoDuties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		if _, err := mem.Configure(t.Context(), "orders", punctual.SettingsPatch{Groups: &[]string{"billing", "mail"}}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := punctual.NewQueue(mem, nil).Push(t.Context(), "orders", nil); err != nil {
				t.Fatal(err)
			}
		}
		if lines := counted(t, mem, "orders@g.billing", 1, 5); len(lines) != 5 {
			t.Errorf("printed %q, want the 5 copies of the group", lines)
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}
