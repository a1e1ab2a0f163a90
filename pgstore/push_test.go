package pgstore

import (
	"reflect"
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
