package worker_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/worker"
)

// TestSchedulesOption: a worker stores the occurrences of the schedules of its topics when told to,
// and only then. Two of them share the work, and their observers together hear of each time once.
func TestSchedulesOption(t *testing.T) {
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(nil)
			q := punctual.NewQueue(store, nil)
			for _, topic := range []string{"reports", "other"} {
				if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: topic, Name: "often", Spec: "* * * * *"}); err != nil {
					t.Fatal(err)
				}
			}
			seen := make(chan string, 100)
			var counts punctual.ScheduleCounts
			steps := make(chan punctual.ScheduleStep, 100)
			var workers []*worker.Worker
			for range 2 {
				w := worker.New(store, &worker.Config{
					Schedules: told, Logger: slog.New(slog.DiscardHandler),
					Observer: &punctual.Observer{OnSchedule: func(_ context.Context, s punctual.ScheduleStep) { steps <- s }},
				})
				w.Handle("reports", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
					seen <- d.ID
					return nil
				}))
				if err := w.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				workers = append(workers, w)
			}
			time.Sleep(10*time.Minute + time.Second)
			for _, w := range workers {
				if err := w.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
			close(steps)
			for s := range steps {
				if s.Topic != "reports" || s.Name != "often" {
					t.Errorf("step %+v", s)
				}
				counts.Stored += s.Counts.Stored
			}
			want := 0
			if told {
				want = 10
			}
			if len(seen) != want || counts.Stored != int64(want) {
				t.Errorf("told %v: %d occurrences were handled, %d observed; want %d", told, len(seen), counts.Stored, want)
			}
			info, err := schedule.Get(t.Context(), q, "other", "often")
			if err != nil || info.Counts.Stored != 0 {
				t.Errorf("the schedule of a topic without a handler: %+v, %v", info.Counts, err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSchedulesDrain: Drain stores the occurrence that is due. It is handled once, also when Drain
// is called again.
func TestSchedulesDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		q := punctual.NewQueue(store, nil)
		if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: "often", Spec: "* * * * *"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		handled := 0
		w := worker.New(store, &worker.Config{Schedules: true})
		w.Handle("reports", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
			handled++
			return nil
		}))
		for range 2 {
			if _, err := w.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if handled != 1 {
			t.Errorf("%d occurrences were handled", handled)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// awayStore is a store in memory that has gone, for claims and settlements, from the first claim
// that gets the message of a duty until back.
type awayStore struct {
	*memstore.Store
	back time.Time

	mu      sync.Mutex
	gone    bool // guarded by mu
	refused int  // settlements; guarded by mu
}

// away reports whether the store has gone.
func (s *awayStore) away() bool { return s.gone && time.Now().Before(s.back) }

func (s *awayStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.mu.Lock()
	away := s.away()
	s.mu.Unlock()
	if away {
		return nil, punctual.ErrUnreachable
	}
	ds, err := s.Store.Claim(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = s.gone || slices.ContainsFunc(ds, func(d punctual.Delivery) bool { return d.Topic == "reports@cron" })
	return ds, err
}

func (s *awayStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away() {
		s.refused++
		return nil, punctual.ErrUnreachable
	}
	return s.Store.Settle(ctx, ss)
}

// TestOutageAtADutysSettlement: when the store goes while a duty works on a message, that message
// gets no line of the log beside those of the outage.
func TestOutageAtADutysSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		store := &awayStore{Store: r.mem, back: r.start.Add(5 * time.Minute)}
		if _, err := schedule.Put(t.Context(), r.q, schedule.Schedule{Topic: "reports", Name: "often", Spec: "* * * * *"}); err != nil {
			t.Fatal(err)
		}
		w := worker.New(store, r.config(worker.Config{Schedules: true}))
		w.Handle("reports", acks(&record{}))
		r.runs(w)
		time.Sleep(10*time.Minute + 30*time.Second) // between two times of the schedule
		r.stops(w)
		if store.refused < 5 {
			t.Errorf("%d settlements failed; want those of one message until its lease ended", store.refused)
		}
		if !strings.Contains(r.logs.String(), "claim failed") || !strings.Contains(r.logs.String(), "succeed again") {
			t.Errorf("the log does not tell of the outage:\n%s", r.logs)
		}
		r.wantLog("topic=reports@cron", 0)
		if info, err := schedule.Get(t.Context(), r.q, "reports", "often"); err != nil || info.Counts.Stored < 2 {
			t.Errorf("the schedule, after the outage: %+v, %v", info.Counts, err)
		}
	})
}
