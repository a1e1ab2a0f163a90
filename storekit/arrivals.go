package storekit

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Arrivals lets the calls of TopicNamer.NewCompanions of a store wait until one of the store's
// processes has told of a new companion. All methods are safe for concurrent use.
type Arrivals struct {
	process string // in the marks that this Arrivals makes

	mu     sync.Mutex
	told   int64         // guarded by mu: how often Tell was called
	wake   chan struct{} // guarded by mu: closed by the next Tell
	closed bool          // guarded by mu
}

// NewArrivals returns an Arrivals of which nothing was told.
func NewArrivals() *Arrivals { return &Arrivals{process: rand.Text(), wake: make(chan struct{})} }

// Tell ends the waiting calls, because a companion has come into being or the groups of a topic
// were set.
func (a *Arrivals) Tell() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told++
	close(a.wake)
	a.wake = make(chan struct{})
}

// Close ends the waiting calls. Later ones do not wait.
func (a *Arrivals) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.Tell()
}

// An Arrival is what Await has found in the mark of a call.
type Arrival struct {
	// First reports that the mark is empty, or none that Mark has returned.
	First bool
	// Same reports that this Arrivals has made the mark.
	Same bool
	// Since is the number that the store has put into the mark.
	Since int64

	head string
}

// Mark returns the mark for the next call. next is a number of the store's own, which says where
// that call is to begin.
func (a Arrival) Mark(next int64) string { return a.head + strconv.FormatInt(next, 10) }

// Await waits until Tell is called, ctx ends or wait has passed. It does not wait when Tell was
// called since the mark was made, with the empty mark and with one that is no mark. The caller
// reads the store after Await, whatever its result.
func (a *Arrivals) Await(ctx context.Context, mark string, wait time.Duration) Arrival {
	process, rest, _ := strings.Cut(mark, ".")
	heard, since, _ := strings.Cut(rest, ".")
	told, err := strconv.ParseInt(heard, 10, 64)
	number, err2 := strconv.ParseInt(since, 10, 64)
	at := Arrival{First: err != nil || err2 != nil, Same: process == a.process, Since: number}
	a.mu.Lock()
	wake, now := a.wake, at.First || a.closed || at.Same && told != a.told
	a.mu.Unlock()
	if !now {
		t := time.NewTimer(min(wait, MaxAwait))
		defer t.Stop()
		select {
		case <-wake:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at.head = a.process + "." + strconv.FormatInt(a.told, 10) + "."
	return at
}
