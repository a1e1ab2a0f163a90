package route

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// A call whose answer is lost is sent again, with the same number and deadline. The script lua/call.lua
// keeps what each caller was answered last, and carries a call out once. So a connection that breaks, or a
// failover, costs time and leaves no doubt, as long as a copy gets through in the end. A copy that arrives
// behind the deadline, by the store's clock, changes nothing. Until then see unanswered.go: what its caller has given up
// cannot undo what the same store does later.

// CallTime is how far ahead the deadline of a call is, in ms, unless the context ends before. Its copies may
// be under way for as long.
const CallTime = 15_000

// recorded runs a script that lua/call.lua stands in front of. When the server's clock is not where it was
// thought to be, the call is late although it has just been made. It is made anew if nothing was done.
func (r *Router) recorded(ctx context.Context, sc *script.Script, p keys.Partition, k *script.Key, args []any) (*script.Answer, error) {
	c := r.slots.begin()
	defer r.slots.end(c)
	for try := 1; ; try++ {
		deadline := r.o.Clock.Deadline(ctx, CallTime)
		h := r.header(c.number, deadline)
		h.Key = k
		a, err := r.timed(ctx, sc, r.keyArgs.WithRecords(p, RecordsAt(deadline), k != nil), append([]any{h, c.caller}, args...))
		switch {
		case err != nil && !punctual.Definite(err) && !IsUnconfirmed(err):
			r.unanswered.add(p, unanswered{c.caller, c.number, deadline}, r.o.Clock.Guess()/1000)
			c.number++ // lua/refuse.lua gives that one away
			return nil, err
		case err == nil, !errors.Is(err, errkind.ErrLate), !punctual.Definite(err), try == Tries:
			return a, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case r.o.Clock.Passed(ctx):
			return nil, context.DeadlineExceeded
		}
	}
}

// slots are numbered 0, 1, 2 ... Each is a caller that has one call under way at a time. So there are as many as this
// process ever had calls under way at once.
type slots struct {
	sender string // the store that they are of

	mu   sync.Mutex
	free []*call // guarded by mu: the last call of each slot without one
	made int     // guarded by mu: how many slots there are
}

// call is one call in its slot.
type call struct {
	caller string
	number int64
}

// begin takes a free slot for a call. The caller owes an end.
func (s *slots) begin() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		c := s.free[n-1]
		s.free = s.free[:n-1]
		c.number++
		return c
	}
	s.made++
	return &call{s.sender + ":" + strconv.Itoa(s.made-1), 1}
}

func (s *slots) end(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, c)
}

// RecordsAt is which of the two hashes of records a call with such a deadline has its record in.
func RecordsAt(deadline int64) int64 { return deadline / script.RecordWindow % 2 }
