package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Settle lets holders finish, give back, give up or extend; see punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return call(ctx, s, "settle", "", storekit.CheckBatch(len(ss)), func() ([]error, error) {
		c := newSettling(s, ss)
		all := c.parts()
		if c.then != nil {
			all = c.apart(all)
		}
		return c.out, inParts(all, func(part []int) error { return c.settle(ctx, part) }, func(i int, err error) { c.out[i] = err })
	})
}

// settling is a call of Settle, SettleTx or SettleManyTx, or the leases that a claim gives back.
type settling struct {
	s    *Store
	ss   []punctual.Settlement
	out  []error
	then *followUps // nil if no settlement has any

	within bool // it works in a transaction of the caller's, whose commit makes the answers durable
}

// newSettling checks the settlements, notes the errors of those that are malformed, and collects
// the follow-ups.
func newSettling(s *Store, ss []punctual.Settlement) *settling {
	c := &settling{s: s, ss: ss, out: make([]error, len(ss))}
	for i := range ss {
		c.out[i] = storekit.CheckSettlement(&ss[i], s.opt.MaxBody)
		if len(ss[i].Then) > 0 && c.then == nil {
			c.then = newFollowUps(s, ss)
		}
	}
	return c
}

func (c *settling) name(i int) messageName { return messageName{c.ss[i].Topic, c.ss[i].ID} }

// parts divides the settlements that passed the checks.
func (c *settling) parts() [][]int {
	var fit []int
	for i := range c.out {
		if c.out[i] == nil {
			fit = append(fit, i)
		}
	}
	if c.then == nil {
		return parts(fit, c.name, func(int) int { return 0 }, nil)
	}
	return parts(fit, c.name, c.then.bytes, c.then.names)
}

// settle carries out a part, all or none of whose items have follow-ups. A part of acks alone takes
// one statement, unless a topic tells of acks. What that statement leaves, and every other part,
// takes a transaction that locks and reads the messages first.
func (c *settling) settle(ctx context.Context, part []int) error {
	if c.then != nil && len(c.ss[part[0]].Then) > 0 {
		return c.settleWithFollowUps(ctx, part)
	}
	for _, i := range part {
		if c.ss[i].Verb != punctual.SettleAck || c.s.db.acks.has(c.ss[i].Topic) {
			return c.settleAny(ctx, part, len(part))
		}
	}
	left, err := c.ack(ctx, part)
	if err != nil || len(left) == 0 {
		return err
	}
	return c.settleAny(ctx, left, len(part))
}

// ack finishes messages under their current tokens by ack.sql, and returns the items that the
// statement leaves.
func (c *settling) ack(ctx context.Context, part []int) (left []int, err error) {
	topics, ids, tokens := make([]string, len(part)), make([]string, len(part)), make([]int64, len(part))
	for at, i := range part {
		topics[at], ids[at], tokens[at] = c.ss[i].Topic, c.ss[i].ID, c.ss[i].Token
	}
	var micros int64
	var done int
	var doneTopics, doneIDs []string // the messages that are done, unless all are
	var counted bool                 // a topic has MaxLeases or keys
	statement := "ack"
	if slices.ContainsFunc(topics, c.s.db.keyed.has) {
		statement = "ack_keyed"
	}
	err = c.s.db.write(ctx, func() *step {
		return c.s.db.step().add(statement, c.s.db.writing(topics, ids, tokens, c.s.opt.DurableAcks), func(rows scanner) error {
			return rows.Scan(&micros, &done, &doneTopics, &doneIDs, nil, &counted)
		})
	})
	if err != nil {
		return nil, err
	}
	c.s.db.clock.hear(micros)
	if counted {
		c.s.waits.told(nil, distinct(part, func(i int) string { return c.ss[i].Topic })...)
	}
	if done == len(part) {
		return nil, nil
	}
	acked := make(map[messageName]bool, len(doneIDs))
	for at, id := range doneIDs {
		acked[messageName{doneTopics[at], id}] = true
	}
	for _, i := range part {
		if !acked[c.name(i)] {
			left = append(left, i)
		}
	}
	return left, nil
}

// settleAny carries out those items of a part that are left, whatever their verbs; all is how many
// the part has. Messages that other transactions hold are skipped, and tried again for a short time
// when the others are done, so that a caller's transaction holds up no other message of the call.
// The error is that of the whole part. If items of the part are done already, the error goes to
// each item that is left instead.
func (c *settling) settleAny(ctx context.Context, left []int, all int) error {
	ctx, end := within(ctx)
	defer end()
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, heldAgain) {
		held, err := c.settleFree(ctx, left)
		limit := heldAlone
		if len(held) < len(c.ss) {
			limit = heldBeside
		}
		switch {
		case err != nil && len(left) == all:
			return err
		case err != nil:
			for _, i := range left {
				c.out[i] = err
			}
			return nil
		case len(held) == 0:
			return nil
		case time.Since(begun) >= limit || sleep(ctx, pause) != nil:
			for _, i := range held {
				c.out[i] = storekit.SettleError(&c.ss[i], errHeld)
			}
			return nil
		}
		left = held
	}
}

// settleFree carries out items in one transaction, and returns those whose messages other
// transactions hold.
func (c *settling) settleFree(ctx context.Context, part []int) (held []int, err error) {
	var l *locked
	var write *changes
	err = c.s.db.transact(ctx, func(ctx context.Context, tx *transaction) (_ *step, err error) {
		held = nil
		there := make(map[messageName]bool)
		l, err = c.s.db.lockBy(ctx, tx, "lock_free", c.s.db.step(), part, c.name, func(x *step, topics, ids []string) {
			tokens := make([]int64, len(part))
			for at, i := range part {
				tokens[at] = c.ss[i].Token
			}
			x.add("under_token", []any{topics, ids, tokens}, func(rows scanner) error {
				var n messageName
				err := rows.Scan(&n.topic, &n.id)
				there[n] = true
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		write = c.s.db.changes()
		for _, i := range part {
			if l.rows[c.name(i)] == nil && there[c.name(i)] && l.settings[c.ss[i].Topic] != nil {
				held = append(held, i)
				continue
			}
			c.out[i] = c.decide(i, l, write)
			write.refused = write.refused || c.out[i] != nil
		}
		return write.all(), nil
	})
	if err == nil {
		c.s.waits.moved(l)
		c.s.waits.told(write.events, write.room...)
	}
	return held, err
}

// decide adds to write what becomes of a message by what its holder says, and of the follow-ups. It
// returns the holder's answer. If a follow-up is refused, it adds nothing.
func (c *settling) decide(i int, l *locked, write *changes) error {
	x := &c.ss[i]
	r, set := l.rows[c.name(i)], l.settings[x.Topic]
	if r == nil || !r.live { // there is no such message, or it is dead or finished
		_, err := lifecycle.Settle(nil, x, set, time.UnixMicro(l.micros))
		return err
	}
	facts := r.Message
	d, err := lifecycle.Settle(&facts, x, set, time.UnixMicro(l.micros))
	var stored []int
	if err == nil && len(x.Then) > 0 {
		if stored, err = c.then.decide(i, l, facts.Behind(d, set, l.now), write); err != nil {
			return err
		}
	}
	r.Message = facts
	write.apply(r, d, set, l.now)
	c.then.tell(stored, l, write)
	return err
}
