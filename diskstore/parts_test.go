package diskstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

const mebibyte = 1 << 20

// large returns n messages of 1 MiB each in topic o.
func large(n int) []punctual.NewMessage {
	body := make([]byte, mebibyte)
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Body: body, MaxAttempts: 1}
	}
	return ms
}

func amendAll(t *testing.T, s *Store, n int, change punctual.Change, want error) {
	t.Helper()
	as := make([]punctual.Amendment, n)
	for i := range as {
		as[i] = punctual.Amendment{Change: change, Topic: "o", ID: fmt.Sprint(i)}
	}
	outcomes, err := s.Amend(t.Context(), as)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if !errors.Is(o.Err, want) {
			t.Errorf("%v of %d: %v; want %v", change, i, o.Err, want)
		}
	}
}

func settleAll(t *testing.T, s *Store, ds []punctual.Delivery, verb punctual.Verb) {
	t.Helper()
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: verb}
	}
	errs, err := s.Settle(t.Context(), ss)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Errorf("%v of %d: %v", verb, len(ds), err)
	}
}

// TestSlowNoTransactionIsLarge: a call for many messages that writes much makes several
// transactions, whatever it does to the messages, so that each transaction has a bounded size.
// Beyond 4 GiB the database panics; long before that the heap grows, and other calls wait too long.
func TestSlowNoTransactionIsLarge(t *testing.T) {
	const n = 30
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock})
	var ds []punctual.Delivery
	take := func() {
		if ds = claim(t, s, "o", n); len(ds) != n {
			t.Fatalf("%d of %d messages were claimed", len(ds), n)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"push", func() { push(t, s, large(n)...) }},
		{"replace", func() {
			ms := large(n)
			for i := range ms {
				ms[i].IfExists = punctual.IfExistsReplace
			}
			push(t, s, ms...)
		}},
		{"reschedule", func() { amendAll(t, s, n, punctual.ChangeReschedule, nil) }},
		{"snooze", func() { take(); settleAll(t, s, ds, punctual.SettleSnooze) }},
		{"snooze with follow-ups", func() {
			take()
			ss := make([]punctual.Settlement, n)
			for i, d := range ds {
				follow := punctual.NewMessage{Topic: "p", Body: d.Body}
				ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleSnooze, Then: []punctual.NewMessage{follow}}
			}
			before := s.db.LastTxn()
			if errs, err := s.Settle(t.Context(), ss); errors.Join(append(errs, err)...) != nil {
				t.Error(errs, err)
			}
			if made := s.db.LastTxn() - before; made < 2*n/10 { // because 8 MiB and one message with its follow-up are 10 MiB
				t.Errorf("%d MiB were written in %d transactions", 2*n, made)
			}
		}},
		{"discard", func() { take(); settleAll(t, s, ds, punctual.SettleDiscard) }},
		{"requeue", func() { amendAll(t, s, n, punctual.ChangeRequeue, nil) }},
		{"dead-letter", func() {
			take()
			clock.Advance(time.Hour) // their leases run out, and there is no second attempt
			if ds = claim(t, s, "o", n); len(ds) != 0 {
				t.Errorf("%d messages came with no attempts left", len(ds))
			}
		}},
		{"cancel of leased messages", func() {
			amendAll(t, s, n, punctual.ChangeRequeue, nil)
			take()
			before := s.db.LastTxn()
			amendAll(t, s, n, punctual.ChangeCancel, punctual.ErrLeased)
			if made := s.db.LastTxn() - before; made < n/9 {
				t.Errorf("%d MiB were written in %d transactions", n, made)
			}
		}},
	} {
		before := s.db.LastTxn()
		step.do()
		if made := s.db.LastTxn() - before; made < n/9 { // because 8 MiB and one message are 9 MiB
			t.Errorf("P10 bounded: %s wrote %d MiB in %d transactions", step.name, n, made)
		}
	}
	mustBeSound(t, s)
}

// endsLater is a context whose Err returns nil so many times as looks says, and then that it was
// cancelled.
type endsLater struct {
	context.Context
	looks int
}

func (c *endsLater) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestSlowLargeCallWhoseLaterStepFails: when a later step of a large call cannot be made, the
// result of each item says what became of it.
func TestSlowLargeCallWhoseLaterStepFails(t *testing.T) {
	const n = 20
	s := openAt(t, "store", &Options{fs: vfs.NewMem()})
	wantCut := func(what string, err error, item func(i int) error) (done int) {
		t.Helper()
		if err != nil {
			t.Fatalf("P13: %s: %v; want the error with those items that were not done", what, err)
		}
		for done < n && item(done) == nil {
			done++
		}
		if done == 0 || done == n {
			t.Fatalf("%s: %d of %d items were done", what, done, n)
		}
		for i := done; i < n; i++ {
			if err := item(i); !errors.Is(err, context.Canceled) || !punctual.Definite(err) {
				t.Errorf("P13: %s: item %d after %d that were done: %v, want the context's error, definite", what, i, done, err)
			}
		}
		return done
	}

	rs, err := s.Push(&endsLater{t.Context(), 2}, large(n))
	done := wantCut("push", err, func(i int) error { return rs[i].Err })
	for i := range n {
		_, err := s.Get(t.Context(), "o", fmt.Sprint(i))
		if stored := err == nil; stored != (i < done) {
			t.Errorf("P13: item %d of a push of which %d were done: %v", i, done, err)
		}
	}
	push(t, s, large(n)[done:]...)

	as := make([]punctual.Amendment, n)
	for i := range as {
		as[i] = punctual.Amendment{Change: punctual.ChangeReschedule, Topic: "o", ID: fmt.Sprint(i), Due: testStart}
	}
	outcomes, err := s.Amend(&endsLater{t.Context(), 2}, as)
	done = wantCut("reschedule", err, func(i int) error { return outcomes[i].Err })
	for i := range n {
		info, err := s.Get(t.Context(), "o", fmt.Sprint(i))
		if moved := info.Due.Equal(testStart); err != nil || moved != (i < done) {
			t.Errorf("P13: item %d of a reschedule of which %d were done is due %v, %v", i, done, info.Due, err)
		}
	}

	ds := claim(t, s, "o", n)
	ss := make([]punctual.Settlement, n)
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: "o", ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard}
	}
	errs, err := s.Settle(&endsLater{t.Context(), 2}, ss)
	done = wantCut("discard", err, func(i int) error { return errs[i] })
	for i := range n {
		info, err := s.Get(t.Context(), "o", ss[i].ID)
		if dead := info.State == punctual.StateDead; err != nil || dead != (i < done) {
			t.Errorf("P13: item %d of a discard of which %d were done is %v, %v", i, done, info.State, err)
		}
	}
	mustBeSound(t, s)
}

// TestSpaceEndsDuringALargePush: the free space is compared with the reserve before each step, and
// not once for the call, because the call may write more than the reserve.
func TestSpaceEndsDuringALargePush(t *testing.T) {
	const n = 20
	f, free := &faults{}, uint64(1<<40)
	s := openAt(t, "store", &Options{fs: hookFS{scaleFS{vfs.NewMem(), &free}, f.hook}})
	f.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			atomic.StoreUint64(&free, 1)
			s.owned.ForgetSpace()
		}
		return nil
	})
	rs, err := s.Push(t.Context(), large(n))
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for done < n && rs[done].Err == nil {
		done++
	}
	if done == 0 || done == n || !errors.Is(rs[done].Err, punctual.ErrNoSpace) || !punctual.Definite(rs[done].Err) {
		t.Errorf("P13: with no space after the first step %d of %d messages were stored, the next: %v; want ErrNoSpace", done, n, rs[min(done, n-1)].Err)
	}
	for i := range n {
		if _, err := s.Get(t.Context(), "o", fmt.Sprint(i)); (err == nil) != (i < done) {
			t.Errorf("P13: message %d of a push of which %d were stored: %v", i, done, err)
		}
	}
}

// TestLargeCallThatIsInDoubt: when nobody knows whether a step happened, the error is one of the
// whole call, and says so.
func TestLargeCallThatIsInDoubt(t *testing.T) { alone(t, largeCallThatIsInDoubt) }

func largeCallThatIsInDoubt(t *testing.T) {
	r := newRig(t)
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	syncs := 0
	r.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			if syncs++; syncs > 3 {
				return errIO
			}
		}
		return nil
	})
	rs, err := s.Push(t.Context(), large(40))
	if _, hits, _ := r.faults.state(); hits == 0 {
		t.Fatal("no fsync failed")
	}
	if rs != nil || !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
		t.Errorf("P13: a push of which one step is in doubt: %d results, %v; want ErrIndeterminate", len(rs), err)
	}
	if err := s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close: %v, want ErrStoreFailed", err)
	}
}

// panicClock panics once, when a goroutine reads it that is in all of the functions that in names,
// and has been read spare times there.
type panicClock struct {
	storekit.Clock
	in    atomic.Pointer[[]string]
	spare atomic.Int64
}

func (c *panicClock) Now() time.Time {
	if in := c.in.Load(); in != nil {
		stack := string(debug.Stack())
		if !slices.ContainsFunc(*in, func(f string) bool { return !strings.Contains(stack, f) }) && c.spare.Add(-1) < 0 {
			c.in.Store(nil)
			panic("the clock\nis broken")
		}
	}
	return c.Clock.Now()
}

// TestPanicInATransactionEndsTheStore: a panic while a transaction is filled ends the store. No
// call waits for the write lock then, and nothing of the transaction is on disk, neither of the
// change that broke off nor of the one before.
func TestPanicInATransactionEndsTheStore(t *testing.T) { alone(t, panicInATransactionEndsTheStore) }

func panicInATransactionEndsTheStore(t *testing.T) {
	r := newRig(t)
	clock := &panicClock{Clock: storekit.NewManualClock(testStart)}
	r.opt.Clock = clock
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"}, punctual.NewMessage{Topic: "o", ID: "b"})
	claim(t, s, "o", 1)
	// Each cancel asks whether its message is under a lease. The clock panics when the second
	// cancel asks, that of a. By then the transaction has the first one, and b has left memory.
	both := []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "b"}, {Change: punctual.ChangeCancel, Topic: "o", ID: "a"}}
	clock.spare.Store(1)
	clock.in.Store(&[]string{"(*Store).Amend", "(*Tx).Cancel"})
	if in := s.index.Stats(); in.Window != 1 || in.Held != 1 {
		t.Fatalf("%d messages are in the window and %d under a lease, want b and a", in.Window, in.Held)
	}
	within(t, "amend", func() { _, err = s.Amend(t.Context(), both) })
	if clock.in.Load() != nil {
		t.Fatal("the clock did not panic")
	}
	if in := s.index.Stats(); in.Window != 0 || in.Held != 1 {
		t.Fatalf("%d messages are in the window and %d under a lease; the first cancel was to be made before the panic, and the second was not", in.Window, in.Held)
	}
	if !errors.Is(err, punctual.ErrStoreFailed) || !punctual.Definite(err) {
		t.Errorf("P13: the call that panicked: %v; want ErrStoreFailed, definite, since nothing was written", err)
	}
	r.mustStayFailed("after a panic", s)
	within(t, "close", func() { err = s.Close() })
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close: %v, want ErrStoreFailed", err)
	}
	r.opt.Clock = storekit.NewManualClock(testStart)
	s = openWhenFree(t, &r.opt)
	for _, id := range []string{"a", "b"} {
		if _, err := s.Get(t.Context(), "o", id); err != nil {
			t.Errorf("P13: %s after a change that broke off: %v", id, err)
		}
	}
	closeStore(t, s)
}

// TestPanicOnTheWayIntoATransaction: a panic before a transaction has begun gives the write lock
// back, so the store goes on.
func TestPanicOnTheWayIntoATransaction(t *testing.T) {
	clock := &panicClock{Clock: storekit.NewManualClock(testStart)}
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock})
	clock.in.Store(&[]string{"(*Store).Push", "(*Writer).newTx"})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the clock did not panic")
			}
		}()
		push(t, s, onePush...)
	}()
	within(t, "push", func() { push(t, s, onePush...) })
}

// TestPanicWithTheWriteLockHeld: a panic in a read with the write lock held ends the store, too,
// and no call waits for the write lock.
func TestPanicWithTheWriteLockHeld(t *testing.T) { alone(t, panicWithTheWriteLockHeld) }

func panicWithTheWriteLockHeld(t *testing.T) {
	r := newRig(t)
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.snapshot(t.Context(), func(view) error { panic("a mistake") })
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("P13: the call that panicked: %v; want ErrStoreFailed", err)
	}
	r.mustStayFailed("after a panic", s)
	within(t, "close", func() { err = s.Close() })
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close: %v, want ErrStoreFailed", err)
	}
}

// TestMaxBodyHasABound: a MaxBody that is negative, or larger than maxMaxBody, is refused when the
// store opens.
func TestMaxBodyHasABound(t *testing.T) {
	for _, size := range []int{-1, maxMaxBody + 1} {
		if _, err := Open("store", &Options{fs: vfs.NewMem(), MaxBody: size}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("MaxBody %d: %v, want ErrInvalid", size, err)
		}
	}
}
