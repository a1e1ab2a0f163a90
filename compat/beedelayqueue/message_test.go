package BeeDelayQueue

import (
	"errors"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// Numbers of less than ten digits are seconds from now, others Unix seconds.
func TestExecTime(t *testing.T) {
	now := time.Date(2021, 8, 26, 10, 0, 0, 0, time.UTC)
	s := memstore.New(&memstore.Options{Clock: storekit.NewManualClock(now)})
	defer s.Close()
	p, err := NewDelayQueueControllerOnStore(s)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, p)
	for _, c := range []struct {
		execTime int64
		due      time.Time
	}{
		{0, now},
		{5, now.Add(5 * time.Second)},
		{1800, now.Add(30 * time.Minute)},
		{999_999_999, now.Add(999_999_999 * time.Second)},
		{1_000_000_000, time.Date(2001, 9, 9, 1, 46, 40, 0, time.UTC)},
		{now.Unix() - 1, now.Add(-time.Second)},
		{now.Unix() + 5, now.Add(5 * time.Second)},
		{253402300799, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
	} {
		id, err := p.Push("t", "", c.execTime)
		if err != nil {
			t.Errorf("exec time %d: %v", c.execTime, err)
			continue
		}
		if due := get(t, p, "t", id).Due; !due.Equal(c.due) {
			t.Errorf("exec time %d is due at %v, want %v", c.execTime, due, c.due)
		}
	}
	for execTime, says := range map[int64]string{
		-1: "is negative", math.MinInt64: "is negative",
		253402300800: "after the year 9999", 1629936000123: "not milliseconds", math.MaxInt64: "after the year 9999",
	} {
		if id, err := p.Push("t", "", execTime); id != "" || !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("P9: exec time %d: %q, %v; want an error with %q", execTime, id, err, says)
		}
	}
}

// A message that was taken over keeps the time at which it was first pushed.
func TestImportedCreateTime(t *testing.T) {
	created := time.Date(2021, 8, 26, 10, 0, 0, 0, time.UTC)
	for header, want := range map[string]int64{"1629900000": 1629900000, "": created.Unix(), "yesterday": created.Unix()} {
		d := punctual.Delivery{Message: punctual.Message{Created: created, Headers: map[string]string{importedCreateTime: header}}}
		if got := messageOf(&d).CreateTime; got != want {
			t.Errorf("header %q: created at %d, want %d", header, got, want)
		}
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	h := newHearing(nil)
	p.CreateDelayQueue(topic, 3600, 3)
	listen(t, p, topic, h)
	remove := func(id string, want error) {
		t.Helper()
		if err := p.Remove(topic, id); !errors.Is(err, want) {
			t.Errorf("P5: remove: %v; want %v", err, want)
		}
	}
	waits := push(t, p, topic, 3600)
	remove(waits, nil)
	remove(waits, punctual.ErrNotFound)
	remove("never-pushed", punctual.ErrNotFound)

	works := push(t, p, topic, 0)
	m := h.next(t)
	remove(works, punctual.ErrLeased)
	if err := p.Settle(*m, false); err != nil { // which would bring it back, had it not been removed
		t.Error(err)
	}
	gone(t, p, topic, works)
	h.none(t)

	if err := p.Remove(topic, ""); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("remove without an ID: %v", err)
	}
}

var formOfID = regexp.MustCompile(`^(\d{8})-\d{3}-(\d{16})-\d{4}$`)

func TestFormOfIDs(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 8*3600)
	m := &idMaker{process: 42, count: 9998, now: func() time.Time { return time.Date(2021, 8, 26, 4, 0, 0, 123456789, zone) }}
	for _, want := range []string{"20210826-042-1629921600123456-9999", "20210826-042-1629921600123457-0000"} {
		if got := m.next(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if id := newIDMaker().next(); !formOfID.MatchString(id) {
		t.Errorf("%s has not the form of an ID", id)
	}
}

// One maker never repeats itself, whatever the clock does.
func TestIDsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(1629936000000000)
		m := &idMaker{now: func() time.Time { return now }}
		seen := map[string]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "IDs") {
			now = now.Add(time.Duration(rapid.Int64Range(-50, 50).Draw(t, "step")) * time.Microsecond)
			id := m.next()
			if seen[id] {
				t.Fatalf("%s was made twice", id)
			}
			seen[id] = true
		}
	})
}

// Two processes with the same number, clock and count make the same IDs; no message is lost.
func TestTwoMakersOfTheSameIDs(t *testing.T) {
	t.Parallel()
	const n = 50
	topic := newTopicName()
	at := time.Now()
	var mu sync.Mutex
	var pushing sync.WaitGroup
	ids := map[string]string{} // by body
	for _, who := range []string{"a", "b"} {
		p := open(t)
		p.ids = &idMaker{process: 1, now: func() time.Time { return at }}
		pushing.Go(func() {
			for i := range n {
				body := who + string(rune('0'+i))
				id, err := p.Push(topic, body, 3600)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				ids[body] = id
				mu.Unlock()
			}
		})
	}
	pushing.Wait()
	p := open(t)
	for body, id := range ids {
		if m := get(t, p, topic, id); string(m.Body) != body {
			t.Errorf("%s is %q, want %q", id, m.Body, body)
		}
	}
	if s, err := inspect(t, p).Stats(t.Context(), topic); err != nil || s.Live() != 2*n {
		t.Errorf("P1: %d messages are stored, %v; want %d", s.Live(), err, 2*n)
	}
}

func TestBodyTooLarge(t *testing.T) {
	t.Parallel()
	if _, err := open(t).Push(newTopicName(), strings.Repeat("x", limits.DefaultMaxBody+1), 0); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}
