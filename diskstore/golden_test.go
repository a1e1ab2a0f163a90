package diskstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Each format version that was ever released has a directory testdata/format-N, made by
// the first release that wrote it: a store with a message in every state, a lease in the claim
// log and an ack that is only there. Every later release must read it.
//
// When formatVersion rises, run PUNCTUAL_GOLDEN=write go test -run Golden ./diskstore once and
// commit the new directory; the old ones stay as they are.
func TestGoldenFormats(t *testing.T) {
	if os.Getenv("PUNCTUAL_GOLDEN") == "write" {
		writeGolden(t, filepath.Join("testdata", "format-1"))
	}
	dirs, err := filepath.Glob("testdata/format-*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no golden stores: %v", err)
	}
	for _, golden := range dirs {
		t.Run(filepath.Base(golden), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
				t.Fatal(err)
			}
			readGolden(t, openAt(t, dir, &Options{Clock: punctual.NewManualClock(testStart.Add(time.Second))}))
		})
	}
}

const goldenTopic = "order.cancel"

// fillGolden leaves a store with: scheduled, ready, leased (attempt 1), dead, retried
// (attempt 1, one failure), acked (gone), and a remembered finished ID in topic "done".
func fillGolden(t *testing.T, s *Store) {
	day := 24 * time.Hour
	configure(t, s, goldenTopic, punctual.SettingsPatch{Backoff: &punctual.Backoff{Delays: []time.Duration{time.Hour}}})
	configure(t, s, "done", punctual.SettingsPatch{Remember: &day})
	push(t, s, punctual.NewMessage{Topic: "done", ID: "finished"})
	if err := settle(t, s, claim(t, s, "done", 1)[0], punctual.SettleAck); err != nil {
		t.Fatal(err)
	}
	for id, verb := range map[string]punctual.Verb{"dead": punctual.SettleDiscard, "retried": punctual.SettleRetry, "acked": punctual.SettleAck, "leased": 0} {
		push(t, s, punctual.NewMessage{Topic: goldenTopic, ID: id, Body: []byte("body of " + id), Headers: map[string]string{"k": "v"}})
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
		punctual.NewMessage{Topic: goldenTopic, ID: "scheduled", Body: []byte("body of scheduled"), Due: punctual.MaxDue, ExpireAfter: time.Hour, DropExpired: true},
	)
}

func configure(t *testing.T, s *Store, topic string, p punctual.SettingsPatch) {
	t.Helper()
	if _, err := s.Configure(t.Context(), topic, p); err != nil {
		t.Fatal(err)
	}
}

// writeGolden copies the files of a store that was not closed, as after kill -9.
func writeGolden(t *testing.T, golden string) {
	dir := t.TempDir()
	s := openAt(t, dir, &Options{Clock: punctual.NewManualClock(testStart)})
	fillGolden(t, s)
	if err := os.RemoveAll(golden); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(golden, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
}

func readGolden(t *testing.T, s *Store) {
	if r := mustBeSound(t, s); r.Live != 4 || r.Dead != 1 || r.Topics != 2 {
		t.Errorf("holds %d topics, %d live and %d dead messages; want 2, 4 and 1", r.Topics, r.Live, r.Dead)
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
		if failed := id == "retried" || id == "dead"; failed != (len(i.Failures) == 1 && i.Failures[0].Error == "no luck" && i.Attempt == 1) {
			t.Errorf("%s: attempt %d, history %v", id, i.Attempt, i.Failures)
		}
	}
	if _, err := s.Get(context.Background(), goldenTopic, "acked"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("the acked message is there: %v", err)
	}
	rs := push(t, s, punctual.NewMessage{Topic: "done", ID: "finished"})
	if rs[0].Status != punctual.PushDuplicate || rs[0].Existing != punctual.StateNone {
		t.Errorf("P7: the finished ID is not remembered: %+v", rs[0])
	}
}
