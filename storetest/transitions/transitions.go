// Package transitions compares two stores in every transition of a message's life.
//
// A transition is a situation of a message (scheduled, leased for the last time, acked long ago),
// an operation on it (a push with its ID, a settlement with the current or a stale token, an
// amendment, a claim) and the retentions of its topic. Run brings a message into each situation
// through the public contract, on the store and on package memstore, carries out the operation, and
// compares the answer and what the store shows of the message afterwards.
//
// The cases of package storetest say what is right. The table of transitions says that a store
// which repeats the rules in another language, in Lua or SQL for instance, decides each combination
// as package memstore does, also the combinations that nobody thought of. What only the medium has,
// such as a stale entry of an index, is for the store's Checker to find.
//
// A store's test is one line:
//
//	func TestSlowTransitions(t *testing.T) { transitions.Run(t, open) }
package transitions

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// Run compares the store with package memstore in every transition. Open opens an empty store that
// reads its time from the clock, and has it closed by t.Cleanup. The store needs an Inspector. Run
// opens one store for each kind of topic (see settings), because most stores open slower than they
// answer. The situations take turns on it, each in a topic that is deleted afterwards, and the
// messages of one situation share the calls that bring them there.
//
// The environment variable PUNCTUAL_TRANSITIONS bounds the time: with 2, every second situation is
// tried in each kind of topic, and in the next kind the other ones; with 3, every third. By default
// all are tried.
func Run(t *testing.T, open func(*testing.T, storekit.Clock) punctual.Store) {
	every, err := strconv.Atoi(cmp.Or(os.Getenv("PUNCTUAL_TRANSITIONS"), "1"))
	if err != nil || every < 1 {
		t.Fatalf("PUNCTUAL_TRANSITIONS=%q: use a positive number", os.Getenv("PUNCTUAL_TRANSITIONS"))
	}
	for kind, set := range settings() {
		t.Run(set.name, func(t *testing.T) {
			pair := newPair(func(clock storekit.Clock) punctual.Store { return open(t, clock) })
			defer pair.model.Close() // it has nothing to close that could fail
			if set.patch.Emit != nil && !pair.can.Emit {
				t.Skip("the store tells of no events")
			}
			if set.patch.Keyed != nil && !pair.can.Keys {
				t.Skip("the store has no messages with keys")
			}
			for i, at := range situations() {
				if (i+kind)%every != 0 || at.keyed && set.patch.Keyed == nil {
					continue
				}
				t.Run(at.name, func(t *testing.T) {
					different, err := pair.differences(set, at)
					if err != nil {
						t.Fatal(err)
					}
					for _, text := range different[:min(len(different), maxPrinted)] {
						t.Error(text)
					}
					if len(different) > maxPrinted {
						t.Errorf("%d of %d operations differ", len(different), len(operations(pair.can.Follow)))
					}
				})
			}
			if c, err := punctual.As[storekit.Checker](pair.store); err == nil {
				if r, err := c.Check(context.Background(), nil); err != nil || len(r.Problems) > 0 {
					t.Errorf("the store's own scan after all transitions: %q, %v", r.Problems, err)
				}
			}
		})
	}
}

// maxPrinted bounds how many transitions of a situation are printed when a store differs in many.
const maxPrinted = 3

// noon is where the clocks start: whole milliseconds, far from any edge.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// pair is the store under test and the model, each with a clock of its own, because a transition
// moves the clock and the two stores are used one after the other.
type pair struct {
	store, model      punctual.Store
	clock, modelClock *storekit.ManualClock
	can               storekit.Abilities // of the store
}

func newPair(open func(storekit.Clock) punctual.Store) *pair {
	p := &pair{clock: storekit.NewManualClock(noon), modelClock: storekit.NewManualClock(noon)}
	p.store = open(p.clock)
	p.model = memstore.New(&memstore.Options{Clock: p.modelClock})
	if a, err := punctual.As[storekit.AbilityReporter](p.store); err == nil {
		p.can, _ = a.Abilities(context.Background()) // none beside an error; a store that returns one here fails in the other calls, too
	}
	return p
}

// differences carries out every operation in one situation on both stores. It returns a text for
// each operation, and for each topic as a whole, in which they differ, and an error when a
// situation could not be brought about.
func (p *pair) differences(set setting, at situation) ([]string, error) {
	var together []operation
	var groups [][]operation
	for _, op := range operations(p.can.Follow) {
		if op.alone {
			groups = append(groups, []operation{op})
		} else {
			together = append(together, op)
		}
	}
	groups = append(groups, together)
	var texts []string
	for _, ops := range groups {
		got, err := transitions(p.store, p.clock, set, at, ops)
		if err != nil {
			return nil, fmt.Errorf("the store: %w", err)
		}
		want, err := transitions(p.model, p.modelClock, set, at, ops)
		if err != nil {
			return nil, fmt.Errorf("the model: %w", err)
		}
		for i := range want {
			if got[i] != want[i] {
				texts = append(texts, fmt.Sprintf("%s of a message that is %s, in a topic that %s:\n--- the store\n%s--- package memstore\n%s",
					nameOf(ops, i), at.name, set.name, got[i], want[i]))
			}
		}
	}
	return texts, nil
}

// nameOf returns the name of the i-th text that transitions returns. There is one text for each
// operation, and a last one for the whole topic.
func nameOf(ops []operation, i int) string {
	if i < len(ops) {
		return ops[i].name
	}
	return "every operation"
}

// transitions carries out operations in one situation on one store, each on a message of its own.
// It returns for each operation what was answered and seen, and as the last text what the topic as
// a whole shows. All times in the texts are relative to the beginning, so that the texts of two
// stores are equal when their decisions are.
func transitions(store punctual.Store, clock *storekit.ManualClock, set setting, at situation, ops []operation) ([]string, error) {
	inspector, err := punctual.As[punctual.Inspector](store)
	if err != nil {
		return nil, fmt.Errorf("the table of transitions needs an Inspector: %w", err)
	}
	s := &scene{store: store, inspector: inspector, clock: clock, begin: clock.Now(), topic: "transitions", keeps: set.patch.FinishedRetention != nil, keyed: set.patch.Keyed != nil}
	if k, err := punctual.As[punctual.FinishedKeeper](store); err == nil {
		s.keeper = k
	}
	for i := range ops {
		s.messages = append(s.messages, &message{id: fmt.Sprintf("x-%d", i)})
	}
	s.configure(set.patch)
	at.bring(s)
	// Two messages are enough here, because all have had the same calls. Where the answers for
	// another one differ, its text shows it.
	for _, m := range []*message{s.messages[0], s.messages[len(s.messages)-1]} {
		if state := s.state(m); state != at.state {
			return nil, fmt.Errorf("the message is %q and not %q in the situation %q of a topic that %s:\n%s", state, at.state, at.name, set.name, m.text.String())
		}
	}
	for i, op := range ops {
		op.do(s.only(s.messages[i]))
	}
	s.observe()
	s.future()
	if _, err := inspector.DeleteTopic(context.Background(), s.topic); err != nil {
		return nil, fmt.Errorf("deleting the topic of a situation: %w", err)
	}
	clock.Advance(24 * time.Hour) // so that no lease and no retention lasts into the next situation, even if the deletion has left something
	var texts []string
	for _, m := range s.messages {
		texts = append(texts, m.text.String())
	}
	return append(texts, s.shared.String()), nil
}

// setting is a kind of topic: its settings say what it keeps of messages that have ended, for how
// long, and which events it tells of.
type setting struct {
	name  string
	patch punctual.SettingsPatch
}

func settings() []setting {
	patch := func(change func(*punctual.SettingsPatch)) punctual.SettingsPatch {
		// The delays have no jitter, because chance would make the stores differ. The attempts are
		// few, so that the last is soon reached.
		p := punctual.SettingsPatch{
			MaxAttempts: ptr(2), Lease: ptr(leaseLength), Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second, time.Minute}},
		}
		change(&p)
		return p
	}
	return []setting{
		{"keeps nothing", patch(func(*punctual.SettingsPatch) {})},
		{"keeps IDs", patch(func(p *punctual.SettingsPatch) { p.DedupeWindow = ptr(time.Hour) })},
		{"keeps finished messages", patch(func(p *punctual.SettingsPatch) { p.FinishedRetention = ptr(time.Hour) })},
		{"keeps everything, for different times", patch(func(p *punctual.SettingsPatch) {
			p.DedupeWindow, p.FinishedRetention, p.DeadRetention = ptr(10*time.Minute), ptr(3*time.Hour), ptr(time.Hour)
		})},
		{"tells of everything", patch(func(p *punctual.SettingsPatch) { p.Emit = ptr(event.All) })},
		{"has a key for each message", patch(func(p *punctual.SettingsPatch) { p.Keyed, p.MaxKeyLeases = ptr(true), ptr(1) })},
		{"has its keys in order", patch(func(p *punctual.SettingsPatch) {
			p.Keyed, p.InOrder, p.DedupeWindow = ptr(true), ptr(true), ptr(time.Hour)
		})},
	}
}

func ptr[V any](v V) *V { return &v }
