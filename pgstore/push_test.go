package pgstore

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// The answer of a push is that of the try that was committed. A try that was rolled back may have met another holder of the ID, and
// nothing of what it had found stays.
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
		p := &push{ms: []punctual.NewMessage{{Topic: "orders"}}, out: []punctual.PushResult{found}}
		p.out[0].ID, p.out[0].Topic = "7", "orders"
		got := newInserted()
		got.numbers["orders"], got.due[stored{1, "7"}] = 1, due.UnixMilli()
		want := punctual.PushResult{ID: "7", Topic: "orders", Status: punctual.PushStored, Due: due}
		if !p.took(0, got, punctual.PushStored) || !reflect.DeepEqual(p.out[0], want) {
			t.Errorf("a try that found %s, then one that stored the message: %+v; want %+v", name, p.out[0], want)
		}
	}
	// The clock may pass the last due time between the check and the statement.
	p := &push{
		ms:  []punctual.NewMessage{{Topic: "orders", Delay: time.Hour}},
		out: []punctual.PushResult{{ID: "7", Topic: "orders", Status: punctual.PushReplaced}},
	}
	got := newInserted()
	got.micros, got.paused["orders"] = punctual.MaxDue.UnixMicro(), false
	if !p.took(0, got, p.out[0].Status) || p.out[0].Err == nil || p.out[0].Status != punctual.PushNone {
		t.Errorf("a message that is due too late: %+v; want an error and no status", p.out[0])
	}
}

// IDs that the store makes are stored by a statement that takes them for free. If one of them is in use after all, the push is carried out
// again by the statement that expects that, and answers as ever. Where the caller has chosen an ID, the first statement is not tried.
func TestPushOfNewIDs(t *testing.T) {
	t.Parallel()
	tables := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	pushOrders(t, tables, 1, time.Hour) // whose ID is 0
	var mu sync.Mutex
	var sent []string
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, namesOfStatements(s, statements)...)
	})
	for _, c := range []struct {
		name, id string // the ID that the caller has chosen
		made     string // the ID that the store is to have made of the first message
		want     []string
		status   punctual.PushStatus
	}{
		{"new", "", "", []string{"push_new"}, punctual.PushStored},
		{"chosen and free", "a", "", []string{"push"}, punctual.PushStored},
		{"chosen and in use", "0", "", []string{"push"}, punctual.PushDuplicate},
		{"made and in use", "", "0", []string{"push_new", "push"}, punctual.PushDuplicate},
	} {
		due := time.Now().Add(time.Hour)
		p := s.pushOf([]punctual.NewMessage{{Topic: "orders", ID: c.id, Due: due}, {Topic: "orders", Delay: time.Hour}})
		if c.made != "" {
			p.out[0].ID = c.made
		}
		mu.Lock()
		sent = nil
		mu.Unlock()
		if left, err := p.push(t.Context(), ownWay{s}, []int{0, 1}); err != nil || len(left) > 0 {
			t.Fatalf("%s: %v, %v", c.name, left, err)
		}
		mu.Lock()
		got := slices.DeleteFunc(slices.Clone(sent), func(name string) bool { return !strings.HasPrefix(name, "push") })
		mu.Unlock()
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the push sends %q; want %q", c.name, got, c.want)
		}
		if r := p.out[0]; r.Err != nil || r.Status != c.status {
			t.Errorf("%s: %+v; want status %v", c.name, r, c.status)
		}
		for i, r := range p.out {
			info, err := s.Get(t.Context(), "orders", r.ID)
			if err != nil || r.Err != nil || !info.Due.Equal(r.Due) {
				t.Errorf("%s: message %d is answered %+v and stored as %+v, %v; want one due time", c.name, i, r, info, err)
			}
		}
	}
}
