package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
)

// smallDisk mounts a file system in memory. Where that is not allowed, it skips the test and says
// what is not tested.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := pgrig.Folder(t)
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skipf("NOT TESTED: a full disk. Mounting a small file system is not permitted here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill takes the room of a disk, but for less than a block of 64 KiB, and returns the function that
// frees it again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<16)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("this test shows nothing: the disk is not full: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// P1, P13: the disk is full of something else. Pushes are refused definitely until there is room
// again, and what was stored before is delivered. The log is on another disk, because the server
// ends itself where it has no room for the log.
func TestSlowFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "size=128m")
	server := pgrig.StartIn(t, disk, "fsync=off")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(pgrig.Folder(t), "wal")
	if out, err := exec.Command("cp", "-a", filepath.Join(server.Dir, "pg_wal"), elsewhere).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	makeReachable(t, filepath.Dir(elsewhere), server.Dir)
	if err := errors.Join(os.RemoveAll(filepath.Join(server.Dir, "pg_wal")), os.Symlink(elsewhere, filepath.Join(server.Dir, "pg_wal")), server.Restart()); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true})
	pushOrders(t, s, 100, 0)
	free := fill(t, disk)
	stored, refused := 100, 0
	body, random := make([]byte, 1<<18), rand.New(rand.NewPCG(seedrig.Of(t), 0))
	for n := 0; refused < 3; n++ {
		if n > 1000 {
			t.Fatal("this test shows nothing: the disk does not fill")
		}
		for i := range body {
			body[i] = byte(random.Uint32()) // because the server compresses what is not random
		}
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: fmt.Sprint("big", n), Due: longDue, Body: body}})
		switch {
		case err != nil:
			wantDefinite(t, "push on a full disk", err, punctual.ErrNoSpace)
			refused++
		case rs[0].Err != nil:
			t.Fatal(rs[0].Err)
		default:
			stored++
		}
		if t.Failed() {
			return
		}
	}
	free()
	waitUntil(t, "a push passes again", func() bool {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "again", Due: longDue, Body: body}})
		return err == nil
	})
	if ds := claimN(t, s, 1000); len(ds) != stored+1 {
		t.Errorf("P1: %d messages are delivered, want %d", len(ds), stored+1)
	}
}

// makeReachable gives a folder the owner of another one.
func makeReachable(t *testing.T, dir, like string) {
	t.Helper()
	if out, err := exec.Command("chown", "--reference="+like, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// P2, P8, P11: the server's clock steps forth and back. The store's clock never goes back, no
// message is delivered early by it, and each message is delivered once the clock has caught up.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	server := pgrig.StartShifted(t, "fsync=off")
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true})
	ms := make([]punctual.NewMessage, 60)
	missing := make(map[string]bool)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(i), Delay: time.Duration(i) * 100 * time.Millisecond}
		missing[ms[i].ID] = true
	}
	rs, err := s.Push(t.Context(), ms)
	if err != nil {
		t.Fatal(err)
	}
	last := rs[0].Due
	steps := []time.Duration{2 * time.Second, 0, -time.Second, time.Second, 0}
	for limit := time.Now().Add(3 * time.Minute); len(missing) > 0; {
		if time.Now().After(limit) {
			t.Fatalf("P1: %d messages are not delivered", len(missing))
		}
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 5, Wait: 200 * time.Millisecond, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			if !missing[d.ID] {
				t.Errorf("P3: %s is delivered again under a lease of an hour", d.ID)
			}
			delete(missing, d.ID)
			if d.Late() < 0 || d.Delivered.Before(last) {
				t.Errorf("P2, P8: %s, due %v, is delivered at %v; it was %v before", d.ID, d.Due, d.Delivered, last)
			}
			last = d.Delivered
		}
		if len(ds) > 0 && len(steps) > 0 && len(missing) < 50-8*(5-len(steps)) {
			stepClock(t, server, steps[0])
			steps = steps[1:]
		}
	}
	if len(steps) > 0 {
		t.Errorf("this test shows nothing: %d steps of the clock were not made", len(steps))
	}
}

// stepClock sets the server's clock and shows that it was set.
func stepClock(t *testing.T, server *pgrig.Server, ahead time.Duration) {
	t.Helper()
	if err := server.Shift(ahead); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	var off float64
	if _, err := fmt.Sscan(doIt(t, server, fmt.Sprintf("select extract(epoch from clock_timestamp()) - %d.%06d", before.Unix(), before.Nanosecond()/1000)), &off); err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(off*1e9) - ahead; d < -time.Second || d > time.Since(before)+time.Second {
		t.Fatalf("this test shows nothing: the server's clock is %v off what was asked for", d)
	}
}

// Where a backup was restored under an open store, the store stops, because it has seen what is not
// there any more.
func TestRestored(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t)
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true})
	pushOrders(t, s, 1, time.Hour)
	backup := filepath.Join(pgrig.Folder(t), "backup")
	copyData := func(from, to string) {
		t.Helper()
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("sh", "-c", fmt.Sprintf("rm -rf %s && cp -a %s %s", to, from, to)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	copyData(server.Dir, backup)
	// To the store an hour passes, and its duties write that down.
	later := s.db.clock.guess() + time.Hour.Microseconds()
	s.db.clock.hear(later)
	waitUntil(t, "the clock is written down", func() bool {
		return s.db.clock.keptMicros() >= later
	})
	copyData(backup, server.Dir)
	waitUntil(t, "the store notices", func() bool {
		_, err := s.Now(t.Context())
		return errors.Is(err, punctual.ErrStoreFailed)
	})
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders"}}); !errors.Is(err, punctual.ErrStoreFailed) || !strings.Contains(err.Error(), "backup") {
		t.Errorf("push behind a restored backup: %v; want that the store has failed, and why", err)
	}
	again := openStore(t, newPool(t, server), &Options{OwnPool: true})
	if _, err := again.Get(t.Context(), "orders", "0"); err != nil {
		t.Errorf("a store opened behind the restoration: %v; want what the backup has", err)
	}
}

// P14: messages that are first in a topic and cannot be delivered keep no claim from those behind
// them. Their attempts are used up, they have expired, or somebody's transaction holds them.
func TestPoisonHead(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	const each = 250
	head := make([]punctual.NewMessage, 0, 2*each)
	for i := range each {
		head = append(head, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint("used up ", i), MaxAttempts: 1, Due: time.Unix(1, 0)},
			punctual.NewMessage{Topic: "orders", ID: fmt.Sprint("expired ", i), ExpireAfter: time.Millisecond, Due: time.Unix(2, 0)})
	}
	if _, err := s.Push(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	for range each / 50 {
		if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 50, Lease: time.Hour}); err != nil || len(ds) != 50 {
			t.Fatalf("claim: %d, %v", len(ds), err)
		}
	}
	if _, err := s.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.message SET visible_at = 1 WHERE token <> 0", s.opt.Schema)); err != nil { // the hour is over
		t.Fatal(err)
	}
	var held []punctual.Amendment
	for i := range 200 {
		id := fmt.Sprint("held ", i)
		if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id, Due: time.Unix(3, 0)}}); err != nil {
			t.Fatal(err)
		}
		held = append(held, punctual.Amendment{Topic: "orders", ID: id, Change: punctual.ChangeReschedule, Delay: time.Hour})
	}
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := s.AmendManyTx(t.Context(), Pgx(tx), held); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "behind"}, {Topic: "nobodys", ID: "x"}}); err != nil {
		t.Fatal(err)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
	if err != nil || len(ds) != 1 || ds[0].ID != "behind" {
		t.Fatalf("P14: a claim found %v, %v; want the message behind those that cannot be delivered", ds, err)
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Dead != 2*each {
		t.Errorf("P6: %d messages are dead, %v; want %d", st.Dead, err, 2*each)
	}
}

// A message pushed in a transaction that stays open while others push and claim past it is
// delivered when that commits.
func TestPushHeldOpen(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	pushOrders(t, s, 1, 0)
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	pushTx(t, s, Pgx(tx), punctual.NewMessage{Topic: "orders", ID: "held open"})
	for n := range 200 {
		if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: fmt.Sprint("past ", n)}}); err != nil {
			t.Fatal(err)
		}
		claimOrders(t, s, 0)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for { // the last of the others may have become due only after the claim behind its push
		ds := claimOrders(t, s, time.Minute)
		if len(ds) == 0 {
			t.Fatal("P1: no claim behind the commit finds the message")
		}
		if slices.ContainsFunc(ds, func(d punctual.Delivery) bool { return d.ID == "held open" }) {
			return
		}
	}
}

// P14: batches that name the same messages in different orders do not wait for each other in a
// circle.
func TestCrossingBatches(t *testing.T) {
	t.Parallel()
	url := shared.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, pool, &Options{Migrate: true, OwnPool: true})
	const ids = 40
	tokens := make(map[string]int64)
	pushOrders(t, s, ids, 0)
	for _, d := range claimN(t, s, ids) {
		tokens[d.ID] = d.Token
	}
	do := []func(order []int) error{
		func(order []int) error {
			var ss []punctual.Settlement
			for _, i := range order {
				ss = append(ss, punctual.Settlement{Topic: "orders", ID: fmt.Sprint(i), Token: tokens[fmt.Sprint(i)], Verb: punctual.SettleExtend})
			}
			_, err := s.Settle(context.Background(), ss)
			return err
		},
		func(order []int) error {
			var as []punctual.Amendment
			for _, i := range order {
				as = append(as, punctual.Amendment{Topic: "orders", ID: fmt.Sprint(i), Change: punctual.Change(1 + i%2), Delay: time.Hour})
			}
			_, err := s.Amend(context.Background(), as)
			return err
		},
		func(order []int) error {
			var ms []punctual.NewMessage
			for _, i := range order {
				ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(i), Delay: time.Hour, IfExists: punctual.IfExistsReplace})
			}
			_, err := s.Push(context.Background(), ms)
			return err
		},
		func(order []int) error {
			var ss []punctual.Settlement
			for _, i := range order[:ids/2] {
				ss = append(ss, punctual.Settlement{Topic: "orders", ID: fmt.Sprint(i), Token: tokens[fmt.Sprint(i)], Verb: punctual.SettleAck})
			}
			_, err := s.Settle(context.Background(), ss)
			return err
		},
	}
	var all sync.WaitGroup
	seed := seedrig.Of(t)
	for number, one := range append(do, do...) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(number)))
			for range 25 {
				if err := one(random.Perm(ids)); err != nil {
					t.Errorf("a batch that crosses others: %v", err)
				}
			}
		})
	}
	all.Wait()
	var deadlocks int
	err = pool.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks)
	if err != nil || deadlocks > 0 {
		t.Errorf("P14: %d deadlocks, %v; want none", deadlocks, err)
	}
}

// P1: at each isolation level a transaction that is rolled back leaves no message and wakes nobody,
// and one that commits leaves its message.
func TestTxIsolation(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true, pollEvery: time.Hour})
	pushOrders(t, s, 1, time.Hour) // the topic is there
	notices := func() (n int) {    // how often claims of orders would have been woken, now that one has waited
		t.Helper()
		waitUntil(t, "a poll has ended, and none is under way", func() bool {
			claimOrders(t, s, 10*time.Millisecond) // a wait that ends early may have had no poll
			s.waits.mu.Lock()
			defer s.waits.mu.Unlock()
			if s.waits.topics["orders"] == nil || s.waits.polls == 0 || s.waits.polling > 0 {
				return false
			}
			n = s.waits.topics["orders"].notices
			return true
		})
		return n
	}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, commit := range []bool{false, true} {
			id, before := fmt.Sprint(level, commit), notices()
			tx, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			pushTx(t, s, Pgx(tx), message(id))
			if commit {
				err = tx.Commit(t.Context())
			} else {
				err = tx.Rollback(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), "orders", id); errors.Is(err, punctual.ErrNotFound) == commit {
				t.Errorf("%s: Get after the end, committed %v: %v", level, commit, err)
			}
			if n := notices() - before; n > 0 && !commit {
				t.Errorf("%s: a push that was rolled back has woken claims %d times", level, n)
			}
		}
	}
}
