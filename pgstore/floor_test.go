package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/punctualmq/punctual"
)

// floorOf is the floor of topic orders.
func floorOf(s *Store) int64 { return s.waits.look([]string{"orders"}, true)["orders"].floor }

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

// A claim that waits keeps away from the entries of finished messages that a snapshot holds. Without that each claim would cost more
// than the last one, as long as somebody holds a snapshot.
func TestFloor(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	finishOverdue(t, s, 1)
	run(t, conn.Conn(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT identity FROM "+pgx.Identifier{s.opt.Schema}.Sanitize()+".store")
	finishOverdue(t, s, 1000)
	floor := floorOf(s)
	if floor == noFloor {
		t.Fatal("there is no floor")
	}
	run(t, conn.Conn(), "ROLLBACK; BEGIN; "+s.sql.text("plan"))
	defer run(t, conn.Conn(), "ROLLBACK")
	run(t, conn.Conn(), "PREPARE it AS "+s.sql.text("claim"))
	read := func(floor int64) int64 {
		explained := run(t, conn.Conn(), fmt.Sprintf("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE it (0, NULL, 'local', 'orders', 10, NULL, %d, 2000, %d, 1, '')", claimBytes, floor))
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
	with := read(floor) // first, since who reads dead entries marks them
	if without := read(noFloor); with > without/4 {
		t.Errorf("a claim reads %d pages, and without its floor %d; want far fewer", with, without)
	}
}

// TestBelowFloor: what comes to be before the floor is claimed, and what was pushed here in its order (P12).
func TestBelowFloor(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	early := punctual.NewMessage{Topic: "orders", ID: "early", Due: time.Now().Add(-time.Hour)}
	pushAgain := func() {
		t.Helper()
		if _, err := s.Push(t.Context(), []punctual.NewMessage{early}); err != nil {
			t.Fatal(err)
		}
	}
	// Each case puts the message there, where the floor is behind it.
	for name, put := range map[string]func(){
		"pushed": pushAgain,
		"pushed by others": func() {
			tx, err := s.pool.Begin(t.Context())
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
			tx, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.CancelTx(t.Context(), Pgx(tx), "orders", "early"); err != nil {
				t.Fatal(err)
			}
			finishOverdue(t, s, 10)
			if floor := floorOf(s); floor <= early.Due.UnixMilli() {
				t.Fatalf("this test shows nothing: the floor is %d", floor)
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
		if floor := floorOf(s); floor <= early.Due.UnixMilli() {
			t.Fatalf("%s: this test shows nothing: the floor is %d", name, floor)
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

// The time before which a claim has left nothing is not behind what it has met and left. Nor is it in the last moments, whose pushes may
// not be committed yet.
func TestFloorOfAnAnswer(t *testing.T) {
	t.Parallel()
	const now, from = 1_000_000, 400_000
	at := func(ms int64) punctual.Delivery { return punctual.Delivery{LeaseUntil: time.UnixMilli(ms)} }
	last := now - lookBack.Milliseconds()
	for name, x := range map[string]struct {
		some
		want int64
	}{
		"nothing there":                {some{}, last},
		"one taken":                    {some{seen: 1, taken: 1, ds: []punctual.Delivery{at(500_000)}}, 500_000},
		"two taken":                    {some{seen: 2, taken: 2, ds: []punctual.Delivery{at(600_000), at(500_000)}}, 600_000},
		"one of the last moments":      {some{seen: 1, taken: 1, ds: []punctual.Delivery{at(now)}}, last},
		"one of two taken":             {some{seen: 2, taken: 1, ds: []punctual.Delivery{at(500_000)}}, from},
		"one that must end":            {some{seen: 1, taken: 1, spent: []string{"a"}}, from},
		"one taken, one that must end": {some{seen: 2, taken: 2, spent: []string{"a"}, ds: []punctual.Delivery{at(500_000)}}, from},
	} {
		x.micros = now * 1000
		if got := x.floor(from); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
