package BeeDelayQueue

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// faulty is a store in memory whose answers a test can hold up or replace.
type faulty struct {
	*memstore.Store
	// claimed is called with the deliveries of a claim. settled is called after the store has
	// carried out the n-th call of Settle, counted from 1. An error that settled returns is the
	// answer to the caller, in place of the store's.
	claimed func([]punctual.Delivery)
	settled func(n int) error
	before  func(n int) error // as settled, but before the store; after an error the store is not called
	settles int               // how often Settle was called; a test has one caller
}

func (s *faulty) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	if s.claimed != nil && len(ds) > 0 {
		s.claimed(ds)
	}
	return ds, err
}

func (s *faulty) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.settles++
	if s.before != nil {
		if err := s.before(s.settles); err != nil {
			return nil, err
		}
	}
	answers, err := s.Store.Settle(ctx, ss)
	if s.settled != nil {
		if err := s.settled(s.settles); err != nil {
			return nil, err
		}
	}
	return answers, err
}

// onStore returns a controller on s, and a function that closes it.
func onStore(t *testing.T, s punctual.Store) (p *DelayQueueController, end func()) {
	t.Helper()
	p, err := NewDelayQueueControllerOnStore(s)
	if err != nil {
		t.Fatal(err)
	}
	p.log = slog.New(slog.NewTextHandler(t.Output(), nil))
	return p, func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestNotHeardAfterItsLease: when the answer to a claim comes so late that another process has
// leased the message, no listener gets it (P3).
func TestNotHeardAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New(nil)}
		var other []punctual.Delivery
		s.claimed = func(ds []punctual.Delivery) {
			if other == nil {
				time.Sleep(time.Minute)
				var err error
				other, err = s.Store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1, Lease: time.Hour})
				if err != nil || len(other) != 1 || other[0].ID != ds[0].ID {
					t.Errorf("another claim got %v, %v; want the message, whose lease has ended", other, err)
				}
			}
		}
		p, end := onStore(t, s)
		defer end()
		h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
		p.CreateDelayQueue("t", 30, 3)
		id := push(t, p, "t", 0)
		listen(t, p, "t", h)
		time.Sleep(30 * time.Minute)
		h.none(t)
		if other == nil {
			t.Fatal("no answer was held up")
		}
		time.Sleep(time.Hour) // the other one lets its lease end
		if m := h.next(t); m.Id != id || m.RetryCount != 3 {
			t.Errorf("got %s, delivery %d; want %s, delivery 3", m.Id, m.RetryCount, id)
		}
	})
}

// TestHeardAfterALongWait: a claim that waited for longer than the lease brings a message whose
// lease has begun just now.
func TestHeardAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New(nil)}
		p, end := onStore(t, s)
		defer end()
		h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
		p.CreateDelayQueue("t", 5, 0)
		listen(t, p, "t", h)
		time.Sleep(20 * time.Second)
		push(t, p, "t", 0)
		synctest.Wait()
		if m := h.next(t); m.RetryCount != 1 {
			t.Errorf("delivery %d", m.RetryCount)
		}
		time.Sleep(time.Minute)
		h.none(t)
	})
}

// TestAckAfterALostAnswer: an ack whose first try took effect succeeds, although the answer to that
// try got lost. A second try that meets a definite error in between does not change that, because
// the error says nothing of the first try.
func TestAckAfterALostAnswer(t *testing.T) {
	for name, second := range map[string]error{"at once": nil, "after a definite error": punctual.ErrUnreachable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faulty{Store: memstore.New(nil)}
				p, end := onStore(t, s)
				defer end()
				h := newHearing(nil)
				p.CreateDelayQueue("t", 60, 3)
				listen(t, p, "t", h)
				id := push(t, p, "t", 0)
				m := h.next(t)
				s.settled = func(n int) error {
					if n == 1 {
						gone(t, p, "t", id) // it was done
						return punctual.ErrIndeterminate
					}
					return nil
				}
				s.before = func(n int) error {
					if n == 2 {
						return second
					}
					return nil
				}
				if err := p.Settle(*m, true); err != nil {
					t.Errorf("P13: the ack that took effect was answered %v", err)
				}
				if err := p.Settle(*m, true); !errors.Is(err, punctual.ErrLeaseLost) {
					t.Errorf("P4: another ack: %v", err)
				}
			})
		})
	}
}

// TestAckWhoseFirstAnswerIsLost: an ack that may have taken effect is never answered by the
// definite error of a later try (P13).
func TestAckWhoseFirstAnswerIsLost(t *testing.T) {
	for name, later := range map[string]error{"store failed": punctual.ErrStoreFailed, "unreachable until the context ends": punctual.ErrUnreachable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faulty{Store: memstore.New(nil)}
				p, end := onStore(t, s)
				defer end()
				h := newHearing(nil)
				p.CreateDelayQueue("t", 60, 3)
				listen(t, p, "t", h)
				id := push(t, p, "t", 0)
				m := h.next(t)
				s.settled = func(n int) error {
					gone(t, p, "t", id) // it was done
					return punctual.ErrIndeterminate
				}
				s.before = func(n int) error {
					if n > 1 {
						return later
					}
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := p.settle(ctx, *m, punctual.SettleAck, 0, ""); !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
					t.Errorf("P13: the ack whose answer was lost: %v; want ErrIndeterminate", err)
				}
				if s.settles < 2 {
					t.Errorf("this test shows nothing: %d tries", s.settles)
				}
			})
		})
	}
}
