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
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Settlements with follow-ups take a transaction of another kind. It locks the settled messages and
// whatever has the IDs of the follow-ups by lock.sql, all in the order of topic and ID, decides
// about all of them, and only then writes anything. So a settlement that is refused leaves the
// others of its transaction as they are, and two settlements whose follow-ups cross do not wait for
// each other in a circle. New messages are inserted after the locks were taken, in the same order.
// If somebody has taken one of their IDs since, the transaction begins anew and finds the ID in
// use.

// followUps are the follow-ups of the settlements of a call.
type followUps struct {
	s        *Store
	ss       []punctual.Settlement
	first    []int    // the index in push of the first follow-up of each settlement
	push     *pushing // the follow-ups as messages of a push
	refusing error    // why the store takes no pushes, or nil
}

// newFollowUps collects the follow-ups of the settlements, and gives an ID to those that have none.
func newFollowUps(s *Store, ss []punctual.Settlement) *followUps {
	f := &followUps{s: s, ss: ss, first: make([]int, len(ss)), push: &pushing{s: s}, refusing: s.given.refusal()}
	now := time.UnixMicro(s.db.clock.guess())
	for i := range ss {
		f.first[i] = len(f.push.ms)
		for _, m := range ss[i].Then {
			r := punctual.PushResult{ID: m.ID, Topic: m.Topic}
			if r.ID == "" {
				r.ID = storekit.NewID(now)
			}
			f.push.ms, f.push.out = append(f.push.ms, m), append(f.push.out, r)
		}
	}
	f.push.dues = make([]time.Time, len(f.push.ms))
	return f
}

// of returns the indices in push of the follow-ups of a settlement.
func (f *followUps) of(i int) (all []int) {
	for j := range f.ss[i].Then {
		all = append(all, f.first[i]+j)
	}
	return all
}

// names returns the names of the follow-ups of a settlement.
func (f *followUps) names(i int) (all []messageName) {
	for _, k := range f.of(i) {
		all = append(all, f.push.name(k))
	}
	return all
}

// bytes returns how many bytes the bodies of the follow-ups of a settlement have.
func (f *followUps) bytes(i int) (n int) {
	for _, m := range f.ss[i].Then {
		n += len(m.Body)
	}
	return n
}

// ofAll returns the indices in push of the follow-ups of a part.
func (f *followUps) ofAll(part []int) (all []int) {
	for _, i := range part {
		all = append(all, f.of(i)...)
	}
	return all
}

// topics returns the topics of the follow-ups of a part, each once.
func (f *followUps) topics(part []int) []string { return f.push.topics(f.ofAll(part)) }

// topicsOfKeys returns the topics of those follow-ups of a part that have keys.
func (f *followUps) topicsOfKeys(part []int) []string { return f.push.topicsOfKeys(f.ofAll(part)) }

// decide adds to write what becomes of the follow-ups of the i-th settlement, for which
// lifecycle.Settle has returned no error. It returns the indices in push of those that are to be
// stored. own is what has the ID of the settled message after the settlement. If one of the
// follow-ups is refused, decide adds nothing and returns the error of the settlement.
func (f *followUps) decide(i int, l *locked, own lifecycle.Holder, write *changes) (stored []int, err error) {
	if f.refusing != nil {
		return nil, storekit.FollowUpError(0, f.refusing)
	}
	x := &f.ss[i]
	for j, k := range f.of(i) {
		n := &x.Then[j]
		due, err := storekit.DueAt(time.UnixMicro(l.micros), n.Due, n.Delay)
		if err = cmp.Or(err, storekit.CheckKeyed(n, l.settings[n.Topic])); err != nil {
			return nil, storekit.FollowUpError(j, err)
		}
		h := own
		if !lifecycle.IsItself(x, n) {
			h = l.rows[f.push.name(k)].holder(l.now, l.settings[n.Topic])
		}
		store, err := lifecycle.FollowUp(x, j, h, l.settings[n.Topic], &f.push.out[k])
		if err != nil {
			return nil, err
		}
		if store {
			f.push.dues[k], f.push.out[k].Due = due, due
			stored = append(stored, k)
		}
	}
	write.then = f
	for _, k := range stored {
		n := f.push.name(k)
		switch r := l.rows[n]; {
		case l.settings[n.topic] == nil:
			write.unknown = append(write.unknown, n.topic)
		case r == nil:
			write.inserted = append(write.inserted, k)
		default:
			r.replaced = n == messageName{x.Topic, x.ID}
			write.replaced = append(write.replaced, k)
			write.keyed = append(write.keyed, l.keyed([]messageName{n})...)
		}
	}
	return stored, nil
}

// tell adds to write the events of follow-ups that are to be stored, as far as their topics tell of
// pushes.
func (f *followUps) tell(stored []int, l *locked, write *changes) {
	for _, k := range stored {
		m := &f.push.ms[k]
		if set := l.settings[m.Topic]; set != nil {
			write.tellOfPush(f.push.name(k), m, storekit.Millis(f.push.dues[k]), set, l.now)
		}
	}
}

// apart divides each part once more, so that none has settlements with and without follow-ups. The
// settlements of a part name different messages, so it does not matter which of them are carried
// out first.
func (c *settling) apart(all [][]int) (divided [][]int) {
	for _, part := range all {
		var plain, followed []int
		for _, i := range part {
			if len(c.ss[i].Then) > 0 {
				followed = append(followed, i)
			} else {
				plain = append(plain, i)
			}
		}
		for _, some := range [][]int{plain, followed} {
			if len(some) > 0 {
				divided = append(divided, some)
			}
		}
	}
	return divided
}

// settleWithFollowUps carries out a part all of whose settlements have follow-ups.
func (c *settling) settleWithFollowUps(ctx context.Context, part []int) error {
	ctx, end := within(ctx)
	defer end()
	refuse := func(i int, err error) { c.out[i] = storekit.SettleError(&c.ss[i], err) }
	err := besideHeld(part, len(c.ss) > 1, func(lockWait time.Duration, group []int) (left []int, err error) {
		for {
			unknown, err := c.settleOwn(ctx, lockWait, group)
			if err == nil && len(unknown) > 0 {
				err = c.s.topics.create(ctx, ownTransactions{c.s}, unknown, c.then.topicsOfKeys(group), lockWait)
			}
			switch {
			case errors.Is(err, errLockTimeout):
				return c.lostOf(ctx, group, err)
			case err != nil:
				return group, err
			case len(unknown) == 0:
				return nil, nil
			}
		}
	}, refuse)
	if errors.Is(err, errHeld) {
		for _, i := range part {
			refuse(i, err)
		}
		return nil
	}
	return err
}

// settleOwn carries out settlements in a transaction of the store's own. If topics of follow-ups do
// not exist yet, it changes nothing and returns these topics.
func (c *settling) settleOwn(ctx context.Context, lockWait time.Duration, part []int) (unknown []string, err error) {
	var l *locked
	var write *changes
	err = c.s.db.transact(ctx, func(ctx context.Context, tx *transaction) (_ *step, err error) {
		l, write, err = c.lockAndDecide(ctx, tx, c.s.db.shareTopics(c.then.topics(part), lockWait), part, nil)
		if err != nil {
			return nil, err
		}
		if unknown = write.unknown; len(unknown) > 0 {
			return nil, nil
		}
		rows, err := c.then.insert(ctx, tx, write.inserted)
		if err == nil && len(rows) < len(write.inserted) {
			err = errIDTaken
		}
		return write.all(), err
	})
	if err == nil && len(unknown) == 0 {
		c.s.waits.moved(l)
		c.s.waits.pushed(c.then.resultsOf(part))
		c.s.waits.told(write.events, write.room...)
	}
	return unknown, err
}

// errIDTaken says that another transaction has taken the ID of a follow-up since the locks. A
// transaction of the store's own then begins anew. In a transaction of the caller's settleWithin
// tries once more. The error is returned when the last of tries has failed so.
var errIDTaken = fmt.Errorf("somebody pushes the ID of a follow-up again and again; try again: %w", punctual.ErrOverloaded)

// lockAndDecide locks the messages of a part and what has the IDs of its follow-ups, and decides
// about all of them. x holds the statements that come before. prove, if not nil, makes sure that
// the messages that were not found are not there.
func (c *settling) lockAndDecide(ctx context.Context, to stepper, x *step, part []int, prove func(l *locked) error) (*locked, *changes, error) {
	var names []messageName
	for _, i := range part {
		names = append(names, c.name(i))
		if c.then != nil {
			names = append(names, c.then.names(i)...)
		}
	}
	l, err := c.s.db.lockNames(ctx, to, x, indices(names), func(i int) messageName { return names[i] })
	if err == nil && prove != nil {
		err = prove(l)
	}
	if err != nil {
		return nil, nil, err
	}
	write := c.s.db.changes()
	for _, i := range part {
		c.out[i] = c.decide(i, l, write)
		write.refused = write.refused || c.out[i] != nil && !c.within
		if c.out[i] != nil && c.then != nil {
			c.then.reset(i)
		}
	}
	return l, write, nil
}

// indices returns the indices of those names that no earlier one is equal to.
func indices(names []messageName) (all []int) {
	seen := make(map[messageName]bool, len(names))
	for i, n := range names {
		if !seen[n] {
			seen[n] = true
			all = append(all, i)
		}
	}
	return all
}

// insert stores follow-ups whose IDs were free, and returns those that it has stored: all, unless
// another transaction has taken an ID or has paused a topic since the locks.
func (f *followUps) insert(ctx context.Context, to stepper, all []int) (rows []stored, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	got := newInserted()
	if err := to.send(ctx, f.push.addStatement(f.s.db.step(), "push", all, f.push.keyed(all), got.scan, true)); err != nil {
		return nil, err
	}
	for row := range got.due {
		rows = append(rows, row)
	}
	return rows, nil
}

// reset forgets what became of the follow-ups of a settlement, for which an earlier try may have
// decided otherwise.
func (f *followUps) reset(i int) {
	for _, k := range f.of(i) {
		f.push.reset(k, nil)
	}
}

// resultsOf returns what became of the follow-ups of a part.
func (f *followUps) resultsOf(part []int) (rs []punctual.PushResult) {
	for _, i := range part {
		for _, k := range f.of(i) {
			rs = append(rs, f.push.out[k])
		}
	}
	return rs
}

// lostOf answers those settlements of a group that have lost their lease, and returns the others
// beside held, the error with which the transaction of the group has ended because it waited too
// long for somebody's lock. A token that is not the current one never becomes the current one
// again, so its holder need not wait (P4).
func (c *settling) lostOf(ctx context.Context, group []int, held error) (left []int, err error) {
	topics, ids, tokens := make([]string, len(group)), make([]string, len(group)), make([]int64, len(group))
	for at, i := range group {
		topics[at], ids[at], tokens[at] = c.ss[i].Topic, c.ss[i].ID, c.ss[i].Token
	}
	var there map[messageName]bool
	err = c.s.db.read(ctx, func() *step {
		there = make(map[messageName]bool)
		return c.s.db.step().add("under_token", []any{topics, ids, tokens}, func(rows scanner) error {
			var n messageName
			err := rows.Scan(&n.topic, &n.id)
			there[n] = true
			return err
		}).add("durable", c.s.db.writing(), nil)
	})
	if err != nil {
		return group, err
	}
	left = slices.DeleteFunc(slices.Clone(group), func(i int) bool {
		lost := !there[c.name(i)]
		if lost {
			c.out[i] = storekit.SettleError(&c.ss[i], punctual.ErrLeaseLost)
		}
		return lost
	})
	if len(left) == 0 {
		return nil, nil
	}
	return left, held
}
