package diskstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// crashClones is how many power cuts the ordinary test run makes at least; PUNCTUAL_POWER_CUTS asks
// for another number.
const crashClones = 100

// TestSlowPowerCut cuts the power of a machine that works on a store. Each clone of its files, with
// any part of what was not synced missing, must open and hold all that was acknowledged, but for
// what a power cut may take (doc.go).
func TestSlowPowerCut(t *testing.T) {
	t.Parallel()
	seed := tortureSeed(t)
	want := ledger.FromEnv(t, "PUNCTUAL_POWER_CUTS", crashClones)
	began, cuts, acked, hung := time.Now(), 0, 0, 0
	lost, kept := map[string]int{}, map[string]int{}
	for run := uint64(0); cuts < want && !t.Failed(); run++ {
		p := newPowerCuts(seed, run)
		p.work(t)
		for i, c := range p.clones {
			l := p.check(t, i, c)
			acked += l.Acknowledged
			for _, class := range unsyncedClasses {
				lost[class] += c.lost[class]
				kept[class] += c.kept[class]
			}
		}
		if t.Failed() {
			dump(t, p.lines)
		}
		cuts += len(p.clones)
		hung += p.hung
	}
	t.Logf("%d power cuts in %v, on average after %d acknowledged calls, and %d fsyncs that hung", cuts, time.Since(began).Round(time.Second), acked/max(cuts, 1), hung)
	if hung == 0 {
		t.Error("no fsync hung")
	}
	for _, class := range unsyncedClasses {
		t.Logf("%s: %d cuts took what was written and not synced, %d left some of it", class, lost[class], kept[class])
		if lost[class] == 0 || kept[class] == 0 {
			t.Errorf("of what was not synced of a %s %d cuts took some and %d left some, want both", class, lost[class], kept[class])
		}
	}
}

// unsyncedClasses are the files that have something written and not synced most of the time.
var unsyncedClasses = []string{"log", "claim log"}

// powerCuts is one run of a workload and the clones taken from it.
type powerCuts struct {
	mem *vfs.MemFS
	run uint64

	mu     sync.Mutex
	rng    *rand.Rand    // guarded by mu
	lines  []ledger.Line // guarded by mu
	clones []powerClone  // guarded by mu
	armed  bool          // guarded by mu: clones are taken
	hung   int           // guarded by mu: calls to the disk that hung
}

// powerClone is what was on the disk at some moment between two lines of the history.
type powerClone struct {
	mem     *vfs.MemFS
	op      fsOp
	percent int   // the chance with which each block that was not synced reached the disk
	lines   int   // how many lines of the history were written down before the cut
	at      int64 // the time just after the cut, in Unix milliseconds

	// lost and kept are, by class, the files that lack something that was written, and those that
	// have something that was not synced.
	lost, kept map[string]int
}

const clonesPerRun = 25

func newPowerCuts(seed, run uint64) *powerCuts {
	return &powerCuts{mem: vfs.NewCrashableMem(), run: run, rng: rand.New(rand.NewPCG(seed, run))}
}

func (p *powerCuts) note(e ledger.Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, e)
}

// hook lets some fsyncs of the log hang for a moment, so that calls are made that find what is not
// durable yet. It also takes a clone before some of the calls to the disk, more often before fsyncs
// that hung and before calls that are neither a write nor an fsync.
func (p *powerCuts) hook(op fsOp) error {
	hangs := p.hangs(op)
	if hangs > 0 {
		time.Sleep(hangs)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	chance := 60
	switch {
	case hangs > 0:
		chance = 2
	case op.kind != "write" && op.kind != "sync":
		chance = 4
	}
	if p.armed && len(p.clones) < clonesPerRun && p.rng.IntN(chance) == 0 {
		p.cut(op)
	}
	return nil
}

// hangs returns for how long a call to the disk hangs.
func (p *powerCuts) hangs(op fsOp) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed || op.kind != "sync" || !isLog(op) || p.rng.IntN(12) > 0 {
		return 0
	}
	p.hung++
	return time.Duration(1+p.rng.IntN(25)) * time.Millisecond
}

// cut takes a clone. Called with mu held, so that nobody can write a line meanwhile: the lines
// written so far are those of the time before the cut.
func (p *powerCuts) cut(op fsOp) {
	c := powerClone{op: op, percent: p.rng.IntN(101), lines: len(p.lines)}
	if p.rng.IntN(3) == 0 {
		c.percent = 0
	}
	rng := rand.New(rand.NewPCG(p.rng.Uint64(), 0))
	// Other files may be written and synced meanwhile. What stands in the first clone was written
	// before the cut, and what is missing in the last one was not synced before it.
	written := copyOf(p.mem)
	c.mem = p.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.percent, RNG: rng})
	c.at = time.Now().UnixMilli()
	synced := p.mem.CrashClone(vfs.CrashCloneCfg{})
	c.lost, c.kept = missing(written, c.mem), missing(c.mem, synced)
	p.clones = append(p.clones, c)
}

// missing counts, by class, the files of a store that have something in one clone that is not in
// another.
func missing(from, in *vfs.MemFS) map[string]int {
	out := map[string]int{}
	names, err := from.List("store")
	if err != nil {
		return out // the store is not made yet
	}
	for _, name := range names {
		class := classOf(name)
		if !slices.Contains(unsyncedClasses, class) {
			continue
		}
		a, aerr := from.UnsafeGetFileDataBuffer("store/" + name)
		b, berr := in.UnsafeGetFileDataBuffer("store/" + name)
		if aerr == nil && len(a) > 0 && (berr != nil || !bytes.HasPrefix(b, a)) { // these files only grow
			out[class]++
		}
	}
	return out
}

func (p *powerCuts) arm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = true
}

func (p *powerCuts) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.clones) >= clonesPerRun
}

// work runs a workload, with a flush now and then and the store reopened in between, until
// enough clones are taken.
func (p *powerCuts) work(t *testing.T) {
	o := &Options{fs: hookFS{p.mem, p.hook}, Logger: quiet, claimLimit: 16 << 10}
	if p.run%3 == 0 {
		p.arm() // also while the store is made
	}
	for part := 0; !p.full(); part++ {
		s, err := Open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		p.arm()
		p.workPart(t, s, part)
		closeStore(t, s)
	}
}

func (p *powerCuts) workPart(t *testing.T, s *Store, part int) {
	ctx, stop := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer stop()
	w := &ledger.Workload{
		Store: s, Process: int64(part + 1), Seed: p.run<<8 + uint64(part), Emit: p.note, Deadlines: true, Worker: true, BigBodies: true, PurgeLive: true,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(40 * time.Millisecond):
			if err := s.db.Flush(); err != nil {
				t.Error(err)
			}
		}
	}
}

// check opens a clone and compares it with the history up to the cut.
func (p *powerCuts) check(t *testing.T, i int, c powerClone) *ledger.Ledger {
	t.Helper()
	l := newLedger()
	for _, e := range p.lines[:c.lines] {
		l.Add(e)
	}
	l.PowerCut(c.at)
	what := fmt.Sprintf("run %d, clone %d, before %s of %s, %d %% of what was not synced", p.run, i, c.op.kind, c.op.name, c.percent)
	if err := auditStore(l, "store", Options{fs: hookFS{c.mem, func(fsOp) error { return nil }}}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, problem := range l.Problems() {
		t.Errorf("%s: %s", what, problem)
	}
	return l
}

// TestSlowMarkerNeedsItsDirectorySynced shows one purpose of failstop.FS. Without that file system
// a power cut while a new MANIFEST comes into force may leave a marker that names a missing file
// (cockroachdb/pebble issue 5825). The test cuts the power of a bare database, too, to show that it
// cuts at the right moments.
func TestSlowMarkerNeedsItsDirectorySynced(t *testing.T) {
	r := rand.New(rand.NewPCG(tortureSeed(t), 0))
	bare := rotateUnderCuts(t, r, func(fs vfs.FS) vfs.FS { return fs })
	safe := rotateUnderCuts(t, r, func(fs vfs.FS) vfs.FS {
		state := failstop.New("store", quiet, time.Minute)
		t.Cleanup(func() {
			if err := state.Cause(); err != nil {
				t.Errorf("store failed: %v", err)
			}
		})
		return failstop.NewFS(fs, state, func() error { return nil }, failstop.Database)
	})
	t.Logf("clones that do not open: %d of %d with the bare file system, %d of %d with failstop.FS", bare.bad, bare.all, safe.bad, safe.all)
	if safe.bad > 0 {
		t.Errorf("P1: %d of %d clones do not open: %v", safe.bad, safe.all, safe.err)
	}
	if bare.bad == 0 {
		t.Error("the bare database opened from every clone: either it was mended, and failstop.FS need not sync, or this test cuts at the wrong moments")
	}
}

type cutCounts struct {
	bad, all int
	err      error
}

// rotateUnderCuts reopens a database many times, which begins a new MANIFEST each time, and cuts
// the power before each call that concerns the marker.
func rotateUnderCuts(t *testing.T, r *rand.Rand, wrap func(vfs.FS) vfs.FS) (n cutCounts) {
	mem := vfs.NewCrashableMem()
	var clones []*vfs.MemFS
	var mu sync.Mutex
	fs := wrap(hookFS{mem, func(op fsOp) error {
		if strings.HasPrefix(op.name, "marker.manifest") || op.kind == "sync" && op.name == "store" {
			mu.Lock()
			defer mu.Unlock()
			clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(100), RNG: r}))
		}
		return nil
	}})
	for range 100 {
		db, err := pebble.Open("store", &pebble.Options{FS: fs, Logger: silentLog{t}})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clones[10:] { // the first ones are of a database that is being made
		n.all++
		db, err := pebble.Open("store", &pebble.Options{FS: c, Logger: silentLog{t}})
		if err != nil {
			n.bad++
			n.err = err
			continue
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	return n
}

// silentLog is a log of a database that fails the test on a fatal error and drops everything else.
type silentLog struct{ t *testing.T }

func (silentLog) Infof(string, ...any)             {}
func (silentLog) Errorf(string, ...any)            {}
func (l silentLog) Fatalf(format string, a ...any) { l.t.Errorf(format, a...) }
