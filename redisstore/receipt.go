package redisstore

import (
	_ "embed"
	"strconv"
	"sync"
)

// A call whose answer is lost is sent again, with the same number; lua/receipt.lua keeps what
// each slot was answered last and carries a call out once. So a connection that breaks, or a
// failover, costs time and leaves no doubt, as long as a copy gets through in the end.

//go:embed lua/receipt.lua
var receiptText string

// slots are numbered 0, 1, 2 ...; each has one call under way at a time, so there are as many
// as this process ever had calls under way at once.
type slots struct {
	mu    sync.Mutex
	free  []int   // guarded by mu: those without a call
	calls []int64 // guarded by mu: how many calls each slot has had
}

// call is one call in its slot.
type call struct {
	slot   int
	number int64
}

// begin takes a free slot for a call. The caller owes an end.
func (s *slots) begin() call {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := len(s.calls)
	if n := len(s.free); n > 0 {
		slot = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		s.calls = append(s.calls, 0)
	}
	s.calls[slot]++
	return call{slot, s.calls[slot]}
}

func (s *slots) end(c call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, c.slot)
}

// receipt is the key of what a store's slot was answered last in the partition.
func (p partition) receipt(sender string, slot int) string {
	return p.tag + "r:" + sender + ":" + strconv.Itoa(slot)
}
