package pgstore

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The answer of a push is that of the try that was committed. A try that was rolled back may have
// met another holder of the ID, and nothing of what that try has found stays in the answer.
func TestPushAnswersAfterARollback(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	earlier := map[string]punctual.PushResult{
		"nothing":     {},
		"a duplicate": {Status: punctual.PushDuplicate, Existing: punctual.StateScheduled, Due: due.Add(time.Hour)},
		"a replacing": {Status: punctual.PushReplaced},
		"an error":    {Existing: punctual.StateDead, Err: storekit.DuplicateError("orders", "7", due)},
	}
	for name, found := range earlier {
		p := &pushing{ms: []punctual.NewMessage{{Topic: "orders"}}, out: []punctual.PushResult{found}}
		p.out[0].ID, p.out[0].Topic = "7", "orders"
		got := newInserted()
		got.numbers["orders"], got.due[stored{1, "7"}] = 1, due.UnixMilli()
		want := punctual.PushResult{ID: "7", Topic: "orders", Status: punctual.PushStored, Due: due}
		if !p.took(0, got, punctual.PushStored) || !reflect.DeepEqual(p.out[0], want) {
			t.Errorf("a try that found %s, then one that stored the message: %+v; want %+v", name, p.out[0], want)
		}
	}
	// The clock may pass the last due time between the check and the statement.
	p := &pushing{
		ms:  []punctual.NewMessage{{Topic: "orders", Delay: time.Hour}},
		out: []punctual.PushResult{{ID: "7", Topic: "orders", Status: punctual.PushReplaced}},
	}
	got := newInserted()
	got.micros, got.paused["orders"] = limits.MaxDue.UnixMicro(), false
	if !p.took(0, got, p.out[0].Status) || p.out[0].Err == nil || p.out[0].Status != punctual.PushNone {
		t.Errorf("a message that is due too late: %+v; want an error and no status", p.out[0])
	}
}

// The answer of a push whose IDs the store makes is computed from the topics and the clock. It says
// what is stored of each message.
func TestPushOfNewIDs(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 123_456_000, time.UTC)) // within a millisecond, so that delays are rounded up
	s := openFresh(t, clock).(*Store)
	if _, err := s.Configure(t.Context(), "paused", punctual.SettingsPatch{PushPaused: new(true)}); err != nil {
		t.Fatal(err)
	}
	emit(t, s, "telling", punctual.EventPushed)
	makeTopic(t, s, "orders")
	ms := []punctual.NewMessage{
		{Topic: "orders"},
		{Topic: "orders", Delay: time.Nanosecond, ExpireAfter: time.Minute, Body: []byte("b"), Headers: map[string]string{"k": "v"}},
		{Topic: "orders", Delay: time.Hour, MaxAttempts: 3, DropExpired: true, Remember: time.Minute},
		{Topic: "orders", Due: time.Unix(1, 1)},
		{Topic: "paused"},
		{Topic: "new", Delay: time.Second},
		{Topic: "telling", Delay: time.Second},
	}
	rs, err := s.Push(t.Context(), ms)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rs {
		if ms[i].Topic == "paused" {
			if !errors.Is(r.Err, punctual.ErrPaused) {
				t.Errorf("push to a paused topic: %+v", r)
			}
			continue
		}
		if r.Err != nil || r.Status != punctual.PushStored {
			t.Errorf("push of %+v: %+v; want it stored", ms[i], r)
			continue
		}
		got, err := s.Get(t.Context(), r.Topic, r.ID)
		if err != nil {
			t.Errorf("P1: a message whose push succeeded: %v", err)
			continue
		}
		want, err := storekit.DueAt(clock.Now(), ms[i].Due, ms[i].Delay)
		if err != nil || !r.Due.Equal(want) || !got.Due.Equal(r.Due) {
			t.Errorf("push of %+v answers that it is due at %v, and it is due at %v; want %v, %v", ms[i], r.Due, got.Due, want, err)
		}
		if !slices.Equal(got.Body, ms[i].Body) || got.Headers["k"] != ms[i].Headers["k"] || got.MaxAttempts != ms[i].MaxAttempts ||
			got.DropExpired != ms[i].DropExpired || got.Remember != ms[i].Remember || !got.Expires.Equal(storekit.ExpiresAt(want, ms[i].ExpireAfter)) {
			t.Errorf("push of %+v stores %+v", ms[i], got)
		}
	}
	wantNoProblem(t, s)
}

// P7: an ID that the store has made is in use all the same. The message with that ID is a
// duplicate, and the other messages of the push are stored, each once.
func TestPushOfNewIDInUse(t *testing.T) {
	t.Parallel()
	tables := openFresh(t, nil).(*Store)
	var sent []string
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		for _, name := range namesOfStatements(s, statements) {
			if strings.HasPrefix(name, "push") {
				sent = append(sent, name)
			}
		}
	})
	pushOrders(t, tables, 1, time.Hour)
	p := newPushing(s, []punctual.NewMessage{{Topic: "orders"}, {Topic: "orders"}, {Topic: "orders"}})
	p.out[1].ID = "0"
	if left, err := p.push(t.Context(), ownTransactions{s}, []int{0, 1, 2}); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	if want := []string{"push_new", "push"}; !slices.Equal(sent, want) {
		t.Fatalf("this test shows nothing: the push sends %q; want %q", sent, want)
	}
	for i, want := range []punctual.PushStatus{punctual.PushStored, punctual.PushDuplicate, punctual.PushStored} {
		if r := p.out[i]; r.Err != nil || r.Status != want {
			t.Errorf("push of message %d: %+v; want %v", i, r, want)
		}
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Scheduled+st.Ready != 3 {
		t.Errorf("%+v, %v; want three messages", st, err)
	}
}

// wantNoProblem fails the test if Check finds a problem in the store.
func wantNoProblem(t *testing.T, s *Store) {
	t.Helper()
	if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("Check: %+v, %v", r, err)
	}
}
