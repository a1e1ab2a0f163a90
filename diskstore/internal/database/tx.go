package database

import (
	"encoding/binary"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// NumberBlock is how many message numbers are reserved on disk at a time, so that none is given out
// twice.
const NumberBlock = 1 << 20

// Tx is a transaction: its writes, and the topics whose counts it changes. It is guarded by the
// write lock until Apply has returned.
type Tx struct {
	// Num is the number of the transaction, one more than that of the last transaction that was
	// applied.
	Num uint64

	db      *DB
	b       *pebble.Batch // nil until it writes something
	now     int64
	counted []*Topic // topics whose counts changed, each once
	lowered []*Topic // topics that got a message below their lowest position, each once
	ranges  int      // how many ranges of keys it deletes
	// own has the keys of messages, IDs and remembered IDs that the transaction wrote in the first
	// indexed bytes of the batch. The value of a deleted key is nil.
	own     map[string][]byte
	indexed int
}

// Begin begins a transaction at a time in Unix milliseconds.
func (db *DB) Begin(now int64) *Tx { return &Tx{db: db, now: now, Num: db.last + 1} }

// Size is how many bytes the transaction writes so far; 0 if it changes nothing.
func (tx *Tx) Size() int {
	if tx.b == nil {
		return 0
	}
	return tx.b.Len()
}

// Apply makes the transaction visible to every later one. First it adds what every transaction
// writes: its number, the clock if the time has moved on, counts, lowest positions, and the next
// block of message numbers when they run short. tokens is the new limit below which all lease
// tokens are used up, 0 if it stays. If the disk hangs, Apply hangs, too.
func (tx *Tx) Apply(tokens int64) error {
	db := tx.db
	db.last = tx.Num
	if !db.written {
		db.written = true
		tokens = max(tokens, 1)
		tx.set([]byte(metaVersion), binary.BigEndian.AppendUint32(nil, db.opt.Format))
	}
	if tx.now > db.clock.Load() {
		tx.SetClock()
	}
	tx.set([]byte(metaTxn), binary.BigEndian.AppendUint64(nil, tx.Num))
	for _, t := range tx.counted {
		if !t.deleted {
			v := binary.BigEndian.AppendUint64(nil, uint64(t.live))
			tx.set(topicKey(keyCounts, t.num), binary.BigEndian.AppendUint64(v, uint64(t.dead)))
		}
		db.noteLarge(t)
	}
	for _, t := range tx.lowered {
		if !t.deleted {
			tx.SetLowest(t, t.lowest)
		}
	}
	if tokens > 0 {
		tx.set([]byte(metaToken), binary.BigEndian.AppendUint64(nil, uint64(tokens)))
	}
	// The new numbers may be used at once, because the transactions that use them are durable only
	// when this one is.
	if db.limit < db.next || db.limit-db.next < NumberBlock/2 {
		db.limit += NumberBlock
		tx.set([]byte(metaSeq), binary.BigEndian.AppendUint64(nil, db.limit))
	}
	tx.putInOrder()
	if err := db.kv.ApplyNoSyncWait(tx.b, pebble.Sync); err != nil {
		return err
	}
	db.unwritten.Add(uint64(tx.b.Len()))
	if db.uncounted += tx.b.Len(); db.uncounted >= countEvery {
		db.uncounted = 0
		db.CountUnwritten()
	}
	db.applied.Store(tx.Num)
	return nil
}

// Wait returns when the transaction and all before it are durable. It needs no lock. After an error
// it is unknown whether the transaction is durable.
func (tx *Tx) Wait() error {
	if err := tx.b.SyncWait(); err != nil {
		return err
	}
	tx.db.ranges.Add(int64(tx.ranges))
	return tx.b.Close()
}

// SetClock writes the time of the transaction, also when the transaction changes nothing else.
func (tx *Tx) SetClock() {
	tx.db.clock.Store(tx.now)
	tx.set([]byte(metaClock), record.AppendTime(nil, tx.now))
}

// StepClock makes this the transaction of a step of the store's clock: its time is that after the
// step.
func (tx *Tx) StepClock(s record.Step) {
	tx.now = s.To
	tx.SetClock()
	tx.SetStep(s, true)
	for t := range tx.db.large {
		t.due, t.counting = nil, nil // what was due is not due any more
	}
}

// SetStep writes the last step of the store's clock, and whether something may be left to carry
// over it.
func (tx *Tx) SetStep(s record.Step, carry bool) {
	tx.db.step = s
	b := binary.BigEndian.AppendUint64(nil, uint64(s.Count))
	b = record.AppendTime(record.AppendTime(b, s.From), s.To)
	left := byte(0)
	if carry {
		left = 1
	}
	tx.set([]byte(metaStep), append(b, left))
}

// must panics on an error of a batch. To write a batch of this package, to read it back and to
// close it fail only by a mistake in this package, such as a second Close.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// set writes a key. A nil value deletes the key.
func (tx *Tx) set(key, value []byte) {
	tx.changed(key)
	if value == nil {
		must(tx.batch().Delete(key, nil))
	} else {
		must(tx.batch().Set(key, value, nil))
	}
}

// erase deletes a key of a message, which must be there: its record, or the place of its ID. A
// plain deletion stays in the tables until it has reached the last one that may have an older
// value. A single deletion and the value that it deletes both vanish as soon as the engine meets
// them together: mostly before the message has reached a table at all, because most messages live
// for less time than it takes to fill the engine's buffer. The engine asks that there be one value
// at most between two deletions, so such a key is erased before it is written over.
func (tx *Tx) erase(key []byte) {
	tx.changed(key)
	must(tx.batch().SingleDelete(key, nil))
}

// deleteRange deletes all keys that begin with prefix. The transaction must not Find or Read any of
// them afterwards.
func (tx *Tx) deleteRange(prefix []byte) {
	must(tx.batch().DeleteRange(prefix, after(prefix), nil))
	tx.db.changes.every = tx.Num
	tx.ranges++
}

// batch returns the batch, and makes it for the first change.
func (tx *Tx) batch() *pebble.Batch {
	if tx.b == nil {
		tx.b = tx.db.kv.NewBatch()
	}
	return tx.b
}

// get reads a key as it is once the transaction is applied, nil if it is not there, and tells
// whether the transaction wrote or deleted the key. It does not see what deleteRange has deleted.
// The value is valid until the transaction ends.
func (tx *Tx) get(key []byte) (v []byte, own bool, err error) {
	tx.index()
	if v, own = tx.own[string(key)]; own {
		return v, true, nil
	}
	v, err = tx.db.get(key)
	return v, false, err
}

// index adds to own what the transaction has written since the last call. It is called before a
// read and not at each write, because many transactions read nothing after they have written.
func (tx *Tx) index() {
	size := tx.Size()
	if size <= max(tx.indexed, batchrepr.HeaderLen) {
		return
	}
	if tx.own == nil {
		tx.own = make(map[string][]byte)
	}
	r := batchrepr.Reader(tx.b.Repr()[max(tx.indexed, batchrepr.HeaderLen):])
	for {
		kind, key, value, ok, err := r.Next()
		must(err)
		if !ok {
			break
		}
		switch key[0] {
		case keyLive, keyDead, keyID, keyFinished:
			if kind == pebble.InternalKeyKindSet {
				tx.own[string(key)] = value
			} else {
				tx.own[string(key)] = nil
			}
		}
	}
	tx.indexed = size
}

// Find returns where the message with an ID is. l is what was found of the ID without the write
// lock; it may be nil.
func (tx *Tx) Find(t *Topic, id string, l *Look) (Place, error) {
	key := idKey(keyID, t.num, id)
	if tx.holds(l, t, key) {
		return l.place, nil
	}
	v, own, err := tx.get(key)
	if err != nil || v == nil {
		return Place{}, err
	}
	p, err := parsePlace(v)
	p.Own = own
	return p, tx.db.state.ReadError("read the place of "+id, err)
}

// Read returns the record of a message that must be there. l is what was found of its ID without
// the write lock; it may be nil. Read takes the record out of l if l has it.
func (tx *Tx) Read(t *Topic, p Place, l *Look) (*record.Record, error) {
	if l != nil && l.record != nil && l.place == p && tx.holds(l, t, idKey(keyID, t.num, l.record.ID)) {
		r := l.record
		l.record = nil // because the caller may change the record
		return r, nil
	}
	v, _, err := tx.get(posKey(p.Order, t.num, p.At))
	if err != nil {
		return nil, err
	}
	if v == nil {
		err := errkind.Corruptf("message %v of topic %s is named by its ID but not there", p.At, t.name)
		tx.db.state.Fail(err)
		return nil, err
	}
	r, err := record.Decode(v)
	if err != nil {
		return nil, tx.db.state.ReadError("topic "+t.name, err)
	}
	return r, nil
}

// Remembered tells whether an ID is that of a finished message which the topic remembers. l is what
// was found of the ID without the write lock; it may be nil.
func (tx *Tx) Remembered(t *Topic, id string, l *Look) (bool, error) {
	if !t.mayRemember(tx.db) {
		return false, nil
	}
	key := idKey(keyFinished, t.num, id)
	if tx.holds(l, t, key) && l.remembers {
		return l.until > tx.now, nil
	}
	v, _, err := tx.get(key)
	if err != nil {
		return false, err
	}
	until, err := rememberedUntil(t, id, v)
	return until > tx.now, tx.db.state.ReadError("read", err)
}

// rememberedUntil reads the value of a remembered ID. For an ID that is not remembered it returns
// the earliest time there is.
func rememberedUntil(t *Topic, id string, v []byte) (int64, error) {
	switch {
	case v == nil:
		return math.MinInt64, nil
	case len(v) != 16:
		return math.MinInt64, errkind.Corruptf("remembered ID %s of topic %s has the time %x", id, t.name, v)
	}
	return record.Time(v), nil
}

// Put stores a message as a live one, at the due time of its record. The record must not say that
// the message is dead. from is where the message was; a message from nowhere is new and gets a
// number of its own. All of the record but ID and body may have changed.
func (tx *Tx) Put(t *Topic, from Place, r *record.Record) record.Stored {
	at := record.Position{Ms: r.Due, Seq: from.At.Seq}
	if from.Nowhere() {
		at.Seq = tx.db.next
		tx.db.next++
	}
	rec := r.Encode()
	tx.move(t, r.ID, from, Place{Order: Live, At: at, Remembers: r.Remember > 0}, rec)
	return record.Stored{At: at, Record: rec}
}

// Rewrite changes the record of a live message that stays where it is.
func (tx *Tx) Rewrite(t *Topic, at record.Position, r *record.Record) {
	key := posKey(Live, t.num, at)
	tx.erase(key)
	tx.set(key, r.Encode())
	tx.changed(idKey(keyID, t.num, r.ID))
}

// Remove deletes a message, dead or alive.
func (tx *Tx) Remove(t *Topic, from Place, id string) { tx.move(t, id, from, Place{}, nil) }

// DeadLetter moves a live message to the dead, to the time at which it died by its record.
func (tx *Tx) DeadLetter(t *Topic, from record.Position, r *record.Record) {
	to := Place{Order: Dead, At: record.Position{Ms: r.Died, Seq: from.Seq}, Remembers: r.Remember > 0}
	tx.move(t, r.ID, Place{Order: Live, At: from}, to, r.Encode())
}

// move moves a message from one place to another. It writes the record and the place of the ID, and
// updates the counts and the lowest position of the topic, which Apply writes. A message that comes
// from nowhere is new, and one that goes nowhere is deleted.
func (tx *Tx) move(t *Topic, id string, from, to Place, rec []byte) {
	t.version++
	if from.Order != to.Order {
		tx.count(t)
	}
	if !from.Nowhere() {
		tx.erase(posKey(from.Order, t.num, from.At))
		tx.erase(idKey(keyID, t.num, id))
		tx.db.noteRemoved(t, 1)
	}
	switch from.Order {
	case Live:
		t.live--
		t.addDue(from.At.Ms, -1)
	case Dead:
		t.dead--
		t.deadLeft++
		if t.dead == 0 {
			t.deadFrom = record.MaxPosition
		}
	}
	if to.Nowhere() {
		return
	}
	tx.set(posKey(to.Order, t.num, to.At), rec)
	tx.set(idKey(keyID, t.num, id), to.value())
	switch {
	case to.Order == Live:
		t.live++
		t.addDue(to.At.Ms, 1)
		if to.At.Less(t.lowest) {
			t.lowest = to.At
			if t.loweredIn != tx {
				t.loweredIn = tx
				tx.lowered = append(tx.lowered, t)
			}
		}
	case to.Order == Dead:
		t.dead++
		if to.At.Less(t.deadFrom) {
			t.deadFrom = to.At
		}
	}
}

// count has Apply write the counts of a topic.
func (tx *Tx) count(t *Topic) {
	if t.countedIn != tx {
		t.countedIn = tx
		tx.counted = append(tx.counted, t)
	}
}

// noteRemoved records that n messages of a topic were deleted or moved: the topic's lowest position
// may be raised, and the keys of these messages take room until a compaction drops them.
func (db *DB) noteRemoved(t *Topic, n int64) {
	if !t.isStale {
		t.isStale = true
		db.stale = append(db.stale, t)
	}
	t.removed += n
	db.noteGarbage(t)
}

// Remember keeps the ID of a message that has finished at ended until a time, both in Unix
// milliseconds.
func (tx *Tx) Remember(t *Topic, id string, ended, until int64) {
	t.remembers.Store(tx.db.remembering.Load())
	tx.keep(&tx.db.remembered, t, id, record.AppendTime(record.AppendTime(nil, until), ended))
}

// KeepFinished keeps the finished record of a message, in place of an earlier one of the same ID.
func (tx *Tx) KeepFinished(t *Topic, f *punctual.Finished) {
	tx.keep(&tx.db.finished, t, f.ID, record.EncodeFinished(f))
}

// keep writes a value of an ID that is kept for some time. The value begins with the end of that
// time.
func (tx *Tx) keep(k *kept, t *Topic, id string, value []byte) {
	key, end := idKey(k.ids, t.num, id), forgetKey(k.ends, record.Time(value), t.num, id)
	t.version++
	tx.keepAs(k, key, end, value)
}

// keepAs is keep with the keys of ids and ends.
func (tx *Tx) keepAs(k *kept, key, end, value []byte) {
	tx.set(key, value)
	tx.set(end, []byte{})
	if k.since != nil {
		k.since[string(key)] = true
	}
	if string(end) < string(k.from) {
		k.setFrom(end)
	}
}

// Forget deletes a remembered ID, because the ID is in use again.
func (tx *Tx) Forget(t *Topic, id string) { tx.set(idKey(keyFinished, t.num, id), nil) }
