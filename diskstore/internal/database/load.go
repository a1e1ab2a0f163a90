package database

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
)

// Contents is what Load has read.
type Contents struct {
	Timed     bool        // Clock is known
	Clock     int64       // Unix milliseconds that the store's clock has passed
	Step      record.Step // the last step of the store's clock
	Carry     bool        // something may be left to carry over Step
	NextToken int64       // all lease tokens below are used up
	Topics    []Loaded
}

// Loaded is a topic with its settings.
type Loaded struct {
	*Topic
	Settings punctual.Settings
}

// Load reads the topics and the numbers that hold for the whole store, and prepares the database
// for its first transaction. durable is a transaction that is known to have been durable: a
// database without it is damaged, and Load returns punctual.ErrCorrupt. Load writes nothing,
// because the next Open is to notice the damage, too.
func (db *DB) Load(durable uint64) (c Contents, err error) {
	db.clock.Store(math.MinInt64) // so that the first transaction writes the clock
	db.remembered.setFrom(db.remembered.endsFrom(record.MinPosition.Ms))
	db.finished.setFrom(db.finished.endsFrom(record.MinPosition.Ms))
	version, err := db.get([]byte(metaVersion))
	if err != nil {
		return c, err
	}
	if v := uint32(beUint(version)); version != nil && v != db.opt.Format {
		return c, fmt.Errorf("the store has format %d and this program reads %d: %w; use the release that wrote it, or a newer one",
			v, db.opt.Format, punctual.ErrUnsupported)
	}
	if version == nil {
		// The process ended before the first write of a new store, or the database is not one of a
		// store.
		if err := db.mustBeEmpty(); err != nil {
			return c, err
		}
		db.next, db.limit, db.topicNum, c.NextToken = 1, 1, 1, 1
		return c, db.checkDurable(durable)
	}
	db.written = true
	meta := make(map[string][]byte)
	for _, key := range []string{metaClock, metaSeq, metaToken, metaTxn, metaTopic, metaStep} {
		if meta[key], err = db.get([]byte(key)); err != nil {
			return c, err
		}
	}
	if clock := meta[metaClock]; len(clock) == 8 {
		c.Timed, c.Clock = true, record.Time(clock)
	}
	if step := meta[metaStep]; len(step) == 25 {
		c.Step.Count, c.Step.From, c.Step.To, c.Carry = int64(beUint(step[:8])), record.Time(step[8:]), record.Time(step[16:]), step[24] == 1
		db.step = c.Step
	}
	if len(meta[metaSeq]) != 8 || len(meta[metaToken]) != 8 || len(meta[metaTxn]) != 8 {
		return c, errkind.Corruptf("the store does not know which numbers are used up")
	}
	db.last = beUint(meta[metaTxn])
	db.applied.Store(db.last)
	if err := db.checkDurable(durable); err != nil {
		return c, err
	}
	// Every number below the limits may have been given out. The first transaction reserves the
	// next block.
	db.next, db.limit = beUint(meta[metaSeq]), beUint(meta[metaSeq])
	c.NextToken = int64(beUint(meta[metaToken]))
	db.topicNum = max(1, uint32(beUint(meta[metaTopic])))
	infos, err := readTopics(db.kv)
	if err != nil {
		return c, db.state.ReadError("read topics", err)
	}
	for _, i := range infos {
		t := newTopic(i.Name, i.Num)
		t.live, t.dead, t.lowest = i.Live, i.Dead, i.Lowest
		t.remembers.Store(db.remembering.Load()) // the topic may remember IDs, until a sweep finds that no topic does
		if t.dead > 0 {
			t.deadFrom = record.MinPosition
		}
		t.removed = t.live + t.dead
		db.noteGarbage(t)
		db.noteLarge(t)
		db.topicNum = max(db.topicNum, t.num+1)
		c.Topics = append(c.Topics, Loaded{t, i.Settings})
	}
	return c, nil
}

func (db *DB) mustBeEmpty() error {
	it, err := db.kv.NewIter(nil)
	if err != nil {
		return db.state.ReadError("read the store", err)
	}
	empty := !it.First()
	if err := errkind.JoinClose(it.Error(), it); err != nil {
		return db.state.ReadError("read the store", err)
	}
	if !empty {
		return errkind.Corruptf("the database has no format version")
	}
	return nil
}

func (db *DB) checkDurable(durable uint64) error {
	if durable > db.last {
		return errkind.Corruptf("the database ends with transaction %d, but transaction %d was durable: its newest *.log or MANIFEST is damaged or cut off; restore the directory from a copy",
			db.last, durable)
	}
	return nil
}

// Info is a topic as the database has it: settings, counts, and the position below which no live
// message lies.
type Info struct {
	Name       string
	Num        uint32
	Settings   punctual.Settings
	Live, Dead int64
	Lowest     record.Position
}

// readTopics reads all topics, sorted by name.
func readTopics(from pebble.Reader) (infos []Info, err error) {
	counts, err := byTopic(from, keyCounts)
	if err != nil {
		return nil, err
	}
	marks, err := byTopic(from, keyWatermark)
	if err != nil {
		return nil, err
	}
	var settings storekit.SettingsReader
	err = each(from, []byte{keyTopic}, func(key, value []byte) (err error) {
		i := Info{Name: string(key[1:]), Lowest: record.MinPosition}
		if len(value) < 4 {
			return errkind.Corruptf("topic %s is stored in %d bytes", i.Name, len(value))
		}
		i.Num = binary.BigEndian.Uint32(value)
		if i.Settings, err = settings.Decode(value[4:]); err != nil {
			return fmt.Errorf("topic %s: %w", i.Name, err)
		}
		if n := counts[i.Num]; len(n) == 16 { // a topic that never had a message has no counts
			i.Live, i.Dead = int64(beUint(n[:8])), int64(beUint(n[8:]))
		}
		if mark := marks[i.Num]; mark != nil {
			i.Lowest, err = record.ParsePosition(mark)
		}
		infos = append(infos, i)
		return err
	})
	return infos, err
}

// byTopic reads the values of a kind of key that each topic has once at most, by the topic's
// number.
func byTopic(from pebble.Reader, kind byte) (map[uint32][]byte, error) {
	values := make(map[uint32][]byte)
	return values, each(from, []byte{kind}, func(key, value []byte) error {
		if len(key) != 5 {
			return errkind.Corruptf("key %x has %d bytes instead of 5", key, len(key))
		}
		values[binary.BigEndian.Uint32(key[1:])] = bytes.Clone(value)
		return nil
	})
}

// each calls f for every key that begins with prefix, in order.
func each(from pebble.Reader, prefix []byte, f func(key, value []byte) error) error {
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := f(it.Key(), it.Value()); err != nil {
			return errkind.JoinClose(err, it)
		}
	}
	return errkind.JoinClose(it.Error(), it)
}
