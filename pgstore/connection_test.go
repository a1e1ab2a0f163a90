package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

// breaker breaks the connections of a pool at a message of the test's choice.
type breaker struct {
	mu     sync.Mutex
	words  [][]byte   // guarded by mu: what the message contains at which to break; nil when none is to come
	behind bool       // guarded by mu: the server carries the message out, and its answer is lost
	hangs  bool       // guarded by mu: instead of breaking, the connection carries nothing from there on, and nobody learns of it
	done   int        // guarded by mu: how often a connection was broken, or made to hang
	hung   []net.Conn // guarded by mu: connections that hang
}

// hangAt has the connection of the next message that contains all words hang instead.
func (b *breaker) hangAt(words ...string) {
	b.breakAt(false, words...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hangs = true
}

// keep notes a connection that hangs, for closeHung.
func (b *breaker) keep(c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung = append(b.hung, c)
}

// closeHung closes the connections that hang. Without it the driver would wait for their server at
// the end of the test.
func (b *breaker) closeHung() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.hung {
		_ = c.Close()
	}
}

// count returns how many connections were broken, or made to hang.
func (b *breaker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// breakAt has the next message that contains all words break its connection: before the message is
// sent, or, with behind, when the server has answered.
func (b *breaker) breakAt(behind bool, words ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.words, b.behind, b.hangs = nil, behind, false
	for _, w := range words {
		b.words = append(b.words, []byte(w))
	}
}

// happened fails the test unless n connections have been broken so far, or made to hang.
func (b *breaker) happened(t *testing.T, n int) {
	t.Helper()
	if done := b.count(); done != n {
		t.Fatalf("this test shows nothing: %d connections were broken, want %d", done, n)
	}
}

// breaks reports whether a message breaks its connection, and when, or has it hang.
func (b *breaker) breaks(message []byte) (breaks, behind, hangs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.words == nil {
		return false, false, false
	}
	for _, w := range b.words {
		if !bytes.Contains(message, w) {
			return false, false, false
		}
	}
	b.words = nil
	b.done++
	return true, b.behind, b.hangs
}

// openBreaking opens a store whose connections break as the breaker says. Its messages to the
// server contain the texts of their statements, because it prepares none.
func openBreaking(t *testing.T, server *pgrig.Server, o Options) (*Store, *breaker) {
	t.Helper()
	b := &breaker{}
	c, err := pgxpool.ParseConfig(server.URL("postgres") + "&default_query_exec_mode=cache_describe")
	if err != nil {
		t.Fatal(err)
	}
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &breaking{Conn: conn, b: b}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	o.OwnPool, o.NoListen = true, true
	s := openStore(t, pool, &o)
	t.Cleanup(b.closeHung)
	return s, b
}

// breaking is a connection that its breaker may break.
type breaking struct {
	net.Conn
	b      *breaker
	broken atomic.Bool
	hangs  atomic.Bool
}

func (c *breaking) Write(message []byte) (int, error) {
	breaks, behind, hangs := c.b.breaks(message)
	switch {
	case hangs:
		c.hangs.Store(true)
		c.b.keep(c.Conn)
		return len(message), nil
	case c.hangs.Load():
		return len(message), nil
	case breaks && !behind:
		return 0, errors.Join(io.ErrClosedPipe, c.Close())
	case breaks:
		c.broken.Store(true)
	}
	return c.Conn.Write(message)
}

// Read of a connection that is to break waits until the server is ready for the next transaction,
// and then fails. While a write takes long the driver reads beside it. So what such a read brings
// may be the beginning of the answer that is to be lost.
func (c *breaking) Read(into []byte) (int, error) {
	var answer io.Reader = c.Conn
	if !c.broken.Load() {
		n, err := c.Conn.Read(into)
		if err != nil || !c.broken.Load() {
			return n, err
		}
		answer = io.MultiReader(bytes.NewReader(into[:n]), c.Conn)
	}
	for {
		var head [5]byte // the kind of a message and its length, which counts itself
		if _, err := io.ReadFull(answer, head[:]); err != nil {
			return 0, err
		}
		if _, err := io.CopyN(io.Discard, answer, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil {
			return 0, err
		}
		if head[0] == 'Z' {
			return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
		}
	}
}

// wantIndeterminate fails the test unless an error says that the call may have been carried out.
func wantIndeterminate(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
		t.Errorf("P13: %s: %v; want ErrIndeterminate", what, err)
	}
}

// wantDefinite fails the test unless an error says that nothing was done.
func wantDefinite(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) || !punctual.Definite(err) {
		t.Errorf("P13: %s: %v; want a definite %v", what, err, kind)
	}
}

// P13: when the answer to a commit is lost, the error says that nobody knows, and the same call
// again has a definite answer.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	s, b := openBreaking(t, shared, Options{Schema: fresh(), Migrate: true})
	push := func(id string, how punctual.IfExists) (punctual.PushResult, error) {
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id, Body: []byte("body"), IfExists: how}})
		if err != nil {
			return punctual.PushResult{}, err
		}
		return rs[0], rs[0].Err
	}
	if _, err := push("chosen", punctual.IfExistsKeep); err != nil {
		t.Fatal(err)
	}

	b.breakAt(true, "INSERT INTO", "lost push")
	_, err := push("lost push", punctual.IfExistsKeep)
	b.happened(t, 1)
	wantIndeterminate(t, "push whose answer is lost", err)
	if r, err := push("lost push", punctual.IfExistsKeep); err != nil || r.Status != punctual.PushDuplicate {
		t.Errorf("P7: the same push again: %v, %v; want a duplicate", r.Status, err)
	}

	// A cancel takes several steps, of which the last one has the commit.
	if _, err := push("chosen", punctual.IfExistsReplace); err != nil { // so that the driver has described COMMIT before
		t.Fatal(err)
	}
	cancel := func(id string) error {
		out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: id}})
		if err != nil {
			return err
		}
		return out[0].Err
	}
	b.breakAt(true, "COMMIT\x00", "lost push")
	err = cancel("lost push")
	b.happened(t, 2)
	wantIndeterminate(t, "cancel whose answer is lost", err)
	if err := cancel("lost push"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("P5: the same cancel again: %v; want not found", err)
	}

	b.breakAt(true, "orders", "SKIP LOCKED")
	_, err = s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: 10 * time.Millisecond})
	b.happened(t, 3)
	wantIndeterminate(t, "claim whose answer is lost", err)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute, Lease: time.Hour})
	if err != nil || len(ds) != 1 || ds[0].Attempt != 2 || len(ds[0].Failures) != 1 {
		t.Fatalf("P6: the claim behind one whose answer is lost: %+v, %v; want attempt 2 of the message", ds, err)
	}

	ack := func() error {
		errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: "chosen", Token: ds[0].Token, Verb: punctual.SettleAck}})
		if err != nil {
			return err
		}
		return errs[0]
	}
	b.breakAt(true, "DELETE FROM", "chosen")
	err = ack()
	b.happened(t, 4)
	wantIndeterminate(t, "ack whose answer is lost", err)
	if err := ack(); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("P4: the same ack again: %v; want lease lost", err)
	}
}

// P13: a connection that breaks before a commit is sent is a definite error, and nothing has
// changed.
func TestUnsentCommit(t *testing.T) {
	t.Parallel()
	s, b := openBreaking(t, shared, Options{Schema: fresh(), Migrate: true})
	for _, id := range []string{"described", "kept"} {
		if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id, Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	cancel := func(id string) error {
		out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: id}})
		if err != nil {
			return err
		}
		return out[0].Err
	}
	if err := cancel("described"); err != nil {
		t.Fatal(err)
	}
	b.breakAt(false, "FOR UPDATE", "kept")
	err := cancel("kept")
	b.happened(t, 1)
	wantDefinite(t, "cancel whose first step was not sent", err, punctual.ErrUnreachable)
	if _, err := s.Get(t.Context(), "orders", "kept"); err != nil {
		t.Errorf("P5: the message whose cancel was not sent: %v", err)
	}
}

// P13: a push that takes several transactions may break at a later one. What the earlier ones have
// stored is reported as stored, and the error is that of the other messages alone.
func TestPushBreaksHalfWay(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind %v", behind), func(t *testing.T) {
			s, b := openBreaking(t, shared, Options{Schema: fresh(), Migrate: true})
			if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "taken"}, {Topic: "other"}}); err != nil {
				t.Fatal(err)
			}
			b.breakAt(behind, "INSERT INTO", "topic", "unheard-of", "dedupe_window")
			rs, err := s.Push(t.Context(), []punctual.NewMessage{
				{Topic: "orders", ID: "new"},
				{Topic: "unheard-of", ID: "new"},
				{Topic: "orders", ID: "taken", IfExists: punctual.IfExistsReplace},
			})
			b.happened(t, 1)
			if err != nil || len(rs) != 3 {
				t.Fatalf("a push of which a part was stored: %+v, %v; want a result for each", rs, err)
			}
			if rs[0].Err != nil || rs[0].Status != punctual.PushStored {
				t.Errorf("P1: what the first transaction has stored: %+v; want it stored", rs[0])
			}
			if rs[2].Err != nil || rs[2].Status != punctual.PushReplaced {
				t.Errorf("P7: what the second transaction has replaced: %+v; want it replaced", rs[2])
			}
			if behind {
				wantIndeterminate(t, "message whose topic may have been made", rs[1].Err)
			} else {
				wantDefinite(t, "message whose topic was not made", rs[1].Err, punctual.ErrUnreachable)
			}
			if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Ready != 2 {
				t.Errorf("the topic has %d messages, %v; want 2", st.Ready, err)
			}
		})
	}
}

// Each connection that the server ends is made again: a claim that waits, or that is made again if
// it fails, gets its message, and the store listens again.
func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "fsync=off")
	o := &Options{Migrate: true, OwnPool: true}
	one, other := openStore(t, newPool(t, server), o), openStore(t, newPool(t, server), o)
	for n := range 3 {
		awaitListeners(t, server, 2)
		found := make(chan claimResult, 1)
		go func() {
			ds, err := claimStubbornly(one)
			found <- claimResult{ds, err}
		}()
		awaitWaiting(t, one, "orders")
		if ended := doIt(t, server, "select count(pg_terminate_backend(pid)) from "+clients); ended == "0" {
			t.Fatal("this test shows nothing: there was no connection to end")
		}
		id := fmt.Sprint(n)
		for { // the pool learns of each connection that has ended by using it
			rs, err := other.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id}})
			if err == nil && rs[0].Err == nil {
				break
			}
			if err != nil && !errors.Is(err, punctual.ErrIndeterminate) && !errors.Is(err, punctual.ErrUnreachable) {
				t.Fatalf("push over connections that have ended: %v", err)
			}
		}
		if got := <-found; got.err != nil || len(got.ds) != 1 || got.ds[0].ID != id {
			t.Fatalf("P1: the claim that waited found %v, %v; want message %s", got.ds, got.err, id)
		}
	}
}

// claimStubbornly waits for a message of orders, and claims again when its connection breaks.
func claimStubbornly(s *Store) ([]punctual.Delivery, error) {
	for {
		ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Minute, Lease: time.Hour})
		if err == nil || !errors.Is(err, punctual.ErrUnreachable) && !errors.Is(err, punctual.ErrIndeterminate) {
			return ds, err
		}
	}
}

// awaitListeners waits until so many sessions listen.
func awaitListeners(t *testing.T, server *pgrig.Server, n int) {
	t.Helper()
	waitUntil(t, "sessions listen", func() bool {
		return doIt(t, server, "select count(*) from pg_stat_activity where query like 'LISTEN %' or query like '-- ping%'") == fmt.Sprint(n)
	})
}

// waitUntil asks again and again whether a condition holds, for two minutes at most. what names the
// condition.
func waitUntil(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// When the server has no connection left, the error says so, and nothing is lost.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "fsync=off", "max_connections=12", "superuser_reserved_connections=1")
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true, NoListen: true})
	pushOrders(t, s, 3, 0)
	held := takeConnections(t, s, server)
	rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "refused"}})
	if err == nil {
		t.Fatalf("this test shows nothing: the push got a connection: %+v", rs)
	}
	wantDefinite(t, "push without a connection", err, punctual.ErrOverloaded)
	for _, c := range held {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	waitUntil(t, "a push passes again", func() bool {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "taken", Due: longDue}})
		return err == nil
	})
	if ds := claimN(t, s, 100); len(ds) != 4 {
		t.Errorf("P1: a claim found %d messages, want 4", len(ds))
	}
}

// takeConnections takes all connections that the server allows, also those that the store's pool
// had. The server frees one of those only a while after the pool has closed it.
func takeConnections(t *testing.T, s *Store, server *pgrig.Server) (held []*pgx.Conn) {
	t.Helper()
	alone := 0 // how often in a row there was no connection but ours, because the place of one that has ended is free only a moment later
	waitUntil(t, "nobody else has a connection", func() bool {
		s.db.pool.Reset()
		before := len(held)
		for {
			c, err := pgx.Connect(t.Context(), server.URL("postgres"))
			if err != nil {
				break
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			held = append(held, c)
		}
		if len(held) == 0 {
			return false
		}
		var all int
		err := held[0].QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		alone++
		if all > len(held) || len(held) > before {
			alone = 0
		}
		return alone == 3
	})
	return held
}

// P14, P13: somebody holds a message's row, and the role of the store waits for a short time only.
// An ack and a cancel are refused definitely, and a claim passes the row by. The ack passes when
// the row is free.
func TestTimeoutsOfRole(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"lock_timeout", "statement_timeout"} {
		t.Run(setting, func(t *testing.T) {
			role := fresh()
			doIt(t, shared, "create role "+role+" superuser login", "alter role "+role+" set "+setting+" = 300")
			t.Cleanup(func() { doIt(t, shared, "drop role "+role) })
			c, err := pgxpool.ParseConfig(shared.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			c.ConnConfig.User = role
			pool, err := pgxpool.NewWithConfig(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			hasty := openStore(t, pool, &Options{Schema: s.opt.Schema, OwnPool: true, NoListen: true})
			pushOrders(t, s, 2, 0)
			held := claimN(t, s, 1)[0]
			tx, err := s.db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), inSchema("SELECT FROM punctual.message FOR UPDATE", s.opt.Schema)); err != nil {
				t.Fatal(err)
			}
			ack := []punctual.Settlement{{Topic: "orders", ID: held.ID, Token: held.Token, Verb: punctual.SettleAck}}
			errs, err := hasty.Settle(t.Context(), ack)
			if err != nil {
				t.Fatal(err)
			}
			wantDefinite(t, "ack of a message whose row is held", errs[0], punctual.ErrOverloaded)
			_, err = hasty.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "1"}})
			wantDefinite(t, "cancel of a message whose row is held", err, punctual.ErrOverloaded)
			if ds, err := hasty.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 2}); err != nil || len(ds) != 0 {
				t.Errorf("P14: a claim beside rows that are held: %v, %v; want nothing, at once", ds, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "the ack passes", func() bool {
				errs, err := hasty.Settle(t.Context(), ack)
				return err == nil && errs[0] == nil
			})
		})
	}
}

// A server may begin to refuse changes on connections that stay open, as one does that was made a
// standby. That is a definite error, and work goes on when the server takes changes again.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "fsync=off")
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true})
	pushOrders(t, s, 3, 0)
	one := []punctual.NewMessage{{Topic: "orders", ID: "refused"}}
	if err := server.Set("default_transaction_read_only", "on"); err != nil {
		t.Fatal(err)
	}
	var err error
	waitUntil(t, "a change is refused", func() bool {
		_, err = s.Push(t.Context(), one)
		one[0].ID = fmt.Sprintf("refused %d", time.Now().UnixNano())
		return err != nil
	})
	wantDefinite(t, "push to a server that takes no changes", err, punctual.ErrUnreachable)
	_, err = s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1})
	wantDefinite(t, "claim from a server that takes no changes", err, punctual.ErrUnreachable)
	doIt(t, server, "set default_transaction_read_only = off", "alter system reset default_transaction_read_only", "select pg_reload_conf()")
	waitUntil(t, "a claim passes", func() bool {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100})
		return err == nil && len(ds) >= 3
	})
}

// P13: a server that ends a connection while it prepares the statements of a call has been sent
// nothing to carry out. So the error is definite.
func TestEndedWhilePreparing(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	for name, call := range map[string]func(one *Store) error{
		"push": func(one *Store) error {
			_, err := one.Push(context.Background(), []punctual.NewMessage{{Topic: "orders", ID: "a"}})
			return err
		},
		"claim": func(one *Store) error {
			_, err := one.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 1})
			return err
		},
		"ack": func(one *Store) error {
			_, err := one.Settle(context.Background(), []punctual.Settlement{{Topic: "orders", ID: "a", Token: 1, Verb: punctual.SettleAck}})
			return err
		},
		"cancel": func(one *Store) error {
			_, err := one.Amend(context.Background(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "a"}})
			return err
		},
	} {
		one := openStore(t, newPool(t, shared), &Options{Schema: s.opt.Schema, OwnPool: true, NoListen: true})
		tx, err := s.db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		var holding int
		if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&holding); err != nil {
			t.Fatal(err)
		}
		// To prepare a statement the server needs locks of its tables.
		if _, err := tx.Exec(t.Context(), inSchema("LOCK TABLE punctual.message, punctual.topic IN ACCESS EXCLUSIVE MODE", s.opt.Schema)); err != nil {
			t.Fatal(err)
		}
		answer := make(chan error, 1)
		go func() { answer <- call(one) }()
		awaitBlocked(t, s, holding)
		ended := 0
		err = s.db.pool.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", holding).Scan(&ended)
		if err != nil || ended == 0 {
			t.Fatalf("this test shows nothing: %d connections were ended, %v", ended, err)
		}
		wantDefinite(t, name+" whose connection ended while its statements were prepared", <-answer, punctual.ErrUnreachable)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(t.Context(), "orders", "a"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("P13: Get of the message that was certainly not pushed: %v", err)
	}
}

// P13: when the database is gone, the error says that, and not that a message is not found.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "fsync=off")
	doIt(t, server, "create database shop")
	pool, err := pgxpool.New(t.Context(), server.URL("shop"))
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, pool, &Options{Migrate: true, OwnPool: true})
	pushOrders(t, s, 1, time.Hour)
	waitUntil(t, "the database is renamed", func() bool {
		doIt(t, server, "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = 'shop'")
		_, err := server.Do("alter database shop rename to shop_before")
		return err == nil
	})
	pool.Reset()
	_, err = s.Get(t.Context(), "orders", "0")
	wantDefinite(t, "get from a database that is gone", err, punctual.ErrUnreachable)
	if errors.Is(err, punctual.ErrNotFound) || !strings.Contains(fmt.Sprint(err), "no such database") {
		t.Errorf("P13: get from a database that is gone: %v; want that the database is, and not the message", err)
	}
	_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}})
	wantDefinite(t, "push to a database that is gone", err, punctual.ErrUnreachable)
	doIt(t, server, "alter database shop_before rename to shop")
	waitUntil(t, "the message is there again", func() bool {
		_, err := s.Get(t.Context(), "orders", "0")
		return err == nil
	})
}

// P13: no error of the server is explained as an answer about a message or a topic, because whoever
// gets such an answer believes that the message is not there, or done.
func TestFaultsSayNothingOfMessages(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		for _, kind := range []error{
			punctual.ErrNotFound, punctual.ErrDuplicate, punctual.ErrLeaseLost, punctual.ErrCancelled, punctual.ErrLeased, punctual.ErrNotDead, punctual.ErrPaused, punctual.ErrInvalid,
		} {
			if errors.Is(f.kind, kind) {
				t.Errorf("P13: the server's error %s is explained as %q", f.code, kind)
			}
		}
	}
}
