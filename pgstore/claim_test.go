package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
	"github.com/punctualmq/punctual/storekit"
)

// P10: the bodies of a claim are bounded over all its topics, and what it leaves is there for the
// next claim at once.
func TestBytesOfAClaim(t *testing.T) {
	t.Parallel()
	const each, body = 5, claimBytes / 8
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, MaxBody: body})
	topics := []string{"a", "b", "c", "d"}
	want := 0
	for _, topic := range topics {
		for i := range each {
			if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: topic, ID: fmt.Sprint(i), Body: make([]byte, body), Due: time.Unix(int64(i), 0)}}); err != nil || rs[0].Err != nil {
				t.Fatal(rs, err)
			}
			want++
		}
	}
	for _, wait := range []time.Duration{0, time.Minute} {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: topics, Max: 1000, Wait: wait, Lease: time.Hour})
		if err != nil || len(ds) == 0 {
			t.Fatalf("claim: %v, %v", ds, err)
		}
		want -= len(ds)
		if n := len(ds) * body; n > claimBytes+body || n < claimBytes/2 {
			t.Errorf("P10: a claim over %d topics brought %d bodies of %d bytes; want about %d bytes in all", len(topics), len(ds), body, claimBytes)
		}
		if wait > 0 { // so another claim that waits is woken at once, and not by the next poll
			s.waits.mu.Lock()
			if last := s.waits.topics[ds[len(ds)-1].Topic]; last.at > s.db.clock.guess()/1000 {
				t.Errorf("P11: the topic whose messages a claim has left is thought to have none until %v", time.UnixMilli(last.at))
			}
			s.waits.mu.Unlock()
		}
		for i, d := range ds {
			if i > 0 && d.Topic < ds[i-1].Topic {
				t.Errorf("a claim brought %s of topic %s behind one of topic %s; want the topics in their order", d.ID, d.Topic, ds[i-1].Topic)
			}
		}
	}
	one, err := s.Claim(t.Context(), punctual.Claim{Topics: topics[3:], Max: 1000, Lease: time.Hour})
	if err != nil || len(one) != want || want == 0 {
		t.Errorf("a third claim brought %d, %v; want the %d that are left", len(one), err, want)
	}
}

// P12: claims of any size, with a wait and without, bring the earliest due first and equal ones by
// ID. The order of the rows in the table does not matter. A message that was given back stands
// where its time is.
func TestOrderOfClaims(t *testing.T) {
	t.Parallel()
	const n = 60
	random := rand.New(rand.NewPCG(seedrig.Of(t), 0))
	for _, size := range []int{1, 7, n} {
		for _, wait := range []time.Duration{0, time.Minute} {
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
			var want []string
			for _, i := range random.Perm(n) { // three at a time are due together
				m := punctual.NewMessage{Topic: "orders", ID: fmt.Sprintf("%02d", i), Due: longDue.Add(time.Duration(i/3) * time.Millisecond)}
				if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
					t.Fatal(rs, err)
				}
				want = append(want, m.ID)
			}
			slices.Sort(want)
			first, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range first {
				if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for len(got) < n {
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: size, Wait: wait, Lease: time.Hour})
				if err != nil || len(ds) == 0 {
					t.Fatalf("claim behind %d messages: %v, %v", len(got), ds, err)
				}
				for _, d := range ds {
					got = append(got, d.ID)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("P12: claims of %d with a wait of %v brought %v; want them by due time and ID", size, wait, got)
			}
		}
	}
}

// P5: a cancel and a reschedule that wait for a claim of the same message find it leased. The
// cancel is definite: no attempt follows.
func TestCancelBehindAClaim(t *testing.T) {
	t.Parallel()
	for change, delay := range map[punctual.Change]time.Duration{punctual.ChangeCancel: 0, punctual.ChangeReschedule: time.Hour} {
		s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
		pushOrders(t, s, 1, 0)
		tx, err := s.db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		var pid int
		if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		e := s.db.epoch.Load()
		claim := s.db.step().add("claim", s.db.writing("orders", 1, 3000, claimBytes, 0, noScanStart, e.number, e.timeline, nil), nil)
		if err := claim.send(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		answer := make(chan error, 1)
		go func() {
			out, err := s.Amend(context.Background(), []punctual.Amendment{{Change: change, Topic: "orders", ID: "0", Delay: delay}})
			if err == nil {
				err = out[0].Err
			}
			answer <- err
		}()
		awaitBlocked(t, s, pid)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; !errors.Is(err, punctual.ErrLeased) {
			t.Errorf("P5: %s that waited for a claim of the message: %v; want leased", change, err)
		}
		// The lease of 3 s, which is long enough for a slow machine to ask meanwhile, runs out.
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: 5 * time.Second})
		if err != nil || change == punctual.ChangeCancel && len(ds) != 0 || change == punctual.ChangeReschedule && (len(ds) != 1 || ds[0].Attempt != 2) {
			t.Errorf("behind the lease of a message for which %s came too late a claim found %v, %v", change, ds, err)
		}
	}
}

// P5, P2: while a cancel or a reschedule is open in a caller's transaction claims pass by the
// message. Behind its commit no claim finds the message, or none before its new time; behind a
// rollback the next one does.
func TestClaimBesideAChange(t *testing.T) {
	t.Parallel()
	for change, delay := range map[punctual.Change]time.Duration{punctual.ChangeCancel: 0, punctual.ChangeReschedule: time.Hour} {
		for _, commit := range []bool{true, false} {
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			pushOrders(t, s, 1, 0)
			tx, _, end := pgxTx(t, s)
			if _, err := s.AmendManyTx(t.Context(), tx, []punctual.Amendment{{Change: change, Topic: "orders", ID: "0", Delay: delay}}); err != nil {
				t.Fatal(err)
			}
			if ds := claimN(t, s, 1); len(ds) != 0 {
				t.Errorf("P5: beside an open %s a claim found %v", change, ds)
			}
			if err := end(commit); err != nil {
				t.Fatal(err)
			}
			if ds := claimN(t, s, 1); (len(ds) == 0) != commit {
				t.Errorf("P5: behind a %s, committed %v, a claim found %v", change, commit, ds)
			}
		}
	}
}

// TestExpiredEndInBatches: a claim of one message behind 1,000 that have expired takes far fewer
// than 1,000 round trips. A claim takes a connection from the pool for each step, so the pool's
// count of that is the number of round trips.
func TestExpiredEndInBatches(t *testing.T) {
	t.Parallel()
	const expired = 1000
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	pool := newPool(t, shared)
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, clock: clock})
	ms := make([]punctual.NewMessage, expired+1)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Delay: time.Duration(i) * time.Millisecond, ExpireAfter: time.Second, DropExpired: i%2 == 0}
	}
	ms[expired].ExpireAfter = 0
	if _, err := s.Push(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	before := pool.Stat().AcquireCount()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: 1})
	if err != nil || len(ds) != 1 || ds[0].ID != fmt.Sprint(expired) {
		t.Fatalf("behind %d expired messages a claim of one returned %v, %v", expired, ds, err)
	}
	if n := pool.Stat().AcquireCount() - before; n > expired/50 {
		t.Errorf("P14: a claim of one message behind %d that have expired made %d round trips; want at most %d", expired, n, expired/50)
	}
	st, err := s.Stats(t.Context(), "o")
	if err != nil || st.Dead != expired/2 || st.Live() != 1 {
		t.Errorf("%d messages are dead and %d live, %v; want %d and 1", st.Dead, st.Live(), err, expired/2)
	}
}

// TestLaterExpiredStay: a claim does not end the expired messages behind the one that it delivers,
// because it has not come to them.
func TestLaterExpiredStay(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, clock: clock})
	ms := make([]punctual.NewMessage, 6)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Delay: time.Duration(i) * time.Millisecond, ExpireAfter: time.Second}
	}
	ms[3].ExpireAfter = 0
	if _, err := s.Push(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: 1}); err != nil || len(ds) != 1 || ds[0].ID != "3" {
		t.Fatalf("a claim of one returned %v, %v; want 3", ds, err)
	}
	if st, err := s.Stats(t.Context(), "o"); err != nil || st.Dead != 3 || st.Leased != 1 || st.Ready != 2 {
		t.Errorf("P12: behind a claim of the fourth message %+v, %v; want 3 dead, 1 leased and 2 ready", st, err)
	}
}

// A claim that meets nothing but messages that must not be delivered ends those behind them, too,
// up to the first one that it may lease. One that has found a message leaves what is behind it.
func TestClaimBehindUndeliverable(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	tables := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true, clock: clock})
	var sent []string
	s := tracedStore(t, tables, func(s *Store, statements []string) {
		for _, name := range namesOfStatements(s, statements) {
			if name == "claim" || name == "undeliverable" || name == "lock_free" {
				sent = append(sent, name)
			}
		}
	})
	s.db.clock.fake = clock
	push := func(n int, m punctual.NewMessage) {
		t.Helper()
		ms := make([]punctual.NewMessage, n)
		for i := range ms {
			ms[i] = m
			ms[i].Topic, ms[i].Due = "orders", clock.Now().Add(time.Duration(i)*time.Millisecond)
		}
		if rs, err := s.Push(t.Context(), ms); err != nil || rs[0].Err != nil {
			t.Fatal(rs, err)
		}
		clock.Advance(time.Second)
	}
	push(150, punctual.NewMessage{ExpireAfter: time.Millisecond, DropExpired: true})
	push(1, punctual.NewMessage{Body: []byte("first")})
	push(5, punctual.NewMessage{ExpireAfter: time.Millisecond, DropExpired: true})
	push(1, punctual.NewMessage{Body: []byte("second")})
	want := func(what string, max int, body string, live int64, statements ...string) {
		t.Helper()
		sent = nil
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: max, Lease: time.Hour})
		if err != nil || len(ds) != 1 || string(ds[0].Body) != body {
			t.Fatalf("%s: %v, %v; want the message %s", what, ds, err, body)
		}
		if !slices.Equal(sent, statements) {
			t.Errorf("%s sends %q; want %q", what, sent, statements)
		}
		if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Live() != live {
			t.Errorf("%s leaves %+v, %v; want %d messages", what, st, err, live)
		}
	}
	want("a claim of one behind 150 expired ones", 1, "first", 7, "claim", "undeliverable", "lock_free", "claim")
	want("a claim of six that meets five expired ones and another", 6, "second", 2, "claim", "lock_free", "claim")
}

// P3: of the messages that a claim has found undeliverable, one whose lease somebody has extended
// since is left alone: its holder works on it.
func TestUndeliverableMeanwhileUnderALease(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "m", MaxAttempts: 1}}); err != nil {
		t.Fatal(err)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Lease: time.Hour, Wait: time.Minute})
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if err := s.claims.endMessages(t.Context(), "orders", []string{"m"}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Get(t.Context(), "orders", "m"); err != nil || m.State != punctual.StateLeased || m.Attempt != m.MaxAttempts {
		t.Errorf("behind the end of what is undeliverable %+v, %v; want it leased, at its last attempt", m, err)
	}
	ackAll(t, s, ds...)
}
