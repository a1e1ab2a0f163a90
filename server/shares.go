package server

import (
	"fmt"
	"sync"

	"github.com/punctualmq/punctual"
)

// shares divides a quantity among clients (P14). A client may have as much as it leaves free, so a
// client that takes all it can get has half, and one that does the same after it a quarter. What is
// left free is never less than the client has that took last.
type shares struct {
	limit int64

	mu    sync.Mutex
	total int64            // guarded by mu
	of    map[string]int64 // guarded by mu: what was taken, by client
}

// take counts n for a client, and returns false if that is more than the client may have. It counts
// n in both cases. The client "" may have everything.
func (s *shares) take(client string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]int64)
	}
	s.total += n
	s.of[client] += n
	free := s.limit - s.total
	return free >= 0 && (client == "" || s.of[client] <= free)
}

// give takes n from the count of a client.
func (s *shares) give(client string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= n
	if s.of[client] -= n; s.of[client] == 0 {
		delete(s.of, client)
	}
}

// hold counts bytes of memory for the request, until drop or releaseMemory. It returns an
// ErrOverloaded beyond Limits.MaxMemory or the share of the client, and the request then holds
// nothing.
func (c *call) hold(n int64) error {
	if n == 0 {
		return nil
	}
	if c.held == 0 {
		c.holder = c.sharer()
	}
	c.held += n
	if c.server.memory.take(c.holder, n) {
		return nil
	}
	c.releaseMemory()
	if c.holder == "" {
		return fmt.Errorf("requests and answers take their %d bytes already: %w", c.server.limits.MaxMemory, punctual.ErrOverloaded)
	}
	return fmt.Errorf("the client's requests and answers take as much as it may have of %d bytes: %w", c.server.limits.MaxMemory, punctual.ErrOverloaded)
}

// holdItems is hold for values decoded from a request's body. A body of tiny parts can take many
// times its bytes in memory. Beyond Limits.mostHeld that is an ErrTooLarge and no ErrOverloaded,
// because trying again would not help.
func (c *call) holdItems(n int64) error {
	if most := c.server.limits.mostHeld(); c.held+n > most {
		return fmt.Errorf("the items of the request take more than %d bytes: send fewer headers or items: %w", most, punctual.ErrTooLarge)
	}
	return c.hold(n)
}

// drop ends the counting of n bytes.
func (c *call) drop(n int64) {
	if n != 0 {
		c.held -= n
		c.server.memory.give(c.holder, n)
	}
}

// dropBody forgets the body, which then no longer counts.
func (c *call) dropBody() {
	c.body = nil
	c.drop(c.heldBody)
	c.heldBody = 0
}

func (c *call) releaseMemory() {
	c.drop(c.held)
	c.heldBody = 0
}

// sharer returns the name under which the memory of the call counts: that of its client, or for a
// public route or the console, where the client is not known here, its address. Without an
// Authenticator it is "" for all calls.
func (c *call) sharer() string {
	switch {
	case c.server.options.Authenticator == nil:
		return ""
	case c.principal == nil:
		return "from " + c.address()
	}
	return "client " + c.principal.Key()
}
