package diskstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// TestChangedSinceTheLook: a call looks its IDs up before it has the write lock. If another call
// changes the message between the look-up and the lock, the answer is as if the first call had come
// after the other one (P5, P7).
func TestChangedSinceTheLook(t *testing.T) {
	amend := func(change punctual.Change, delay time.Duration) func(t *testing.T, s *Store) error {
		return func(t *testing.T, s *Store) error {
			as, err := s.Amend(t.Context(), []punctual.Amendment{{Change: change, Topic: "o", ID: "a", Delay: delay}})
			if err != nil {
				return err
			}
			return as[0].Err
		}
	}
	pushed := func(m punctual.NewMessage) func(t *testing.T, s *Store) error {
		return func(t *testing.T, s *Store) error {
			m.Topic, m.ID = "o", "a"
			rs, err := s.Push(t.Context(), []punctual.NewMessage{m})
			if err != nil {
				return err
			}
			if rs[0].Err == nil && rs[0].Status != punctual.PushStored {
				return fmt.Errorf("%v", rs[0].Status)
			}
			return rs[0].Err
		}
	}
	push := pushed(punctual.NewMessage{Delay: time.Hour, Body: []byte("second")})
	due := pushed(punctual.NewMessage{Body: []byte("due")})
	cancel, remove := amend(punctual.ChangeCancel, 0), amend(punctual.ChangeDelete, 0)
	later, requeue := amend(punctual.ChangeReschedule, 2*time.Hour), amend(punctual.ChangeRequeue, 0)
	settled := func(verb punctual.Verb) func(t *testing.T, s *Store) error {
		return func(t *testing.T, s *Store) error {
			ds := claim(t, s, "o", 1)
			if len(ds) != 1 {
				t.Fatal("the message is not due")
			}
			return settle(t, s, ds[0], verb)
		}
	}
	acked := func(t *testing.T, s *Store) error {
		return errors.Join(settled(punctual.SettleAck)(t, s), s.writer.DeleteAcked(t.Context())) // on disk, too
	}
	leased := func(t *testing.T, s *Store) error { claim(t, s, "o", 1); return nil }
	deleted := func(t *testing.T, s *Store) error {
		_, err := s.DeleteTopic(t.Context(), "o")
		return err
	}
	purged := func(state punctual.State) func(t *testing.T, s *Store) error {
		return func(t *testing.T, s *Store) error {
			_, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "o", State: state})
			return err
		}
	}
	const duplicate = "duplicate"
	for _, c := range []struct {
		name    string
		before  func(t *testing.T, s *Store) error // nil: the ID is not there
		call    func(t *testing.T, s *Store) error
		between func(t *testing.T, s *Store) error
		want    any // an error, a text of one, or nil
		live    int64
	}{
		{"push beside a push of the same ID", nil, push, due, duplicate, 1},
		{"push beside a cancel", due, push, cancel, nil, 1},
		{"push beside an ack", due, push, acked, nil, 1},
		{"push beside a discard", due, push, settled(punctual.SettleDiscard), punctual.ErrDuplicate, 0},
		{"push beside a delete", due, push, remove, nil, 1},
		{"push beside the end of the topic", due, push, deleted, nil, 1},
		{"push beside a purge of all", due, push, purged(punctual.StateNone), nil, 1},
		{"replacing push beside a reschedule", due, pushed(punctual.NewMessage{IfExists: punctual.IfExistsReplace}), later, "replaced", 1},
		{"cancel beside a push", nil, cancel, due, nil, 0},
		{"cancel beside a cancel", due, cancel, cancel, punctual.ErrNotFound, 0},
		{"cancel beside a reschedule", due, cancel, later, nil, 0},
		{"cancel beside a claim", due, cancel, leased, punctual.ErrLeased, 1},
		{"cancel beside an ack", due, cancel, acked, punctual.ErrNotFound, 0},
		{"cancel beside a retry", due, cancel, settled(punctual.SettleRetry), nil, 0},
		{"cancel beside a discard", due, cancel, settled(punctual.SettleDiscard), punctual.ErrNotFound, 0},
		{"cancel beside a purge of all", due, cancel, purged(punctual.StateNone), punctual.ErrNotFound, 0},
		{"reschedule beside a cancel", due, later, cancel, punctual.ErrNotFound, 0},
		{"reschedule beside a reschedule", due, later, amend(punctual.ChangeReschedule, 3*time.Hour), nil, 1},
		{"reschedule beside a retry", due, later, settled(punctual.SettleRetry), nil, 1},
		{"reschedule beside the end of the topic", due, later, deleted, punctual.ErrNotFound, 0},
		{"requeue beside a discard", due, requeue, settled(punctual.SettleDiscard), nil, 1},
		{"requeue beside a push", nil, requeue, due, punctual.ErrNotDead, 1},
		{"delete beside a discard", due, remove, settled(punctual.SettleDiscard), nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			looked, between := 0, error(nil)
			var s *Store
			s = openAt(t, "store", &Options{
				fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart), clearFrom: 1,
				looked: func() {
					if looked++; looked == 2 { // in the call that is tested, not in the one before it and those in between
						between = c.between(t, s)
					}
				},
			})
			if _, err := s.Configure(t.Context(), "o", punctual.SettingsPatch{}); err != nil {
				t.Fatal(err)
			}
			before := c.before
			if before == nil {
				before = remove // which finds no message, but looks the ID up
			}
			if err := before(t, s); err != nil && !errors.Is(err, punctual.ErrNotFound) {
				t.Fatal(err)
			}
			if looked != 1 {
				t.Fatalf("%d calls have looked the ID up, want the first", looked)
			}
			err := c.call(t, s)
			if looked < 2 || between != nil {
				t.Fatalf("%d looks; between the second one and the lock: %v", looked, between)
			}
			switch want := c.want.(type) {
			case nil:
				if err != nil {
					t.Errorf("%v, want it done", err)
				}
			case error:
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			default:
				if err == nil || err.Error() != want {
					t.Errorf("%v, want %v", err, want)
				}
			}
			if r := mustBeSound(t, s); r.Live != c.live {
				t.Errorf("%d live messages, want %d", r.Live, c.live)
			}
		})
	}
}

// TestManyPushesOfOneID: when many callers push the same IDs and cancel them, each ID is cancelled
// as often as it was stored.
func TestManyPushesOfOneID(t *testing.T) {
	const callers, rounds, ids = 8, 30, 40
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart)})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "other", Delay: time.Hour})
	var mu sync.Mutex
	for round := range rounds {
		stored, cancelled := make(map[string]int), make(map[string]int)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				ms, as := make([]punctual.NewMessage, ids), make([]punctual.Amendment, ids)
				for i := range ids {
					id := fmt.Sprint(round, "-", i)
					ms[i] = punctual.NewMessage{Topic: "o", ID: id, Delay: time.Hour}
					as[i] = punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: id}
				}
				rs, err := s.Push(t.Context(), ms)
				cs, errc := s.Amend(t.Context(), as)
				if err := errors.Join(err, errc); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range ids {
					if rs[i].Status == punctual.PushStored {
						stored[ms[i].ID]++
					}
					if cs[i].Err == nil {
						cancelled[as[i].ID]++
					} else if !errors.Is(cs[i].Err, punctual.ErrNotFound) {
						t.Error(cs[i].Err)
					}
				}
			})
		}
		all.Wait()
		for i := range ids {
			id := fmt.Sprint(round, "-", i)
			if stored[id] == 0 || stored[id] != cancelled[id] {
				t.Errorf("P5, P7: %s was stored %d times and cancelled %d times", id, stored[id], cancelled[id])
			}
		}
	}
	if r := mustBeSound(t, s); r.Live != 1 {
		t.Errorf("%d live messages, want the other one", r.Live)
	}
}
