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

func TestEncounter(t *testing.T) {
	tests := []struct {
		name  string
		meets []string // one after the other, each claimed by ID unless it is the last and refused
		err   string   // part of the error of the last one; "": none
		dead  []string // afterwards
	}{
		{name: "all in order", meets: []string{"a", "b", "c"}},
		{name: "of equal times any", meets: []string{"a", "c"}},
		{name: "an earlier one left out", meets: []string{"b"}, err: "a, whose time came 5 ms earlier, was left out"},
		{name: "not due", meets: []string{"later"}, err: "scheduled"},
		{name: "twice", meets: []string{"a", "a"}, err: "leased"},
		{name: "unknown", meets: []string{"a", "x"}, err: "no such message"},
		{name: "expired, tied with the last", meets: []string{"a", "b", "c", "old"}, dead: []string{"old"}},
		{name: "behind an expired one", meets: []string{"a", "b", "c", "d"}, dead: []string{"old"}},
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
			for i, id := range tt.meets {
				err := s.Encounter("orders", id)
				if refused := tt.err != "" && i == len(tt.meets)-1; refused {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Errorf("Encounter of %s = %v, want %q", id, err, tt.err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("Encounter of %s: %v", id, err)
				}
				if _, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, IDs: []string{id}}); err != nil {
					t.Fatal(err)
				}
			}
			wantListed(t, s, punctual.StateDead, tt.dead...)
		})
	}
	s, _ := manual(t)
	paused := true
	dueAt(t, s, "a", 0)
	configure(t, s, punctual.SettingsPatch{DeliveryPaused: &paused})
	if err := s.Encounter("orders", "a"); err == nil {
		t.Error("Encounter of a message of a paused topic is allowed")
	}
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
