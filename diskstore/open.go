package diskstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
)

// Open opens the store in a directory and makes it if need be. One process owns a
// directory at a time: a second opener gets ErrLocked with the name of the first.
// Damage that can be seen now is ErrCorrupt. o may be nil. The store runs a few
// goroutines until Close.
func Open(dir string, o *Options) (*Store, error) {
	s := newStore(dir, o.withDefaults())
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s.sequencer <- struct{}{}
	s.duties.Go(s.runDuties)
	s.duties.Go(s.runLoader)
	s.duties.Go(s.runReclaimer)
	return s, nil
}

// newStore is a store that is not open yet.
func newStore(dir string, opt Options) *Store {
	s := &Store{
		dir: dir, opt: opt, log: opt.Logger, sequencer: make(chan struct{}, 1), dutyKick: make(chan struct{}, 1),
		topics: make(map[string]*topic), topicNum: 1, live: make(map[uint64]*entry), byToken: make(map[int64]*entry),
		unsynced: make(map[uint64]*entry), acked: make(map[uint64]acked), waiters: make(map[string]map[*waiter]struct{}),
		failed: make(chan struct{}), closing: make(chan struct{}),
	}
	s.gate = &gate{}
	s.fs = safeFS{FS: opt.fs, gate: s.gate, fail: s.fail}
	s.space = &spaceGuard{fs: opt.fs, dir: dir, reserve: opt.ReserveBytes}
	return s
}

// Exists tells whether a directory holds a store. It changes nothing.
func Exists(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), manifestMarker) {
			return true, nil
		}
	}
	return false, classify("look for a store", err)
}

// manifestMarker begins the name of the file that a database has from its making on.
const manifestMarker = "marker.manifest"

func (s *Store) open() error {
	fresh, err := s.prepareDir()
	if err != nil {
		return err
	}
	if s.lock, err = lockDir(s.opt.fs, s.dir); err != nil {
		return err
	}
	if err := s.openDB(s.engineOptions()); err != nil {
		s.letGo()
		return err
	}
	if err := s.restore(fresh); err != nil {
		if cerr := s.closeDB(); cerr != nil {
			s.log.Warn("closing a store that could not be opened", "dir", s.dir, "error", cerr)
		}
		s.letGo()
		return err
	}
	return nil
}

// prepareDir makes the directory, and refuses one that holds something else.
func (s *Store) prepareDir() (fresh bool, err error) {
	if err := s.fs.MkdirAll(s.dir, 0o700); err != nil {
		return false, classify("make the directory", err)
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return false, classify("read the directory", err)
	}
	there, err := holdsStore(names)
	return !there, err
}

// holdsStore tells from the names in a directory whether it holds a store. Something else that it
// holds is an error; what the making of a store left that was cut short is not.
func holdsStore(names []string) (bool, error) {
	for _, n := range names {
		if strings.HasPrefix(n, manifestMarker) {
			return true, nil
		}
	}
	for _, n := range names {
		switch {
		case n == "LOCK" || n == "HOLDER" || strings.HasPrefix(n, "marker.") || strings.HasPrefix(n, "MANIFEST-") ||
			strings.HasPrefix(n, "OPTIONS-") || strings.HasSuffix(n, ".log") || strings.HasPrefix(n, "temporary."):
		case strings.HasSuffix(n, ".sst"):
			return false, corruptf("the directory holds %s but no %s", n, manifestMarker)
		case n == "lost+found":
		default:
			return false, fmt.Errorf("the directory is not empty (it holds %s) and not a store: %w; name another one", n, punctual.ErrInvalid)
		}
	}
	return false, nil
}

// openDB opens the database in a goroutine of its own, because the database may hang, or
// stop the goroutine that calls it (stopHere). A database that panics on what it reads is damaged.
func (s *Store) openDB(o *pebble.Options) error {
	type result struct {
		db  *pebble.DB
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if cause := recover(); cause != nil {
				r.err = corruptf("the database stopped: %v", cause)
			}
			done <- r
		}()
		r.db, r.err = pebble.Open(s.dir, o)
	}()
	select {
	case r := <-done:
		s.db = r.db
		return openError(r.err)
	case <-s.failed:
		return s.failure()
	}
}

// openError gives an error of opening the database its kind. The database does not mark all
// of its complaints about damaged files, but what is neither permission nor space is one.
func openError(err error) error {
	if err == nil {
		return nil
	}
	known := classify("database", err)
	switch {
	case errors.Is(known, punctual.ErrCorrupt) || errors.Is(known, punctual.ErrNoSpace) || os.IsPermission(err):
		return known
	case mediumRefused(err):
		return fmt.Errorf("database: %w: %v", punctual.ErrStoreFailed, err)
	}
	return fmt.Errorf("database: %w: %v", punctual.ErrCorrupt, err)
}

// engineOptions are Pebble's; docs/performance.md has the measurements behind the sizes.
func (s *Store) engineOptions() *pebble.Options {
	o := &pebble.Options{
		FS: safeFS{FS: s.opt.fs, gate: s.gate, fail: s.fail, engine: true}, Logger: engineLog{s},
		// WAL chunks that tell what was synced let a torn end be told from damage.
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		CacheSize:                   s.opt.CacheBytes,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       40,
		LBaseMaxBytes:               256 << 20,
		MaxOpenFiles:                1000,
		BytesPerSync:                1 << 20,
		WALBytesPerSync:             1 << 20,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				s.log.Error("the database cannot write in the background", "dir", s.dir, "error", err)
			},
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				s.fail(corruptf("file %s: %v", i.Path, i.Details))
			},
		},
	}
	for i := range o.Levels {
		// Filters spare most levels the search for an ID. The last level has most of the keys, and
		// its filters would push everything else out of the cache.
		if i < len(o.Levels)-1 {
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.FastestCompression }
	}
	return o
}

// restore brings into memory what the files say.
func (s *Store) restore(fresh bool) error {
	table, last, err := readClaims(s.fs, s.dir, s.keepDamaged)
	if err != nil {
		return classify("claim log", err)
	}
	s.claims = &claimLog{fs: s.fs, dir: s.dir, limit: s.opt.claimLimit, num: last, seen: table.seen}
	passed, err := s.readMeta(fresh)
	if err != nil {
		return err
	}
	s.clock = newClock(s.opt.Clock, passed)
	if err := s.readTopics(); err != nil {
		return err
	}
	if err := s.restoreLeases(table); err != nil {
		return err
	}
	return s.rotateClaims(func() error {
		return s.writeMeta(func(tx *txn) {
			for tx.reap() {
			}
		})
	})
}

// readMeta reads version, clock and numbers; in a fresh store it writes them.
func (s *Store) readMeta(fresh bool) (passed time.Time, err error) {
	version, err := s.get(metaKey("version"))
	if err != nil {
		return passed, err
	}
	if version == nil {
		if !fresh {
			return passed, s.newOrForeign()
		}
		return passed, s.initMeta()
	}
	if err := checkVersion(version); err != nil {
		return passed, err
	}
	passed, err = s.readClock()
	if err = errors.Join(err, s.readNumbers()); err != nil {
		return passed, err
	}
	return passed, s.writeMeta(func(*txn) {})
}

func checkVersion(version []byte) error {
	if v := beUint(version); v != formatVersion {
		return fmt.Errorf("the store has format %d and this program reads %d: %w; use the release that wrote it, or a newer one",
			v, formatVersion, punctual.ErrUnsupported)
	}
	return nil
}

// readClock reads what time the store's clock has passed; zero if it is not known.
func (s *Store) readClock() (passed time.Time, err error) {
	clock, err := s.get(metaKey("clock"))
	if err == nil && len(clock) == 8 {
		passed = punctual.FromMillis(getTime(clock))
	}
	return passed, err
}

// newOrForeign tells a store whose making was cut short before its first write, which has
// nothing in it and is begun again, from a database that is not ours.
func (s *Store) newOrForeign() error {
	if err := s.mustBeEmpty(); err != nil {
		return err
	}
	return s.initMeta()
}

func (s *Store) mustBeEmpty() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return s.readError("read the store", err)
	}
	empty := !it.First()
	if err := joinClose(it.Error(), it); err != nil {
		return s.readError("read the store", err)
	}
	if !empty {
		return corruptf("the database has no format version")
	}
	return nil
}

// readNumbers reads which numbers are used up. The next block is reserved by the first transaction.
func (s *Store) readNumbers() error {
	seq, err := s.get(metaKey("seq"))
	if err != nil {
		return err
	}
	token, err := s.get(metaKey("token"))
	if err != nil {
		return err
	}
	last, err := s.get(metaKey("txn"))
	if err != nil {
		return err
	}
	if len(seq) != 8 || len(token) != 8 || len(last) != 8 {
		return corruptf("the store does not know which numbers are used up")
	}
	s.txns = beUint(last)
	if err := s.checkWitness(); err != nil {
		return err
	}
	// Whatever is below the limits may have been given out.
	s.numbers = numbers{next: beUint(seq), limit: beUint(seq)}
	s.tokens.next, s.tokens.limit = int64(beUint(token)), int64(beUint(token))
	return nil
}

// checkWitness refuses a database that lacks transactions which were durable. Nothing may be
// written before this, or the next opener would not notice.
func (s *Store) checkWitness() error {
	if seen := s.claims.witnessed(); seen > s.txns {
		return corruptf("the database ends with transaction %d, but transaction %d was durable: its newest *.log or MANIFEST is damaged or cut off; restore the directory from a copy",
			s.txns, seen)
	}
	return nil
}

func (s *Store) initMeta() error {
	if err := s.checkWitness(); err != nil {
		return err
	}
	s.numbers = numbers{next: 1, limit: 1}
	s.tokens.next, s.tokens.limit = 1, 1
	return s.writeMeta(func(tx *txn) {
		tx.set(metaKey("version"), binary.BigEndian.AppendUint32(nil, formatVersion))
	})
}

// writeMeta reserves numbers and writes what fill adds, before the store is in use.
func (s *Store) writeMeta(fill func(*txn)) error {
	tx := &txn{s: s, b: s.db.NewBatch()}
	fill(tx)
	s.finish(tx)
	if tx.b.Empty() {
		return tx.b.Close()
	}
	done := make(chan error, 1)
	s.commits.Add(1)
	go s.carryOut(tx, done)
	var err error
	select {
	case err = <-done:
	case <-s.failed:
		return s.failure()
	}
	if err == nil {
		<-s.sequencer // carryOut gave it back; Open hands it out when all is ready
	}
	return err
}

func beUint(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// readTopics reads every topic with its settings, counts and watermark.
func (s *Store) readTopics() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyTopic}, UpperBound: []byte{keyTopic + 1}})
	if err != nil {
		return s.readError("read topics", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		t, err := s.readTopic(string(it.Key()[1:]), it.Value())
		if err != nil {
			return joinClose(err, it)
		}
		s.topics[t.name] = t
		s.topicNum = max(s.topicNum, t.num+1)
	}
	return s.readError("read topics", joinClose(it.Error(), it))
}

func (s *Store) readTopic(name string, v []byte) (*topic, error) {
	if len(v) < 4 {
		return nil, corruptf("topic %s is stored in %d bytes", name, len(v))
	}
	t := newTopic(name, uint32(beUint(v[:4])))
	t.settings = punctual.Settings{}
	if err := json.Unmarshal(v[4:], &t.settings); err != nil {
		return nil, corruptf("settings of topic %s: %v", name, err)
	}
	counts, err := s.get(topicKey(keyCounts, t.num))
	if err != nil {
		return nil, err
	}
	if len(counts) == 16 {
		t.live, t.dead = int64(beUint(counts[:8])), int64(beUint(counts[8:]))
	}
	mark, err := s.get(topicKey(keyMark, t.num))
	if err != nil {
		return nil, err
	}
	if mark != nil {
		if t.mark, err = parsePos(mark); err != nil {
			return nil, err
		}
	}
	if t.live > 0 {
		t.diskNext = t.mark
	}
	t.loaded = before(t.mark)
	return t, nil
}

// before is the last place before p.
func before(p pos) pos {
	switch {
	case p.seq > 0:
		return pos{p.ms, p.seq - 1}
	case p.ms > minPos.ms:
		return pos{p.ms - 1, 1<<64 - 1}
	}
	return p
}

// restoreLeases brings back the leases that the claim log tells of and the database does not
// contradict, and the acks of messages that are still on disk.
func (s *Store) restoreLeases(table *claimTable) error {
	byNum := make(map[uint32]*topic, len(s.topics))
	for _, t := range s.topics {
		byNum[t.num] = t
	}
	for _, l := range table.acked {
		t, r, err := s.recordOf(byNum, l)
		if err != nil {
			return err
		}
		if r != nil {
			s.addAcked(acked{t, l.key, r.id})
		}
	}
	for _, l := range table.leases {
		t, r, err := s.recordOf(byNum, l)
		if err != nil {
			return err
		}
		if r == nil || r.token >= l.token {
			continue // settled, or released since
		}
		e := &entry{
			topic: t, key: l.key, next: l.until, state: leased, id: r.id,
			token: l.token, renewed: l.renewed, attempt: l.attempt, cancel: r.cancel, lapses: l.lapses,
		}
		s.live[l.key.seq], s.byToken[l.token], t.leased[l.key.seq] = e, e, e
		t.leases.add(e, len(t.leased))
	}
	return nil
}

// recordOf returns the message that an entry of the claim log is about, nil if it is gone.
func (s *Store) recordOf(byNum map[uint32]*topic, l lease) (*topic, *record, error) {
	t := byNum[l.topic]
	if t == nil {
		return nil, nil, nil
	}
	v, err := s.get(posKey(keyLive, t.num, l.key))
	if err != nil || v == nil {
		return nil, nil, err
	}
	r, err := decodeRecord(v)
	if err != nil {
		return nil, nil, s.readError("topic "+t.name, err)
	}
	return t, r, nil
}

var _ vfs.FS = safeFS{}
