package memstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// dueAt pushes a message that is due ms milliseconds after start.
func dueAt(t *testing.T, s *Store, id string, ms int, more ...func(*punctual.NewMessage)) {
	t.Helper()
	m := punctual.NewMessage{ID: id, Due: start.Add(time.Duration(ms) * time.Millisecond)}
	for _, f := range more {
		f(&m)
	}
	push(t, s, m)
}

func expires(m *punctual.NewMessage) { m.ExpireAfter = time.Millisecond }

func TestClaimThese(t *testing.T) {
	tests := []struct {
		name  string
		claim []string
		want  []string // claimed
		err   string   // part of the error; "": none
		dead  []string // afterwards
	}{
		{name: "all in order", claim: []string{"a", "b", "c"}, want: []string{"a", "b", "c"}},
		{name: "of equal times any", claim: []string{"a", "c"}, want: []string{"a", "c"}},
		{name: "an earlier one left out", claim: []string{"b"}, err: "a, whose time came 5 ms earlier, was left out"},
		{name: "wrong order", claim: []string{"b", "a"}, err: "left out"},
		{name: "not due", claim: []string{"later"}, err: "scheduled"},
		{name: "twice", claim: []string{"a", "a"}, want: []string{"a"}, err: "leased"},
		{name: "unknown", claim: []string{"a", "x"}, want: []string{"a"}, err: "no such message"},
		{name: "expired, tied with the last", claim: []string{"a", "b", "c", "old"}, want: []string{"a", "b", "c"}, err: "expired"},
		{name: "behind an expired one", claim: []string{"a", "b", "c", "d"}, want: []string{"a", "b", "c", "d"}, dead: []string{"old"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, clock := manual(t)
			clock.Advance(time.Second)
			dueAt(t, s, "a", 0)
			dueAt(t, s, "b", 5)
			dueAt(t, s, "c", 5)
			dueAt(t, s, "old", 5, expires)
			dueAt(t, s, "d", 6)
			dueAt(t, s, "later", 1001)
			ds, err := s.ClaimThese("orders", tt.claim, 0)
			if !slices.Equal(ids(ds), append([]string{}, tt.want...)) {
				t.Errorf("ClaimThese(%v) = %v, want %v", tt.claim, ids(ds), tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ClaimThese(%v) = error %v, want %q", tt.claim, err, tt.err)
			}
			wantListed(t, s, punctual.StateDead, tt.dead...)
			wantListed(t, s, punctual.StateLeased, tt.want...)
		})
	}
}

func TestClaimTheseRefusesPausedTopics(t *testing.T) {
	s, _ := manual(t)
	paused := true
	dueAt(t, s, "a", 0)
	configure(t, s, punctual.SettingsPatch{DeliveryPaused: &paused})
	if ds, err := s.ClaimThese("orders", []string{"a"}, 0); err == nil {
		t.Errorf("ClaimThese of a paused topic = %v, want an error", ids(ds))
	}
}

func TestClaimTheseLeasesAsClaimDoes(t *testing.T) {
	s, _ := manual(t)
	dueAt(t, s, "a", 0)
	ds, err := s.ClaimThese("orders", []string{"a"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	d := ds[0]
	if d.Attempt != 1 || d.Token == 0 || !d.LeaseUntil.Equal(start.Add(time.Minute)) {
		t.Errorf("delivery = %+v, want attempt 1, a token and a lease of a minute", d)
	}
	if err := settle(s, d, punctual.SettleAck); err != nil {
		t.Errorf("ack: %v", err)
	}
}

func TestEndThese(t *testing.T) {
	s, clock := manual(t)
	clock.Advance(time.Second)
	dueAt(t, s, "a", 5)
	dueAt(t, s, "old", 5, expires)
	if err := s.EndThese("orders", []string{"a"}); err == nil {
		t.Error("EndThese ended a message that is to be delivered")
	}
	if err := s.EndThese("orders", []string{"old"}); err != nil {
		t.Errorf("EndThese of an expired message: %v", err)
	}
	wantListed(t, s, punctual.StateDead, "old")
	wantListed(t, s, punctual.StateReady, "a")
}

func TestNextAt(t *testing.T) {
	s, clock := manual(t)
	wantNext := func(ms int) {
		t.Helper()
		at, ok := s.NextAt()
		if want := start.Add(time.Duration(ms) * time.Millisecond); !ok || !at.Equal(want) {
			t.Errorf("NextAt = %v, %v; want %v", at, ok, want)
		}
	}
	if at, ok := s.NextAt(); ok {
		t.Errorf("NextAt of an empty store = %v", at)
	}
	dueAt(t, s, "late", 60_000)
	push(t, s, punctual.NewMessage{Topic: "other", ID: "b", Due: start.Add(90 * time.Second)})
	dueAt(t, s, "a", 1000)
	wantNext(1000)
	clock.Advance(2 * time.Second)
	wantNext(1000) // ready: it needs attention since then
	d := claim(t, s, 1)[0]
	wantNext(32_000) // the end of the lease
	if err := settle(s, d, punctual.SettleDiscard); err != nil {
		t.Fatal(err)
	}
	wantNext(60_000) // the dead need none
	if at, ok := s.NextAt("other", "none"); !ok || !at.Equal(start.Add(90*time.Second)) {
		t.Errorf("NextAt of other = %v, %v; want 90s", at, ok)
	}
	amend(t, s, punctual.Amendment{Change: punctual.ChangeCancel, ID: "late"})
	wantNext(90_000)
}

func wantListed(t *testing.T, s *Store, state punctual.State, want ...string) {
	t.Helper()
	p, err := s.List(t.Context(), punctual.ListQuery{Topic: "orders", State: state})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, m := range p.Messages {
		got = append(got, m.ID)
	}
	if !slices.Equal(got, append([]string{}, want...)) {
		t.Errorf("%s: %v, want %v", state, got, want)
	}
}
