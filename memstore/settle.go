package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enterBatch(ctx, len(ss))
	if err != nil {
		return nil, err
	}
	out := make([]error, len(ss))
	for i := range ss {
		out[i] = s.settle(&ss[i], now)
	}
	s.wakeClaims()
	return out, nil
}

func (s *Store) settle(x *punctual.Settlement, now instant) error {
	if err := storekit.CheckSettlement(x); err != nil {
		return err
	}
	t, m := s.find(x.Topic, x.ID, now)
	if m == nil || m.token == 0 || m.token != x.Token {
		return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, punctual.ErrLeaseLost)
	}
	if m.cancelRequested && x.Verb != punctual.SettleAck && x.Verb != punctual.SettleDiscard {
		if x.Verb != punctual.SettleExtend {
			t.finish(m, punctual.OutcomeCancelled, now)
		}
		return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, punctual.ErrCancelled)
	}
	return t.settle(m, x, now)
}

// settle does what the holder of the current lease says.
func (t *topic) settle(m *message, x *punctual.Settlement, now instant) error {
	switch x.Verb {
	case punctual.SettleAck:
		t.finish(m, punctual.OutcomeAcked, now)
	case punctual.SettleRetry:
		return t.retry(m, x, now)
	case punctual.SettleSnooze:
		due, err := storekit.DueAt(now.fine, time.Time{}, x.Delay)
		if err != nil {
			return err
		}
		m.Due = due
		m.Attempt--
		t.wait(m)
	case punctual.SettleDiscard:
		m.fail(x.Error, now)
		t.die(m, punctual.ReasonDiscarded, now)
	case punctual.SettleRelease:
		m.Attempt--
		t.wait(m)
	case punctual.SettleExtend:
		length := x.Delay
		if length == 0 {
			length = t.settings.Lease
		}
		t.hold(m, now.ms+storekit.CeilDuration(length))
	}
	return nil
}

func (t *topic) retry(m *message, x *punctual.Settlement, now instant) error {
	delay := x.Delay
	if delay == punctual.UseBackoff {
		delay = storekit.RetryDelay(t.settings.Backoff, m.Attempt)
	}
	due, err := storekit.DueAt(now.fine, time.Time{}, delay)
	if err != nil {
		return err
	}
	m.fail(x.Error, now)
	if m.Attempt >= t.maxAttempts(m) {
		t.die(m, punctual.ReasonAttemptsUsedUp, now)
		return nil
	}
	m.Due = due
	t.wait(m)
	return nil
}
