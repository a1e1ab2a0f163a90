package memstore

import (
	"context"

	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Clock implements storekit.ClockKeeper.
func (s *Store) Clock(ctx context.Context) (storekit.ClockState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.enter(ctx)
	return s.clock.State(), err
}

// StepClock implements storekit.ClockKeeper.
func (s *Store) StepClock(ctx context.Context) (storekit.ClockState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.enter(ctx)
	if err == nil {
		s.step()
	}
	return s.clock.State(), err
}

// step steps the clock back to its source if it is ahead, and carries everything over the step. It
// is called with mu held, by which every method holds the time that it has read, so nothing that
// was decided by the time before comes after the step.
func (s *Store) step() {
	at, stepped := s.clock.Step()
	if !stepped {
		return
	}
	now := instant{fine: at.To, ms: storekit.Millis(at.To)}
	step := lifecycle.Step{From: storekit.Millis(at.From), To: storekit.Millis(at.To)}
	for _, t := range s.topics {
		for _, m := range t.messages {
			step.Carry(&m.Message)
			m.delivered, _ = step.CarryEnd(m.delivered, 0)
		}
		t.rearrange(now)
		byTime.Sort(t.dead)
		t.remembered.step(step)
		t.records.step(step)
	}
	s.wakeClaims()
}
