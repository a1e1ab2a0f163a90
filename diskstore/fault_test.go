package diskstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
)

// patience is how long a call may take before it counts as hanging. Nothing here takes
// a hundredth of it.
const patience = 30 * time.Second

// within runs f; it fails and returns false when f hangs.
func within(t *testing.T, what string, f func()) bool {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		t.Errorf("P10: %s hangs", what)
		return false
	}
}

// ourGoroutines are the stacks of the goroutines of this package, but for the tests' own and for
// those that a failed store cannot end: those inside the database, and the one that Close left
// waiting for them (shutDown).
func ourGoroutines() (stacks []string) {
	buf := make([]byte, 4<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "punctual/diskstore.") && !strings.Contains(g, "testing.tRunner") &&
			!strings.Contains(g, "_test.go") && !strings.Contains(g, "cockroachdb/pebble") &&
			!strings.Contains(g, "(*Store).shutDown") {
			stacks = append(stacks, g)
		}
	}
	return stacks
}

// mustLeaveNothing waits a little for goroutines that are about to end.
func mustLeaveNothing(t *testing.T) {
	deadline := time.Now().Add(patience / 10)
	for len(ourGoroutines()) > 0 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	for _, g := range ourGoroutines() {
		t.Errorf("a goroutine of a failed store is left:\n%s", g)
	}
}

// alone runs a test in a process of its own. A failed store cannot end the goroutines that its
// database keeps, or that are stuck in it, and a bad mistake ends the process; neither may
// disturb the other tests. What is left of our own goroutines is a failure.
func alone(t *testing.T, body func(t *testing.T)) {
	if os.Getenv("PUNCTUAL_ALONE") == t.Name() {
		body(t)
		mustLeaveNothing(t)
		if t.Failed() {
			os.Exit(1)
		}
		os.Exit(0) // TestMain would find the database's goroutines
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m",
		fmt.Sprintf("-torture.seed=%d", *seedFlag))
	cmd.Env = append(os.Environ(), "PUNCTUAL_ALONE="+t.Name())
	out, err := cmd.CombinedOutput()
	if len(out) > 12_000 {
		out = out[:12_000]
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Logf("%s", out)
}

// rig is a store on a disk with faults, and the history of what was done to it.
type rig struct {
	t      *testing.T
	mem    *vfs.MemFS
	faults faults
	opt    Options

	mu     sync.Mutex
	ledger *ledger // guarded by mu
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, mem: vfs.NewCrashableMem(), ledger: newLedger()}
	r.opt = Options{fs: hookFS{r.mem, r.faults.hook}, Logger: quiet, CommitTimeout: 10 * time.Second, claimLimit: 2 << 10}
	return r
}

func (r *rig) note(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.add(e)
}

// record notes a call that is expected to fail.
func (r *rig) record(kind string, asked []fact, call func() error) error {
	w := &workload{emit: r.note}
	w.calls.Store(1 << 50)
	return w.do(kind, asked, func() ([]fact, error) { return asked, call() })
}

// verdict opens copies of the disk as a restart of the process and as a power cut would leave
// it, and compares them with the history.
func (r *rig) verdict(what string) {
	r.t.Helper()
	for _, percent := range []int{100, 50, 0} {
		l := r.ledger.clone()
		l.crash(true)
		mem := r.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})
		within(r.t, what+": recovery", func() {
			if err := l.judge("store", Options{fs: hookFS{mem, func(fsOp) error { return nil }}, Logger: quiet}); err != nil {
				r.t.Errorf("%s, %d %% of what was not synced: %v", what, percent, err)
			}
		})
		for _, p := range l.problems {
			r.t.Errorf("%s, %d %% of what was not synced: %s", what, percent, p)
		}
	}
}

// script is a short life of a store: work, a flush, work, closed, reopened, work. It ends
// early when the store cannot be opened.
func (r *rig) script(what string) {
	for part := range 2 {
		var s *Store
		var err error
		within(r.t, what+": open", func() { s, err = Open("store", &r.opt) })
		if err != nil {
			r.checkOpenError(what, err)
			return
		}
		w := &workload{store: s, prefix: fmt.Sprintf("p%d", part), emit: r.note}
		w.calls.Store(int64(part+1) << 32)
		rng := rand.New(rand.NewPCG(7, uint64(part)))
		for i := range 8 {
			calls := []func(context.Context, *rand.Rand) error{w.push, w.amend, w.claim}
			if i == 4 {
				calls = append(calls, w.pushMuch)
			}
			for _, call := range calls {
				within(r.t, what+": a call", func() { err = call(r.t.Context(), rng) })
				r.checkError(what, s, err)
			}
		}
		within(r.t, what+": housekeeping", func() { err = s.doDuties(true) })
		if !within(r.t, what+": close", func() { err = s.Close() }) {
			return
		}
		if s.hasFailed() && !errors.Is(err, punctual.ErrStoreFailed) {
			r.t.Errorf("%s: close of a failed store: %v, want ErrStoreFailed", what, err)
		}
	}
}

// checkOpenError holds the error of an Open on a bad medium against P13: it is not the store that
// is damaged.
func (r *rig) checkOpenError(what string, err error) {
	if errors.Is(err, punctual.ErrCorrupt) {
		r.t.Errorf("P13: %s: the disk refuses, but Open says that the store is damaged: %v", what, err)
	}
	lock, lerr := r.mem.Lock("store/LOCK")
	switch {
	case os.IsNotExist(lerr): // there is no directory yet
	case lerr != nil:
		r.t.Errorf("%s: the lock is still held after Open returned %v", what, err)
	default:
		lock.Close()
	}
}

// checkError holds an error of a call against P13.
func (r *rig) checkError(what string, s *Store, err error) {
	switch {
	case err == nil:
	case punctual.ErrorCode(err) == "internal":
		r.t.Errorf("P13: %s: an error without a kind: %v", what, err)
	case errors.Is(err, punctual.ErrIndeterminate) && punctual.Definite(err):
		r.t.Errorf("P13: %s: both open and definite: %v", what, err)
	case !s.hasFailed() && !errors.Is(err, punctual.ErrNoSpace):
		r.t.Errorf("P13: %s: the store goes on after %v", what, err)
	}
	if err != nil && s.hasFailed() {
		r.mustStayFailed(what, s)
	}
}

// mustStayFailed checks that a failed store takes no call of any kind.
func (r *rig) mustStayFailed(what string, s *Store) {
	ctx := r.t.Context()
	calls := map[string]func() error{
		"push":  func() error { _, err := s.Push(ctx, []punctual.NewMessage{{Topic: "t0"}}); return err },
		"claim": func() error { _, err := s.Claim(ctx, punctual.Claim{Topics: []string{"t0"}, Max: 1}); return err },
		"settle": func() error {
			_, err := s.Settle(ctx, []punctual.Settlement{{Topic: "t0", ID: "x", Verb: punctual.SettleAck}})
			return err
		},
		"amend": func() error {
			_, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "t0", ID: "x"}})
			return err
		},
		"now":    func() error { _, err := s.Now(ctx); return err },
		"get":    func() error { _, err := s.Get(ctx, "t0", "x"); return err },
		"topics": func() error { _, err := s.Topics(ctx); return err },
		"check":  func() error { _, err := s.Check(ctx, nil); return err },
		"purge":  func() error { _, err := s.Purge(ctx, punctual.PurgeQuery{Topic: "t0"}); return err },
		"delete": func() error { _, err := s.DeleteTopic(ctx, "t0"); return err },
		"settings": func() error {
			_, err := s.Configure(ctx, "t0", punctual.SettingsPatch{MaxAttempts: new(int)})
			return err
		},
	}
	for name, call := range calls {
		within(r.t, what+": "+name+" after the failure", func() {
			if err := call(); !errors.Is(err, punctual.ErrStoreFailed) && !errors.Is(err, punctual.ErrInvalid) {
				r.t.Errorf("P13: %s: %s after the failure: %v, want ErrStoreFailed", what, name, err)
			}
		})
	}
}

// clone copies a ledger, so that several copies of a disk can be compared with it.
func (l *ledger) clone() *ledger {
	c := *l
	c.msgs, c.calls = make(map[string]*history, len(l.msgs)), make(map[int64]*call, len(l.calls))
	for id, h := range l.msgs {
		copied := *h
		copied.dues = slices.Clone(h.dues)
		copied.ending = make(map[int64]bool, len(h.ending))
		for n := range h.ending {
			copied.ending[n] = true
		}
		c.msgs[id] = &copied
	}
	for n, k := range l.calls {
		c.calls[n] = k
	}
	c.problems = slices.Clone(l.problems)
	return &c
}

// TestEveryFault fails the n-th change of a file, for every few n, once or from then on, in each
// moment of a store's life: making it, work, flush, close, reopening.
func TestEveryFault(t *testing.T) { alone(t, everyFault) }

func everyFault(t *testing.T) {
	probe := newRig(t)
	probe.script("no fault")
	probe.verdict("no fault")
	total, _, _ := probe.faults.state()
	const samples = 12
	rng := rand.New(rand.NewPCG(tortureSeed(t), 0))
	for _, mode := range []struct {
		name   string
		err    error
		sticky bool
	}{{"EIO once", errIO, false}, {"EIO from then on", errIO, true}, {"ENOSPC from then on", errSpace, true}} {
		hits := 0
		for i := range samples {
			k := 1 + i*total/samples + rng.IntN(max(total/samples, 1))
			if oneFault(t, fmt.Sprintf("%s at change %d of about %d", mode.name, k, total), k, mode.err, mode.sticky) {
				hits++
			}
		}
		if hits < samples/2 {
			t.Errorf("%s: only %d of %d runs met their fault", mode.name, hits, samples)
		}
	}
}

// oneFault runs the script with a fault at the k-th change, and from then on if sticky.
func oneFault(t *testing.T, what string, k int, fault error, sticky bool) (hit bool) {
	r := newRig(t)
	r.faults.set(func(n int, op fsOp) error {
		if n != k && (!sticky || n < k) {
			return nil
		}
		if n == k {
			t.Logf("%s: %s of %s", what, op.kind, op.name)
		}
		return fault
	})
	r.script(what)
	_, hits, _ := r.faults.state()
	r.faults.set(nil)
	r.verdict(what)
	return hits > 0
}

// isLog tells the database's log from the claim log.
func isLog(op fsOp) bool {
	return strings.HasSuffix(op.name, ".log") && !strings.HasPrefix(op.name, "claims-")
}

// TestFailedSyncOfTheLog fails the fsync of the log once, at each of the first syncs, while
// several callers wait for it. The fsync that would follow succeeds; nobody may take it for theirs.
func TestFailedSyncOfTheLog(t *testing.T) { alone(t, failedSyncOfTheLog) }

func failedSyncOfTheLog(t *testing.T) {
	for k := 1; k <= 25; k++ {
		r := newRig(t)
		s, err := Open("store", &r.opt)
		if err != nil {
			t.Fatal(err)
		}
		syncs := 0
		r.faults.set(func(_ int, op fsOp) error {
			if op.kind == "sync" && isLog(op) {
				if syncs++; syncs == k {
					return errIO
				}
			}
			return nil
		})
		what := fmt.Sprintf("sync %d of the log", k)
		w := &workload{store: s, prefix: "m", seed: uint64(k), emit: r.note}
		within(t, what, func() { w.run(t.Context()) }) // every goroutine ends with an error
		if !s.hasFailed() {
			t.Fatalf("%s: the calls ended but the store has not failed", what)
		}
		r.mustStayFailed(what, s)
		within(t, what+": close", func() { err = s.Close() })
		if !errors.Is(err, punctual.ErrStoreFailed) {
			t.Errorf("%s: close: %v, want ErrStoreFailed", what, err)
		}
		r.verdict(what)
	}
}

// TestCallsUnderWayWhenTheLogFails looks at the errors themselves: those who wait for the fsync
// that fails learn that their call may or may not have happened.
func TestCallsUnderWayWhenTheLogFails(t *testing.T) { alone(t, callsUnderWayWhenTheLogFails) }

func callsUnderWayWhenTheLogFails(t *testing.T) {
	r := newRig(t)
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	r.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			return errIO
		}
		return nil
	})
	_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "a"}})
	if !errors.Is(err, punctual.ErrIndeterminate) || !errors.Is(err, punctual.ErrStoreFailed) || punctual.Definite(err) {
		t.Errorf("P13: push under way: %v, want ErrIndeterminate and ErrStoreFailed", err)
	}
	_, err = s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "b"}})
	if !errors.Is(err, punctual.ErrStoreFailed) || !punctual.Definite(err) {
		t.Errorf("P13: push afterwards: %v, want ErrStoreFailed, definite", err)
	}
	if err := s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close: %v, want ErrStoreFailed", err)
	}
}

// TestFailedStoreLeavesItsFilesAlone reopens a directory in the same process after a failure, as
// the documentation advises, while the database of the failed store is still in the middle of a
// flush. What that flush does afterwards must not touch the files of the new owner.
func TestFailedStoreLeavesItsFilesAlone(t *testing.T) { alone(t, failedStoreLeavesItsFilesAlone) }

func failedStoreLeavesItsFilesAlone(t *testing.T) {
	r := newRig(t)
	old, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{store: old, prefix: "old", emit: r.note}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		if err := w.push(t.Context(), rng); err != nil {
			t.Fatal(err)
		}
	}
	gate, arrived := make(chan struct{}), make(chan struct{}, 100)
	r.faults.hang(func(op fsOp) chan struct{} {
		if op.kind == "create" && strings.HasSuffix(op.name, ".sst") {
			arrived <- struct{}{}
			return gate
		}
		return nil
	})
	flushed, err := old.db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	r.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			return errIO
		}
		return nil
	})
	if err := w.push(t.Context(), rng); !errors.Is(err, punctual.ErrIndeterminate) {
		t.Fatalf("push with a failing sync: %v", err)
	}
	within(t, "close", func() { err = old.Close() })
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Fatalf("close: %v", err)
	}
	r.faults.set(nil)

	o := &Options{fs: hookFS{r.mem, func(fsOp) error { return nil }}, Logger: quiet}
	young, err := Open("store", o)
	released := false
	if errors.Is(err, punctual.ErrLocked) { // while a change of a file is under way that is right
		close(gate)
		released = true
		young = openWhenFree(t, o)
	} else if err != nil {
		t.Fatal(err)
	}
	w = &workload{store: young, prefix: "young", emit: r.note}
	w.calls.Store(1 << 32)
	for range 50 {
		if err := w.push(t.Context(), rng); err != nil {
			t.Fatal(err)
		}
	}
	before, _, _ := r.faults.state()
	if !released {
		close(gate)
	}
	select {
	case <-flushed:
	case <-time.After(300 * time.Millisecond): // it was stopped, which cannot be waited for
	}
	if after, _, op := r.faults.state(); after > before {
		t.Errorf("the closed store made %d changes to the directory of its successor (the last fault was at %s of %s)", after-before, op.kind, op.name)
	}
	if err := w.push(t.Context(), rng); err != nil {
		t.Errorf("push to the new store: %v", err)
	}
	closeStore(t, young)
	r.verdict("after a failed store was reopened in the same process")
}

// openWhenFree opens the store as soon as its directory is let go.
func openWhenFree(t *testing.T, o *Options) *Store {
	t.Helper()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		s, err := Open("store", o)
		if err == nil {
			return s
		}
		if !errors.Is(err, punctual.ErrLocked) || time.Now().After(deadline) {
			t.Fatalf("a failed store that was closed does not let go of its directory: %v", err)
		}
	}
}

// TestHangingDisk lets one kind of call to the disk never return: calls must end all the same, and
// so must Close.
func TestHangingDisk(t *testing.T) { alone(t, hangingDisk) }

func hangingDisk(t *testing.T) {
	syncOfLog := func(op fsOp) bool { return op.kind == "sync" && isLog(op) }
	ofClaims := func(kind string) func(fsOp) bool {
		return func(op fsOp) bool { return op.kind == kind && strings.HasPrefix(op.name, "claims-") }
	}
	push := func(ctx context.Context, s *Store, r *rig) error {
		return r.record("push", []fact{{ID: "x", Due: 1, Max: plenty}}, func() error {
			_, err := s.Push(ctx, []punctual.NewMessage{{Topic: topicOf("x"), ID: "x", Body: bodyOf("x"), Due: punctual.FromMillis(1), MaxAttempts: plenty}})
			return err
		})
	}
	claim := func(ctx context.Context, s *Store, r *rig) error {
		return r.record("claim", nil, func() error {
			_, err := s.Claim(ctx, punctual.Claim{Topics: allTopicNames(), Max: 1})
			return err
		})
	}
	rotate := func(_ context.Context, s *Store, _ *rig) error {
		return s.replaceClaims(context.Background())
	}
	for _, c := range []struct {
		name string
		hang func(fsOp) bool
		call func(context.Context, *Store, *rig) error
		gone bool // the caller gives up before the disk is taken for failed
	}{
		{"sync of the log", syncOfLog, push, false},
		{"write of the log", func(op fsOp) bool { return op.kind == "write" && isLog(op) }, push, false},
		{"sync of the log, and the caller gives up", syncOfLog, push, true},
		{"everything, at close", func(fsOp) bool { return true }, nil, false},
		{"sync of the log, at close", syncOfLog, nil, false},
		{"write of the claim log", ofClaims("write"), claim, false},
		{"sync of the claim log", ofClaims("sync"), rotate, false},
	} {
		hangs(t, c.name, c.hang, c.call, c.gone)
	}
}

func hangs(t *testing.T, what string, hang func(fsOp) bool, call func(context.Context, *Store, *rig) error, gone bool) {
	r := newRig(t)
	r.opt.CommitTimeout = 300 * time.Millisecond
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{store: s, prefix: "m", emit: r.note}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		if err := w.push(t.Context(), rng); err != nil {
			t.Fatal(err)
		}
	}
	gate := make(chan struct{})
	defer close(gate)
	r.faults.hang(func(op fsOp) chan struct{} {
		if hang(op) {
			return gate
		}
		return nil
	})
	if call != nil {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if gone {
			time.AfterFunc(20*time.Millisecond, stop)
		}
		if !within(t, what, func() { err = call(ctx, s, r) }) {
			return
		}
		if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("P13: %s: the call ended with %v, want ErrIndeterminate", what, err)
		}
	}
	if !within(t, what+": close", func() { err = s.Close() }) {
		return
	}
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("%s: close: %v, want ErrStoreFailed", what, err)
	}
	r.verdict(what)
}
