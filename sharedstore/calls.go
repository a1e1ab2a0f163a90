package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return do(ctx, s, func(f full, _ bool) ([]punctual.PushResult, error) { return f.Push(ctx, ms) }, false)
}

// Claim implements punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := do(ctx, s, func(f full, _ bool) ([]punctual.Delivery, error) { return f.Claim(ctx, c) }, true)
	// A caller that has gone holds no lease, so its claim is not in doubt. What an owner may have
	// leased runs out.
	switch {
	case !errors.Is(err, punctual.ErrIndeterminate):
	case ctx.Err() != nil:
		err = fmt.Errorf("claim: %w", ctx.Err())
	case s.closing.Err() != nil:
		err = errClosed()
	}
	return ds, err
}

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return do(ctx, s, func(f full, anew bool) ([]error, error) {
		errs, err := f.Settle(ctx, ss)
		for i := range errs {
			if anew && errors.Is(errs[i], punctual.ErrLeaseLost) {
				errs[i] = inDoubt(errs[i])
			}
		}
		return errs, err
	}, true)
}

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return do(ctx, s, func(f full, _ bool) ([]punctual.Amended, error) { return f.Amend(ctx, as) }, false)
}

// Now implements punctual.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return do(ctx, s, func(f full, _ bool) (time.Time, error) { return f.Now(ctx) }, false)
}

// Get implements punctual.Inspector.
func (s *Store) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.Info, error) { return f.Get(ctx, topic, id) }, false)
}

// List implements punctual.Inspector.
func (s *Store) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.Page, error) { return f.List(ctx, q) }, false)
}

// Topics implements punctual.Inspector.
func (s *Store) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	return do(ctx, s, func(f full, _ bool) ([]punctual.TopicStats, error) { return f.Topics(ctx) }, false)
}

// Abilities implements storekit.AbilityReporter with those of the owner's store.
func (s *Store) Abilities(ctx context.Context) (storekit.Abilities, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.Abilities, error) {
		r, err := punctual.As[storekit.AbilityReporter](f)
		if err != nil {
			return storekit.Abilities{}, err
		}
		return r.Abilities(ctx)
	}, false)
}

// TopicNames implements storekit.TopicNamer.
func (s *Store) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	return do(ctx, s, func(f full, _ bool) ([]string, error) {
		n, err := punctual.As[storekit.TopicNamer](f)
		if err != nil {
			return nil, err
		}
		return n.TopicNames(ctx, q)
	}, false)
}

// NewCompanions implements storekit.TopicNamer.
func (s *Store) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.Companions, error) {
		n, err := punctual.As[storekit.TopicNamer](f)
		if err != nil {
			return storekit.Companions{}, err
		}
		return n.NewCompanions(ctx, mark, wait)
	}, false)
}

// Stats implements punctual.Inspector.
func (s *Store) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.TopicStats, error) { return f.Stats(ctx, topic) }, false)
}

// Forecast implements punctual.Inspector.
func (s *Store) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.Forecast, error) { return f.Forecast(ctx, q) }, false)
}

// Settings implements punctual.Inspector.
func (s *Store) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.Settings, error) { return f.Settings(ctx, topic) }, false)
}

// Configure implements punctual.Inspector.
func (s *Store) Configure(ctx context.Context, topic string, p punctual.SettingsPatch) (punctual.Settings, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.Settings, error) { return f.Configure(ctx, topic, p) }, false)
}

// Purge implements punctual.Inspector.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	return do(ctx, s, func(f full, _ bool) (int64, error) { return f.Purge(ctx, q) }, false)
}

// DeleteTopic implements punctual.Inspector.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	return do(ctx, s, func(f full, _ bool) (int64, error) { return f.DeleteTopic(ctx, topic) }, false)
}

// Finished implements punctual.FinishedKeeper.
func (s *Store) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.Finished, error) { return f.Finished(ctx, topic, id) }, false)
}

// ListFinished implements punctual.FinishedKeeper.
func (s *Store) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	return do(ctx, s, func(f full, _ bool) (punctual.FinishedPage, error) { return f.ListFinished(ctx, q) }, false)
}

// Consumers implements storekit.ConsumerReporter. It reports the processes that use the directory
// through its owner. It does not report the claims of the owner itself, because those do not pass
// the socket. It fails with ErrUnsupported if the directory cannot be shared.
func (s *Store) Consumers(ctx context.Context, topic string) (storekit.Consumers, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.Consumers, error) {
		r, err := punctual.As[storekit.ConsumerReporter](f)
		if err != nil {
			r, err = s.reporter()
		}
		if err != nil {
			return storekit.Consumers{}, err
		}
		return r.Consumers(ctx, topic)
	}, false)
}

// Check implements storekit.Checker.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (storekit.CheckReport, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.CheckReport, error) { return f.Check(ctx, progress) }, false)
}

// Examine implements storekit.Examiner.
func (s *Store) Examine(ctx context.Context) ([]storekit.Finding, error) {
	return do(ctx, s, func(f full, _ bool) ([]storekit.Finding, error) { return f.Examine(ctx) }, false)
}

// Durability implements storekit.DurabilityReporter.
func (s *Store) Durability() punctual.Durability { return punctual.Fsync }

// Space implements storekit.SpaceReporter.
func (s *Store) Space(ctx context.Context) (storekit.Space, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.Space, error) { return f.Space(ctx) }, false)
}

// Clock implements storekit.ClockKeeper.
func (s *Store) Clock(ctx context.Context) (storekit.ClockState, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.ClockState, error) { return f.Clock(ctx) }, false)
}

// StepClock implements storekit.ClockKeeper.
func (s *Store) StepClock(ctx context.Context) (storekit.ClockState, error) {
	return do(ctx, s, func(f full, _ bool) (storekit.ClockState, error) { return f.StepClock(ctx) }, false)
}
