package diskstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// golden is a store of directory.FormatVersion with a message in every state, a lease in the claim
// log, an ack that is in the claim log alone, a group, a schedule's topic, and events. Every later
// program must read it.
//
// Once a version was released, the directory made by the first release that wrote it stays as it
// is. What comes later gets a directory of its own. PUNCTUAL_GOLDEN=write go test -run Golden
// ./diskstore writes golden.
var golden = filepath.Join("testdata", fmt.Sprint("format-", directory.FormatVersion))

func TestGoldenFormat(t *testing.T) {
	if os.Getenv("PUNCTUAL_GOLDEN") == "write" {
		writeGolden(t)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dir, &Options{Clock: storekit.NewManualClock(testStart.Add(time.Second))})
	readGolden(t, s)
	if _, err := os.Stat(filepath.Join(dir, fmt.Sprint("FORMAT-", directory.FormatVersion))); err != nil {
		t.Errorf("the format is not told to other programs: %v", err)
	}
	ownerFiles(t, dir)
}

// TestGoldenClock: a store takes its clock over from the claim log of a golden store.
func TestGoldenClock(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dir, &Options{Clock: storekit.NewManualClock(testStart.Add(-time.Hour))})
	if now, err := s.Now(t.Context()); err != nil || !now.Equal(testStart.Add(goldenLate)) {
		t.Errorf("P8: the clock says %v, %v; want %v, where the claim log has it", now, err, testStart.Add(goldenLate))
	}
}

const (
	goldenTopic = "order.cancel"
	// goldenLate is how long after everything else the lease is extended.
	goldenLate = 500 * time.Millisecond
	// goldenRetention is how long finished records are kept.
	goldenRetention = 36 * time.Hour
	// goldenRemember is the Remember of messages that have one.
	goldenRemember = 12 * time.Hour
)

// goldenSettings are the settings of topic "done".
var goldenSettings = punctual.SettingsPatch{
	Lease: ptr(time.Minute), MaxAttempts: ptr(7), Backoff: &punctual.Backoff{Base: 1500 * time.Microsecond, Max: time.Minute, Jitter: 0.25},
	DeadRetention: ptr(48 * time.Hour), DedupeWindow: ptr(24 * time.Hour), FinishedRetention: ptr(goldenRetention),
	Groups: ptr([]string{"stock"}), Emit: ptr(punctual.EventAcked | punctual.EventCancelled), EmitKeep: ptr(72 * time.Hour), PushPaused: ptr(false), DeliveryPaused: ptr(false),
}

// fillGolden leaves a store with a message in each state: scheduled, ready, leased (attempt 1),
// dead, retried (attempt 1, one failure) and acked (gone). In topic "done" it leaves a finished ID
// that is remembered, with its finished record and the event of its ack.
func fillGolden(t *testing.T, s *Store) {
	configure(t, s, goldenTopic, punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{time.Hour}}})
	configure(t, s, "done", goldenSettings)
	push(t, s, punctual.NewMessage{Topic: "done", ID: "finished"})
	if err := settle(t, s, claim(t, s, "done", 1)[0], punctual.SettleAck); err != nil {
		t.Fatal(err)
	}
	for id, verb := range map[string]punctual.Verb{"dead": punctual.SettleDiscard, "retried": punctual.SettleRetry, "acked": punctual.SettleAck, "leased": 0} {
		m := punctual.NewMessage{Topic: goldenTopic, ID: id, Body: []byte("body of " + id), Headers: map[string]string{"k": "v"}}
		if verb != punctual.SettleAck { // because with a Remember the ack would not be in the claim log alone
			m.Remember = goldenRemember
		}
		push(t, s, m)
		d := claim(t, s, goldenTopic, 1)[0]
		if verb == 0 {
			continue
		}
		st := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb}
		if verb == punctual.SettleRetry {
			st.Delay = punctual.UseBackoff
		}
		if verb != punctual.SettleAck {
			st.Error = "no luck"
		}
		if errs, err := s.Settle(t.Context(), []punctual.Settlement{st}); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
	}
	push(t, s,
		punctual.NewMessage{Topic: goldenTopic, ID: "ready", Body: []byte("body of ready"), MaxAttempts: 3},
		punctual.NewMessage{Topic: goldenTopic, ID: "scheduled", Body: []byte("body of scheduled"), Due: limits.MaxDue, ExpireAfter: time.Hour, DropExpired: true, Remember: goldenRemember},
	)
}

func configure(t *testing.T, s *Store, topic string, p punctual.SettingsPatch) {
	t.Helper()
	if _, err := s.Configure(t.Context(), topic, p); err != nil {
		t.Fatal(err)
	}
}

// writeGolden copies the files of a store that was not closed, as after kill -9.
func writeGolden(t *testing.T) {
	dir := t.TempDir()
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, dir, &Options{Clock: clock})
	fillGolden(t, s)
	token := s.index.Leases()[0].Token // there is one lease
	clock.Advance(goldenLate)
	if err := settle(t, s, punctual.Delivery{Message: punctual.Message{Topic: goldenTopic, ID: "leased"}, Token: token}, punctual.SettleExtend); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(golden); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(golden, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
}

// readGolden checks what the golden store has.
func readGolden(t *testing.T, s *Store) {
	if r := mustBeSound(t, s); r.Live != 5 || r.Dead != 1 || r.Topics != 4 {
		t.Errorf("holds %d topics, %d live and %d dead messages; want 4, 5 and 1", r.Topics, r.Live, r.Dead)
	}
	states := map[string]punctual.State{
		"scheduled": punctual.StateScheduled, "retried": punctual.StateScheduled,
		"ready": punctual.StateReady, "leased": punctual.StateLeased, "dead": punctual.StateDead,
	}
	for id, want := range states {
		i, err := s.Get(context.Background(), goldenTopic, id)
		if err != nil || i.State != want || string(i.Body) != "body of "+id {
			t.Errorf("%s: %+v, %v; want it %s with its body", id, i, err, want)
		}
		if asks := id != "ready"; asks != (i.Remember == goldenRemember) {
			t.Errorf("%s: remembered for %v", id, i.Remember)
		}
		if i.FirstDue.Before(i.Due) != (id == "retried") {
			t.Errorf("%s: first due %v, due %v", id, i.FirstDue, i.Due)
		}
		if failed := id == "retried" || id == "dead"; failed != (len(i.Failures) == 1 && i.Failures[0].Error == "no luck" && i.Attempt == 1) {
			t.Errorf("%s: attempt %d, history %v", id, i.Attempt, i.Failures)
		}
	}
	if _, err := s.Get(context.Background(), goldenTopic, "acked"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("the acked message is there: %v", err)
	}
	want, err := storekit.ApplySettings(punctual.DefaultSettings(), goldenSettings, storekit.CanSet{Partitions: 1, KeepsFinished: true, Emits: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Finished(context.Background(), "done", "finished")
	if err != nil || f.Outcome != punctual.OutcomeAcked || !f.At.Equal(testStart) || !f.Delivered.Equal(testStart) ||
		!f.KeptUntil.Equal(testStart.Add(goldenRetention)) || f.Attempt != 1 {
		t.Errorf("the finished record: %+v, %v", f, err)
	}
	if ds := claim(t, s, "done"+storekit.EventSuffix, 2); len(ds) != 1 {
		t.Errorf("%d events; want that of the ack", len(ds))
	} else if e, err := event.Parse(ds[0].Body); err != nil || e.ID != "finished" || !e.At.Equal(testStart) {
		t.Errorf("the event: %+v, %v", e, err)
	}
	if set, err := s.Settings(context.Background(), "done"); err != nil || !reflect.DeepEqual(set, want) {
		t.Errorf("the settings are %+v, %v; want %+v", set, err, want)
	}
	rs := push(t, s, punctual.NewMessage{Topic: "done", ID: "finished"})
	if rs[0].Status != punctual.PushDuplicate || rs[0].Existing != punctual.StateNone {
		t.Errorf("P7: the finished ID is not remembered: %+v", rs[0])
	}
}
