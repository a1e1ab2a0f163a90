package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// twoStores opens two stores on the same tables, which stand for two processes.
func twoStores(t *testing.T, o Options) (a, b *Store) {
	t.Helper()
	o.Schema, o.Migrate, o.OwnPool = fresh(), true, true
	a = openStore(t, newPool(t, shared), &o)
	other := o
	b = openStore(t, newPool(t, shared), &other)
	return a, b
}

// bound gives orders bounds.
func bound(t *testing.T, s *Store, leases int, r limits.Rate) {
	t.Helper()
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxLeases: &leases, MaxRate: &r}); err != nil {
		t.Fatal(err)
	}
}

// P3, P1: two processes claim and ack while a topic gets MaxLeases again and again. Whoever asks
// after that finds no more leases than the bound, although each time claims are under way that know
// of no bound, and their leases are not over. All messages are delivered in the end.
func TestBoundSetUnderLoad(t *testing.T) {
	t.Parallel()
	const all, most = 1500, 2
	a, b := twoStores(t, Options{NoListen: true})
	pushOrdersOnce(t, a, all)
	var epoch, underWay, acked, bounded atomic.Int64 // epoch is odd while the topic is bounded
	var work sync.WaitGroup
	for i := range 8 {
		s := []*Store{a, b}[i%2]
		work.Go(func() {
			for acked.Load() < all && t.Context().Err() == nil {
				before := epoch.Load()
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 4, Lease: time.Hour})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				n := underWay.Add(int64(len(ds)))
				if before%2 == 1 && before == epoch.Load() && len(ds) > 0 {
					bounded.Add(1)
					if n > most {
						t.Errorf("P3: behind a change to %d leases at most a claim got %d messages, beside %d that were under way", most, len(ds), n-int64(len(ds)))
					}
				}
				for _, d := range ds {
					underWay.Add(-1) // before the ack, because its room is free before its answer comes
					if errs, err := s.Settle(t.Context(), []punctual.Settlement{settlement(d, punctual.SettleAck)}); err != nil || errs[0] != nil {
						t.Errorf("ack of %s: %v, %v", d.ID, errs, err)
						return
					}
					acked.Add(1)
				}
			}
		})
	}
	changes := 0
	for ; acked.Load() < all && !t.Failed(); changes++ {
		bound(t, a, most, limits.Rate{})
		epoch.Add(1)
		until := acked.Load() + 20
		waitUntil(t, "some are acked under the bound", func() bool { return acked.Load() >= min(until, all) || t.Failed() })
		epoch.Add(1)
		bound(t, b, 0, limits.Rate{})
		until = acked.Load() + 30
		waitUntil(t, "some are acked without a bound", func() bool { return acked.Load() >= min(until, all) || t.Failed() })
	}
	work.Wait()
	if changes < 5 || bounded.Load() < 5 {
		t.Errorf("this test shows nothing: the bound was set %d times, and %d claims got something meanwhile", changes, bounded.Load())
	}
	if n := count(t, a, "message"); n != 0 {
		t.Errorf("P1: %d messages are left", n)
	}
	wantNoProblem(t, a)
}

// P11: a claim that a bound has stopped is woken when another process ends a lease, in whatever
// way, although that process has never claimed from the topic. No poll helps.
func TestWokenByAnEndInAnotherProcess(t *testing.T) {
	t.Parallel()
	a, b := twoStores(t, Options{pollEvery: time.Hour})
	waitUntil(t, "both stores listen", func() bool {
		return doIt(t, shared, "select count(*) from pg_stat_activity where query = 'LISTEN \""+a.opt.Schema+"_due\"'") == "2"
	})
	bound(t, a, 1, limits.Rate{})
	replacing := func(d punctual.Delivery) punctual.NewMessage {
		return punctual.NewMessage{Topic: d.Topic, ID: d.ID, Delay: time.Hour, IfExists: punctual.IfExistsReplace}
	}
	for name, end := range map[string]func(d punctual.Delivery) error{
		"ack": func(d punctual.Delivery) error { return settleOne(t, b, settlement(d, punctual.SettleAck)) },
		"retry": func(d punctual.Delivery) error {
			x := settlement(d, punctual.SettleRetry)
			x.Delay = time.Hour
			return settleOne(t, b, x)
		},
		"discard": func(d punctual.Delivery) error { return settleOne(t, b, settlement(d, punctual.SettleDiscard)) },
		"ack with a follow-up": func(d punctual.Delivery) error {
			return settleOne(t, b, settlement(d, punctual.SettleAck, laterMessage("after "+d.ID)))
		},
		"delete": func(d punctual.Delivery) error {
			out, err := b.Amend(t.Context(), []punctual.Amendment{{Topic: "orders", ID: d.ID, Change: punctual.ChangeDelete}})
			return firstError(err, func() error { return out[0].Err })
		},
		"replace": func(d punctual.Delivery) error {
			rs, err := b.Push(t.Context(), []punctual.NewMessage{replacing(d)})
			return firstError(err, func() error { return rs[0].Err })
		},
		"purge": func(punctual.Delivery) error {
			_, err := b.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateLeased})
			return err
		},
		"higher bound": func(punctual.Delivery) error {
			_, err := b.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxLeases: new(2)})
			return err
		},
	} {
		d := leaseOne(t, a, "orders", name)
		pushOrdersOnce(t, a, 1)
		found := make(chan []punctual.Delivery, 1)
		go func() {
			ds, _ := a.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
			found <- ds
		}()
		waitUntil(t, "the claim is stopped by the bound", func() bool {
			a.waits.mu.Lock()
			defer a.waits.mu.Unlock()
			orders := a.waits.topics["orders"]
			return orders != nil && len(orders.waiting) == 1 && orders.blocked && orders.asking == nil && a.waits.polling == 0 && !a.waits.again
		})
		if err := end(d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ds := <-found
		if len(ds) != 1 {
			t.Fatalf("P11: %s in another process does not wake a claim that the bound has stopped", name)
		}
		ackAll(t, a, ds...)
		if name == "higher bound" {
			ackAll(t, a, d)
			bound(t, a, 1, limits.Rate{})
		}
	}
	wantNoProblem(t, a)
}

// firstError returns err, or what of returns if err is nil.
func firstError(err error, of func() error) error {
	if err != nil {
		return err
	}
	return of()
}

// A claim that a bound has stopped asks no more while messages are pushed, because they have no
// room either.
func TestPushesDoNotWakeAFullTopic(t *testing.T) {
	t.Parallel()
	tables := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	var asked atomic.Int64
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		if slices.Contains(statements, s.db.sql.text("claim_bounded")) {
			asked.Add(1)
		}
	})
	s.opt.pollEvery = time.Hour
	bound(t, tables, 1, limits.Rate{})
	d := leaseOne(t, s, "orders", "first")
	found := make(chan []punctual.Delivery, 1)
	go func() {
		ds, _ := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
		found <- ds
	}()
	waitUntil(t, "the claim is stopped by the bound", func() bool {
		s.waits.mu.Lock()
		defer s.waits.mu.Unlock()
		orders := s.waits.topics["orders"]
		return orders != nil && len(orders.waiting) == 1 && orders.blocked && orders.asking == nil && s.waits.polling == 0
	})
	before := asked.Load()
	if before == 0 {
		t.Fatal("this test shows nothing: nobody has asked")
	}
	for range 50 {
		pushOrdersOnce(t, s, 1)
	}
	ackAll(t, s, d)
	if ds := <-found; len(ds) != 1 {
		t.Fatalf("an ack has not woken the claim: %v", ds)
	}
	if n := asked.Load() - before; n > 5 {
		t.Errorf("the claim asked %d times while 50 messages were pushed and one was acked; want once, or a few times", n)
	}
}

// P14: a process stands still in the middle of a claim of a topic that is bounded, or is ended
// there. Meanwhile a claim of two topics gets what the other one has. When the process is gone, no
// place is lost.
func TestProcessEndsInABoundedClaim(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	bound(t, s, 2, limits.Rate{})
	pushOrdersOnce(t, s, 5)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "mails", Due: longDue}}); err != nil {
		t.Fatal(err)
	}
	claimN(t, s, 1) // the store learns that the topic is bounded
	conn := claimStandsStill(t, s, "claim_lock", "claim_bounded")
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders", "mails"}, Max: 10})
	if err != nil || len(ds) != 1 || ds[0].Topic != "mails" {
		t.Fatalf("P14: beside a claim of orders that stands still, a claim of orders and mails got %v, %v; want what is in mails", ds, err)
	}
	pid := conn.PgConn().PID()
	doIt(t, shared, fmt.Sprintf("select pg_terminate_backend(%d)", pid))
	waitUntil(t, "the session has ended", func() bool {
		return doIt(t, shared, fmt.Sprintf("select count(*) from pg_stat_activity where pid = %d", pid)) == "0"
	})
	if ds := claimN(t, s, 10); len(ds) != 1 {
		t.Errorf("P1: with 1 leased, a bound of 2 and a claim that was ended, a claim got %d messages; want 1", len(ds))
	}
	if ds := claimN(t, s, 10); len(ds) != 0 {
		t.Errorf("P3: with 2 leased and a bound of 2 a claim got %d messages", len(ds))
	}
	wantNoProblem(t, s)
}

// claimStandsStill carries out the statements of a claim of one message of orders, as another
// process does, and leaves the transaction open. It returns the session.
func claimStandsStill(t *testing.T, s *Store, statements ...string) *pgx.Conn {
	t.Helper()
	pool := newPool(t, shared)
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	run(t, conn.Conn(), "BEGIN")
	e := s.db.epoch.Load()
	args := map[string][]any{"claim_lock": {s.db.class, "orders", "1s"}}
	args["claim"] = s.db.writing("orders", 1, nil, 1000, 1000, noScanStart, e.number, e.timeline, nil)
	args["claim_bounded"] = args["claim"]
	rows := int64(0)
	for _, statement := range statements {
		tag, err := conn.Exec(t.Context(), s.db.sql.text(statement), args[statement]...)
		if err != nil {
			t.Fatal(err)
		}
		rows = tag.RowsAffected()
	}
	if rows != 1 {
		t.Fatalf("this test shows nothing: the claim has %d rows", rows)
	}
	return conn.Conn()
}

// P3: a topic gets a bound while a claim that knows of none is under way. The change waits for the
// claim, whose lease counts then; if it takes long, the change is refused and nothing has changed.
func TestBoundWaitsForClaimsUnderWay(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	makeTopic(t, s, "orders")
	pushOrdersOnce(t, s, 3)
	conn := claimStandsStill(t, s, "claim")
	set := func() error {
		_, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxLeases: new(1)})
		return err
	}
	if err := set(); !errors.Is(err, punctual.ErrOverloaded) {
		t.Errorf("a bound of a topic where a claim stands still: %v; want overloaded", err)
	}
	if now, err := s.Settings(t.Context(), "orders"); err != nil || now.MaxLeases != 0 {
		t.Errorf("the bound that was refused is %d, %v", now.MaxLeases, err)
	}
	if ds := claimN(t, s, 1); len(ds) != 1 {
		t.Errorf("beside a bound that was refused a claim got %d messages; want 1", len(ds))
	}
	done := make(chan error, 1)
	go func() { done <- set() }()
	waitUntil(t, "the change waits for the claim", func() bool {
		return doIt(t, shared, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'LOCK TABLE \""+s.opt.Schema+"\"%'") == "1"
	})
	run(t, conn, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if ds := claimN(t, s, 1); len(ds) != 0 {
		t.Errorf("P3: with 2 leased, of which 1 by a claim that was under way, and a bound of 1, a claim got %d messages", len(ds))
	}
	wantNoProblem(t, s)
}

// A topic that is not bounded costs what it did: the statement of its claims looks neither at rates
// nor at which leases count. A claim of a topic that is bounded is one message to the server, too,
// but for the first one of a process.
func TestStatementsOfBounds(t *testing.T) {
	t.Parallel()
	tables := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	claim, bounded := tables.db.sql.text("claim"), tables.db.sql.text("claim_bounded")
	for _, part := range []string{".rate ", "counted", "max_leases"} {
		if strings.Contains(claim, part) || !strings.Contains(bounded, part) {
			t.Errorf("claim names %q: %v, and claim_bounded: %v; want claim_bounded alone", part, strings.Contains(claim, part), strings.Contains(bounded, part))
		}
	}
	bound(t, tables, 2, limits.PerSecond(1_000_000))
	var mu sync.Mutex
	var sent []string
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		if step := strings.Join(namesOfStatements(s, statements), " "); strings.Contains(step, "claim") {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, step)
		}
	})
	for _, want := range [][]string{{"level plan claim", "level plan claim_lock claim_bounded"}, {"level plan claim_lock claim_bounded"}} {
		pushOrdersOnce(t, tables, 1)
		sent = nil
		if ds := claimN(t, s, 1); len(ds) != 1 || !slices.Equal(sent, want) {
			t.Errorf("a claim of a topic that is bounded got %v and sends %q; want %q", ds, sent, want)
		}
	}
	bound(t, tables, 0, limits.Rate{N: 1, Per: 1000 * time.Hour})
	pushOrdersOnce(t, tables, 2)
	claimN(t, s, 1)
	var gate int64
	bound(t, tables, 0, limits.PerSecond(1))
	if err := s.db.pool.QueryRow(t.Context(), inSchema("SELECT gate FROM punctual.rate", s.opt.Schema)).Scan(&gate); err != nil || gate == 0 || gate > s.db.clock.guess()+time.Hour.Microseconds() {
		t.Errorf("a change from 1 in 1000 hours to 1 in a second leaves a gate at %v, %v; want one within the second", time.UnixMicro(gate), err)
	}
	bound(t, tables, 0, limits.Rate{})
	pushOrdersOnce(t, tables, 1)
	for _, want := range [][]string{{"level plan claim_lock claim_bounded", "level plan claim"}, {"level plan claim"}} {
		sent = nil
		if _, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 1}); err != nil || !slices.Equal(sent, want) {
			t.Errorf("a claim of a topic that is bounded no more sends %q, %v; want %q", sent, err, want)
		}
	}
	if n := count(t, s, "rate"); n != 0 {
		t.Errorf("%d rates are left of topics that have none", n)
	}
}
