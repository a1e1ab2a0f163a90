package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A settlement and its follow-ups take effect exactly if the caller's transaction commits, and has
// not gone back to a savepoint before them.
func TestSettleTx(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			if _, err := s.db.pool.Exec(t.Context(), inSchema("CREATE TABLE punctual.effect (id text)", s.opt.Schema)); err != nil {
				t.Fatal(err)
			}
			t.Run("commit", func(t *testing.T) { testSettleTxCommit(t, s, begin) })
			t.Run("rollback", func(t *testing.T) { testSettleTxRollback(t, s, begin) })
			t.Run("savepoint", func(t *testing.T) { testSettleTxSavepoint(t, s, begin) })
			t.Run("lost lease", func(t *testing.T) { testSettleTxLost(t, s, begin) })
			t.Run("each verb", func(t *testing.T) { testSettleTxVerbs(t, s, begin) })
			t.Run("refused", func(t *testing.T) { testSettleTxRefused(t, s, begin) })
		})
	}
}

// effect is what a handler writes in its transaction.
func effect(s *Store, id string) string {
	return inSchema("INSERT INTO punctual.effect VALUES ('"+id+"')", s.opt.Schema)
}

// wantEffect fails the test unless a handler's write is there as often as wanted.
func wantEffect(t *testing.T, s *Store, id string, want int) {
	t.Helper()
	var got int
	err := s.db.pool.QueryRow(t.Context(), inSchema("SELECT count(*) FROM punctual.effect WHERE id = $1", s.opt.Schema), id).Scan(&got)
	if err != nil || got != want {
		t.Errorf("the handler's write of %s is there %d times, %v; want %d", id, got, err, want)
	}
}

func testSettleTxCommit(t *testing.T, s *Store, begin openTx) {
	d := leaseOne(t, s, "mails", "committed")
	found := make(chan claimResult, 1)
	go func() {
		ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Minute})
		found <- claimResult{ds, err}
	}()
	awaitWaiting(t, s, "orders")
	tx, exec, end := begin(t, s)
	if err := exec(effect(s, d.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.SettleTx(t.Context(), tx, settlement(d, punctual.SettleAck, message("then"), laterMessage("later"))); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, s, "mails", "committed", punctual.StateLeased)
	wantMessage(t, s, "orders", "then", punctual.StateNone)
	if err := end(true); err != nil {
		t.Fatal(err)
	}
	wantEffect(t, s, d.ID, 1)
	wantMessage(t, s, "mails", "committed", punctual.StateNone)
	wantMessage(t, s, "orders", "later", punctual.StateScheduled)
	got := <-found
	if got.err != nil || len(got.ds) != 1 || got.ds[0].ID != "then" || string(got.ds[0].Body) != string(message("then").Body) || got.ds[0].Headers["k"] != "v" {
		t.Errorf("P11: a claim that waited found %v, %v; want the follow-up behind the commit", got.ds, got.err)
	}
	ackAll(t, s, got.ds...)
}

func testSettleTxRollback(t *testing.T, s *Store, begin openTx) {
	d := leaseOne(t, s, "mails", "rolled back")
	tx, exec, end := begin(t, s)
	if err := errors.Join(exec(effect(s, d.ID)), s.SettleTx(t.Context(), tx, settlement(d, punctual.SettleAck, laterMessage("of rolled back")))); err != nil {
		t.Fatal(err)
	}
	if err := end(false); err != nil {
		t.Fatal(err)
	}
	wantEffect(t, s, d.ID, 0)
	wantMessage(t, s, "mails", "rolled back", punctual.StateLeased)
	wantMessage(t, s, "orders", "of rolled back", punctual.StateNone)
	if err := settleOne(t, s, settlement(d, punctual.SettleExtend)); err != nil {
		t.Errorf("P4: the token behind a rollback: %v; want that it is still the current one", err)
	}
	ackAll(t, s, d)
}

func testSettleTxSavepoint(t *testing.T, s *Store, begin openTx) {
	before, behind := leaseOne(t, s, "mails", "before"), leaseOne(t, s, "mails", "behind")
	tx, exec, end := begin(t, s)
	err := errors.Join(
		s.SettleTx(t.Context(), tx, settlement(before, punctual.SettleAck, laterMessage("of before"))),
		exec("SAVEPOINT here"),
		s.SettleTx(t.Context(), tx, settlement(behind, punctual.SettleAck, laterMessage("of behind"))),
		exec("ROLLBACK TO here"), end(true))
	if err != nil {
		t.Fatal(err)
	}
	wantMessage(t, s, "mails", "before", punctual.StateNone)
	wantMessage(t, s, "orders", "of before", punctual.StateScheduled)
	wantMessage(t, s, "mails", "behind", punctual.StateLeased)
	wantMessage(t, s, "orders", "of behind", punctual.StateNone)
	ackAll(t, s, behind)
}

// testSettleTxLost: a settlement whose lease was lost, before the transaction or in it, gets
// ErrLeaseLost and leaves the transaction whole.
func testSettleTxLost(t *testing.T, s *Store, begin openTx) {
	d := leaseOne(t, s, "mails", "lost")
	stale := d
	stale.Token--
	tx, exec, end := begin(t, s)
	wantDefinite(t, "SettleTx under an old token", s.SettleTx(t.Context(), tx, settlement(stale, punctual.SettleAck, laterMessage("of lost"))), punctual.ErrLeaseLost)
	if err := s.SettleTx(t.Context(), tx, settlement(d, punctual.SettleAck)); err != nil {
		t.Errorf("SettleTx behind one that was refused: %v", err)
	}
	wantDefinite(t, "SettleTx for the second time", s.SettleTx(t.Context(), tx, settlement(d, punctual.SettleAck, laterMessage("of lost"))), punctual.ErrLeaseLost)
	wantDefinite(t, "SettleTx of nothing", s.SettleTx(t.Context(), tx, punctual.Settlement{Topic: "nowhere", ID: "a", Token: 1, Verb: punctual.SettleAck}), punctual.ErrLeaseLost)
	if err := errors.Join(exec(effect(s, "lost")), end(true)); err != nil {
		t.Fatal(err)
	}
	wantEffect(t, s, "lost", 1)
	wantMessage(t, s, "mails", "lost", punctual.StateNone)
	wantMessage(t, s, "orders", "of lost", punctual.StateNone)
}

func testSettleTxVerbs(t *testing.T, s *Store, begin openTx) {
	for verb, want := range map[punctual.Verb]punctual.State{
		punctual.SettleAck: punctual.StateNone, punctual.SettleRetry: punctual.StateScheduled, punctual.SettleSnooze: punctual.StateScheduled,
		punctual.SettleDiscard: punctual.StateDead, punctual.SettleRelease: punctual.StateReady, punctual.SettleExtend: punctual.StateLeased,
	} {
		d := leaseOne(t, s, verb.String(), "m")
		x := settlement(d, verb)
		if verb == punctual.SettleRetry || verb == punctual.SettleSnooze {
			x.Due = time.Now().Add(time.Hour)
		}
		tx, _, end := begin(t, s)
		if err := errors.Join(s.SettleTx(t.Context(), tx, x), end(true)); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		wantMessage(t, s, verb.String(), "m", want)
	}
}

// testSettleTxRefused: a refused follow-up is the error of its settlement. The transaction is
// whole, and the other settlements of the call are in it.
func testSettleTxRefused(t *testing.T, s *Store, begin openTx) {
	paused := true
	if _, err := s.Configure(t.Context(), "paused", punctual.SettingsPatch{PushPaused: &paused}); err != nil {
		t.Fatal(err)
	}
	refused, fine := leaseOne(t, s, "mails", "refused"), leaseOne(t, s, "mails", "fine")
	tx, _, end := begin(t, s)
	errs, err := s.SettleManyTx(t.Context(), tx, []punctual.Settlement{
		settlement(refused, punctual.SettleAck, laterMessage("of refused"), punctual.NewMessage{Topic: "paused"}),
		settlement(fine, punctual.SettleAck, laterMessage("of fine")),
		settlement(fine, punctual.SettleRetry, laterMessage("malformed")),
	})
	if failed := (*punctual.BatchError)(nil); !errors.As(err, &failed) || failed.Failed != 2 || failed.Total != 3 {
		t.Errorf("SettleManyTx: %v; want a BatchError for two of three", err)
	}
	if !errors.Is(errs[0], punctual.ErrPaused) || errs[1] != nil || !errors.Is(errs[2], punctual.ErrInvalid) {
		t.Errorf("SettleManyTx: %v", errs)
	}
	if err := end(true); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, s, "mails", "refused", punctual.StateLeased)
	wantMessage(t, s, "orders", "of refused", punctual.StateNone)
	wantMessage(t, s, "mails", "fine", punctual.StateNone)
	wantMessage(t, s, "orders", "of fine", punctual.StateScheduled)
	ackAll(t, s, refused)
}

// P3: until the transaction ends nobody claims its message, although the lease runs out, and a push
// of the follow-up's ID waits in vain. An ack outside the transaction gets a definite error.
func TestSettleTxHoldsItsMessages(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	pushOrders(t, s, 1, 0)
	var ds []punctual.Delivery
	waitUntil(t, "a claim finds the message in less time than the lease lasts", func() (found bool) {
		var err error
		ds, err = s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: time.Second})
		return err == nil && len(ds) == 1
	})
	tx, _, end := pgxTx(t, s)
	if err := s.SettleTx(t.Context(), tx, settlement(ds[0], punctual.SettleAck, laterMessage("then"))); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the lease has run out", func() bool {
		now, err := s.Now(t.Context())
		return err == nil && now.After(ds[0].LeaseUntil)
	})
	wantMessage(t, s, "orders", "0", punctual.StateReady)
	if more := claimN(t, s, 10); len(more) > 0 {
		t.Errorf("P3: a claim found %v, which is being settled", more)
	}
	wantDefinite(t, "an ack beside the transaction", settleOne(t, s, settlement(ds[0], punctual.SettleAck)), punctual.ErrOverloaded)
	_, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage("then")})
	wantDefinite(t, "a push of the follow-up's ID", err, punctual.ErrOverloaded)
	if err := end(false); err != nil {
		t.Fatal(err)
	}
	if more := claimN(t, s, 10); len(more) != 1 {
		t.Errorf("P1: behind the rollback a claim found %v; want the message", more)
	}
}

// P4: at repeatable read and serializable a message that was changed since the snapshot is a
// serialization failure, never a lost lease.
func TestSettleTxBehindTheSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range stricter {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
			there := leaseOne(t, s, "bills", "there")
			var since punctual.Delivery
			tx := behindSnapshot(t, s, level, func(ctx context.Context, s *Store) error {
				since = leaseOne(t, s, "orders", "since")
				return nil
			}, laterMessage("moved"))
			for what, x := range map[string]punctual.Settlement{
				"a message that was stored and claimed since":          settlement(since, punctual.SettleAck),
				"a follow-up whose ID was taken since":                 settlement(there, punctual.SettleAck, laterMessage("since")),
				"a message in a topic that the snapshot does not show": {Topic: "new", ID: "a", Token: 1, Verb: punctual.SettleAck},
			} {
				if x.Topic == "new" {
					leaseOne(t, s, "new", "a")
				}
				inside, err := tx.Begin(t.Context()) // a savepoint
				if err != nil {
					t.Fatal(err)
				}
				err = s.SettleTx(t.Context(), Pgx(inside), x)
				var refused *pgconn.PgError
				if !errors.As(err, &refused) || refused.Code != codeSerialization || !punctual.Definite(err) {
					t.Errorf("P4: SettleTx of %s: %v; want a serialization failure, definite", what, err)
				}
				if err := inside.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// At each isolation level a settlement takes effect whose message and follow-ups nobody else has
// touched. A settlement of a message that is not there gets ErrLeaseLost, and leaves no topic.
func TestSettleTxIsolation(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		id := strings.ReplaceAll(string(level), " ", "-")
		d := leaseOne(t, s, "orders", id)
		tx, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		nobody := punctual.Settlement{Topic: "nobodys@events", ID: "a", Token: 1, Verb: punctual.SettleAck}
		if err := s.SettleTx(t.Context(), Pgx(tx), nobody); !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("%s: SettleTx of what is not there: %v; want ErrLeaseLost", level, err)
		}
		first := punctual.NewMessage{Topic: id + "@out", ID: "a", Delay: time.Hour}
		err = errors.Join(s.SettleTx(t.Context(), Pgx(tx), settlement(d, punctual.SettleAck, laterMessage("of "+id), first)), tx.Commit(t.Context()))
		if err != nil {
			t.Errorf("%s: %v", level, err)
		}
		wantMessage(t, s, "orders", id, punctual.StateNone)
		wantMessage(t, s, "orders", "of "+id, punctual.StateScheduled)
		wantMessage(t, s, id+"@out", "a", punctual.StateScheduled)
	}
	names, err := s.TopicNames(t.Context(), storekit.NameQuery{Prefix: "nobodys"})
	if err != nil || len(names) > 0 {
		t.Errorf("topics behind settlements of nothing: %v, %v; want none", names, err)
	}
	if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("Check: %+v, %v", r, err)
	}
}

// What is no transaction is refused, because the settlement would take effect whatever becomes of
// what the handler has written.
func TestSettleTxOfNone(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	d := leaseOne(t, s, "orders", "m")
	db := stdlib.OpenDBFromPool(s.db.pool)
	defer func() { _ = db.Close() }()
	if err := s.SettleTx(t.Context(), SQL(queryFunc(db.QueryContext)), settlement(d, punctual.SettleAck)); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("SettleTx in what is no transaction: %v; want ErrInvalid", err)
	}
	wantMessage(t, s, "orders", "m", punctual.StateLeased)
}

// Two transactions cross: each settles a message, and then pushes the ID of the message that the
// other one has settled. The server ends one of them as a deadlock, with a definite error, and the
// other one commits.
func TestSettleTxThatCross(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	a, b := leaseOne(t, s, "orders", "a"), leaseOne(t, s, "orders", "b")
	one, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.Rollback(context.Background()) }()
	two, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = two.Rollback(context.Background()) }()
	if err := errors.Join(s.SettleTx(t.Context(), Pgx(one), settlement(a, punctual.SettleAck)), s.SettleTx(t.Context(), Pgx(two), settlement(b, punctual.SettleAck))); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	for i, tx := range []pgx.Tx{one, two} {
		go func() {
			_, err := s.PushTx(context.Background(), Pgx(tx), laterMessage([]string{"b", "a"}[i]))
			if err == nil {
				err = tx.Commit(context.Background())
			} else {
				err = errors.Join(err, tx.Rollback(context.Background()))
			}
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if first == nil {
		first, second = second, first
	}
	if second != nil {
		t.Errorf("both transactions failed: %v; %v", first, second)
	}
	wantDefinite(t, "the transaction that was ended", first, punctual.ErrOverloaded)
}
