package memstore

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Each kind of damage that the table has is found and named.
func TestCheckFindsDamage(t *testing.T) {
	tests := []struct {
		name   string
		damage func(o *topic)
		want   string
	}{
		{"heap order", func(o *topic) { o.live[0].LeaseUntil += 3600e3 + 1 }, "earlier than the message above"},
		{"index", func(o *topic) { o.live[1].index = 0 }, "has index 0 at 1"},
		{"missing by ID", func(o *topic) { delete(o.messages, "scheduled") }, "not found by its ID"},
		{"count", func(o *topic) { delete(o.messages, "scheduled") }, "by ID"},
		{"token from nowhere", func(o *topic) { o.messages["leased"].Token = 99 }, "token 99"},
		{"in another queue", func(o *topic) { o.live[0].queue = &o.dead }, "in another queue"},
		{"dead without reason", func(o *topic) { o.dead[0].Reason = "" }, "no reason"},
		{"dead under a lease", func(o *topic) { o.dead[0].Token = 1 }, "has a lease"},
		{"stored and finished", func(o *topic) { o.messages["done"] = o.live[0] }, "stored and finished"},
		{"finished count", func(o *topic) { delete(o.remembered.byID, "done") }, "the ID of 0 finished messages by ID, 1 by time"},
		{"record count", func(o *topic) { delete(o.records.byID, "done") }, "the record of 0 finished messages by ID, 1 by time"},
		{"record out of place", func(o *topic) { o.records.queue[0].index = 7 }, "not where it is"},
		{"wrong topic", func(o *topic) { o.live[0].topic = "other" }, "of topic other"},
		{"live with reason", func(o *topic) { o.live[0].Reason = "whim" }, "reason whim"},
		{"attempts", func(o *topic) { o.live[0].Attempts = -1 }, "-1 attempts"},
		{"cancel without lease", func(o *topic) { o.messages["scheduled"].CancelRequested = true }, "has no lease"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(&Options{Clock: storekit.NewManualClock(start)})
			remember := time.Hour
			configure(t, s, punctual.SettingsPatch{DedupeWindow: &remember, FinishedRetention: &remember})
			for _, id := range []string{"done", "dead", "leased"} {
				push(t, s, punctual.NewMessage{ID: id})
			}
			for _, d := range claim(t, s, 3) {
				verb := map[string]punctual.Verb{"done": punctual.SettleAck, "dead": punctual.SettleDiscard, "leased": punctual.SettleExtend}[d.ID]
				if err := settle(s, d, verb); err != nil {
					t.Fatal(err)
				}
			}
			push(t, s, punctual.NewMessage{ID: "scheduled", Delay: time.Hour})
			wantSound(t, s)
			tt.damage(s.topics["orders"])
			r, err := s.Check(t.Context(), nil)
			if err != nil || !strings.Contains(strings.Join(r.Problems, "\n"), tt.want) {
				t.Errorf("Check = %q, %v; want a problem with %q", r.Problems, err, tt.want)
			}
		})
	}
}

// Damage of a companion, and of the order of what is kept of finished messages, is found and named.
func TestCheckFindsDamageOfCompanionsAndOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(s *Store)
		want   string
	}{
		"companion without its topic": {func(s *Store) { delete(s.topics, "orders") }, "topic orders@x: there is no topic orders"},
		"partitions of a companion":   {func(s *Store) { s.topics["orders@x"].settings.Partitions = 2 }, "topic orders@x: it has 2 partitions, but not topic orders"},
		"pushes to a companion":       {func(s *Store) { s.topics["orders@x"].settings.PushPaused = true }, "topic orders@x: pushes to a companion are paused"},
		"order of IDs":                {func(s *Store) { s.topics["orders"].remembered.queue[0].until += 3600e3 }, "the ID of the finished b ends before the one above it"},
		"order of records":            {func(s *Store) { s.topics["orders"].records.queue[0].until += 3600e3 }, "the record of the finished b ends before the one above it"},
	} {
		clock := storekit.NewManualClock(start)
		s := New(&Options{Clock: clock})
		remember := time.Hour
		configure(t, s, punctual.SettingsPatch{DedupeWindow: &remember, FinishedRetention: &remember})
		for _, id := range []string{"a", "b"} {
			push(t, s, punctual.NewMessage{ID: id})
			if err := settle(s, claim(t, s, 1)[0], punctual.SettleAck); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Minute)
		}
		push(t, s, punctual.NewMessage{ID: "c", Topic: "orders@x"})
		wantSound(t, s)
		tt.damage(s)
		r, err := s.Check(t.Context(), nil)
		if err != nil || !strings.Contains(strings.Join(r.Problems, "\n"), tt.want) {
			t.Errorf("%s: Check = %q, %v; want a problem with %q", name, r.Problems, err, tt.want)
		}
	}
}

func TestCheckCounts(t *testing.T) {
	s, _ := manual(t)
	push(t, s, punctual.NewMessage{ID: "a"})
	push(t, s, punctual.NewMessage{ID: "b"})
	push(t, s, punctual.NewMessage{ID: "c", Topic: "other"})
	if err := settle(s, claim(t, s, 1)[0], punctual.SettleDiscard); err != nil {
		t.Fatal(err)
	}
	var read int64
	r, err := s.Check(t.Context(), func(n int64) { read = n })
	if err != nil || r.Topics != 2 || r.Live != 2 || r.Dead != 1 || read != 3 {
		t.Errorf("Check = %+v, %v after %d read; want 2 topics, 2 live, 1 dead, 3 read", r, err, read)
	}
}
