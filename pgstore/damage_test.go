package pgstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A message that cannot be read holds up no other one: claims skip it, and it is dead when its
// attempts are used up.
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
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Lease: time.Second, Wait: time.Minute})
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
		if err != nil || severities(found)["damage"] != storekit.SeverityBad {
			t.Errorf("%s: Examine answers %+v, %v; want the damage", column, found, err)
		}
	}
}

// A message that has lost its reason of death is still dead: it is not delivered, it is shown as
// dead, and it may be requeued.
func TestDeadWithoutAReason(t *testing.T) {
	t.Parallel()
	pool := newPool(t, shared)
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	pushOrders(t, s, 1, 0)
	claim := punctual.Claim{Topics: []string{"orders"}, Max: 1}
	ds, err := s.Claim(t.Context(), claim)
	if err != nil || len(ds) != 1 {
		t.Fatalf("claim: %v, %v", ds, err)
	}
	id := ds[0].ID
	errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: id, Token: ds[0].Token, Verb: punctual.SettleDiscard, Error: "no such shop"}})
	if err != nil || errs[0] != nil {
		t.Fatalf("discard: %v, %v", errs, err)
	}
	if n, err := pool.Exec(t.Context(), inSchema("UPDATE punctual.message SET reason = NULL WHERE died_at IS NOT NULL", s.opt.Schema)); err != nil || n.RowsAffected() != 1 {
		t.Fatalf("the damage was not done: %v, %v", n, err)
	}
	if i, err := s.Get(t.Context(), "orders", id); err != nil || i.State != punctual.StateDead || len(i.Failures) != 1 {
		t.Errorf("Get of a dead message without a reason: %+v, %v", i, err)
	}
	amend := func(change punctual.Change) error {
		out, err := s.Amend(t.Context(), []punctual.Amendment{{Topic: "orders", ID: id, Change: change}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Err
	}
	for _, change := range []punctual.Change{punctual.ChangeCancel, punctual.ChangeReschedule} {
		if err := amend(change); !errors.Is(err, punctual.ErrNotFound) || !strings.Contains(err.Error(), "it is dead") {
			t.Errorf("%v of a dead message without a reason: %v; want that it is dead", change, err)
		}
	}
	if ds, err := s.Claim(t.Context(), claim); err != nil || len(ds) != 0 {
		t.Errorf("claim beside a dead message without a reason: %v, %v", ds, err)
	}
	if err := amend(punctual.ChangeRequeue); err != nil {
		t.Errorf("requeue: %v", err)
	}
	claim.Wait = time.Minute
	if ds, err := s.Claim(t.Context(), claim); err != nil || len(ds) != 1 || ds[0].Attempt != 1 {
		t.Errorf("claim after the requeue: %+v, %v", ds, err)
	}
}

// Check says of a dead message which part of a lease it still has.
func TestCheckOfADeadMessageWithALease(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	if err := settleOne(t, s, settlement(leaseOne(t, s, "orders", "m"), punctual.SettleDiscard)); err != nil {
		t.Fatal(err)
	}
	for damage, want := range map[string]string{
		"token = 1, cancelled = false": "topic orders: m is not live and has a lease",
		"token = 0, cancelled = true":  "topic orders: m has no lease and is to be cancelled after it",
	} {
		if n, err := s.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.message SET "+damage, s.opt.Schema)); err != nil || n.RowsAffected() != 1 {
			t.Fatalf("the damage was not done: %v, %v", n, err)
		}
		if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) != 1 || r.Problems[0] != want {
			t.Errorf("%s: Check answers %+v, %v; want %q", damage, r, err, want)
		}
	}
}
