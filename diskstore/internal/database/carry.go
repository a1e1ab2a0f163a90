package database

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
)

// Carry finds what was set while the clock was ahead, after a step of the clock back, so that
// transactions can carry it over the step (lifecycle.Step.Carry). It reads a snapshot of the moment
// of the step, so it never takes what was set after the step for such a thing. Its methods are for
// one goroutine.
type Carry struct {
	Step record.Step
	// above is a time that the clock has reached since the step, as of the snapshot. What was set
	// at a later time was set before the step.
	above int64
	db    *DB
	snap  *pebble.Snapshot
	left  []keyRange // what is still to be read, the next first; nil before the first Read
}

// keyRange is a range of keys of one topic, or of all topics if it has none.
type keyRange struct {
	topic        string
	lower, upper []byte
}

// carryTurn is how many keys are read of a range before the next range has its turn, so that a
// topic with a backlog does not keep others waiting (P14). The keys of live messages are in the
// order of their time, so those that are due soon come first.
const carryTurn = 256

// BeginCarry begins to look for what is to be carried over a step of the clock. above is a time
// that the clock has reached since. The Carry must be closed.
func (db *DB) BeginCarry(s record.Step, above int64) *Carry {
	return &Carry{Step: s, above: max(above, s.To), db: db, snap: db.kv.NewSnapshot()}
}

// Close ends the snapshot.
func (c *Carry) Close() error { return c.snap.Close() }

// Ahead is something that was set while the clock was ahead: a message by its place, an ID that is
// remembered, or a finished record.
type Ahead struct {
	Topic string          // of a message
	Num   uint32          // of the topic of a message
	Order Order           // Live, Dead, Remembered or FinishedRecords
	At    record.Position // of a message
	key   []byte
	since int64 // when it was set; of a dead message, when it died
}

// Read reads up to about keys keys, and returns what it has found. done says that all keys are
// read.
func (c *Carry) Read(keys int) (found []Ahead, done bool, err error) {
	if c.left == nil {
		if err := c.plan(); err != nil {
			return nil, false, err
		}
	}
	it, err := c.snap.NewIter(nil)
	if err != nil {
		return nil, false, c.db.state.ReadError("read what was set while the clock was ahead", err)
	}
	for len(c.left) > 0 && keys > 0 && err == nil {
		r := c.left[0]
		c.left = c.left[1:]
		it.SetBounds(r.lower, r.upper)
		ok, n := it.First(), 0
		for ; ok && n < carryTurn && err == nil; ok = it.Next() {
			n++
			var a Ahead
			var is bool
			if a, is, err = c.ahead(r.topic, it.Key(), it.Value()); is {
				found = append(found, a)
			}
		}
		if keys -= n + 1; ok {
			c.left = append(c.left, keyRange{r.topic, bytes.Clone(it.Key()), r.upper})
		}
	}
	err = errkind.JoinClose(err, it)
	return found, len(c.left) == 0, c.db.state.ReadError("read what was set while the clock was ahead", err)
}

// plan fills left.
func (c *Carry) plan() error {
	from := record.Position{Ms: c.Step.To + 1} // what is due, or has died, before is not ahead
	c.left = []keyRange{{lower: []byte{keyFinished}, upper: []byte{keyFinished + 1}}, {lower: []byte{keyRecord}, upper: []byte{keyRecord + 1}}}
	err := each(c.snap, []byte{keyTopic}, func(key, value []byte) error {
		if len(value) < 4 {
			return errkind.Corruptf("topic %s is stored in %d bytes", key[1:], len(value))
		}
		num := binary.BigEndian.Uint32(value)
		for _, order := range []Order{Live, Dead} {
			c.left = append(c.left, keyRange{string(key[1:]), posKey(order, num, from), after(topicKey(byte(order), num))})
		}
		return nil
	})
	return c.db.state.ReadError("read topics", err)
}

// ahead tells whether a value was set while the clock was ahead.
func (c *Carry) ahead(topic string, key, value []byte) (a Ahead, is bool, err error) {
	since, err := setAt(key, value)
	if err != nil || since <= c.above {
		return a, false, err
	}
	a = Ahead{Topic: topic, Order: Order(key[0]), key: bytes.Clone(key), since: since}
	if topic != "" {
		a.Num = binary.BigEndian.Uint32(key[1:])
		a.At, err = parsePosKey(key)
	}
	return a, true, err
}

// setAt returns when the value of a key was set: of a live message lifecycle.Message.Since, of a
// dead one when it died, otherwise when the message finished.
func setAt(key, value []byte) (int64, error) {
	switch Order(key[0]) {
	case Live:
		return record.Since(value)
	case Dead:
		p, err := parsePosKey(key)
		return p.Ms, err
	case Remembered:
		if len(value) < 16 {
			return 0, errkind.Corruptf("remembered ID %q has the time %x", key[5:], value)
		}
		return record.Time(value[8:]), nil
	}
	f, err := record.DecodeFinished(value)
	return storekit.Millis(f.At), err
}

// ReadAhead returns the record of a live message that a Carry has found, nil if the message was
// moved or deleted since, or set anew.
func (tx *Tx) ReadAhead(a *Ahead) (*record.Record, error) {
	v, err := tx.unchanged(a)
	if err != nil || v == nil {
		return nil, err
	}
	r, err := record.Decode(v)
	return r, tx.db.state.ReadError("topic "+a.Topic, err)
}

// unchanged returns the value of what a Carry has found, nil if it was deleted or set anew since.
func (tx *Tx) unchanged(a *Ahead) ([]byte, error) {
	v, _, err := tx.get(a.key)
	if err != nil || v == nil {
		return nil, err
	}
	since, err := setAt(a.key, v)
	if err != nil || since != a.since {
		return nil, tx.db.state.ReadError("read", err)
	}
	return v, nil
}

// CarryEnd carries over a step of the clock what a Carry has found of a message that has ended: a
// dead message, or what is kept of a finished one. t is the topic of a dead message.
func (tx *Tx) CarryEnd(t *Topic, a *Ahead, s record.Step) error {
	v, err := tx.unchanged(a)
	if err != nil || v == nil {
		return err
	}
	switch a.Order {
	case Dead:
		r, err := record.Decode(v)
		if err != nil {
			return tx.db.state.ReadError("topic "+a.Topic, err)
		}
		s.Carry(&r.Message)
		to := Place{Order: Dead, At: record.Position{Ms: r.Died, Seq: a.At.Seq}, Remembers: r.Remember > 0}
		tx.move(t, r.ID, Place{Order: Dead, At: a.At}, to, r.Encode())
	case Remembered:
		ended, until := s.CarryEnd(a.since, record.Time(v))
		tx.carryKept(&tx.db.remembered, a, v, record.AppendTime(record.AppendTime(nil, until), ended))
	case FinishedRecords:
		f, err := record.DecodeFinished(v)
		if err != nil {
			return tx.db.state.ReadError("read a finished record", err)
		}
		s.CarryFinished(&f)
		tx.carryKept(&tx.db.finished, a, v, record.EncodeFinished(&f))
	}
	return nil
}

// carryKept replaces a value of an ID that is kept for some time.
func (tx *Tx) carryKept(k *kept, a *Ahead, old, value []byte) {
	num, id := binary.BigEndian.Uint32(a.key[1:]), string(a.key[5:])
	tx.set(forgetKey(k.ends, record.Time(old), num, id), nil)
	tx.keepAs(k, a.key, forgetKey(k.ends, record.Time(value), num, id), value)
}
