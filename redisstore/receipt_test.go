package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// openLossy opens a store whose answers can be lost.
func openLossy(t *testing.T, server *redistest.Server) (*Store, *lossy) {
	t.Helper()
	l := &lossy{addr: server.Addr}
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: l.dial})
	closeAtEnd(t, client.Close)
	return openStore(t, client, nil), l
}

// P5, P13: what is asked with receipts gets its true answer although the first one was lost,
// and is done once.
func TestLostAnswerIsGivenAgain(t *testing.T) {
	server := redistest.Start(t)
	s, l := openLossy(t, server)
	push(t, s, punctual.NewMessage{ID: "there", Delay: time.Hour})

	l.lose(1)
	m := punctual.NewMessage{Topic: "orders", ID: "new", OnDuplicate: punctual.FailDuplicate}
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Status != punctual.PushStored {
		t.Errorf("P7: push = %+v, %v; want stored", rs, err)
	}
	l.lose(1)
	ds, err := s.Claim(t.Context(), orders(0))
	if err != nil || len(ds) != 1 || ds[0].ID != "new" || ds[0].Attempt != 1 {
		t.Fatalf("P6: claim = %+v, %v; want new at its first attempt", ds, err)
	}
	l.lose(1)
	ack := []punctual.Settlement{{Topic: "orders", ID: "new", Token: ds[0].Token, Verb: punctual.SettleAck}}
	if errs, err := s.Settle(t.Context(), ack); err != nil || errs[0] != nil {
		t.Errorf("P4: ack = %v, %v; want done", errs, err)
	}
	l.lose(1)
	cancel := []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "there"}}
	if out, err := s.Amend(t.Context(), cancel); err != nil || out[0].Status != punctual.Cancelled {
		t.Errorf("P5: cancel = %+v, %v; want cancelled", out, err)
	}
	l.lose(1)
	if _, err := s.Get(t.Context(), "orders", "there"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("get = %v; want ErrNotFound", err)
	}
}

// P13: when no copy gets an answer, the error says that it may have happened, also when the
// last try was certainly refused.
func TestNoAnswerAtAll(t *testing.T) {
	server := redistest.Start(t)
	s, l := openLossy(t, server)
	push(t, s, punctual.NewMessage{ID: "there", Delay: time.Hour})
	for name, lose := range map[string]func(){
		"every answer lost": func() { l.lose(tries) },
		"then out of reach": func() { l.lose(1); l.refuse.Store(true) },
	} {
		lose()
		m := []punctual.NewMessage{{Topic: "orders", ID: name, Delay: time.Hour}}
		if _, err := s.Push(t.Context(), m); !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("P13: %s: push = %v; want ErrIndeterminate", name, err)
		}
		l.lose(0)
		l.refuse.Store(false)
		if rs, err := s.Push(t.Context(), m); err != nil || rs[0].Status != punctual.PushDuplicate {
			t.Errorf("P7: %s: the same push again = %+v, %v; want a duplicate", name, rs, err)
		}
	}
}

// P3, P5: a copy that arrives after another one changes nothing: it gets the answer of the
// other, and an error when the slot has gone on.
func TestLateCopy(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	p := s.names.partition("orders", 0)
	push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)}, punctual.NewMessage{ID: "b", Due: time.Unix(2, 0)})
	claim := func(number, again int) ([]any, error) {
		args := []any{s.clock.floorMillis(), "", "", 1, 0, scriptBytes, number, again}
		return s.run(t.Context(), newScript("claim", claimScript.text), append(p.keys(), p.receipt(s.sender, 99)), args)
	}
	ids := func(items []any) string {
		var out []string
		for _, d := range leasedBy(t, items) {
			out = append(out, d.ID)
		}
		return strings.Join(out, " ")
	}
	for _, again := range []int{0, 1, 0} {
		if items, err := claim(1, again); err != nil || ids(items) != "a" {
			t.Fatalf("P3: a copy claimed %q, %v; want a", ids(items), err)
		}
	}
	if items, err := claim(2, 0); err != nil || ids(items) != "b" {
		t.Fatalf("the next call claimed %q, %v; want b", ids(items), err)
	}
	push(t, s, punctual.NewMessage{ID: "x", Due: time.Unix(1, 0)})
	if items, err := claim(1, 0); err == nil || !strings.Contains(err.Error(), "PUNCTUAL_LATE") {
		t.Errorf("P3: a late copy = %v, %v; want an error", items, err)
	}
	if d := claimOne(t, s, 0); d.ID != "x" {
		t.Errorf("claimed %s; want x", d.ID)
	}
	// The copy that was sent again found nothing; the first one must not lease for nobody.
	if items, err := claim(3, 1); err != nil || ids(items) != "" {
		t.Fatalf("claimed %q, %v; want nothing", ids(items), err)
	}
	push(t, s, punctual.NewMessage{ID: "c", Due: time.Unix(1, 0)})
	if items, err := claim(3, 0); err != nil || ids(items) != "" {
		t.Errorf("P3: a late copy claimed %q, %v; want nothing", ids(items), err)
	}
	if d := claimOne(t, s, 0); d.ID != "c" {
		t.Errorf("claimed %s; want c", d.ID)
	}
}

// What was settled meanwhile is not handed out by a claim that is answered again.
func TestClaimAnsweredAgainAfterChanges(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	p := s.names.partition("orders", 0)
	past := time.Unix(1, 0)
	push(t, s, punctual.NewMessage{ID: "a", Due: past}, punctual.NewMessage{ID: "b", Due: past})
	claim := func() int {
		args := []any{s.clock.floorMillis(), "", "", 2, 0, scriptBytes, 1, 0}
		items, err := s.run(context.Background(), newScript("claim", claimScript.text), append(p.keys(), p.receipt(s.sender, 99)), args)
		if err != nil {
			t.Fatal(err)
		}
		return len(leasedBy(t, items))
	}
	if n := claim(); n != 2 {
		t.Fatalf("claimed %d; want 2", n)
	}
	if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateLeased}); err != nil {
		t.Fatal(err)
	}
	if n := claim(); n != 0 {
		t.Errorf("P3: the answer given again has %d messages; want none, they are purged", n)
	}
}

// leasedBy reads the answer of claim.lua.
func leasedBy(t *testing.T, items []any) []punctual.Delivery {
	t.Helper()
	if len(items) != 7 {
		return nil // an error
	}
	ds, err := unpackClaimed("orders", items[5].(int64), items[6].(string))
	if err != nil {
		t.Fatal(err)
	}
	return ds
}
