package cli

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/worker"
)

// heldBackOnce holds back the first answer that brings messages, until their leases have ended and another claim has got the messages.
type heldBackOnce struct {
	punctual.Store
	held []punctual.Delivery // what the other claim got
}

func (s *heldBackOnce) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	if len(ds) > 0 && s.held == nil {
		time.Sleep(time.Minute)
		s.held, err = s.Store.Claim(context.WithoutCancel(ctx), c)
	}
	return ds, err
}

// TestConsumeCountsWhatItStarted: a delivery whose lease had ended before its handler could begin is none of those that --count asks for,
// and the run still ends.
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
		limited := newQuota(slow, 2)
		ctx, end := context.WithCancel(t.Context())
		var mu sync.Mutex
		var got []string // guarded by mu
		w := worker.New(limited, &worker.Config{
			Concurrency: 2, Logger: slog.New(slog.DiscardHandler), Observer: &punctual.Observer{OnStart: limited.started, OnLeaseLost: limited.lost},
		})
		w.Handle("t", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			mu.Lock()
			got = append(got, d.ID)
			mu.Unlock()
			time.Sleep(time.Second) // so that one comes after the other
			if limited.delivered() {
				end()
			}
			return nil
		}))
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(slow.held) != 2 {
			t.Fatalf("another claim got %d messages, want both whose leases had ended", len(slow.held))
		}
		if len(got) != 2 {
			t.Errorf("handled %q, want both messages, once their leases at the other holder have ended", got)
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
		if x.Verb == punctual.SettleRelease {
			s.Add(1)
		}
	}
	return s.Store.Settle(ctx, ss)
}

// TestConsumeCountsNothingGivenBack: a delivery that a worker claims ahead of its slots and gives back unstarted is none of those that
// --count asks for.
func TestConsumeCountsNothingGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		ms := make([]punctual.NewMessage, 3000)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "t"}
		}
		if _, err := punctual.NewQueue(mem, nil).PushMany(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		const count = 2000
		back := &releases{Store: mem}
		limited := newQuota(back, count)
		ctx, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		w := worker.New(limited, &worker.Config{
			Concurrency: 4, Logger: slog.New(slog.DiscardHandler), Observer: &punctual.Observer{OnStart: limited.started, OnLeaseLost: limited.lost},
		})
		var mu sync.Mutex
		handled := 0 // guarded by mu
		w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
			mu.Lock()
			handled++
			n := handled
			mu.Unlock()
			time.Sleep(time.Millisecond)
			if n > 1000 && n <= 1004 {
				time.Sleep(time.Second) // all four slots
			}
			if limited.delivered() {
				end()
			}
			return nil
		}))
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if back.Load() == 0 {
			t.Error("this test shows nothing: nothing was given back")
		}
		if handled != count {
			t.Errorf("%d handlers ran within an hour, want %d", handled, count)
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestClaimBeyondTheQuotaEnds: a claim for which nothing is left takes as long as any claim that finds nothing. One that waited
// for the end of the run would look to the worker like a claim that hangs.
func TestClaimBeyondTheQuotaEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(memstore.New(nil), 1)
		if _, err := q.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}, {Topic: "t"}}); err != nil {
			t.Fatal(err)
		}
		c := punctual.Claim{Topics: []string{"t"}, Max: 10, Wait: time.Second}
		if ds, err := q.Claim(t.Context(), c); err != nil || len(ds) != 1 {
			t.Fatalf("the first claim: %d messages, %v; want the one of the quota", len(ds), err)
		}
		begun := time.Now()
		if ds, err := q.Claim(t.Context(), c); err != nil || len(ds) != 0 || time.Since(begun) != c.Wait {
			t.Errorf("a claim beyond the quota: %d messages, %v, after %v; want none after %v", len(ds), err, time.Since(begun), c.Wait)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAClaimGetsWhatAnotherLeaves: a claim for which nothing is left takes over what a claim that found nothing gives back to the quota,
// and both waits together are no longer than one.
func TestAClaimGetsWhatAnotherLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(memstore.New(nil), 2)
		claim := func(after, wait time.Duration) <-chan int {
			got := make(chan int, 1)
			time.Sleep(after)
			go func() {
				begun := time.Now()
				ds, err := q.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: wait})
				if took := time.Since(begun); err != nil || len(ds) == 0 && took != wait || took > wait {
					t.Errorf("a claim that waits %v: %d messages, %v, after %v", wait, len(ds), err, took)
				}
				got <- len(ds)
			}()
			return got
		}
		first, second := claim(0, time.Second), claim(0, time.Second)
		synctest.Wait()
		if n := q.take(1); n != 0 {
			t.Fatal("the two claims left something of the quota")
		}
		third, fourth := claim(0, 10*time.Second), claim(0, 10*time.Second) // both wait for what the first two give back
		if n := <-first + <-second; n != 0 {
			t.Fatalf("the first two claims brought %d messages of none", n)
		}
		time.Sleep(2 * time.Second)
		if _, err := q.Push(t.Context(), []punctual.NewMessage{{Topic: "t"}, {Topic: "t"}}); err != nil {
			t.Fatal(err)
		}
		if n := <-third + <-fourth; n != 2 {
			t.Errorf("the claims that waited brought %d messages, want both that came", n)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(memstore.New(nil), 1)
		if n := q.take(1); n != 1 {
			t.Fatal("the quota is not one")
		}
		begun := time.Now()
		done := make(chan time.Duration)
		go func() {
			if ds, err := q.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: 10 * time.Second}); err != nil || len(ds) != 0 {
				t.Errorf("%d messages, %v; want none", len(ds), err)
			}
			done <- time.Since(begun)
		}()
		time.Sleep(4 * time.Second)
		q.claimed(1, nil)
		if took := <-done; took != 10*time.Second {
			t.Errorf("a claim that got its share after 4 s took %v, want its Wait of 10 s", took)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
