// Package database keeps the messages of the embedded store on disk. It has records in order of
// their time, the place of each ID, counts, topics with their settings, what is kept of finished
// messages, the clock, and the numbers that are used up. It knows neither leases nor waiting
// claims.
//
// The methods have topics, positions, IDs and records as arguments; keys and batches stay inside,
// so that another engine could replace this one. It has to promise:
//
//  1. [Tx.Apply] is atomic and in order: a later transaction sees all of it at once, and no reader
//     sees a part. [Tx.Wait] returns when the transaction and all before it are durable. A power
//     cut takes the last ones, never one from among others.
//  2. A transaction sees what it wrote itself: [Tx.Find], [Tx.Read] and [Tx.Remembered] answer as
//     after the transaction is applied. They need not see what [Tx.Clear] and [Tx.DeleteTopic] have
//     deleted.
//  3. Counts, IDs and low watermarks follow each change of messages. No method changes messages
//     without them.
//  4. [DB.ReadDue] is in order of position. [DB.Live] needs no lock. A [Snapshot] does not change.
//  5. [Tx.Put] of a message that is there is called with the body that the message has, so an
//     engine may write the rest alone.
//  6. [DB.Load] refuses a database that knows less than the durable marker says.
//  7. Files are changed through failstop only, and damage that a read encounters fails the store.
//
// One write lock guards the database. Its caller holds it from [DB.Begin] until Apply has returned,
// and in every other method that does not say otherwise. A transaction that wrote something must be
// applied; else the counts of its topics are wrong, and the store must end.
package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Options of Open. All fields are needed but those that say otherwise.
type Options struct {
	// FS is the database's side of the fail-stop file system.
	FS vfs.FS
	// State is failed on damage, and on failures after which the engine cannot go on.
	State *failstop.State
	// Log receives the errors that the engine reports.
	Log *slog.Logger
	// CacheBytes is the size of the block cache, beside the engine's buffers for writes.
	CacheBytes int64
	// Format is the version of the keys that is written, and the only one that is read.
	Format uint32
	// ReadOnly opens the database without changing a file.
	ReadOnly bool
	// Swept, unless nil, is called with the number of keys that a step of a sweep, or a ReadDue,
	// has passed, deleted ones included.
	Swept func(order Order, keys int)
}

// DB is an open database.
type DB struct {
	opt   Options
	dir   string
	state *failstop.State
	kv    *pebble.DB

	// The fields that follow are guarded by the write lock, except the atomic ones.

	written  bool   // the format is on disk, or in a transaction that is being applied
	last     uint64 // number of the last transaction
	next     uint64 // the next message number to be given out
	limit    uint64 // message numbers are reserved on disk below it
	topicNum uint32 // number of the next new topic
	clock    atomic.Int64
	step     record.Step // the last step of the store's clock
	// stale are the topics whose low watermark may be raised, each once.
	stale []*Topic
	// garbage are the topics whose deleted messages may take room on disk, each once.
	garbage []*Topic
	// deleted are the numbers of deleted topics, whose messages may take room on disk.
	deleted []uint32
	// large are the topics with at least largeFrom live messages.
	large     map[*Topic]struct{}
	largeFrom int64 // LargeTopic, except in tests
	// remembered are the finished IDs, finished the finished records.
	remembered, finished kept
	// entries and ordered are memory that putInOrder uses again, guarded by the write lock.
	orderFrom int // manyWrites, except in tests
	entries   []entry
	ordered   []ordered
	// changes are the IDs that transactions have changed lately.
	changes changes
	// remembering counts, from 1 on, how often nothing was remembered in any topic. It changes with
	// the write lock held.
	remembering atomic.Uint64
	// uncounted is how many bytes Apply has written since it last had CountUnwritten ask the
	// engine.
	uncounted int
	unwritten atomic.Uint64 // see Unwritten
	// applied is the number of the last transaction that every read sees.
	applied atomic.Uint64
	// ahead is how many bytes the records take that calls have read ahead.
	ahead atomic.Int64
	// ranges is how many ranges of keys were deleted since the engine's buffer was flushed for
	// that.
	ranges atomic.Int64
}

// Open opens the database in a directory, and makes it unless it is to be read only. It returns
// when the engine has opened or refused, or when the store has failed meanwhile, because then the
// engine may hang, or be stopped. A panic of the engine on what it reads is taken for damage.
func Open(dir string, o Options) (*DB, error) {
	db := &DB{opt: o, dir: dir, state: o.State, large: make(map[*Topic]struct{}), largeFrom: LargeTopic, orderFrom: manyWrites, changes: newChanges()}
	db.remembering.Store(1)
	db.remembered.ids, db.remembered.ends = keyFinished, keyForget
	db.finished.ids, db.finished.ends = keyRecord, keyRecordEnd
	type result struct {
		kv  *pebble.DB
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if cause := recover(); cause != nil {
				r.err = errkind.Corruptf("the database stopped: %v", cause)
			}
			done <- r
		}()
		r.kv, r.err = pebble.Open(dir, db.engineOptions())
	}()
	select {
	case r := <-done:
		db.kv = r.kv
		return db, openError(r.err)
	case <-o.State.Failed():
		return nil, o.State.Failure()
	}
}

// openError gives an error of opening the database its kind. The engine does not mark all of its
// errors about damaged files, so every error that does not come from the operating system
// (errkind.RefusedBySystem) counts as damage.
func openError(err error) error {
	if err == nil {
		return nil
	}
	err = errkind.Plain(err)
	known := errkind.Classify("database", err)
	switch {
	case errors.Is(known, punctual.ErrCorrupt) || errors.Is(known, punctual.ErrNoSpace) || errors.Is(err, os.ErrPermission):
		return known
	case errkind.RefusedBySystem(err):
		return fmt.Errorf("%w: %v", punctual.ErrStoreFailed, known)
	}
	return fmt.Errorf("database: %w: %v", punctual.ErrCorrupt, err)
}

const (
	// bufferBytes is the size of one of the engine's buffers for writes.
	bufferBytes = 64 << 20
	// cachedBuffers is how many such buffers the size of the engine's cache contains, because the
	// engine takes the buffers off that size. A cache smaller than a buffer would have nothing left
	// for blocks, and each read of a table would read its filters and indexes anew. A store that
	// writes has a buffer that is filled and mostly one that is written into tables.
	cachedBuffers = 2
)

// engineOptions returns the options of Pebble; cachedBuffers gives the reason for the size of the
// cache.
func (db *DB) engineOptions() *pebble.Options {
	o := &pebble.Options{
		FS: db.opt.FS, Logger: engineLog{db}, ReadOnly: db.opt.ReadOnly,
		// With WAL chunks that record what was synced, the engine can tell a torn end from damage.
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		CacheSize:                   db.opt.CacheBytes + cachedBuffers*bufferBytes,
		MemTableSize:                bufferBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       40,
		LBaseMaxBytes:               256 << 20,
		MaxOpenFiles:                maxOpenFiles(errkind.FileLimit()),
		BytesPerSync:                1 << 20,
		WALBytesPerSync:             1 << 20,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if errors.Is(err, failstop.ErrReadsEnded) {
					return // the store is being closed, which has ended a compaction
				}
				db.state.LogSeldom(slog.LevelError, "the database cannot work in the background and tries again", "error", errkind.Plain(err))
			},
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				db.state.Fail(errkind.Corruptf("file %s: %v", i.Path, i.Details))
			},
			// A deletion of ranges can make the engine suspect a misuse where there is none, so the
			// store goes on.
			PossibleAPIMisuse: func(i pebble.PossibleAPIMisuseInfo) {
				if i.Kind == pebble.NondeterministicSingleDelete {
					db.opt.Log.Error("a deleted message may be in the database again: stop the store and let punctual check read it", "dir", db.dir, "key", fmt.Sprintf("%q", i.UserKey))
				}
			},
		},
	}
	// One compaction at a time. The engine's own scheduler polls ten times a second whether more
	// compactions are allowed now, which is most of what an idle store costs. Here their number
	// never changes, so polling is not needed: a compaction that waits is started when the one
	// before it is done.
	o.CompactionConcurrencyRange = func() (lower, upper int) { return 1, 1 }
	o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	for i := range o.Levels {
		// Filters spare the search for an ID in tables that do not have it. The last level has most
		// of the keys. Its filters are read for new IDs alone (lookReader), because a search for
		// any other ID mostly finds the ID.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.FastestCompression }
	}
	return o
}

// maxOpenFiles is how many tables the engine keeps open: a quarter of the files that the process
// may have open, because clients and other files need theirs, and 1000 at most.
func maxOpenFiles(limit uint64) int {
	if limit == 0 {
		return 1000
	}
	return int(min(1000, limit/4))
}

// engineLog receives the engine's log. The engine calls Fatalf after failures after which it cannot
// go on. If Fatalf returned, a write whose fsync failed would be reported as done. If Fatalf
// exited, the program of our user would end. So Fatalf fails the store and stops the calling
// goroutine for ever; whoever waits for that goroutine waits for State.Failed, too.
type engineLog struct{ db *DB }

func (l engineLog) Infof(string, ...any) {}

func (l engineLog) Errorf(format string, args ...any) {
	text := fmt.Errorf(format, args...)
	l.db.opt.Log.Error("the database complains", "dir", l.db.dir, "error", errkind.Plain(text))
	l.db.opt.Log.Debug("all that the database complains of", "dir", l.db.dir, "error", text)
}

func (l engineLog) Fatalf(format string, args ...any) {
	l.db.state.Fail(fmt.Errorf(format, args...))
	failstop.BlockForever()
}

// Flush writes what is in the engine's buffer into tables. It needs no lock.
func (db *DB) Flush() error { return db.kv.Flush() }

// Checkpoint makes a directory with the database as it is now, which opens as this one would. Most
// files are the same files under second names. It syncs the log, and may stop the goroutine that
// calls it.
func (db *DB) Checkpoint(dir string) error { return db.kv.Checkpoint(dir, pebble.WithFlushedWAL()) }

// StartFlush starts a Flush and does not wait for it. The channel is closed when the flush is done.
func (db *DB) StartFlush() (<-chan struct{}, error) { return db.kv.AsyncFlush() }

// Compact compacts all tables, so that deleted messages take no room any more. It needs no lock.
// When its context ends it returns, and a compaction that has begun goes on in the background.
func (db *DB) Compact(ctx context.Context) error {
	return db.kv.Compact(ctx, []byte{0}, []byte{255}, false)
}

// Close flushes the database, unless that was opened to be read only, and closes it. It flushes
// because tables have checksums throughout, while damage at the end of a log would not be noticed.
// The engine may stop the goroutine that calls Close.
func (db *DB) Close() error {
	if db.opt.ReadOnly {
		return db.kv.Close()
	}
	return errors.Join(db.kv.Flush(), db.kv.Close())
}

// Stats describes the engine's files and background work.
type Stats struct {
	TableBytes uint64 // in tables
	DiskBytes  uint64 // in all files
	Flushes    int64  // since the database was opened
	Flushing   int64  // flushes under way
	Compacting int64  // compactions under way
}

// Stats returns the numbers of this moment. It needs no lock.
func (db *DB) Stats() Stats {
	m := db.kv.Metrics()
	total := m.Total()
	return Stats{
		TableBytes: uint64(total.TablesSize), DiskBytes: m.DiskSpaceUsage(),
		Flushes: m.Flush.Count, Flushing: m.Flush.NumInProgress, Compacting: m.Compact.NumInProgress,
	}
}

// Unwritten is how many bytes are in the engine's log and not in tables yet, as of the last
// CountUnwritten and with all that was written since. It needs no lock and never waits for the
// engine.
func (db *DB) Unwritten() uint64 { return db.unwritten.Load() }

// CountUnwritten asks the engine for the number that Unwritten returns. Apply asks, too, whenever
// countEvery bytes were written. It needs no lock, and may stop the goroutine that calls it.
func (db *DB) CountUnwritten() { db.unwritten.Store(db.kv.Metrics().WAL.Size) }

// countEvery is how many bytes Apply writes until it asks the engine again how many are unwritten.
// The question takes some 20 µs.
const countEvery = 4 << 20

// LastTxn is the number of the last transaction. Tests use it.
func (db *DB) LastTxn() uint64 { return db.last }

// NextNumber is the number of the next message. The numbers of all stored messages are lower.
func (db *DB) NextNumber() uint64 { return db.next }

// Clock is the time in the last transaction since Load that wrote it, in Unix milliseconds. It
// needs no lock.
func (db *DB) Clock() int64 { return db.clock.Load() }

// get reads a key; nil if it is not there. The value is the caller's.
func (db *DB) get(key []byte) ([]byte, error) { return get(db.state, db.kv, key) }

// get reads a key of the database or of a snapshot.
func get(state *failstop.State, from pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, state.ReadError("read", err)
	}
	v = append(make([]byte, 0, len(v)), v...)
	return v, closer.Close()
}

// Live returns the record of a live message, nil if it is not there. It needs no lock.
func (db *DB) Live(topic uint32, at record.Position) ([]byte, error) {
	return db.get(posKey(Live, topic, at))
}

// Limits say how much a read returns. If a message is due by Until and lies at Stop or before, the
// read returns one message at least.
type Limits struct {
	Until int64 // the latest due time that is read, in Unix milliseconds
	// Stop is the last position that is read, unless Stop is zero. The read then finds out nothing
	// about messages after Stop.
	Stop     record.Position
	Messages int   // how many messages are read at most
	Bytes    int64 // how many bytes all records but the last may have, with Overhead for each
	Overhead int64
}

// ReadDue reads the live messages of a topic after a position. next is the position of the first
// message that it did not read, MaxPosition if there is none. If l.Stop is given and is reached,
// next is the position after l.Stop.
func (db *DB) ReadDue(t *Topic, after record.Position, l Limits) (read []record.Stored, next record.Position, err error) {
	next = record.MaxPosition
	if l.Stop != (record.Position{}) {
		next = l.Stop.Next()
	}
	it, err := db.iterate(db.kv, Live, t.num, after.Next(), next)
	if err != nil {
		return nil, next, db.state.ReadError("read topic "+t.name, err)
	}
	size := int64(0)
	for ok := it.First(); ok; ok = it.Next() {
		p, err := parsePosKey(it.Key())
		if err != nil {
			return nil, next, db.state.ReadError("topic "+t.name, errkind.JoinClose(err, it))
		}
		if n := len(read); p.Ms > l.Until || n > 0 && (n >= l.Messages || size >= l.Bytes) {
			next = p
			break
		}
		rec := append([]byte(nil), it.Value()...)
		read = append(read, record.Stored{At: p, Record: rec})
		size += int64(cap(rec)) + l.Overhead
	}
	db.swept(Live, it)
	return read, next, db.state.ReadError("topic "+t.name, errkind.JoinClose(it.Error(), it))
}

// passLimit is about how many deleted messages a read under the write lock may pass.
const passLimit = 8192

// NextRun finds the next messages of a topic: first is the first live one at or after a position,
// MaxPosition if there is none. stop is the last message before many deleted ones, or the one with
// which l.Bytes are reached: each further key would be read together with a body that the read of
// the run does not need. stop is zero when l.Messages, or those due up to l.Until, can be read
// without passing many deleted ones. l.Stop has no effect. An iterator has to pass each deleted
// message until a compaction drops it, so NextRun may take long. It needs no lock, and ends early
// with ctx.
func (db *DB) NextRun(ctx context.Context, topic uint32, from record.Position, l Limits) (first, stop record.Position, err error) {
	it, err := db.iterate(db.kv, Live, topic, from, record.MaxPosition)
	if err != nil {
		return first, stop, db.state.ReadError("read a topic", err)
	}
	first = record.MaxPosition
	var last record.Position // of the last live message
	began := 0               // how many keys had been passed at the first live message
	size := int64(0)
	passed := func() int { return it.Stats().ForwardStepCount[pebble.InternalIterCall] }
	ok := it.First()
	for seen := 0; ok && seen <= l.Messages && last.Ms <= l.Until && ctx.Err() == nil; ok = it.Next() {
		p, err := parsePosKey(it.Key())
		switch {
		case err != nil:
			return first, stop, db.state.ReadError("read a topic", errkind.JoinClose(err, it))
		case seen == 0:
			first, began = p, passed()
		case passed()-began > passLimit:
			return first, last, db.state.ReadError("read a topic", it.Close())
		}
		last = p
		seen++
		value := it.LazyValue()
		if size += int64(value.Len()) + l.Overhead; size >= l.Bytes {
			return first, last, db.state.ReadError("read a topic", it.Close())
		}
	}
	if !ok && first != record.MaxPosition && passed()-began > passLimit {
		stop = last
	}
	err = errkind.JoinClose(it.Error(), it)
	return first, stop, db.state.ReadError("read a topic", cmp.Or(err, ctx.Err()))
}

// iterate returns an iterator over a topic's messages in one order, from a position up to another
// one, which is not included unless it is MaxPosition. The iterator must be closed.
func (db *DB) iterate(from pebble.Reader, order Order, topic uint32, lower, to record.Position) (*pebble.Iterator, error) {
	upper := after(topicKey(byte(order), topic))
	if to != record.MaxPosition {
		upper = posKey(order, topic, to)
	}
	return from.NewIter(&pebble.IterOptions{LowerBound: posKey(order, topic, lower), UpperBound: upper})
}
