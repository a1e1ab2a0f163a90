package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/punctualmq/punctual"
)

// holdings are what a caller's transaction may have done with ID 7 of the topic orders while it
// stays open.
var holdings = map[string]func(ctx context.Context, s *Store, tx pgx.Tx) error{
	"stored": func(ctx context.Context, s *Store, tx pgx.Tx) error {
		_, err := s.PushTx(ctx, Pgx(tx), laterMessage("7"))
		return err
	},
	"moved": func(ctx context.Context, s *Store, tx pgx.Tx) error {
		if _, err := s.Push(ctx, []punctual.NewMessage{laterMessage("7")}); err != nil {
			return err
		}
		_, err := s.RescheduleTx(ctx, Pgx(tx), punctual.Amendment{Topic: "orders", ID: "7", Delay: 2 * time.Hour})
		return err
	},
	"locked": func(ctx context.Context, s *Store, tx pgx.Tx) error {
		if _, err := s.Push(ctx, []punctual.NewMessage{laterMessage("7")}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, inSchema("SELECT FROM punctual.message WHERE id = '7' FOR UPDATE", s.opt.Schema))
		return err
	},
}

// hold opens a transaction that holds something as how says, such as ID 7 of the topic orders. It
// makes the topic before, because a transaction that had made the topic would hold up all pushes to
// it.
func hold(t *testing.T, s *Store, how func(ctx context.Context, s *Store, tx pgx.Tx) error) pgx.Tx {
	t.Helper()
	makeTopic(t, s, "orders")
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if err := how(t.Context(), s, tx); err != nil {
		t.Fatalf("this test shows nothing: nobody holds the message: %v", err)
	}
	return tx
}

// pushBeside pushes messages of which a transaction holds some. A slow machine may not find all the
// others within the time that a call has for it. Then the whole call is made again, held IDs
// included, as a program would, three times at most.
func pushBeside(t *testing.T, s *Store, ms []punctual.NewMessage, held func(id string) bool) []punctual.PushResult {
	t.Helper()
	for try := 1; ; try++ {
		rs, err := s.Push(t.Context(), ms)
		if err != nil {
			t.Fatalf("P14: a call with IDs that are held: %v; want an answer for each", err)
		}
		refused := slices.ContainsFunc(rs, func(r punctual.PushResult) bool { return !held(r.ID) && errors.Is(r.Err, punctual.ErrOverloaded) })
		if !refused || try == 3 {
			return rs
		}
	}
}

// P14: a caller's transaction holds one of the IDs that a call pushes. The others are stored while
// it is open, and the answer for the one that is held is definite and says what to do. When the
// transaction is over, it is pushed.
func TestPushBesideAHeldID(t *testing.T) {
	t.Parallel()
	const all = 20
	for name, how := range holdings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
			tx := hold(t, s, how)
			var ms []punctual.NewMessage
			for n := range all {
				ms = append(ms, laterMessage(fmt.Sprint(n)))
			}
			for _, r := range pushBeside(t, s, ms, func(id string) bool { return id == "7" }) {
				switch {
				case r.ID == "7":
					wantDefinite(t, "push of the ID that is held", r.Err, errHeld)
				case r.Err != nil || r.Status != punctual.PushStored && r.Status != punctual.PushDuplicate:
					t.Errorf("P14: push of %s beside an ID that is held: %+v; want it stored", r.ID, r)
				}
			}
			_, err := s.Push(t.Context(), ms[7:8])
			wantDefinite(t, "push of that ID alone", err, errHeld)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			rs, err := s.Push(t.Context(), ms)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if r.Err != nil || r.Status != punctual.PushDuplicate {
					t.Errorf("push of %s when the transaction is over: %+v; want a duplicate", r.ID, r)
				}
			}
		})
	}
}

// P14: the same through a Queue, which puts pushes to a topic into one batch. All but the held one
// succeed while the transaction is open.
func TestQueuePushesBesideAHeldID(t *testing.T) {
	t.Parallel()
	const all = 20
	for name, how := range holdings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
			tx := hold(t, s, how)
			q := punctual.NewQueue(s, nil)
			defer func() {
				if err := q.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			push := func(id string) error {
				_, err := q.Push(t.Context(), "orders", nil, punctual.ID(id))
				return err
			}
			errs := make([]error, all)
			var calls sync.WaitGroup
			for n := range errs {
				calls.Go(func() { errs[n] = push(fmt.Sprint(n)) })
			}
			calls.Wait()
			for n, err := range errs {
				if n == 7 {
					wantDefinite(t, "push of the ID that is held", err, errHeld)
				} else if err != nil {
					t.Errorf("P14: push of %d beside an ID that is held: %v", n, err)
				}
			}
			logSessions(t, s)
			done := make(chan error, 1)
			go func() { done <- push("7") }()
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("the push when the transaction is over: %v", err)
			}
		})
	}
}

// P14: a call amends messages one of which a caller's transaction holds. The others are amended
// while the transaction is open.
func TestAmendBesideAHeldMessage(t *testing.T) {
	t.Parallel()
	const all = 20
	for name, how := range holdings {
		if name == "stored" { // an amendment does not find a message that is not committed
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
			tx := hold(t, s, how)
			var as []punctual.Amendment
			for n := range all {
				if n != 7 {
					if _, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage(fmt.Sprint(n))}); err != nil {
						t.Fatal(err)
					}
				}
				as = append(as, punctual.Amendment{Topic: "orders", ID: fmt.Sprint(n), Change: punctual.ChangeCancel})
			}
			out, err := s.Amend(t.Context(), as)
			if err != nil {
				t.Fatalf("P14: a call with one message that is held: %v; want an answer for each", err)
			}
			for n, a := range out {
				if n == 7 {
					wantDefinite(t, "cancel of the message that is held", a.Err, errHeld)
				} else if a.Err != nil {
					t.Errorf("P14: cancel of %d beside a message that is held: %v", n, a.Err)
				}
			}
			_, err = s.Amend(t.Context(), as[7:8])
			wantDefinite(t, "cancel of that message alone", err, errHeld)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out, err := s.Amend(t.Context(), as); err != nil || out[7].Err != nil || !errors.Is(out[0].Err, punctual.ErrNotFound) {
				t.Errorf("cancel when the transaction is over: %v, %v", out, err)
			}
		})
	}
}

// P14: a transaction holds every fourth ID of a call. The others are stored all the same, and the
// call ends.
func TestPushBesideManyHeldIDs(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	var ms, held []punctual.NewMessage
	for n := range 40 {
		ms = append(ms, laterMessage(fmt.Sprint(n)))
		if n%4 == 0 {
			held = append(held, ms[n])
		}
	}
	hold(t, s, func(ctx context.Context, s *Store, tx pgx.Tx) error {
		_, err := s.PushManyTx(ctx, Pgx(tx), held)
		return err
	})
	isHeld := func(id string) bool {
		return slices.ContainsFunc(held, func(m punctual.NewMessage) bool { return m.ID == id })
	}
	for n, r := range pushBeside(t, s, ms, isHeld) {
		if n%4 == 0 {
			wantDefinite(t, "push of an ID that is held", r.Err, errHeld)
		} else if r.Err != nil {
			t.Errorf("P14: push of %s beside IDs that are held: %v", r.ID, r.Err)
		}
	}
}

// P13: when a group of items fails, those that were tried before in a larger group, and are free by
// now, are given up. Their error is definite, and does not say that they were not tried.
func TestGivenUpBehindAFailure(t *testing.T) {
	t.Parallel()
	broke := fmt.Errorf("the connection broke: %w", punctual.ErrUnreachable)
	together := false
	got := make(map[int]error)
	err := besideHeld([]int{0, 1}, true, func(_ time.Duration, group []int) ([]int, error) {
		if len(group) == 2 {
			together = true
			return group, errLockTimeout
		}
		return group, broke
	}, func(i int, err error) { got[i] = err })
	if err != nil || !together || !errors.Is(got[0], broke) {
		t.Fatalf("this test shows nothing: the first of two items, tried together %v, has the error %v; the call has %v", together, got[0], err)
	}
	wantDefinite(t, "the other item", got[1], punctual.ErrUnreachable)
	if got[1] == nil || !strings.Contains(got[1].Error(), "not done") {
		t.Errorf("the error of the other item is %v; want one that says that it was not done", got[1])
	}
}
