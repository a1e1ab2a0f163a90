package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
)

// emit has a topic tell of events.
func emit(t *testing.T, s *Store, topic string, events punctual.Events) {
	t.Helper()
	if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{Emit: &events}); err != nil {
		t.Fatal(err)
	}
}

// takeEvents takes and acks the events of a topic, and returns each as its name and the ID of its
// message, in the order of their IDs.
func takeEvents(t *testing.T, s *Store, topic string) (all []string) {
	t.Helper()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{topic + "@events"}, Max: 100})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(ds, func(a, b punctual.Delivery) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	for _, d := range ds {
		e, err := event.Parse(d.Body)
		if err != nil {
			t.Errorf("the event %s: %v", d.ID, err)
		}
		all = append(all, e.Event.String()+" "+e.ID)
	}
	ackAll(t, s, ds...)
	return all
}

func wantEvents(t *testing.T, s *Store, topic, when string, want ...string) {
	t.Helper()
	if got := takeEvents(t, s, topic); !slices.Equal(got, want) {
		t.Errorf("%s the events are %q; want %q", when, got, want)
	}
}

// Each statement that tests bits of emit has the bits of the events that it is about, and no other
// statement tests any.
func TestBitsOfEvents(t *testing.T) {
	want := map[string]punctual.Events{
		"sql/ack.sql": punctual.EventAcked, "sql/claim.sql": punctual.EventAcked,
		"sql/push.sql": punctual.EventPushed, "sql/push_new.sql": punctual.EventPushed, "sql/insert.sql": punctual.EventPushed, "sql/replace.sql": punctual.EventPushed,
	}
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	bits := regexp.MustCompile(`emit & (\d+)`)
	for _, name := range names {
		found := bits.FindAllStringSubmatch(mustRead(name), -1)
		if (len(found) > 0) != (want[name] != 0) {
			t.Errorf("%s looks at the events of a topic %d times", name, len(found))
		}
		for _, m := range found {
			if n, err := strconv.Atoi(m[1]); err != nil || punctual.Events(n) != want[name] {
				t.Errorf("%s has %s; want %d, which is %s", name, m[0], want[name], want[name])
			}
		}
	}
}

// What happens in a caller's transaction is told of exactly if that commits.
func TestEventsInCallersTransaction(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]openTx{"pgx": pgxTx, "database/sql": sqlTx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
			emit(t, s, "orders", event.All)
			for _, commit := range []bool{false, true} {
				d, e := leaseOne(t, s, "orders", "acked"), leaseOne(t, s, "orders", "dead")
				for _, id := range []string{"cancelled", "replaced"} {
					if rs, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage(id)}); err != nil || rs[0].Err != nil {
						t.Fatal(rs, err)
					}
				}
				takeEvents(t, s, "orders")
				if _, err := s.DeleteTopic(t.Context(), "orders@events"); err != nil { // the transaction makes it
					t.Fatal(err)
				}
				again := laterMessage("replaced")
				again.IfExists = punctual.IfExistsReplace
				tx, _, end := begin(t, s)
				pushTx(t, s, tx, laterMessage("new"), again, laterMessage("cancelled"))
				errs, err := s.SettleManyTx(t.Context(), tx, []punctual.Settlement{
					settlement(d, punctual.SettleAck, laterMessage("then")), settlement(e, punctual.SettleDiscard),
				})
				if err != nil {
					t.Fatal(errs, err)
				}
				if err := s.CancelTx(t.Context(), tx, "orders", "cancelled"); err != nil {
					t.Fatal(err)
				}
				wantEvents(t, s, "orders", "before the end")
				if err := end(commit); err != nil {
					t.Fatal(err)
				}
				if !commit {
					wantEvents(t, s, "orders", "behind a rollback")
					ackAll(t, s, d, e)
					for _, id := range []string{"cancelled", "replaced"} {
						if _, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeDelete, Topic: "orders", ID: id}}); err != nil {
							t.Fatal(err)
						}
					}
					takeEvents(t, s, "orders")
					continue
				}
				wantEvents(t, s, "orders", "behind the commit", "pushed new", "pushed replaced", "acked acked", "pushed then", "dead dead", "cancelled cancelled")
			}
		})
	}
}

// Of two topics in one call of a caller's transaction one has its companion and the other has none
// yet. What happens is told of once in each, although the events of the second one are stored by a
// further statement.
func TestEventsOfTwoTopicsInCallersTransaction(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	emit(t, s, "orders", event.All)
	emit(t, s, "bills", event.All)
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{laterMessage("first")}); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	takeEvents(t, s, "orders")
	if _, err := s.DeleteTopic(t.Context(), "bills@events"); err != nil && !errors.Is(err, punctual.ErrNotFound) {
		t.Fatal(err)
	}
	bill := laterMessage("bill")
	bill.Topic = "bills"
	tx, _, end := pgxTx(t, s)
	pushTx(t, s, tx, laterMessage("order"), bill)
	if err := end(true); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s, "orders", "behind the commit", "pushed order")
	wantEvents(t, s, "bills", "behind the commit", "pushed bill")
}

// At repeatable read and serializable an event in a companion that was deleted or made since the
// snapshot is a serialization failure. In a companion that was deleted it would otherwise be stored
// under a number that no topic has.
func TestEventsBehindTheSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range stricter {
		for _, was := range []bool{false, true} {
			t.Run(fmt.Sprint(level, " ", was), func(t *testing.T) {
				t.Parallel()
				s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
				emit(t, s, "bills", punctual.EventAcked)
				if was {
					ackAll(t, s, leaseOne(t, s, "bills", "before"))
				}
				d, other := leaseOne(t, s, "bills", "m"), leaseOne(t, s, "bills", "other")
				tx := behindSnapshot(t, s, level, func(ctx context.Context, s *Store) error {
					if was {
						_, err := s.DeleteTopic(ctx, "bills@events")
						return err
					}
					ackAll(t, s, other)
					return nil
				}, laterMessage("any"))
				err := s.SettleTx(t.Context(), Pgx(tx), settlement(d, punctual.SettleAck))
				var refused *pgconn.PgError
				if !errors.As(err, &refused) || refused.Code != codeSerialization || !punctual.Definite(err) {
					t.Errorf("SettleTx: %v; want a serialization failure, definite", err)
				}
			})
		}
	}
}

// P14: the first events of a topic come at the same time, beside a caller's transaction that has
// needed the companion first and stays open. None of them fails, and each ack is told of once.
func TestFirstEvents(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	emit(t, s, "orders", punctual.EventAcked)
	const beside = 8
	var ds []punctual.Delivery
	for n := range beside {
		ds = append(ds, leaseOne(t, s, "orders", fmt.Sprint(n)))
	}
	tx, _, end := pgxTx(t, s)
	if err := s.SettleTx(t.Context(), tx, settlement(leaseOne(t, s, "orders", "open"), punctual.SettleAck)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, d := range ds {
		all.Go(func() {
			errs, err := s.Settle(context.Background(), []punctual.Settlement{settlement(d, punctual.SettleAck)})
			if err != nil || errs[0] != nil {
				t.Errorf("P14: an ack beside others: %v, %v", errs, err)
			}
		})
	}
	all.Wait()
	if err := end(true); err != nil {
		t.Fatal(err)
	}
	if got := takeEvents(t, s, "orders"); len(got) != beside+1 {
		t.Errorf("%d acks are told of: %q; want %d", len(got), got, beside+1)
	}
}

// The deletion of a companion waits for a transaction that has stored an event there, so no event
// is left under a number that no topic has.
func TestEventsBesideADeletion(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	emit(t, s, "orders", punctual.EventAcked)
	d := leaseOne(t, s, "orders", "m")
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := s.SettleTx(t.Context(), Pgx(tx), settlement(d, punctual.SettleAck)); err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() {
		n, err := s.DeleteTopic(context.Background(), "orders@events")
		if err == nil && n != 1 {
			err = fmt.Errorf("%d messages were deleted; want 1", n)
		}
		deleted <- err
	}()
	awaitBlocked(t, s, pid)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	var left int
	err = s.db.pool.QueryRow(t.Context(), inSchema("SELECT count(*) FROM punctual.message", s.opt.Schema)).Scan(&left)
	if err != nil || left > 0 {
		t.Errorf("%d rows are left, %v; want none", left, err)
	}
}

// What a topic keeps of messages that a claim ends is the same whether it tells of them or not: the
// failure of the lease that ran out is in the finished record, and the ID is remembered.
func TestFinishedRecordsOfTellingTopics(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: true})
	var got [2]punctual.Finished
	for i, topic := range []string{"silent", "telling"} {
		patch := punctual.SettingsPatch{FinishedRetention: new(time.Hour), DedupeWindow: new(time.Hour)}
		if topic == "telling" {
			patch.Emit = new(event.All)
		}
		if _, err := s.Configure(t.Context(), topic, patch); err != nil {
			t.Fatal(err)
		}
		leaseOne(t, s, topic, "m")
		if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: "m"}}); err != nil || !errors.Is(out[0].Err, punctual.ErrLeased) {
			t.Fatal(out, err)
		}
		if _, err := s.db.pool.Exec(t.Context(), inSchema("UPDATE punctual.message SET visible_at = 1 WHERE token <> 0", s.opt.Schema)); err != nil { // the hour is over
			t.Fatal(err)
		}
		if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1}); err != nil || len(ds) > 0 {
			t.Fatal(ds, err)
		}
		f, err := s.Finished(t.Context(), topic, "m")
		if err != nil || len(f.Failures) != 1 || f.Failures[0].Error != "lease ran out" {
			t.Fatalf("the finished record in the topic %s: %+v, %v; want one with the failure", topic, f, err)
		}
		if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: topic, ID: "m"}}); err != nil || rs[0].Status != punctual.PushDuplicate {
			t.Errorf("a push of the remembered ID in the topic %s: %+v, %v", topic, rs, err)
		}
		got[i] = f
	}
	if got[0].Outcome != got[1].Outcome || got[0].Attempt != got[1].Attempt || got[0].Delivered.IsZero() != got[1].Delivered.IsZero() {
		t.Errorf("the finished records are %+v and %+v; want the same", got[0], got[1])
	}
	wantEvents(t, s, "telling", "in the end", "pushed m", "cancelled m")
}
