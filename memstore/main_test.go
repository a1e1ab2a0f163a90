package memstore

import (
	"context"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// manual returns a store with a clock that the test moves. At the end of the test its
// invariants must hold.
func manual(t *testing.T) (*Store, *storekit.ManualClock) {
	clock := storekit.NewManualClock(start)
	s := New(&Options{Clock: clock})
	t.Cleanup(func() { wantSound(t, s) })
	return s, clock
}

func wantSound(t *testing.T, s *Store) {
	t.Helper()
	r, err := s.Check(context.Background(), nil)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("Check = %q, %v; want no problems", r.Problems, err)
	}
}

func push(t *testing.T, s *Store, m punctual.NewMessage) {
	t.Helper()
	if m.Topic == "" {
		m.Topic = "orders"
	}
	rs, err := s.Push(context.Background(), []punctual.NewMessage{m})
	if err != nil || rs[0].Err != nil {
		t.Fatalf("push of %s: %v, %v", m.ID, err, rs)
	}
}

func claim(t *testing.T, s *Store, n int) []punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: n})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return ds
}

func settle(s *Store, d punctual.Delivery, verb punctual.Verb) error {
	x := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb}
	errs, err := s.Settle(context.Background(), []punctual.Settlement{x})
	if err != nil {
		return err
	}
	return errs[0]
}

func amend(t *testing.T, s *Store, a punctual.Amendment) error {
	t.Helper()
	a.Topic = "orders"
	out, err := s.Amend(context.Background(), []punctual.Amendment{a})
	if err != nil {
		t.Fatalf("%s of %s: %v", a.Change, a.ID, err)
	}
	return out[0].Err
}

func configure(t *testing.T, s *Store, p punctual.SettingsPatch) {
	t.Helper()
	if _, err := s.Configure(context.Background(), "orders", p); err != nil {
		t.Fatalf("configure: %v", err)
	}
}

func ids(ds []punctual.Delivery) []string {
	out := []string{}
	for _, d := range ds {
		out = append(out, d.ID)
	}
	return out
}
