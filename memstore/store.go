// Package memstore is the store in memory, for tests, for first trials, and for work that may be
// lost with its process. Random tests compare every other store with it, so it is written to be
// plainly right rather than fast.
//
// Package storekit/lifecycle decides what becomes of a message, and Store.apply carries the
// decision out. One mutex guards everything. Each topic has a map of its messages by ID and two
// queues: the live messages by the time at which they next need attention, and the dead messages by
// the time at which they died. The store starts no goroutine.
package memstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Options configure a Store.
type Options struct {
	// Clock is where the store gets its time from. Default storekit.SystemClock.
	Clock storekit.Clock
	// MaxBody is the greatest length of a body, in bytes; the push of a longer one is ErrTooLarge.
	// 0 or less means limits.DefaultMaxBody, 1 MiB.
	MaxBody int
}

// Store keeps messages in memory. It implements punctual.Store, punctual.Inspector,
// storekit.Checker, storekit.Examiner, punctual.FinishedKeeper, storekit.DurabilityReporter,
// storekit.AbilityReporter, storekit.TopicNamer and storekit.ClockKeeper, and is safe for
// concurrent use. Make one with New.
type Store struct {
	maxBody int
	clock   *storekit.SteadyClock

	mu     sync.Mutex
	topics map[string]*topic // guarded by mu
	token  int64             // the newest token of all topics, so that tokens grow from one message of an ID to the next; guarded by mu
	seq    uint64            // the newest message.seq; guarded by mu
	wake   chan struct{}     // closed to have the waiting claims try again; nil until one waits again; guarded by mu
	closed bool              // guarded by mu
	made   int64             // how many topics were made; guarded by mu

	arrivals *storekit.Arrivals

	partition func(id string) int // see InPartitions; nil: topics have one partition; guarded by mu
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ storekit.Checker            = (*Store)(nil)
	_ storekit.Examiner           = (*Store)(nil)
	_ punctual.FinishedKeeper     = (*Store)(nil)
	_ storekit.DurabilityReporter = (*Store)(nil)
	_ storekit.AbilityReporter    = (*Store)(nil)
	_ storekit.TopicNamer         = (*Store)(nil)
	_ storekit.ClockKeeper        = (*Store)(nil)
)

// New returns an empty store. If o is nil, the options have their defaults.
func New(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	source := o.Clock
	if source == nil {
		source = storekit.SystemClock{}
	}
	s := &Store{maxBody: o.MaxBody, clock: storekit.NewSteadyClock(source, time.Time{}), topics: make(map[string]*topic), arrivals: storekit.NewArrivals()}
	if s.maxBody <= 0 {
		s.maxBody = limits.DefaultMaxBody
	}
	return s
}

// Durability returns punctual.Volatile, because everything is lost when the process ends.
func (s *Store) Durability() punctual.Durability { return punctual.Volatile }

// Abilities returns what the store can do: a settlement reaches every topic, topics tell of
// their events, and their leases can be bounded.
func (s *Store) Abilities(ctx context.Context) (storekit.Abilities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.enter(ctx)
	return storekit.Abilities{Follow: storekit.ReachAny, Emit: true, BoundsLeases: true, Keys: true}, err
}

// Now returns the store's clock: the time of Options.Clock in whole milliseconds, except that it
// does not run backwards but for a step (storekit.ClockKeeper).
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return now.time(), nil
}

// Close drops all messages and ends the waiting claims with ErrClosed. A second Close returns
// ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	s.closed = true
	s.topics = nil
	s.wakeClaims()
	s.arrivals.Close()
	return nil
}

// instant is one reading of the store's clock. A method reads the clock once for all its items.
// Only Claim reads it again, after it has waited or leased messages, and Configure for each of its
// steps.
type instant struct {
	fine   time.Time // in the resolution of the clock; delays count from it
	ms     int64     // in Unix milliseconds, rounded down, for all else
	source time.Time // the reading of Options.Clock, by which Claim measures how long it has waited
}

func (i instant) time() time.Time { return storekit.FromMillis(i.ms) }

// enter is the beginning of every method of the interfaces above but Close and Durability, with mu
// held: it returns an error for a closed store or an ended context, and otherwise the time of the
// clock.
func (s *Store) enter(ctx context.Context) (instant, error) {
	if s.closed {
		return instant{}, errClosed()
	}
	if err := ctx.Err(); err != nil {
		return instant{}, fmt.Errorf("memory store: %w", err)
	}
	t, source := s.clock.Read()
	if s.clock.StepDue() {
		s.step()
		t, source = s.clock.Read()
	}
	return instant{fine: t, ms: storekit.Millis(t), source: source}, nil
}

// enterBatch is enter for the methods with items; more than limits.MaxBatch of them are an error.
func (s *Store) enterBatch(ctx context.Context, items int) (instant, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return now, err
	}
	return now, storekit.CheckBatch(items)
}

func errClosed() error { return fmt.Errorf("memory store: %w", punctual.ErrClosed) }

// existing returns a topic, or nil. Before that it removes the dead messages, finished IDs and
// finished records of the topic that are past their retention, and some events that nobody has read
// in time. Every call whose answer depends on what is past its retention looks its topics up here
// first, so that it does not matter whether an earlier call has removed it.
func (s *Store) existing(name string, now instant) *topic {
	t := s.topics[name]
	if t == nil {
		return nil
	}
	for len(t.dead) > 0 && lifecycle.PastRetention(t.dead[0].Died, &t.settings, now.ms) {
		t.remove(t.dead[0], now)
	}
	t.forgetKeys(now)
	t.remembered.sweep(now.ms)
	t.records.sweep(now.ms)
	if strings.HasSuffix(name, storekit.EventSuffix) {
		s.sweepEvents(t, now)
	}
	return t
}

// find returns a message and its topic. Either is nil when there is none.
func (s *Store) find(name, id string, now instant) (*topic, *message) {
	t := s.existing(name, now)
	if t == nil {
		return nil, nil
	}
	return t, t.messages[id]
}
