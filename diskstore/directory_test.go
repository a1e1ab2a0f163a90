package diskstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// opened is what a process that opens a store reports.
type opened struct {
	Err    string // why it could not
	Locked bool   // the error is ErrLocked
	Stored int    // how many pushes succeeded
}

// inAnotherProcess opens a store in a process of its own, pushes n messages child-0 and so on, and
// closes it.
func inAnotherProcess(t *testing.T, dir string, n int) (o opened) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOpenerChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), "PUNCTUAL_OPENER_DIR="+dir, fmt.Sprintf("PUNCTUAL_OPENER_PUSHES=%d", n))
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("the other process: %v\n%s%s", err, &out, &complaints)
	}
	line, _, _ := bytes.Cut(out.Bytes(), []byte("\n"))
	if err := json.Unmarshal(line, &o); err != nil {
		t.Fatalf("the other process says %q: %v", out.String(), err)
	}
	return o
}

// TestOpenerChild is the process that inAnotherProcess starts; by itself it does nothing.
func TestOpenerChild(t *testing.T) {
	dir := os.Getenv("PUNCTUAL_OPENER_DIR")
	if dir == "" {
		t.Skip("this is the child process of other tests")
	}
	var o opened
	s, err := Open(dir, &Options{Logger: quiet})
	if err != nil {
		o = opened{Err: err.Error(), Locked: errors.Is(err, punctual.ErrLocked)}
	} else {
		o.Stored = len(pushAll(t, s, "child", ledger.FromEnv(t, "PUNCTUAL_OPENER_PUSHES", 1)))
		closeStore(t, s)
	}
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

// pushAll pushes n messages, name-0 and so on, in topic o, each in a call of its own, and returns
// the IDs.
func pushAll(t *testing.T, s *Store, name string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%d", name, i))
		push(t, s, punctual.NewMessage{Topic: "o", ID: ids[i], Due: testStart})
	}
	return ids
}

// mustHold fails the test unless the store is sound, has as many live messages as there are IDs,
// and has each of these in topic o.
func mustHold(t *testing.T, s *Store, ids []string) {
	t.Helper()
	if r := mustBeSound(t, s); r.Live != int64(len(ids)) {
		t.Errorf("P1 no loss: %d messages, want %d", r.Live, len(ids))
	}
	for _, id := range ids {
		if _, err := s.Get(t.Context(), "o", id); err != nil {
			t.Errorf("P1 no loss: %s: %v", id, err)
		}
	}
}

// mustBeRefused fails the test unless another process was refused with ErrLocked and the number of
// this process.
func mustBeRefused(t *testing.T, o opened) {
	t.Helper()
	if !o.Locked || !strings.Contains(o.Err, fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("a second process opened the store and stored %d messages, error %q; want ErrLocked with the owner's process number", o.Stored, o.Err)
	}
}

// TestOwnerReadsItsLock: a backup or a checksum in the owner's own process opens and closes every
// file. When a process closes a file it loses its POSIX locks of that file, but the directory must
// keep its owner.
func TestOwnerReadsItsLock(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, nil)
	ids := pushAll(t, s, "owner", 10)
	if len(contentsOf(t, dir)) < 5 {
		t.Fatal("the directory was not read")
	}
	mustBeRefused(t, inAnotherProcess(t, dir, 10))
	mustHold(t, s, append(ids, pushAll(t, s, "later", 10)...))
}

// TestLockFileRemoved: the directory keeps its owner when somebody removes the file LOCK.
func TestLockFileRemoved(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, nil)
	ids := pushAll(t, s, "owner", 10)
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	mustBeRefused(t, inAnotherProcess(t, dir, 10))
	mustFind(t, examined(t, dir, nil), "in use", storekit.SeverityWarning, fmt.Sprintf("process %d ", os.Getpid()))
	if _, err := Open(dir, nil); !errors.Is(err, punctual.ErrLocked) {
		t.Errorf("a second opener in the same process: %v, want ErrLocked", err)
	}
	mustHold(t, s, append(ids, pushAll(t, s, "later", 10)...))
}

// lockless is a file system on which locks do not hold, as on some network file systems.
type lockless struct{ vfs.FS }

func (f lockless) Unwrap() vfs.FS { return f.FS }

func (lockless) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// TestTwoOwners takes the lock of an open store away and lets a second store open its directory.
// The first must notice that before it reports a change or a lease, and what either has reported is
// kept.
func TestTwoOwners(t *testing.T) { alone(t, twoOwners) }

func twoOwners(t *testing.T) {
	for _, c := range []struct {
		what string
		call func(s *Store, held punctual.Delivery) error
	}{
		{"push", func(s *Store, _ punctual.Delivery) error {
			_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "late"}})
			return err
		}},
		{"claim", func(s *Store, _ punctual.Delivery) error {
			_, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: 1})
			return err
		}},
		{"ack", func(s *Store, held punctual.Delivery) error {
			_, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "o", ID: held.ID, Token: held.Token, Verb: punctual.SettleAck}})
			return err
		}},
		{"cancel", func(s *Store, _ punctual.Delivery) error {
			_, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "o", ID: "old-5"}})
			return err
		}},
		{"close", nil},
	} {
		dir := t.TempDir()
		old, err := Open(dir, &Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ids := pushAll(t, old, "old", 20)
		held := claim(t, old, "o", 1)[0]
		letGoOfLock(t, old)
		young, err := Open(dir, &Options{Logger: quiet})
		if err != nil {
			t.Fatalf("the lock was not defeated: %v", err)
		}
		ids = append(ids, pushAll(t, young, "young", 20)...)
		if c.call != nil {
			if err := c.call(old, held); !errors.Is(err, punctual.ErrStoreFailed) || punctual.Definite(err) {
				t.Errorf("P1, P3, P5: %s of a store whose directory another one has opened: %v, want ErrStoreFailed and ErrIndeterminate", c.what, err)
			} else if text := err.Error(); !strings.Contains(text, fmt.Sprintf("process %d ", os.Getpid())) || !strings.Contains(text, dir) {
				t.Errorf("%s: %v; want the directory and the process that opened it", c.what, err)
			}
			fs, err := old.Examine(t.Context())
			if err != nil {
				t.Errorf("%s: examine: %v", c.what, err)
			}
			mustFind(t, fs, "directory", storekit.SeverityBad, "was opened by process")
		}
		if err := old.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
			t.Errorf("%s: close of the first store: %v, want ErrStoreFailed", c.what, err)
		}
		ids = append(ids, pushAll(t, young, "younger", 20)...)
		if again, err := Open(dir, nil); !errors.Is(err, punctual.ErrLocked) {
			t.Errorf("%s: the first store gave the lock of the second away: %v", c.what, err)
			if err == nil {
				closeStore(t, again)
			}
		}
		closeStore(t, young)
		s, err := Open(dir, &Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, ids)
		closeStore(t, s)
	}
}

// letGoOfLock takes the locks of a store away from it.
func letGoOfLock(t *testing.T, s *Store) {
	t.Helper()
	if err := s.owned.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenedDuringTheFsync: the first store's push is in its fsync while a second store opens the
// directory and reads it. The second store may not have read the push, so the push must not be
// reported as stored.
func TestOpenedDuringTheFsync(t *testing.T) { alone(t, openedDuringTheFsync) }

func openedDuringTheFsync(t *testing.T) {
	mem, f := vfs.NewMem(), faults{}
	old, err := Open("store", &Options{fs: lockless{hookFS{mem, f.hook}}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	f.hang(func(op fsOp) chan struct{} {
		if op.kind == "sync" && isLog(op) {
			arrived <- struct{}{}
			return release
		}
		return nil
	})
	result := make(chan error, 1)
	go func() {
		_, err := old.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "caught"}})
		result <- err
	}()
	<-arrived
	young, err := Open("store", &Options{fs: lockless{mem}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-result; !errors.Is(err, punctual.ErrIndeterminate) || !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("P1: the push that was in its fsync when the other store opened the directory: %v, want ErrIndeterminate and ErrStoreFailed", err)
	}
	if err := old.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close of the first store: %v, want ErrStoreFailed", err)
	}
	closeStore(t, young)
}

// TestFormerOwnerLeavesFilesAlone: the database of the first store flushes after a second one has
// opened the directory. The two number their files alike, so the first store must make none any
// more, and in the end the directory has all messages of both.
func TestFormerOwnerLeavesFilesAlone(t *testing.T) { alone(t, formerOwnerLeavesFilesAlone) }

func formerOwnerLeavesFilesAlone(t *testing.T) {
	mem := vfs.NewMem()
	old, err := Open("store", &Options{fs: lockless{mem}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ids := pushAll(t, old, "old", 20)
	young, err := Open("store", &Options{fs: lockless{mem}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, pushAll(t, young, "young", 20)...)
	before := filesOf(t, mem)
	if err := flush(t, old); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("a flush: %v, want ErrStoreFailed", err)
	}
	if err := old.replaceFullSegment(t.Context()); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("a new segment of the claim log: %v, want ErrStoreFailed", err)
	}
	if err := old.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close of the first store: %v, want ErrStoreFailed", err)
	}
	for _, n := range filesOf(t, mem) { // some may be missing, because the second store's database removes what it needs no more
		if !slices.Contains(before, n) {
			t.Errorf("the first store made %s in the directory of the second, which held %v", n, before)
		}
	}
	closeStore(t, young)
	s, err := Open("store", &Options{fs: lockless{mem}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, ids)
	closeStore(t, s)
}

// TestEveryChangeLooksForTheMark takes the mark away before, or during, each kind of change that
// must look for the mark. Without the mark no file is made, renamed or removed, and nothing is
// reported as kept.
func TestEveryChangeLooksForTheMark(t *testing.T) {
	buf := []byte("x")
	for _, c := range []struct {
		op     string // the call of the file system below that must not be reached, or during which the mark is removed
		during bool
		change func(fs vfs.FS, f vfs.File) error
	}{
		{"create", false, func(fs vfs.FS, _ vfs.File) error {
			_, err := fs.Create("store/new", vfs.WriteCategoryUnspecified)
			return err
		}},
		{"create", false, func(fs vfs.FS, _ vfs.File) error {
			_, err := fs.OpenReadWrite("store/new", vfs.WriteCategoryUnspecified)
			return err
		}},
		{"remove", false, func(fs vfs.FS, _ vfs.File) error {
			_, err := fs.ReuseForWrite("store/old", "store/new", vfs.WriteCategoryUnspecified)
			return err
		}},
		{"link", false, func(fs vfs.FS, _ vfs.File) error { return fs.Link("store/old", "store/new") }},
		{"rename", false, func(fs vfs.FS, _ vfs.File) error { return fs.Rename("store/old", "store/new") }},
		{"remove", false, func(fs vfs.FS, _ vfs.File) error { return fs.Remove("store/old") }},
		{"remove", false, func(fs vfs.FS, _ vfs.File) error { return fs.RemoveAll("store/old") }},
		{"sync", true, func(_ vfs.FS, f vfs.File) error { return f.Sync() }},
		{"sync", true, func(_ vfs.FS, f vfs.File) error { return f.SyncData() }},
		{"sync", true, func(_ vfs.FS, f vfs.File) error { _, err := f.SyncTo(1); return err }},
		{"write", true, func(_ vfs.FS, f vfs.File) error { _, err := f.Write(buf); return err }},
	} {
		mem, fault, asked := vfs.NewMem(), faults{}, 0
		if err := mem.MkdirAll("store", 0o700); err != nil {
			t.Fatal(err)
		}
		state := failstop.New("store", quiet, time.Minute)
		dir := directory.New(mem, "store", 0, state, quiet)
		fs := failstop.NewFS(hookFS{mem, fault.hook}, state, dir.Verify, failstop.Store)
		if _, err := dir.Own(0); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Create("store/old", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		takeAway := func() {
			names, err := mem.List("store")
			i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "OWNER-") })
			if err == nil && i >= 0 {
				err = mem.Remove(mem.PathJoin("store", names[i]))
			}
			if err != nil || i < 0 {
				t.Errorf("no mark was removed: %v", err)
			}
		}
		if !c.during {
			takeAway()
		}
		fault.set(func(_ int, op fsOp) error {
			if op.kind == c.op {
				if asked++; c.during {
					takeAway()
				}
			}
			return nil
		})
		err = c.change(fs, f)
		if want := map[bool]int{true: 1, false: 0}[c.during]; asked != want {
			t.Errorf("%s was called %d times, want %d", c.op, asked, want)
		}
		if err == nil || !state.HasFailed() {
			t.Errorf("P1: %s without the mark: error %v, failure of the store %v; want both", c.op, err, state.Cause())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// workAfter pushes before and after something happens to the directory. After each later push it
// makes the store begin new files: a table, a log and a segment of the claim log. It returns the
// IDs that were reported as stored, and the first error.
func workAfter(t *testing.T, s *Store, happens func()) (ids []string, failed error) {
	t.Helper()
	ids = pushAll(t, s, "before", 50)
	happens()
	for i := range 3 {
		id := fmt.Sprintf("after-%d", i)
		if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: id, Due: testStart}}); err != nil {
			return ids, err
		}
		ids = append(ids, id)
		if err := flush(t, s); err != nil {
			return ids, err
		}
		if err := s.replaceFullSegment(t.Context()); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// flush has the database begin a new log and write a table. It does so in a goroutine of its own,
// because the database of a store that fails does not return.
func flush(t *testing.T, s *Store) (err error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.db.Flush() }()
	within(t, "the flush", func() {
		select {
		case err = <-done:
		case <-s.state.Failed():
			err = s.state.Failure()
		}
	})
	return err
}

// TestDirectoryStaysTheSame: a store opened by a relative path, or through a link, stays where it
// was opened. The process may go elsewhere, and the link may lead elsewhere.
func TestDirectoryStaysTheSame(t *testing.T) {
	for _, c := range []struct {
		what    string
		name    string // below the parent directory, where the process is
		happens func(t *testing.T, parent string)
	}{
		{"chdir", "store", func(t *testing.T, _ string) { t.Chdir(t.TempDir()) }},
		{"chdir to where the same name is another store", "store", func(t *testing.T, _ string) {
			other := t.TempDir()
			storeIn(t, filepath.Join(other, "store"), nil)
			t.Chdir(other)
		}},
		{"a link that leads elsewhere", "link", func(t *testing.T, parent string) {
			link := filepath.Join(parent, "link")
			if err := errors.Join(os.Mkdir(filepath.Join(parent, "elsewhere"), 0o700), os.Remove(link), os.Symlink("elsewhere", link)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			parent := t.TempDir()
			store := filepath.Join(parent, "store")
			if err := errors.Join(os.Mkdir(store, 0o700), os.Symlink("store", filepath.Join(parent, "link"))); err != nil {
				t.Fatal(err)
			}
			t.Chdir(parent)
			s, err := Open(c.name, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := workAfter(t, s, func() { c.happens(t, parent) })
			if err != nil {
				t.Errorf("the store fails: %v", err)
			}
			closeStore(t, s)
			mustHold(t, openAt(t, store, nil), ids)
		})
	}
}

// TestDirectoryGone moves, replaces or removes the directory of an open store. The path does not
// lead to it any more, so nothing may be reported as stored, and Close must say so.
func TestDirectoryGone(t *testing.T) { alone(t, directoryGone) }

func directoryGone(t *testing.T) {
	for _, c := range []struct {
		what    string
		happens func(dir string) error
		after   string // the directory below the parent that has the messages then; empty if there is none
	}{
		{"moved", func(dir string) error { return os.Rename(dir, dir+"-moved") }, "store-moved"},
		{"moved, an empty one in its place", func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-moved"), os.Mkdir(dir, 0o700))
		}, "store-moved"},
		{"a copy in its place", func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-moved"), os.CopyFS(dir, os.DirFS(dir+"-moved")), os.Remove(ownerFiles(t, dir)[0]))
		}, "store-moved"},
		{"removed", os.RemoveAll, ""},
	} {
		for _, first := range []string{"a change of a file", "the free space", "close"} { // what finds out that the directory is gone
			parent := t.TempDir()
			dir := filepath.Join(parent, "store")
			s, err := Open(dir, &Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			change := func() {
				if err := c.happens(dir); err != nil {
					t.Fatal(err)
				}
				if first == "the free space" {
					s.owned.ForgetSpace()
				}
			}
			if first == "close" {
				ids = pushAll(t, s, "before", 50)
				change()
			} else {
				ids, err = workAfter(t, s, change)
				if !errors.Is(err, punctual.ErrStoreFailed) || !strings.Contains(err.Error(), dir) {
					t.Errorf("P1: a store whose directory was %s stored %d of 50 messages, error %v; want ErrStoreFailed with the directory", c.what, len(ids), err)
				}
				if len(ids) != 50 {
					t.Errorf("P1: %d messages were reported as stored after the directory was %s", len(ids)-50, c.what)
				}
			}
			if err := s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
				t.Errorf("close of a store whose directory was %s: %v, want ErrStoreFailed", c.what, err)
			}
			if c.after == "" {
				continue
			}
			s, err = Open(filepath.Join(parent, c.after), &Options{Logger: quiet})
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
				continue
			}
			for _, id := range ids[:50] {
				if _, err := s.Get(t.Context(), "o", id); err != nil {
					t.Errorf("P1 no loss: %s: %s: %v", c.what, id, err)
				}
			}
			mustBeSound(t, s)
			closeStore(t, s)
		}
	}
}

func ownerFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "OWNER-*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%d owners in %s: %v", len(names), dir, err)
	}
	return names
}

// TestNewDirectoriesAreDurable cuts the power after the first pushes into a new store, above which
// two directories were new, too.
func TestNewDirectoriesAreDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s, err := Open("a/b/store", memOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	ids := pushAll(t, s, "m", 3)
	cut := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
	closeStore(t, s)
	after := openAt(t, "a/b/store", memOptions(cut))
	mustHold(t, after, ids)
}

// TestNewerFormat: a store that a newer program has written is refused with an error that names its
// format and asks for a newer release. Neither Open nor Examine changes anything in the directory.
func TestNewerFormat(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(t *testing.T, dir string)
		want   []string
	}{
		{"ours", func(t *testing.T, dir string) {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "FORMAT-3"), nil, 0o600), os.Remove(filepath.Join(dir, "FORMAT-2"))); err != nil {
				t.Fatal(err)
			}
		}, []string{"format 3", "reads 2", "newer"}},
		{"ours, from before the first release", func(t *testing.T, dir string) {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "FORMAT-1"), nil, 0o600), os.Remove(filepath.Join(dir, "FORMAT-2"))); err != nil {
				t.Fatal(err)
			}
		}, []string{"format 1", "reads 2", "use the release that wrote it"}},
		{"the database's", func(t *testing.T, dir string) {
			names, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
			if err != nil || len(names) != 1 {
				t.Fatalf("markers: %v, %v", names, err)
			}
			if err := os.Rename(names[0], strings.TrimSuffix(names[0], filepath.Ext(names[0]))+".999"); err != nil {
				t.Fatal(err)
			}
		}, []string{"format 999", "newer"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			storeIn(t, dir, nil)
			c.change(t, dir)
			before, changed := contentsOf(t, dir), timesOf(t, dir)
			_, err := Open(dir, &Options{Logger: quiet})
			if !errors.Is(err, punctual.ErrUnsupported) || errors.Is(err, punctual.ErrCorrupt) {
				t.Errorf("open: %v, want ErrUnsupported and no word of damage", err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("open: %v, want %q in it", err, want)
				}
			}
			fs := examined(t, dir, nil)
			mustFind(t, fs, "store", storekit.SeverityBad, c.want[0])
			for _, f := range fs {
				if f.Name == "damage" || strings.Contains(f.Remedy, "backup") {
					t.Errorf("the examination takes a newer format for damage: %+v", f)
				}
			}
			if after := contentsOf(t, dir); !maps.Equal(after, before) {
				t.Errorf("files changed: %v, before %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
			}
			if after := timesOf(t, dir); !maps.Equal(after, changed) {
				t.Errorf("files were written: %v, before %v", after, changed)
			}
		})
	}
}

// timesOf returns when each file in a directory was changed last.
func timesOf(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	times := map[string]time.Time{}
	for path := range contentsOf(t, dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		times[path] = info.ModTime()
	}
	return times
}

// failedLocks is a file system that sends to failed when an attempt to lock a directory has failed.
type failedLocks struct {
	vfs.FS
	failed chan struct{}
}

func (f failedLocks) Lock(name string) (io.Closer, error) {
	l, err := f.FS.Lock(name)
	if err != nil {
		select {
		case f.failed <- struct{}{}:
		default:
		}
	}
	return l, err
}

// TestLockWait: an Open with a LockWait gets the directory when its owner ends, and ErrLocked when
// the owner goes on.
func TestLockWait(t *testing.T) {
	mem := vfs.NewMem()
	first := openAt(t, "store", &Options{fs: mem, Logger: quiet})
	f := failedLocks{mem, make(chan struct{}, 1)}
	type result struct {
		s   *Store
		err error
	}
	opened := make(chan result, 1)
	go func() {
		s, err := Open("store", &Options{fs: f, Logger: quiet, LockWait: time.Hour})
		opened <- result{s, err}
	}()
	select {
	case <-f.failed:
	case r := <-opened:
		t.Fatalf("opened while another store had the directory: %v", r.err)
	}
	if _, err := Open("store", &Options{fs: mem, Logger: quiet, LockWait: time.Millisecond}); !errors.Is(err, punctual.ErrLocked) {
		t.Errorf("Open while the owner goes on: %v, want ErrLocked", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	r := <-opened
	if r.err != nil {
		t.Fatalf("Open after the owner has ended: %v", r.err)
	}
	if err := r.s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open("store", &Options{fs: mem, LockWait: -1}); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("Open with a negative LockWait: %v, want ErrInvalid", err)
	}
}
