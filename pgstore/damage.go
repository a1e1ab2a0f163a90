package pgstore

import (
	"log/slog"
	"sync"
)

// damage counts the messages that claims could not read since the store was opened.
type damage struct {
	mu    sync.Mutex
	count int   // guarded by mu; a message counts with each claim that met it
	last  error // guarded by mu
}

// met counts and logs messages that a claim has met and could not read.
func (d *damage) met(unreadable []error, log *slog.Logger) {
	if len(unreadable) == 0 {
		return
	}
	d.mu.Lock()
	d.count += len(unreadable)
	d.last = unreadable[len(unreadable)-1]
	d.mu.Unlock()
	for _, err := range unreadable {
		log.Error("a message cannot be read and is not delivered; it is dead when its attempts are used up", "error", err)
	}
}

// seen returns how often a claim has met such a message, and why the last one could not be read.
func (d *damage) seen() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count, d.last
}
