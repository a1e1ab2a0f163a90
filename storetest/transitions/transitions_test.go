package transitions

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

func openModel(clock storekit.Clock) punctual.Store {
	return memstore.New(&memstore.Options{Clock: clock})
}

// TestModelAgreesWithItself runs the table with memstore on both sides. This shows that each
// situation can be brought about, and that no transition depends on chance.
func TestModelAgreesWithItself(t *testing.T) {
	Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		s := openModel(clock)
		t.Cleanup(func() { _ = s.Close() }) // it has nothing to close that could fail
		return s
	})
}

// mutant is memstore with one rule broken: push, settle and amend change the items of a call before
// memstore gets them.
type mutant struct {
	*memstore.Store
	push   func(*punctual.NewMessage)
	settle func(*punctual.Settlement)
	amend  func(*punctual.Amendment)
}

func (m *mutant) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	for i := range ms {
		if m.push != nil {
			m.push(&ms[i])
		}
	}
	return m.Store.Push(ctx, ms)
}

func (m *mutant) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	for i := range ss {
		if m.settle != nil {
			m.settle(&ss[i])
		}
	}
	return m.Store.Settle(ctx, ss)
}

func (m *mutant) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	for i := range as {
		if m.amend != nil {
			m.amend(&as[i])
		}
	}
	return m.Store.Amend(ctx, as)
}

// TestDifferencesAreFound: a store that decides one combination otherwise is found, and the text
// names the combination.
func TestDifferencesAreFound(t *testing.T) {
	for _, m := range []struct {
		name   string
		mutant mutant
		at, op string // the situation and the operation of a text that must be among the differences
	}{
		{"a dead holder is replaced although the push would fail", mutant{push: func(m *punctual.NewMessage) {
			if m.IfExists == punctual.IfExistsFail {
				m.IfExists = punctual.IfExistsReplaceDead
			}
		}}, "dead because it expired", "push, fail"},
		{"a snooze counts its attempt", mutant{settle: func(s *punctual.Settlement) {
			if s.Verb == punctual.SettleSnooze {
				s.Verb = punctual.SettleRetry
			}
		}}, "leased for the last time", "snooze after 0s, current token"},
		{"a failure loses its text", mutant{settle: func(s *punctual.Settlement) { s.Error = "" }}, "leased", "retry after 0s, current token"},
		// The message becomes dead in scene.future, so that no claim returns it again.
		{"a failure loses its text, which only lists show", mutant{settle: func(s *punctual.Settlement) { s.Error = "" }}, "leased", "extend after 1s, current token"},
		{"a requeue is due at once", mutant{amend: func(a *punctual.Amendment) {
			if a.Change == punctual.ChangeRequeue {
				a.Delay = 0
			}
		}}, "dead because it was discarded", "requeue after 1h30m0s"},
		{"a delete ignores its condition", mutant{amend: func(a *punctual.Amendment) {
			if a.Change == punctual.ChangeDelete {
				a.IfDue = time.Time{}
			}
		}}, "leased", "delete if due as it is and -1ms"},
		{"a replacing push ignores its condition", mutant{push: func(n *punctual.NewMessage) { n.IfDue = time.Time{} }}, "dead because it expired", "push, replace if due as it is and 1h0m0s"},
		{"the second follow-up is forgotten", mutant{settle: func(x *punctual.Settlement) { x.Then = x.Then[:min(1, len(x.Then))] }}, "leased", "ack followed by itself, keep, current token"},
		{"a snooze to an instant is a millisecond late", mutant{settle: func(x *punctual.Settlement) {
			if x.Verb == punctual.SettleSnooze && !x.Due.IsZero() {
				x.Due = x.Due.Add(time.Millisecond)
			}
		}}, "leased", "snooze to -1h0m0s from the beginning, current token"},
	} {
		t.Run(m.name, func(t *testing.T) {
			pair := newPair(func(clock storekit.Clock) punctual.Store {
				m.mutant.Store = memstore.New(&memstore.Options{Clock: clock})
				return &m.mutant
			})
			var all []string
			for _, set := range settings() {
				for _, at := range situations() {
					if at.name != m.at {
						continue // the mutant may break how other situations are brought about
					}
					different, err := pair.differences(set, at)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, different...)
				}
			}
			if found := strings.Join(all, "\n"); !strings.Contains(found, m.op+" of a message that is "+m.at+",") {
				t.Errorf("%q of a message that is %q is not among the differences found:\n%s", m.op, m.at, found)
			}
		})
	}
}
