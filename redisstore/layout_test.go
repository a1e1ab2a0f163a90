package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/redistest"
)

// P12: a message that was rescheduled before its first claim is due when it was told to be, not when its record says.
// The partition forgets about that once nothing waits.
func TestRescheduledBeforeFirstClaim(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "moved", Delay: time.Hour}, punctual.NewMessage{ID: "other", Due: time.Unix(2, 0)})
	due := time.Unix(1, 0).UTC()
	if _, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "moved", Due: due}}); err != nil {
		t.Fatal(err)
	}
	settings := s.names.Partition("orders", 0).Keys()[6]
	for _, verb := range []punctual.Verb{punctual.SettleRelease, punctual.SettleAck} {
		wantSound(t, s)
		d := claimOne(t, s, 0)
		if d.ID != "moved" || !d.Due.Equal(due) {
			t.Fatalf("P12: claimed %s, due %v; want moved, due %v", d.ID, d.Due, due)
		}
		if got := do(t, server, "HGET", settings, "moved"); got != "1" {
			t.Errorf("moved is %q while messages wait; want 1", got)
		}
		if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token, Verb: verb}}); err != nil {
			t.Fatal(err)
		}
	}
	if d := claimOne(t, s, 0); d.ID != "other" {
		t.Fatalf("claimed %s; want other", d.ID)
	}
	if got := do(t, server, "HEXISTS", settings, "moved"); got != "0" {
		t.Errorf("moved is there although nothing waits")
	}
	wantSound(t, s)
}

// States lie in a table, however few and short they are.
func TestStatesAreATable(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x", Due: time.Unix(1, 0)})
	d := claimOne(t, s, 0)
	if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry}}); err != nil {
		t.Fatal(err)
	}
	states := s.names.Partition("orders", 0).Keys()[5]
	if got := do(t, server, "OBJECT", "ENCODING", states); got != "hashtable" {
		t.Errorf("%s is a %s; want a hashtable", states, got)
	}
	wantSound(t, s)
}

// What must never be is found: a message that waits for another time than it says.
func TestCheckFindsWrongTime(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
	do(t, server, "ZADD", s.names.Partition("orders", 0).Keys()[0], "1", "x")
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "another time") {
		t.Errorf("Check = %q, %v; want one problem, the time of x", r.Problems, err)
	}
}

func wantSound(t *testing.T, s *Store) {
	t.Helper()
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("Check = %q, %v; want no problem", r.Problems, err)
	}
}
