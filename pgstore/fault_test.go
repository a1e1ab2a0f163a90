package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storekit"
)

// pushOrders pushes messages that are due after a delay, or long due without one.
func pushOrders(t *testing.T, s *Store, n int, delay time.Duration) {
	t.Helper()
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(i), Delay: delay}
		if delay == 0 {
			ms[i].Due = longDue
		}
	}
	rs, err := s.Push(t.Context(), ms)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func claimN(t *testing.T, s *Store, n int) []punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: n})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// A claim leases as many messages as it asks for and no more, whichever kind of step the server's
// plan by stale statistics has to avoid, and reads no more of the table than it needs.
func TestClaimUnderForcedPlans(t *testing.T) {
	t.Parallel()
	for _, off := range []string{"enable_hashjoin", "enable_nestloop", "enable_indexscan", "enable_tidscan", "enable_sort", "enable_material"} {
		t.Run(off, func(t *testing.T) {
			c, err := pgxpool.ParseConfig(shared.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			c.ConnConfig.RuntimeParams[off] = "off"
			c.ConnConfig.RuntimeParams["jit"] = "off" // what is forced is so dear by the server's reckoning that it would compile it
			pool, err := pgxpool.NewWithConfig(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			if _, err := pool.Exec(t.Context(), inSchema("ANALYZE punctual.message", s.opt.Schema)); err != nil {
				t.Fatal(err)
			}
			pushOrders(t, s, 500, 0)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			keptPlan(t, conn.Conn(), s, "claim").each(func(n planNode) {
				if problem := n.problem("claim"); problem != "" {
					t.Errorf("a claim %s: %+v", problem, n)
				}
			})
			conn.Release()
			seen := make(map[string]bool)
			for n := range 10 {
				ds := claimN(t, s, 7)
				if len(ds) != 7 {
					t.Fatalf("claim %d of 7 messages returned %d", n+1, len(ds))
				}
				for _, d := range ds {
					if seen[d.ID] {
						t.Fatalf("%s was delivered twice", d.ID)
					}
					seen[d.ID] = true
				}
			}
			if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Leased != 70 {
				t.Errorf("after 10 claims of 7 messages %d are leased, %v; want 70", st.Leased, err)
			}
		})
	}
}

// The statement of a claim reads the table message by an index and by place, and never as a whole.
func TestPlanOfClaim(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	pushOrders(t, s, 2000, 0)
	rows, err := s.db.pool.Query(t.Context(), "EXPLAIN "+s.db.sql.text("claim"), s.db.writing("orders", 10, nil, claimBytes, scanAhead.Milliseconds(), noScanStart, 1, "", nil)...)
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plan.String(), "Seq Scan on message") || !strings.Contains(plan.String(), "Tid Scan on message") ||
		!strings.Contains(plan.String(), "message_visible") {
		t.Errorf("a claim has the plan\n%s", plan.String())
	}
}

// P11: a push of one process wakes a claim that waits in another one: by a notification at once,
// or, where notifications are off (deaf), by a poll within a second. The clock is paused, so
// nothing else wakes the claim.
func TestWokenByAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf %v", deaf), func(t *testing.T) {
			t.Parallel()
			clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
			o := &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: deaf, clock: clock, heartbeat: time.Hour}
			one, other := openStore(t, newPool(t, shared), o), openStore(t, newPool(t, shared), o)
			if !deaf {
				waitUntil(t, "both processes listen", func() bool {
					return doIt(t, shared, "select count(*) from pg_stat_activity where query = 'LISTEN \""+o.Schema+"_due\"'") == "2"
				})
			}
			for n := range 3 {
				found := make(chan claimResult, 1)
				go func() {
					ds, err := one.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Hour})
					found <- claimResult{ds, err}
				}()
				waitUntil(t, "the claim and the polls sleep", func() bool {
					one.waits.mu.Lock()
					defer one.waits.mu.Unlock()
					w := one.waits.topics["orders"]
					return w != nil && len(w.waiting) == 1 && !w.waiting[0].busy && one.waits.polls > 0 && one.waits.polling == 0 && !one.waits.again
				})
				if _, err := other.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: fmt.Sprint(n)}}); err != nil {
					t.Fatal(err)
				}
				if deaf {
					select {
					case got := <-found:
						t.Fatalf("this test shows nothing: without a notification and with a clock that is paused a claim found %v, %v", got.ds, got.err)
					case <-time.After(50 * time.Millisecond):
					}
					clock.Advance(time.Second)
				}
				select {
				case got := <-found:
					if got.err != nil || len(got.ds) != 1 || got.ds[0].ID != fmt.Sprint(n) {
						t.Fatalf("P11: a claim that waited for another process found %v, %v", got.ds, got.err)
					}
				case <-time.After(callTime / 2):
					t.Fatal("P11: the claim does not learn of a push of another process")
				}
			}
		})
	}
}

// P11: what a process stores just before it ends, such as a command in a shell, wakes a claim that
// waits in another process. The clock of that one is paused, so that no poll finds it; only the
// notification does, which Close sends.
func TestCloseNotifies(t *testing.T) {
	t.Parallel()
	now := func(id string) []punctual.NewMessage { return []punctual.NewMessage{{Topic: "orders", ID: id}} }
	later := func(id string) []punctual.NewMessage {
		return []punctual.NewMessage{{Topic: "orders", ID: id, Delay: time.Hour}}
	}
	paused, resumed := true, false
	push := func(ms []punctual.NewMessage) func(ctx context.Context, s *Store) error {
		return func(ctx context.Context, s *Store) error { _, err := s.Push(ctx, ms); return err }
	}
	for name, c := range map[string]struct {
		before, last func(ctx context.Context, s *Store) error
	}{
		"push": {nil, push(now("a"))},
		"reschedule": {push(later("a")), func(ctx context.Context, s *Store) error {
			_, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "a"}})
			return err
		}},
		"resume": {func(ctx context.Context, s *Store) error {
			if _, err := s.Configure(ctx, "orders", punctual.SettingsPatch{DeliveryPaused: &paused}); err != nil {
				return err
			}
			return push(now("a"))(ctx, s)
		}, func(ctx context.Context, s *Store) error {
			_, err := s.Configure(ctx, "orders", punctual.SettingsPatch{DeliveryPaused: &resumed})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
			o := Options{Schema: fresh(), Migrate: true, OwnPool: true, clock: clock, heartbeat: time.Hour}
			stays := o
			waiting := openStore(t, newPool(t, shared), &stays)
			waitUntil(t, "the process that stays listens", func() bool {
				return doIt(t, shared, "select count(*) from pg_stat_activity where query = 'LISTEN \""+o.Schema+"_due\"'") == "1"
			})
			if c.before != nil {
				if err := c.before(t.Context(), waiting); err != nil {
					t.Fatal(err)
				}
			}
			found := make(chan claimResult, 1)
			go func() {
				ds, err := waiting.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: time.Hour})
				found <- claimResult{ds, err}
			}()
			waitUntil(t, "the claim and the polls sleep", func() bool {
				waiting.waits.mu.Lock()
				defer waiting.waits.mu.Unlock()
				w := waiting.waits.topics["orders"]
				return w != nil && len(w.waiting) == 1 && !w.waiting[0].busy && waiting.waits.polls > 0 && waiting.waits.polling == 0 && !waiting.waits.again
			})
			ends := o
			short := openStore(t, newPool(t, shared), &ends)
			if err := c.last(t.Context(), short); err != nil {
				t.Fatal(err)
			}
			if err := short.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-found:
				if got.err != nil || len(got.ds) != 1 || got.ds[0].ID != "a" {
					t.Errorf("P11: a claim that waited for another process found %v, %v", got.ds, got.err)
				}
			case <-time.After(callTime / 2):
				t.Error("P11: the claim does not learn of what a process has stored that was then closed")
			}
		})
	}
}

type claimResult struct {
	ds  []punctual.Delivery
	err error
}

// awaitWaiting waits until a claim waits for a topic and has read it.
func awaitWaiting(t *testing.T, s *Store, topic string) {
	t.Helper()
	for {
		s.waits.mu.Lock()
		w := s.waits.topics[topic]
		waits := w != nil && slices.ContainsFunc(w.waiting, func(me *waiter) bool { return !me.busy })
		s.waits.mu.Unlock()
		if waits {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("no claim waits")
		case <-time.After(time.Millisecond):
		}
	}
}

// P4: after a promotion that has lost the last claims, the tokens of these are not given again.
func TestPromotion(t *testing.T) {
	t.Parallel()
	primary := pgrig.Start(t, "wal_level=replica", "fsync=off")
	replica := pgrig.StartReplica(t, primary)
	old := openStore(t, newPool(t, primary), &Options{Migrate: true, OwnPool: true})
	pushOrders(t, old, 20, 0)
	before := claimN(t, old, 5)
	awaitReplica(t, replica, len(before))
	// A standby whose replay is paused still receives, and replays at its promotion what it has
	// received. So its connection ends.
	if err := replica.Set("primary_conninfo", ""); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the replica follows no more", func() bool {
		return doIt(t, primary, "select count(*) from pg_stat_replication") == "0" && doIt(t, replica, "select count(*) from pg_stat_wal_receiver") == "0"
	})
	lost := claimN(t, old, 5)
	// Each claim takes a number. A standby knows the next 32 or so of them, so the loss of a few
	// claims shows nothing: here those of 20,000 go.
	doIt(t, primary, "select count(nextval('punctual.claim_number')) from generate_series(1, 20000)")
	lost = append(lost, claimN(t, old, 5)...)
	if err := replica.Promote(); err != nil {
		t.Fatal(err)
	}
	if n := doIt(t, replica, "select last_value < 1000 from punctual.claim_number"); n != "t" {
		t.Fatal("this test shows nothing: the promoted server knows the numbers of the claims that were to be lost")
	}
	promoted := openStore(t, newPool(t, replica), &Options{OwnPool: true})
	again := claimN(t, promoted, 20)
	if len(again) != 15 {
		t.Fatalf("this test shows nothing: after the promotion a claim found %d messages, want all but the 5 that the replica knows to be leased", len(again))
	}
	newest := int64(0)
	for _, d := range append(before, lost...) {
		newest = max(newest, d.Token)
	}
	for _, d := range again {
		if d.Token <= newest {
			t.Errorf("P4: %s was given token %d after the promotion, not above %d, which was given before", d.ID, d.Token, newest)
		}
	}
	if was, is := newest>>52, again[0].Token>>52; was != 1 || is != 2 {
		t.Errorf("P4: the tokens before the promotion are of epoch %d, those behind it of epoch %d; want 1 and 2", was, is)
	}
	ss := make([]punctual.Settlement, len(lost))
	for i, d := range lost {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	}
	errs, err := promoted.Settle(t.Context(), ss)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range errs {
		if !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("P4: ack of %s by the holder of a lost claim: %v; want lease lost", lost[i].ID, err)
		}
	}
}

// A standby that takes over may have an older clock in its table than this process has seen, and
// the store goes on, check after check. The first one writes down how far the clock is. Where the
// timeline is the same, also after a promotion, and the clock is older by more than restored, a
// backup was restored, and the store stops.
func TestOlderClockInTheTable(t *testing.T) {
	t.Parallel()
	for _, promoted := range []bool{false, true} {
		s, err := newStore(newPool(t, shared), &Options{Schema: fresh(), Migrate: true}) // without duties, which check by themselves
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.db.pool.Close)
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := s.db.clock.guess()
		if err := s.db.writeClockAt(t.Context(), seen, 0); err != nil {
			t.Fatal(err)
		}
		goBack := func() {
			t.Helper()
			older := seen - 2*restored.Microseconds()
			if _, err := s.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.store SET clock = $1", s.opt.Schema), older); err != nil {
				t.Fatal(err)
			}
		}
		goBack()
		if promoted {
			s.data.timeline = "00000000"
			for n := range 3 { // this process is idle, so it hears of no later time meanwhile
				if err := s.checkTables(t.Context()); err != nil {
					t.Fatalf("check %d after a standby with an older clock took over: %v; want the store to go on", n+1, err)
				}
			}
			if d, err := s.db.readStore(t.Context()); err != nil || d.micros < seen {
				t.Errorf("P8: after the promotion the table has the clock %v, %v; want that it has caught up with %v", time.UnixMicro(d.micros), err, time.UnixMicro(seen))
			}
			if now, err := s.Now(t.Context()); err != nil || now.UnixMicro() < seen-1000 {
				t.Errorf("P8: the clock is %v behind the promotion, %v; it was %v before", now, err, time.UnixMicro(seen))
			}
			goBack()
		}
		if err := s.checkTables(t.Context()); !errors.Is(err, punctual.ErrStoreFailed) {
			t.Errorf("a table with an older clock on the same timeline (promoted before: %v): %v; want that the store has failed", promoted, err)
		}
	}
}

// awaitReplica waits until a replica shows so many leases.
func awaitReplica(t *testing.T, replica *pgrig.Server, leases int) {
	t.Helper()
	waitUntil(t, "the replica follows", func() bool {
		out, err := replica.Do("select count(*) from punctual.message where token <> 0")
		return err == nil && strings.TrimSpace(out) == fmt.Sprint(leases)
	})
}

// A server that goes away is unreachable, and the store goes on when it is back with everything it
// had.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t)
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true, Durability: punctual.Fsync})
	pushOrders(t, s, 10, 0)
	if err := server.StopImmediately(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), "orders", "1")
	if !errors.Is(err, punctual.ErrUnreachable) {
		t.Errorf("Get from a server that is gone: %v; want unreachable", err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}}); err == nil {
		t.Error("a push to a server that is gone succeeded")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	var ds []punctual.Delivery
	waitUntil(t, "the store comes back with its server", func() bool { // connections that broke are noticed when they are used
		ds, err = s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100})
		return err == nil
	})
	if len(ds) != 10 {
		t.Errorf("after an immediate stop a claim found %d messages; want 10", len(ds))
	}
}

// Where the tables are gone, or are those of another store, the store stops.
func TestWiped(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	pushOrders(t, s, 1, time.Hour)
	if _, err := s.db.pool.Exec(t.Context(), "DROP SCHEMA "+s.opt.Schema+" CASCADE"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "orders", "0"); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("Get where the tables are gone: %v; want that the store has failed", err)
	}
	other := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	if _, err := other.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.store SET identity = gen_random_uuid()", other.opt.Schema)); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the store notices that the tables are those of another one", func() bool {
		_, err := other.Now(t.Context())
		return errors.Is(err, punctual.ErrStoreFailed)
	})
}

// Behind a pooler that gives each transaction another connection the store turns notifications off,
// and nobody listens.
func TestPoolerIsNoticed(t *testing.T) {
	t.Parallel()
	pool := pooledPool(t, pgrig.StartBouncer(t, shared))
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	waitUntil(t, "the store notices the pooler", func() bool {
		s.waits.others.mu.Lock()
		defer s.waits.others.mu.Unlock()
		return s.waits.others.off
	})
	if n := doIt(t, shared, "select count(*) from pg_stat_activity where query = 'LISTEN \""+s.opt.Schema+"_due\"'"); n != "0" {
		t.Errorf("%s sessions of the pooler listen", n)
	}
}

// The error of a pooler that carries no prepared statements says what to do.
func TestPoolerWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"26000", "42P05"} {
		remedy, kind := meaning(&pgconn.PgError{Severity: "ERROR", Code: code}, punctual.ErrIndeterminate)
		if !errors.Is(kind, punctual.ErrUnsupported) || !strings.Contains(remedy, "default_query_exec_mode") {
			t.Errorf("error %s means %v, %q", code, kind, remedy)
		}
	}
}
