package remotestore

import (
	"context"
	"sync"
	"time"
)

// estimate is what the server's clock is thought to show. It only says until when a request may be carried out, and
// in which time new IDs sort. Every answer that matters comes from the server.
type estimate struct {
	mu     sync.Mutex
	heard  time.Time // guarded by mu: when it was read, by the machine's clock
	server time.Time // guarded by mu: what was read
}

// estimateFor is how long an estimate is good for: clocks drift little in that time.
const estimateFor = 30 * time.Second

// now is the estimate, and whether it is recent.
func (e *estimate) now() (now time.Time, recent bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since := time.Since(e.heard)
	return e.server.Add(since), since < estimateFor
}

// hear takes what the server's clock showed.
func (e *estimate) hear(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.server = time.Now(), now
}

// read asks the server.
func (e *estimate) read(ctx context.Context, s *Store) error {
	now, err := s.now(ctx)
	if err == nil {
		e.hear(now)
	}
	return err
}
