package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// waitLimit is how long a call may take before it counts as hanging. A call that does not
// hang takes far less.
const waitLimit = 30 * time.Second

// within runs f. If f hangs, within fails the test and returns false.
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
	case <-time.After(waitLimit):
		t.Errorf("P10: %s hangs", what)
		return false
	}
}

// ourGoroutines returns the stacks of the goroutines of this package, without those of the tests
// and those that a failed store cannot end. The latter are inside the database, or Close has left
// them waiting for the database (shutDown).
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

// mustLeaveNothing waits for goroutines that are about to end, and fails the test for those that do
// not.
func mustLeaveNothing(t *testing.T) {
	deadline := time.Now().Add(waitLimit)
	for len(ourGoroutines()) > 0 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	for _, g := range ourGoroutines() {
		t.Errorf("a goroutine of a failed store is left:\n%s", g)
	}
}

// alone runs a test in a process of its own, so that it does not disturb the other tests: a failed
// store cannot end the goroutines that its database keeps, or that are stuck in it, and a bad
// mistake may end the process. The test fails if goroutines of our own are left.
func alone(t *testing.T, body func(t *testing.T)) {
	if os.Getenv("PUNCTUAL_ALONE") == t.Name() {
		body(t)
		mustLeaveNothing(t)
		if t.Failed() {
			os.Exit(1)
		}
		os.Exit(0) // because TestMain would find the database's goroutines
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=15m")
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

	mu    sync.Mutex
	lines []ledger.Line // guarded by mu
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, mem: vfs.NewCrashableMem()}
	r.opt = Options{fs: hookFS{r.mem, r.faults.hook}, Logger: quiet, CommitTimeout: 10 * time.Second, claimLimit: 2 << 10}
	return r
}

func (r *rig) note(e ledger.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, e)
}

// history returns a ledger of what was done so far, up to a power cut.
func (r *rig) history() *ledger.Ledger {
	l := newLedger()
	l.Expected = append(slices.Clone(expected), "store_failed", "no_space")
	for _, e := range r.lines {
		l.Add(e)
	}
	l.PowerCut(time.Now().UnixMilli())
	return l
}

// checkCopies opens three copies of the disk: with all that was not synced, as a kill leaves it,
// and with half of that and with nothing of it, as a power cut may. It compares each with the
// history.
func (r *rig) checkCopies(what string) {
	r.t.Helper()
	for _, percent := range []int{100, 50, 0} {
		l := r.history()
		mem := r.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})
		within(r.t, what+": recovery", func() {
			if err := auditStore(l, "store", Options{fs: hookFS{mem, func(fsOp) error { return nil }}}); err != nil {
				r.t.Errorf("%s, %d %% of what was not synced: %v", what, percent, err)
			}
		})
		if problems := l.Problems(); len(problems) > 0 {
			dump(r.t, r.lines)
			for _, p := range problems[:min(3, len(problems))] {
				r.t.Errorf("%s, %d %% of what was not synced: %s", what, percent, p)
			}
			r.t.FailNow()
		}
	}
}

// workload returns a workload that is ready to make single calls.
func (r *rig) workload(s *Store, process int64, seed uint64) *ledger.Workload {
	return (&ledger.Workload{Store: s, Process: process, Seed: seed, Emit: r.note}).Begin()
}

// script is a short life of a store: it is opened, used, maintained and closed, which flushes the
// database, and then all that once more. It ends early when the store cannot be opened, or when
// Close hangs. complete tells whether the life came to its end without an error.
func (r *rig) script(what string) (complete bool) {
	complete = true
	for part := range 2 {
		var s *Store
		var err error
		within(r.t, what+": open", func() { s, err = Open("store", &r.opt) })
		if err != nil {
			r.checkOpenError(what, err)
			return false
		}
		w := r.workload(s, int64(part+1), 0)
		rng := rand.New(rand.NewPCG(7, uint64(part)))
		for i := range 8 {
			calls := []func(context.Context, *rand.Rand) error{w.Push, w.Amend, w.Claim, w.Inspect}
			if i == 4 {
				calls = append(calls, func(_ context.Context, rng *rand.Rand) error { return w.PushMany(rng, 800) })
			}
			for _, call := range calls {
				within(r.t, what+": a call", func() { err = call(r.t.Context(), rng) })
				r.checkError(what, s, err)
				complete = complete && err == nil
			}
		}
		within(r.t, what+": maintenance", func() { err = s.maintain(true) })
		complete = complete && err == nil
		if !within(r.t, what+": close", func() { err = s.Close() }) {
			return false
		}
		complete = complete && err == nil
		if s.state.HasFailed() && !errors.Is(err, punctual.ErrStoreFailed) {
			r.t.Errorf("%s: close of a failed store: %v, want ErrStoreFailed", what, err)
		}
	}
	return complete
}

// checkOpenError checks the error of an Open on a bad disk: it must not say that the store is
// damaged (P13), and Open must have given the lock back.
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

// checkError checks that the error of a call is one that P13 allows, and that a failed store stays
// failed.
func (r *rig) checkError(what string, s *Store, err error) {
	switch {
	case err == nil:
	case storekit.ErrorCode(err) == "internal":
		r.t.Errorf("P13: %s: an error without a kind: %v", what, err)
	case errors.Is(err, punctual.ErrIndeterminate) && punctual.Definite(err):
		r.t.Errorf("P13: %s: both open and definite: %v", what, err)
	case !s.state.HasFailed() && !errors.Is(err, punctual.ErrNoSpace):
		r.t.Errorf("P13: %s: the store goes on after %v", what, err)
	}
	if err != nil && s.state.HasFailed() {
		r.mustStayFailed(what, s)
	}
}

// mustStayFailed checks that a failed store takes none of the calls of callsOf, and says that none
// has happened.
func (r *rig) mustStayFailed(what string, s *Store) {
	var held punctual.Settlement
	within(r.t, what+": a look for a lease after the failure", func() { held = anyLease(s) })
	for name, call := range callsOf(r.t.Context(), s, held) {
		within(r.t, what+": "+name+" after the failure", func() {
			if err := call(); !errors.Is(err, punctual.ErrStoreFailed) || !punctual.Definite(err) {
				r.t.Errorf("P13: %s: %s after the failure: %v, want ErrStoreFailed, definite", what, name, err)
			}
		})
	}
}

// anyLease returns the ack of a lease that memory knows, or if there is none an ack that no message
// has.
func anyLease(s *Store) punctual.Settlement {
	for _, v := range s.index.ViewAll() {
		for _, h := range v.Leases {
			return punctual.Settlement{Topic: h.Topic.Name, ID: h.ID, Token: h.Lease.Token, Verb: punctual.SettleAck}
		}
	}
	return punctual.Settlement{Topic: "t0", ID: "x", Token: 1, Verb: punctual.SettleAck}
}

// callsOf returns a call of each method that a failed store refuses, but for Backup. A store that
// has not failed takes each of them without an error while the lease of held is current. So what
// refuses the call is the state of the store, not a check of the arguments before it.
func callsOf(ctx context.Context, s *Store, held punctual.Settlement) map[string]func() error {
	topic, id, attempts := held.Topic, held.ID, 3
	return map[string]func() error{
		"Push": func() error {
			rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: topic}})
			for _, p := range rs {
				err = errors.Join(err, p.Err)
			}
			return err
		},
		"Claim": func() error { _, err := s.Claim(ctx, punctual.Claim{Topics: []string{topic}, Max: 1}); return err },
		"Settle": func() error {
			errs, err := s.Settle(ctx, []punctual.Settlement{held})
			return errors.Join(append(errs, err)...)
		},
		"Amend": func() error {
			os, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: id}})
			if err == nil && !errors.Is(os[0].Err, punctual.ErrLeased) {
				err = fmt.Errorf("cancel of a leased message: %w", os[0].Err)
			}
			return err
		},
		"Archive": func() error { return s.Archive(ctx, io.Discard, func(int64) {}) },
		"Now":     func() error { _, err := s.Now(ctx); return err },
		"Get":     func() error { _, err := s.Get(ctx, topic, id); return err },
		"Finished": func() error {
			if _, err := s.Finished(ctx, topic, id); !errors.Is(err, punctual.ErrNotFound) { // the message is leased
				return err
			}
			return nil
		},
		"ListFinished": func() error { _, err := s.ListFinished(ctx, punctual.FinishedQuery{Topic: topic}); return err },
		"List": func() error {
			_, err := s.List(ctx, punctual.ListQuery{Topic: topic, State: punctual.StateReady, Limit: 1})
			return err
		},
		"Topics":     func() error { _, err := s.Topics(ctx); return err },
		"TopicNames": func() error { _, err := s.TopicNames(ctx, storekit.NameQuery{}); return err },
		"NewCompanions": func() error {
			_, err := s.NewCompanions(ctx, "", 0)
			return err
		},
		"Abilities": func() error { _, err := s.Abilities(ctx); return err },
		"Clock":     func() error { _, err := s.Clock(ctx); return err },
		"StepClock": func() error { _, err := s.StepClock(ctx); return err },
		"Stats":     func() error { _, err := s.Stats(ctx, topic); return err },
		"Forecast": func() error {
			_, err := s.Forecast(ctx, punctual.ForecastQuery{Step: time.Hour, Buckets: 1})
			return err
		},
		"Settings": func() error { _, err := s.Settings(ctx, topic); return err },
		"Configure": func() error {
			_, err := s.Configure(ctx, topic, punctual.SettingsPatch{MaxAttempts: &attempts})
			return err
		},
		"Space": func() error {
			if _, err := s.Space(ctx); !errors.Is(err, punctual.ErrUnsupported) { // by a file system in memory
				return err
			}
			return nil
		},
		"Check":       func() error { _, err := s.Check(ctx, nil); return err },
		"Purge":       func() error { _, err := s.Purge(ctx, punctual.PurgeQuery{Topic: topic}); return err },
		"DeleteTopic": func() error { _, err := s.DeleteTopic(ctx, topic); return err },
	}
}

// TestFailedStoreTakesNoCall makes each call on a store that works, which takes the call, and on
// one that has failed. The failed one refuses the call, changes no file, and keeps the lease in
// memory.
func TestFailedStoreTakesNoCall(t *testing.T) { alone(t, failedStoreTakesNoCall) }

func failedStoreTakesNoCall(t *testing.T) {
	// A failed store does not refuse Close, Durability and Examine. Backup is not tried, because it
	// is Archive into a directory.
	goesOn := map[string]bool{"Close": true, "Durability": true, "Examine": true, "Backup": true}
	for m := range reflect.TypeFor[*Store]().Methods() {
		if calls := callsOf(t.Context(), nil, punctual.Settlement{}); calls[m.Name] == nil && !goesOn[m.Name] {
			t.Errorf("no test calls %s on a failed store", m.Name)
		}
	}
	for name := range callsOf(t.Context(), nil, punctual.Settlement{}) {
		_, s, _, d := leasedStore(t)
		if err := callsOf(t.Context(), s, settlement(d, punctual.SettleAck)[0])[name](); err != nil {
			t.Errorf("%s on a sound store: %v, want a call that it takes", name, err)
		}
		closeStore(t, s)
	}
	r, s, _, d := leasedStore(t)
	r.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			return errIO
		}
		return nil
	})
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o"}}); !errors.Is(err, punctual.ErrIndeterminate) || !s.state.HasFailed() {
		t.Fatalf("push with a failing sync: %v, want ErrIndeterminate and a failed store", err)
	}
	waitUntil(t, "the changes of files under way have ended", func() bool {
		return s.state.Still()
	})
	if held := anyLease(s); held.Token != d.Token {
		t.Fatalf("the lease in force is %+v, want that of %+v", held, d)
	}
	before, _, _ := r.faults.state()
	r.mustStayFailed("after a failed sync", s)
	if after, _, op := r.faults.state(); after != before {
		t.Errorf("calls that a failed store refused made %d changes of files, the last fault was at %s of %s", after-before, op.kind, op.name)
	}
	if held := anyLease(s); held.Token != d.Token {
		t.Errorf("after calls that were refused the lease in force is %+v, want that of %+v", held, d)
	}
	if err := s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close: %v, want ErrStoreFailed", err)
	}
}

// TestOrderOfChecks makes each call with a context that has ended: on a store that is open the call
// ends with the context's error, and on one that is closed with ErrClosed. Both are definite, and
// on the open store the lease stays in memory.
func TestOrderOfChecks(t *testing.T) {
	_, s, _, d := leasedStore(t)
	defer closeStore(t, s)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	calls := callsOf(ended, s, settlement(d, punctual.SettleAck)[0])
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) || !punctual.Definite(err) {
			t.Errorf("P13: %s with a context that has ended: %v, want the context's error, definite", name, err)
		}
	}
	if held := anyLease(s); held.Token != d.Token {
		t.Errorf("after calls that were refused the lease in force is %+v, want that of %+v", held, d)
	}
	closeStore(t, s)
	for name, call := range calls {
		if err := call(); !errors.Is(err, punctual.ErrClosed) || !punctual.Definite(err) {
			t.Errorf("P13: %s of a closed store, with a context that has ended: %v, want ErrClosed, definite", name, err)
		}
	}
}

// TestSlowEveryFault runs the script and fails the n-th change of a file, once or from then on. It
// does so for some eight values of n, spread over the life of the store, until that life ends
// before the n-th change.
func TestSlowEveryFault(t *testing.T) { alone(t, everyFault) }

func everyFault(t *testing.T) {
	probe := newRig(t)
	if !probe.script("no fault") {
		t.Fatal("a life without a fault does not come to its end")
	}
	probe.checkCopies("no fault")
	total, _, _ := probe.faults.state()
	const samples = 8
	step := max(total/samples, 1)
	rng := rand.New(rand.NewPCG(tortureSeed(t), 0))
	for _, mode := range []struct {
		name   string
		err    error
		sticky bool
	}{{"EIO once", errIO, false}, {"EIO from then on", errIO, true}, {"ENOSPC from then on", errSpace, true}} {
		first := 1
		for ; ; first += step {
			k := first + rng.IntN(step)
			if !oneFault(t, fmt.Sprintf("%s at change %d of about %d", mode.name, k, total), k, mode.err, mode.sticky) {
				break
			}
		}
		if first < total/2 {
			t.Errorf("%s: the life of the store ends before change %d, and that without a fault had %d", mode.name, first+step, total)
		}
	}
}

// oneFault runs the script with a fault at the k-th change, and at all later ones if sticky is set.
// reached is false when the life of the store ended before that change, and so without a fault.
func oneFault(t *testing.T, what string, k int, fault error, sticky bool) (reached bool) {
	r := newRig(t)
	r.faults.set(func(n int, op fsOp) error {
		if n != k && (!sticky || n < k) {
			return nil
		}
		if n == k {
			t.Logf("%s: %s of %s", what, op.kind, op.name)
			reached = true
		}
		return fault
	})
	complete := r.script(what)
	count, hits, _ := r.faults.state()
	r.faults.set(nil)
	switch {
	case reached && hits == 0:
		t.Errorf("%s: the change was reached but not refused", what)
	case !reached && count >= k:
		t.Errorf("%s: of %d changes none met the fault", what, count)
	case !reached && !complete:
		t.Errorf("%s: the life of the store ended with an error after %d changes, before any fault", what, count)
	}
	r.checkCopies(what)
	return reached
}

// isLog tells whether a call is for the database's log, which has the same ending as the claim log.
func isLog(op fsOp) bool {
	return strings.HasSuffix(op.name, ".log") && !strings.HasPrefix(op.name, "claims-")
}

// TestSlowFailedSyncOfTheLog fails one fsync of the log, each of the first 25 after Open in turn,
// while several callers use the store. A later fsync would succeed; no caller may take that for
// their own.
func TestSlowFailedSyncOfTheLog(t *testing.T) { alone(t, failedSyncOfTheLog) }

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
		w := r.workload(s, 1, uint64(k))
		within(t, what, func() { w.Run(t.Context()) }) // every goroutine ends with an error
		if _, hits, _ := r.faults.state(); hits != 1 {
			t.Fatalf("%s: %d syncs failed, want 1", what, hits)
		}
		if !s.state.HasFailed() {
			t.Fatalf("%s: the calls ended but the store has not failed", what)
		}
		r.mustStayFailed(what, s)
		within(t, what+": close", func() { err = s.Close() })
		if !errors.Is(err, punctual.ErrStoreFailed) {
			t.Errorf("%s: close: %v, want ErrStoreFailed", what, err)
		}
		r.checkCopies(what)
	}
}

// TestCallsUnderWayWhenTheLogFails checks the errors themselves: a push that waits for the fsync
// that fails may or may not have happened, and its error says so; a later push certainly did not
// happen.
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
	if _, hits, _ := r.faults.state(); hits == 0 {
		t.Fatal("no sync of the log failed")
	}
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

// unlockFS is a hookFS that calls unlocks when a lock is about to be given back.
type unlockFS struct {
	hookFS
	unlocks func()
}

func (f unlockFS) Lock(name string) (io.Closer, error) {
	lock, err := f.hookFS.Lock(name)
	if err != nil {
		return nil, err
	}
	return notedLock{lock, f.unlocks}, nil
}

type notedLock struct {
	io.Closer
	unlocks func()
}

func (l notedLock) Close() error {
	l.unlocks()
	return l.Closer.Close()
}

// flushStopped tells whether a flush is stopped for good (failstop.BlockForever): the goroutine of
// the flush itself, or the one that writes its table.
func flushStopped() bool {
	buf := make([]byte, 4<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "failstop.BlockForever") &&
			(strings.Contains(g, "pebble/v2.(*DB).flush") || strings.Contains(g, "pebble/v2/sstable.")) {
			return true
		}
	}
	return false
}

// TestSlowFailedStoreLeavesItsFilesAlone reopens a directory in the same process after a failure,
// as docs/durability.md allows. The database of the failed store is in the middle of a flush. The
// directory has no new owner before the change of a file that is under way has ended. What the
// flush does afterwards does not touch the files of the new owner.
func TestSlowFailedStoreLeavesItsFilesAlone(t *testing.T) { alone(t, failedStoreLeavesItsFilesAlone) }

func failedStoreLeavesItsFilesAlone(t *testing.T) {
	r := newRig(t)
	atUnlock := make(chan int, 2) // how many changes of files the old store had made when it gave its lock back
	r.opt.fs = unlockFS{hookFS{r.mem, r.faults.hook}, func() {
		count, _, _ := r.faults.state()
		atUnlock <- count
	}}
	old, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	w := r.workload(old, 1, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		if err := w.Push(t.Context(), rng); err != nil {
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
	flushed, err := old.db.StartFlush()
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the way of the flush to its table", func() { <-arrived })
	r.faults.set(func(_ int, op fsOp) error {
		if op.kind == "sync" && isLog(op) {
			return errIO
		}
		return nil
	})
	if err := w.Push(t.Context(), rng); !errors.Is(err, punctual.ErrIndeterminate) {
		t.Fatalf("push with a failing sync: %v", err)
	}
	within(t, "close", func() { err = old.Close() })
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Fatalf("close: %v", err)
	}
	r.faults.set(nil)

	o := &Options{fs: hookFS{r.mem, func(fsOp) error { return nil }}, Logger: quiet}
	if _, err := Open("store", o); !errors.Is(err, punctual.ErrLocked) || len(atUnlock) > 0 {
		t.Fatalf("open while a change of a file of the failed store is under way: %v, want ErrLocked", err)
	}
	if flushStopped() {
		t.Fatal("the flush is stopped before the change of a file that it waits for has ended")
	}
	close(gate)
	young := openWhenFree(t, o)
	before := <-atUnlock
	w = r.workload(young, 2, 2)
	for range 50 {
		if err := w.Push(t.Context(), rng); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, "the flush of the failed store is stopped or has ended", func() bool {
		select {
		case <-flushed:
			return true
		default:
			return flushStopped()
		}
	})
	if after, _, _ := r.faults.state(); after > before {
		t.Errorf("the closed store made %d changes to the directory of its successor", after-before)
	}
	if err := w.Push(t.Context(), rng); err != nil {
		t.Errorf("push to the new store: %v", err)
	}
	closeStore(t, young)
	r.checkCopies("after a failed store was reopened in the same process")
}

// openWhenFree opens the store as soon as its directory has no owner any more.
func openWhenFree(t *testing.T, o *Options) *Store {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); ; runtime.Gosched() {
		s, err := Open("store", o)
		if err == nil {
			return s
		}
		if !errors.Is(err, punctual.ErrLocked) || time.Now().After(deadline) {
			t.Fatalf("a failed store that was closed does not let go of its directory: %v", err)
		}
	}
}

// TestSlowHangingDisk lets one kind of call to the disk hang until the end, or every call: the
// store's calls must end all the same, and so must Close.
func TestSlowHangingDisk(t *testing.T) {
	t.Parallel()
	alone(t, hangingDisk)
}

func hangingDisk(t *testing.T) {
	syncOfLog := func(op fsOp) bool { return op.kind == "sync" && isLog(op) }
	ofClaims := func(kind string) func(fsOp) bool {
		return func(op fsOp) bool { return op.kind == kind && strings.HasPrefix(op.name, "claims-") }
	}
	push := func(ctx context.Context, s punctual.Store) error {
		_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "hot0", ID: "x", Due: storekit.FromMillis(1)}})
		return err
	}
	claim := func(ctx context.Context, s punctual.Store) error {
		_, err := s.Claim(ctx, punctual.Claim{Topics: ledger.WorkloadTopics(), Max: 1})
		return err
	}
	rotate := func(_ context.Context, s punctual.Store) error {
		return s.(*ledger.Recorder).Unwrap().(*Store).replaceFullSegment(context.Background())
	}
	for _, c := range []struct {
		name string
		hang func(fsOp) bool
		call func(context.Context, punctual.Store) error
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

func hangs(t *testing.T, what string, hang func(fsOp) bool, call func(context.Context, punctual.Store) error, gone bool) {
	r := newRig(t)
	r.opt.CommitTimeout = 2 * time.Second // the pushes before the fault take far less
	if gone {
		r.opt.CommitTimeout = 10 * time.Second // far more than it takes to give up
	}
	s, err := Open("store", &r.opt)
	if err != nil {
		t.Fatal(err)
	}
	w := r.workload(s, 1, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		if err := w.Push(t.Context(), rng); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	gate := make(chan struct{})
	defer close(gate)
	r.faults.hang(func(op fsOp) chan struct{} {
		if !hang(op) {
			return nil
		}
		if gone {
			stop() // because the call has reached the disk
		}
		return gate
	})
	mustHang := func() {
		t.Helper()
		if _, hangs, _ := r.faults.state(); hangs == 0 {
			t.Errorf("%s: nothing hangs", what)
		}
	}
	if call != nil {
		if !within(t, what, func() { err = call(ctx, w.Recorder()) }) {
			return
		}
		mustHang()
		if !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("P13: %s: the call ended with %v, want ErrIndeterminate", what, err)
		}
		if gone && (!errors.Is(err, context.Canceled) || s.state.HasFailed()) {
			t.Errorf("%s: the call ended with %v, want the error of its context before the disk is taken for failed", what, err)
		}
		if !gone && !s.state.HasFailed() {
			t.Errorf("%s: the call ended with %v, but the store has not failed", what, err)
		}
	}
	if !within(t, what+": close", func() { err = s.Close() }) {
		return
	}
	mustHang()
	if !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("%s: close: %v, want ErrStoreFailed", what, err)
	}
	r.checkCopies(what)
}
