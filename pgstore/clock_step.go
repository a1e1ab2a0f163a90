package pgstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// How the store follows a server's clock that was set back (P8). The goroutine of watch of every
// process compares the clocks each second. When the server's has been far behind for long enough
// (storekit.StepRule), it steps the store's clock in one transaction, which counts the step in the
// table clock_step. Every statement is given the latest time that its process has heard and the
// step after which that was, so that a time from before the last step counts for nothing
// (clock.sql). The others learn of the step when they read the table store, within a second.
//
// A claim that went by the time before could take a lease that was given after the step. So the
// transaction waits for the claims under way, and those that come later see the step
// (step_lock.sql). No other change depends on that, because what a settlement or a push set
// before the step is found by its time, which lies in the future.
//
// Messages are carried over the step afterwards, by their topics and in the order of their times,
// in transactions of carryPage at most. Whoever does that may stop at any place and begin again: a
// message that is carried over waits since a time that is past. The pass that counts begins when no
// call is under way any more that began before the step.

const (
	// stepLockWait is how long a step waits for the claims under way, while others wait behind it.
	// The step is tried again each second.
	stepLockWait = 200 * time.Millisecond
	// carryPage is how many messages are read, and carried over at most, at a time.
	carryPage = 1000
)

// clockSteps is how often the store's clock has stepped, and the last step in µs.
type clockSteps struct {
	steps, from, to int64
	carried         bool // all messages have been carried over that step
}

func (c clockSteps) last() lifecycle.Step {
	return lifecycle.Step{From: c.from / 1000, To: c.to / 1000}
}

// Clock implements storekit.ClockKeeper.
func (s *Store) Clock(ctx context.Context) (storekit.ClockState, error) {
	return call(ctx, s, "clock", "", nil, func() (storekit.ClockState, error) { return s.steps.clockState(ctx) })
}

// StepClock implements storekit.ClockKeeper. It returns when the messages have been carried over
// the step.
func (s *Store) StepClock(ctx context.Context) (storekit.ClockState, error) {
	return call(ctx, s, "step the clock", "", nil, func() (storekit.ClockState, error) {
		if _, err := s.db.tick(ctx); err != nil {
			return storekit.ClockState{}, err
		}
		d, stepped, err := s.steps.stepClock(ctx)
		if err == nil && stepped {
			err = s.steps.carry(ctx, d)
		}
		if err != nil {
			return storekit.ClockState{}, err
		}
		return s.steps.clockState(ctx)
	})
}

// stepping steps the store's clock back, and carries the messages over the step.
type stepping struct {
	db       *database
	waits    *waits
	log      *slog.Logger
	life     context.Context // ends when the store closes
	duties   *sync.WaitGroup // has the goroutine of carryOver
	passed   int64           // the step over which this process has carried the messages; the goroutine of watch alone uses it
	carrying atomic.Bool     // the goroutine of carryOver is under way
}

func (st *stepping) clockState(ctx context.Context) (storekit.ClockState, error) {
	// A step between the two readings shows as one that is still to come.
	d, err := st.db.readStore(ctx)
	if err != nil {
		return storekit.ClockState{}, err
	}
	micros, err := st.db.tick(ctx)
	micros = max(micros, d.micros) // tick does not know d.micros in a store that was opened only to be examined
	state := storekit.ClockState{Now: storekit.FromMillis(micros / 1000), Follows: "PostgreSQL server", Steps: d.steps}
	// The second reading is later, so a small difference may be the time between the two.
	if ahead := time.Duration(micros-d.server) * time.Microsecond; ahead > storekit.StepBeyond || st.db.clock.fake != nil {
		state.Ahead = max(0, ahead.Truncate(time.Millisecond))
	}
	if d.steps > 0 {
		state.Last = storekit.ClockStep{From: storekit.FromMillis(d.from / 1000), To: storekit.FromMillis(d.to / 1000)}
	}
	return state, err
}

// stepClock steps the store's clock back to the server's, unless the server's is not behind or
// another process has done so.
func (st *stepping) stepClock(ctx context.Context) (d clockSteps, stepped bool, err error) {
	latest, fake := st.db.clock.args()
	err = st.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) {
		stepped = false
		lock := st.db.step().add("lock_wait", []any{lockTimeoutOf(stepLockWait)}, nil).add("step_lock", nil, nil)
		if err := tx.send(ctx, lock); err != nil {
			return nil, err
		}
		return st.db.step().add("step", []any{latest[0], fake, latest[1]}, func(rows scanner) error {
			stepped = true
			return rows.Scan(&d.steps, &d.from, &d.to)
		}), nil
	})
	if err != nil || !stepped {
		return d, false, err
	}
	st.db.clock.kept(d.to, d.steps)
	st.log.Warn("the store's clock has stepped back to the server's, which had been set back",
		"from", storekit.FromMillis(d.from/1000), "to", storekit.FromMillis(d.to/1000), "steps", d.steps)
	return d, true, nil
}

// followServer steps the store's clock, and has the messages carried over the step.
func (st *stepping) followServer(ctx context.Context) error {
	d, stepped, err := st.stepClock(ctx)
	if err != nil {
		return fmt.Errorf("the store's clock is ahead of the server's and cannot follow it: %w", err)
	}
	if stepped {
		st.carryOver(d)
	}
	return nil
}

// carryOver begins to carry the messages over a step, unless that is under way, or this process has
// done so and it is too early for the pass that counts. The goroutine of watch alone calls it.
func (st *stepping) carryOver(d clockSteps) {
	early := st.db.clock.guess() < d.to+callTime.Microseconds()
	if early && st.passed == d.steps || !st.carrying.CompareAndSwap(false, true) {
		return
	}
	st.passed = d.steps
	st.duties.Go(func() {
		defer st.carrying.Store(false)
		err := st.carry(st.life, d)
		if err == nil && !early {
			err = st.db.write(st.life, func() *step { return st.db.step().add("step_carried", []any{d.steps}, nil) })
		}
		if err != nil && st.life.Err() == nil {
			st.log.Warn("the messages could not be carried over a step of the clock; this is tried again", "error", err)
		}
	})
}

// carry goes through all topics and carries what they hold over a step.
func (st *stepping) carry(ctx context.Context, d clockSteps) error {
	var topics []string
	if err := st.db.read(ctx, func() *step {
		topics = nil
		return st.db.step().add("topic_names", []any{"", ""}, func(rows scanner) error {
			var name string
			err := rows.Scan(&name)
			topics = append(topics, name)
			return err
		})
	}); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := st.carryTopic(ctx, topic, d); err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
	}
	return nil
}

func (st *stepping) carryTopic(ctx context.Context, topic string, d clockSteps) error {
	over := d.last()
	at, id := over.To, "" // what needs attention at To or before waits for nothing
	for at >= 0 {
		var micros int64
		var lastAt *int64
		var lastID *string
		var ids []string
		if err := st.db.read(ctx, func() *step {
			return st.db.step().add("step_page", st.db.reading(topic, at, carryPage, id), func(rows scanner) error {
				return rows.Scan(&micros, &lastAt, &lastID, &ids)
			})
		}); err != nil {
			return err
		}
		if err := st.carryMessages(ctx, topic, ids, d); err != nil {
			return err
		}
		if lastAt == nil {
			break
		}
		at, id = *lastAt, *lastID
	}
	return st.db.write(ctx, func() *step {
		return st.db.step().add("step_kept", st.db.writing(topic, over.From-over.To, d.steps), nil)
	})
}

// carryMessages carries messages over a step, as an amendment changes them: it locks them, decides
// and notifies those who wait. It changes nothing after a later step, because the messages would
// move by the length of the wrong step.
func (st *stepping) carryMessages(ctx context.Context, topic string, ids []string, d clockSteps) error {
	if len(ids) == 0 {
		return nil
	}
	part := make([]int, len(ids))
	for i := range part {
		part[i] = i
	}
	var l *locked
	over := d.last()
	err := st.db.transact(ctx, func(ctx context.Context, tx *transaction) (x *step, err error) {
		last := false
		same := st.db.step().add("step_last", []any{d.steps}, func(scanner) error { last = true; return nil })
		if l, err = st.db.lockNames(ctx, tx, same, part, func(i int) messageName { return messageName{topic, ids[i]} }); err != nil {
			return nil, err
		}
		write, leased := st.db.changes(), []*row{}
		for _, r := range l.rows {
			if last && r.live && r.Since > l.now && over.Carry(&r.Message) {
				write.updated, write.failures = append(write.updated, r), append(write.failures, nil)
				write.keyed = append(write.keyed, l.keyed([]messageName{r.messageName})...)
				if over.Moves(r.leasedAt) {
					leased = append(leased, r)
				}
			}
		}
		x = write.step()
		if len(leased) > 0 {
			numbers, ids := namesOf(leased)
			x.add("step_leased", []any{numbers, ids, over.From - over.To}, nil)
		}
		return x, nil
	})
	if err == nil {
		st.waits.moved(l)
	}
	return err
}
