// Package memstore is the store in memory: for tests, for trying things out and for
// work that may be lost with its process. It is also the model that every other store
// is compared with, so it is written to be plainly right rather than fast.
//
// What becomes of a message is decided by package storekit/lifecycle; topic.apply carries it out. One mutex guards
// everything. Each topic has its messages by ID and two timelines.
// One has the live messages by the time at which they next need attention. The other has the dead
// messages by the time at which they died. The store starts no goroutine.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Options configure a Store.
type Options struct {
	// Clock is where the store gets its time from. Default storekit.SystemClock.
	Clock storekit.Clock
	// MaxBody is the largest body accepted, in bytes; a push of more is ErrTooLarge. 0 or less means punctual.DefaultMaxBody, 1 MiB.
	MaxBody int
}

// Store keeps messages in memory. It implements punctual.Store, punctual.Inspector,
// punctual.Checker, punctual.Examiner, punctual.FinishedKeeper and punctual.DurabilityReporter, and is safe for
// concurrent use. Make one with New.
type Store struct {
	maxBody int
	clock   *storekit.SteadyClock

	mu     sync.Mutex
	topics map[string]*topic // guarded by mu
	token  int64             // the newest token, store-wide, so that it grows across messages that used one ID; guarded by mu
	seq    uint64            // the newest message.seq; guarded by mu
	wake   chan struct{}     // closed when waiting claims should look again; nil when none waits; guarded by mu
	closed bool              // guarded by mu

	partition func(id string) int // see InPartitions; nil: all in one; guarded by mu
}

var (
	_ punctual.Store              = (*Store)(nil)
	_ punctual.Inspector          = (*Store)(nil)
	_ punctual.Checker            = (*Store)(nil)
	_ punctual.Examiner           = (*Store)(nil)
	_ punctual.FinishedKeeper     = (*Store)(nil)
	_ punctual.DurabilityReporter = (*Store)(nil)
)

// New returns an empty store. Nil options are the defaults.
func New(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	source := o.Clock
	if source == nil {
		source = storekit.SystemClock{}
	}
	s := &Store{maxBody: o.MaxBody, clock: storekit.NewSteadyClock(source, time.Time{}), topics: make(map[string]*topic)}
	if s.maxBody <= 0 {
		s.maxBody = punctual.DefaultMaxBody
	}
	return s
}

// Durability returns punctual.Volatile: everything is lost with the process.
func (s *Store) Durability() punctual.Durability { return punctual.Volatile }

// Now is the store's clock: the given clock in whole milliseconds, except that it never
// runs backwards.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return now.time(), nil
}

// Close forgets all messages and ends waiting claims. A second Close returns ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	s.closed = true
	s.topics = nil
	s.wakeClaims()
	return nil
}

// instant is one reading of the store's clock. Every call works with a single one.
type instant struct {
	fine   time.Time // as finely as known: delays count from it
	ms     int64     // rounded down: everything else
	source time.Time // what the store's clock follows, for how much time has passed
}

func (i instant) time() time.Time { return storekit.FromMillis(i.ms) }

// enter begins every method, with mu held: it refuses work on a closed store or for
// an ended context, and reads the clock.
func (s *Store) enter(ctx context.Context) (instant, error) {
	if s.closed {
		return instant{}, errClosed()
	}
	if err := ctx.Err(); err != nil {
		return instant{}, fmt.Errorf("memory store: %w", err)
	}
	t, source := s.clock.Read()
	return instant{fine: t, ms: storekit.Millis(t), source: source}, nil
}

// enterBatch is enter for methods that take many items.
func (s *Store) enterBatch(ctx context.Context, items int) (instant, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return now, err
	}
	return now, storekit.CheckBatch(items)
}

func errClosed() error { return fmt.Errorf("memory store: %w", punctual.ErrClosed) }

// existing returns a topic, or nil. It first lets go of dead messages, finished IDs and stories that were kept long enough. Whoever looks at a
// topic or changes its settings asks here, so what is seen never depends on when that happened last.
func (s *Store) existing(name string, now instant) *topic {
	t := s.topics[name]
	if t == nil {
		return nil
	}
	for len(t.dead) > 0 && lifecycle.PastRetention(t.dead[0].Died, &t.settings, now.ms) {
		t.remove(t.dead[0])
	}
	t.remembered.sweep(now.ms)
	t.stories.sweep(now.ms)
	return t
}

// find returns a message with its topic; the message is nil when there is none.
func (s *Store) find(name, id string, now instant) (*topic, *message) {
	t := s.existing(name, now)
	if t == nil {
		return nil, nil
	}
	return t, t.messages[id]
}
