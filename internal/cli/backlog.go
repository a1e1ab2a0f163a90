package cli

import (
	"context"
	"sync"
)

// backlog passes items from one goroutine to another in batches: each take returns the items put since the last one. It has a
// bound in items and in bytes; put waits while it is full.
type backlog[T any] struct {
	maxItems, maxBytes int

	mu     sync.Mutex
	items  []T           // guarded by mu
	bytes  int           // guarded by mu
	err    error         // guarded by mu; set once by close, no items follow
	gone   bool          // guarded by mu; set by abandon, after which nobody takes items
	filled chan struct{} // has one element when there may be something to take
	room   chan struct{} // has one element when there may be room to put
}

func newBacklog[T any](maxItems, maxBytes int) *backlog[T] {
	return &backlog[T]{
		maxItems: maxItems, maxBytes: maxBytes,
		filled: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// put adds an item, and waits while the backlog is full. It accepts an item of more than maxBytes when the backlog is empty. It
// returns false after abandon.
func (b *backlog[T]) put(item T, size int) bool {
	for {
		b.mu.Lock()
		if b.gone {
			b.mu.Unlock()
			return false
		}
		if len(b.items) == 0 || len(b.items) < b.maxItems && b.bytes+size <= b.maxBytes {
			b.items = append(b.items, item)
			b.bytes += size
			b.mu.Unlock()
			wake(b.filled)
			return true
		}
		b.mu.Unlock()
		<-b.room
	}
}

// close makes err the error that take returns with the last items, or once they were taken; no items may follow.
func (b *backlog[T]) close(err error) {
	b.mu.Lock()
	b.err = err
	b.mu.Unlock()
	wake(b.filled)
}

// abandon makes put return false, because nobody takes items any more.
func (b *backlog[T]) abandon() {
	b.mu.Lock()
	b.gone = true
	b.mu.Unlock()
	wake(b.room)
}

// take waits until there are items and returns all of them. After close it returns the error that was given to close, with the items that
// are left, if any. When ctx has ended it returns no items and the error of ctx.
func (b *backlog[T]) take(ctx context.Context) ([]T, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.mu.Lock()
		items, err := b.items, b.err
		b.items, b.bytes = nil, 0
		b.mu.Unlock()
		wake(b.room)
		if len(items) > 0 || err != nil {
			return items, err
		}
		select {
		case <-b.filled:
		case <-ctx.Done():
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
