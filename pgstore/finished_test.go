package pgstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

func keepFinished(t *testing.T, s *Store, topic string, d time.Duration) {
	t.Helper()
	if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{FinishedRetention: &d}); err != nil {
		t.Fatal(err)
	}
}

func noFinished(t *testing.T, s *Store, topic, id, when string) {
	t.Helper()
	if f, err := s.Finished(t.Context(), topic, id); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("%s there is a finished record of %s: %+v, %v", when, id, f, err)
	}
}

// count returns the number of rows of a table of the store.
func count(t *testing.T, s *Store, table string) (n int) {
	t.Helper()
	if err := s.db.pool.QueryRow(t.Context(), inSchema("SELECT count(*) FROM punctual."+table, s.opt.Schema)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A message that is cancelled in a transaction of the caller's leaves its finished record exactly
// if that commits.
func TestFinishedRecordOfACancelInATransaction(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
		keepFinished(t, s, "orders", time.Hour)
		for _, id := range []string{`kept "1"`, "gone"} {
			if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id, Delay: time.Hour}}); err != nil {
				t.Fatal(err)
			}
			commit := id != "gone"
			tx, _, end := begin(t, s)
			if err := s.CancelTx(t.Context(), tx, "orders", id); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			noFinished(t, s, "orders", id, "before the commit")
			if err := end(commit); err != nil {
				t.Fatal(err)
			}
			if !commit {
				noFinished(t, s, "orders", id, "after the rollback")
				continue
			}
			f, err := s.Finished(t.Context(), "orders", id)
			if err != nil || f.Outcome != punctual.OutcomeCancelled || f.ID != id || f.Topic != "orders" || !f.Delivered.IsZero() {
				t.Errorf("%s: after the commit the finished record is %+v, %v", name, f, err)
			}
		}
	}
}

// The first end of a message counts: an ack beside a cancel in a caller's transaction leaves the
// finished record of the one that took effect.
func TestFinishedRecordOfTheEndThatTookEffect(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
		keepFinished(t, s, "orders", time.Hour)
		d := leaseOne(t, s, "orders", "m")
		if _, err := s.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.message SET visible_at = 0", s.opt.Schema)); err != nil { // its lease is over
			t.Fatal(err)
		}
		tx, err := s.db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CancelTx(t.Context(), Pgx(tx), "orders", "m"); err != nil {
			t.Fatal(err)
		}
		done := make(chan []error, 1)
		go func() { done <- settleAll(t, s, d) }()
		if commit {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		want, outcome := error(nil), punctual.OutcomeAcked
		if commit {
			want, outcome = punctual.ErrLeaseLost, punctual.OutcomeCancelled
		}
		if errs := <-done; !errors.Is(errs[0], want) {
			t.Errorf("an ack behind a cancel (commit: %v): %v, want %v", commit, errs[0], want)
		}
		if f, err := s.Finished(t.Context(), "orders", "m"); err != nil || f.Outcome != outcome {
			t.Errorf("a cancel (commit: %v) before an ack leaves %+v, %v; want %s", commit, f, err, outcome)
		}
	}
}

// Finished records are removed when their retention is over, or with their topic.
func TestFinishedRecordsAreSwept(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keepFinished(t, s, "short", time.Millisecond)
	keepFinished(t, s, "long", time.Hour)
	for _, topic := range []string{"short", "long"} {
		ackAll(t, s, leaseOne(t, s, topic, "m"))
	}
	waitUntil(t, "the retention of a finished record to end", func() bool {
		_, err := s.Finished(t.Context(), "short", "m")
		return errors.Is(err, punctual.ErrNotFound)
	})
	if n := count(t, s, "finished"); n != 2 {
		t.Fatalf("%d finished records are stored before the sweep, want 2: this shows nothing", n)
	}
	if err := s.remover.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finished(t.Context(), "long", "m"); err != nil || count(t, s, "finished") != 1 {
		t.Errorf("after a sweep %d finished records are stored, want 1: %v", count(t, s, "finished"), err)
	}
	if _, err := s.DeleteTopic(t.Context(), "long"); err != nil {
		t.Fatal(err)
	}
	if records, dropped := count(t, s, "finished"), count(t, s, "dropped_topic"); records+dropped != 0 {
		t.Errorf("after its topic was deleted %d finished records are stored, and %d deleted topics noted", records, dropped)
	}
}

// Check names finished records that no sound store has.
func TestSlowDamagedFinishedRecord(t *testing.T) {
	t.Parallel()
	for column, value := range map[string]string{"outcome": `'eaten'`, "forget_at": "ended_at", "attempts": "-1", "failures": `ARRAY['?'::bytea]`} {
		s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
		keepFinished(t, s, "orders", time.Hour)
		ackAll(t, s, leaseOne(t, s, "orders", "m"))
		if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
			t.Fatalf("Check of a sound store: %+v, %v", r, err)
		}
		if n, err := s.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.finished SET "+column+" = "+value, s.opt.Schema)); err != nil || n.RowsAffected() != 1 {
			t.Fatalf("the damage was not done: %v, %v", n, err)
		}
		r, err := s.Check(t.Context(), nil)
		if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "topic orders: m ") {
			t.Errorf("%s: Check answers %+v, %v; want the record", column, r, err)
		}
		if _, err := s.Finished(t.Context(), "orders", "m"); column == "failures" && !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("a finished record whose history cannot be read: Finished answers %v", err)
		}
	}
}
