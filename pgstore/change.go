package pgstore

import (
	"context"
	"maps"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Amendments, pushes of an ID that is in use, and the settlements that ack.sql does
// not carry out go the same way: a transaction locks the messages and reads their facts,
// storekit/lifecycle decides what becomes of each, and the transaction writes that. The same holds
// for the messages that a claim must end. Pushes of free IDs, leases and most acks are statements
// that decide in SQL.

// locked is the messages of a part that a transaction has locked, with the settings of their topics
// and the time of the change.
type locked struct {
	micros   int64 // the store's clock, read when all locks were held
	now      int64 // the same in ms
	rows     map[messageName]*row
	settings map[string]*punctual.Settings                // those of the topics that exist
	decode   func(text []byte) (punctual.Settings, error) // that of the store
}

func (db *database) newLocked() *locked {
	return &locked{rows: make(map[messageName]*row), settings: make(map[string]*punctual.Settings), decode: db.settings.Decode}
}

// lockNames locks the messages of a part by lock.sql. x holds the statements that come before, such
// as the one that keeps topics from being deleted.
func (db *database) lockNames(ctx context.Context, to stepper, x *step, part []int, nameOf func(i int) messageName) (*locked, error) {
	return db.lockBy(ctx, to, "lock", x, part, nameOf, nil)
}

// lockBy does what lockNames does, with the statement that the caller names. more, if not nil, adds
// statements that follow that one in the same step.
func (db *database) lockBy(ctx context.Context, to stepper, statement string, x *step, part []int, nameOf func(i int) messageName, more func(x *step, topics, ids []string)) (*locked, error) {
	l := db.newLocked()
	topics, ids := make([]string, len(part)), make([]string, len(part))
	for at, i := range part {
		n := nameOf(i)
		topics[at], ids[at] = n.topic, n.id
	}
	x.add(statement, []any{topics, ids}, func(rows scanner) error {
		r, err := scanRow(rows)
		if err == nil {
			l.rows[r.messageName] = r
		}
		return err
	})
	if more != nil {
		more(x, topics, ids)
	}
	x.add("clock_and_settings", db.writing(distinct(part, func(i int) string { return nameOf(i).topic })), l.readSettings)
	if err := to.send(ctx, x); err != nil {
		return l, err
	}
	// The deletion of a topic does not wait for locks of its messages, so a message without a topic
	// counts as deleted.
	maps.DeleteFunc(l.rows, func(n messageName, _ *row) bool { return l.settings[n.topic] == nil })
	l.now = l.micros / 1000
	db.clock.hear(l.micros)
	for topic, set := range l.settings {
		db.acks.learn(topic, set.Emit&punctual.EventAcked != 0)
		db.bounded.learn(topic, bounded(set))
		db.keyed.learn(topic, set.Keyed)
	}
	return l, nil
}

// readSettings reads a row of clock_and_settings.sql.
func (l *locked) readSettings(rows scanner) error {
	var topic, text *string
	if err := rows.Scan(&l.micros, &topic, &text); err != nil || topic == nil {
		return err
	}
	set, err := l.decode([]byte(*text))
	l.settings[*topic] = &set
	return err
}

// changes collects what becomes of locked messages and of follow-ups, for the statements
// update.sql, save_finished.sql, remove.sql, remember.sql and replace.sql, and the events of that.
type changes struct {
	db         *database
	updated    []*row
	failures   [][]byte // for each updated message the entry that is added to its history, or nil
	recorded   []*row   // messages that finish, of which a finished record is kept
	lastly     [][]byte // for each of recorded the entry that its record has behind the history of the message, or nil
	removed    []*row   // messages of which no row stays
	remembered []*row   // messages that finish, whose row stays as that of a remembered ID
	refused    bool     // an item is answered by what was found and not by a change, so the commit is to wait for the disk
	events     []toldEvent
	room       []string // topics with MaxLeases or keys, where a lease may have ended
	keyed      []*row   // messages of topics with keys that change, except by their leases

	// Follow-ups to be stored, as indices in then.push; see followUps.
	inserted []int    // their IDs are free
	replaced []int    // a row has their ID
	unknown  []string // topics that do not exist yet
	then     *followUps
}

func (db *database) changes() *changes { return &changes{db: db} }

// apply collects what was decided about a message. The facts in r are those after the decision. r
// may be nil if d.To is Stay.
func (c *changes) apply(r *row, d lifecycle.Decision, set *punctual.Settings, now int64) {
	if d.To == lifecycle.Stay {
		return
	}
	var failure []byte
	if d.Failed {
		failure = encodeFailure(d.Failure)
	}
	if e, tell := r.Event(d, set, r.leasedAt, now); tell {
		c.tell(r.messageName, r.created, e, set)
	}
	if (set.MaxLeases > 0 || set.Keyed) && d.To != lifecycle.Leased {
		c.room = append(c.room, r.topic)
	}
	if set.Keyed && d.To != lifecycle.Leased {
		c.keyed = append(c.keyed, r)
	}
	r.live, r.dead = d.To == lifecycle.Waiting || d.To == lifecycle.Leased, d.To == lifecycle.Dead
	switch d.To {
	case lifecycle.Removed:
		c.removed = append(c.removed, r)
	case lifecycle.Finished:
		keep := r.Keep(set, now)
		r.outcome, r.endedAt, r.recordUntil, r.forgetAt = d.Outcome, now, keep.Record, keep.ID
		if keep.Record > 0 {
			c.recorded, c.lastly = append(c.recorded, r), append(c.lastly, failure)
		}
		switch {
		case r.replaced:
		case keep.ID > 0:
			c.remembered = append(c.remembered, r)
		default:
			c.removed = append(c.removed, r)
		}
	default:
		if r.replaced {
			return
		}
		c.updated, c.failures = append(c.updated, r), append(c.failures, failure)
	}
}

// step returns the step that writes the changes, without the events and the follow-ups whose IDs
// are free.
func (c *changes) step() *step {
	x := c.db.step()
	c.db.addKeyNote(x, c.keyed)
	if len(c.updated) > 0 {
		x.add("update", c.updateArgs(), nil)
	}
	if len(c.recorded) > 0 { // before the messages are gone
		x.add("save_finished", c.recordArgs(), nil)
	}
	if len(c.removed) > 0 {
		numbers, ids := namesOf(c.removed)
		x.add("remove", []any{numbers, ids}, nil)
	}
	if len(c.remembered) > 0 {
		numbers, ids := namesOf(c.remembered)
		until, ended := make([]int64, len(ids)), make([]int64, len(ids))
		for i, r := range c.remembered {
			until[i], ended[i] = r.forgetAt, r.endedAt
		}
		x.add("remember", []any{numbers, ids, until, ended}, nil)
	}
	if len(c.replaced) > 0 { // after save_finished, which reads the rows as they were before
		c.then.push.addStatement(x, "replace", c.replaced, len(c.keyed) > 0, nil)
	}
	if c.refused {
		x.add("durable", c.db.writing(), nil)
	}
	return x
}

// addKeyNote adds the statement that has claims look at the keys of messages that change next.
func (db *database) addKeyNote(x *step, rs []*row) {
	if len(rs) > 0 {
		numbers, ids := namesOf(rs)
		x.add("key_note", db.writing(numbers, ids), nil)
	}
}

// keyed returns those of the locked messages whose topics have keys.
func (l *locked) keyed(names []messageName) (rs []*row) {
	for _, n := range names {
		if r, set := l.rows[n], l.settings[n.topic]; r != nil && set.Keyed {
			rs = append(rs, r)
		}
	}
	return rs
}

func namesOf(rs []*row) (numbers []int32, ids []string) {
	for _, r := range rs {
		numbers, ids = append(numbers, r.number), append(ids, r.id)
	}
	return numbers, ids
}

func (c *changes) recordArgs() []any {
	numbers, ids := namesOf(c.recorded)
	outcomes, ended, until := make([]string, len(ids)), make([]int64, len(ids)), make([]int64, len(ids))
	for i, r := range c.recorded {
		outcomes[i], ended[i], until[i] = string(r.outcome), r.endedAt, r.recordUntil
	}
	return []any{numbers, ids, outcomes, ended, until, c.lastly}
}

func (c *changes) updateArgs() []any {
	n := len(c.updated)
	visible, due, first, expires, tokens := make([]*int64, n), make([]int64, n), make([]int64, n), make([]*int64, n), make([]int64, n)
	attempts, cancelled, died, reasons, since := make([]int32, n), make([]bool, n), make([]*int64, n), make([]*string, n), make([]*int64, n)
	for i, r := range c.updated {
		due[i], first[i], tokens[i], attempts[i], cancelled[i] = r.Due, r.FirstDue, r.Token, int32(r.Attempts), r.CancelRequested
		if at, ok := r.Expires(); ok {
			expires[i] = &at
		}
		if r.Since != 0 {
			since[i] = &r.Since
		}
		if r.dead {
			reason := string(r.Reason)
			died[i], reasons[i] = &r.Died, &reason
		} else {
			at := r.At()
			visible[i] = &at
		}
	}
	numbers, ids := namesOf(c.updated)
	return []any{numbers, ids, visible, due, first, expires, tokens, attempts, cancelled, died, reasons, c.failures, since}
}

// ownTransactions runs the steps of a call in transactions of the store's own.
type ownTransactions struct{ s *Store }

func (w ownTransactions) write(ctx context.Context, build func() *step) error {
	return w.s.db.write(ctx, build)
}

func (w ownTransactions) create(ctx context.Context, build func() *step) error {
	return w.s.db.write(ctx, build)
}

func (w ownTransactions) tell(ctx context.Context, to stepper, c *changes) error {
	if len(c.events) == 0 {
		return nil
	}
	return to.send(ctx, c.addEvents(w.s.db.step()))
}

func (w ownTransactions) transact(ctx context.Context, f func(ctx context.Context, to stepper) error) error {
	return w.s.db.transact(ctx, func(ctx context.Context, tx *transaction) (*step, error) { return nil, f(ctx, tx) })
}
