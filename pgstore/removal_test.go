package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// TestRemovalBehindAChange: while a change of a message is under way, such as the extension of its
// lease, a purge and an ack pass by the message and try again. Then they remove it in the state
// that the change has left.
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
	for name, c := range map[string]struct {
		remove    func(context.Context, *Store, *punctual.Delivery) error
		nth       int64 // the statement that is sent for the nth time tries again
		statement string
		window    time.Duration
	}{
		"ack":             {ack, 2, "lock_free", 0},
		"ack, remembered": {ack, 2, "lock_free", time.Hour},
		"purge":           {purge, 3, "purge_live", 0}, // the second step finds that there is no more
	} {
		other := openFresh(t, nil).(*Store)
		ctx := t.Context()
		if _, err := other.Configure(ctx, "t", punctual.SettingsPatch{DedupeWindow: &c.window}); err != nil {
			t.Fatal(err)
		}
		d := leaseOne(t, other, "t", "a")
		s, paused, goOn := pausedBefore(t, other, c.nth, c.statement)
		tx, err := other.db.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := tx.Exec(ctx, inSchema("UPDATE punctual.message SET visible_at = visible_at + 1", s.opt.Schema)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- untilFree(func() error { return c.remove(ctx, s, &d) }) }()
		awaitAgain(t, name, paused, done)
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		goOn()
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info, err := s.Get(ctx, "t", "a"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("%s: the message is still there: %+v, %v", name, info, err)
		}
	}
}

// awaitAgain waits until a call is about to try again; see pausedBefore. It fails the test if the
// call ends before.
func awaitAgain(t *testing.T, call string, paused <-chan struct{}, ended <-chan error) {
	t.Helper()
	select {
	case <-paused:
	case err := <-ended:
		t.Fatalf("%s did not wait for the transaction that holds the message: %v", call, err)
	case <-time.After(time.Minute):
		t.Fatalf("this test shows nothing: %s has not met the message that is held", call)
	}
}

// untilFree repeats a call that gives up because its message is held. The call may do so on a slow
// machine, which takes all the time that the call has for its first try.
func untilFree(call func() error) error {
	for {
		if err := call(); !errors.Is(err, errHeld) {
			return err
		}
	}
}

// TestChangeBehindAReplacement: a change that waits for a push which replaces the message finds the
// new one (P5). There is no instant at which the ID is free.
func TestChangeBehindAReplacement(t *testing.T) {
	t.Parallel()
	for _, change := range []punctual.Change{punctual.ChangeCancel, punctual.ChangeReschedule, punctual.ChangeRequeue} {
		s := openFresh(t, nil).(*Store)
		ctx := t.Context()
		if _, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "a", Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		tx, err := s.db.pool.Begin(ctx)
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

// TestPushHalfRefused: a push stores the messages whose IDs are free, and then locks the messages
// that have the other IDs. When the latter fails, the messages with these IDs alone have the error,
// and the others are stored (P13).
func TestPushHalfRefused(t *testing.T) {
	t.Parallel()
	s := openFresh(t, nil).(*Store)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.pool.Begin(t.Context())
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

// awaitBlockedOr is awaitBlocked for a call that should wait and may fail to. It also returns when
// done reports that the call has ended without waiting.
func awaitBlockedOr(t *testing.T, s *Store, pid int, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		var blocked int
		err := s.db.pool.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", pid).Scan(&blocked)
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

// A topic that is deleted while a change waits for its message takes the message along: the change
// finds nothing.
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
			tx, err := s.db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			var holding int
			if err := tx.QueryRow(t.Context(), inSchema("SELECT pg_backend_pid() FROM punctual.message WHERE id = 'a' FOR UPDATE", s.opt.Schema)).Scan(&holding); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			changing, paused, goOn := pausedBefore(t, s, 2, "lock_free")
			go func() { answer <- untilFree(func() error { return c.do(changing, d) }) }()
			if c.leased { // a settlement skips the message, and tries again
				awaitAgain(t, name, paused, answer)
			} else {
				awaitBlockedOr(t, s, holding, func() bool { return len(answer) > 0 })
			}
			if len(answer) > 0 {
				t.Fatalf("%s did not wait for the transaction that has the message locked: %v", name, <-answer)
			}
			if dropped, err := s.remover.dropTopic(t.Context(), "orders"); err != nil || len(dropped) != 1 {
				t.Fatalf("the topic was not deleted: %v, %v", dropped, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			goOn()
			if err := <-answer; !errors.Is(err, c.want) {
				t.Errorf("%s of a message whose topic was deleted meanwhile: %v, want %v", name, err, c.want)
			}
		})
	}
}

// P1: the deletion of a topic waits for pushes to the topic that are under way, and takes their
// messages along. Otherwise a push could succeed under the number of a topic that is gone.
func TestDeletionWaitsForPushes(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	pushOrders(t, s, 1, time.Hour)
	tx, err := s.db.pool.Begin(t.Context())
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

// A purge judges the states of messages by the time at which it begins: a message that is pushed
// later, dies later or becomes ready later stays.
func TestPurgeLeavesWhatCameLater(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s := openFresh(t, clock).(*Store)
	begun := clock.Now().UnixMilli()
	pushOrders(t, s, 1, 0)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "later", ID: "ready later", Delay: time.Second}}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "later"}, {Topic: "orders", ID: "dies later"}}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	if i, err := s.Get(t.Context(), "later", "ready later"); err != nil || i.State != punctual.StateReady {
		t.Fatalf("this test shows nothing: the message that was to become ready is %v, %v", i.State, err)
	}
	ready := []any{"later", int32(punctual.StateReady), int64(math.MinInt64), int64(math.MaxInt64), begun, sweepItems, int64(0), ""}
	if got, err := s.remover.purgeSome(t.Context(), "purge_live", ready); err != nil || len(got.ids) > 0 {
		t.Errorf("a purge of ready messages that began before a message became ready removes %v, %v; want none", got.ids, err)
	}
	for _, d := range claimN(t, s, 10) {
		if d.ID == "dies later" {
			if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	live := []any{"orders", int32(punctual.StateNone), int64(math.MinInt64), int64(math.MaxInt64), begun, sweepItems, int64(0), ""}
	if got, err := s.remover.purgeSome(t.Context(), "purge_live", live); err != nil || !slices.Equal(got.ids, []string{"0"}) {
		t.Errorf("a purge that began before the push of a message removes %v, %v; want the earlier one alone", got.ids, err)
	}
	dead := []any{"orders", int64(math.MinInt64), int64(math.MaxInt64), begun, sweepItems, int64(math.MinInt64), ""}
	if got, err := s.remover.purgeSome(t.Context(), "purge_dead", dead); err != nil || len(got.ids) > 0 {
		t.Errorf("a purge that began before a message died removes %v, %v; want none", got.ids, err)
	}
}

// P14: a transaction holds one of the messages that a purge is to remove. The purge removes the
// others while that is open, so it keeps no lock of theirs, and the held one when the transaction
// is over.
func TestPurgeBesideAHeldMessage(t *testing.T) {
	t.Parallel()
	const all = 20
	for _, state := range []punctual.State{punctual.StateLeased, punctual.StateDead} {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
			pushOrders(t, s, all, 0)
			for _, d := range claimN(t, s, all) {
				if state == punctual.StateDead {
					if err := settleOne(t, s, settlement(d, punctual.SettleDiscard)); err != nil {
						t.Fatal(err)
					}
				}
			}
			tx := hold(t, s, func(ctx context.Context, s *Store, tx pgx.Tx) error {
				held, err := tx.Exec(ctx, inSchema("SELECT FROM punctual.message WHERE id = '7' FOR UPDATE", s.opt.Schema))
				if err == nil && held.RowsAffected() != 1 {
					err = fmt.Errorf("%d messages are locked", held.RowsAffected())
				}
				return err
			})
			type answer struct {
				n   int64
				err error
			}
			purged := make(chan answer, 1)
			go func() {
				n, err := s.Purge(context.Background(), punctual.PurgeQuery{Topic: "orders", State: state})
				purged <- answer{n, err}
			}()
			waitUntil(t, "all messages but the held one are removed", func() bool { return count(t, s, "message") == 1 || len(purged) > 0 })
			if len(purged) > 0 {
				t.Fatalf("P14: a purge ended beside a message that is held: %+v", <-purged)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-purged; got.err != nil || got.n != all || count(t, s, "message") != 0 {
				t.Errorf("when the transaction is over the purge answers %+v, and %d messages are left; want that all %d are removed", got, count(t, s, "message"), all)
			}
		})
	}
}

// P13: a purge that ends while a message is held says so. The error is definite if the purge has
// removed nothing.
func TestPurgeGivesUp(t *testing.T) {
	t.Parallel()
	for _, others := range []int64{0, 1} {
		other := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
		tx := hold(t, other, holdings["locked"])
		if others > 0 {
			if _, err := other.Push(t.Context(), []punctual.NewMessage{laterMessage("other")}); err != nil {
				t.Fatal(err)
			}
		}
		s, paused, goOn := pausedBefore(t, other, 3, "purge_live") // the second step finds that there is no more
		ctx, end := context.WithCancel(t.Context())
		var n int64
		purged := make(chan error, 1)
		go func() {
			var err error
			n, err = s.Purge(ctx, punctual.PurgeQuery{Topic: "orders"})
			purged <- err
		}()
		awaitAgain(t, "purge", paused, purged)
		end()
		goOn()
		err := <-purged
		if n != others || !errors.Is(err, punctual.ErrOverloaded) || !errors.Is(err, context.Canceled) {
			t.Errorf("P13: a purge of a message that is held, and of %d others, answers %d, %v; want an ErrOverloaded that wraps the error of the context", others, n, err)
		}
		if punctual.Definite(err) != (others == 0) {
			t.Errorf("P13: the error of a purge that has removed %d messages is definite: %v", n, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "message"); n != 1 {
			t.Errorf("%d messages are left behind the purge that gave up; want the held one", n)
		}
	}
}

// P13: a transaction holds a dead message past its retention, and was told that there is no such
// message. A longer retention, which would bring the message back, is refused while the transaction
// is open, and other changes of the settings pass. When the transaction is over, the message is
// removed before the retention becomes longer.
func TestLongerRetentionBesideAHeldMessage(t *testing.T) {
	t.Parallel()
	retention := func(d time.Duration) punctual.SettingsPatch { return punctual.SettingsPatch{DeadRetention: &d} }
	for name, longer := range map[string]punctual.SettingsPatch{"a day": retention(24 * time.Hour), "for ever": retention(0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true, checkEvery: time.Hour})
			if _, err := other.Configure(t.Context(), "orders", retention(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if err := settleOne(t, other, settlement(leaseOne(t, other, "orders", "7"), punctual.SettleDiscard)); err != nil {
				t.Fatal(err)
			}
			tx := hold(t, other, func(ctx context.Context, s *Store, tx pgx.Tx) error {
				if _, err := s.db.pool.Exec(ctx, inSchema("UPDATE punctual.message SET died_at = died_at - 7200000", s.opt.Schema)); err != nil {
					return err
				}
				if err := s.CancelTx(ctx, Pgx(tx), "orders", "7"); !errors.Is(err, punctual.ErrNotFound) {
					return fmt.Errorf("cancel of a message past its retention: %w", err)
				}
				free, err := s.db.pool.Exec(ctx, inSchema("SELECT FROM punctual.message FOR UPDATE SKIP LOCKED", s.opt.Schema))
				if n := count(t, s, "message"); err == nil && (n != 1 || free.RowsAffected() != 0) {
					err = fmt.Errorf("there are %d messages, of which %d are not locked", n, free.RowsAffected())
				}
				return err
			})
			_, err := other.Configure(t.Context(), "orders", longer)
			wantDefinite(t, "a longer retention beside a held message", err, errHeld)
			once := 1
			for _, patch := range []punctual.SettingsPatch{{MaxAttempts: &once}, retention(time.Minute)} {
				if _, err := other.Configure(t.Context(), "orders", patch); err != nil {
					t.Errorf("a change that makes the retention no longer: %v", err)
				}
			}
			if set, err := other.Settings(t.Context(), "orders"); err != nil || set.MaxAttempts != once || set.DeadRetention != time.Minute {
				t.Errorf("the settings are %+v, %v; want those of the changes that passed", set, err)
			}
			s, paused, goOn := pausedBefore(t, other, 2, "past_retention_all")
			done := make(chan error, 1)
			go func() {
				done <- untilFree(func() error {
					_, err := s.Configure(context.Background(), "orders", longer)
					return err
				})
			}()
			awaitAgain(t, "a longer retention", paused, done)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			goOn()
			if err := <-done; err != nil {
				t.Errorf("a longer retention when the transaction is over: %v", err)
			}
			wantMessage(t, s, "orders", "7", punctual.StateNone)
			if set, err := s.Settings(t.Context(), "orders"); err != nil || set.DeadRetention != *longer.DeadRetention {
				t.Errorf("the retention is %v, %v; want %v", set.DeadRetention, err, *longer.DeadRetention)
			}
		})
	}
}
