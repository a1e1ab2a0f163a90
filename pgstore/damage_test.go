package pgstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// A message that cannot be read holds up no other one: it is passed by, and dead when its attempts are used up.
func TestSlowDamagedMessage(t *testing.T) {
	t.Parallel()
	for column, value := range map[string]string{"headers": `'\xff'`, "failures": `ARRAY['?'::bytea]`} {
		pool := newPool(t, shared)
		s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
		once := 1
		if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxAttempts: &once}); err != nil {
			t.Fatal(err)
		}
		pushOrders(t, s, 3, 0)
		if n, err := pool.Exec(t.Context(), inSchema("UPDATE punctual.message SET "+column+" = "+value+" WHERE id = '1'", s.opt.Schema)); err != nil || n.RowsAffected() != 1 {
			t.Fatalf("the damage was not done: %v, %v", n, err)
		}
		if _, err := s.Get(t.Context(), "orders", "1"); !errors.Is(err, punctual.ErrCorrupt) {
			t.Fatalf("%s: Get answers %v; this test shows nothing", column, err)
		}
		r, err := s.Check(t.Context(), nil)
		if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "1 is damaged") {
			t.Errorf("%s: Check answers %+v, %v; want the message", column, r, err)
		}
		got := map[string]bool{}
		for len(got) < 2 {
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Lease: punctual.MinLease, Wait: time.Minute})
			if err != nil {
				t.Fatalf("%s: claim beside a damaged message: %v", column, err)
			}
			for _, d := range ds {
				got[d.ID] = true
				ackAll(t, s, d)
			}
		}
		if got["1"] {
			t.Errorf("%s: the damaged message was delivered", column)
		}
		for { // a claim ends it when its lease has run out
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Second})
			if err != nil || len(ds) > 0 {
				t.Fatalf("%s: later claim: %v, %v", column, ds, err)
			}
			st, err := s.Stats(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			if st.Dead == 1 && st.Live() == 0 {
				break
			}
		}
		found, err := s.Examine(t.Context())
		if err != nil || severities(found)["damage"] != punctual.SeverityBad {
			t.Errorf("%s: Examine answers %+v, %v; want the damage", column, found, err)
		}
	}
}
