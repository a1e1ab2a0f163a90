package database

import (
	"errors"
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// To find a message by its ID costs several times what a change of the message costs, because the
// place of an ID is anywhere on disk. So a call looks its IDs up before it waits for the write
// lock, on all processors, in their order, and beside other calls. With the lock held it looks an
// ID up again only if a transaction may have changed that ID since.
//
// What the transactions have changed is known by a table of a fixed size: each ID has an entry by
// its hash, with the number of the last transaction that changed an ID of this entry. A look has
// the number of the last transaction that was applied before it read. It holds while the entry of
// its ID has no greater number. Two IDs that share an entry cost a read that was not needed.

const (
	// changeEntries is the length of the table, which has 8 bytes for each. In the time from a look
	// to the lock some thousand IDs change in a busy store.
	changeEntries = 1 << 16
	// lookShare is how many IDs a goroutine looks up at a time.
	lookShare = 32
	// lookBytes is how many bytes the records that were read ahead may take over all calls, from
	// the read to Looks.Close. Other records are read with the write lock held, one transaction
	// after the other.
	lookBytes = 16 << 20
)

// changes is the table of changed IDs. An ID is given as its key without the letter, so that it
// contains the topic.
type changes struct {
	seed maphash.Seed
	last []uint64 // the last transaction that has changed an ID of this entry
	// every is the last transaction that has deleted a range of keys, by which any ID may have
	// changed.
	every uint64
}

func newChanges() changes {
	return changes{seed: maphash.MakeSeed(), last: make([]uint64, changeEntries)}
}

func (c *changes) entry(id []byte) *uint64 { return &c.last[maphash.Bytes(c.seed, id)%changeEntries] }

// Ask is an ID to be looked up.
type Ask struct {
	Topic *Topic // nil if there is none: then the ID is not looked up
	ID    string
	// New says that the ID is to be the ID of a new message. Most such IDs are not there, and
	// whether the topic remembers them matters, too.
	New bool
	// Record says that the caller needs the record of the message, if there is a message.
	// RecordIfRemembers says so of a record that has a Remember. An Ask with New reads no record.
	Record, RecordIfRemembers bool
}

// Look is what was found of an ID without the write lock. The zero Look has found out nothing.
type Look struct {
	topic  *Topic
	seen   uint64 // the last transaction that was applied before the ID was read
	place  Place
	record *record.Record // nil if it was not read, or was taken out by Tx.Read
	// until is until when the ID of an Ask with New is remembered, in Unix milliseconds. remembers
	// says that until is known.
	until     int64
	remembers bool
}

// Looks are those of one call, in the order of its asks. Close must be called.
type Looks struct {
	db    *DB
	asks  []Ask // nil when LookUp has returned
	each  []Look
	bytes atomic.Int64 // how many bytes the records take
}

// At returns the i-th look, nil if l is nil.
func (l *Looks) At(i int) *Look {
	if l == nil {
		return nil
	}
	return &l.each[i]
}

// Close makes room for the records of other calls. l may be nil.
func (l *Looks) Close() {
	if l != nil {
		l.db.ahead.Add(-l.bytes.Load())
	}
}

// LookUp looks IDs up. It needs no lock.
//
// It finds the places of all IDs first, in the order of the IDs, and then reads the records that
// are asked for in the order of their places, because a search that begins near the last one finds
// most of its way in the caches of the processor (order.go).
func (db *DB) LookUp(asks []Ask) (*Looks, error) {
	l := &Looks{db: db, asks: asks, each: make([]Look, len(asks))}
	err := sideBySide(inOrder(asks), l.find)
	if records := l.toRead(); err == nil && len(records) > 0 {
		err = sideBySide(records, l.read)
	}
	l.asks = nil
	if err != nil {
		l.Close()
		if db.state.HasFailed() { // perhaps because of damage that this look has found
			return nil, db.state.Failure()
		}
		return nil, err
	}
	return l, nil
}

// sideBySide calls f with stretches of all, from a goroutine for each processor, and returns the
// first error. If there is one stretch only, the caller alone does it.
func sideBySide(all []ordered, f func(stretch []ordered) error) error {
	if len(all) <= lookShare {
		return f(all)
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	work := func() {
		for failed.Load() == nil {
			end := int(next.Add(lookShare))
			from := end - lookShare
			if from >= len(all) {
				return
			}
			if err := f(all[from:min(end, len(all))]); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(all)+lookShare-1)/lookShare) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// find finds the places of the IDs of some asks, and of new IDs whether they are remembered.
func (l *Looks) find(which []ordered) (err error) {
	seen := l.db.applied.Load()
	old, new := lookReader{db: l.db}, lookReader{db: l.db, lastFilters: true}
	defer func() {
		err = l.db.state.ReadError("look an ID up", errors.Join(err, old.close(), new.close()))
	}()
	for _, o := range which {
		a, k := &l.asks[o.at], &l.each[o.at]
		*k = Look{topic: a.Topic, seen: seen}
		if a.New {
			err = new.lookNew(a, k)
		} else {
			err = old.lookOld(a, k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// toRead returns the asks whose records are to be read, in the order of the places of these.
func (l *Looks) toRead() (all []ordered) {
	for i := range l.asks {
		a, k := &l.asks[i], &l.each[i]
		if !a.New && !k.place.Nowhere() && (a.Record || a.RecordIfRemembers && k.place.Remembers) {
			all = append(all, newOrdered(posKey(k.place.Order, a.Topic.num, k.place.At), i))
		}
	}
	order(all, func(int, int) int { return 0 })
	return all
}

// read reads the records of some asks. A record that was moved since its place was found stays nil,
// and its look does not hold.
func (l *Looks) read(which []ordered) (err error) {
	r := lookReader{db: l.db}
	defer func() { err = l.db.state.ReadError("look an ID up", errors.Join(err, r.close())) }()
	for _, o := range which {
		a, k := &l.asks[o.at], &l.each[o.at]
		v, err := r.value(posKey(k.place.Order, a.Topic.num, k.place.At))
		if err != nil {
			return err
		}
		if k.record, err = l.record(v); err != nil {
			return err
		}
	}
	return nil
}

// record reads a record. It returns nil if the records that were read ahead take too much memory
// already, or if the message was moved or deleted since its place was read.
func (l *Looks) record(v []byte) (r *record.Record, err error) {
	if v == nil {
		return nil, nil
	}
	n := int64(len(v))
	l.bytes.Add(n)
	if l.db.ahead.Add(n) > lookBytes {
		l.bytes.Add(-n)
		l.db.ahead.Add(-n)
		return nil, nil
	}
	return record.Decode(append(make([]byte, 0, n), v...))
}

// lookReader reads keys by one iterator, because a Get makes an iterator of each table anew, and
// the searches of an iterator for keys in order begin where the last one ended. An iterator asks
// the filters of the tables, those of the last level only with lastFilters: that is for IDs that
// are probably not there, which would otherwise cost a block of the last level each. A lookReader
// sees the database as it was when it read first.
type lookReader struct {
	db          *DB
	lastFilters bool
	it          *pebble.Iterator // nil until it is needed
}

// lookOld finds the place of an ID that is probably there.
func (r *lookReader) lookOld(a *Ask, k *Look) error {
	v, err := r.value(idKey(keyID, a.Topic.num, a.ID))
	if err != nil || v == nil {
		return err
	}
	k.place, err = parsePlace(v)
	return err
}

func (r *lookReader) lookNew(a *Ask, k *Look) error {
	v, err := r.value(idKey(keyID, a.Topic.num, a.ID))
	if err != nil {
		return err
	}
	if v != nil {
		if k.place, err = parsePlace(v); err != nil {
			return err
		}
	}
	k.until = math.MinInt64
	if a.Topic.mayRemember(r.db) {
		if v, err = r.value(idKey(keyFinished, a.Topic.num, a.ID)); err != nil {
			return err
		}
		if k.until, err = rememberedUntil(a.Topic, a.ID, v); err != nil {
			return err
		}
	}
	k.remembers = true
	return nil
}

// value reads a key; nil if it is not there. The value is valid until the next call.
func (r *lookReader) value(key []byte) (v []byte, err error) {
	if r.it == nil {
		if r.it, err = r.db.kv.NewIter(&pebble.IterOptions{UseL6Filters: r.lastFilters}); err != nil {
			return nil, err
		}
	}
	if !r.it.SeekPrefixGE(key) {
		return nil, r.it.Error()
	}
	return r.it.ValueAndErr()
}

func (r *lookReader) close() error {
	if r.it == nil {
		return nil
	}
	return r.it.Close()
}

// holds tells whether a look still says the truth about an ID of a topic.
func (tx *Tx) holds(l *Look, t *Topic, key []byte) bool {
	c := &tx.db.changes
	return l != nil && l.topic == t && *c.entry(key[1:]) <= l.seen && c.every <= l.seen
}

// changed notes that the transaction writes or deletes a key, if that is the key of an ID or of a
// remembered ID. A record that is written anew or deleted needs no note of its own, because its ID
// is noted, too (move, Rewrite).
func (tx *Tx) changed(key []byte) {
	if key[0] == keyID || key[0] == keyFinished {
		*tx.db.changes.entry(key[1:]) = tx.Num
	}
}
