package pgstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// keyed makes a topic with keys, and sets what p sets.
func keyed(t testing.TB, s *Store, topic string, p punctual.SettingsPatch) {
	t.Helper()
	p.Keyed = new(true)
	if _, err := s.Configure(context.Background(), topic, p); err != nil {
		t.Fatal(err)
	}
}

// ofKey returns a message that is due, with the stem of its ID as its key.
func ofKey(topic, id string) punctual.NewMessage {
	return punctual.NewMessage{Topic: topic, ID: id, Key: storekit.Stem(id), Due: longDue}
}

func pushKeys(t testing.TB, s *Store, ms ...punctual.NewMessage) {
	t.Helper()
	rs, err := s.Push(context.Background(), ms)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func claimKeys(t testing.TB, s *Store, topic string, n int) (ids []string, ds []punctual.Delivery) {
	t.Helper()
	ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{topic}, Max: n, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ds {
		ids = append(ids, ds[i].ID)
	}
	return ids, ds
}

// otherProcess carries out the statements of a claim of a topic with keys one by one, in a session
// that the test may end.
type otherProcess struct {
	t     *testing.T
	s     *Store
	topic string
	conn  *pgx.Conn
	ids   []string
}

func (o *otherProcess) step(n int) {
	o.t.Helper()
	ctx, db := o.t.Context(), o.s.db
	switch n {
	case 0:
		run(o.t, o.conn, "BEGIN; "+db.sql.text("plan"))
	case 1:
		if _, err := o.conn.Exec(ctx, db.sql.text("claim_lock"), db.class, o.topic, "5s"); err != nil {
			o.t.Fatal(err)
		}
	case 2:
		e := db.epoch.Load()
		rows, err := o.conn.Query(ctx, db.sql.text("claim_keyed"), db.writing(o.topic, 9, time.Hour.Milliseconds(), 1<<20, 2000, noScanStart, e.number, e.timeline, nil, []string(nil))...)
		if err != nil {
			o.t.Fatal(err)
		}
		defer rows.Close()
		got := &claimed{}
		for rows.Next() {
			var left, n, turn *int64
			if err := got.scan(rows, o.topic, &left, &n, &turn); err != nil {
				o.t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			o.t.Fatal(err)
		}
		for _, d := range got.ds {
			o.ids = append(o.ids, d.ID)
		}
	}
}

// P1, P3: a push and the end of a lease of one key happen at all boundaries of the statements of a
// claim of another process: each in a transaction that begins at one boundary and commits at the
// same one or a later one. The process ends its claim, or is ended. Everything is delivered in the
// end, and no two messages of the key at once.
func TestKeysInterleaved(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	const boundaries = 4 // before the first statement, and behind each
	conns := map[string]*pgx.Conn{}
	for _, name := range []string{"push", "settle"} {
		c, err := s.db.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
		conns[name] = c.Conn()
	}
	claimer := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), shared.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var claiming *pgx.Conn
	n, seen := 0, map[int]int{}
	for pushAt := range boundaries {
		for pushEnds := pushAt; pushEnds < boundaries; pushEnds++ {
			for settleAt := range boundaries {
				for settleEnds := settleAt; settleEnds < boundaries; settleEnds++ {
					for _, verb := range []punctual.Verb{punctual.SettleAck, punctual.SettleRetry} {
						killed := n%3 == 0
						if claiming == nil {
							claiming = claimer()
						}
						n++
						topic := fmt.Sprint("t", n%7) // used again and again, empty
						keyed(t, s, topic, punctual.SettingsPatch{MaxKeyLeases: new(1)})
						pushKeys(t, s, ofKey(topic, "a~1"), ofKey(topic, "a~2"))
						_, ds := claimKeys(t, s, topic, 9)
						if len(ds) != 1 {
							t.Fatalf("a claim got %d messages; want 1", len(ds))
						}
						o := &otherProcess{t: t, s: s, topic: topic, conn: claiming}
						ends := map[string]pgx.Tx{}
						for at := range boundaries {
							if at == pushAt {
								tx, err := conns["push"].Begin(t.Context())
								if err != nil {
									t.Fatal(err)
								}
								ends["push"] = tx
								early := ofKey(topic, "a~0")
								early.Due = longDue.Add(-time.Second)
								if _, err := s.PushTx(t.Context(), Pgx(tx), early); err != nil {
									t.Fatal(err)
								}
							}
							if at == settleAt {
								tx, err := conns["settle"].Begin(t.Context())
								if err != nil {
									t.Fatal(err)
								}
								ends["settle"] = tx
								if err := s.SettleTx(t.Context(), Pgx(tx), settlement(ds[0], verb)); err != nil {
									t.Fatal(err)
								}
							}
							for name, end := range map[string]int{"push": pushEnds, "settle": settleEnds} {
								if at == end {
									if err := ends[name].Commit(t.Context()); err != nil {
										t.Fatal(err)
									}
								}
							}
							if at < boundaries-1 {
								o.step(at)
							}
						}
						held := map[string]bool{}
						if killed {
							pid := claiming.PgConn().PID()
							_ = claiming.Close(t.Context()) // as when its process ends: the server rolls back
							waitUntil(t, "the session has ended", func() bool {
								return doIt(t, shared, fmt.Sprintf("select count(*) from pg_stat_activity where pid = %d", pid)) == "0"
							})
							claiming, o.ids = nil, nil
						} else {
							run(t, claiming, "COMMIT")
						}
						seen[len(o.ids)]++
						if len(o.ids) > 1 {
							t.Fatalf("P3: a claim leased %v of one key, whose bound is 1", o.ids)
						}
						what := fmt.Sprintf("push %d to %d, %s %d to %d, killed %v", pushAt, pushEnds, verb, settleAt, settleEnds, killed)
						wantNoProblem(t, s)
						if len(o.ids) == 1 { // its holder acks it, in the form of a deletion
							if ids, _ := claimKeys(t, s, topic, 9); len(ids) != 0 {
								t.Fatalf("P3: %s: beside a lease of the other process a claim got %v", what, ids)
							}
							if _, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeDelete, Topic: topic, ID: o.ids[0]}}); err != nil {
								t.Fatal(err)
							}
							held[o.ids[0]] = true
						}
						want := 2
						if verb == punctual.SettleRetry {
							want = 3
						}
						for len(held) < want {
							ids, ds := claimKeys(t, s, topic, 9)
							if len(ids) != 1 {
								t.Fatalf("P1: %s: with %v delivered a claim got %v; want one of the others", what, held, ids)
							}
							held[ids[0]] = true
							ackAll(t, s, ds...)
						}
						if ids, _ := claimKeys(t, s, topic, 9); len(ids) != 0 {
							t.Fatalf("%s: behind everything a claim got %v", what, ids)
						}
					}
				}
			}
		}
	}
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("this test shows nothing: the claims between the statements leased %v", seen)
	}
	if rows := count(t, s, "key"); rows != 0 {
		t.Errorf("%d rows of keys without messages are left", rows)
	}
}

// P14: a caller's transaction that has pushed a message of a key, and stays open, holds up no other
// message of the key, and neither do the acks of the key wait for it.
func TestPushTxHoldsUpNoKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PushTx(t.Context(), Pgx(tx), ofKey("orders", "a~0")); err != nil {
		t.Fatal(err)
	}
	pushKeys(t, s, ofKey("orders", "a~1"), ofKey("orders", "a~2"))
	for _, want := range []string{"a~1", "a~2"} {
		ids, ds := claimKeys(t, s, "orders", 9)
		if !slices.Equal(ids, []string{want}) {
			t.Fatalf("P14: beside an open transaction that has pushed a~0, a claim got %v; want %s", ids, want)
		}
		ackAll(t, s, ds...)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids, _ := claimKeys(t, s, "orders", 9); !slices.Equal(ids, []string{"a~0"}) {
		t.Errorf("P1: behind the commit a claim got %v; want a~0", ids)
	}
	wantNoProblem(t, s)
}

// P14: caller's transactions that hold the first messages of many keys keep no other key from being
// claimed, and these keys go on when the transactions have ended.
func TestHeldHeadsHoldUpNoOtherKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	var ms []punctual.NewMessage
	var as []punctual.Amendment
	const held = 200 // more than one claim looks at
	for i := range held {
		ms = append(ms, ofKey("orders", fmt.Sprintf("k%d~1", i)))
		as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "orders", ID: ms[i].ID})
	}
	for i := range 5 { // without a key
		ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint("plain", i), Due: longDue})
		as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "orders", ID: fmt.Sprint("plain", i)})
	}
	ran := ofKey("orders", "ran~1")
	ran.Due = longDue.Add(-time.Hour)
	pushKeys(t, s, ran)
	if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: 10 * time.Millisecond}); err != nil {
		t.Fatal(ds, err)
	}
	waitUntil(t, "the lease has run out", func() bool {
		i, err := s.Get(t.Context(), "orders", ran.ID)
		return err == nil && i.State == punctual.StateReady
	})
	as = append(as, punctual.Amendment{Change: punctual.ChangeDelete, Topic: "orders", ID: ran.ID})
	pushKeys(t, s, ms...)
	later := ofKey("orders", "z~1")
	later.Due = longDue.Add(time.Hour)
	pushKeys(t, s, later)
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AmendManyTx(t.Context(), Pgx(tx), as); err != nil {
		t.Fatal(err)
	}
	if ids, _ := claimKeys(t, s, "orders", 1); !slices.Equal(ids, []string{"z~1"}) {
		t.Fatalf("P14: beside %d keys whose first messages are held, a claim of one message got %v; want z~1", held, ids)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := 0
	waitUntil(t, "what was held is claimed", func() bool {
		ids, _ := claimKeys(t, s, "orders", 50)
		got += len(ids)
		return got >= len(ms)+1
	})
	wantNoProblem(t, s)
}

// Topics without keys cost what they did: their statements look neither at keys nor at places, and
// name no table more. A life in a topic with keys takes three transactions of
// one message to the server each, too.
func TestStatementsOfKeys(t *testing.T) {
	t.Parallel()
	tables := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	for _, name := range []string{"push", "push_new", "replace", "claim", "claim_bounded", "claim_named", "claim_bounded_named", "ack"} {
		with := name + "_keyed"
		if strings.HasPrefix(name, "claim") {
			with = "claim_keyed"
		}
		for _, part := range []string{`".key`, "m.key", "place = CASE", "arrival", "key_"} {
			if strings.Contains(tables.db.sql.text(name), part) {
				t.Errorf("%s names %q", name, part)
			}
		}
		if !strings.Contains(tables.db.sql.text(with), `".key`) {
			t.Errorf("this test shows nothing: %s does not name the table key", with)
		}
	}
	keyed(t, tables, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	var mu sync.Mutex
	var sent []string
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		step := strings.Join(namesOfStatements(s, statements), " ")
		if !strings.HasSuffix(step, " store") && !strings.HasSuffix(step, " store_clock") {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, step)
		}
	})
	did := func() []string {
		mu.Lock()
		defer mu.Unlock()
		steps := sent
		sent = nil
		return steps
	}
	for round := range 2 { // in the first one the store learns that the topic has keys
		learns := func(what string) []string {
			if round == 0 {
				return []string{what}
			}
			return nil
		}
		did()
		pushOrdersOnce(t, s, 1)
		if got, want := did(), append(learns("level plan topics_share push_new"), "level plan topics_share push_new_keyed"); !slices.Equal(got, want) {
			t.Errorf("a push sends %q; want %q", got, want)
		}
		pushKeys(t, s, ofKey("orders", fmt.Sprint("a~", round)))
		if got, want := did(), []string{"level plan topics_share push_keyed"}; !slices.Equal(got, want) {
			t.Errorf("a push of a key sends %q; want %q", got, want)
		}
		ds := claimN(t, s, 2)
		if got, want := did(), []string{"level plan claim_lock claim_keyed"}; len(ds) != 2 || !slices.Equal(got, want) {
			t.Errorf("a claim got %d messages and sends %q; want %q", len(ds), got, want)
		}
		ackAll(t, s, ds...)
		if got, want := did(), []string{"level plan ack_keyed"}; !slices.Equal(got, want) {
			t.Errorf("an ack sends %q; want %q", got, want)
		}
	}
	other := tracedStore(t, tables, func(s *Store, statements []string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, strings.Join(namesOfStatements(s, statements), " "))
	})
	for range 2 { // a process that knows nothing of the topic learns by its claim that it has keys
		pushOrdersOnce(t, tables, 1)
		did()
		ds := claimN(t, other, 1)
		claims := strings.Count(strings.Join(did(), ";"), "level plan claim;")
		if len(ds) != 1 {
			t.Fatalf("a claim of another process got %d messages", len(ds))
		}
		t.Logf("%d claims in vain", claims)
	}
}

// P14: of 100,000 ready messages of a key that is full, a claim of other keys reads as good as
// nothing, and they neither delay it nor are they lost.
func TestManyOfOneKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	pushKeys(t, s, ofKey("orders", "a~0"))
	ids, ds := claimKeys(t, s, "orders", 1)
	if len(ids) != 1 {
		t.Fatal("this test shows nothing: the key is not full")
	}
	conn, err := s.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	const many = 100_000
	run(t, conn.Conn(), inSchema(fmt.Sprintf(`
		INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, key, place, arrival)
		SELECT topic, 'a~' || n, 1000 + n, 1000 + n, 1000 + n, 1, 'a', 1000 + n, n FROM punctual.message, generate_series(1, %d) AS n WHERE id = 'a~0';
		INSERT INTO punctual.key (topic, key, at) SELECT topic, 'a', 1000 FROM punctual.message WHERE id = 'a~0'`, many), s.opt.Schema))
	var ms []punctual.NewMessage
	for i := range 100 {
		m := ofKey("orders", fmt.Sprintf("k%d~1", i))
		m.Due = longDue.Add(24 * time.Hour)
		ms = append(ms, m)
	}
	pushKeys(t, s, ms...)
	for range 10 {
		if ids, _ := claimKeys(t, s, "orders", 5); len(ids) != 5 || slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, "a") }) {
			t.Fatalf("P14: behind %d messages of a key that is full a claim got %v; want 5 of others", many, ids)
		}
	}
	run(t, conn.Conn(), "BEGIN; "+s.db.sql.text("plan"))
	pages := pagesOf(t, conn.Conn(), s.db.sql.text("claim_keyed"), fmt.Sprintf("'{0,0}', NULL, 'local', 'orders', 5, NULL, 1000000, 2000, -1000000, 1, '%s', NULL, NULL", s.db.epoch.Load().timeline))
	run(t, conn.Conn(), "ROLLBACK")
	if pages > 2000 {
		t.Errorf("P14: behind %d messages of a key that is full a claim of 5 others reads %d pages", many, pages)
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Waiting != many {
		t.Errorf("stats are %+v, %v; want %d that wait", st, err, many)
	}
	ackAll(t, s, ds...)
	if ids, _ := claimKeys(t, s, "orders", 500); len(ids) != 51 || !slices.Contains(ids, "a~1") {
		t.Errorf("P1: behind the ack a claim got %d messages; want a~1 and 50 others", len(ids))
	}
	t.Logf("a claim reads %d pages", pages)
}

// P1: a key at which no claim would look any more, which no operation leaves, is found by Check and
// healed by the sweep, which says so.
func TestLostKeyIsHealed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))})
	for n, damage := range map[string]string{
		"row gone": "DELETE FROM punctual.key", "too late": "UPDATE punctual.key SET at = at + 100000000000000", "no time": "UPDATE punctual.key SET at = NULL",
	} {
		topic := strings.ReplaceAll(n, " ", "-")
		keyed(t, s, topic, punctual.SettingsPatch{MaxKeyLeases: new(1)})
		pushKeys(t, s, ofKey(topic, "a~1"), ofKey(topic, "b~1"), punctual.NewMessage{Topic: topic, ID: "plain", Due: longDue})
		wantNoProblem(t, s)
		if _, err := s.db.pool.Exec(t.Context(), inSchema(damage, s.opt.Schema)); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) != 2 || !strings.Contains(r.Problems[0], "no claim would find") {
			t.Fatalf("%s: Check says %q, %v; want both keys", n, r.Problems, err)
		}
		if ids, _ := claimKeys(t, s, topic, 9); !slices.Equal(ids, []string{"plain"}) {
			t.Fatalf("this test shows nothing: a claim got %v", ids)
		}
		at, err := s.remover.healKeys(t.Context(), keyPlace{}, s.opt.Logger)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		said := log.String()
		log.Reset()
		mu.Unlock()
		if !strings.Contains(said, "level=ERROR") || !strings.Contains(said, topic+" a") || !strings.Contains(said, topic+" b") {
			t.Errorf("%s: the log says %q", n, said)
		}
		if next, err := s.remover.healKeys(t.Context(), at, s.opt.Logger); err != nil || next != (keyPlace{}) {
			t.Errorf("behind the last key the sweep goes on at %v, %v; want the first one", next, err)
		}
		if ids, ds := claimKeys(t, s, topic, 9); len(ids) != 2 {
			t.Errorf("P1: %s: behind the sweep a claim got %v; want a~1 and b~1", n, ids)
		} else {
			ackAll(t, s, ds...)
		}
		mu.Lock()
		if log.Len() > 0 {
			t.Errorf("a sweep of sound keys says %q", log.String())
		}
		mu.Unlock()
		wantNoProblem(t, s)
		if _, err := s.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, s, "key"); n != 0 {
		t.Errorf("%d rows of keys of deleted topics are left", n)
	}
}

// lockedWriter is a writer that several goroutines may use.
type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// P1, P3: many goroutines of two processes push, claim, settle, cancel, replace and purge messages
// of few keys, several in a call and in any order. No call fails, as one would that the server has
// ended as a deadlock ten times, no key has more leases than it may, and everything is gone in the
// end.
func TestKeysUnderLoad(t *testing.T) {
	t.Parallel()
	const bound, rounds, goroutines = 2, 40, 8
	a, b := twoStores(t, Options{NoListen: true})
	keyed(t, a, "orders", punctual.SettingsPatch{MaxKeyLeases: new(bound), Lease: new(time.Hour)})
	var mu sync.Mutex
	underWay := map[string]int{}
	next := 0
	var work sync.WaitGroup
	for g := range goroutines {
		s := []*Store{a, b}[g%2]
		work.Go(func() {
			for round := range rounds {
				mu.Lock()
				var ms []punctual.NewMessage
				for range 6 {
					ms = append(ms, ofKey("orders", fmt.Sprintf("%c~%d", 'a'+rune(next*7%5), next)))
					next++
				}
				mu.Unlock()
				if round%4 == 3 {
					ms[0].IfExists, ms[0].ID = punctual.IfExistsReplace, "e~0"
					ms[0].Key = string(rune('a' + round%5))
				}
				slices.Reverse(ms[:3])
				rs, err := s.Push(t.Context(), ms)
				if err != nil {
					t.Errorf("push: %v", err)
					return
				}
				as := []punctual.Amendment{
					{Change: punctual.ChangeCancel, Topic: "orders", ID: rs[round%6].ID},
					{Change: punctual.ChangeReschedule, Topic: "orders", ID: rs[(round+2)%6].ID, Due: longDue.Add(time.Duration(round) * time.Second)},
				}
				if out, err := s.Amend(t.Context(), as); err != nil || punctual.Definite(out[0].Err) == false && out[0].Err != nil {
					t.Errorf("amend: %v, %v", out, err)
					return
				}
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 5})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				for _, d := range ds {
					if d.ID == "e~0" { // another push may replace it under its lease
						continue
					}
					if underWay[d.Key]++; underWay[d.Key] > bound {
						t.Errorf("P3: %d messages of %s are leased; the bound is %d", underWay[d.Key], d.Key, bound)
					}
				}
				mu.Unlock()
				if _, err := s.Now(t.Context()); err != nil { // others claim meanwhile
					t.Errorf("now: %v", err)
				}
				mu.Lock()
				for _, d := range ds {
					if d.ID != "e~0" {
						underWay[d.Key]-- // before the settlement, because its room is free before its answer comes
					}
				}
				mu.Unlock()
				var ss []punctual.Settlement
				for i, d := range ds {
					ss = append(ss, settlement(d, []punctual.Verb{punctual.SettleAck, punctual.SettleAck, punctual.SettleRelease, punctual.SettleDiscard}[(round+i)%4]))
				}
				if len(ss) > 0 {
					if _, err := s.Settle(t.Context(), ss); err != nil {
						t.Errorf("settle: %v", err)
						return
					}
				}
				if round == rounds/2 && g == 0 {
					if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateReady}); err != nil {
						t.Errorf("purge: %v", err)
						return
					}
				}
				if round%10 == 5 && g == 1 {
					if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxKeyRate: &limits.Rate{N: 1000, Per: time.Second, Burst: 1000}}); err != nil {
						t.Errorf("configure: %v", err)
						return
					}
				}
			}
		})
	}
	work.Wait()
	wantNoProblem(t, a)
	waitUntil(t, "everything is delivered", func() bool {
		_, ds := claimKeys(t, a, "orders", 50)
		ackAll(t, a, ds...)
		st, err := b.Stats(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return st.Ready+st.Leased+st.Scheduled == 0
	})
	wantNoProblem(t, a)
}

// A claim goes on behind the keys that are full, however many have something new, until it has what
// it asks for.
func TestClaimGoesOnBehindFullKeys(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	const full = 300
	for n := range 2 {
		ms := make([]punctual.NewMessage, full)
		for i := range ms {
			ms[i] = ofKey("orders", fmt.Sprintf("k%d~%d", i, n))
		}
		pushKeys(t, s, ms...)
		if ids, _ := claimKeys(t, s, "orders", 1000); n == 0 && len(ids) != full || n == 1 && len(ids) != 0 {
			t.Fatalf("a claim of %d keys got %d messages", full, len(ids))
		}
		pushKeys(t, s, ms...) // duplicates change nothing
	}
	ms := make([]punctual.NewMessage, full)
	for i := range ms {
		ms[i] = ofKey("orders", fmt.Sprintf("k%d~2", i))
	}
	pushKeys(t, s, ms...)
	later := ofKey("orders", "z~1")
	later.Due = longDue.Add(time.Hour)
	pushKeys(t, s, later)
	if ids, _ := claimKeys(t, s, "orders", 1); !slices.Equal(ids, []string{"z~1"}) {
		t.Errorf("behind %d keys that are full a claim of one message got %v; want z~1", full, ids)
	}
	wantNoProblem(t, s)
}

// P12: of many keys the one whose turn came first is claimed first, also where that is not in the
// order of the due times, because the keys were served before.
func TestTurnsOfManyKeys(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{})
	const keys = 120 // more than one claim of one message looks at
	for i := range keys {
		first := ofKey("orders", fmt.Sprintf("k%d~1", i))
		first.Due = longDue.Add(time.Duration(keys-i) * time.Minute)
		pushKeys(t, s, first)
	}
	var order []string
	for range keys {
		ids, _ := claimKeys(t, s, "orders", 1)
		order = append(order, ids...)
		claimed, err := s.Now(t.Context())
		waitUntil(t, "the next millisecond has come, so that no two turns come at once", func() bool {
			var now time.Time
			now, err = s.Now(t.Context())
			return err != nil || now.After(claimed)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range order {
		if want := fmt.Sprintf("k%d~1", keys-1-i); id != want {
			t.Fatalf("P12: the claim %d got %s; want %s", i, id, want)
		}
	}
	var ms []punctual.NewMessage
	for i := range keys {
		m := ofKey("orders", fmt.Sprintf("k%d~2", i))
		m.Due = longDue.Add(time.Duration(i) * time.Second) // in the opposite order
		ms = append(ms, m)
	}
	pushKeys(t, s, ms...)
	for i := range keys {
		ids, _ := claimKeys(t, s, "orders", 1)
		if want := fmt.Sprintf("k%d~2", keys-1-i); len(ids) != 1 || ids[0] != want {
			t.Fatalf("P12: behind a first message of each key the claim %d got %v; want %s, whose key was served first", i, ids, want)
		}
	}
}

// Events of a topic with keys are messages without a key of a topic with keys, and are found.
func TestEventsOfATopicWithKeys(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	emit(t, s, "orders", punctual.EventAcked|punctual.EventPushed)
	pushKeys(t, s, ofKey("orders", "a~1"), ofKey("orders", "a~2"))
	for range 2 {
		_, ds := claimKeys(t, s, "orders", 9)
		if len(ds) != 1 {
			t.Fatalf("a claim got %d messages; want 1", len(ds))
		}
		ackAll(t, s, ds...)
	}
	if ids, _ := claimKeys(t, s, "orders@events", 9); len(ids) != 4 {
		t.Errorf("a claim of the events got %d; want 2 of pushes and 2 of acks", len(ids))
	}
	wantNoProblem(t, s)
}

// A caller's transaction of database/sql hands over keys of all characters.
func TestKeysBySQL(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{})
	tx, _ := callersConn(t, s)
	pushKeys(t, s, punctual.NewMessage{Topic: "orders", Key: "without an ID", Due: longDue}, punctual.NewMessage{Topic: "orders", Due: longDue})
	if _, ds := claimKeys(t, s, "orders", 9); len(ds) != 2 {
		t.Errorf("of messages whose IDs the store has made a claim got %d; want one with a key and one without", len(ds))
	}
	for n, key := range []string{`a"b`, `a\b`, `{a,b}`, "NULL", "", "'"} {
		if _, err := tx.ExecContext(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PushTx(t.Context(), SQL(tx), punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(n), Key: key, Due: longDue}); err != nil {
			t.Fatalf("push of the key %q: %v", key, err)
		}
		if _, err := tx.ExecContext(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		if _, ds := claimKeys(t, s, "orders", 9); len(ds) != 1 || ds[0].Key != key {
			t.Errorf("of the key %q a claim got %+v", key, ds)
		}
	}
	wantNoProblem(t, s)
}

// A key that was full when its bound was raised gets its turns from the begin of its last lease on.
func TestTurnBehindARaisedBound(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	pushKeys(t, s, ofKey("orders", "a~1"), ofKey("orders", "a~2"))
	_, first := claimKeys(t, s, "orders", 9)
	if ids, _ := claimKeys(t, s, "orders", 9); len(first) != 1 || len(ids) != 0 {
		t.Fatalf("claims at a bound of 1 got %v and %v", first, ids)
	}
	keyed(t, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(2)})
	if _, ds := claimKeys(t, s, "orders", 9); len(ds) != 1 || !ds[0].Turn.Equal(first[0].Delivered) {
		t.Errorf("behind a raised bound a claim got %+v; want a~2, whose turn came when a~1 was delivered, at %v", ds, first[0].Delivered)
	}
}
