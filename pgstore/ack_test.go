package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

// An ack does not wait for the disk. A server that stops at once may take it back, and the message
// is there again with its lease. It stays done where somebody got the answer that it is gone, and
// where its ID is remembered.
func TestAcksOfAServerThatStopsAtOnce(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "wal_writer_delay=10s")
	s := openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true, Durability: punctual.Fsync})
	window := time.Hour
	if _, err := s.Configure(t.Context(), "remembering", punctual.SettingsPatch{DedupeWindow: &window}); err != nil {
		t.Fatal(err)
	}
	crash := func() {
		t.Helper()
		if err := errors.Join(server.StopImmediately(), server.Restart()); err != nil {
			t.Fatal(err)
		}
		s.db.pool.Reset()
	}
	for n := 0; ; n++ {
		d := leaseOne(t, s, "orders", fmt.Sprint("plain", n))
		ackAll(t, s, d)
		crash()
		got, err := s.Get(t.Context(), d.Topic, d.ID)
		if err == nil { // the server had not yet written it by itself
			if got.State != punctual.StateLeased || got.Attempt != 1 {
				t.Errorf("a message whose ack was taken back is %s after %d attempts; want leased after 1", got.State, got.Attempt)
			}
			ackAll(t, s, d)
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("no ack was taken back")
		}
	}
	for _, answer := range []struct {
		of   string
		gone func(d punctual.Delivery) (bool, error)
	}{
		{"Get", func(d punctual.Delivery) (bool, error) {
			_, err := s.Get(t.Context(), d.Topic, d.ID)
			if errors.Is(err, punctual.ErrNotFound) {
				return true, nil
			}
			return false, err
		}},
		{"Purge", func(d punctual.Delivery) (bool, error) {
			n, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: d.Topic})
			return n == 0, err
		}},
		{"Check", func(punctual.Delivery) (bool, error) {
			r, err := s.Check(t.Context(), nil)
			return r.Live == 1, err // later is there
		}},
	} {
		for n := 0; ; n++ {
			seen, later := leaseOne(t, s, answer.of, fmt.Sprint("seen", n)), leaseOne(t, s, "later", fmt.Sprint(answer.of, n))
			ackAll(t, s, seen)
			if gone, err := answer.gone(seen); !gone || err != nil {
				t.Fatalf("%s finds an acked message, or fails: %v", answer.of, err)
			}
			ackAll(t, s, later)
			crash()
			if _, err := s.Get(t.Context(), seen.Topic, seen.ID); !errors.Is(err, punctual.ErrNotFound) {
				t.Errorf("P13: Get of a message that was not there by the answer of %s before the server stopped: %v; want not found", answer.of, err)
			}
			if _, err := s.Get(t.Context(), later.Topic, later.ID); err == nil { // the server has written nothing by itself since the answer
				ackAll(t, s, later)
				break
			}
			if t.Context().Err() != nil {
				t.Fatal("no ack behind the answer was taken back")
			}
		}
	}
	remembered := leaseOne(t, s, "remembering", "m")
	ackAll(t, s, remembered)
	crash()
	rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "remembering", ID: "m"}})
	if err != nil || rs[0].Status != punctual.PushDuplicate || rs[0].Existing != punctual.StateNone {
		t.Errorf("push of an ID that was to be remembered: %v, %v; want a duplicate of a finished message", rs, err)
	}
}

// With DurableAcks no ack is taken back.
func TestDurableAcks(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "wal_writer_delay=10s")
	s, err := OpenURL(t.Context(), server.URL("postgres")+"&acks=durable", &Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ackAll(t, s, leaseOne(t, s, "orders", "m"))
	if err := errors.Join(server.StopImmediately(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	s.db.pool.Reset()
	if _, err := s.Get(t.Context(), "orders", "m"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("Get of a message that was acked before the server stopped at once: %v; want not found", err)
	}
}

// leaseOne pushes a message and claims it.
func leaseOne(t *testing.T, s *Store, topic, id string) punctual.Delivery {
	t.Helper()
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: topic, ID: id}}); err != nil {
		t.Fatal(err)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1, Lease: time.Hour, Wait: time.Minute})
	if err != nil || len(ds) != 1 || ds[0].ID != id {
		t.Fatalf("claim of %s in %s: %v, %v", id, topic, ds, err)
	}
	return ds[0]
}

func ackAll(t *testing.T, s *Store, ds ...punctual.Delivery) {
	t.Helper()
	for i, err := range settleAll(t, s, ds...) {
		if err != nil {
			t.Fatalf("ack of %s: %v", ds[i].ID, err)
		}
	}
}

func settleAll(t *testing.T, s *Store, ds ...punctual.Delivery) []error {
	t.Helper()
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	}
	errs, err := s.Settle(t.Context(), ss)
	if err != nil {
		t.Fatal(err)
	}
	return errs
}

// An ack of a message that somebody moves has to be tried again, and then finishes the message
// where it is. Each ack of a batch has its own answer.
func TestAckOfAMessageThatMoves(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	still, moving, stale := leaseOne(t, s, "orders", "a"), leaseOne(t, s, "orders", "b"), leaseOne(t, s, "orders", "c")
	stale.Token++
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), inSchema("UPDATE punctual.message SET visible_at = visible_at + 1 WHERE id = 'b'", s.opt.Schema)); err != nil {
		t.Fatal(err)
	}
	errs := settleAll(t, s, still, moving, stale)
	if errs[0] != nil || !errors.Is(errs[1], punctual.ErrOverloaded) || !errors.Is(errs[2], punctual.ErrLeaseLost) {
		t.Errorf("acks of a message, of one that moves meanwhile and under a token that nobody has: %v; want the second to be tried again and the last to have lost its lease", errs)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if errs := settleAll(t, s, moving); errs[0] != nil {
		t.Errorf("the ack of a message that has moved: %v", errs[0])
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Live() != 1 {
		t.Errorf("%d messages are left, %v; want 1", st.Live(), err)
	}
}

// P13: an answer that says that something is gone, or how much there is, waits until the acks that
// it may rest on are durable. Those have not waited for the disk by themselves.
func TestAnswersWaitForTheDisk(t *testing.T) {
	t.Parallel()
	server := pgrig.Start(t, "wal_writer_delay=10s", "autovacuum=off")
	s, err := newStore(newPool(t, server), &Options{Migrate: true}) // without duties, which write to the log
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.db.pool.Close)
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle := func(verb punctual.Verb) func(punctual.Delivery) error {
		return func(d punctual.Delivery) error {
			errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb}})
			if err == nil && !errors.Is(errs[0], punctual.ErrLeaseLost) {
				err = fmt.Errorf("answers %w; want lease lost", errs[0])
			}
			return err
		}
	}
	amend := func(c punctual.Change) func(punctual.Delivery) error {
		return func(d punctual.Delivery) error {
			out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: c, Topic: d.Topic, ID: d.ID}})
			if err == nil && !errors.Is(out[0].Err, punctual.ErrNotFound) {
				err = fmt.Errorf("answers %w; want not found", out[0].Err)
			}
			return err
		}
	}
	for name, ask := range map[string]func(punctual.Delivery) error{
		"ack": settle(punctual.SettleAck), "retry": settle(punctual.SettleRetry), "snooze": settle(punctual.SettleSnooze),
		"discard": settle(punctual.SettleDiscard), "release": settle(punctual.SettleRelease), "extend": settle(punctual.SettleExtend),
		"cancel": amend(punctual.ChangeCancel), "reschedule": amend(punctual.ChangeReschedule), "requeue": amend(punctual.ChangeRequeue),
		"get": func(d punctual.Delivery) error {
			if _, err := s.Get(t.Context(), d.Topic, d.ID); !errors.Is(err, punctual.ErrNotFound) {
				return fmt.Errorf("answers %w; want not found", err)
			}
			return nil
		},
		"list": func(d punctual.Delivery) error {
			_, err := s.List(t.Context(), punctual.ListQuery{Topic: d.Topic, State: punctual.StateReady})
			return err
		},
		"statistics": func(d punctual.Delivery) error { _, err := s.Stats(t.Context(), d.Topic); return err },
		"forecast": func(d punctual.Delivery) error {
			_, err := s.Forecast(t.Context(), punctual.ForecastQuery{Topic: d.Topic, Step: time.Minute, Buckets: 1})
			return err
		},
		"next_due": func(punctual.Delivery) error { _, err := s.NextDue(t.Context()); return err },
	} {
		var d punctual.Delivery
		acked, ahead := "", false
		for tries := 0; tries < 5 && !ahead; tries++ { // every 10 s the server writes the log of its own accord
			pushed, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: fmt.Sprint(name, tries), Due: time.Unix(1, 0)}})
			if err != nil || pushed[0].Err != nil {
				t.Fatal(err, pushed)
			}
			ds := claimN(t, s, 1)
			if len(ds) != 1 {
				t.Fatalf("claimed %v", ds)
			}
			d = ds[0]
			ackAll(t, s, d)
			acked = doIt(t, server, "select pg_current_wal_insert_lsn()")
			ahead = doIt(t, server, "select pg_current_wal_flush_lsn() < '"+acked+"'") == "t"
		}
		if !ahead {
			t.Fatalf("%s: this test shows nothing: five acks have waited for the disk", name)
		}
		if err := ask(d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if doIt(t, server, "select pg_current_wal_flush_lsn() >= '"+acked+"'") != "t" {
			t.Errorf("P13: %s answers that the message is gone before its ack is durable", name)
		}
	}
}

// P14: a caller's transaction holds one of the messages that a call settles. The others are
// settled, and the answer for the one that is held is definite. The next call settles it once the
// transaction is over.
func TestSettleBesideAHeldMessage(t *testing.T) {
	t.Parallel()
	const all = 20
	for _, verb := range []punctual.Verb{punctual.SettleAck, punctual.SettleExtend, punctual.SettleRetry} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, alone %v", verb, alone), func(t *testing.T) {
				t.Parallel()
				s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
				pushOrders(t, s, all, 0)
				var ss []punctual.Settlement
				for _, d := range claimN(t, s, all) {
					x := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb}
					if verb != punctual.SettleAck {
						x.Delay = time.Hour
					}
					if !alone || d.ID == "7" {
						ss = append(ss, x)
					}
				}
				tx, err := s.db.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(context.Background()) }()
				if err := s.CancelTx(t.Context(), Pgx(tx), "orders", "7"); !errors.Is(err, punctual.ErrLeased) {
					t.Fatalf("this test shows nothing: the cancel of a leased message: %v", err)
				}
				errs, err := s.Settle(t.Context(), ss)
				if err != nil {
					t.Fatalf("P14: a call with one message that is held: %v; want an answer for each", err)
				}
				for i, err := range errs {
					switch {
					case ss[i].ID == "7":
						wantDefinite(t, "settlement of the message that is held", err, punctual.ErrOverloaded)
					case err != nil:
						t.Errorf("P14: %s beside a message that is held: %v", ss[i].ID, err)
					}
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, x := range ss {
					if x.ID != "7" {
						continue
					}
					if errs, err := s.Settle(t.Context(), []punctual.Settlement{x}); err != nil || errs[0] != nil {
						t.Errorf("the settlement when the transaction is over: %v, %v", errs, err)
					}
				}
			})
		}
	}
}

// P4: a settlement under a token that is not the current one gets ErrLeaseLost, and not
// ErrOverloaded, also while somebody holds the message.
func TestStaleTokenOfAHeldMessage(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	pushOrders(t, s, 1, 0)
	d := claimN(t, s, 1)[0]
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := s.CancelTx(t.Context(), Pgx(tx), "orders", d.ID); !errors.Is(err, punctual.ErrLeased) {
		t.Fatal(err)
	}
	for _, verb := range []punctual.Verb{punctual.SettleAck, punctual.SettleExtend} {
		errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token - 1, Verb: verb}})
		if err != nil || !errors.Is(errs[0], punctual.ErrLeaseLost) {
			t.Errorf("P4: %v under an old token: %v, %v; want ErrLeaseLost", verb, errs, err)
		}
	}
}
