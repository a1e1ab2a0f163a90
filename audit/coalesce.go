package audit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// coalesceTime is how long amendments are counted before they are entered.
	coalesceTime = 10 * time.Second
	// maxCoalesced is how many kinds of amendments have entries of their own. Further kinds are
	// counted without their topics, together for each principal and verb.
	maxCoalesced = 200
)

// coalescer counts amendments of the same kind into one entry. Its methods are safe for concurrent
// use.
type coalescer struct {
	write func(ctx context.Context, entries ...Entry)

	mu      sync.Mutex
	open    map[kind]*counted // guarded by mu; nil unless collect runs
	closed  chan struct{}     // closed by close
	running sync.WaitGroup    // waits for collect
}

// kind is what all amendments of one entry have in common.
type kind struct{ who, verb, topic string }

// counted is the entry of all amendments of a kind after the first one.
type counted struct {
	Entry
	calls int
}

// add counts an amendment that was made. It returns true for one that the caller has to enter
// itself, at once: the first of its kind, and each one that comes after close, when collect has
// ended. When e is of a further kind and there are too many, add takes topic, ID and detail out of
// e.
func (c *coalescer) add(e *Entry) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		select {
		case <-c.closed:
			return true // after close there is no collect that would enter what is counted
		default:
		}
		c.open = make(map[kind]*counted)
		c.running.Go(c.collect)
	}
	k := kind{e.Who, e.Verb, e.Topic}
	if c.open[k] == nil && len(c.open) >= maxCoalesced {
		k.topic, e.Topic, e.ID, e.IDs, e.Detail = "", "", "", nil, ""
	}
	in := c.open[k]
	if in == nil {
		c.open[k] = &counted{}
		return true
	}
	if in.calls++; in.calls == 1 {
		in.Entry = *e
		return false
	}
	in.addIDs(in.ID, e.ID)
	in.addIDs(e.IDs...)
	in.ID, in.Detail, in.Changed = "", "", in.Changed+e.Changed
	if in.From != e.From {
		in.From = ""
	}
	if e.Result != Done {
		in.Result, in.Error = e.Result, e.Error
	}
	return false
}

// collect waits for coalesceTime or until the coalescer is closed, and then enters what was
// counted. It is a goroutine that add starts and close waits for.
func (c *coalescer) collect() {
	timer := time.NewTimer(coalesceTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
	c.mu.Lock()
	open := c.open
	c.open = nil
	c.mu.Unlock()
	var entries []Entry
	for _, in := range open {
		if in.calls > 1 {
			in.Detail = fmt.Sprintf("%d calls in %v", in.calls, coalesceTime)
		}
		if in.calls > 0 {
			entries = append(entries, in.Entry)
		}
	}
	if len(entries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	c.write(ctx, entries...)
}

// close makes collect enter what was counted and waits for it. Later amendments are not counted.
func (c *coalescer) close() {
	c.mu.Lock()
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	c.mu.Unlock()
	c.running.Wait()
}
