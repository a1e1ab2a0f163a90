package stalled

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// slow is a store in memory whose lists take time, and fail while broken is set.
type slow struct {
	*memstore.Store
	takes  time.Duration
	lists  int
	broken error
}

func (s *slow) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	s.lists++
	time.Sleep(s.takes)
	if s.broken != nil {
		return punctual.Page{}, s.broken
	}
	return s.Store.List(ctx, q)
}

// stall puts the schedule "daily" of a topic, and moves its message by a year.
func stall(t *testing.T, s punctual.Store, topic string) {
	t.Helper()
	q := punctual.NewQueue(s, nil)
	if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: topic, Name: "daily", Spec: "@daily"}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Reschedule(t.Context(), topic+"@cron", "daily", punctual.In(365*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func topicsOf(found []Schedule) (topics []string) {
	for _, s := range found {
		topics = append(topics, s.Topic)
	}
	return topics
}

// A Look reads for a second and leaves the rest to later ones, which read nothing for fifty times
// as long as it took. What was read before counts until it is read anew, and what belongs to topics
// that are gone does not.
func TestLookIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.New(nil)}
		topics := []string{"a", "b", "c", "d", "e"}
		for _, topic := range topics {
			stall(t, s, topic)
		}
		s.takes = 100 * time.Millisecond // each topic takes 400 ms
		w := New(s)
		look := func(topics []string, want ...string) {
			t.Helper()
			found, err := w.Look(t.Context(), topics)
			if got := topicsOf(found); err != nil || !slices.Equal(got, want) {
				t.Fatalf("found %q, %v; want %q", got, err, want)
			}
		}
		look(topics, "a", "b", "c")
		read := s.lists
		if read != 12 {
			t.Fatalf("%d lists were read; this test counts on 4 for a topic", read)
		}
		time.Sleep(59 * time.Second)
		look(topics, "a", "b", "c")
		if s.lists != read {
			t.Errorf("%d more lists were read 59 s after a look of 1.2 s", s.lists-read)
		}
		time.Sleep(2 * time.Second)
		look(topics, topics...)
		time.Sleep(time.Minute)
		if _, err := schedule.Put(t.Context(), punctual.NewQueue(s.Store, nil), schedule.Schedule{Topic: "b", Name: "daily", Spec: "@daily"}); err != nil {
			t.Fatal(err)
		}
		look(topics[:4], "a", "c", "d") // b is mended, e is gone
		s.broken = errors.New("no answer")
		time.Sleep(time.Hour)
		if found, err := w.Look(t.Context(), topics); !errors.Is(err, s.broken) {
			t.Errorf("with a store that fails: %v, %v", found, err)
		}
	})
}

// Examine names the first schedules with a problem and adds up the others, says when it could not
// read all, and is good when all is well.
func TestExamine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.New(nil)}
		examine := func() (names []string, worst storekit.Severity) {
			t.Helper()
			found, err := Examine(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				names, worst = append(names, f.Name+": "+f.Value), max(worst, f.Severity)
			}
			return names, worst
		}
		if got, _ := examine(); len(got) != 0 {
			t.Errorf("a store without schedules: %q", got)
		}
		if _, err := schedule.Put(t.Context(), punctual.NewQueue(s.Store, nil), schedule.Schedule{Topic: "fine", Name: "daily", Spec: "@daily"}); err != nil {
			t.Fatal(err)
		}
		if got, worst := examine(); len(got) != 1 || worst != storekit.SeverityGood {
			t.Errorf("a schedule without a problem: %q, %v", got, worst)
		}
		for i := range 12 {
			stall(t, s, fmt.Sprintf("topic-%02d", i))
		}
		got, worst := examine()
		if len(got) != 11 || worst != storekit.SeverityBad || !strings.HasPrefix(got[0], "schedule daily in topic-00: does not run as it should from ") || got[10] != "schedules: 2 more do not come" {
			t.Errorf("12 schedules with a problem: %q, %v", got, worst)
		}
		s.takes = time.Second
		if got, _ := examine(); got[len(got)-1] != "schedules: those of 12 of 13 topics were not read" {
			t.Errorf("a slow store: %q", got)
		}
	})
}
