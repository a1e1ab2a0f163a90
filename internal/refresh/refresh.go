// Package refresh keeps what was read from files fresh: a value that is too old is read again by the caller who meets it.
package refresh

import (
	"sync/atomic"
	"time"
)

// Value caches what was read, from a file for instance. Get reads it again if the last reading is older than the interval. Make a
// Value with New. It is safe for concurrent use.
type Value[T any] struct {
	interval time.Duration
	read     func(before T) T
	last     atomic.Pointer[reading[T]]
	// turn holds one element while a caller reads. The others wait for it, because what they have is too old: a token may have been revoked.
	turn chan struct{}
}

// reading does not change once it is stored.
type reading[T any] struct {
	value T
	at    time.Time
}

// New returns a Value that begins with first, which was just read. read returns what to use from now on, given what was used before. It is
// called by one caller of Get at a time.
func New[T any](interval time.Duration, first T, read func(before T) T) *Value[T] {
	v := &Value[T]{interval: interval, read: read, turn: make(chan struct{}, 1)}
	v.last.Store(&reading[T]{first, time.Now()})
	return v
}

// Get returns what was read within the interval. When that is longer ago, the first caller reads, and callers who come meanwhile wait and get
// what it has read.
func (v *Value[T]) Get() T {
	if last := v.last.Load(); v.isFresh(last) {
		return last.value
	}
	v.turn <- struct{}{}
	defer func() { <-v.turn }()
	last := v.last.Load()
	if v.isFresh(last) { // another caller has read meanwhile
		return last.value
	}
	began := time.Now()
	next := &reading[T]{v.read(last.value), began}
	v.last.Store(next)
	return next.value
}

func (v *Value[T]) isFresh(r *reading[T]) bool { return time.Since(r.at) < v.interval }
