package diskstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// A step of the store's clock back (P8) has three parts:
//
//  1. With the write lock, the lock of the claim log and that of memory held, the clock steps and
//     all leases move (memory.Index.Step). Whatever depends on the time is decided with one of
//     these locks held, by a time that was read with the lock held, or is decided anew
//     (memory.Index.Grant). So nothing that was decided by the time before comes after the step.
//  2. A transaction records the step. The claim log writes it before the first time after the step,
//     so that the two agree after a kill, also when it comes before the transaction.
//  3. What was set while the clock was ahead and is on disk moves in transactions of up to
//     carryBatch messages: some at once, and the rest by maintenance. After a restart the search
//     begins again, because the database knows that it has not ended.
//
// The clock takes no further step before part 3 has ended, so that no message is carried over the
// wrong step.

const (
	carryKeys  = 10_000 // about how many keys are read for one transaction
	carryBatch = 1000   // how many messages one transaction moves at most
	// carryAtOnce is how many transactions a step makes before calls go on. The rest is left to
	// maintenance.
	carryAtOnce = 4
)

// stepping is the step of the clock under way, and what is left of the last one.
type stepping struct {
	mu sync.Mutex // taken before forgetting and before the write lock
	// underWay tells that a step has begun and that what it moves at once has not been moved yet.
	// Calls that begin then wait for mu.
	underWay atomic.Bool
	last     atomic.Pointer[record.Step] // the last step; nil until the store is open
	carry    *database.Carry             // guarded by mu: the search for messages to move; nil once all have moved
	found    []database.Ahead            // guarded by mu: what the search has found and what has not moved yet
	read     bool                        // guarded by mu: the search has read everything
}

// Clock returns how the store's clock stands to the machine's; see storekit.ClockKeeper.
func (s *Store) Clock(ctx context.Context) (storekit.ClockState, error) {
	return s.withClock(ctx, "clock", func() error { return nil })
}

// StepClock steps the store's clock back at once if it is ahead; see storekit.ClockKeeper. Before
// that it moves all that is left of the last step.
func (s *Store) StepClock(ctx context.Context) (storekit.ClockState, error) {
	return s.withClock(ctx, "step the clock", func() error {
		s.stepping.mu.Lock()
		defer s.stepping.mu.Unlock()
		for s.stepping.carry != nil {
			if err := s.carrySome(ctx); err != nil {
				return err
			}
		}
		return s.step(ctx)
	})
}

func (s *Store) withClock(ctx context.Context, doing string, do func() error) (state storekit.ClockState, err error) {
	if err = s.admit(ctx, nil); err == nil {
		err = s.state.Enter()
	}
	if err != nil {
		return state, fmt.Errorf("%s: %w", doing, err)
	}
	defer s.state.Leave()
	if err = do(); err == nil {
		state = s.clockState()
		err = s.claims.KeepClock(storekit.Millis(state.Now))
	}
	if err != nil {
		return storekit.ClockState{}, fmt.Errorf("%s: %w", doing, err)
	}
	return state, nil
}

func (s *Store) clockState() storekit.ClockState {
	state := s.clock.State()
	state.Steps, state.Last = s.stepping.last.Load().Told()
	return state
}

// followClock steps the clock if that is due, and waits for a step under way. A call begins with
// it, so that the call finds the clock and the messages as they are after the step. Called outside
// of State.Enter and State.Leave, and without a lock.
func (s *Store) followClock(ctx context.Context) error {
	if !s.clock.StepDue() && !s.stepping.underWay.Load() {
		return nil
	}
	if err := s.state.Enter(); err != nil {
		return err
	}
	defer s.state.Leave()
	s.stepping.mu.Lock()
	defer s.stepping.mu.Unlock()
	if s.stepping.carry != nil || !s.clock.StepDue() {
		return nil
	}
	return s.step(ctx)
}

// step steps the clock if it is ahead, and moves some of what was set meanwhile. Called with
// stepping.mu held.
func (s *Store) step(ctx context.Context) error {
	p := &s.stepping
	p.underWay.Store(true)
	defer p.underWay.Store(false)
	var moved []record.Lease
	err := s.writer.StepClock(ctx, func(txn uint64) (step record.Step, stepped bool) {
		err := s.claims.StepClock(txn, func(count int64) (record.Step, bool) {
			moved = s.index.Step(func() (lifecycle.Step, bool) {
				var at storekit.ClockStep
				at, stepped = s.clock.Step()
				step = record.Step{Count: count, Step: lifecycle.Step{From: storekit.Millis(at.From), To: storekit.CeilMillis(at.To)}}
				return step.Step, stepped
			})
			return step, stepped
		})
		if err != nil { // the store has failed
			return record.Step{}, false
		}
		if stepped {
			p.last.Store(&step)
			p.carry, p.read = s.db.BeginCarry(step, step.To), false
		}
		return step, stepped
	})
	if err != nil || p.carry == nil {
		return err
	}
	last := p.last.Load()
	if s.reset == nil { // otherwise ResetClock has asked for the step
		s.log.Warn("the machine's clock was set back, and the store's clock has followed it", "dir", s.dir, "step", last.Count,
			"from", storekit.FromMillis(last.From), "to", storekit.FromMillis(last.To), "leases", len(moved))
	}
	for some := range slices.Chunk(moved, limits.MaxClaim) {
		if err := s.claims.AppendLeases(some); err != nil {
			s.log.Warn("the claim log does not take the leases that a step of the clock has moved; it is replaced", "dir", s.dir, "error", err)
			break
		}
	}
	s.waiters.wakeAll()
	for range carryAtOnce {
		if p.carry == nil {
			break
		}
		if err := s.carrySome(ctx); err != nil { // maintenance tries again
			s.log.Warn("messages that a step of the clock moves will be moved later", "dir", s.dir, "error", err)
			break
		}
	}
	return nil
}

// carryOn moves some more of what the last step of the clock moves, and tells whether there is
// more.
func (s *Store) carryOn(ctx context.Context) (more bool, err error) {
	s.stepping.mu.Lock()
	defer s.stepping.mu.Unlock()
	if s.stepping.carry == nil {
		return false, nil
	}
	err = s.carrySome(ctx)
	return s.stepping.carry != nil, err
}

// carrySome makes one transaction of what the last step of the clock moves. Called with stepping.mu
// held.
func (s *Store) carrySome(ctx context.Context) (err error) {
	p := &s.stepping
	if len(p.found) == 0 && !p.read {
		if p.found, p.read, err = p.carry.Read(carryKeys); err != nil {
			return err
		}
	}
	if len(p.found) > 0 {
		next, err := s.writer.Some(ctx, 0, min(len(p.found), carryBatch), func(tx *writer.Tx, i int) error {
			return tx.Carry(&p.found[i], p.carry.Step)
		})
		if p.found = p.found[next:]; err != nil {
			return err
		}
	}
	if len(p.found) > 0 || !p.read {
		return nil
	}
	// A message that was leased has stayed where it is. Its lease is to survive a power cut before
	// the search counts as done, because without the lease the message would have to move.
	if err := s.replaceFullSegment(ctx); err != nil {
		return err
	}
	if err := s.state.Do("sync the directory", func() error { return failstop.SyncDir(s.fs, s.dir) }); err != nil {
		return err
	}
	err = s.writer.Do(ctx, func(tx *writer.Tx) error {
		tx.Maintenance().SetStep(p.carry.Step, false)
		return nil
	})
	if err != nil {
		return err
	}
	return p.end()
}

// end ends the search.
func (p *stepping) end() error {
	if p.carry == nil {
		return nil
	}
	err := p.carry.Close()
	p.carry, p.found = nil, nil
	if err != nil {
		return fmt.Errorf("close a snapshot: %w", err)
	}
	return nil
}
