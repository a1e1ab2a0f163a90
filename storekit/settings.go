package storekit

import (
	"math/rand/v2"
	"time"

	"github.com/punctualmq/punctual"
)

// Abilities are what a store can do of that which settings may ask for.
type Abilities struct {
	// Partitions is into how many parts the store can divide a topic. One that can divide it refuses to change the number of a
	// topic that exists.
	Partitions int
	// KeepsFinished tells that the store is a punctual.FinishedKeeper.
	KeepsFinished bool
}

// AllAbilities are those of a store that can do everything. With them ApplySettings checks settings before it is known
// which store they are for.
func AllAbilities() Abilities {
	return Abilities{Partitions: punctual.MaxPartitions, KeepsFinished: true}
}

// ApplySettings returns s with the patch applied, or an ErrInvalid that names the field. What the store cannot do is an
// ErrUnsupported.
func ApplySettings(s punctual.Settings, p punctual.SettingsPatch, can Abilities) (punctual.Settings, error) {
	set(&s.Lease, p.Lease)
	set(&s.MaxAttempts, p.MaxAttempts)
	set(&s.Backoff, p.Backoff)
	set(&s.DeadRetention, p.DeadRetention)
	set(&s.DedupeWindow, p.DedupeWindow)
	set(&s.FinishedRetention, p.FinishedRetention)
	set(&s.PushPaused, p.PushPaused)
	set(&s.DeliveryPaused, p.DeliveryPaused)
	set(&s.Partitions, p.Partitions)
	if err := checkSettings(s); err != nil {
		return s, err
	}
	switch {
	case s.Partitions > can.Partitions:
		return s, errorf(punctual.ErrUnsupported, "%d partitions: this store divides a topic into at most %d", s.Partitions, can.Partitions)
	case s.FinishedRetention > 0 && !can.KeepsFinished:
		return s, errorf(punctual.ErrUnsupported, "finished retention %v: this store keeps no finished messages", s.FinishedRetention)
	}
	return s, nil
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

func checkSettings(s punctual.Settings) error {
	switch {
	case s.Lease < punctual.MinLease || s.Lease > punctual.MaxLease:
		return invalidf("lease %v: use %v to %v", s.Lease, punctual.MinLease, punctual.MaxLease)
	case s.MaxAttempts < 1 || s.MaxAttempts > punctual.MaxAttemptsLimit:
		return invalidf("max attempts %d: use 1 to %d", s.MaxAttempts, punctual.MaxAttemptsLimit)
	case s.DeadRetention < 0:
		return invalidf("dead retention %v: use a positive duration, or 0 to keep dead messages until purged", s.DeadRetention)
	case s.DedupeWindow < 0:
		return invalidf("dedupe window %v: use a positive duration, or 0 to forget finished IDs at once", s.DedupeWindow)
	case s.FinishedRetention < 0 || s.FinishedRetention > punctual.MaxFinishedRetention:
		return invalidf("finished retention %v: use a duration up to %v, or 0 to keep no finished messages", s.FinishedRetention, punctual.MaxFinishedRetention)
	case s.Partitions < 1 || s.Partitions > punctual.MaxPartitions:
		return invalidf("%d partitions: use 1 to %d", s.Partitions, punctual.MaxPartitions)
	}
	return checkBackoff(s.Backoff)
}

// RetryDelay returns the wait that b asks for after the given failed attempt (from 1). It is safe
// for concurrent use.
func RetryDelay(b punctual.Backoff, attempt int) time.Duration {
	if len(b.Delays) > 0 {
		return b.Delays[min(max(attempt, 1), len(b.Delays))-1]
	}
	d := b.Base
	for i := 1; i < min(attempt, 64) && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	if spread := time.Duration(b.Jitter * float64(d)); spread > 0 {
		d += rand.N(spread)
	}
	return d
}

// maxDelay bounds every delay of a backoff; it keeps the doubling from overflowing.
const maxDelay = 10 * 365 * 24 * time.Hour

func checkBackoff(b punctual.Backoff) error {
	for i, d := range b.Delays {
		if d < 0 || d > maxDelay {
			return invalidf("backoff delay %d is %v: use 0 to %v", i+1, d, maxDelay)
		}
	}
	if len(b.Delays) > 0 {
		return nil
	}
	switch {
	case b.Base < 0 || b.Base > maxDelay:
		return invalidf("backoff base %v: use 0 to %v", b.Base, maxDelay)
	case b.Max < b.Base || b.Max > maxDelay:
		return invalidf("backoff max %v: use the base %v to %v", b.Max, b.Base, maxDelay)
	case !(b.Jitter >= 0 && b.Jitter <= 1):
		return invalidf("backoff jitter %v: use 0 to 1", b.Jitter)
	}
	return nil
}
