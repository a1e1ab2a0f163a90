package database

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// clearKeeps is how many messages may stay in a topic whose other messages are cleared. The IDs of
// all messages of a topic are in one range of keys, which is deleted, so the IDs that stay are
// written anew. With the longest IDs that is about 1.5 MiB.
const clearKeeps = 10_000

// Clear removes all live messages of a topic, or all dead ones, in one transaction, which deletes
// ranges of keys. However many messages it removes, the transaction does not get larger.
type Clear struct {
	db   *DB
	t    *Topic
	of   Order // the messages to remove: Live or Dead
	stay Order // the messages that stay: the other order
	snap *pebble.Snapshot
	// Topic.dead, deadLeft and version when the clear began. Current compares them to find out
	// whether what stays has changed since.
	dead, deadLeft int64
	version        uint64

	kept []keptID
}

// keptID is the key of an ID whose message stays, and the place of the message as the value of that
// key.
type keptID struct{ key, place []byte }

// Clear begins to remove all live messages of a topic, or all dead ones. It returns nil if they are
// fewer than least, because each deleted range costs every reader until the range is flushed, or if
// more than clearKeeps other messages stay. Read must follow. Called with the write lock held.
func (db *DB) Clear(t *Topic, of Order, least int64) *Clear {
	stay, goes, stays := Dead, t.live, t.dead
	if of == Dead {
		stay, goes, stays = Live, t.dead, t.live
	}
	if goes < least || stays > clearKeeps {
		return nil
	}
	return &Clear{db: db, t: t, of: of, stay: stay, snap: db.kv.NewSnapshot(), dead: t.dead, deadLeft: t.deadLeft, version: t.version}
}

// Read reads the IDs that stay. It needs no lock.
func (c *Clear) Read() error {
	return c.db.state.ReadError("read topic "+c.t.name, errkind.JoinClose(c.read(), c.snap))
}

func (c *Clear) read() error {
	it, err := c.db.iterate(c.snap, c.stay, c.t.num, record.MinPosition, record.MaxPosition)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		p, err := parsePosKey(it.Key())
		if err != nil {
			return errkind.JoinClose(err, it)
		}
		r, err := record.Decode(it.Value())
		if err != nil {
			return errkind.JoinClose(err, it)
		}
		c.kept = append(c.kept, keptID{idKey(keyID, c.t.num, r.ID), Place{Order: c.stay, At: p, Remembers: r.Remember > 0}.value()})
	}
	return errkind.JoinClose(it.Error(), it)
}

// Current tells whether the topic still exists and the messages that stay are those that Read has
// found. Called with the write lock held.
func (c *Clear) Current() bool {
	if c.of == Dead {
		return !c.t.deleted && c.t.version == c.version
	}
	return !c.t.deleted && c.t.dead == c.dead && c.t.deadLeft == c.deadLeft // no message has died, no dead message has left
}

// Clear removes the messages and returns how many there were on disk. Clear.Current must be true at
// the beginning of the transaction. The transaction must not Find or Read messages of the topic
// afterwards.
func (tx *Tx) Clear(c *Clear) (n int64) {
	t := c.t
	tx.deleteRange(topicKey(byte(c.of), t.num))
	tx.deleteRange(topicKey(keyID, t.num))
	for _, k := range c.kept {
		tx.set(k.key, k.place)
	}
	if c.of == Live {
		n, t.live, t.due, t.counting = t.live, 0, nil, nil
	} else {
		n, t.dead, t.deadFrom = t.dead, 0, record.MaxPosition
		t.deadLeft += n
	}
	t.version++
	tx.count(t)
	tx.db.noteRemoved(t, n)
	return n
}
