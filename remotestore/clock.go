package remotestore

import (
	"context"
	"sync"
	"time"
)

// estimate computes what the server's clock shows, from what it showed when it was last read. It is
// used only for the time until which a request may be carried out, for whether the answer to an
// earlier copy may be forgotten by now, and for the times in new IDs.
type estimate struct {
	mu     sync.Mutex
	heard  time.Time // guarded by mu: when it was read, by the machine's clock
	server time.Time // guarded by mu: what was read
}

// estimateFor is how long after a reading the estimate counts as recent, because clocks drift
// little in that time.
const estimateFor = 30 * time.Second

// now returns what the server's clock shows now by estimate. recent reports whether the clock was
// read less than estimateFor ago.
func (e *estimate) now() (now time.Time, recent bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since := time.Since(e.heard)
	return e.server.Add(since), since < estimateFor
}

// hear notes what the server's clock has just shown.
func (e *estimate) hear(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard, e.server = time.Now(), now
}

// read asks a server for its clock.
func (e *estimate) read(ctx context.Context, s *Store) error {
	now, err := s.now(ctx)
	if err == nil {
		e.hear(now)
	}
	return err
}
