package diskstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// tellingRig opens a store whose topic o tells of the given events, and keeps them for a minute.
func tellingRig(t *testing.T, o *Options, on punctual.Events) (*Store, *storekit.ManualClock) {
	t.Helper()
	clock := storekit.NewManualClock(testStart)
	o.Clock, o.Logger = clock, quiet
	s := openAt(t, "store", o)
	if _, err := s.Configure(t.Context(), "o", punctual.SettingsPatch{Emit: &on, EmitKeep: ptr(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	return s, clock
}

// toldOf returns the events of topic o that are ready.
func toldOf(t *testing.T, s *Store) (events []event.Event) {
	t.Helper()
	page, err := s.List(t.Context(), punctual.ListQuery{Topic: "o@events", State: punctual.StateReady, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page.Messages {
		e, err := event.Parse(m.Body)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// TestEventsOnDiskAloneAreSwept: a sweep drops events that have expired, also those on disk alone:
// memory has room for few, and the store is opened anew in between. An event under a lease stays,
// and so do those that have not expired.
func TestEventsOnDiskAloneAreSwept(t *testing.T) {
	const old = 200
	mem := vfs.NewMem()
	o := &Options{fs: mem, MemoryBytes: 20 * memory.MessageBytes, byHand: true}
	s, clock := tellingRig(t, o, punctual.EventPushed)
	for i := range old {
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Delay: time.Hour})
	}
	held, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o@events"}, Max: 5, Lease: time.Hour})
	if err != nil || len(held) != 5 {
		t.Fatal(len(held), err)
	}
	clock.Advance(time.Minute)
	if st := s.topics.Get("o@events").Memory.Stats(); st.Window+st.Held >= old-len(held) {
		t.Fatalf("%d of %d events are in memory, so none is on disk alone", st.Window+st.Held, old-len(held))
	}
	for i := range 2 {
		closeStore(t, s)
		s = openAt(t, "store", o)
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint("new", i), Delay: time.Hour})
		if err := storekit.SweepEvents(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := len(toldOf(t, s)); got != i+1 {
			t.Fatalf("P10: behind push %d there are %d events, want %d", i, got, i+1)
		}
	}
	for _, d := range held {
		if err := settle(t, s, d, punctual.SettleAck); err != nil {
			t.Errorf("ack of an event that was leased when it became too old: %v", err)
		}
	}
	if r := mustBeSound(t, s); r.Live != old+2+2 {
		t.Errorf("%d messages are there, want %d and 2 events", r.Live, old+2)
	}
}

// TestEventTakesItsID: a message that somebody has pushed under the ID of the next event is
// replaced, in whatever state it is.
func TestEventTakesItsID(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(s *Store)
	}{
		{"free", func(*Store) {}},
		{"ready", func(*Store) {}},
		{"leased", func(s *Store) { claim(t, s, "o@events", 1) }},
		{"dead", func(s *Store) { settleAll(t, s, claim(t, s, "o@events", 1), punctual.SettleDiscard) }},
		{"remembered", func(s *Store) { settleAll(t, s, claim(t, s, "o@events", 1), punctual.SettleAck) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := tellingRig(t, &Options{fs: vfs.NewMem(), byHand: true}, punctual.EventPushed)
			if _, err := s.Configure(t.Context(), "o@events", punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)}); err != nil {
				t.Fatal(err)
			}
			next := s.db.NextNumber() + 2 // the numbers before are for the message with that ID, and for the one that is told of
			if c.name == "free" {
				next--
			} else {
				push(t, s, punctual.NewMessage{Topic: "o@events", ID: storekit.EventID("0", int64(next)), Body: []byte("mine")})
				c.make(s)
			}
			push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Delay: time.Hour})
			page, err := s.List(t.Context(), punctual.ListQuery{Topic: "o@events", State: punctual.StateReady})
			if err != nil || len(page.Messages) != 1 || page.Messages[0].ID != storekit.EventID("0", int64(next)) {
				t.Fatalf("P7: the event of number %d is %+v, %v", next, page.Messages, err)
			}
			if got := toldOf(t, s); len(got) != 1 || got[0].ID != "a" {
				t.Errorf("told of %+v", got)
			}
			mustBeSound(t, s)
		})
	}
}

// TestEventAfterAReopen: a store that was opened anew under a lease tells of the ack, but does not
// know any more when the lease began.
func TestEventAfterAReopen(t *testing.T) {
	o := &Options{fs: vfs.NewMem(), byHand: true}
	s, clock := tellingRig(t, o, punctual.EventAcked)
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"}, punctual.NewMessage{Topic: "o", ID: "b"})
	clock.Advance(time.Second)
	ds := claim(t, s, "o", 2)
	if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = openAt(t, "store", o)
	if err := settle(t, s, ds[1], punctual.SettleAck); err != nil {
		t.Fatal(err)
	}
	want := event.Event{
		Event: punctual.EventAcked, Topic: "o", ID: "a", Attempt: 1, At: testStart.Add(time.Second),
		Created: testStart, FirstDue: testStart, Due: testStart, Delivered: testStart.Add(time.Second),
	}
	got := toldOf(t, s)
	if len(got) != 2 || got[0] != want {
		t.Fatalf("told of %+v, want %+v first", got, want)
	}
	want.ID, want.Delivered = "b", time.Time{}
	if got[1] != want {
		t.Errorf("after a reopen told of %+v, want %+v", got[1], want)
	}
}
