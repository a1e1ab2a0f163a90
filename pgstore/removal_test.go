package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// TestRemovalBehindAChange: an ack or a purge waits for a change of the same message under way, such as the extension
// of its lease. It then removes the message in the state that the change has left.
func TestRemovalBehindAChange(t *testing.T) {
	t.Parallel()
	ack := func(ctx context.Context, s *Store, d *punctual.Delivery) error {
		errs, err := s.Settle(ctx, []punctual.Settlement{{Topic: "t", ID: "a", Token: d.Token, Verb: punctual.SettleAck}})
		return errors.Join(append(errs, err)...)
	}
	purge := func(ctx context.Context, s *Store, _ *punctual.Delivery) error {
		n, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "t", State: punctual.StateLeased})
		if err == nil && n != 1 {
			return fmt.Errorf("%d messages purged, want 1", n)
		}
		return err
	}
	for name, remove := range map[string]func(context.Context, *Store, *punctual.Delivery) error{"ack": ack, "ack, remembered": ack, "purge": purge} {
		window := time.Duration(0)
		if name == "ack, remembered" {
			window = time.Hour
		}
		s := openFresh(t, nil).(*Store)
		ctx := t.Context()
		if _, err := s.Configure(ctx, "t", punctual.SettingsPatch{DedupeWindow: &window}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "a"}}); err != nil {
			t.Fatal(err)
		}
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute})
		if err != nil || len(ds) != 1 {
			t.Fatalf("claim: %d deliveries, %v", len(ds), err)
		}
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var changing int
		if err := tx.QueryRow(ctx, "UPDATE "+s.opt.Schema+".message SET visible_at = visible_at + 1 RETURNING pg_backend_pid()").Scan(&changing); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- remove(ctx, s, &ds[0]) }()
		if name == "purge" { // an ack skips the message, and tries again for a while
			awaitBlocked(t, s, changing)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info, err := s.Get(ctx, "t", "a"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("%s: the message is still there: %+v, %v", name, info, err)
		}
	}
}

// TestChangeBehindAReplacement: a change that waits for a push which replaces the message finds the new one (P5). There is no
// instant at which the ID is free.
func TestChangeBehindAReplacement(t *testing.T) {
	t.Parallel()
	for _, change := range []punctual.Change{punctual.ChangeCancel, punctual.ChangeReschedule, punctual.ChangeRequeue} {
		s := openFresh(t, nil).(*Store)
		ctx := t.Context()
		if _, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "a", Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var replacing int
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&replacing); err != nil {
			t.Fatal(err)
		}
		r, err := s.PushTx(ctx, Pgx(tx), punctual.NewMessage{Topic: "t", ID: "a", Delay: 2 * time.Hour, IfExists: punctual.IfExistsReplace, Body: []byte("new")})
		if err != nil || r.Status != punctual.PushReplaced {
			t.Fatalf("push: %+v, %v", r, err)
		}
		done := make(chan error, 1)
		go func() {
			a := punctual.Amendment{Topic: "t", ID: "a", Change: change}
			if change != punctual.ChangeCancel {
				a.Delay = 3 * time.Hour
			}
			out, err := s.Amend(ctx, []punctual.Amendment{a})
			if err == nil {
				err = out[0].Err
			}
			done <- err
		}()
		awaitBlocked(t, s, replacing)
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		want := error(nil)
		if change == punctual.ChangeRequeue {
			want = punctual.ErrNotDead
		}
		if err := <-done; !errors.Is(err, want) {
			t.Errorf("%v behind a replacement: %v, want %v", change, err, want)
		}
		info, err := s.Get(ctx, "t", "a")
		if change == punctual.ChangeCancel && !errors.Is(err, punctual.ErrNotFound) || change != punctual.ChangeCancel && string(info.Body) != "new" {
			t.Errorf("%v behind a replacement left %+v, %v", change, info, err)
		}
	}
}

// TestPushHalfRefused: a push stores what nothing is in the way of, and then reads the messages whose IDs others have. When that
// fails, those alone have the error: the others are stored (P13).
func TestPushHalfRefused(t *testing.T) {
	t.Parallel()
	s := openFresh(t, nil).(*Store)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	var holding int
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM "+s.opt.Schema+".message FOR UPDATE").Scan(&holding); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	type answer struct {
		rs  []punctual.PushResult
		err error
	}
	done := make(chan answer, 1)
	go func() {
		rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "a"}, {Topic: "t", ID: "b", Delay: time.Hour}})
		done <- answer{rs, err}
	}()
	awaitBlocked(t, s, holding)
	end()
	got := <-done
	if got.err != nil {
		t.Fatalf("push: %v; want an error of one message alone", got.err)
	}
	if a := got.rs[0]; !errors.Is(a.Err, context.Canceled) || a.Status != punctual.PushNone {
		t.Errorf("the message that waited: %+v", a)
	}
	if b := got.rs[1]; b.Err != nil || b.Status != punctual.PushStored {
		t.Errorf("the message in nobody's way: %+v", b)
	}
	if _, err := s.Get(t.Context(), "t", "b"); err != nil {
		t.Error(err)
	}
}

// awaitBlocked waits until a session waits for the one with the number pid.
func awaitBlocked(t *testing.T, s *Store, pid int) {
	t.Helper()
	awaitBlockedOr(t, s, pid, func() bool { return false })
}

// awaitBlockedOr is awaitBlocked for what may not wait, as it should: done reports that it did not.
func awaitBlockedOr(t *testing.T, s *Store, pid int, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		var blocked int
		err := s.pool.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", pid).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
		if blocked > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the change, so this shows nothing")
		}
	}
}

// A topic that is deleted while a change waits for its message takes the message along: the change finds nothing.
func TestTopicDeletedUnderAChange(t *testing.T) {
	t.Parallel()
	amend := func(c punctual.Change) func(*Store, punctual.Delivery) error {
		return func(s *Store, d punctual.Delivery) error {
			rs, err := s.Amend(t.Context(), []punctual.Amendment{{Change: c, Topic: d.Topic, ID: d.ID}})
			if err != nil {
				return err
			}
			return rs[0].Err
		}
	}
	settle := func(v punctual.Verb) func(*Store, punctual.Delivery) error {
		return func(s *Store, d punctual.Delivery) error {
			errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v}})
			if err != nil {
				return err
			}
			return errs[0]
		}
	}
	for name, c := range map[string]struct {
		leased bool
		do     func(*Store, punctual.Delivery) error
		want   error
	}{
		"cancel":     {false, amend(punctual.ChangeCancel), punctual.ErrNotFound},
		"reschedule": {false, amend(punctual.ChangeReschedule), punctual.ErrNotFound},
		"retry":      {true, settle(punctual.SettleRetry), punctual.ErrLeaseLost},
		"discard":    {true, settle(punctual.SettleDiscard), punctual.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			d := punctual.Delivery{Message: punctual.Message{Topic: "orders", ID: "a"}}
			if c.leased {
				d = leaseOne(t, s, "orders", "a")
			} else if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "a", Delay: time.Hour}}); err != nil {
				t.Fatal(err)
			}
			tx, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			if _, err := tx.Exec(t.Context(), inSchema("SELECT FROM punctual.message WHERE id = 'a' FOR UPDATE", s.opt.Schema)); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			go func() { answer <- c.do(s, d) }()
			for waiting := 0; waiting == 0 && !c.leased; { // a settlement skips the message, and tries again
				select {
				case err := <-answer:
					t.Fatalf("%s did not wait for who has the message locked: %v", name, err)
				default:
				}
				err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+s.opt.Schema+"%'").Scan(&waiting)
				if err != nil {
					t.Fatal(err)
				}
			}
			if numbers, _, err := s.dropTopic(t.Context(), "orders"); err != nil || len(numbers) != 1 {
				t.Fatalf("the topic was not deleted: %v, %v", numbers, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-answer; !errors.Is(err, c.want) {
				t.Errorf("%s of a message whose topic was deleted meanwhile: %v, want %v", name, err, c.want)
			}
		})
	}
}

// P1: the deletion of a topic waits for pushes to it that are under way, and takes their messages along. Otherwise a push could succeed
// under the number of a topic that is gone.
func TestDeletionWaitsForPushes(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	pushOrders(t, s, 1, time.Hour)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	pushTx(t, s, Pgx(tx), message("under way"))
	var pid int
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		n   int64
		err error
	}
	deleted := make(chan answer, 1)
	go func() {
		n, err := s.DeleteTopic(context.Background(), "orders")
		deleted <- answer{n, err}
	}()
	awaitBlockedOr(t, s, pid, func() bool { return len(deleted) > 0 })
	if len(deleted) > 0 {
		t.Error("P1: a topic was deleted beside a push to it that had not committed")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-deleted; got.err != nil || got.n != 2 {
		t.Errorf("DeleteTopic answers %d messages, %v; want the one that was there and the one under way", got.n, got.err)
	}
}

// A purge goes by the states when it begins: what is pushed, or dies, or becomes ready behind that, stays.
func TestPurgeLeavesWhatCameLater(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s := openFresh(t, clock).(*Store)
	begun := clock.Now().UnixMilli()
	pushOrders(t, s, 1, 0)
	clock.Advance(time.Second)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "later"}, {Topic: "orders", ID: "dies later"}}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	for _, d := range claimN(t, s, 10) {
		if d.ID == "dies later" {
			if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	live := []any{"orders", int32(punctual.StateNone), int64(math.MinInt64), int64(math.MaxInt64), begun, sweepItems, int64(0), ""}
	if got, err := s.purgeSome(t.Context(), "purge_live", live); err != nil || !slices.Equal(got.ids, []string{"0"}) {
		t.Errorf("a purge that began before the push of a message removes %v, %v; want the earlier one alone", got.ids, err)
	}
	dead := []any{"orders", int64(math.MinInt64), int64(math.MaxInt64), begun, sweepItems, int64(math.MinInt64), ""}
	if got, err := s.purgeSome(t.Context(), "purge_dead", dead); err != nil || len(got.ids) > 0 {
		t.Errorf("a purge that began before a message died removes %v, %v; want none", got.ids, err)
	}
}
