package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testStart = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// quiet is a logger for stores that are expected to complain.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// openAt opens a store, which is closed at the end of the test.
func openAt(t *testing.T, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t *testing.T, s punctual.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func push(t *testing.T, s punctual.Store, ms ...punctual.NewMessage) []punctual.PushResult {
	t.Helper()
	rs, err := s.Push(t.Context(), ms)
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	for _, r := range rs {
		if r.Err != nil {
			t.Fatalf("push %s: %v", r.ID, r.Err)
		}
	}
	return rs
}

func claim(t *testing.T, s punctual.Store, topic string, n int) []punctual.Delivery {
	t.Helper()
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: n})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return ds
}

func settle(t *testing.T, s punctual.Store, d punctual.Delivery, verb punctual.Verb) error {
	t.Helper()
	errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb}})
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	return errs[0]
}

// mustBeSound runs a full check and fails the test for each problem that it finds.
func mustBeSound(t *testing.T, s *Store) storekit.CheckReport {
	t.Helper()
	r, err := s.Check(t.Context(), nil)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	for _, p := range r.Problems {
		t.Errorf("check: %s", p)
	}
	return r
}

func TestReopenKeepsMessagesLeasesAndAttempts(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	s, err := Open(dir, &Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "held", Body: []byte("x")}, punctual.NewMessage{Topic: "o", ID: "far", Delay: time.Hour})
	held := claim(t, s, "o", 10)
	closeStore(t, s)

	s = openAt(t, dir, &Options{Clock: clock})
	if ds := claim(t, s, "o", 10); len(ds) != 0 {
		t.Fatalf("P3 one holder: claimed %v again while leased", ds)
	}
	clock.Advance(31 * time.Second)
	ds := claim(t, s, "o", 10)
	if len(ds) != 1 || ds[0].ID != "held" || ds[0].Attempt != 2 || string(ds[0].Body) != "x" {
		t.Fatalf("P6 attempts are durable: got %+v, want the second attempt of held", ds)
	}
	if err := settle(t, s, held[0], punctual.SettleAck); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("P4 fencing: ack of the first holder after a restart: %v", err)
	}
	if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
		t.Errorf("ack: %v", err)
	}
	clock.Advance(time.Hour)
	if ds = claim(t, s, "o", 10); len(ds) != 1 || ds[0].ID != "far" {
		t.Errorf("P1 no loss: got %+v, want far", ds)
	}
	mustBeSound(t, s)
}

func TestHolderOfALeaseMayAckAfterReopen(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	s, err := Open(dir, &Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	d := claim(t, s, "o", 1)[0]
	closeStore(t, s)
	s = openAt(t, dir, &Options{Clock: clock})
	if err := settle(t, s, d, punctual.SettleAck); err != nil {
		t.Errorf("ack with a token from before the restart: %v", err)
	}
	if r := mustBeSound(t, s); r.Live != 0 {
		t.Errorf("%d live messages after the ack", r.Live)
	}
}

func TestSecondOpenerIsToldWhoHoldsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	openAt(t, dir, nil)
	_, err := Open(dir, nil)
	if !errors.Is(err, punctual.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("second opener: %v; want ErrLocked with the owner's process number", err)
	}
}

// One directory under several names is still one directory.
func TestSecondOpenerByAnotherName(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	link := filepath.Join(parent, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dir, nil)
	t.Chdir(parent)
	for _, name := range []string{"store", "./link/../store", link} {
		if again, err := Open(name, nil); !errors.Is(err, punctual.ErrLocked) {
			t.Errorf("open of %s as %s: %v, want ErrLocked", dir, name, err)
			if err == nil {
				closeStore(t, again)
			}
		}
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	mustBeSound(t, s)
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/letter.txt", []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, nil); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("open of a directory with other files: %v, want ErrInvalid", err)
	}
}

func TestClockNeverRunsBackwardsAcrossReopen(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	s, err := Open(dir, &Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Delay: time.Minute})
	closeStore(t, s)
	clock.Advance(-time.Hour)
	s = openAt(t, dir, &Options{Clock: clock})
	if now, err := s.Now(t.Context()); err != nil || now.Before(testStart) {
		t.Errorf("P8: clock says %v, %v after it had said %v", now, err, testStart)
	}
	clock.Advance(2 * time.Minute) // the store's clock goes on by half of that, because the machine's is behind
	if ds := claim(t, s, "o", 1); len(ds) != 1 {
		t.Errorf("a clock that was set back an hour stopped deliveries")
	}
}

// A topic with far more messages due than memory may hold is drained in order.
func TestSlowBacklogLargerThanMemory(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, MemoryBytes: 1 << 20})
	const n = 20_000
	for i := 0; i < n; i += 1000 {
		var ms []punctual.NewMessage
		for j := i; j < i+1000; j++ {
			ms = append(ms, punctual.NewMessage{
				Topic: "o", ID: fmt.Sprint(j), Body: make([]byte, 200), Delay: time.Duration(j*7919%n) * time.Millisecond,
			})
		}
		push(t, s, ms...)
	}
	clock.Advance(time.Minute)
	push(t, s, punctual.NewMessage{Topic: "p", ID: "bystander"})
	if ds := claim(t, s, "p", 1); len(ds) != 1 {
		t.Error("a backlog in one topic hides the message of another")
	}
	seen, last := map[string]bool{}, time.Time{}
	for len(seen) < n {
		ds := claim(t, s, "o", 777)
		if len(ds) == 0 {
			t.Fatalf("P1 no loss: %d of %d messages came", len(seen), n)
		}
		var ss []punctual.Settlement
		for _, d := range ds {
			if seen[d.ID] || d.Due.Before(last) {
				t.Fatalf("P12 order, P3 one holder: %s due %v came after %v or twice", d.ID, d.Due, last)
			}
			seen[d.ID], last = true, d.Due
			ss = append(ss, punctual.Settlement{Topic: "o", ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		}
		if _, err := s.Settle(t.Context(), ss); err != nil {
			t.Fatal(err)
		}
		if used := s.index.Stats().Bytes; used > 1<<20+1000 {
			t.Errorf("P10 bounded: %d bytes of messages are in memory with a bound of 1 MiB", used)
		}
	}
	if r := mustBeSound(t, s); r.Live != 1 {
		t.Errorf("%d messages left, want 1", r.Live)
	}
}

func TestClaimLogIsReplacedWhenFull(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	dir := t.TempDir()
	s, err := Open(dir, &Options{Clock: clock, claimLimit: 2000})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "held"})
	held := claim(t, s, "o", 1)[0]
	first := s.claims.Segment()
	for i := 0; s.claims.Segment() < first+3; i++ {
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i)})
		if err := settle(t, s, claim(t, s, "o", 1)[0], punctual.SettleAck); err != nil {
			t.Fatal(err)
		}
		if full, _ := s.claims.Due(); full {
			if err := s.maintain(true); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeStore(t, s)
	s = openAt(t, dir, &Options{Clock: clock})
	if err := settle(t, s, held, punctual.SettleAck); err != nil {
		t.Errorf("P6: a lease older than the newest segment was forgotten: %v", err)
	}
	if r := mustBeSound(t, s); r.Live != 0 {
		t.Errorf("%d live messages, want none", r.Live)
	}
}

func TestWaitingClaimIsWoken(t *testing.T) {
	s := openAt(t, t.TempDir(), nil)
	got := make(chan error, 1)
	go func() {
		ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"o"}, Max: 1, Wait: time.Minute})
		if err == nil && len(ds) != 1 {
			err = fmt.Errorf("%d deliveries", len(ds))
		}
		got <- err
	}()
	push(t, s, punctual.NewMessage{Topic: "o", Delay: 20 * time.Millisecond})
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("P11: a waiting claim slept past the due time of a message pushed meanwhile")
	}
}
