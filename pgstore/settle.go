package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Settle lets holders finish, give back, give up or extend; see punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return call(ctx, s, "settle", "", storekit.CheckBatch(len(ss)), func() ([]error, error) {
		c := &settling{s: s, ss: ss, out: make([]error, len(ss))}
		var fit []int
		for i := range ss {
			if c.out[i] = storekit.CheckSettlement(&ss[i]); c.out[i] == nil {
				fit = append(fit, i)
			}
		}
		all := parts(fit, c.name, func(int) int { return 0 })
		return c.out, inParts(all, func(part []int) error { return c.settle(ctx, part) }, func(i int, err error) { c.out[i] = err })
	})
}

// settling is a call of Settle.
type settling struct {
	s   *Store
	ss  []punctual.Settlement
	out []error
}

func (c *settling) name(i int) name { return name{c.ss[i].Topic, c.ss[i].ID} }

// settle settles a part: acks in one statement, and what that has left, or other verbs, by looking first.
func (c *settling) settle(ctx context.Context, part []int) error {
	for _, i := range part {
		if c.ss[i].Verb != punctual.SettleAck {
			return c.settleAny(ctx, part, len(part))
		}
	}
	left, err := c.ack(ctx, part)
	if err != nil || len(left) == 0 {
		return err
	}
	return c.settleAny(ctx, left, len(part))
}

// ack finishes the messages whose current token is given, and returns the other ones.
func (c *settling) ack(ctx context.Context, part []int) (left []int, err error) {
	topics, ids, tokens := make([]string, len(part)), make([]string, len(part)), make([]int64, len(part))
	for at, i := range part {
		topics[at], ids[at], tokens[at] = c.ss[i].Topic, c.ss[i].ID, c.ss[i].Token
	}
	var micros int64
	var done int
	var doneTopics, doneIDs []string // of those that are done, if not all are
	err = c.s.write(ctx, func() *step {
		return c.s.step().add("ack", c.s.writing(topics, ids, tokens, c.s.opt.DurableAcks), func(rows scanner) error {
			return rows.Scan(&micros, &done, &doneTopics, &doneIDs, nil)
		})
	})
	if err != nil {
		return nil, err
	}
	c.s.clock.hear(micros)
	if done == len(part) {
		return nil, nil
	}
	acked := make(map[name]bool, len(doneIDs))
	for at, id := range doneIDs {
		acked[name{doneTopics[at], id}] = true
	}
	for _, i := range part {
		if !acked[c.name(i)] {
			left = append(left, i)
		}
	}
	return left, nil
}

func (c *settling) lost(i int, kind error) error {
	x := &c.ss[i]
	return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, kind)
}

// settleAny settles some items of any verbs, of a part with so many. It passes by messages that other transactions hold and tries
// those again by themselves. So a caller's transaction holds up no other message of the call.
func (c *settling) settleAny(ctx context.Context, left []int, all int) error {
	ctx, end := within(ctx)
	defer end()
	begun := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, heldAgain) {
		held, err := c.settleFree(ctx, left)
		patience := heldAlone
		if len(held) < len(c.ss) {
			patience = heldBeside
		}
		switch {
		case err != nil && len(left) == all:
			return err
		case err != nil: // the others are done
			for _, i := range left {
				c.out[i] = err
			}
			return nil
		case len(held) == 0:
			return nil
		case time.Since(begun) >= patience || sleep(ctx, wait) != nil:
			for _, i := range held {
				c.out[i] = c.lost(i, errHeld)
			}
			return nil
		}
		left = held
	}
}

// settleFree settles messages in one transaction, and returns those that others hold.
func (c *settling) settleFree(ctx context.Context, part []int) (held []int, err error) {
	var l *locked
	err = c.s.transact(ctx, func(ctx context.Context, tx *transaction) (_ *step, err error) {
		held = nil
		there := make(map[name]bool)
		l, err = c.s.lockBy(ctx, tx, "lock_free", c.s.step(), part, c.name, func(x *step, topics, ids []string) {
			tokens := make([]int64, len(part))
			for at, i := range part {
				tokens[at] = c.ss[i].Token
			}
			x.add("under_token", []any{topics, ids, tokens}, func(rows scanner) error {
				var n name
				err := rows.Scan(&n.topic, &n.id)
				there[n] = true
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		write := c.s.changes()
		for _, i := range part {
			if l.rows[c.name(i)] == nil && there[c.name(i)] && l.settings[c.ss[i].Topic] != nil {
				held = append(held, i)
				continue
			}
			c.out[i] = c.decide(i, l, write)
			write.refused = write.refused || c.out[i] != nil
		}
		return write.step(), nil
	})
	if err == nil {
		c.s.waits.moved(l)
	}
	return held, err
}

// decide says what becomes of a message by what its holder says.
func (c *settling) decide(i int, l *locked, write *changes) error {
	x := &c.ss[i]
	r := l.rows[c.name(i)]
	if r == nil || r.visibleAt == nil || r.token == 0 || r.token != x.Token {
		return c.lost(i, punctual.ErrLeaseLost)
	}
	set := l.settings[x.Topic]
	if r.cancelled && x.Verb != punctual.SettleAck && x.Verb != punctual.SettleDiscard {
		if x.Verb != punctual.SettleExtend {
			write.finish(r, punctual.OutcomeCancelled, set, l.now)
		}
		return c.lost(i, punctual.ErrCancelled)
	}
	switch x.Verb {
	case punctual.SettleAck:
		write.finish(r, punctual.OutcomeAcked, set, l.now)
		return nil
	case punctual.SettleRetry:
		return c.retry(x, r, l, write)
	case punctual.SettleSnooze:
		due, err := l.dueAt(time.Time{}, x.Delay)
		if err != nil {
			return err
		}
		r.due = due
		r.attempts--
		r.wait()
	case punctual.SettleDiscard:
		failure := encodeFailure(r.attempts, l.now, x.Error)
		r.die(punctual.ReasonDiscarded, l.now)
		write.update(r, failure)
		return nil
	case punctual.SettleRelease:
		r.attempts--
		r.wait()
	case punctual.SettleExtend:
		length := x.Delay
		if length == 0 {
			length = set.Lease
		}
		until := l.now + storekit.CeilDuration(length)
		r.visibleAt = &until
	}
	write.update(r, nil)
	return nil
}

// retry gives a message back, or gives up on it when that was the last attempt.
func (c *settling) retry(x *punctual.Settlement, r *row, l *locked, write *changes) error {
	set := l.settings[x.Topic]
	delay := x.Delay
	if delay == punctual.UseBackoff {
		delay = storekit.RetryDelay(set.Backoff, int(r.attempts))
	}
	due, err := l.dueAt(time.Time{}, delay)
	if err != nil {
		return err
	}
	failure := encodeFailure(r.attempts, l.now, x.Error)
	most := int(r.maxAttempts)
	if most == 0 {
		most = set.MaxAttempts
	}
	if int(r.attempts) >= most {
		r.die(punctual.ReasonAttemptsUsedUp, l.now)
	} else {
		r.due = due
		r.wait()
	}
	write.update(r, failure)
	return nil
}

// dueAt is storekit.DueAt by the clock of the change, in ms.
func (l *locked) dueAt(due time.Time, delay time.Duration) (int64, error) {
	at, err := storekit.DueAt(time.UnixMicro(l.micros), due, delay)
	return at.UnixMilli(), err
}
