package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// settlement returns the settlement of d by a verb, with follow-ups.
func settlement(d punctual.Delivery, verb punctual.Verb, then ...punctual.NewMessage) punctual.Settlement {
	return punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb, Then: then}
}

// settleOne settles one message.
func settleOne(t *testing.T, s *Store, x punctual.Settlement) error {
	t.Helper()
	errs, err := s.Settle(t.Context(), []punctual.Settlement{x})
	if err != nil {
		t.Fatal(err)
	}
	return errs[0]
}

// wantMessage fails the test unless the store has a message in a state; StateNone is none.
func wantMessage(t *testing.T, s *Store, topic, id string, want punctual.State) {
	t.Helper()
	i, err := s.Get(t.Context(), topic, id)
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		t.Fatal(err)
	}
	if i.State != want {
		t.Errorf("%s in %s is %s; want %s", id, topic, i.State, want)
	}
}

// P14: settlements whose follow-ups cross lock what they name in one order, and store what is new
// in the same order. So none of them waits for another one in a circle.
func TestFollowUpsThatCross(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]punctual.IfExists{"new IDs": punctual.IfExistsKeep, "IDs in use": punctual.IfExistsReplace} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, err := pgxpool.New(t.Context(), shared.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			s := openStore(t, pool, &Options{Migrate: true, OwnPool: true, NoListen: true})
			for n := range 20 {
				crossFollowUps(t, s, n, how)
			}
			if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
				t.Errorf("Check: %+v, %v", r, err)
			}
			var deadlocks int
			err = pool.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks)
			if err != nil || deadlocks > 0 {
				t.Errorf("P14: %d deadlocks, %v; want none", deadlocks, err)
			}
		})
	}
}

// crossFollowUps has several settlements carried out at the same time that have the same
// follow-ups, half of them in the opposite order. The follow-ups are new in each round. Those that
// replace are not, and then the settlements name each other's messages, too, so that they meet at
// their locks and not at their inserts.
func crossFollowUps(t *testing.T, s *Store, round int, how punctual.IfExists) {
	t.Helper()
	const beside = 8
	var then []punctual.NewMessage
	var ds []punctual.Delivery
	for i := range beside {
		ds = append(ds, leaseOne(t, s, "orders", fmt.Sprint("settled ", round, " ", i)))
		if how == punctual.IfExistsReplace {
			then = append(then, laterMessage(ds[i].ID))
		}
	}
	for i := range 40 {
		id := fmt.Sprint("new ", round, " ", i)
		if how == punctual.IfExistsReplace {
			id = fmt.Sprint("old ", i)
		}
		m := laterMessage(id)
		m.IfExists = how
		then = append(then, m)
	}
	var all sync.WaitGroup
	for i, d := range ds {
		x := settlement(d, punctual.SettleAck, slices.Clone(then)...)
		if i%2 == 1 {
			slices.Reverse(x.Then)
		}
		all.Go(func() {
			settle := func() error {
				errs, err := s.Settle(context.Background(), []punctual.Settlement{x})
				return errors.Join(append(errs, err)...)
			}
			err := settle()
			for errors.Is(err, punctual.ErrOverloaded) { // on a slow machine those before it take longer than it waits
				err = settle()
			}
			if err != nil {
				t.Errorf("P14: a settlement that crosses others: %v", err)
			}
		})
	}
	all.Wait()
}

// A settlement that is refused does not stop those beside it in its call, and neither it nor any of
// its follow-ups takes effect.
func TestRefusedFollowUpBesideOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	if _, err := s.Configure(t.Context(), "paused", punctual.SettingsPatch{PushPaused: new(true)}); err != nil {
		t.Fatal(err)
	}
	ackAll(t, s, leaseOne(t, s, "orders", "taken"))
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage("taken")}); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	fails := laterMessage("taken")
	fails.IfExists = punctual.IfExistsFail
	var ss []punctual.Settlement
	for n := range 5 {
		ss = append(ss, settlement(leaseOne(t, s, "orders", fmt.Sprint(n)), punctual.SettleAck, laterMessage(fmt.Sprint("then ", n))))
	}
	ss[1].Then = append(ss[1].Then, punctual.NewMessage{Topic: "paused"})
	ss[2].Then = append(ss[2].Then, punctual.NewMessage{Topic: "new"}, fails)
	ss[3].Token++
	want := []error{nil, punctual.ErrPaused, punctual.ErrDuplicate, punctual.ErrLeaseLost, nil}
	errs, err := s.Settle(t.Context(), ss)
	if err != nil {
		t.Fatal(err)
	}
	for n, err := range errs {
		if !errors.Is(err, want[n]) {
			t.Errorf("settlement %d: %v; want %v", n, err, want[n])
		}
		state, then := punctual.StateNone, punctual.StateScheduled
		if want[n] != nil {
			state, then = punctual.StateLeased, punctual.StateNone
		}
		wantMessage(t, s, "orders", fmt.Sprint(n), state)
		wantMessage(t, s, "orders", fmt.Sprint("then ", n), then)
	}
	if !strings.HasPrefix(fmt.Sprint(errs[2]), "follow-up 3: ") {
		t.Errorf("the error of the third follow-up is %v", errs[2])
	}
	if names, err := s.TopicNames(t.Context(), storekit.NameQuery{}); err != nil || fmt.Sprint(names) != "[orders paused]" {
		t.Errorf("topics: %v, %v; want none that a refused settlement has made", names, err)
	}
}

// P14: a transaction holds the ID of a follow-up of one settlement, or the message of that
// settlement. The other settlements of the call take effect, and the answer to that one is
// definite. When the transaction is over that one takes effect, too.
func TestFollowUpBesideAHeldID(t *testing.T) {
	t.Parallel()
	const all = 8
	cases := maps.Clone(holdings)
	cases["its message"] = func(ctx context.Context, s *Store, tx pgx.Tx) error {
		held, err := tx.Exec(ctx, inSchema("SELECT FROM punctual.message WHERE id = '7' FOR UPDATE", s.opt.Schema))
		if err == nil && held.RowsAffected() != 1 {
			err = fmt.Errorf("%d messages are locked", held.RowsAffected())
		}
		return err
	}
	for name, how := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
			var ss []punctual.Settlement
			for n := range all {
				ss = append(ss, settlement(leaseOne(t, s, "bills", fmt.Sprint(n)), punctual.SettleAck, laterMessage(fmt.Sprint(n))))
			}
			tx := hold(t, s, how)
			for left := ss; len(left) > 0; { // a slow machine may not find all the others in the time that a call has for it
				errs, err := s.Settle(t.Context(), left)
				if err != nil {
					t.Fatalf("P14: a call with one follow-up whose ID is held: %v; want an answer for each", err)
				}
				var again []punctual.Settlement
				for i, err := range errs {
					switch {
					case left[i].ID == "7":
						wantDefinite(t, "settlement whose follow-up is held", err, errHeld)
					case errors.Is(err, punctual.ErrOverloaded):
						again = append(again, left[i])
					case err != nil:
						t.Errorf("P14: settlement of %s beside the one that is held: %v", left[i].ID, err)
					}
				}
				left = again
			}
			wantDefinite(t, "that settlement alone", settleOne(t, s, ss[7]), errHeld)
			wantMessage(t, s, "bills", "7", punctual.StateLeased)
			stale := ss[7]
			stale.Token--
			if err := settleOne(t, s, stale); name != "its message" && !errors.Is(err, punctual.ErrLeaseLost) {
				t.Errorf("P4: that settlement under an old token: %v; want ErrLeaseLost", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := settleOne(t, s, ss[7]); err != nil {
				t.Errorf("the settlement when the transaction is over: %v", err)
			}
			for n := range all {
				wantMessage(t, s, "bills", fmt.Sprint(n), punctual.StateNone)
				wantMessage(t, s, "orders", fmt.Sprint(n), punctual.StateScheduled)
			}
		})
	}
}

// batchTracer calls before for each step that goes to the server, with its statements.
type batchTracer struct {
	before func(statements []string)
}

func (b *batchTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range data.Batch.QueuedQueries {
		all = append(all, q.SQL)
	}
	b.before(all)
	return ctx
}

func (*batchTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*batchTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*batchTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*batchTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracedStore opens a store beside another one, on the same tables, that calls before for each
// step.
func tracedStore(t *testing.T, other *Store, before func(s *Store, statements []string)) *Store {
	t.Helper()
	c, err := pgxpool.ParseConfig(shared.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var s atomic.Pointer[Store]
	c.ConnConfig.Tracer = &batchTracer{func(statements []string) {
		if s := s.Load(); s != nil {
			before(s, statements)
		}
	}}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	opened := openStore(t, pool, &Options{Schema: other.opt.Schema, OwnPool: true, NoListen: true})
	s.Store(opened)
	return opened
}

// pausedBefore opens a store beside another one, on the same tables. Before the store sends a
// statement for the nth time, it closes paused and waits until goOn is called. So a test can change
// what a call has passed by and is about to try again.
func pausedBefore(t *testing.T, other *Store, nth int64, statement string) (s *Store, paused <-chan struct{}, goOn func()) {
	t.Helper()
	reached, released := make(chan struct{}), make(chan struct{})
	goOn = sync.OnceFunc(func() { close(released) })
	var sent atomic.Int64
	s = tracedStore(t, other, func(s *Store, statements []string) {
		if slices.Contains(statements, s.db.sql.text(statement)) && sent.Add(1) == nth {
			close(reached)
			<-released
		}
	})
	t.Cleanup(goOn)
	return s, reached, goOn
}

// Somebody takes the ID of a follow-up between the locks of a settlement and its insert. The
// settlement begins anew and finds the ID in use. So, as IfExists says, it keeps that message or
// replaces it, or it is refused and none of its other follow-ups stays.
func TestFollowUpWhoseIDIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"own transaction", "caller's transaction"} {
		for _, how := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsFail, punctual.IfExistsReplace} {
			t.Run(fmt.Sprint(in, " ", how), func(t *testing.T) {
				t.Parallel()
				other := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
				took := 0
				s := tracedStore(t, other, func(s *Store, statements []string) {
					if statements[0] != s.db.sql.text("push") || took > 0 {
						return
					}
					took++
					rs, err := other.Push(context.Background(), []punctual.NewMessage{{Topic: "orders", ID: "b", Delay: time.Hour, Body: []byte("other")}})
					if err != nil || rs[0].Err != nil {
						t.Error(rs, err)
					}
				})
				d := leaseOne(t, other, "orders", "m")
				second := laterMessage("b")
				second.IfExists = how
				x := settlement(d, punctual.SettleAck, laterMessage("a"), second, laterMessage("c"))
				var err error
				if in == "own transaction" {
					err = settleOne(t, s, x)
				} else {
					tx, begun := s.db.pool.Begin(t.Context())
					if begun != nil {
						t.Fatal(begun)
					}
					err = errors.Join(s.SettleTx(t.Context(), Pgx(tx), x), tx.Commit(t.Context()))
				}
				if took == 0 {
					t.Fatal("this test shows nothing: nobody has taken the ID")
				}
				i, getErr := s.Get(t.Context(), "orders", "b")
				if getErr != nil || (string(i.Body) == "other") != (how != punctual.IfExistsReplace) {
					t.Errorf("the message with the ID has the body %q, %v", i.Body, getErr)
				}
				if how == punctual.IfExistsFail {
					if !errors.Is(err, punctual.ErrDuplicate) || !strings.HasPrefix(err.Error(), "follow-up 2: ") {
						t.Errorf("the settlement: %v; want that its second follow-up is refused", err)
					}
					wantMessage(t, s, "orders", "m", punctual.StateLeased)
					wantMessage(t, s, "orders", "a", punctual.StateNone)
					wantMessage(t, s, "orders", "c", punctual.StateNone)
					return
				}
				if err != nil {
					t.Errorf("the settlement: %v", err)
				}
				wantMessage(t, s, "orders", "m", punctual.StateNone)
				wantMessage(t, s, "orders", "a", punctual.StateScheduled)
				wantMessage(t, s, "orders", "c", punctual.StateScheduled)
			})
		}
	}
}

// P11: a follow-up wakes a claim that waits in this process, and one in another process. The clocks
// are paused, so nothing else does; the other process learns of the follow-up by a notification.
func TestFollowUpWakesClaims(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprint("another process ", another), func(t *testing.T) {
			t.Parallel()
			clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
			o := &Options{Schema: fresh(), Migrate: true, OwnPool: true, clock: clock, heartbeat: time.Hour}
			one := openStore(t, newPool(t, shared), o)
			waiting := one
			if another {
				waiting = openStore(t, newPool(t, shared), o)
				waitUntil(t, "both processes listen", func() bool {
					return doIt(t, shared, "select count(*) from pg_stat_activity where query = 'LISTEN \""+o.Schema+"_due\"'") == "2"
				})
			}
			d := leaseOne(t, one, "orders", "m")
			found := make(chan claimResult, 1)
			go func() {
				ds, err := waiting.Claim(t.Context(), punctual.Claim{Topics: []string{"bills"}, Max: 10, Wait: time.Hour})
				found <- claimResult{ds, err}
			}()
			waitUntil(t, "the claim and the polls sleep", func() bool {
				waiting.waits.mu.Lock()
				defer waiting.waits.mu.Unlock()
				w := waiting.waits.topics["bills"]
				return w != nil && len(w.waiting) == 1 && !w.waiting[0].busy && waiting.waits.polls > 0 && waiting.waits.polling == 0 && !waiting.waits.again
			})
			if err := settleOne(t, one, settlement(d, punctual.SettleAck, punctual.NewMessage{Topic: "bills", ID: "b"})); err != nil {
				t.Fatal(err)
			}
			if got := <-found; got.err != nil || len(got.ds) != 1 || got.ds[0].ID != "b" {
				t.Errorf("a claim that waited for the topic of a follow-up found %v, %v", got.ds, got.err)
			}
		})
	}
}

// All settlements of a call take effect that has some with follow-ups in many topics, and plain
// ones between them, so that it takes several parts.
func TestManyFollowUps(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	const all = 60
	pushOrders(t, s, all, 0)
	var ss []punctual.Settlement
	for n, d := range claimN(t, s, all) {
		x := settlement(d, punctual.SettleAck)
		for f := 0; f < limits.MaxThen && n%2 == 0; f++ {
			x.Then = append(x.Then, punctual.NewMessage{Topic: fmt.Sprint("t", f), ID: d.ID, Delay: time.Hour})
		}
		ss = append(ss, x)
	}
	errs, err := s.Settle(t.Context(), ss)
	if err != nil || errors.Join(errs...) != nil {
		t.Fatal(err, errors.Join(errs...))
	}
	for f := range limits.MaxThen {
		if st, err := s.Stats(t.Context(), fmt.Sprint("t", f)); err != nil || st.Scheduled != all/2 {
			t.Errorf("%d follow-ups in topic %d, %v; want %d", st.Scheduled, f, err, all/2)
		}
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Live() != 0 {
		t.Errorf("%d messages are left, %v", st.Live(), err)
	}
}
