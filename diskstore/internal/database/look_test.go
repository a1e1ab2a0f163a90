package database

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// newDB returns an empty database, which is closed at the end of the test.
func newDB(t *testing.T) *DB {
	t.Helper()
	db, _ := openIn(t, vfs.NewMem(), 0)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// filled returns a database with the messages 0 to n-1 of one topic, all in tables of the last
// level.
func filled(t *testing.T, n, body int) (*DB, *Topic) {
	t.Helper()
	db := newDB(t)
	tx := db.Begin(1000)
	topic := addTopic(t, tx, "a")
	for i := range n {
		tx.Put(topic, Place{}, &record.Record{ID: fmt.Sprint(i), Message: lifecycle.Message{Due: 5000, FirstDue: 5000}, Body: make([]byte, body)})
	}
	mustApply(t, tx)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, topic
}

func mustApply(t *testing.T, tx *Tx) {
	t.Helper()
	if err := tx.Apply(0); err != nil {
		t.Fatal(err)
	}
	if err := tx.Wait(); err != nil {
		t.Fatal(err)
	}
}

func mustLookUp(t *testing.T, db *DB, asks ...Ask) *Looks {
	t.Helper()
	l, err := db.LookUp(asks)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNewIDsReadNoBlocks: a look for IDs that are not there reads filters and indexes, which stay
// in the cache, and hardly ever a block of a table.
func TestNewIDsReadNoBlocks(t *testing.T) {
	const ids = 2000
	db, topic := filled(t, 20_000, 100)
	fresh := func(prefix string) (asks []Ask) {
		for i := range ids {
			asks = append(asks, Ask{Topic: topic, ID: fmt.Sprint(i, prefix), New: true}) // sorts among the IDs that are there
		}
		return asks
	}
	mustLookUp(t, db, fresh("warm")...).Close()
	before := db.kv.Metrics()
	if last := before.Levels[6].TablesCount; last == 0 {
		t.Fatal("no table is in the last level")
	}
	l := mustLookUp(t, db, fresh("new")...)
	defer l.Close()
	for i := range ids {
		if !l.At(i).place.Nowhere() {
			t.Fatalf("a new ID is at %+v", l.At(i).place)
		}
	}
	after := db.kv.Metrics()
	if asked := after.Filter.Hits - before.Filter.Hits; asked < ids*9/10 {
		t.Errorf("filters have spared %d of %d searches for new IDs", asked, ids)
	}
	if read := after.BlockCache.Misses - before.BlockCache.Misses; read > ids/20 {
		t.Errorf("a look for %d new IDs has read %d blocks from tables", ids, read)
	}
}

// TestCacheBesideBuffers: the engine takes its buffers for writes off the size of its cache, and
// CacheBytes are left for blocks all the same. Otherwise each look would read its blocks from
// files.
func TestCacheBesideBuffers(t *testing.T) {
	const ids = 100
	db, topic := filled(t, 20_000, 100)
	db.opt.CacheBytes = 1 << 20
	if size := db.engineOptions().CacheSize - 2*int64(db.engineOptions().MemTableSize); size < 1<<20 {
		t.Errorf("beside two buffers %d bytes are left for the cache, want a MiB", size)
	}
	var asks []Ask
	for i := range ids {
		asks = append(asks, Ask{Topic: topic, ID: fmt.Sprint(i)})
	}
	mustLookUp(t, db, asks...).Close()
	before := db.kv.Metrics()
	if before.MemTable.Size == 0 {
		t.Fatal("there is no buffer")
	}
	mustLookUp(t, db, asks...).Close()
	if after := db.kv.Metrics(); after.BlockCache.Misses != before.BlockCache.Misses {
		t.Errorf("a second look for %d IDs has read %d blocks from tables", ids, after.BlockCache.Misses-before.BlockCache.Misses)
	}
}

// TestRecordsReadAheadAreBounded: however many calls read ahead, and however large bodies are, the
// records take no more than a fixed size, and a call that is over gives its part back.
func TestRecordsReadAheadAreBounded(t *testing.T) {
	const ids, body = 40, 1 << 20
	db, topic := filled(t, ids, body)
	var asks []Ask
	for i := range ids {
		asks = append(asks, Ask{Topic: topic, ID: fmt.Sprint(i), Record: true})
	}
	records := func(l *Looks) (n int) {
		for i := range ids {
			if l.At(i).place.Nowhere() {
				t.Errorf("message %d is not found", i)
			}
			if l.At(i).record != nil {
				n++
			}
		}
		return n
	}
	const most = lookBytes / body
	first := mustLookUp(t, db, asks...)
	second := mustLookUp(t, db, asks...)
	if a, b := records(first), records(second); a == 0 || a+b > most {
		t.Errorf("P10 bounded: two calls have read %d and %d records of a MiB ahead, want some and at most %d in all", a, b, most)
	}
	first.Close()
	second.Close()
	if left := db.ahead.Load(); left != 0 {
		t.Errorf("%d bytes are still taken by records of calls that are over", left)
	}
	third := mustLookUp(t, db, asks...)
	defer third.Close()
	if n := records(third); n == 0 {
		t.Error("no record is read ahead any more")
	}
}

// TestNothingRemembered: a topic is known to remember nothing when it is new. Once it has
// remembered an ID, that is known again only after a sweep has found that no topic remembers
// anything.
func TestNothingRemembered(t *testing.T) {
	db, topic := filled(t, 1, 0)
	may := func(want bool, when string) {
		t.Helper()
		if got := topic.mayRemember(db); got != want {
			t.Errorf("%s the topic may remember an ID: %v, want %v", when, got, want)
		}
	}
	sweep := func(now int64, meanwhile func()) {
		t.Helper()
		tx := db.Begin(now)
		step, err := tx.SweepFinished(Remembered, 10)
		if err != nil {
			t.Fatal(err)
		}
		if err := step.Read(); err != nil {
			t.Fatal(err)
		}
		meanwhile()
		tx = db.Begin(now)
		tx.ForgetSwept(step)
		tx.SetClock()
		mustApply(t, tx)
	}
	remember := func(id string, now, until int64) {
		t.Helper()
		tx := db.Begin(now)
		tx.Remember(topic, id, until-1, until)
		mustApply(t, tx)
	}
	nothing := func() {}
	may(false, "when it is new,")
	remember("a", 1000, 2000)
	remember("b", 1000, 4000)
	may(true, "after it has remembered IDs")
	sweep(3000, nothing)
	may(true, "while one ID is remembered")
	tx := db.Begin(3000)
	if known, err := tx.Remembered(topic, "b", nil); err != nil || !known {
		t.Errorf("P7: the ID is remembered: %v, %v", known, err)
	}
	sweep(5000, func() { remember("c", 5000, 6000) })
	may(true, "after a sweep that left nothing but what was remembered meanwhile")
	sweep(7000, nothing)
	may(false, "after a sweep that left nothing")
	remember("d", 7000, 8000)
	may(true, "after it has remembered an ID again")
}

// TestLookBesideRewrite: a record that was read ahead is not used once it was written anew at the
// same place.
func TestLookBesideRewrite(t *testing.T) {
	db, topic := filled(t, 1, 0)
	l := mustLookUp(t, db, Ask{Topic: topic, ID: "0", Record: true})
	defer l.Close()
	if l.At(0).record == nil {
		t.Fatal("no record was read ahead")
	}
	tx := db.Begin(1000)
	r := &record.Record{ID: "0", Message: lifecycle.Message{Due: 5000, FirstDue: 5000, CancelRequested: true}}
	tx.Rewrite(topic, l.At(0).place.At, r)
	mustApply(t, tx)
	tx = db.Begin(1000)
	p, err := tx.Find(topic, "0", l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if r, err = tx.Read(topic, p, l.At(0)); err != nil || !r.CancelRequested {
		t.Errorf("P5 cancel is definite: a record is read as it was before it was written anew: %+v, %v", r, err)
	}
}
