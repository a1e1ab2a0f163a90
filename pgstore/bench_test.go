package pgstore

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

// BenchmarkLife pushes, claims and acks messages of 200 bytes that are due, so many at a time,
// through one connection. Beside the time it reports what the server spends on each of the three,
// in microseconds of CPU for a message, what a life writes to the log in bytes, and which share of
// the updates made no new index entry (hot). The time of a machine that others use says little, the
// server's CPU more, and the CPU of the connection's backend alone most; of the latter it reports
// the lower quartile of the calls (backend).
//
// The variants: "held" has 5,000 leases under way, and "named" gives the messages IDs of its own in
// no order, as an application does.
func BenchmarkLife(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		for _, v := range []struct {
			name  string
			held  int
			named bool
		}{{"alone", 0, false}, {"held", 5000, false}, {"named", 0, true}} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, v.name), func(b *testing.B) {
				benchmarkLife(b, batch, v.held, v.named)
			})
		}
	}
}

func benchmarkLife(b *testing.B, batch, held int, named bool) {
	server := pgrig.Start(b, "fsync=off", "autovacuum_naptime=1s")
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	s := openStore(b, pool, &Options{Migrate: true, NoListen: true, OwnPool: true, heartbeat: time.Hour})
	l := benchedLife{b: b, s: s, server: server, batch: batch, named: named}
	if err := pool.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&l.backend); err != nil {
		b.Fatal(err)
	}
	for n := 0; n < held; n += 1000 {
		l.push(1000)
		l.claim(1000)
	}
	l.round() // makes the plans
	before := l.totals()
	l.spent, l.calls = [3]time.Duration{}, [3][]time.Duration{}
	b.ResetTimer()
	rounds := 0
	for ; b.Loop(); rounds++ {
		l.round()
	}
	b.StopTimer()
	after := l.totals()
	lives := float64(rounds * batch)
	for i, name := range []string{"push", "claim", "ack"} {
		b.ReportMetric(float64(l.spent[i].Nanoseconds())/1e3/lives, name+"-server-µs")
	}
	var life float64
	for i, name := range []string{"push", "claim", "ack"} {
		slices.Sort(l.calls[i])
		quartile := float64(l.calls[i][len(l.calls[i])/4].Nanoseconds()) / 1e3 / float64(batch)
		life += quartile
		b.ReportMetric(quartile, name+"-backend-µs")
	}
	b.ReportMetric(life, "backend-µs/life")
	b.ReportMetric(float64((l.spent[0]+l.spent[1]+l.spent[2]).Nanoseconds())/1e3/lives, "server-µs/life")
	b.ReportMetric(float64(after.log-before.log)/lives, "log-B/life")
	b.ReportMetric(float64(after.hot-before.hot)/max(1, float64(after.updates-before.updates)), "hot")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/lives, "µs/life")
}

// benchedLife takes messages through their lives, and adds up the server's CPU.
type benchedLife struct {
	b      *testing.B
	s      *Store
	server *pgrig.Server
	batch  int
	named  bool
	pushed uint64
	spent  [3]time.Duration // by pushes, claims and acks

	backend int                // the process of the connection
	calls   [3][]time.Duration // the processor time of that process for each push, claim and ack
}

func (l *benchedLife) round() {
	l.spend(0, func() { l.push(l.batch) })
	var ds []punctual.Delivery
	l.spend(1, func() { ds = l.claim(l.batch) })
	l.spend(2, func() { l.ack(ds) })
}

// spend calls f and counts the CPU that the server took meanwhile, and that of the connection's
// backend.
func (l *benchedLife) spend(of int, f func()) {
	before, backend := l.cpu(), l.backendCPU()
	f()
	l.calls[of] = append(l.calls[of], l.backendCPU()-backend)
	l.spent[of] += l.cpu() - before
}

// backendCPU returns the processor time of the connection's backend, in nanoseconds. The backend
// may still be at work for a moment after its answer, which then counts for the next call.
func (l *benchedLife) backendCPU() time.Duration {
	var ns int64
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", l.backend))
	if err == nil {
		_, err = fmt.Sscan(string(text), &ns)
	}
	if err != nil {
		l.b.Fatal(err)
	}
	return time.Duration(ns)
}

func (l *benchedLife) cpu() time.Duration {
	cpu, err := l.server.CPU()
	if err != nil {
		l.b.Fatal(err)
	}
	return cpu
}

func (l *benchedLife) push(n int) {
	ms := make([]punctual.NewMessage, n)
	body := make([]byte, 200)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", Body: body}
		if l.named {
			l.pushed++
			ms[i].ID = fmt.Sprintf("order-%016x", l.pushed*0x9e3779b97f4a7c15)
		}
	}
	rs, err := l.s.Push(context.Background(), ms)
	if err != nil {
		l.b.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil || r.Status != punctual.PushStored {
			l.b.Fatalf("push: %v, %v", r.Status, r.Err)
		}
	}
}

func (l *benchedLife) claim(n int) []punctual.Delivery {
	ds, err := l.s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: n, Lease: time.Hour, Wait: time.Second})
	if err != nil || len(ds) != n {
		l.b.Fatalf("claim: %d of %d, %v", len(ds), n, err)
	}
	return ds
}

func (l *benchedLife) ack(ds []punctual.Delivery) {
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	}
	errs, err := l.s.Settle(context.Background(), ss)
	if err != nil {
		l.b.Fatal(err)
	}
	for _, err := range errs {
		if err != nil {
			l.b.Fatal(err)
		}
	}
}

// lifeTotals is what the server has counted.
type lifeTotals struct{ log, updates, hot int64 }

func (l *benchedLife) totals() (t lifeTotals) {
	const query = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint
		FROM pg_stat_user_tables WHERE schemaname = 'punctual' AND relname = 'message'`
	if _, err := l.s.db.pool.Exec(context.Background(), "SELECT pg_stat_clear_snapshot()"); err != nil {
		l.b.Fatal(err)
	}
	if err := l.s.db.pool.QueryRow(context.Background(), query).Scan(&t.log, &t.updates, &t.hot); err != nil {
		l.b.Fatal(err)
	}
	return t
}

// BenchmarkKeys pushes 20,000 messages and drains them, 500 at a time, in turns in a topic without
// keys and in one with 1,000 keys, each of which may have one lease.
func BenchmarkKeys(b *testing.B) {
	const all, batch = 20_000, 500
	server := pgrig.Start(b, "fsync=off", "autovacuum_naptime=1s")
	pool, err := pgxpool.New(b.Context(), server.URL("postgres"))
	if err != nil {
		b.Fatal(err)
	}
	s := openStore(b, pool, &Options{Migrate: true, NoListen: true, OwnPool: true})
	keyed(b, s, "keys", punctual.SettingsPatch{MaxKeyLeases: new(1)})
	var pushes, drains [2]time.Duration
	for b.Loop() {
		for with, topic := range []string{"plain", "keys"} {
			begun := time.Now()
			for n := 0; n < all; n += batch {
				ms := make([]punctual.NewMessage, batch)
				for i := range ms {
					ms[i] = punctual.NewMessage{Topic: topic, Due: longDue}
					if with == 1 {
						ms[i].Key = fmt.Sprint("k", (n+i)*7%1000)
					}
				}
				pushKeys(b, s, ms...)
			}
			pushes[with] += time.Since(begun)
			begun = time.Now()
			for got := 0; got < all; {
				_, ds := claimKeys(b, s, topic, batch)
				if got += len(ds); len(ds) == 0 {
					b.Fatalf("%s: a claim found nothing behind %d messages", topic, got)
				}
				ss := make([]punctual.Settlement, len(ds))
				for i, d := range ds {
					ss[i] = settlement(d, punctual.SettleAck)
				}
				errs, err := s.Settle(b.Context(), ss)
				if err != nil || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
					b.Fatal(errs, err)
				}
			}
			drains[with] += time.Since(begun)
		}
		b.Logf("push %v and %v with keys, drain %v and %v", pushes[0], pushes[1], drains[0], drains[1])
	}
	b.ReportMetric(float64(pushes[0])/float64(pushes[1]), "push-rate-of-plain")
	b.ReportMetric(float64(drains[0])/float64(drains[1]), "drain-rate-of-plain")
}

// BenchmarkClaimBesideBlocked pushes, claims and acks a message of one key beside a million ready
// messages of another one that is full, and beside none.
func BenchmarkClaimBesideBlocked(b *testing.B) {
	for _, blocked := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("blocked=%d", blocked), func(b *testing.B) {
			server := pgrig.Start(b, "fsync=off", "autovacuum_naptime=1s")
			pool, err := pgxpool.New(b.Context(), server.URL("postgres"))
			if err != nil {
				b.Fatal(err)
			}
			s := openStore(b, pool, &Options{Migrate: true, NoListen: true, OwnPool: true})
			keyed(b, s, "orders", punctual.SettingsPatch{MaxKeyLeases: new(1)})
			pushKeys(b, s, ofKey("orders", "a~0"))
			if ids, _ := claimKeys(b, s, "orders", 1); len(ids) != 1 {
				b.Fatal("the key is not full")
			}
			_, err = pool.Exec(b.Context(), `
				INSERT INTO punctual.message (topic, id, visible_at, due, first_due, created, key, place, arrival)
				SELECT topic, 'a~' || n, n, n, n, 1, 'a', n, n FROM punctual.message, generate_series(1, $1::integer) AS n WHERE id = 'a~0'`, blocked)
			if err == nil {
				_, err = pool.Exec(b.Context(), "INSERT INTO punctual.key (topic, key, at) SELECT topic, 'a', 1 FROM punctual.message WHERE id = 'a~0'")
			}
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; b.Loop(); n++ {
				pushKeys(b, s, ofKey("orders", fmt.Sprint("b~", n)))
				ids, ds := claimKeys(b, s, "orders", 1)
				if len(ids) != 1 || ds[0].Key != "b" {
					b.Fatalf("a claim got %v", ids)
				}
				if errs, err := s.Settle(b.Context(), []punctual.Settlement{settlement(ds[0], punctual.SettleAck)}); err != nil || errs[0] != nil {
					b.Fatal(errs, err)
				}
			}
		})
	}
}
