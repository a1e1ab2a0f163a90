package route

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// A call that ended without an answer may have copies on their way, because the network can hold a
// request back and deliver it later. Such a copy must not undo what the same process does next. For
// example, a late copy of a push would bring a message back that was pushed again and cancelled. So
// before the next call to that partition the Router has its server refuse the copies
// (lua/refuse.lua). The same holds before a call to another partition that the copy would change,
// such as that of a follow-up or of an event. The copy is refused in its own partition, because its
// record stands there.

// unanswered is a call that ended without an answer.
type unanswered struct {
	caller           string
	number, deadline int64
	era              int64 // of the clock by which the deadline is meant
}

// unansweredCalls has the unanswered calls of a store whose copies no server refuses yet. All
// methods are safe for concurrent use.
type unansweredCalls struct {
	partitions atomic.Int64 // how many partitions have such a call; while there is none, the method to takes no lock

	mu     sync.Mutex
	of     map[string][]unanswered // guarded by mu: by Partition.Tag
	beside map[string][]string     // guarded by mu: by Partition.Tag, the tags of other partitions with calls that change this one, too
}

// refuseAtOnce is how many calls one script refuses.
const refuseAtOnce = 200

// add remembers a call to a partition. beside has the tags of the other partitions that the call
// would change. now is about the time of the store's clock, in ms. add also forgets calls, of all
// partitions, whose deadlines have been past for more than script.RecordWindow: no copy of them can
// take effect, and a partition that nobody calls again would keep them for ever.
func (u *unansweredCalls) add(p keys.Partition, beside []string, c unanswered, now int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of, u.beside = make(map[string][]unanswered), make(map[string][]string)
	}
	for tag, calls := range u.of {
		u.keep(tag, slices.DeleteFunc(calls, func(old unanswered) bool { return old.deadline+script.RecordWindow < now }))
	}
	// The record that refuses a call also refuses all earlier calls of the caller with a deadline
	// in the same window.
	same := func(old unanswered) bool {
		return old.caller == c.caller && old.era == c.era && old.deadline/script.RecordWindow == c.deadline/script.RecordWindow
	}
	calls := u.of[p.Tag]
	if i := slices.IndexFunc(calls, same); i >= 0 {
		c.deadline = max(c.deadline, calls[i].deadline)
		calls = slices.Delete(calls, i, i+1)
	}
	u.keep(p.Tag, append(calls, c))
	for _, tag := range beside {
		if !slices.Contains(u.beside[tag], p.Tag) {
			u.beside[tag] = append(u.beside[tag], p.Tag)
		}
	}
}

// keep sets the calls that are remembered for a partition. Called with mu held.
func (u *unansweredCalls) keep(tag string, calls []unanswered) {
	if len(calls) == 0 {
		delete(u.of, tag)
		for touched, homes := range u.beside {
			if homes = slices.DeleteFunc(homes, func(home string) bool { return home == tag }); len(homes) == 0 {
				delete(u.beside, touched)
			} else {
				u.beside[touched] = homes
			}
		}
	} else {
		u.of[tag] = calls
	}
	u.partitions.Store(int64(len(u.of)))
}

// changing returns the partitions with calls of which a copy would change p. Of their fields only
// Tag is set.
func (u *unansweredCalls) changing(p keys.Partition) (homes []keys.Partition) {
	if u.partitions.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.of[p.Tag]) > 0 {
		homes = append(homes, keys.Partition{Tag: p.Tag})
	}
	for _, tag := range u.beside[p.Tag] {
		homes = append(homes, keys.Partition{Tag: tag})
	}
	return homes
}

// to returns the calls that are remembered for a partition.
func (u *unansweredCalls) to(p keys.Partition) []unanswered {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.of[p.Tag])
}

// refused forgets calls to a partition, because its server refuses their copies now.
func (u *unansweredCalls) refused(p keys.Partition, calls []unanswered) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keep(p.Tag, slices.DeleteFunc(u.of[p.Tag], func(c unanswered) bool { return slices.Contains(calls, c) }))
}

// refuse has the server of a partition refuse the copies of calls that ended without an answer and
// would change that partition. Until it has, no other call may be sent there; if refuse fails, that
// call returns its error.
func (r *Router) refuse(ctx context.Context, p keys.Partition) error {
	for _, home := range r.unanswered.changing(p) {
		if err := r.refuseIn(ctx, home); err != nil {
			return err
		}
	}
	return nil
}

// refuseIn is refuse for the calls whose records stand in a partition.
func (r *Router) refuseIn(ctx context.Context, p keys.Partition) error {
	for calls := range slices.Chunk(r.unanswered.to(p), refuseAtOnce) {
		args := []any{r.header(0, 0), ""}
		for _, c := range calls {
			args = append(args, c.caller, c.number, c.deadline, c.era)
		}
		a, err := r.timed(ctx, script.Refuse, r.keyArgs.WithRecords(p), args)
		if err != nil {
			return notSentYet(ctx, err)
		}
		a.Int() // the version
		refused := slices.Clone(calls)
		for len(a.Items) > 0 {
			n := a.Int()
			if n < 0 || n >= int64(len(calls)) {
				a.Bad = true
				break
			}
			refused = slices.DeleteFunc(refused, func(c unanswered) bool { return c == calls[n] })
		}
		if a.Bad {
			return notSentYet(ctx, script.BadReply(script.Refuse))
		}
		r.unanswered.refused(p, refused)
	}
	return nil
}

// notSentYet returns the error of a call that was not sent because refuse has failed with err.
func notSentYet(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case punctual.Definite(err):
		return err
	}
	return fmt.Errorf("not sent, because an earlier call got no answer and its copies could not be refused: %w (%v)", punctual.ErrUnreachable, err)
}
