package memstore

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// oneOfEach returns a store whose topic holds a message in each state.
func oneOfEach(t *testing.T) *Store {
	t.Helper()
	s, _ := manual(t)
	for _, id := range []string{"dead", "leased"} {
		push(t, s, punctual.NewMessage{ID: id})
	}
	for _, d := range claim(t, s, 2) {
		if d.ID == "dead" {
			if err := settle(s, d, punctual.SettleDiscard); err != nil {
				t.Fatal(err)
			}
		}
	}
	push(t, s, punctual.NewMessage{ID: "ready", Due: start.Add(-time.Second)})
	push(t, s, punctual.NewMessage{ID: "scheduled", Delay: time.Minute})
	return s
}

func TestStats(t *testing.T) {
	s := oneOfEach(t)
	push(t, s, punctual.NewMessage{Topic: "later", Delay: time.Hour})
	all, err := s.Topics(t.Context())
	if err != nil || len(all) != 2 || all[0].Topic != "later" || all[1].Topic != "orders" {
		t.Fatalf("Topics = %+v, %v; want later and orders", all, err)
	}
	o := all[1]
	if o.Scheduled != 1 || o.Ready != 1 || o.Leased != 1 || o.Dead != 1 || !o.NextDue.Equal(start.Add(-time.Second)) {
		t.Errorf("stats = %+v; want one of each and the next due a second ago", o)
	}
	one, err := s.Stats(t.Context(), "later")
	if err != nil || one.Live() != 1 || !one.NextDue.Equal(start.Add(time.Hour)) || one.Settings.MaxAttempts != 10 {
		t.Errorf("Stats = %+v, %v; want one message in an hour and the default settings", one, err)
	}
	if _, err := s.Stats(t.Context(), "none"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("Stats of no topic = %v, want ErrNotFound", err)
	}
}

func TestPurge(t *testing.T) {
	tests := map[string]struct {
		q    punctual.PurgeQuery
		want string
	}{
		"scheduled": {punctual.PurgeQuery{State: punctual.StateScheduled}, "scheduled"},
		"leased":    {punctual.PurgeQuery{State: punctual.StateLeased}, "leased"},
		"dead":      {punctual.PurgeQuery{State: punctual.StateDead}, "dead"},
		"all live":  {punctual.PurgeQuery{}, "leased ready scheduled"},
		"from":      {punctual.PurgeQuery{From: start.Add(time.Minute)}, "scheduled"},
		"to":        {punctual.PurgeQuery{To: start.Add(30 * time.Second)}, "ready"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := oneOfEach(t)
			tt.q.Topic = "orders"
			n, err := s.Purge(t.Context(), tt.q)
			want := strings.Fields(tt.want)
			if err != nil || n != int64(len(want)) {
				t.Errorf("Purge = %d, %v; want %d", n, err, len(want))
			}
			for _, id := range want {
				wantGone(t, s, id)
			}
			st, err := s.Stats(t.Context(), "orders")
			if err != nil || st.Live()+st.Dead != int64(4-len(want)) {
				t.Errorf("left: %+v, %v; want %d", st, err, 4-len(want))
			}
		})
	}
}

func TestDeleteTopic(t *testing.T) {
	s := oneOfEach(t)
	n, err := s.DeleteTopic(t.Context(), "orders")
	if err != nil || n != 4 {
		t.Errorf("DeleteTopic = %d, %v; want 4", n, err)
	}
	if n, err := s.DeleteTopic(t.Context(), "orders"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("second DeleteTopic = %d, %v; want ErrNotFound", n, err)
	}
}

// Each method that has a context refuses work after Close, and for a context that has ended.
func TestRefusals(t *testing.T) {
	methods := map[string]func(ctx context.Context, s *Store) error{
		"Push": func(ctx context.Context, s *Store) error { _, err := s.Push(ctx, nil); return err },
		"Claim": func(ctx context.Context, s *Store) error {
			_, err := s.Claim(ctx, punctual.Claim{Topics: []string{"a"}, Max: 1})
			return err
		},
		"Settle": func(ctx context.Context, s *Store) error { _, err := s.Settle(ctx, nil); return err },
		"Amend":  func(ctx context.Context, s *Store) error { _, err := s.Amend(ctx, nil); return err },
		"Now":    func(ctx context.Context, s *Store) error { _, err := s.Now(ctx); return err },
		"Get":    func(ctx context.Context, s *Store) error { _, err := s.Get(ctx, "a", "b"); return err },
		"List": func(ctx context.Context, s *Store) error {
			_, err := s.List(ctx, punctual.ListQuery{Topic: "a", State: punctual.StateDead})
			return err
		},
		"Topics": func(ctx context.Context, s *Store) error { _, err := s.Topics(ctx); return err },
		"Stats":  func(ctx context.Context, s *Store) error { _, err := s.Stats(ctx, "a"); return err },
		"Forecast": func(ctx context.Context, s *Store) error {
			_, err := s.Forecast(ctx, punctual.ForecastQuery{Step: time.Hour, Buckets: 1})
			return err
		},
		"Settings": func(ctx context.Context, s *Store) error { _, err := s.Settings(ctx, "a"); return err },
		"Configure": func(ctx context.Context, s *Store) error {
			_, err := s.Configure(ctx, "a", punctual.SettingsPatch{})
			return err
		},
		"Purge": func(ctx context.Context, s *Store) error {
			_, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "a"})
			return err
		},
		"DeleteTopic": func(ctx context.Context, s *Store) error { _, err := s.DeleteTopic(ctx, "a"); return err },
		"Check":       func(ctx context.Context, s *Store) error { _, err := s.Check(ctx, nil); return err },
		"Examine":     func(ctx context.Context, s *Store) error { _, err := s.Examine(ctx); return err },
		"Clock":       func(ctx context.Context, s *Store) error { _, err := s.Clock(ctx); return err },
		"StepClock":   func(ctx context.Context, s *Store) error { _, err := s.StepClock(ctx); return err },
		"Abilities":   func(ctx context.Context, s *Store) error { _, err := s.Abilities(ctx); return err },
		"TopicNames": func(ctx context.Context, s *Store) error {
			_, err := s.TopicNames(ctx, storekit.NameQuery{})
			return err
		},
		"NewCompanions": func(ctx context.Context, s *Store) error { _, err := s.NewCompanions(ctx, "", 0); return err },
		"Finished":      func(ctx context.Context, s *Store) error { _, err := s.Finished(ctx, "a", "b"); return err },
		"ListFinished": func(ctx context.Context, s *Store) error {
			_, err := s.ListFinished(ctx, punctual.FinishedQuery{Topic: "a"})
			return err
		},
	}
	withContext := reflect.TypeFor[context.Context]()
	for m := range reflect.TypeFor[*Store]().Methods() {
		if m.Type.NumIn() > 1 && m.Type.In(1) == withContext && methods[m.Name] == nil {
			t.Errorf("the table lacks %s", m.Name)
		}
	}
	for name, call := range methods {
		s := New(nil)
		ended, end := context.WithCancel(t.Context())
		end()
		if err := call(ended, s); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context = %v, want its error", name, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), s); !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("P13: %s after Close = %v, want ErrClosed", name, err)
		}
	}
}

func TestListPages(t *testing.T) {
	s, _ := manual(t)
	for _, id := range []string{"d", "b", "a", "c", "e"} {
		push(t, s, punctual.NewMessage{ID: id, Delay: time.Hour})
	}
	push(t, s, punctual.NewMessage{ID: "first", Delay: time.Minute})
	var got []string
	q := punctual.ListQuery{Topic: "orders", State: punctual.StateScheduled, Limit: 2}
	for pages := 0; ; pages++ {
		p, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range p.Messages {
			got = append(got, m.ID)
		}
		if q.After = p.Next; q.After == "" {
			if pages != 2 {
				t.Errorf("%d further pages, want 2", pages)
			}
			break
		}
	}
	if want := "first a b c d e"; want != strings.Join(got, " ") {
		t.Errorf("listed %q, want %q", strings.Join(got, " "), want)
	}
	q.After = "nonsense"
	if _, err := s.List(t.Context(), q); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("List after nonsense = %v, want ErrInvalid", err)
	}
}

func TestForecast(t *testing.T) {
	s, _ := manual(t)
	for _, d := range []time.Duration{0, 1, time.Minute - 1, time.Minute, 2*time.Minute - time.Millisecond, 2 * time.Minute, time.Hour} {
		push(t, s, punctual.NewMessage{Delay: d})
	}
	push(t, s, punctual.NewMessage{Due: limits.MaxDue})
	f, err := s.Forecast(t.Context(), punctual.ForecastQuery{Step: time.Minute, Buckets: 2})
	if err != nil {
		t.Fatal(err)
	}
	// 1 ns and 1 min - 1 ns round up to whole milliseconds: buckets 0 and 1.
	if f.Overdue != 1 || f.Counts[0] != 1 || f.Counts[1] != 3 || f.Beyond != 3 {
		t.Errorf("forecast = %+v; want 1 overdue, 1 and 3 in the buckets, 3 beyond", f)
	}
}

func TestSettingsAreTheCallersOwn(t *testing.T) {
	s, _ := manual(t)
	b := punctual.Backoff{Delays: []time.Duration{time.Minute}}
	configure(t, s, punctual.SettingsPatch{Backoff: &b})
	b.Delays[0] = time.Hour
	got, err := s.Settings(t.Context(), "orders")
	if err != nil || got.Backoff.Delays[0] != time.Minute {
		t.Fatalf("Settings = %v, %v; want the delay of a minute that was given", got.Backoff, err)
	}
	got.Backoff.Delays[0] = time.Hour
	if again, err := s.Settings(t.Context(), "orders"); err != nil || again.Backoff.Delays[0] != time.Minute {
		t.Errorf("Settings = %v, %v; want a copy of its own for each caller", again.Backoff, err)
	}
}
