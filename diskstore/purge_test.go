package diskstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// mixed is a store with a topic o that has messages in every state.
type mixed struct {
	*Store
	clock *storekit.ManualClock
	live  int64 // how many are scheduled, ready or leased
	dead  []string
	held  punctual.Delivery // the leased one
	// before is called before a purge clears a topic, and before each of its passes.
	before func(punctual.State)
}

// newMixed opens a store and pushes as many messages as messages says. Three of them die, one of
// which asks for its ID to be remembered. One is acked and still on disk, and one is leased. About
// half of the rest is scheduled, the others are ready. Beside them a finished ID is remembered.
func newMixed(t *testing.T, messages int) *mixed {
	t.Helper()
	m := &mixed{clock: storekit.NewManualClock(testStart), live: int64(messages) - 4}
	m.Store = openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: m.clock, Logger: quiet, byHand: true, purging: func(state punctual.State) {
		if m.before != nil {
			m.before(state)
		}
	}})
	m.settleNext(t, punctual.NewMessage{Topic: "o", ID: "finished", Remember: time.Hour}, punctual.SettleAck)
	for i, remember := range []time.Duration{0, time.Hour, 0} {
		d := m.settleNext(t, punctual.NewMessage{Topic: "o", ID: fmt.Sprint("dead", i), Remember: remember}, punctual.SettleDiscard)
		m.dead = append(m.dead, d.ID)
	}
	m.settleNext(t, punctual.NewMessage{Topic: "o", ID: "acked"}, punctual.SettleAck)
	push(t, m, punctual.NewMessage{Topic: "o", ID: "held"})
	m.held = m.next(t)
	rest := make([]punctual.NewMessage, messages-5)
	for i := range rest {
		rest[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Delay: time.Duration(i%2) * time.Hour}
	}
	push(t, m, rest...)
	return m
}

func (m *mixed) next(t *testing.T) punctual.Delivery {
	t.Helper()
	ds := claim(t, m, "o", 1)
	if len(ds) != 1 {
		t.Fatal("nothing was claimed")
	}
	return ds[0]
}

// settleNext pushes a message, claims it and settles it.
func (m *mixed) settleNext(t *testing.T, msg punctual.NewMessage, verb punctual.Verb) punctual.Delivery {
	t.Helper()
	push(t, m, msg)
	d := m.next(t)
	if err := settle(t, m, d, verb); err != nil || d.ID != msg.ID {
		t.Fatalf("%v of %s, which was to be %s: %v", verb, d.ID, msg.ID, err)
	}
	return d
}

// die has n messages expire and become dead.
func (m *mixed) die(t *testing.T, n int) {
	t.Helper()
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint("old", i), ExpireAfter: time.Millisecond}
	}
	push(t, m, ms...)
	m.clock.Advance(time.Second)
	for dead := 0; dead < len(m.dead)+n; { // until claims have ended them all
		for _, d := range claim(t, m, "o", purgeStep) {
			if err := settle(t, m, d, punctual.SettleRelease); err != nil {
				t.Fatal(err)
			}
		}
		st, err := m.Stats(t.Context(), "o")
		if err != nil {
			t.Fatal(err)
		}
		dead = int(st.Dead)
	}
}

// purge purges topic o and returns how many transactions that took.
func (m *mixed) purge(t *testing.T, state punctual.State, want int64) (transactions uint64) {
	t.Helper()
	before := m.db.LastTxn()
	n, err := m.Purge(t.Context(), punctual.PurgeQuery{Topic: "o", State: state})
	if err != nil || n != want {
		t.Errorf("a purge of %d messages removed %d, %v", want, n, err)
	}
	return m.db.LastTxn() - before
}

// wantLeft checks how many messages are left, also after the store was closed and opened again, and
// that the store is sound.
func (m *mixed) wantLeft(t *testing.T, live, dead int64) {
	t.Helper()
	for range 2 {
		st, err := m.Stats(t.Context(), "o")
		if err != nil || st.Live() != live || st.Dead != dead {
			t.Errorf("%d live messages and %d dead ones are left, %v; want %d and %d", st.Live(), st.Dead, err, live, dead)
		}
		mustBeSound(t, m.Store)
		closeStore(t, m.Store)
		m.Store = openAt(t, m.dir, &m.opt)
	}
}

// TestPurgeOfAllIsOneTransaction: a purge of all live messages of a topic takes one transaction
// when they are purgeStep or more, however many, and the dead messages that stay keep their IDs.
func TestPurgeOfAllIsOneTransaction(t *testing.T) {
	for _, n := range []int{2 * purgeStep, 4 * purgeStep} {
		m := newMixed(t, n)
		if got := m.purge(t, punctual.StateNone, m.live); got != 1 {
			t.Errorf("the purge of %d live messages made %d transactions; want 1", m.live, got)
		}
		if err := settle(t, m, m.held, punctual.SettleAck); !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("P4: ack of a message that was purged: %v", err)
		}
		m.wantLeft(t, 0, int64(len(m.dead)))
		rs := push(t, m, punctual.NewMessage{Topic: "o", ID: "finished"}, punctual.NewMessage{Topic: "o", ID: "0"}, punctual.NewMessage{Topic: "o", ID: "held"})
		if rs[0].Status != punctual.PushDuplicate || rs[1].Status != punctual.PushStored || rs[2].Status != punctual.PushStored {
			t.Errorf("P7: pushes of a remembered ID and of two that were purged were answered %v, %v and %v", rs[0].Status, rs[1].Status, rs[2].Status)
		}
		if ds := claim(t, m, "o", 10); len(ds) != 2 {
			t.Errorf("P1: %d of 2 messages that were pushed after the purge were delivered", len(ds))
		}
		m.clock.Advance(2 * time.Hour)
		if ds := claim(t, m, "o", 10); len(ds) != 2 {
			t.Errorf("%d messages were delivered later, when what was purged would have been due; want the 2 whose leases ran out", len(ds))
		}
	}
}

// TestPurgeOfAllDeadIsOneTransaction does the same for the dead messages.
func TestPurgeOfAllDeadIsOneTransaction(t *testing.T) {
	const n = 2 * purgeStep
	m := newMixed(t, 10)
	m.die(t, n)
	if st, err := m.Stats(t.Context(), "o"); err != nil || st.Dead != n+int64(len(m.dead)) || st.Live() != m.live {
		t.Fatalf("there are %d dead messages and %d live ones, %v; want %d and %d", st.Dead, st.Live(), err, n+len(m.dead), m.live)
	}
	if got := m.purge(t, punctual.StateDead, n+int64(len(m.dead))); got != 1 {
		t.Errorf("the purge of %d dead messages made %d transactions; want 1", n, got)
	}
	m.wantLeft(t, m.live, 0)
	if err := settle(t, m, m.held, punctual.SettleAck); err != nil {
		t.Errorf("P3: ack of a leased message, when the dead ones were purged: %v", err)
	}
	if rs := push(t, m, punctual.NewMessage{Topic: "o", ID: "0"}); rs[0].Status != punctual.PushDuplicate {
		t.Errorf("P7: a push of an ID that is live was answered %v", rs[0].Status)
	}
}

// TestPurgeOfAllMeetsOthers has messages change between the moment at which a purge reads what
// stays and the one at which it removes the rest, and in the last case before the purge is durable.
func TestPurgeOfAllMeetsOthers(t *testing.T) {
	const n = 2 * purgeStep
	t.Run("another one dies", func(t *testing.T) {
		m, calls := newMixed(t, n), 0
		m.before = func(punctual.State) {
			if calls++; calls == 1 {
				if err := settle(t, m, m.held, punctual.SettleDiscard); err != nil {
					t.Error(err)
				}
			}
		}
		m.purge(t, punctual.StateNone, m.live-1)
		if calls != 2 {
			t.Errorf("the purge began %d times; want 2", calls)
		}
		m.wantLeft(t, 0, int64(len(m.dead))+1)
	})
	t.Run("one dies whenever it begins", func(t *testing.T) {
		m, died := newMixed(t, n), int64(0)
		m.before = func(punctual.State) {
			if died < clearTries {
				d := m.next(t)
				if err := settle(t, m, d, punctual.SettleDiscard); err != nil {
					t.Error(err)
				}
				died++
			}
		}
		if made := m.purge(t, punctual.StateNone, m.live-clearTries); made < n/purgeStep {
			t.Errorf("the purge made %d transactions; want one for each %d messages, because what stays changed each time", made, purgeStep)
		}
		if died != clearTries {
			t.Fatalf("%d messages died meanwhile; want %d", died, clearTries)
		}
		m.wantLeft(t, 0, int64(len(m.dead))+died)
	})
	t.Run("a dead one is requeued", func(t *testing.T) {
		m, calls := newMixed(t, n), 0
		m.before = func(punctual.State) {
			if calls++; calls == 1 {
				if _, err := m.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeRequeue, Topic: "o", ID: m.dead[0]}}); err != nil {
					t.Error(err)
				}
			}
		}
		m.purge(t, punctual.StateNone, m.live+1)
		m.wantLeft(t, 0, int64(len(m.dead))-1)
	})
	t.Run("the topic is deleted and made anew", func(t *testing.T) {
		m, calls := newMixed(t, n), 0
		m.before = func(punctual.State) {
			if calls++; calls == 1 {
				if _, err := m.DeleteTopic(t.Context(), "o"); err != nil {
					t.Error(err)
				}
				push(t, m, punctual.NewMessage{Topic: "o", ID: "new"})
			}
		}
		n, err := m.Purge(t.Context(), punctual.PurgeQuery{Topic: "o"})
		if err != nil || n > 1 {
			t.Errorf("a purge during which the topic was deleted removed %d, %v", n, err)
		}
		m.wantLeft(t, 1-n, 0)
	})
	t.Run("a live one goes while the dead are purged", func(t *testing.T) {
		m, calls := newMixed(t, 10), 0
		m.before = func(punctual.State) {
			if calls++; calls == 1 {
				if _, err := m.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "0"}}); err != nil {
					t.Error(err)
				}
			}
		}
		m.opt.clearFrom = 1
		m.purge(t, punctual.StateDead, int64(len(m.dead)))
		if calls != 2 {
			t.Errorf("the purge began %d times; want 2", calls)
		}
		m.wantLeft(t, m.live-1, 0)
	})
	t.Run("messages are pushed before the disk has it", func(t *testing.T) {
		f := &faults{}
		s := openAt(t, "store", &Options{fs: hookFS{vfs.NewMem(), f.hook}, Clock: storekit.NewManualClock(testStart), Logger: quiet, clearFrom: 1})
		push(t, s, punctual.NewMessage{Topic: "o", ID: "old"})
		met, pushed := make(chan struct{}), make(chan struct{})
		f.hang(func(op fsOp) chan struct{} {
			if op.kind != "sync" || !isLog(op) {
				return nil
			}
			select {
			case <-met:
				return nil
			default:
			}
			close(met)
			return pushed
		})
		purged := make(chan error)
		go func() {
			_, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "o"})
			purged <- err
		}()
		<-met
		applied := lastTxn(t, s)
		done := make(chan error)
		go func() {
			_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "new"}, {Topic: "o", ID: "old"}})
			done <- err
		}()
		for lastTxn(t, s) == applied {
			time.Sleep(time.Millisecond)
		}
		close(pushed)
		if err := errors.Join(<-purged, <-done); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range claim(t, s, "o", 10) {
			got = append(got, d.ID)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"new", "old"}) {
			t.Errorf("P1: after a purge, during which new and old were pushed, %q were delivered", got)
		}
		mustBeSound(t, s)
	})
}

// TestPurgeOfAllIsBounded: a purge removes message by message when so many others stay that their
// IDs would be too much for one transaction, and when those to remove are few, because deleted
// ranges of keys cost every reader.
func TestPurgeOfAllIsBounded(t *testing.T) {
	t.Run("few go", func(t *testing.T) {
		m := newMixed(t, 10)
		m.purge(t, punctual.StateNone, m.live)
		if n := m.db.DeletedRanges(); n != 0 {
			t.Errorf("a purge of %d messages deleted %d ranges of keys; want none", m.live, n)
		}
	})
	t.Run("many stay", func(t *testing.T) {
		const stay = 10_001
		m := newMixed(t, 2*purgeStep)
		m.die(t, stay-len(m.dead))
		m.purge(t, punctual.StateNone, m.live)
		if n := m.db.DeletedRanges(); n != 0 {
			t.Errorf("a purge beside %d dead messages deleted %d ranges of keys; want none", stay, n)
		}
		m.wantLeft(t, 0, stay)
	})
}
