package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// A life without follow-ups takes three transactions of one message to the server each, however
// many messages live it at a time. This test lists the statements, because everybody would pay for
// a further one.
func TestStatementsOfALife(t *testing.T) {
	t.Parallel()
	tables := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	if _, err := tables.Configure(t.Context(), "orders", punctual.SettingsPatch{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent []string
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, strings.Join(namesOfStatements(s, statements), " "))
	})
	did := func() []string {
		mu.Lock()
		defer mu.Unlock()
		steps := slices.DeleteFunc(sent, func(step string) bool {
			return strings.HasSuffix(step, " store") || strings.HasSuffix(step, " store_clock") // of the goroutine that watches the tables
		})
		sent = nil
		return steps
	}
	for _, batch := range []int{1, 100} {
		did()
		pushOrdersOnce(t, s, batch)
		want := []string{"level plan topics_share push_new"}
		if got := did(); !slices.Equal(got, want) {
			t.Errorf("a push of %d messages sends %q; want %q", batch, got, want)
		}
		if _, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage(fmt.Sprint("chosen ", batch)), {Topic: "orders", Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		want = []string{"level plan topics_share push"}
		if got := did(); !slices.Equal(got, want) {
			t.Errorf("a push of a chosen ID and of one that the store makes sends %q; want %q", got, want)
		}
		ds := claimN(t, s, batch)
		want = []string{"level plan claim"}
		if got := did(); len(ds) != batch || !slices.Equal(got, want) {
			t.Errorf("a claim of %d messages found %d and sends %q; want %q", batch, len(ds), got, want)
		}
		ackAll(t, s, ds...)
		want = []string{"level plan ack"}
		if got := did(); !slices.Equal(got, want) {
			t.Errorf("an ack of %d messages sends %q; want %q", batch, got, want)
		}
	}
	// Follow-ups take a transaction, whatever their number and that of the settlements.
	pushOrdersOnce(t, s, 10)
	ds := claimN(t, s, 10)
	did()
	var ss []punctual.Settlement
	for _, d := range ds {
		ss = append(ss, settlement(d, punctual.SettleAck, laterMessage("one of "+d.ID), laterMessage("two of "+d.ID)))
	}
	if errs, err := s.Settle(t.Context(), ss); err != nil || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs, err)
	}
	want := []string{"BEGIN plan topics_share lock clock_and_settings", "push", "remove COMMIT"}
	if got := did(); !slices.Equal(got, want) {
		t.Errorf("acks with follow-ups send %q; want %q", got, want)
	}
	// Where an ID is remembered, or was, an ack is the same statement.
	remember := punctual.SettingsPatch{DedupeWindow: new(time.Hour)}
	forget := punctual.SettingsPatch{DedupeWindow: new(time.Duration(0))}
	for _, x := range []struct {
		what string
		set  *punctual.SettingsPatch
		push punctual.NewMessage
	}{
		{"with a window", &remember, punctual.NewMessage{}},
		{"without a window any more", &forget, punctual.NewMessage{}},
		{"with a window of its own", nil, punctual.NewMessage{Remember: time.Hour}},
	} {
		if x.set != nil {
			if _, err := tables.Configure(t.Context(), "orders", *x.set); err != nil {
				t.Fatal(err)
			}
		}
		x.push.Topic, x.push.Due = "orders", longDue
		if _, err := s.Push(t.Context(), []punctual.NewMessage{x.push}); err != nil {
			t.Fatal(err)
		}
		ds := claimN(t, s, 1)
		did()
		ackAll(t, s, ds...)
		if got, want := did(), []string{"level plan ack"}; !slices.Equal(got, want) {
			t.Errorf("the ack of a message %s sends %q; want %q", x.what, got, want)
		}
	}
	// The acks of a topic that tells of them take a transaction of several steps. The store learns
	// that by its claims. If another store claims, this one learns it by the first ack, which
	// begins by ack.sql in vain.
	emit(t, tables, "orders", punctual.EventAcked)
	for _, first := range []string{"level plan ack", ""} {
		pushOrdersOnce(t, s, 10)
		ds := claimN(t, tables, 10)
		did()
		ackAll(t, s, ds...)
		want := []string{"BEGIN plan lock_free under_token clock_and_settings", "remove topics_share topic_create events COMMIT"}
		if first != "" {
			want = append([]string{first}, want...)
		}
		if got := did(); !slices.Equal(got, want) {
			t.Errorf("acks that are told of send %q; want %q", got, want)
		}
	}
}

// pushOrdersOnce pushes messages that are due, with new IDs.
func pushOrdersOnce(t *testing.T, s *Store, n int) {
	t.Helper()
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", Due: longDue}
	}
	rs, err := s.Push(t.Context(), ms)
	for _, r := range rs {
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
	}
}

// namesOfStatements returns the names of statements by their texts. One without a name, such as
// COMMIT, is named by its first word.
func namesOfStatements(s *Store, texts []string) (names []string) {
	for _, text := range texts {
		name := strings.Fields(text)[0]
		for n, known := range s.db.sql {
			if known == text {
				name = n
			}
		}
		names = append(names, name)
	}
	return names
}
