package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// openTx begins a transaction of a caller, which end commits or rolls back.
type openTx func(t *testing.T, s *Store) (tx Tx, exec func(statement string) error, end func(commit bool) error)

func pgxTx(t *testing.T, s *Store) (Tx, func(string) error, func(bool) error) {
	t.Helper()
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) error { _, err := tx.Exec(t.Context(), statement); return err }
	return Pgx(tx), exec, func(commit bool) error {
		if commit {
			return tx.Commit(context.Background())
		}
		return tx.Rollback(context.Background())
	}
}

func sqlTx(t *testing.T, s *Store) (Tx, func(string) error, func(bool) error) {
	t.Helper()
	db := stdlib.OpenDBFromPool(s.db.pool)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) error { _, err := tx.ExecContext(t.Context(), statement); return err }
	return SQL(tx), exec, func(commit bool) error {
		if commit {
			return tx.Commit()
		}
		return tx.Rollback()
	}
}

// A message exists exactly if the transaction that pushed it commits, and has not gone back to a
// savepoint before the push.
func TestTx(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, shared)
			s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			t.Run("commit", func(t *testing.T) { testTxCommit(t, s, begin) })
			t.Run("rollback", func(t *testing.T) { testTxRollback(t, s, begin) })
			t.Run("savepoint", func(t *testing.T) { testTxSavepoint(t, s, begin) })
			t.Run("amend", func(t *testing.T) { testTxAmend(t, s, begin) })
			t.Run("ID in use", func(t *testing.T) { testTxIDInUse(t, s, begin) })
		})
	}
}

// longDue is a due time long before every claim.
var longDue = time.Unix(1, 0)

// laterMessage returns a message of orders that no claim finds for an hour.
func laterMessage(id string) punctual.NewMessage {
	m := message(id)
	m.Due, m.Delay = time.Time{}, time.Hour
	return m
}

// message returns a message of orders that is long due. One without a time would be due at the next
// millisecond, and a claim may come before that.
func message(id string) punctual.NewMessage {
	return punctual.NewMessage{Topic: "orders", ID: id, Due: longDue, Body: []byte(`a "body" \ of ` + id), Headers: map[string]string{"k": "v"}}
}

func pushTx(t *testing.T, s *Store, tx Tx, ms ...punctual.NewMessage) []punctual.PushResult {
	t.Helper()
	rs, err := s.PushManyTx(t.Context(), tx, ms)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func claimOrders(t *testing.T, s *Store, wait time.Duration) []punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}}); err != nil {
			t.Fatal(err)
		}
	}
	return ds
}

func testTxCommit(t *testing.T, s *Store, begin openTx) {
	tx, _, end := begin(t, s)
	pushTx(t, s, tx, message("committed"))
	if ds := claimOrders(t, s, 0); len(ds) != 0 {
		t.Errorf("before the commit a claim found %v", ds)
	}
	if err := end(true); err != nil {
		t.Fatal(err)
	}
	ds := claimOrders(t, s, time.Minute)
	if len(ds) != 1 || string(ds[0].Body) != string(message("committed").Body) || ds[0].Headers["k"] != "v" {
		t.Errorf("after the commit a claim found %v; want the message", ds)
	}
}

func testTxRollback(t *testing.T, s *Store, begin openTx) {
	tx, _, end := begin(t, s)
	pushTx(t, s, tx, message("rolled back"))
	if err := end(false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "orders", "rolled back"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("Get after the transaction was rolled back: %v; want not found", err)
	}
}

func testTxSavepoint(t *testing.T, s *Store, begin openTx) {
	tx, exec, end := begin(t, s)
	pushTx(t, s, tx, message("before"))
	if err := exec("SAVEPOINT here"); err != nil {
		t.Fatal(err)
	}
	pushTx(t, s, tx, message("behind"))
	if err := errors.Join(exec("ROLLBACK TO here"), end(true)); err != nil {
		t.Fatal(err)
	}
	if ds := claimOrders(t, s, time.Minute); len(ds) != 1 || ds[0].ID != "before" {
		t.Errorf("after a rollback to a savepoint a claim found %v; want what was pushed before it", ds)
	}
}

func testTxAmend(t *testing.T, s *Store, begin openTx) {
	for _, commit := range []bool{false, true} {
		if _, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage("paid")}); err != nil {
			t.Fatal(err)
		}
		tx, _, end := begin(t, s)
		a := punctual.Amendment{Topic: "orders", ID: "paid", Delay: 2 * time.Hour}
		if out, err := s.RescheduleTx(t.Context(), tx, a); err != nil || time.Until(out.Due) < 90*time.Minute {
			t.Errorf("RescheduleTx: due %v, %v; want in two hours", out.Due, err)
		}
		if err := s.CancelTx(t.Context(), tx, "orders", "paid"); err != nil {
			t.Errorf("CancelTx: %v", err)
		}
		if err := s.CancelTx(t.Context(), tx, "orders", "paid"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("CancelTx again: %v; want not found", err)
		}
		if err := end(commit); err != nil {
			t.Fatal(err)
		}
		i, err := s.Get(t.Context(), "orders", "paid")
		if commit != errors.Is(err, punctual.ErrNotFound) || !commit && time.Until(i.Due) > time.Hour {
			t.Errorf("Get after the end, committed %v: due %v, %v", commit, i.Due, err)
		}
	}
}

// testTxIDInUse: a push of an ID that is in use is answered as everywhere, and leaves the
// transaction whole.
func testTxIDInUse(t *testing.T, s *Store, begin openTx) {
	if _, err := s.Push(t.Context(), []punctual.NewMessage{message("taken")}); err != nil {
		t.Fatal(err)
	}
	tx, _, end := begin(t, s)
	fails := message("taken")
	fails.IfExists = punctual.IfExistsFail
	rs, err := s.PushManyTx(t.Context(), tx, []punctual.NewMessage{message("taken"), fails, message("free")})
	if failed := (*punctual.BatchError)(nil); !errors.As(err, &failed) || failed.Failed != 1 || rs[0].Status != punctual.PushDuplicate || !errors.Is(rs[1].Err, punctual.ErrDuplicate) || rs[2].Status != punctual.PushStored {
		t.Errorf("PushManyTx of an ID that is in use: %+v, %v", rs, err)
	}
	if err := end(true); err != nil {
		t.Fatal(err)
	}
	if ds := claimOrders(t, s, 0); len(ds) != 2 {
		t.Errorf("a claim found %v; want the one that was there and the free one", ds)
	}
}

// A message that is refused makes its call return an error, so that nobody commits without the
// message unawares. The transaction is whole.
func TestTxRefusedMessages(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, MaxBody: 1000})
			paused := true
			if _, err := s.Configure(t.Context(), "paused", punctual.SettingsPatch{PushPaused: &paused}); err != nil {
				t.Fatal(err)
			}
			large, far, fails := message("large"), message("far"), message("taken")
			large.Body = make([]byte, 1001)
			far.Due = limits.MaxDue.Add(time.Hour)
			fails.IfExists = punctual.IfExistsFail
			refused := map[string]struct {
				m    punctual.NewMessage
				kind error
			}{
				"a topic with a space":      {punctual.NewMessage{Topic: "two words", ID: "a"}, punctual.ErrInvalid},
				"a body that is too large":  {large, punctual.ErrTooLarge},
				"a time beyond all":         {far, punctual.ErrInvalid},
				"a topic that is paused":    {punctual.NewMessage{Topic: "paused", ID: "a"}, punctual.ErrPaused},
				"an ID that must not exist": {fails, punctual.ErrDuplicate},
			}
			tx, _, end := begin(t, s)
			pushTx(t, s, tx, message("taken"))
			for what, x := range refused {
				r, err := s.PushTx(t.Context(), tx, x.m)
				wantDefinite(t, "PushTx of "+what, err, x.kind)
				if !errors.Is(r.Err, x.kind) || r.ID != x.m.ID || r.Status != punctual.PushNone {
					t.Errorf("PushTx of %s: result %+v", what, r)
				}
				rs, err := s.PushManyTx(t.Context(), tx, []punctual.NewMessage{x.m, message("beside " + what), x.m})
				failed := (*punctual.BatchError)(nil)
				if !errors.As(err, &failed) || failed.Failed != 2 || failed.Total != 3 || !errors.Is(err, x.kind) || punctual.Definite(err) {
					t.Errorf("PushManyTx of %s: %v; want a BatchError, not definite as a whole", what, err)
				}
				if len(rs) != 3 || !errors.Is(rs[0].Err, x.kind) || rs[1].Status != punctual.PushStored {
					t.Errorf("PushManyTx of %s: %+v; want the other message stored", what, rs)
				}
			}
			if _, err := s.PushManyTx(t.Context(), tx, []punctual.NewMessage{large, large}); !punctual.Definite(err) {
				t.Errorf("PushManyTx of refused messages alone: %v; want a definite error", err)
			}
			out, err := s.AmendManyTx(t.Context(), tx, []punctual.Amendment{
				{Change: punctual.ChangeCancel, Topic: "orders", ID: "nobody"},
				{Change: punctual.ChangeReschedule, Topic: "orders", ID: "taken", Delay: time.Hour},
			})
			if failed := (*punctual.BatchError)(nil); !errors.As(err, &failed) || failed.Failed != 1 || !errors.Is(err, punctual.ErrNotFound) || len(out) != 2 || out[1].Err != nil {
				t.Errorf("AmendManyTx: %+v, %v; want a BatchError for the one that is not there", out, err)
			}
			if err := end(true); err != nil {
				t.Fatal(err)
			}
			if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Ready+st.Scheduled != int64(1+len(refused)) {
				t.Errorf("behind the commit: %+v, %v; want the messages that were not refused", st, err)
			}
		})
	}
}

// What is no transaction is refused, because the message would be there whatever becomes of the
// order.
func TestTxOfNone(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	if _, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage("there")}); err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(s.db.pool)
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for name, tx := range map[string]Tx{
		"a database":                   SQL(db),
		"what has one in it":           SQL(struct{ *sql.DB }{db}),
		"something around one":         SQL(queryFunc(db.QueryContext)),
		"a connection without a BEGIN": SQL(conn),
	} {
		if _, err := s.PushTx(t.Context(), tx, message("outside")); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("PushTx in %s: %v; want ErrInvalid", name, err)
		}
		if err := s.CancelTx(t.Context(), tx, "orders", "there"); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("CancelTx in %s: %v; want ErrInvalid", name, err)
		}
		if _, err := s.RescheduleTx(t.Context(), tx, punctual.Amendment{Topic: "orders", ID: "there", Delay: 5 * time.Hour}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("RescheduleTx in %s: %v; want ErrInvalid", name, err)
		}
	}
	if _, err := s.Get(t.Context(), "orders", "outside"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("Get of what was pushed: %v; want not found", err)
	}
	if i, err := s.Get(t.Context(), "orders", "there"); err != nil || time.Until(i.Due) > 2*time.Hour {
		t.Errorf("Get of what was cancelled and moved: due %v, %v; want it as it was", i.Due, err)
	}
	// A connection with a BEGIN is a transaction.
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := s.CancelTx(t.Context(), SQL(conn), "orders", "there"); err != nil {
		t.Errorf("CancelTx in a connection with a BEGIN: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}

// A serialization failure of the caller's transaction reaches the caller as the driver's error, and
// is definite.
func TestTxSerializationFailure(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	tx, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil { // the snapshot
		t.Fatal(err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{message("unseen")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Configure(t.Context(), "mails", punctual.SettingsPatch{}); err != nil {
		t.Fatal(err)
	}
	_, err = s.PushTx(t.Context(), Pgx(tx), message("unseen"))
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != codeSerialization || !punctual.Definite(err) {
		t.Errorf("PushTx to a topic that its snapshot does not show: %v; want a serialization failure, definite", err)
	}
}

// P13: the connection of a caller's transaction breaks during a call. Whether the server has
// carried the statement out or not, nothing of it is committed. So the error is definite, and the
// message is not there.
func TestTxConnectionBreaks(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, behind %v", name, behind), func(t *testing.T) {
				t.Parallel()
				s, b := openBreaking(t, shared, Options{Schema: fresh(), Migrate: true})
				makeTopic(t, s, "orders")
				tx, _, end := begin(t, s)
				pushTx(t, s, tx, laterMessage("whole"))
				b.breakAt(behind, "INSERT INTO", "lost")
				_, err := s.PushTx(t.Context(), tx, laterMessage("lost"))
				b.happened(t, 1)
				wantDefinite(t, "PushTx whose connection broke", err, punctual.ErrUnreachable)
				_, err = s.PushTx(t.Context(), tx, laterMessage("behind"))
				wantDefinite(t, "PushTx over a connection that is broken", err, punctual.ErrUnreachable)
				if err := end(true); err == nil {
					t.Error("P13: a transaction whose connection broke was committed")
				}
				if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Scheduled != 0 {
					t.Errorf("P13: %d messages are stored, %v; want none of the transaction that broke", st.Scheduled, err)
				}
			})
		}
	}
}

// A call in a transaction that has ended is refused as the wrong use that it is.
func TestTxOfOneThatHasEnded(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		tx, _, end := begin(t, s)
		if err := end(false); err != nil {
			t.Fatal(err)
		}
		_, err := s.PushTx(t.Context(), tx, laterMessage("late"))
		wantDefinite(t, "PushTx in a transaction of "+name+" that has ended", err, punctual.ErrInvalid)
	}
}

// otherDriver is an error of the server as a driver other than pgx has it, such as lib/pq.
type otherDriver string

func (o otherDriver) Error() string    { return "refused with " + string(o) }
func (o otherDriver) SQLState() string { return string(o) }

// P13: what the server refuses means the same whatever the driver of database/sql is.
func TestTxErrorsOfAnotherDriver(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	for code, kind := range map[otherDriver]error{
		codeSerialization: punctual.ErrOverloaded,
		"53100":           punctual.ErrNoSpace,
		"57P01":           punctual.ErrUnreachable,
		"25P02":           punctual.ErrUnsupported,
	} {
		tx := SQL(queryFunc(func(context.Context, string, ...any) (*sql.Rows, error) { return nil, code }))
		_, err := s.PushTx(t.Context(), tx, laterMessage("refused"))
		wantDefinite(t, "PushTx that the server refuses with "+string(code), err, kind)
		if !errors.Is(err, code) {
			t.Errorf("%v; want that it wraps the driver's error", err)
		}
	}
}

// P14: the first message of a topic in a caller's transaction keeps nobody else from pushing to
// that topic.
func TestTxMakesTopicsForAll(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			// A free connection must be there when the topic is to be made, because a loaded
			// machine takes long to open one.
			free := make([]*pgxpool.Conn, 3)
			for i := range free {
				var err error
				if free[i], err = s.db.pool.Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, conn := range free {
				conn.Release()
			}
			tx, _, end := begin(t, s)
			pushTx(t, s, tx, message("first"))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if rs, err := s.Push(ctx, []punctual.NewMessage{message("beside")}); err != nil || rs[0].Err != nil {
				t.Errorf("P14: push to a topic whose first message is in an open transaction: %+v, %v", rs, err)
			}
			if err := end(false); err != nil {
				t.Fatal(err)
			}
			if ds := claimOrders(t, s, time.Minute); len(ds) != 1 || ds[0].ID != "beside" {
				t.Errorf("behind the rollback a claim found %v; want the message of the other push alone", ds)
			}
		})
	}
}

// P14: a caller's transaction does not make a topic itself, and so keeps nobody else from pushing
// to the topic, also where the server takes long to open another connection, or the pool has none
// left. Where there is no other connection at all, the transaction makes the topic, and the push
// succeeds all the same.
func TestTxMakesTopicsOnAnotherConnection(t *testing.T) {
	t.Parallel()
	const slowness = 500 * time.Millisecond
	slow := func(ctx context.Context) error { return sleep(ctx, slowness) }
	refused := func(context.Context) error { return errors.New("no connection is left") }
	for _, c := range []struct {
		name  string
		conns int32 // of the pool
		open  func(ctx context.Context) error
		made  int // topics that others see before the commit
	}{
		{"the server takes long", 2, slow, 1},
		{"the server takes long and the pool is full", 1, slow, 1},
		{"no connection is left", 2, refused, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			parsed, err := pgxpool.ParseConfig(shared.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			parsed.MaxConns = c.conns
			var begun atomic.Bool
			var opened atomic.Int64 // connections, since the transaction began
			dial := parsed.ConnConfig.DialFunc
			parsed.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if begun.Load() {
					opened.Add(1)
					if err := c.open(ctx); err != nil {
						return nil, err
					}
				}
				return dial(ctx, network, address)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), parsed)
			if err != nil {
				t.Fatal(err)
			}
			s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, heartbeat: time.Hour})
			others := newPool(t, shared)
			defer others.Close()
			topics := func() (n int) {
				t.Helper()
				if err := others.QueryRow(t.Context(), inSchema("SELECT count(*) FROM punctual.topic", s.opt.Schema)).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			if n := topics(); n != 0 {
				t.Fatalf("this test shows nothing: there are %d topics", n)
			}
			pool.Reset()
			tx, _, end := pgxTx(t, s)
			waitUntil(t, "the transaction has the only connection", func() bool { return pool.Stat().TotalConns() == 1 })
			begun.Store(true)
			at := time.Now()
			pushTx(t, s, tx, message("first"))
			begun.Store(false)
			if opened.Load() == 0 {
				t.Fatal("this test shows nothing: no other connection was opened")
			}
			if took := time.Since(at); took >= createTime && c.made > 0 {
				t.Skipf("NOT TESTED: topics made on another connection. This machine took %v for that", took)
			}
			if n := topics(); n != c.made {
				t.Errorf("P14: others see %d topics before the commit; want %d", n, c.made)
			}
			if err := end(true); err != nil {
				t.Fatal(err)
			}
			if ds := claimOrders(t, s, time.Minute); len(ds) != 1 || ds[0].ID != "first" {
				t.Errorf("behind the commit a claim found %v; want the message", ds)
			}
		})
	}
}
