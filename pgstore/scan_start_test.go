package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

// scanStartOf returns the scan start of the topic orders.
func scanStartOf(s *Store) int64 {
	return s.waits.beginRead([]string{"orders"}, true)["orders"].scanStart
}

// finishOverdue pushes messages that are long due, and claims and acks all.
func finishOverdue(t *testing.T, s *Store, n int) {
	t.Helper()
	due := time.Now().Add(-time.Minute)
	var ms []punctual.NewMessage
	for i := range n {
		ms = append(ms, punctual.NewMessage{Topic: "orders", Due: due.Add(time.Duration(i) * time.Millisecond)})
	}
	if _, err := s.Push(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	for n > 0 {
		n -= len(claimOrders(t, s, time.Minute))
	}
}

// A claim that waits does not read the index entries of finished messages, which stay as long as a
// snapshot needs them. Otherwise each claim would cost more than the last one while somebody holds
// a snapshot.
func TestScanStart(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	conn, err := s.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// Otherwise a vacuum between the snapshot's end and the readings may remove what they count.
	run(t, conn.Conn(), "ALTER TABLE "+pgx.Identifier{s.opt.Schema, "message"}.Sanitize()+" SET (autovacuum_enabled = off)")
	finishOverdue(t, s, 1)
	run(t, conn.Conn(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT identity FROM "+pgx.Identifier{s.opt.Schema}.Sanitize()+".store")
	finishOverdue(t, s, 1000)
	claimOrders(t, s, time.Millisecond) // finds nothing, so the scan start rises to a moment ago
	start := scanStartOf(s)
	if start == noScanStart {
		t.Fatal("there is no scan start")
	}
	run(t, conn.Conn(), "ROLLBACK; BEGIN; "+s.db.sql.text("plan"))
	defer run(t, conn.Conn(), "ROLLBACK")
	read := func(start int64) int64 {
		return pagesOf(t, conn.Conn(), s.db.sql.text("claim"), fmt.Sprintf("'{0,0}', NULL, 'local', 'orders', 10, NULL, %d, 2000, %d, 1, '', NULL", claimBytes, start))
	}
	with := read(start) // first, because a scan that reads dead entries marks them, and they are skipped from then on
	if without := read(noScanStart); with > without/4 {
		t.Errorf("a claim reads %d pages, and without its scan start %d; want far fewer", with, without)
	}
}

// TestBeforeScanStart: a message that appears before the scan start is claimed. If this process has
// pushed it, it is claimed in its order (P12).
func TestBeforeScanStart(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	early := punctual.NewMessage{Topic: "orders", ID: "early", Due: time.Now().Add(-time.Hour)}
	pushAgain := func() {
		t.Helper()
		if _, err := s.Push(t.Context(), []punctual.NewMessage{early}); err != nil {
			t.Fatal(err)
		}
	}
	// Each case puts the message early before the scan start.
	for name, put := range map[string]func(){
		"pushed": pushAgain,
		"pushed by others": func() {
			tx, err := s.db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pushTx(t, s, Pgx(tx), early)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"held and given back": func() {
			pushAgain()
			tx, err := s.db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.CancelTx(t.Context(), Pgx(tx), "orders", "early"); err != nil {
				t.Fatal(err)
			}
			finishOverdue(t, s, 10)
			if start := scanStartOf(s); start <= early.Due.UnixMilli() {
				t.Fatalf("this test shows nothing: the scan start is %d", start)
			}
			if err := tx.Rollback(context.Background()); err != nil {
				t.Fatal(err)
			}
		},
		"released": func() {
			pushAgain()
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
			if err != nil || len(ds) != 1 || ds[0].ID != "early" {
				t.Fatalf("claim: %v, %v", ds, err)
			}
			finishOverdue(t, s, 10)
			back := punctual.Settlement{Topic: "orders", ID: "early", Token: ds[0].Token, Verb: punctual.SettleRelease}
			if _, err := s.Settle(t.Context(), []punctual.Settlement{back}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		finishOverdue(t, s, 10)
		if start := scanStartOf(s); start <= early.Due.UnixMilli() {
			t.Fatalf("%s: this test shows nothing: the scan start is %d", name, start)
		}
		put()
		if ds := claimOrders(t, s, time.Minute); len(ds) != 1 || ds[0].ID != "early" {
			t.Errorf("%s: claimed %v; want the early message", name, ds)
		}
	}

	finishOverdue(t, s, 10)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "late", Due: time.Now().Add(-10 * time.Second)}, early}); err != nil {
		t.Fatal(err)
	}
	if ds := claimOrders(t, s, time.Minute); len(ds) != 2 || ds[0].ID != "early" {
		t.Errorf("claimed %v; want the early message first", ds)
	}
}

// A claim without a wait begins at the scan start as long as that fills the claim, so that a
// backlog is taken at the same cost however long a snapshot is held. It misses nothing that is due:
// a claim that the scan start does not fill reads the whole topic, and polls go on.
func TestScanStartOfABacklog(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	claimNow := func(n int) (ids []string) {
		t.Helper()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: n})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			ids = append(ids, d.ID)
		}
		return ids
	}
	// Somebody else puts a message before the scan start, and no notification of that arrives.
	putEarly := func(id string) {
		t.Helper()
		start := scanStartOf(s)
		due := time.Now().Add(-time.Hour)
		if start <= due.UnixMilli() {
			t.Fatalf("this test shows nothing: the scan start is %d", start)
		}
		other := openStore(t, newPool(t, shared), &Options{Schema: s.opt.Schema, NoListen: true, OwnPool: true})
		if _, err := other.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id, Due: due}}); err != nil {
			t.Fatal(err)
		}
	}
	backlog := func(n int) {
		t.Helper()
		ms := make([]punctual.NewMessage, n)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "orders"}
		}
		if _, err := s.Push(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
	}
	finishOverdue(t, s, 10)
	backlog(3)
	putEarly("early")
	if got := claimNow(2); len(got) != 2 || slices.Contains(got, "early") {
		t.Errorf("a claim of 2 beside a backlog of 3 got %q; want it to begin at the scan start", got)
	}
	if got := claimNow(2); len(got) != 2 || !slices.Contains(got, "early") {
		t.Errorf("a claim of 2 beside a backlog of 1 got %q; want the early message, too", got)
	}
	if got := claimNow(10); len(got) != 0 {
		t.Errorf("claimed %q, want nothing", got)
	}

	finishOverdue(t, s, 10)
	putEarly("found by a poll")
	for claimed := []string(nil); !slices.Contains(claimed, "found by a poll"); claimed = claimNow(1) {
		if len(claimed) > 1 {
			t.Fatalf("claimed %q", claimed)
		}
		backlog(2) // so that the scan start always fills a claim of 1
	}
}

// The scan start that follows from the answer of a claim is not behind a message that the claim has
// met and left. Nor is it in the last moments, whose pushes may not be committed yet.
func TestScanStartOfAnAnswer(t *testing.T) {
	t.Parallel()
	const now, from = 1_000_000, 400_000
	at := func(ms int64) punctual.Delivery { return punctual.Delivery{LeaseUntil: time.UnixMilli(ms)} }
	last := now - scanBack.Milliseconds()
	for name, x := range map[string]struct {
		claimed
		want int64
	}{
		"nothing there":                {claimed{}, last},
		"one taken":                    {claimed{seen: 1, taken: 1, ds: []punctual.Delivery{at(500_000)}}, 500_000},
		"two taken":                    {claimed{seen: 2, taken: 2, ds: []punctual.Delivery{at(600_000), at(500_000)}}, 600_000},
		"one of the last moments":      {claimed{seen: 1, taken: 1, ds: []punctual.Delivery{at(now)}}, last},
		"one of two taken":             {claimed{seen: 2, taken: 1, ds: []punctual.Delivery{at(500_000)}}, from},
		"one that must end":            {claimed{seen: 1, taken: 1, undeliverable: []string{"a"}}, from},
		"one taken, one that must end": {claimed{seen: 2, taken: 2, undeliverable: []string{"a"}, ds: []punctual.Delivery{at(500_000)}}, from},
	} {
		x.micros = now * 1000
		if got := x.scanStart(from); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}

// pagesOf runs a statement and returns how many pages it has read.
func pagesOf(t *testing.T, conn *pgx.Conn, text, args string) int64 {
	t.Helper()
	run(t, conn, "PREPARE it AS "+text)
	explained := run(t, conn, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE it ("+args+")")
	run(t, conn, "DEALLOCATE it")
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(explained[0], &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// claimTracer keeps the times from which and up to which the claims of a pool have read, and how
// many statements the server has cancelled.
type claimTracer struct {
	mu        sync.Mutex
	read      []span // guarded by mu
	cancelled int    // guarded by mu
}

func (c *claimTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *claimTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *claimTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "leased AS (") {
			in := span{q.Arguments[8].(int64), never}
			if len(q.Arguments) > 11 {
				in.until = q.Arguments[11].(int64)
			}
			c.read = append(c.read, in)
		}
	}
	return ctx
}

func (c *claimTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if e := serverError(data.Err); e != nil && e.Code == "57014" {
		c.mu.Lock()
		c.cancelled++
		c.mu.Unlock()
	}
}

func (c *claimTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// take returns what claims have read since the last take, and how many statements were cancelled
// until now.
func (c *claimTracer) take() (read []span, cancelled int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read, c.read = c.read, nil
	return read, c.cancelled
}

// tracedPool returns a pool with a tracer, and with parameters of its sessions.
func tracedPool(t *testing.T, tracer pgx.QueryTracer, params map[string]string) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(shared.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	c.ConnConfig.Tracer = tracer
	for name, value := range params {
		c.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// holdSnapshot has a connection of its own hold a snapshot until the test is over.
func holdSnapshot(t *testing.T, server *pgrig.Server, s *Store) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	run(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT identity FROM "+pgx.Identifier{s.opt.Schema}.Sanitize()+".store")
}

// finishBehind makes messages of the topic orders that were due in the last ten minutes and are
// finished, all in one transaction. Beside a held snapshot their index entries stay.
func finishBehind(t *testing.T, s *Store, n int) {
	t.Helper()
	text := fmt.Sprintf(`
		INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created)
		SELECT t.number, 'finished' || n, x.at, x.at, x.at, x.at
		FROM punctual.topic AS t, generate_series(1, %[1]d) AS n,
		     LATERAL (SELECT (extract(epoch FROM now()) * 1000)::bigint - 600000 + n * 590000::bigint / %[1]d AS at) AS x
		WHERE t.name = 'orders';
		DELETE FROM punctual.message WHERE id LIKE 'finished%%'`, n)
	if _, err := execAll(t.Context(), s.db.pool, inSchema(text, s.opt.Schema)); err != nil {
		t.Fatal(err)
	}
}

// P11: beside a held snapshot, what comes before the scan start is claimed, and no claim reads what
// was finished in between: not after a push that is overdue, a change of settings or a pause.
func TestNoClaimReadsWhatIsFinished(t *testing.T) {
	t.Parallel()
	attempts, yes, no := 7, true, false
	configure := func(t *testing.T, s *Store, p punctual.SettingsPatch) {
		t.Helper()
		if _, err := s.Configure(t.Context(), "orders", p); err != nil {
			t.Fatal(err)
		}
	}
	push := func(t *testing.T, s *Store, ms ...punctual.NewMessage) {
		t.Helper()
		if _, err := s.Push(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
	}
	early := func(ago time.Duration) punctual.NewMessage {
		return punctual.NewMessage{Topic: "orders", Due: time.Now().Add(-ago)}
	}
	for name, c := range map[string]struct {
		want    int
		trigger func(t *testing.T, s *Store)
	}{
		"an overdue push":               {1, func(t *testing.T, s *Store) { push(t, s, early(time.Hour)) }},
		"two overdue pushes":            {2, func(t *testing.T, s *Store) { push(t, s, early(time.Hour)); push(t, s, early(2*time.Hour)) }},
		"overdue pushes of one call":    {2, func(t *testing.T, s *Store) { push(t, s, early(time.Hour), early(time.Hour+10*time.Second)) }},
		"an overdue push beside others": {2, func(t *testing.T, s *Store) { push(t, s, early(time.Hour), punctual.NewMessage{Topic: "orders"}) }},
		"a change of settings": {1, func(t *testing.T, s *Store) {
			configure(t, s, punctual.SettingsPatch{MaxAttempts: &attempts})
			push(t, s, punctual.NewMessage{Topic: "orders"})
		}},
		"a pause": {2, func(t *testing.T, s *Store) {
			configure(t, s, punctual.SettingsPatch{DeliveryPaused: &yes})
			push(t, s, early(3*time.Second), punctual.NewMessage{Topic: "orders"})
			if ds := claimOrders(t, s, 10*time.Millisecond); len(ds) > 0 {
				t.Fatalf("this test shows nothing: a paused topic has delivered %v", ds)
			}
			configure(t, s, punctual.SettingsPatch{DeliveryPaused: &no})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			traced := &claimTracer{}
			s := openStore(t, tracedPool(t, traced, nil), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true, wholePause: time.Hour})
			holdSnapshot(t, shared, s)
			finishOverdue(t, s, 1000) // due a minute ago and in the second behind that
			finished := time.Now().Add(-58 * time.Second).UnixMilli()
			if start := scanStartOf(s); start < finished-time.Minute.Milliseconds() {
				t.Fatalf("this test shows nothing: the scan start is %d", start)
			}
			traced.take()
			c.trigger(t, s)
			for got := 0; got < c.want; {
				ds := claimOrders(t, s, callTime/2)
				if len(ds) == 0 {
					t.Fatalf("P11: claims have found %d of %d messages", got, c.want)
				}
				got += len(ds)
			}
			claimOrders(t, s, 10*time.Millisecond)
			read, _ := traced.take()
			for _, in := range read {
				if in.from < finished-10_000 && in.until > finished {
					t.Errorf("a claim has read from %d s ago to %d s ago; want none to read what was finished a minute ago", time.Now().Unix()-in.from/1000, time.Now().Unix()-in.until/1000)
				}
			}
			if len(read) == 0 {
				t.Error("this test shows nothing: no claim was seen")
			}
		})
	}
}

// P11: the scan start rises although messages that are due now come during each reading. Otherwise
// a reading that is slower than the gap between two pushes would keep the next one slow.
func TestScanStartRisesBesidePushes(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	finishOverdue(t, s, 10)
	result := time.Now().Add(-10 * time.Second).UnixMilli()
	s.waits.mu.Lock()
	s.waits.topics["orders"].scanStart = result - 10_000
	s.waits.mu.Unlock()
	seen := s.waits.beginRead([]string{"orders"}, true)["orders"]
	pushOrders(t, s, 1, 0)
	s.waits.endRead("orders", readResult{at: never, scanStart: result}, seen)
	if got := scanStartOf(s); got < result { // a later reading of the store's own may have raised it further
		t.Errorf("a reading during which a message was pushed has left the scan start at %d; want %d", got, result)
	}
	// What comes before the new scan start is not lost.
	if ds := claimOrders(t, s, time.Minute); len(ds) != 1 {
		t.Errorf("claimed %v", ds)
	}
	seen = s.waits.beginRead([]string{"orders"}, true)["orders"]
	early := punctual.NewMessage{Topic: "orders", ID: "early", Due: time.UnixMilli(result + 1)}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{early}); err != nil {
		t.Fatal(err)
	}
	s.waits.endRead("orders", readResult{at: never, scanStart: result + 1000}, seen)
	if ds := claimOrders(t, s, time.Minute); len(ds) != 1 || ds[0].ID != "early" {
		t.Errorf("claimed %v; want the message that came during the reading", ds)
	}
}

// P11: a consumer starts beside a held snapshot, and a statement that reads its topic from the
// beginning is cancelled, because it takes longer than statement_timeout. The consumer gets what is
// due now, and what was due long ago.
func TestStartBesideASnapshot(t *testing.T) {
	t.Parallel()
	const timeout = 40 // ms
	traced := &claimTracer{}
	pushing := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	makeTopic(t, pushing, "orders")
	old := punctual.NewMessage{Topic: "orders", ID: "old", Due: time.Now().Add(-1000 * time.Hour)}
	if _, err := pushing.Push(t.Context(), []punctual.NewMessage{old}); err != nil {
		t.Fatal(err)
	}
	holdSnapshot(t, shared, pushing)
	finishBehind(t, pushing, 300_000)
	// A role with statement_timeout, so the first tries of a consumer take that long.
	open := func() (*Store, error) {
		return Open(t.Context(), tracedPool(t, traced, map[string]string{"statement_timeout": fmt.Sprint(timeout)}),
			&Options{Schema: pushing.opt.Schema, NoListen: true, OwnPool: true})
	}
	s, err := open()
	for errors.Is(err, punctual.ErrOverloaded) { // on a busy machine one of the statements of Open takes longer
		s, err = open()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if _, err := pushing.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "now"}}); err != nil {
		t.Fatal(err)
	}
	var found []string
	for until := time.Now().Add(callTime); len(found) < 2 && time.Now().Before(until); {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Second})
		if err != nil && !errors.Is(err, punctual.ErrOverloaded) {
			t.Fatal(err)
		}
		for _, d := range ds {
			found = append(found, d.ID)
		}
	}
	if _, cancelled := traced.take(); cancelled == 0 {
		t.Fatal("this test shows nothing: the server has cancelled no statement")
	}
	slices.Sort(found)
	if !slices.Equal(found, []string{"now", "old"}) {
		t.Errorf("P11: a consumer that starts beside a held snapshot has got %q; want now and old", found)
	}
}

// The list of spans stays sorted and small, and covers what was added.
func TestSpans(t *testing.T) {
	t.Parallel()
	var list []span
	for _, c := range []struct {
		add  span
		want []span
	}{
		{span{10, 20}, []span{{10, 20}}},
		{span{5, 4}, []span{{10, 20}}},
		{span{30, 30}, []span{{10, 20}, {30, 30}}},
		{span{21, 25}, []span{{10, 25}, {30, 30}}},
		{span{0, 40}, []span{{0, 40}}},
	} {
		if list = addSpan(list, c.add); !slices.Equal(list, c.want) {
			t.Errorf("with %v: %v, want %v", c.add, list, c.want)
		}
	}
	list = nil
	for i := range int64(mostSpans) {
		list = addSpan(list, span{i * i * 10, i * i * 10})
	}
	list = addSpan(list, span{-5, -5})
	if len(list) != mostSpans || list[0] != (span{-5, 0}) {
		t.Errorf("with one more than there may be: %v; want the closest two as one", list)
	}
}

// nextDueTracer keeps the scan starts with which the polls of a pool have read the topic orders.
type nextDueTracer struct {
	mu     sync.Mutex
	starts []int64 // guarded by mu
}

func (h *nextDueTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (h *nextDueTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (h *nextDueTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if !strings.Contains(q.SQL, "n.scan_start") {
			continue
		}
		topics, starts := q.Arguments[3].([]string), q.Arguments[5].([]int64)
		h.mu.Lock()
		h.starts = append(h.starts, starts[slices.Index(topics, "orders")])
		h.mu.Unlock()
	}
	return ctx
}

func (h *nextDueTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (h *nextDueTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// all returns the scan starts of the polls so far.
func (h *nextDueTracer) all() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.starts)
}

// P11: a poll does not read the index entries of finished messages, as a claim that waits does not,
// so that a snapshot makes neither of them slower. Whole scans are recognized by their scan start.
// Here there is at most one in an hour, besides the first ones.
func TestPollKeepsAwayFromFinished(t *testing.T) {
	t.Parallel()
	c, err := pgxpool.ParseConfig(shared.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	traced := &nextDueTracer{}
	c.ConnConfig.Tracer = traced
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true, pollEvery: 50 * time.Millisecond, wholePause: time.Hour})
	conn, err := s.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	finishOverdue(t, s, 1)
	run(t, conn.Conn(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT identity FROM "+pgx.Identifier{s.opt.Schema}.Sanitize()+".store")
	finishOverdue(t, s, 1000)
	waitFor(t, s, func() bool { return len(traced.all()) >= 10 })
	starts := traced.all()
	wholes := len(slices.DeleteFunc(slices.Clone(starts), func(at int64) bool { return at != noScanStart }))
	if wholes > len(starts)/2 {
		t.Errorf("of %d polls %d have read the whole topic; want the first ones alone", len(starts), wholes)
	}
	run(t, conn.Conn(), "ROLLBACK; BEGIN; "+s.db.sql.text("plan"))
	defer run(t, conn.Conn(), "ROLLBACK")
	read := func(start int64) int64 {
		return pagesOf(t, conn.Conn(), s.db.sql.text("next_due"), fmt.Sprintf("'{0,0}', NULL, 'local', '{orders}', 2000, '{%d}', NULL", start))
	}
	poll := read(starts[len(starts)-1]) // first, because a scan that reads dead entries marks them, and they are skipped from then on
	whole := read(noScanStart)
	t.Logf("behind 1,000 lives under a snapshot a poll reads %d pages, and a whole scan %d", poll, whole)
	if poll > whole/4 {
		t.Errorf("P11: a poll reads %d pages, and a whole scan %d; want far fewer", poll, whole)
	}
}

// waitFor has a claim of orders wait until a condition holds.
func waitFor(t *testing.T, s *Store, holds func() bool) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
		done <- err
	}()
	waitUntil(t, "the polls beside a claim that waits", holds)
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the claim that waited: %v", err)
	}
}

// P11: a caller's transaction was open for long. The poll that sees its end finds what the
// transaction has pushed, or has held and given back. No whole scan and no notification is needed
// for that.
func TestTransactionThatEndsLate(t *testing.T) {
	t.Parallel()
	for name, cancels := range map[string]bool{"pushed": false, "held and given back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true, wholePause: time.Hour})
			finishOverdue(t, s, 1)
			waitFor(t, s, func() bool { return scanStartOf(s) > noScanStart && seenWriters(s) }) // the first whole scan is over
			if cancels {
				pushOrders(t, s, 1, 500*time.Millisecond)
			}
			tx, err := s.db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			end := tx.Commit
			if cancels {
				if err := s.CancelTx(t.Context(), Pgx(tx), "orders", "0"); err != nil {
					t.Fatal(err)
				}
				end = tx.Rollback
			} else {
				pushTx(t, s, Pgx(tx), punctual.NewMessage{Topic: "orders", ID: "0"})
			}
			due := s.db.clock.guess()/1000 + 500
			waitFor(t, s, func() bool { return scanStartOf(s) > due })
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: callTime / 2})
			if err != nil || len(ds) != 1 || ds[0].Due.UnixMilli() > due {
				t.Errorf("P11: behind the end of the transaction a claim that waits found %v, %v; want its message", ds, err)
			}
		})
	}
}

// seenWriters reports whether a poll has asked which transactions are open.
func seenWriters(s *Store) bool {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	return s.waits.writers.open != nil
}

// Slow whole scans take a tenth of the time at most, or half of it where something may have
// appeared before a scan start. As long as they are cheap each poll is one.
func TestWholeScansAreRare(t *testing.T) {
	for _, c := range []struct {
		took, since int64
		soon, due   bool
	}{
		{took: 100, since: 0, due: true},
		{took: 1500, since: 13_400, due: false},
		{took: 1500, since: 13_500, due: true},
		{took: 1500, since: 1400, soon: true, due: false},
		{took: 1500, since: 1500, soon: true, due: true},
		{took: 1500, since: -1, due: true}, // the clock of a test went back
	} {
		x := wholeScans{took: c.took, ended: 1_000_000, soon: c.soon}
		if due := x.due(1_000_000+c.since, 0); due != c.due {
			t.Errorf("%d ms after a whole scan of %d ms, soon %v: due %v; want %v", c.since, c.took, c.soon, due, c.due)
		}
		x.underWay = true
		if x.due(1_000_000+c.since, 0) {
			t.Error("a whole scan is due while one is under way")
		}
	}
}
