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

// A call whose answer is lost is sent again, with the same number and deadline. lua/call.lua keeps
// the last answer that each caller got to a call that changed something, and carries a call out
// once. So a broken connection or a failover costs time, but the caller learns the outcome as long
// as one copy gets an answer. A copy that arrives after the deadline, by the store's clock, changes
// no message and no setting. A copy of a call that its caller has given up may still arrive before
// the deadline: unanswered.go has it refused, so that it cannot undo a later call of the same
// store.

// CallTime is how far ahead the deadline of a call is, in ms, unless the context, or the time of
// the request that it carries, ends before. Until the deadline copies of the call may take effect.
const CallTime = 15_000

// recorded runs a Recorded script. A call may be refused as late although it is new, because this
// process has guessed the server's clock wrong. Then recorded sends it with a new deadline, if
// certainly no copy was carried out, in all Tries times at most.
func (r *Router) recorded(ctx context.Context, sc *script.Script, p keys.Partition, beside []any, k *script.Key, args []any) (*script.Answer, error) {
	c := r.slots.begin()
	defer r.slots.end(c)
	for try := 1; ; try++ {
		deadline := r.o.Clock.Deadline(ctx, CallTime)
		h := r.header(c.number, deadline)
		h.Key = k
		names := func() []any { return r.keyArgs.WithRecords(p, beside...) }
		a, err := r.timed(ctx, sc, names(), append([]any{h, c.caller}, args...))
		switch {
		case err != nil && !punctual.Definite(err) && !IsUnconfirmed(err):
			r.unanswered.add(p, keys.Others(names()), unanswered{c.caller, c.number, deadline, h.Era}, r.o.Clock.Guess()/1000)
			c.number++ // the number after that of the call is for lua/refuse.lua
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

// slots makes the callers that lua/call.lua knows: one for each slot 0, 1, 2 .... A slot has one
// call under way at a time, so there are as many slots as the most calls that this store ever had
// under way at once.
type slots struct {
	sender string // Options.Sender

	mu   sync.Mutex
	free []*call // guarded by mu: the last call of each free slot
	made int     // guarded by mu: how many slots there are
}

// call is a call under way, or the last one of a free slot.
type call struct {
	caller string
	number int64
}

// begin reserves a free slot and returns a call in it, which the caller must give to end.
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
