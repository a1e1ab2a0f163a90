package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Purge removes messages without delivering them; see punctual.Inspector. It judges their states by
// the time at which it begins, and takes effect in steps of at most 5000 messages. It passes by
// messages that other transactions hold, and in the end tries those again until ctx ends, or for 30
// s where ctx has no deadline. Then it returns ErrOverloaded, and ErrIndeterminate as well if it
// has removed others.
func (s *Store) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	var n int64 // also beside an error
	_, err := call(ctx, s, "purge", "of "+q.Topic, storekit.CheckTopic(q.Topic), func() (_ int64, err error) {
		if q.State > punctual.StateDead {
			return 0, storekit.Plain(fmt.Errorf("purge of state %d: use scheduled, ready, leased or dead: %w", q.State, punctual.ErrInvalid))
		}
		n, err = s.remover.purge(ctx, q)
		if n > 0 { // perhaps messages under their leases
			s.waits.told(nil, q.Topic)
		}
		if err != nil && n > 0 {
			err = fmt.Errorf("%d messages were purged before: %w", n, halfDone(err))
		}
		return n, err
	})
	return n, err
}

// purge goes through a topic in steps, and then repeats the steps that have left messages because
// others held them.
func (r *remover) purge(ctx context.Context, q punctual.PurgeQuery) (total int64, err error) {
	micros, err := r.db.tick(ctx)
	if err != nil {
		return 0, err
	}
	p := &purging{r: r, q: q, now: micros / 1000}
	var again []*purged // where the steps begin that have passed by messages
	for at := (&purged{last: new(string)}); at.last != nil; {
		next, err := p.step(ctx, at)
		if err != nil {
			return p.total, err
		}
		if next.passedBy() {
			again = append(again, at)
		}
		at = next
	}
	if err = p.awaitHeld(ctx, again); err == nil {
		err = r.db.settled(ctx) // a step that has removed nothing has not waited for the acks of the messages that it did not find
	}
	return p.total, err
}

// purging is a call of Purge.
type purging struct {
	r     *remover
	q     punctual.PurgeQuery
	now   int64 // when it began, in ms
	total int64 // how many messages it has removed
}

// awaitHeld repeats steps until they pass by no message any more, or the time of within is over. It
// holds no lock in between, so claims find the messages that are to stay.
func (p *purging) awaitHeld(ctx context.Context, again []*purged) error {
	ctx, end := within(ctx)
	defer end()
	for pause := time.Millisecond; len(again) > 0; pause = min(2*pause, deletionPause) {
		err := sleep(ctx, pause)
		if err == nil {
			again, err = p.repeat(ctx, again)
		}
		if ended(err) && !errors.Is(err, punctual.ErrIndeterminate) {
			return fmt.Errorf("other transactions hold messages that are to be purged: end them, or try again: %w (%w)", punctual.ErrOverloaded, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repeat carries out steps once more, and returns those that have left held messages again.
func (p *purging) repeat(ctx context.Context, steps []*purged) (again []*purged, err error) {
	for _, at := range steps {
		next, err := p.step(ctx, at)
		if err != nil {
			return nil, err
		}
		if next.passedBy() {
			again = append(again, at)
		}
	}
	return again, nil
}

// step carries out the step that goes on at a place, and returns where the next one goes on.
func (p *purging) step(ctx context.Context, at *purged) (next *purged, err error) {
	from, to := storekit.CeilMillis(p.q.From), endOf(p.q.To)
	statement, args := "purge_live", []any{p.q.Topic, int32(p.q.State), from, to, p.now, sweepItems, at.died, *at.last}
	if p.q.State == punctual.StateDead {
		statement, args = "purge_dead", append(args[:1], from, to, p.now, sweepItems, at.died, *at.last)
	}
	next, err = p.r.purgeSome(ctx, statement, args)
	if err == nil {
		p.total += int64(len(next.ids))
		if orZero(next.keyed) {
			p.r.db.keyed.learn(p.q.Topic, true)
		}
	}
	return next, err
}

// purged is the answer of purge_live.sql and purge_dead.sql.
type purged struct {
	died    int64    // for dead messages: the next step goes on behind this time of death and the ID last
	last    *string  // the next step goes on behind this ID; nil when there is no more
	number  *int32   // of the topic
	ids     []string // of the messages that were locked
	fitting int64    // how many were to be locked
	keyed   *bool    // their keys are to be looked at
}

// passedBy reports whether a step has left messages that others had locked, or have just changed.
func (p *purged) passedBy() bool { return p.fitting > int64(len(p.ids)) }

// purgeSome locks what a step of a purge removes, and then removes it. One statement cannot do
// both, because a statement that has locked a row which was changed a moment ago does not see the
// version of the row that the change has left.
func (r *remover) purgeSome(ctx context.Context, statement string, args []any) (found *purged, err error) {
	var micros int64
	err = r.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		found = &purged{}
		x := r.db.step().add(statement, r.db.writing(args...), func(rows scanner) error {
			return rows.Scan(&micros, &found.died, &found.last, &found.number, &found.ids, &found.fitting, &found.keyed)
		})
		if err := tx.send(ctx, x); err != nil || len(found.ids) == 0 {
			return nil, err
		}
		numbers := slices.Repeat([]int32{*found.number}, len(found.ids))
		x = r.db.step()
		if orZero(found.keyed) {
			x.add("key_note", r.db.writing(numbers, found.ids), nil)
		}
		return x.add("remove", []any{numbers, found.ids}, nil), nil
	})
	if err == nil {
		r.db.clock.hear(micros)
	}
	return found, err
}

// halfDone adds ErrIndeterminate to the error of a call that has made some of its changes before.
func halfDone(err error) error {
	return fmt.Errorf("%w (%w)", punctual.ErrIndeterminate, err)
}

// DeleteTopic removes a topic and its companions with all that they hold; see punctual.Inspector.
// It takes effect in one atomic step. The rows of the messages are removed and counted afterwards,
// some thousand at a time, while others push to the topic anew. If that fails, for instance because
// ctx ends, the error is ErrIndeterminate beside the number of those counted; the topic is deleted
// then, and the store removes the rest in the background.
func (s *Store) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	var n int64 // also beside an error
	_, err := call(ctx, s, "delete topic", topic, storekit.CheckTopic(topic), func() (_ int64, err error) {
		n, err = s.remover.deleteTopic(ctx, topic)
		return n, err
	})
	return n, err
}

// deleteTopic holds up the sweeps of all processes meanwhile, so that it alone removes and counts
// the messages.
func (r *remover) deleteTopic(ctx context.Context, topic string) (n int64, err error) {
	conn, err := r.db.acquire(ctx)
	if err != nil {
		return 0, r.db.explain(unsent{err}, punctual.ErrUnreachable)
	}
	hold := &transaction{db: r.db, conn: conn}
	defer hold.release(ctx)
	if err := hold.send(ctx, r.db.step().add("sweep_hold", []any{r.db.class}, nil)); err != nil {
		return 0, r.db.explain(uncommitted{err}, punctual.ErrUnreachable)
	}
	dropped, err := r.dropTopic(ctx, topic)
	if err != nil {
		return 0, err
	}
	if len(dropped) == 0 {
		return 0, storekit.Plain(errNoTopic(topic))
	}
	for _, d := range dropped {
		counted, err := r.sweepTopic(ctx, d, nil)
		if n += counted; err != nil {
			return n, fmt.Errorf("the topic is deleted, and %d of its messages were counted before: %w", n, halfDone(err))
		}
	}
	if err := hold.send(ctx, r.db.step().add("sweep_hold", []any{r.db.class}, nil)); err != nil { // the connection may have broken, and a sweep have gone on
		return n, fmt.Errorf("the topic is deleted, and %d messages or more with it: %w", n, halfDone(r.db.explain(err, punctual.ErrUnreachable)))
	}
	return n, nil
}

const (
	// deletionLockWait is how long the deletion of a topic waits for a lock at a time. Pushes to
	// topics that share the lock wait behind it.
	deletionLockWait = 100 * time.Millisecond
	// deletionPause is how long the deletion then lets the pushes pass before it tries again. A
	// purge that meets held messages pauses so long at most, too.
	deletionPause = 200 * time.Millisecond
)

// dropTopic removes a topic and its companions, but not their messages; dropped is empty where
// there is no such topic. It tries again until ctx ends, or for callTime, while another transaction
// holds the topic's lock, as after a push to it.
func (r *remover) dropTopic(ctx context.Context, topic string) (dropped []droppedTopic, err error) {
	ctx, end := within(ctx)
	defer end()
	for waited := false; ; waited = true {
		dropped, err = r.dropTopicNow(ctx, topic)
		waits := errors.Is(err, errLockTimeout)
		if !waits && (!waited || !ended(err) || errors.Is(err, punctual.ErrIndeterminate)) {
			return dropped, err
		}
		if err := sleep(ctx, deletionPause); err != nil {
			return nil, fmt.Errorf("a transaction is open that has pushed to the topic, or to one that shares its lock: end it, or try again: %w (%w)", punctual.ErrOverloaded, err)
		}
	}
}

// dropTopicNow removes a topic and its companions while no push to one of them is under way. If
// that takes a wait of more than deletionLockWait, it changes nothing and returns errLockTimeout.
func (r *remover) dropTopicNow(ctx context.Context, topic string) (dropped []droppedTopic, err error) {
	parent, _ := storekit.Companion(topic)
	err = r.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		dropped = nil
		var refusal error
		x := r.db.step().add("lock_wait", []any{lockTimeoutOf(deletionLockWait)}, nil).add("topic_close", []any{r.db.class, topic}, nil)
		x.add("topic_needed", []any{parent, storekit.OutTopic(topic)}, func(rows scanner) error {
			var text []byte
			var waiting int64
			if err := rows.Scan(&text, &waiting); err != nil {
				return err
			}
			set, err := r.db.settings.Decode(text)
			refusal = storekit.CheckDelete(topic, &set, waiting)
			return err
		})
		if err := cmp.Or(tx.send(ctx, x), refusal); err != nil {
			return nil, err
		}
		return nil, tx.send(ctx, r.db.step().add("topic_drop", r.db.writing(topic), func(rows scanner) error {
			var d droppedTopic
			err := rows.Scan(&d.at, &d.number, &d.retention)
			d.at /= 1000
			dropped = append(dropped, d)
			return err
		}))
	})
	return dropped, err
}
