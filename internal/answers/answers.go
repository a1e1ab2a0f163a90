// Package answers keeps the answers of a store that is no storekit.Repeater, so that a call whose answer was lost on the
// way can be sent again and is still carried out once.
//
// Answers are kept in memory. A process that opens the store later does not have them; it has another Instance, by which
// the sender of a call notices that its first copy may have been carried out unseen.
package answers

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Options adjusts a Store. A nil *Options, and each zero field, means the default.
type Options struct {
	// Keep is how long the answer of a call is kept after its end. Default 2 min, more than the longest claim waits.
	Keep time.Duration
	// MaxBytes bounds the answers kept. One client of WithClient may take as much of it as is free, so at most half, and
	// others find room (P14). Beyond a bound the client's own answers to claims go first: a copy of such a claim gets
	// ErrIndeterminate, and its leases run out. When that is not enough, the client's calls with a key are ErrOverloaded.
	// Default 64 MiB.
	MaxBytes int64
	// Unchanged promises that callers change neither what they pass in, even after return, nor the results, bodies, headers and
	// failures that they are given. The Store then copies none of these.
	Unchanged bool
}

// Store wraps another store and recognizes a call that is sent again, as storekit.Repeater says. It has no Unwrap, so that
// punctual.As finds its own Repeater and never that of the store below; whoever needs the Inspector of the store below asks
// that one. All methods are safe for concurrent use.
type Store struct {
	store    punctual.Store // the store below
	keep     time.Duration
	maxBytes int64
	copies   bool // unless Options.Unchanged
	instance string
	running  sync.WaitGroup // the goroutines of calls

	mu      sync.Mutex
	closed  bool               // guarded by mu: no call begins any more
	calls   map[string]*call   // guarded by mu: those under way and those with an answer, by key
	kept    list.List          // guarded by mu: of *call, those with an answer, in the order of until
	bytes   int64              // guarded by mu: the sizes of calls
	clients map[string]*client // guarded by mu: those of calls, by name
}

// client is who makes calls, and what its calls take. Its fields are guarded by Store.mu.
type client struct {
	name   string
	calls  int       // how many of Store.calls are its own
	bytes  int64     // their sizes
	claims list.List // of *call, those with an answer that is deliveries, oldest first
}

type clientKey struct{}

// WithClient returns a context whose calls count as those of the client with this name. Calls of a context without one have all of
// Options.MaxBytes to themselves.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

// call is one call with a key. Its fields are guarded by Store.mu unless said otherwise.
type call struct {
	key     string
	client  *client
	sum     uint64 // of kind and content
	claim   bool   // it is a claim
	ctx     context.Context
	end     func()        // ends ctx
	done    chan struct{} // closed when the call has ended
	asking  int           // callers that wait for its end
	handed  int           // callers that were given its answer and have not given it back
	given   bool          // a caller was given its answer
	left    bool          // it was a claim, and nobody waited for it any more
	answer  any           // set when done is closed
	err     error         // set when done is closed
	size    int64         // of the answer, or while the call is under way what it is expected to be
	until   time.Time     // when it is forgotten, by the store's clock
	inKept  *list.Element
	inClaim *list.Element // nil once the answer was dropped for want of room
}

// New returns s with a memory for answers.
func New(s punctual.Store, o *Options) *Store {
	a := &Store{store: s, keep: 2 * time.Minute, maxBytes: 64 << 20, copies: o == nil || !o.Unchanged, instance: rand.Text(), calls: make(map[string]*call), clients: make(map[string]*client)}
	if o != nil && o.Keep > 0 {
		a.keep = o.Keep
	}
	if o != nil && o.MaxBytes > 0 {
		a.maxBytes = o.MaxBytes
	}
	return a
}

// Repeats implements storekit.Repeater.
func (s *Store) Repeats() time.Duration { return s.keep }

// Instance is a random name of this memory. A call that was sent to a store with another one may have been carried
// out there, and is not known here.
func (s *Store) Instance() string { return s.instance }

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Push(ctx, ms)
	}
	rs, _, err := ask(ctx, s, r, kind[[]punctual.PushResult]{
		sum: sumOf(func(h hash.Hash) { storekit.HashPush(h, ms) }),
		own: func() {
			if s.copies {
				ms = copyPush(ms)
			}
		},
		do:   func(ctx context.Context) ([]punctual.PushResult, error) { return s.store.Push(ctx, ms) },
		copy: copyItems[punctual.PushResult](s), size: sizeOfResults, expected: expectedResults(ms),
	})
	return rs, err
}

// Claim implements punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Claim(ctx, c)
	}
	ds, first, err := ask(ctx, s, r, kind[[]punctual.Delivery]{
		claim: true,
		sum:   sumOf(func(h hash.Hash) { storekit.HashClaim(h, c) }),
		own:   func() { c.Topics = append([]string(nil), c.Topics...) },
		do:    func(ctx context.Context) ([]punctual.Delivery, error) { return s.claim(ctx, c, r.NotAfter) },
		copy:  s.copyDeliveries, size: SizeOfDeliveries,
	})
	if len(ds) == 0 {
		return ds, err
	}
	return s.current(ctx, ds, first)
}

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Settle(ctx, ss)
	}
	errs, _, err := ask(ctx, s, r, kind[[]error]{
		sum: sumOf(func(h hash.Hash) { storekit.HashSettle(h, ss) }),
		own: func() {
			if s.copies {
				ss = append([]punctual.Settlement(nil), ss...)
			}
		},
		do:   func(ctx context.Context) ([]error, error) { return s.store.Settle(ctx, ss) },
		copy: copyItems[error](s), size: sizeOfErrors, expected: int64(len(ss)) * errorBytes,
	})
	return errs, err
}

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Amend(ctx, as)
	}
	out, _, err := ask(ctx, s, r, kind[[]punctual.Amended]{
		sum:  sumOf(func(h hash.Hash) { storekit.HashAmend(h, as) }),
		own:  func() { as = append([]punctual.Amendment(nil), as...) },
		do:   func(ctx context.Context) ([]punctual.Amended, error) { return s.store.Amend(ctx, as) },
		copy: copyItems[punctual.Amended](s), size: sizeOfAmended, expected: int64(len(as)) * amendedBytes,
	})
	return out, err
}

// Now implements punctual.Store. A key has no meaning for it, because reading the clock twice changes nothing.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// Drain lets no further call with a key begin, and waits for those under way. A claim that waits is under way as
// long as somebody waits for it. The store below stays open.
func (s *Store) Drain() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// Close drains and closes the store below.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.store.Close() // and with it the calls under way
	s.running.Wait()
	return err
}

// Answered forgets answers that their callers have. Keys that are not known are left alone.
func (s *Store) Answered(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if c := s.calls[key]; c != nil && c.inKept != nil {
			s.forget(c)
		}
	}
}

// Undelivered says that what a Claim with this context returned did not reach its caller. The leases are released,
// unless a copy of the claim was given them as well.
func (s *Store) Undelivered(ctx context.Context, ds []punctual.Delivery) error {
	if r, ok := storekit.RequestOf(ctx); ok && !s.takeBack(r.Key) {
		return nil
	}
	return s.release(ctx, ds)
}

// takeBack forgets the answer of a call unless another caller has it or waits for it, and returns whether it did.
func (s *Store) takeBack(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[key]
	if c == nil || c.inKept == nil {
		return false // forgotten: a copy may have been carried out, and the leases run out
	}
	c.handed--
	if c.handed > 0 || c.asking > 0 {
		return false
	}
	s.forget(c)
	return true
}

// release gives leases back unstarted.
func (s *Store) release(ctx context.Context, ds []punctual.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	if err := Release(ctx, s.store, ds, releaseLimit); err != nil {
		return fmt.Errorf("release what did not reach its caller: %w; the leases run out", err)
	}
	return nil
}

// Release gives leases back unstarted to a store, within limit, also when ctx has ended and whatever request it carries.
// Leases that are over already are no error.
func Release(ctx context.Context, s punctual.Store, ds []punctual.Delivery, limit time.Duration) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(storekit.WithoutRequest(ctx)), limit)
	defer end()
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}
	}
	errs, err := s.Settle(ctx, ss)
	for _, e := range errs {
		if !errors.Is(e, punctual.ErrLeaseLost) && !errors.Is(e, punctual.ErrCancelled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// releaseLimit is how long a release may take; beyond it the leases run out.
const releaseLimit = 10 * time.Second

// claim is a claim of the store below that ends at notAfter.
func (s *Store) claim(ctx context.Context, c punctual.Claim, notAfter time.Time) ([]punctual.Delivery, error) {
	if notAfter.IsZero() || c.Wait == 0 {
		return s.store.Claim(ctx, c)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	left := notAfter.Sub(now)
	if left > c.Wait {
		return s.store.Claim(ctx, c)
	}
	c.Wait = max(left, 0)
	ds, err := s.store.Claim(ctx, c)
	if err == nil && len(ds) == 0 {
		err = fmt.Errorf("the claim waited until it must not be carried out any more: %w", context.DeadlineExceeded)
	}
	return ds, err
}

// current leaves out the deliveries whose lease has ended. When this is the first caller, nobody has seen those, so they are
// given back unstarted.
func (s *Store) current(ctx context.Context, ds []punctual.Delivery, first bool) ([]punctual.Delivery, error) {
	now, err := s.Now(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	var ended []punctual.Delivery
	out := ds[:0]
	for _, d := range ds {
		if d.LeaseUntil.After(now) {
			out = append(out, d)
		} else {
			ended = append(ended, d)
		}
	}
	if first {
		err = s.release(ctx, ended)
	}
	if err != nil && len(out) == 0 {
		return nil, err
	}
	return out, nil // what could not be given back is ready again, with one attempt more
}

// kind is what ask has to know of a call.
type kind[A any] struct {
	claim bool
	sum   uint64
	own   func() // makes what was passed in the call's own
	do    func(context.Context) (A, error)
	copy  func(A) A
	size  func(A) int64
	// expected is the size of an answer without errors. That of a claim, which may bring anything, is 0.
	expected int64
}

// ask carries a call out, or waits for the call with the same key, and returns the answer. first is true for the caller
// that is the first to get it.
func ask[A any](ctx context.Context, s *Store, r storekit.Request, k kind[A]) (answer A, first bool, err error) {
	now, err := s.Now(ctx) // which says that the store is closed, or that ctx has ended
	if err != nil {
		return answer, false, err
	}
	if err := storekit.CheckRequest(r, now, s.keep); err != nil {
		return answer, false, err
	}
	late := !r.NotAfter.IsZero() && !now.Before(r.NotAfter)
	c, isNew, err := s.enter(ctx, r.Key, now, late, k.sum, k.claim, k.expected+callBytes)
	if err != nil {
		return answer, false, err
	}
	if isNew {
		k.own()
		go carryOut(s, c, now, k)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	got, first, err := s.leave(ctx, c)
	switch {
	case late && errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return answer, false, errLate()
	case err != nil || got == nil:
		return answer, false, err
	}
	return k.copy(got.(A)), first, nil
}

func errLate() error {
	return fmt.Errorf("the call came when it must not be carried out any more: %w", context.DeadlineExceeded)
}

// enter returns the call with the key, or a new one that the caller must carry out. A call that comes too late to be carried
// out only finds an earlier copy of itself. size is what the call counts while it is under way.
func (s *Store) enter(ctx context.Context, key string, now time.Time, late bool, sum uint64, claim bool, size int64) (c *call, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("answers: %w", punctual.ErrClosed)
	}
	s.forgetUntil(now)
	c = s.calls[key]
	switch {
	case c != nil && c.sum != sum:
		return nil, false, fmt.Errorf("the key of the request was used for another call: %w; take a new key for each call", punctual.ErrInvalid)
	case c != nil:
		if late && c.claim && c.inKept == nil {
			c.end() // its caller only asks what became of it
		}
		c.asking++
		return c, false, nil
	case late:
		return nil, false, errLate()
	}
	k := s.clientOf(ctx)
	if !s.makeRoom(k, size) {
		return nil, false, fmt.Errorf("answers: those of the last %v take the %d bytes that this client may have: %w; try again later", s.keep, k.bytes, punctual.ErrOverloaded)
	}
	c = &call{key: key, client: k, sum: sum, claim: claim, done: make(chan struct{}), asking: 1}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	s.calls[key], s.clients[k.name] = c, k
	k.calls++
	s.resize(c, size)
	s.running.Add(1) // under mu, so that whoever closes waits for it
	return c, true, nil
}

// carryOut makes the call of the store below and keeps its answer. It runs in a goroutine of its own, because every caller
// may leave while a copy of the call is still to be answered.
func carryOut[A any](s *Store, c *call, began time.Time, k kind[A]) {
	defer s.running.Done()
	defer c.end()
	answer, err := k.do(c.ctx)
	size := int64(0)
	if err == nil {
		size = k.size(answer)
	}
	now, clockErr := s.Now(context.WithoutCancel(c.ctx))
	if clockErr != nil {
		now = began // the store was closed or has failed meanwhile
	}
	if s.finish(c, answer, size, err, now) {
		return
	}
	if ds, ok := any(answer).([]punctual.Delivery); ok {
		_ = s.release(c.ctx, ds) // nobody is left to hear of an error: the leases run out
	}
}

// finish keeps the answer of a call and wakes the callers that wait for it. It returns false for a claim whose callers have
// all left, so that its leases have to be released.
func (s *Store) finish(c *call, answer any, size int64, err error, now time.Time) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	c.answer, c.err = answer, err
	if c.left {
		return err != nil
	}
	if err != nil && punctual.Definite(err) || c.claim && size == 0 {
		s.remove(c)
		return true
	}
	s.resize(c, size+callBytes)
	c.until = now.Add(s.keep)
	c.inKept = s.kept.PushBack(c)
	if c.claim {
		c.inClaim = c.client.claims.PushBack(c)
	}
	return true
}

// callBytes is roughly what a call takes beside its answer.
const callBytes = 400

// leave ends a caller's wait and returns the answer if the call has ended. first is true when no other caller got it before.
func (s *Store) leave(ctx context.Context, c *call) (answer any, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.asking--
	select {
	case <-c.done:
		if c.err == nil {
			first = !c.given
			c.given = true
			c.handed++
		}
		answer, err = c.answer, c.err
		if c.inClaim != nil && c.asking == 0 {
			s.makeRoom(c.client, 0) // for its own answer, whose size nobody knew before
		}
		return answer, first, err
	default:
	}
	if !c.claim {
		return nil, false, errors.Join(ctx.Err(), punctual.ErrIndeterminate)
	}
	if c.asking == 0 && !c.left {
		c.left = true
		s.remove(c)
		c.end()
	}
	return nil, false, ctx.Err()
}

// clientOf is the client that ctx names. Called with mu held.
func (s *Store) clientOf(ctx context.Context) *client {
	name, _ := ctx.Value(clientKey{}).(string)
	if k := s.clients[name]; k != nil {
		return k
	}
	return &client{name: name}
}

// hasRoom returns whether a call of this size fits. A client may have as much as is free afterwards, so that a client which
// takes all it can get leaves half of the room to the others. Called with mu held.
func (s *Store) hasRoom(k *client, size int64) bool {
	free := s.maxBytes - s.bytes - size
	return free >= 0 && (k.name == "" || k.bytes+size <= free)
}

// makeRoom drops the client's answers to claims, oldest first, until a call of this size fits, and returns whether it fits
// then. A caller that was given a dropped answer keeps its leases. Called with mu held.
func (s *Store) makeRoom(k *client, size int64) bool {
	for e := k.claims.Front(); e != nil && !s.hasRoom(k, size); {
		c := e.Value.(*call)
		e = e.Next()
		if c.asking > 0 {
			continue // a caller is about to read it
		}
		k.claims.Remove(c.inClaim)
		c.inClaim = nil
		c.answer, c.err = nil, fmt.Errorf("the answer of the claim is not kept any more: %w; its leases run out", punctual.ErrIndeterminate)
		s.resize(c, callBytes)
	}
	return s.hasRoom(k, size)
}

// resize sets what a call counts in the sums of its client and of all. Called with mu held.
func (s *Store) resize(c *call, size int64) {
	s.bytes += size - c.size
	c.client.bytes += size - c.size
	c.size = size
}

// remove forgets a call, and its client with the last one. Called with mu held.
func (s *Store) remove(c *call) {
	delete(s.calls, c.key)
	s.resize(c, 0)
	if c.client.calls--; c.client.calls == 0 {
		delete(s.clients, c.client.name)
	}
}

// forgetUntil forgets the answers that had to be kept until now or earlier. Called with mu held.
func (s *Store) forgetUntil(now time.Time) {
	for e := s.kept.Front(); e != nil && !e.Value.(*call).until.After(now); e = s.kept.Front() {
		s.forget(e.Value.(*call))
	}
}

// forget forgets a call that has an answer. Called with mu held.
func (s *Store) forget(c *call) {
	s.remove(c)
	s.kept.Remove(c.inKept)
	c.inKept = nil
	if c.inClaim != nil {
		c.client.claims.Remove(c.inClaim)
		c.inClaim = nil
	}
}
