package diskstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// ackedStore opens a store in which maintenance does not run, with n messages that are acked and
// still on disk, whose IDs are idBytes long, and one that is not due yet.
func ackedStore(t *testing.T, mem *vfs.MemFS, hook func(fsOp) error, n, idBytes int) *Store {
	t.Helper()
	s := openAt(t, "store", &Options{fs: hookFS{mem, hook}, Clock: storekit.NewManualClock(testStart), Logger: quiet, byHand: true})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "kept", Delay: time.Hour})
	for left := n; left > 0; {
		ms := make([]punctual.NewMessage, min(left, limits.MaxBatch))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprintf("%0*d", idBytes, left-i)}
		}
		push(t, s, ms...)
		finish(t, s, "o", len(ms), punctual.SettleAck)
		left -= len(ms)
	}
	if in := s.index.Stats(); in.Acked != n {
		t.Fatalf("%d messages are acked and still on disk, want %d", in.Acked, n)
	}
	return s
}

// TestSlowManyAcksAreDeletedInSteps: the acked messages that are still on disk are deleted in
// several transactions, whoever deletes them, because with long IDs one transaction would be larger
// than 8 MiB.
func TestSlowManyAcksAreDeletedInSteps(t *testing.T) {
	const n = 60_000
	const size = n * (21 + 133) // the key of a message has 21 bytes, and that of its ID 133
	mem := vfs.NewCrashableMem()
	var killed, closed *vfs.MemFS
	s := ackedStore(t, mem, func(fsOp) error { return nil }, n, 128)
	before := s.db.LastTxn()
	killed = afterKill(mem)
	// opening is how many transactions the opening of a store makes besides.
	mustTake := func(what string, s *Store, opening uint64) {
		t.Helper()
		if made := s.db.LastTxn() - before - opening; made <= size>>23 {
			t.Errorf("P10 bounded: %s deleted more than %d MiB in %d transactions", what, size>>20, made)
		}
		if in := s.index.Stats(); in.Acked != 0 {
			t.Errorf("%s left %d acked messages on disk", what, in.Acked)
		}
		if r := mustBeSound(t, s); r.Live != 1 {
			t.Errorf("P1: %s left %d messages, want the one that is not due", what, r.Live)
		}
	}
	if err := s.writeWatermarks(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustTake("a transaction with watermarks", s, 0)
	mustTake("Open", openAt(t, "store", memOptions(killed)), 1)
	closed = vfs.NewCrashableMem()
	s = ackedStore(t, closed, func(fsOp) error { return nil }, n, 128)
	before = s.db.LastTxn()
	closeStore(t, s)
	mustTake("Close", openAt(t, "store", memOptions(closed)), 2)
}

// TestSlowKilledWhileAcksAreDeleted copies the files before each change of the logs while a store
// with many acked messages is closed, and while the same store is opened that was killed instead.
// The copies are as a kill and as a power cut would leave the files. The store on each copy is
// sound, so no watermark lies above a message that is still on disk. It has the message that was
// not acked, and after a kill no other.
func TestSlowKilledWhileAcksAreDeleted(t *testing.T) {
	const n = 10_000
	mem := vfs.NewCrashableMem()
	type copied struct {
		mem      *vfs.MemFS
		op       fsOp
		powerCut bool
	}
	var mu sync.Mutex
	var copying bool    // guarded by mu
	var copies []copied // guarded by mu
	hook := func(op fsOp) error {
		mu.Lock()
		defer mu.Unlock()
		if copying && (isLog(op) || isClaims(op)) { // the other files change nothing of what there is
			copies = append(copies, copied{afterKill(mem), op, false}, copied{mem.CrashClone(vfs.CrashCloneCfg{}), op, true})
		}
		return nil
	}
	s := ackedStore(t, mem, hook, n, 5)
	copyAll := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		copying = on
	}
	before := s.db.LastTxn()
	killed := afterKill(mem)
	copyAll(true)
	closeStore(t, s)
	copyAll(false)
	mem = killed
	copyAll(true)
	s = openAt(t, "store", &Options{fs: hookFS{mem, hook}, Clock: storekit.NewManualClock(testStart), Logger: quiet, byHand: true})
	copyAll(false)
	if made := s.db.LastTxn() - before - 1; made < 2 { // one reserves numbers
		t.Fatalf("the acked messages were deleted in %d transactions, want several", made)
	}
	closeStore(t, s)
	for _, c := range copies {
		s := openAt(t, "store", memOptions(c.mem))
		r := mustBeSound(t, s)
		if _, err := s.Get(t.Context(), "o", "kept"); err != nil || !c.powerCut && r.Live != 1 {
			t.Errorf("P1: before %s of %s, power cut %v: %d messages are left, and the one that was not acked is there: %v", c.op.kind, c.op.name, c.powerCut, r.Live, err)
		}
		closeStore(t, s)
		if t.Failed() {
			break
		}
	}
	t.Logf("%d kills and power cuts", len(copies))
}
