package diskstore

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// pushExpiring pushes n messages in the given topic that expire 1 ms after they are due, which is
// now.
func pushExpiring(t *testing.T, s punctual.Store, topic string, n int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		ms := make([]punctual.NewMessage, min(1000, n-from))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: topic, ID: fmt.Sprintf("old-%06d", from+i), ExpireAfter: time.Millisecond, Body: []byte("expired")}
		}
		push(t, s, ms...)
	}
}

// TestExpiredBacklogInBatches: a claim of one message encounters 20,000 expired ones before it.
// They are ended many at a time, and the number of goroutines stays small.
func TestExpiredBacklogInBatches(t *testing.T) {
	const expired = 20_000
	var most atomic.Int64
	var armed atomic.Bool
	fs := hookFS{vfs.NewMem(), func(op fsOp) error {
		if armed.Load() && op.kind == "sync" && strings.HasSuffix(op.name, ".log") {
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			time.Sleep(2 * time.Millisecond) // about as long as an fsync; nothing depends on the length
		}
		return nil
	}}
	s := openAt(t, "store", &Options{fs: fs})
	pushExpiring(t, s, "o", expired)
	good := push(t, s, punctual.NewMessage{Topic: "o", ID: "good"})
	time.Sleep(time.Until(good[0].Due.Add(2 * time.Millisecond))) // the last ones have expired
	before, goroutines := lastTxn(t, s), int64(runtime.NumGoroutine())
	armed.Store(true)
	if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].ID != "good" {
		t.Fatalf("a claim behind %d expired messages returned %+v", expired, ds)
	}
	waitUntil(t, "all expired messages are dead", func() bool {
		st, err := s.Stats(t.Context(), "o")
		return err == nil && st.Dead == expired
	})
	if most.Load() == 0 {
		t.Fatal("nothing was synced while the claim ran")
	}
	if most.Load() > goroutines+50 {
		t.Errorf("P10 bounded: %d goroutines while messages were ended, %d before", most.Load(), goroutines)
	}
	if n := lastTxn(t, s) - before; n > expired/endBatch+100 {
		t.Errorf("P14 isolation: %d transactions ended %d messages", n, expired)
	}
}

// lastTxn returns the number of the last transaction.
func lastTxn(t *testing.T, s *Store) (n uint64) {
	t.Helper()
	tx, err := s.writer.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close(&err)
	return s.db.LastTxn()
}

// TestDeathIsDatedByItsTransaction: a message waits for its end for two seconds after a claim
// encountered it. Its death and the failure of its last attempt have the time of the transaction
// that ends it, not that of the claim.
func TestDeathIsDatedByItsTransaction(t *testing.T) {
	_, s, clock, _ := leasedStore(t)
	defer closeStore(t, s)
	configure(t, s, "o", punctual.SettingsPatch{MaxAttempts: ptr(1)})
	clock.Advance(time.Hour)
	took := s.index.Reserve("o", s.clock.ms(), 1)
	if len(took.Reserved) != 1 {
		t.Fatalf("a claim reserves %+v, want the message whose lease ran out", took)
	}
	if ok, err := s.countAttempt(took.Reserved[0]); ok || err != nil {
		t.Fatalf("a message without attempts may be delivered: %t, %v", ok, err)
	}
	clock.Advance(2 * time.Second)
	if err := s.endUndeliverable(t.Context(), took.Reserved); err != nil {
		t.Fatal(err)
	}
	i, err := s.Get(t.Context(), "o", "a")
	if err != nil || i.State != punctual.StateDead || i.Reason != punctual.ReasonAttemptsUsedUp || !i.Died.Equal(clock.Now()) {
		t.Errorf("P6: the message is %s (%s) since %v, %v; want it dead since %v", i.State, i.Reason, i.Died, err, clock.Now())
	}
	want := punctual.Failure{Attempt: 1, At: clock.Now(), Error: storekit.LeaseRanOut}
	if len(i.Failures) != 1 || i.Failures[0].Attempt != 1 || i.Failures[0].Error != want.Error || !i.Failures[0].At.Equal(want.At) {
		t.Errorf("P6: the history is %+v, want %+v", i.Failures, want)
	}
	mustBeSound(t, s)
}
