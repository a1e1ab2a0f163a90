package diskstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Claim leases due messages; see punctual.Store. Its leases wait for no fsync, because the claim
// log is written but not synced. A claim reads the disk where more messages are due than memory
// holds, and for the records that memory does not have, such as those of messages whose lease has
// run out. A claim by ID waits for the write lock. Messages that must not be delivered any more
// have to be ended first: for that, and for a load of further messages from disk, a claim waits for
// slowWait at most, and longer only if it has nothing to deliver.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := s.admit(ctx, storekit.CheckClaim(&c)); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	defer s.state.Leave()
	c.Max = cmp.Or(c.Max, len(c.IDs))
	w := s.waiters.add(c.Topics)
	defer s.waiters.remove(w)
	_, began := s.clock.Read()
	for {
		k := &attempt{s: s, c: &c, now: s.clock.ms(), stop: func() {}}
		ds, next, again, err := k.run(ctx)
		k.stop()
		switch {
		case err != nil:
			return nil, fmt.Errorf("claim: %w", err)
		case again:
			continue
		case len(ds) > 0:
			return ds, nil
		}
		_, source := s.clock.Read()
		left := c.Wait - max(0, source.Sub(began)) // by the machine's monotonic clock, because the store's clock may step back
		if left <= 0 {
			return []punctual.Delivery{}, nil
		}
		if err := w.sleep(ctx, s.state.Ended(), s.clock, next, left); err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
	}
}

const (
	// claimBytes is the most bytes that the records of one claim have in all, without the last of
	// them. Otherwise a claim of limits.MaxClaim messages of 1 MiB each would have 10 GiB.
	claimBytes = 64 << 20
	// slowWait is how long an attempt of a claim waits in all for steps that may be slow, while
	// there may be something else to deliver. It is in ms of the store's clock.
	slowWait = 100
)

// attempt is one attempt of a claim at its topics. It leases everything at once, in the end, so
// that the time which one topic needs does not use up the leases of another topic's messages. It
// judges what is due by one reading of the clock, because with a later time a slow attempt could
// encounter again the messages that it has handed over or put back.
type attempt struct {
	s    *Store
	c    *punctual.Claim
	now  int64
	got  []*memory.Reserved // ready to be leased
	size int64              // bytes of the records of got
	slow []*step            // loads for which the claim does not wait any more
	// ending has, for each queue of messages to be ended, a mark after those that the claim has
	// handed over. fullQueue is a mark in the queue of a topic from which the claim reserved
	// nothing more because too much waits there; zero if there is none.
	ending    []handed
	fullQueue handed
	// full says that a topic had as many leases as it may, so that what ends makes room.
	full bool
	// late fires when slowWait is over; nil until the first step that may be slow.
	late <-chan time.Time
	stop func() // ends the wait for late
	over bool   // late has fired
}

// run reserves the messages that are due in the topics, in turn, and leases them. next is the next
// due time if there is nothing to deliver. again asks for another attempt at once.
func (k *attempt) run(ctx context.Context) (ds []punctual.Delivery, next int64, again bool, err error) {
	if err := k.s.state.Check(ctx); err != nil {
		return nil, 0, false, err
	}
	next = never
	for _, name := range k.c.Topics {
		at, err := k.reserveFrom(ctx, name)
		if err != nil {
			k.s.index.PutBack(k.got)
			return nil, 0, false, err
		}
		if next = min(next, at); len(k.got) >= k.c.Max || k.size >= claimBytes {
			break
		}
	}
	ended, err := k.awaitEnded(ctx)
	switch {
	case err != nil && (len(k.got) == 0 || k.s.state.Check(ctx) != nil):
		k.s.index.PutBack(k.got)
		return nil, 0, false, err
	case len(k.got) > 0:
		granted, leases := k.s.index.Grant(k.got, k.c.Lease, k.s.clock.ms)
		if len(granted) == 0 { // transactions have detached the messages, or these have expired
			return nil, 0, true, nil
		}
		ds, err = k.s.deliver(granted, leases)
		return ds, k.now, false, err
	case k.full && len(k.ending) > 0 && ended:
		return nil, 0, true, nil
	case len(k.slow) > 0 || !ended || k.fullQueue.q != nil:
		return nil, 0, true, k.awaitSlow(ctx)
	}
	return nil, next, false, nil
}

// room returns how many more messages of a topic the claim may reserve.
func (k *attempt) room(topic string) int {
	if k.size >= claimBytes {
		return 0
	}
	n := k.c.Max - len(k.got)
	if k.c.PerTopic == 0 {
		return n
	}
	left := k.c.PerTopic
	for _, c := range k.got {
		if c.Topic.Name == topic {
			left--
		}
	}
	return min(n, left)
}

// reserveFrom reserves what is due in one topic, or returns the topic's next due time. If the topic
// cannot be read after other messages were reserved, these are delivered, and the failure is
// logged.
func (k *attempt) reserveFrom(ctx context.Context, name string) (next int64, err error) {
	if t := k.s.topics.Get(name); t != nil && len(k.c.IDs) > 0 {
		return never, k.reserveThese(ctx, t)
	}
	for n := k.room(name); n > 0; n = k.room(name) {
		if h, full := k.s.endings.full(name); full {
			k.fullQueue = h
			return k.now, nil
		}
		result := k.s.index.Reserve(name, k.now, n)
		k.full = k.full || result.Full
		switch {
		case result.TokensShort:
			k.s.kickMaintenance()
		case result.Load != nil:
			var done bool
			if result.Reserved, done, err = k.load(ctx, result.Load, n); err == nil && !done {
				return k.now, nil
			}
		}
		if err == nil && len(result.Reserved) > 0 {
			err = k.decide(result.Reserved)
		}
		switch {
		case err == nil && result.Load == nil && len(result.Reserved) == 0:
			return result.Next, nil
		case err != nil && len(k.got) > 0 && ctx.Err() == nil && k.s.state.Usable() == nil:
			k.s.state.LogSeldom(slog.LevelWarn, "a claim goes on without a topic that it could not read", "topic", name, "error", err)
			return k.now, nil
		case err != nil:
			return 0, err
		}
	}
	return k.now, nil
}

// reserveThese reserves those of the messages with the IDs of the claim that are ready. It takes
// the write lock, because a message that is on disk alone has to be found there and to get into
// memory in one step.
func (k *attempt) reserveThese(ctx context.Context, t *topics.Topic) error {
	s := k.s
	asks := make([]database.Ask, len(k.c.IDs))
	for i, id := range k.c.IDs {
		asks[i] = database.Ask{Topic: t.Disk, ID: id}
	}
	looks, err := s.lookUp(asks)
	if err != nil {
		return err
	}
	defer looks.Close()
	for i := 0; i < len(asks) && k.room(t.Name) > 0; {
		if h, full := s.endings.full(t.Name); full {
			k.fullQueue = h
			return nil
		}
		var reserved []*memory.Reserved
		err := s.writer.Locked(ctx, func(tx *writer.Tx) error {
			for n := k.room(t.Name); i < len(asks) && len(reserved) < n; i++ {
				p, err := tx.Place(t, asks[i].ID, looks.At(i))
				if err != nil {
					return err
				}
				if p.Order != database.Live {
					continue
				}
				result := t.Memory.ReserveAt(p.At, k.now)
				k.full = k.full || result.Full
				if result.TokensShort {
					s.kickMaintenance()
				}
				reserved = append(reserved, result.Reserved...)
			}
			return nil
		})
		if err != nil {
			k.got = append(k.got, reserved...) // to be put back with the rest
			return err
		}
		if err := k.decide(reserved); err != nil {
			return err
		}
	}
	return nil
}

// step is a part of a claim that may be slow, in a goroutine that Close waits for.
type step struct {
	done chan error

	mu   sync.Mutex // taken before the lock of the index
	left bool       // guarded by mu: the claim does not wait any more
	// reserved are the messages that the step has reserved. The field is guarded by mu until the
	// step is done. The step does not write it any more once left is set.
	reserved []*memory.Reserved
}

// load loads the next batch of a topic and reserves up to n messages of it in one step, so that the
// window cannot be cut in between. done is false when the claim does not wait for the load any
// more.
func (k *attempt) load(ctx context.Context, t *memory.Topic, n int) (reserved []*memory.Reserved, done bool, err error) {
	if k.over {
		return nil, false, nil
	}
	s, now, st := k.s, k.now, &step{}
	done, err = k.aside(ctx, st, func(ctx context.Context) error {
		return s.load(ctx, t, func(l memory.Load, read []record.Stored, next record.Position) {
			st.mu.Lock()
			defer st.mu.Unlock()
			if st.left {
				s.index.Merge(l, read, next, 0, now)
			} else {
				st.reserved = s.index.Merge(l, read, next, n, now)
			}
		})
	})
	return st.reserved, done, err
}

// startLate starts the timer of slowWait, unless it runs.
func (k *attempt) startLate() {
	if k.late == nil {
		k.late, k.stop = k.s.clock.after(k.s.clock.ms()+slowWait, never)
	}
}

// aside runs a step in a goroutine of its own, and waits for it until it is done, the attempt's
// slowWait is over, or the context or the store has ended. done is false if the step goes on by
// itself and has reserved nothing for the claim.
func (k *attempt) aside(ctx context.Context, st *step, run func(context.Context) error) (done bool, err error) {
	s := k.s
	k.startLate()
	st.done = make(chan error, 1)
	s.state.Go(func() { st.done <- run(context.WithoutCancel(ctx)) })
	if !k.over {
		select {
		case err = <-st.done:
			return true, err
		case <-k.late:
			k.over = true
		case <-ctx.Done():
			err = errkind.Ended(ctx)
		case <-s.state.Ended():
			err = s.state.Usable()
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.left = true
	if err != nil {
		k.got, st.reserved = append(k.got, st.reserved...), nil // to be put back with the rest
		return false, err
	}
	if len(st.reserved) > 0 {
		return true, nil
	}
	k.slow = append(k.slow, st)
	return false, nil
}

// awaitEnded waits until the messages that the claim has handed over are ended, but not beyond the
// attempt's slowWait. ended tells whether all of them are.
func (k *attempt) awaitEnded(ctx context.Context) (ended bool, err error) {
	for _, h := range k.ending {
		if k.over {
			_, ended, err = k.s.endings.progress(h)
		} else {
			k.startLate()
			ended, err = k.await(ctx, h, k.late)
			k.over = !ended
		}
		if !ended || err != nil {
			return false, err
		}
	}
	return true, nil
}

// await waits until a mark in a queue of messages to be ended is reached, or late fires; then
// reached is false.
func (k *attempt) await(ctx context.Context, h handed, late <-chan time.Time) (reached bool, err error) {
	for {
		changed, reached, err := k.s.endings.progress(h)
		if reached || err != nil {
			return reached, err
		}
		select {
		case <-changed:
		case <-late:
			return false, nil
		case <-ctx.Done():
			return false, errkind.Ended(ctx)
		case <-k.s.state.Ended():
			return false, k.s.state.Usable()
		}
	}
}

// awaitSlow waits for a slow step, because the claim has nothing to deliver: for a load if there is
// one, else for room in the full queue of messages to be ended, else for the end of the messages
// that the claim has handed over.
func (k *attempt) awaitSlow(ctx context.Context) error {
	if len(k.slow) > 0 {
		select {
		case err := <-k.slow[0].done:
			return err
		case <-ctx.Done():
			return errkind.Ended(ctx)
		case <-k.s.state.Ended():
		}
		return k.s.state.Usable()
	}
	waitFor := k.ending
	if k.fullQueue.q != nil {
		waitFor = []handed{k.fullQueue}
	}
	for _, h := range waitFor {
		if _, err := k.await(ctx, h, nil); err != nil {
			return err
		}
	}
	return nil
}

// decide reads the messages that the claim has reserved, and hands over those that must not be
// delivered any more. It puts back the rest when the claim is large enough, when the queue of
// messages to be ended has no more room, or when one cannot be read.
func (k *attempt) decide(reserved []*memory.Reserved) error {
	s := k.s
	for i, c := range reserved {
		if k.size >= claimBytes {
			s.index.PutBack(reserved[i:])
			break
		}
		ok, err := s.countAttempt(c)
		switch {
		case err != nil:
			s.index.PutBack(reserved[i:])
			return err
		case ok:
			k.got = append(k.got, c)
			k.size += int64(len(c.Record))
		case c.Message != nil:
			h := s.endings.add(c)
			if n := len(k.ending); n > 0 && k.ending[n-1].q == h.q {
				k.ending[n-1] = h
			} else {
				k.ending = append(k.ending, h)
			}
			if _, full := s.endings.full(c.Topic.Name); full {
				s.index.PutBack(reserved[i+1:])
				return nil
			}
		}
	}
	return nil
}

// countAttempt reads a reserved message into c.Message, decides whether it may be delivered, and
// counts the attempt if so. A message that must end stays as it was when its last lease ran out,
// because lifecycle.Meet reads its Token to see whether there was a lease; the token to come goes
// into Newest alone. c.Message stays nil if the message is not on disk any more, because a
// transaction has detached it.
func (s *Store) countAttempt(c *memory.Reserved) (ok bool, err error) {
	if c.Record == nil {
		if c.Record, err = s.db.Live(c.Topic.Num, c.Last.At); err != nil {
			return false, err
		}
		if c.Record == nil && s.index.Has(c) {
			err := errkind.Corruptf("message %v of topic %s is not on disk any more", c.Last.At, c.Topic.Name)
			s.state.Fail(err)
			return false, err
		}
		if c.Record == nil {
			return false, nil
		}
	}
	r, err := record.Decode(c.Record)
	if err != nil {
		return false, s.state.ReadError("topic "+c.Topic.Name, err)
	}
	c.Message = r
	c.Last.AddTo(r)
	r.CancelRequested = r.CancelRequested || c.Cancelled
	r.Newest = c.Token
	if lifecycle.MustEnd(&r.Message, c.Settings, c.Now) {
		return false, nil // lifecycle.Meet adds the failure of the last lease when it ends the message
	}
	to := lifecycle.Lease(&r.Message, c.Token, 0, c.Settings, c.Now) // Grant decides when the lease ends
	c.Expired = c.Last.Expired
	if to.Failed {
		c.Expired, r.Failures = storekit.AddFailure(c.Expired, to.Failure), storekit.AddFailure(r.Failures, to.Failure)
	}
	return true, nil
}

// deliver writes leases that were granted to the claim log, and then makes them. A message whose
// lease has run out meanwhile, or that a transaction has detached, is not delivered (P3, P5), and
// its attempt does not count. If the process is killed after the write and before the attempt is
// taken back, the attempt counts.
func (s *Store) deliver(granted []*memory.Reserved, leases []record.Lease) ([]punctual.Delivery, error) {
	if err := s.claims.AppendLeases(leases); err != nil {
		s.index.PutBack(granted)
		return nil, err
	}
	made, ended := s.index.Confirm(granted, s.clock.ms)
	if len(ended) > 0 {
		s.logNotMade(ended)
	}
	ds := make([]punctual.Delivery, len(made))
	for i, c := range made {
		ds[i] = punctual.Delivery{
			Message: c.Message.Public(c.Topic.Name), Token: c.Token, Failures: c.Message.Failures,
			Delivered: storekit.FromMillis(c.Began), LeaseUntil: storekit.FromMillis(c.Lease.Until),
		}
	}
	return ds, nil
}

// logNotMade takes leases back in the claim log that were granted but not made: it writes the lease
// before, or that there is none. Otherwise a kill would leave attempts that no caller has seen, and
// the messages would wait for the end of those leases.
func (s *Store) logNotMade(ended []record.Lease) {
	var again, over []record.Lease
	for _, l := range ended {
		if l.Attempt > 0 {
			again = append(again, l)
		} else {
			over = append(over, l)
		}
	}
	var err error
	if len(again) > 0 {
		err = s.claims.AppendLeases(again)
	}
	if len(over) > 0 && err == nil {
		err = s.claims.AppendEnded(over)
	}
	if err != nil {
		s.log.Warn("the claim log does not take what was not claimed; it is replaced", "error", err)
	}
}
