package pgstore

import (
	"context"
	"maps"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Every change but a claim and an ack locks its messages, decides here what becomes of each, and writes that.

// locked are messages that a transaction has locked, and what decides about them.
type locked struct {
	micros   int64 // the store's clock behind the locks
	now      int64 // the same in ms
	rows     map[name]*row
	settings map[string]*punctual.Settings                // of the topics that there are
	decode   func(text []byte) (punctual.Settings, error) // that of the store
}

// lockNames locks the messages of a part. x is the step with what is to happen before, such as what keeps topics from being deleted.
func (s *Store) lockNames(ctx context.Context, to stepper, x *step, part []int, nameOf func(i int) name) (*locked, error) {
	return s.lockBy(ctx, to, "lock", x, part, nameOf, nil)
}

// lockBy is lockNames by a statement of the caller's choice. more, if not nil, adds to the step behind it.
func (s *Store) lockBy(ctx context.Context, to stepper, statement string, x *step, part []int, nameOf func(i int) name, more func(x *step, topics, ids []string)) (*locked, error) {
	l := &locked{rows: make(map[name]*row), settings: make(map[string]*punctual.Settings), decode: s.settings.Decode}
	topics, ids := make([]string, len(part)), make([]string, len(part))
	for at, i := range part {
		n := nameOf(i)
		topics[at], ids[at] = n.topic, n.id
	}
	x.add(statement, []any{topics, ids}, func(rows scanner) error {
		r, err := scanRow(rows)
		if err == nil {
			l.rows[r.name] = r
		}
		return err
	})
	if more != nil {
		more(x, topics, ids)
	}
	x.add("look", s.writing(distinct(part, func(i int) string { return nameOf(i).topic })), l.look)
	if err := to.send(ctx, x); err != nil {
		return l, err
	}
	// Whoever deletes a topic does not wait for locks of its messages. What is found of a deleted topic is gone.
	maps.DeleteFunc(l.rows, func(n name, _ *row) bool { return l.settings[n.topic] == nil })
	l.now = l.micros / 1000
	s.clock.hear(l.micros)
	return l, nil
}

// look reads a row of look.sql.
func (l *locked) look(rows scanner) error {
	var topic, text *string
	if err := rows.Scan(&l.micros, &topic, &text); err != nil || topic == nil {
		return err
	}
	set, err := l.decode([]byte(*text))
	l.settings[*topic] = &set
	return err
}

// changes collects what becomes of locked messages, as the arguments of update.sql, tell.sql, remove.sql and remember.sql.
type changes struct {
	s          *Store
	updated    []*row
	failures   [][]byte // of those updated; nil adds none
	removed    []*row
	remembered []*row
	told       []*row // of those that end
	refused    bool   // an item is answered by what was found and not by a change
}

func (s *Store) changes() *changes { return &changes{s: s} }

// update gives a message the state that its row has now. failure, if not nil, is added to its history.
func (c *changes) update(r *row, failure []byte) {
	c.updated = append(c.updated, r)
	c.failures = append(c.failures, failure)
}

// remove takes a message out without a trace.
func (c *changes) remove(r *row) { c.removed = append(c.removed, r) }

// finish takes out a message that was acked or cancelled. Its topic may keep its story, and remember the ID.
func (c *changes) finish(r *row, how punctual.Outcome, set *punctual.Settings, now int64) {
	if keep := storekit.CeilDuration(set.FinishedRetention); keep > 0 {
		r.outcome, r.endedAt, r.toldUntil = string(how), now, now+keep
		c.told = append(c.told, r)
	}
	keep := storekit.CeilDuration(set.DedupeWindow)
	if r.remember != nil {
		keep = *r.remember
	}
	if keep == 0 {
		c.remove(r)
		return
	}
	until := now + keep
	r.forgetAt = &until
	c.remembered = append(c.remembered, r)
}

// step is the one that writes the changes.
func (c *changes) step() *step {
	x := c.s.step()
	if len(c.updated) > 0 {
		x.add("update", c.updateArgs(), nil)
	}
	if len(c.told) > 0 { // before the messages are gone
		x.add("tell", c.toldArgs(), nil)
	}
	if len(c.removed) > 0 {
		numbers, ids := namesOf(c.removed)
		x.add("remove", []any{numbers, ids}, nil)
	}
	if len(c.remembered) > 0 {
		numbers, ids := namesOf(c.remembered)
		until := make([]*int64, len(ids))
		for i, r := range c.remembered {
			until[i] = r.forgetAt
		}
		x.add("remember", []any{numbers, ids, until}, nil)
	}
	if c.refused {
		x.add("durable", c.s.writing(), nil)
	}
	return x
}

func namesOf(rs []*row) (numbers []int32, ids []string) {
	for _, r := range rs {
		numbers, ids = append(numbers, r.number), append(ids, r.id)
	}
	return numbers, ids
}

func (c *changes) toldArgs() []any {
	numbers, ids := namesOf(c.told)
	outcomes, ended, until := make([]string, len(ids)), make([]int64, len(ids)), make([]int64, len(ids))
	for i, r := range c.told {
		outcomes[i], ended[i], until[i] = r.outcome, r.endedAt, r.toldUntil
	}
	return []any{numbers, ids, outcomes, ended, until}
}

func (c *changes) updateArgs() []any {
	n := len(c.updated)
	visible, due, first, expires, tokens := make([]*int64, n), make([]int64, n), make([]int64, n), make([]*int64, n), make([]int64, n)
	attempts, cancelled, died, reasons := make([]int32, n), make([]bool, n), make([]*int64, n), make([]*string, n)
	for i, r := range c.updated {
		visible[i], due[i], first[i], expires[i], tokens[i] = r.visibleAt, r.due, r.firstDue, r.expires, r.token
		attempts[i], cancelled[i], died[i], reasons[i] = r.attempts, r.cancelled, r.diedAt, r.reason
	}
	numbers, ids := namesOf(c.updated)
	return []any{numbers, ids, visible, due, first, expires, tokens, attempts, cancelled, died, reasons, c.failures}
}

// ownWay runs the steps of a call in transactions of the store's own.
type ownWay struct{ s *Store }

func (w ownWay) write(ctx context.Context, build func() *step) error { return w.s.write(ctx, build) }

func (w ownWay) create(ctx context.Context, build func() *step) error { return w.s.write(ctx, build) }

func (w ownWay) transact(ctx context.Context, f func(ctx context.Context, to stepper) error) error {
	return w.s.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) { return nil, f(ctx, tx) })
}
