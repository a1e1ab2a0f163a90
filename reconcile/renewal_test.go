package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/reconcile"
)

// renewing is a store whose renewals of leases fail while fails returns true.
type renewing struct {
	*memstore.Store
	fails  func() bool
	failed atomic.Int64
}

func (s *renewing) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if ss[0].Verb == punctual.SettleExtend && s.fails() {
		s.failed.Add(1)
		return nil, punctual.ErrUnreachable
	}
	return s.Store.Settle(ctx, ss)
}

// A pass goes on while renewals fail for less than a lease. It ends when its lease may have run
// out, because another process may make one.
func TestReconcileRenewals(t *testing.T) {
	for _, x := range []struct {
		from, until, took time.Duration // when renewals fail, and how long the pass takes
		lost              bool
	}{
		{0, 25 * time.Second, 100 * time.Second, false},
		{25 * time.Second, 45 * time.Second, 100 * time.Second, false},
		{0, time.Hour, 25 * time.Second, false},
		{0, time.Hour, 100 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			s := &renewing{Store: memstore.New(nil), fails: func() bool { return time.Since(start) >= x.from && time.Since(start) < x.until }}
			ctx, cancel := context.WithCancel(t.Context())
			var reported error
			var ended time.Duration
			err := reconcile.Run(ctx, punctual.NewQueue(s, nil), &reconcile.Config{
				Topic: orderTopic,
				List: func(ctx context.Context, _ string) ([]punctual.NewMessage, string, error) {
					select {
					case <-ctx.Done():
						return nil, "", ctx.Err()
					case <-time.After(x.took):
						return nil, "", nil
					}
				},
				Report: func(_ reconcile.Report, err error) {
					reported, ended = err, time.Since(start)
					cancel()
				},
			})
			if err != nil || s.failed.Load() == 0 {
				t.Fatalf("this test shows nothing: %v, %d renewals failed", err, s.failed.Load())
			}
			switch {
			case !x.lost && (reported != nil || ended != x.took):
				t.Errorf("renewals fail from %v to %v: a pass of %v ended after %v with %v", x.from, x.until, x.took, ended, reported)
			case x.lost && (!errors.Is(reported, punctual.ErrLeaseLost) || ended < 30*time.Second || ended > 40*time.Second):
				t.Errorf("renewals fail from %v to %v: a pass ended after %v with %v; want ErrLeaseLost once its lease of 30 s is over", x.from, x.until, ended, reported)
			}
		})
	}
}

// outage is a store whose pushes fail while gone returns true, as if the store did not answer.
type outage struct {
	*memstore.Store
	gone  func() bool
	calls atomic.Int64 // the pushes that failed
}

func (s *outage) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if s.gone() {
		s.calls.Add(1)
		return nil, fmt.Errorf("push: %w", punctual.ErrUnreachable)
	}
	return s.Store.Push(ctx, ms)
}

// Reconcile asks a store that does not answer for a day soon at first, and then seldom. When the
// store is back the next pass comes within one and a half minutes, or one and a half times Every if
// that is shorter.
func TestReconcileBacksOff(t *testing.T) {
	for _, every := range []time.Duration{5 * time.Minute, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			longest := min(every, time.Minute)
			start := time.Now()
			length := 24 * time.Hour
			s := &outage{Store: memstore.New(nil), gone: func() bool { return time.Since(start) < length }}
			ctx, cancel := context.WithCancel(t.Context())
			var told []time.Duration // when errors were reported in the first ten seconds
			var back time.Duration
			reports := int64(0)
			err := reconcile.Run(ctx, punctual.NewQueue(s, nil), &reconcile.Config{
				Topic: orderTopic, Every: every,
				List: func(context.Context, string) ([]punctual.NewMessage, string, error) { return nil, "", nil },
				Report: func(_ reconcile.Report, err error) {
					if err == nil {
						back = time.Since(start) - length
						cancel()
						return
					}
					if reports++; time.Since(start) <= 10*time.Second {
						told = append(told, time.Since(start))
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if n, most := s.calls.Load(), int64(length/(longest/2))+10; n > most || n < int64(length/(longest*3/2)) || reports != n {
				t.Errorf("every %v: %d calls, %d reports in a day without a store; want one in about %v", every, n, reports, longest)
			}
			if len(told) < 3 || told[0] != 0 || told[1] > 2*time.Second {
				t.Errorf("every %v: the first errors were told after %v", every, told)
			}
			if back < 0 || back > longest*3/2 {
				t.Errorf("every %v: the first pass came %v after the store was back, want at most %v", every, back, longest*3/2)
			}
		})
	}
}

// An outage after a success begins with short waits again.
func TestReconcileBacksOffAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		since := func() time.Duration { return time.Since(start) }
		s := &outage{Store: memstore.New(nil), gone: func() bool { return since() < time.Hour || since() > 2*time.Hour }}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		var second []time.Duration // when the errors of the second outage were reported
		err := reconcile.Run(ctx, punctual.NewQueue(s, nil), &reconcile.Config{
			Topic: orderTopic, Every: 5 * time.Minute,
			List: func(context.Context, string) ([]punctual.NewMessage, string, error) { return nil, "", nil },
			Report: func(_ reconcile.Report, err error) {
				if err != nil && since() > 2*time.Hour {
					second = append(second, since())
				}
			},
		})
		if err != nil || len(second) < 3 || second[1]-second[0] > 2*time.Second || second[2]-second[1] > 4*time.Second {
			t.Errorf("%v; the errors of the second outage came after %v", err, second)
		}
	})
}
