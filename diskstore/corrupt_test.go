package diskstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// A store is made, closed or killed, and copied; one file of the copy is
// damaged in one way. Then Open, Check and a drain must either report the damage, as ErrCorrupt
// or as a problem that Check finds, or deliver all that was acknowledged.

// classOf returns the name of the class of a file of the store.
func classOf(name string) string {
	switch {
	case strings.HasPrefix(name, "claims-"):
		return "claim log"
	case strings.HasSuffix(name, ".log"):
		return "log"
	case strings.HasSuffix(name, ".sst"):
		return "table"
	case strings.HasPrefix(name, "MANIFEST-"):
		return "manifest"
	case strings.HasPrefix(name, "OPTIONS-"):
		return "options"
	case strings.HasPrefix(name, "marker."):
		return "marker"
	case strings.HasPrefix(name, "OWNER-"):
		return "owner"
	}
	return name // LOCK, FORMAT-2
}

// damage is a way to damage a file: do changes bytes of it, the first of them at a given place, and
// a nil do stands for removing the file.
type damage struct {
	name string
	do   func(data []byte, from int) []byte
}

var damages = []damage{
	{"flip a bit", func(data []byte, from int) []byte {
		data[from] ^= 0x10
		return data
	}},
	{"zero 4 KiB", func(data []byte, from int) []byte {
		clear(data[from:min(from+4096, len(data))])
		return data
	}},
	{"cut", func(data []byte, from int) []byte { return data[:from] }},
	{"remove", nil},
}

// damagedStore is a directory to be copied and damaged, with all that was acknowledged.
type damagedStore struct {
	mem   *vfs.MemFS
	lines []ledger.Line
	// tail is where the last acknowledged record begins in the newest log of a killed store. Damage
	// after tail looks to the database like a record that a power cut tore. The durable marker in
	// the claim log tells the two apart.
	tail int
}

// fill works on a store and returns it with its history. If many is set, a part of the messages is
// in two tables and the rest in the log; otherwise all are in the log.
func fill(t *testing.T, many bool) (s *Store, made damagedStore) {
	t.Helper()
	made.mem = vfs.NewCrashableMem()
	emit := func(e ledger.Line) { made.lines = append(made.lines, e) }
	w := &ledger.Workload{Process: 1, Seed: 3, Emit: emit}
	r := rand.New(rand.NewPCG(3, 3))
	open := func() {
		var err error
		if s, err = Open("store", memOptions(made.mem)); err != nil {
			t.Fatal(err)
		}
		if w.Store = s; w.Recorder() == nil {
			w.Begin()
		}
		w.Reopened(s)
	}
	work := func(f func(context.Context, *rand.Rand) error, n int) {
		for range n {
			if err := f(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	open()
	if many {
		// Only two tables are made, because a failed database tries for ever to compact a damaged
		// one.
		work(w.Push, 60)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		open()
		work(w.Push, 30)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		work(w.Push, 120) // more than one block of the log
	}
	work(w.Push, 20)
	work(w.Amend, 5)
	work(w.Claim, 3)
	work(w.Push, 20)
	made.tail = len(readMem(t, made.mem, newestLogOf(t, made.mem)))
	work(w.Push, 1)
	return s, made
}

// memOptions returns the options of a store in a file system in memory.
func memOptions(mem *vfs.MemFS) *Options {
	return &Options{fs: hookFS{mem, func(fsOp) error { return nil }}, Logger: quiet}
}

// copyOf returns a file system with the same files, but without the locks.
func copyOf(mem *vfs.MemFS) *vfs.MemFS {
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

func filesOf(t *testing.T, mem *vfs.MemFS) []string {
	t.Helper()
	names, err := mem.List("store")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func newestLogOf(t *testing.T, mem *vfs.MemFS) (newest string) {
	t.Helper()
	for _, n := range filesOf(t, mem) {
		if classOf(n) == "log" {
			newest = n
		}
	}
	return newest
}

func readMem(t *testing.T, mem *vfs.MemFS, name string) []byte {
	t.Helper()
	data, err := failstop.ReadFile(mem, "store/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSlowDamagedClosedStore damages each class of files of a store that was closed.
func TestSlowDamagedClosedStore(t *testing.T) {
	alone(t, func(t *testing.T) {
		s, made := fill(t, false)
		closeStore(t, s)
		damageAll(t, made, noticing{
			always:    every("table"),
			sometimes: slices.Concat(every("manifest"), []string{"marker, remove"}, optionsDamage),
			never:     slices.Concat(every("claim log"), every("owner"), removals, every("log")),
		})
	})
}

// TestSlowDamagedKilledStore does the same to a store whose process was killed, which has its
// messages in the log.
func TestSlowDamagedKilledStore(t *testing.T) {
	alone(t, func(t *testing.T) { damageKilled(t, false) })
}

// TestSlowDamagedLargeStore does the same to a killed store that has two tables and has been
// reopened.
func TestSlowDamagedLargeStore(t *testing.T) { alone(t, func(t *testing.T) { damageKilled(t, true) }) }

func damageKilled(t *testing.T, many bool) {
	s, made := fill(t, many)
	working := made.mem
	made.mem = copyOf(working) // the operating system keeps what was written, as after a kill
	closeStore(t, s)
	want := noticing{
		sometimes: slices.Concat(every("manifest"), []string{"marker, remove"}, optionsDamage, every("log")),
		never:     slices.Concat(every("claim log"), every("owner"), removals),
	}
	if many {
		want.always = every("table")
	}
	damageAll(t, made, want)
}

// noticing says which damage is noticed, as docs/lab/reliability.md does; each item is a class of
// files and a kind of damage. Damage is noticed only sometimes where the file has copies, or places
// on which nothing depends.
type noticing struct{ always, sometimes, never []string }

var (
	optionsDamage = []string{"options, zero 4 KiB", "options, cut"}
	removals      = []string{"FORMAT-2, remove", "LOCK, remove"} // both are empty
)

// every returns all damages of a class of files.
func every(class string) (keys []string) {
	for _, d := range damages {
		keys = append(keys, class+", "+d.name)
	}
	return keys
}

// tally counts how damages of one kind ended: refused by Open, reported later, without a loss, or
// with a loss that nobody noticed.
type tally struct{ refused, reported, intact, lost int }

func (c *tally) noticed() int { return c.refused + c.reported }
func (c *tally) done() int    { return c.noticed() + c.intact + c.lost }

func damageAll(t *testing.T, made damagedStore, want noticing) {
	counts := map[string]*tally{}
	for _, name := range filesOf(t, made.mem) {
		size := len(readMem(t, made.mem, name))
		for _, d := range damages {
			key := classOf(name) + ", " + d.name
			if counts[key] == nil {
				counts[key] = &tally{}
			}
			at := places(classOf(name), size, made.tail)
			switch {
			case d.do == nil:
				at = []int{0}
			case size == 0:
				continue
			}
			for _, from := range at {
				damageOne(t, made, name, d, from, fmt.Sprintf("%s: %s at %d of %d", name, d.name, from, size), counts[key])
			}
		}
	}
	want.check(t, counts)
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		c := counts[key]
		t.Logf("%-22s refused by Open %2d, reported later %2d, all there %2d, lost unnoticed %2d",
			key, c.refused, c.reported, c.intact, c.lost)
	}
}

// check compares what was noticed with what is expected, and fails the test where nothing was
// damaged at all.
func (x noticing) check(t *testing.T, counts map[string]*tally) {
	t.Helper()
	each := func(keys []string, right func(*tally) bool, what string) {
		for _, key := range keys {
			c := counts[key]
			if c == nil || c.done() == 0 {
				t.Errorf("P13: %s: nothing was damaged", key)
			} else if !right(c) {
				t.Errorf("P13: %s: of %d damages %d were noticed, want %s", key, c.done(), c.noticed(), what)
			}
		}
	}
	each(x.always, func(c *tally) bool { return c.noticed() == c.done() }, "all")
	each(x.sometimes, func(c *tally) bool { return c.noticed() > 0 }, "one at least")
	each(x.never, func(c *tally) bool { return c.noticed() == 0 }, "none, for nothing is missing")
}

// places returns the places at which a file of some size is damaged.
func places(class string, size, tail int) []int {
	switch {
	case size < 8:
		return []int{0}
	case class == "table": // each leaves a failed database behind that tries to compact it
		return []int{size / 3}
	case class != "log" && class != "manifest":
		return []int{size / 3, size - 10}
	}
	out := []int{0, 11, size / 3, size * 2 / 3, size - 50, size - 1}
	if tail > 100 && tail < size {
		out = append(out, tail-10, tail+10)
	}
	return slices.DeleteFunc(out, func(at int) bool { return at < 0 || at >= size })
}

func damageOne(t *testing.T, made damagedStore, name string, d damage, from int, what string, c *tally) {
	t.Helper()
	mem := copyOf(made.mem)
	if !hurt(t, mem, name, d, from) {
		return // the bytes are as before, so nobody can notice anything
	}
	l := newLedger()
	for _, e := range made.lines {
		l.Add(e)
	}
	l.PowerCut(time.Now().UnixMilli())
	var err error
	if !within(t, what, func() { err = auditStore(l, "store", *memOptions(mem)) }) {
		return
	}
	problems := l.Problems()
	switch {
	case err != nil && !errors.Is(err, punctual.ErrCorrupt):
		t.Errorf("P13: %s: reported, but not as ErrCorrupt: %v", what, err)
	case err != nil && strings.HasPrefix(err.Error(), "open store"):
		c.refused++
	case err != nil:
		c.reported++
	case len(problems) == 0:
		c.intact++
	case strings.Contains(problems[0], ": check: "):
		c.reported++ // by Check, before anything else was done
	default:
		c.lost++
		t.Errorf("P1, P13: %s: damage goes unnoticed: %s", what, problems[0])
	}
}

// hurt damages a file, and tells whether that changed the file, because bytes that are zeroed may
// have been zero before.
func hurt(t *testing.T, mem *vfs.MemFS, name string, d damage, from int) bool {
	t.Helper()
	data := readMem(t, mem, name)
	if d.do == nil {
		if err := mem.Remove("store/" + name); err != nil {
			t.Fatal(err)
		}
		return true
	}
	before := slices.Clone(data)
	if data = d.do(data, from); bytes.Equal(data, before) {
		return false
	}
	f, err := mem.Create("store/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return true
}
