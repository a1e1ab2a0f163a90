package memory

import (
	"fmt"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// View has the leases and acks of one topic that memory knows and the records on disk do not have.
type View struct {
	Leases map[uint64]Held            // by number: leased messages, also those whose lease has run out, reserved or not
	Acked  map[uint64]record.Position // by number: where acked messages are that are still on disk
}

// View copies what memory knows of a topic. A caller that combines it with a snapshot of the disk
// holds the write lock for both.
func (t *Topic) View() View {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.view()
}

// view is View, called with mu held.
func (t *Topic) view() View {
	v := View{Leases: make(map[uint64]Held, len(t.reserved)+len(t.leases)), Acked: make(map[uint64]record.Position, len(t.acked))}
	for _, list := range [][]*message{t.reserved, t.leases, t.acked} {
		for _, m := range list {
			v.add(m)
		}
	}
	return v
}

// ViewOf is View of one message.
func (t *Topic) ViewOf(p record.Position) View {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	v := View{Leases: make(map[uint64]Held), Acked: make(map[uint64]record.Position)}
	if m := t.messages[p.Seq]; m != nil {
		v.add(m)
	}
	return v
}

func (v *View) add(m *message) {
	switch {
	case m.state == stateAcked:
		v.Acked[m.lease.At.Seq] = m.lease.At
	case m.lease.Token != 0:
		v.Leases[m.lease.At.Seq] = m.asHeld()
	}
}

// ViewAll returns the views of all topics with reserved, leased or acked messages, by the topic's
// number.
func (x *Index) ViewAll() map[uint32]View {
	x.mu.Lock()
	defer x.mu.Unlock()
	vs := make(map[uint32]View, len(x.inHand.topics))
	for _, t := range x.inHand.topics {
		if len(t.reserved)+len(t.leases)+len(t.acked) > 0 {
			vs[t.Num] = t.view()
		}
	}
	return vs
}

// Stats counts the messages in memory.
type Stats struct {
	Window, Pending, Held, Acked         int   // messages
	WindowBytes, PendingBytes, HeldBytes int64 // what they cost
	Bytes, Bound                         int64 // what messages in the window, pending messages and loads cost, and may cost
	ToLoad                               int   // topics that are to be loaded ahead
	NextToken, TokenLimit                int64 // lease tokens that may be given out: [NextToken, TokenLimit)
}

// Stats counts what is in memory.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := &x.account
	s := Stats{WindowBytes: a.window, PendingBytes: a.pending, HeldBytes: a.leased, Bytes: a.used(), Bound: a.bound(), ToLoad: len(x.toLoad), NextToken: x.tokens.next, TokenLimit: x.tokens.limit}
	for _, t := range x.inWindow.topics {
		s.Window += len(t.window)
	}
	for _, t := range x.inHand.topics {
		s.Pending, s.Held, s.Acked = s.Pending+len(t.pending), s.Held+len(t.reserved)+len(t.leases), s.Acked+len(t.acked)
	}
	return s
}

// TopicStats counts the messages of a topic in memory.
type TopicStats struct {
	Window, Pending, Held, Acked int
	Loaded, DiskNext             record.Position // see Topic
	Evicted                      int64           // how often its window was cut
}

// Stats counts what is in memory of a topic.
func (t *Topic) Stats() TopicStats {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return TopicStats{len(t.window), len(t.pending), len(t.reserved) + len(t.leases), len(t.acked), t.loaded, t.diskNext, t.evicted}
}

// Verify compares the account, the lists and heaps of each topic, the table of leases, the counts
// of the index and the numbers of topics in the lists of topics with the messages, and checks the
// order of the topics to load. Of account.reading it knows only that it is not negative, because
// the loads under way are their callers'. It is meant for tests.
func (x *Index) Verify() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var sum account
	leased, remembering, acked, inHand, inWindow, toLoad := 0, 0, 0, 0, 0, 0
	for _, t := range x.topics {
		if err := t.verify(&sum); err != nil {
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
		for _, m := range t.messages {
			if m.state == stateLeased {
				if leased++; x.leased[m.lease.Token] != m {
					return fmt.Errorf("topic %s: the token of message %v is that of another", t.Name, m.lease.At)
				}
				if m.remembers {
					remembering++
				}
			}
		}
		acked += len(t.acked)
		if len(t.messages) > len(t.window) {
			inHand++
		}
		if len(t.window) > 0 {
			inWindow++
		}
		if t.toLoadAt >= 0 {
			if toLoad++; x.toLoad[t.toLoadAt] != t {
				return fmt.Errorf("topic %s is not where it is in the heap of the loader", t.Name)
			}
			if above := x.toLoad[max(0, t.toLoadAt-1)/2]; byDiskNext.Before(t, above) {
				return fmt.Errorf("topic %s, whose next message on disk is %v, is to be loaded after topic %s, whose next is %v", t.Name, t.diskNext, above.Name, above.diskNext)
			}
		}
	}
	if a := &x.account; a.reading < 0 {
		return fmt.Errorf("%d bytes are kept free for loads", a.reading)
	} else if sum.window != a.window || sum.leased != a.leased || sum.pending != a.pending {
		return fmt.Errorf("there are %d in the window, %d leased, %d not durable; the account says %d, %d, %d", sum.window, sum.leased, sum.pending, a.window, a.leased, a.pending)
	}
	if leased != len(x.leased) || inHand != len(x.inHand.topics) || inWindow != len(x.inWindow.topics) || toLoad != len(x.toLoad) {
		return fmt.Errorf("%d leases, %d topics in hand, %d in the window, %d to load; the index has %d, %d, %d, %d",
			leased, inHand, inWindow, toLoad, len(x.leased), len(x.inHand.topics), len(x.inWindow.topics), len(x.toLoad))
	}
	if acked != x.acked || remembering != x.remembering {
		return fmt.Errorf("%d messages are acked, and %d leased ones are to be remembered; the index counts %d and %d", acked, remembering, x.acked, x.remembering)
	}
	return nil
}

// verify is Verify for one topic, and adds the topic's costs to sum. Called with mu held.
func (t *Topic) verify(sum *account) error {
	var count [stateAcked + 1]int
	var windowBytes int64
	for seq, m := range t.messages {
		if seq != m.lease.At.Seq || m.topic != t || m.state == stateDetached {
			return fmt.Errorf("message %v in state %d is kept as %d", m.lease.At, m.state, seq)
		}
		want := m.cost()
		if m.state == stateAcked {
			want = 0
		}
		if m.charged != want {
			return fmt.Errorf("message %v costs %d and is charged %d", m.lease.At, want, m.charged)
		}
		count[m.state]++
		switch m.state {
		case statePending:
			sum.pending += want
		case stateWindow:
			sum.window, windowBytes = sum.window+want, windowBytes+want
		default:
			sum.leased += want
		}
	}
	if count[stateWindow] != len(t.window) || windowBytes != t.windowBytes || count[statePending] != len(t.pending) ||
		count[stateReserved] != len(t.reserved) || count[stateLeased] != len(t.leases) || count[stateAcked] != len(t.acked) {
		return fmt.Errorf("messages by state are %v, and %d bytes in the window; the topic says %d of %d bytes, %d pending, %d reserved, %d leased, %d acked",
			count, windowBytes, len(t.window), t.windowBytes, len(t.pending), len(t.reserved), len(t.leases), len(t.acked))
	}
	for _, list := range [][]*message{t.pending, t.window, t.reserved, t.leases, t.acked} {
		for i, m := range list {
			if m.place != i {
				return fmt.Errorf("message %v in state %d has place %d instead of %d", m.lease.At, m.state, m.place, i)
			}
		}
	}
	for _, q := range [][]*message{t.window, t.leases} {
		for i, m := range q {
			if byTime.Before(m, q[max(0, i-1)/2]) {
				return fmt.Errorf("message %v stands behind a later one", m.lease.At)
			}
		}
	}
	return nil
}
