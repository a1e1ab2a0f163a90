package memory

import (
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Step has step set the store's clock back and moves the leases along, in one step of memory. step
// returns false if it has not set the clock. moved are the leases that have changed, for the claim
// log. What a claim has reserved before goes back at Grant, because the claim has judged it by the
// time before. A lease that a claim is writing to the claim log moves, too, and Confirm makes it as
// it is then. Messages that wait for their due time stay where they are; see Topic.DetachWaiting.
// Called with the write lock held, so that no transaction is decided by the time before and applied
// after the step.
func (x *Index) Step(step func() (lifecycle.Step, bool)) (moved []record.Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, stepped := step()
	if !stepped {
		return nil
	}
	x.steps++
	for _, t := range x.inHand.topics {
		for _, m := range t.leases {
			if m.carryLease(s) {
				moved = append(moved, m.lease)
			}
		}
		byTime.Sort(t.leases)
		for _, m := range t.reserved {
			if m.lease.Token != 0 && m.carryLease(s) {
				moved = append(moved, m.lease)
			}
			if m.granted == nil {
				continue
			}
			if granted := *m.granted; granted.Carry(s) { // a copy, because the claim is reading the other one
				m.granted = &granted
				moved = append(moved, granted)
			}
		}
	}
	return moved
}

func (m *message) carryLease(s lifecycle.Step) (changed bool) {
	if changed = m.lease.Carry(s); changed {
		m.next = m.lease.Until
		m.began, _ = s.CarryEnd(m.began, 0)
	}
	return changed
}

// DetachWaiting removes from memory a message that waits for its due time, so that the caller can
// move it. ok is false if the message is acked or was leased since its record was written; then the
// lease counts, which has moved already. Called with the write lock held.
func (t *Topic) DetachWaiting(p record.Position) (d Detached, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if m := t.messages[p.Seq]; m != nil && (m.state == stateAcked || m.lease.Token != 0 || m.granted != nil) {
		return Detached{}, false
	}
	return t.detach(p), true
}
