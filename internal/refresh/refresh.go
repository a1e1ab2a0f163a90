// Package refresh caches a value that is read from files, and reads it again when somebody asks for
// it and it is too old.
package refresh

import (
	"sync/atomic"
	"time"
)

// Value caches what was read, from a file for instance. Get reads it again if the last reading is
// older than the interval. Make a Value with New. It is safe for concurrent use.
type Value[T any] struct {
	interval time.Duration
	read     func(before T) T
	last     atomic.Pointer[reading[T]]
	// turn holds one element while a caller reads. The other callers wait for that reading and do
	// not use the old value, because for instance a token may have been revoked.
	turn chan struct{}
}

// reading is a value and when its reading began. It does not change once it is stored.
type reading[T any] struct {
	value T
	at    time.Time
}

// New returns a Value that begins with first, which the caller has just read. read is given the old
// value and returns the new one. Only one caller of Get calls read at a time.
func New[T any](interval time.Duration, first T, read func(before T) T) *Value[T] {
	v := &Value[T]{interval: interval, read: read, turn: make(chan struct{}, 1)}
	v.last.Store(&reading[T]{first, time.Now()})
	return v
}

// Get returns the value. When its reading began longer ago than the interval, the first caller
// reads it again. Callers that come meanwhile wait for that reading and get its value, or read
// again if that reading has taken longer than the interval.
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
