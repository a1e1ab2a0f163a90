package diskstore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
)

// TestPushesShareAnFsync holds the fsync of one push while others come. Until that fsync is done
// none of the pushes returns, and none of their messages can be claimed. Then at most two more
// fsyncs are enough for all.
func TestPushesShareAnFsync(t *testing.T) {
	f, begun, release := &faults{}, make(chan struct{}), make(chan struct{})
	s := openAt(t, "store", &Options{fs: hookFS{vfs.NewMem(), f.hook}})
	syncs, open := 0, false // guarded by f.mu, which the hook holds while it calls the function below
	f.hang(func(op fsOp) chan struct{} {
		if op.kind != "sync" || !isLog(op) {
			return nil
		}
		if syncs++; syncs == 1 {
			close(begun)
		}
		if open {
			return nil
		}
		return release
	})
	const others = 64
	var pushers sync.WaitGroup
	returned := make(chan struct{}, others+1)
	pushOne := func() {
		push(t, s, punctual.NewMessage{Topic: "o"})
		returned <- struct{}{}
	}
	pushers.Go(pushOne)
	<-begun
	for range others {
		pushers.Go(pushOne)
	}
	applied := func() bool {
		holdWriteLock(t, s)()
		return s.index.Stats().Pending == others+1
	}
	for giveUp := time.Now().Add(30 * time.Second); !applied(); time.Sleep(time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Error("pushes that come during an fsync are not applied until it is done")
			break
		}
	}
	if n := len(returned); n > 0 {
		t.Errorf("P1 no loss: %d pushes returned before their fsync", n)
	}
	if ds := claim(t, s, "o", 100); len(ds) > 0 {
		t.Errorf("P1 no loss: %d messages were claimed before their fsync", len(ds))
	}
	f.mu.Lock()
	open = true
	f.mu.Unlock()
	close(release)
	pushers.Wait()
	f.mu.Lock()
	n := syncs
	f.mu.Unlock()
	if n > 3 {
		t.Errorf("%d pushes that waited together took %d fsyncs", others, n-1)
	}
}

// TestWatermark: the watermark of a topic, below which nothing is searched, is raised past finished
// messages. It stops before a leased message, and is lowered when a message is pushed below it.
// Without the watermark each search would begin with all deleted keys that no compaction has
// dropped.
func TestWatermark(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock})
	at := func(want time.Time, when string) {
		t.Helper()
		if err := errors.Join(s.writer.DeleteAcked(t.Context()), s.writeWatermarks(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := lowest(t, s, "o").Ms; got != storekit.Millis(want) {
			t.Errorf("watermark at %v %s, want %v", storekit.FromMillis(got), when, want)
		}
	}
	for range 100 {
		push(t, s, punctual.NewMessage{Topic: "o", Due: testStart})
	}
	last := testStart.Add(time.Hour)
	push(t, s, punctual.NewMessage{Topic: "o", Due: last})
	ds := claim(t, s, "o", 100)
	for _, d := range ds[1:] {
		if err := settle(t, s, d, punctual.SettleAck); err != nil {
			t.Fatal(err)
		}
	}
	at(testStart, "while one is leased")
	if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
		t.Fatal(err)
	}
	at(last, "when all before it are finished")
	early := testStart.Add(time.Minute)
	push(t, s, punctual.NewMessage{Topic: "o", Due: early})
	at(early, "after a push below it")
	mustBeSound(t, s)
}

// lowest returns the watermark of a topic.
func lowest(t *testing.T, s *Store, topic string) record.Position {
	t.Helper()
	defer holdWriteLock(t, s)()
	return s.topics.Get(topic).Disk.Lowest()
}

// holdWriteLock waits for the write lock and keeps it until release is called.
func holdWriteLock(t testing.TB, s *Store) (release func()) {
	t.Helper()
	tx, err := s.writer.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if tx.Close(&err); err != nil {
			t.Error(err)
		}
	}
}
