package diskstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
)

// What an examination takes for worth a word.
const (
	slowFsync   = 50 * time.Millisecond // a push that comes alone waits for one
	fsyncs      = 5                     // of which the median counts
	clockBehind = time.Second
)

// Examine says what the store in a directory stands on, or would stand on, without opening it; see
// punctual.Examiner. It is for stores that refuse to open; an open one has a method of the
// same name. Of the options Clock, ReserveBytes and CommitTimeout count; o may be nil.
//
// Nothing is changed, but where it is allowed one small file is made, written, synced and removed:
// in the directory, or in the nearest one above that exists. The lock is tried for an instant,
// and held only to look again at what seems damaged.
//
// The damage found is what opening the store would meet; only Check reads everything. A disk that
// does not answer for CommitTimeout is a finding; the goroutine that asked it ends when it answers.
func Examine(ctx context.Context, dir string, o *Options) ([]punctual.Finding, error) {
	x := &examination{dir: dir, base: dir, opt: o.withDefaults()}
	return x.run(ctx, x.directory, x.contents, x.probe, x.space, x.clock, x.fileSystem)
}

// Examine says what the store stands on; see punctual.Examiner. A store that has failed may be
// examined, too. Like the function Examine it makes and removes one small file.
func (s *Store) Examine(ctx context.Context) ([]punctual.Finding, error) {
	if err := s.state.EnterFailed(); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	defer s.state.Leave()
	x := &examination{dir: s.dir, base: s.dir, opt: s.opt, open: s}
	return x.run(ctx, x.directory, x.state, x.probe, x.space, x.clock, x.fileSystem)
}

// examination is one look at what is below a store. Its steps run one after the other; none
// begins before the one before has ended.
type examination struct {
	dir  string
	base string // the directory itself, or the nearest one above that exists
	opt  Options
	open *Store // nil unless the store is open in this process

	there  bool      // the directory holds a store
	wrong  bool      // no store can be there: there is no point in further steps
	names  []string  // what the directory holds
	passed time.Time // what the store's clock has passed; zero if it is not known
}

// run takes the steps, each in a goroutine of its own, because the disk may hang.
func (x *examination) run(ctx context.Context, steps ...func() []punctual.Finding) (findings []punctual.Finding, err error) {
	for _, step := range steps {
		found := make(chan []punctual.Finding, 1)
		go func() { found <- step() }()
		timer := time.NewTimer(x.opt.CommitTimeout)
		select {
		case fs := <-found:
			timer.Stop()
			findings = append(findings, fs...)
		case <-timer.C:
			return append(findings, bad("disk", fmt.Sprintf("no answer for %v", x.opt.CommitTimeout),
				"the disk hangs, and so would a store: look at the disk and at the kernel's log")), nil
		case <-ctx.Done():
			timer.Stop()
			return findings, fmt.Errorf("examine store %s: %w", x.dir, errkind.Ended(ctx))
		}
		if x.wrong {
			break
		}
	}
	return findings, nil
}

func good(name, value string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityGood}
}

func warning(name, value, remedy string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityWarning, Remedy: remedy}
}

func bad(name, value, remedy string) punctual.Finding {
	return punctual.Finding{Name: name, Value: value, Severity: punctual.SeverityBad, Remedy: remedy}
}

// directory looks for the directory.
func (x *examination) directory() []punctual.Finding {
	if x.open != nil {
		if err := x.open.owned.Verify(); err != nil {
			x.wrong = true
			return []punctual.Finding{bad("directory", oneLine(err), "this store reports nothing more as stored: end this process or the other one, see to the directory, then open the store again")}
		}
	}
	full := x.dir
	if vfs.Root(x.opt.fs) == vfs.Default {
		if abs, err := filepath.Abs(x.dir); err == nil {
			full = abs
		}
	}
	x.base = full
	info, err := x.opt.fs.Stat(x.base)
	for directory.IsMissing(err) && x.opt.fs.PathDir(x.base) != x.base {
		x.base = x.opt.fs.PathDir(x.base)
		info, err = x.opt.fs.Stat(x.base)
	}
	switch {
	case err != nil:
		return x.refused(full, err)
	case !info.IsDir():
		x.wrong = true
		return []punctual.Finding{bad("directory", x.base+", a file", "a store is a directory: name another place")}
	case x.base != full:
		return []punctual.Finding{
			good("directory", full+", not there yet"),
			warning("store", "none", "the first push makes it; if there should be one, look for a mistake in the path"),
		}
	}
	return append([]punctual.Finding{good("directory", full)}, x.list(full)...)
}

func (x *examination) refused(dir string, err error) []punctual.Finding {
	x.wrong = true
	return []punctual.Finding{bad("directory", fmt.Sprintf("%s: %v", dir, err), needsDirectory)}
}

const needsDirectory = "the store needs a directory that its process may read and write: change the owner or the mode, or name another place"

// list looks at the names in the directory.
func (x *examination) list(dir string) (findings []punctual.Finding) {
	names, err := x.opt.fs.List(dir)
	if err != nil {
		x.wrong = true
		return []punctual.Finding{bad("store", err.Error(), needsDirectory)}
	}
	x.names = names
	switch x.there, err = directory.HoldsStore(names); {
	case errors.Is(err, punctual.ErrCorrupt):
		x.wrong = true
		return []punctual.Finding{bad("damage", err.Error(), restoreCure)}
	case errors.Is(err, punctual.ErrUnsupported):
		return []punctual.Finding{brokenStore(err)}
	case err != nil:
		x.wrong = true
		return []punctual.Finding{bad("store", err.Error(), "a store shares its directory with nothing: name another place")}
	case !x.there:
		return []punctual.Finding{warning("store", "none", "the first push makes it; if there should be one, look for a mistake in the path")}
	}
	for _, n := range names {
		if strings.HasSuffix(n, claimlog.DamagedSuffix) {
			findings = append(findings, warning("earlier damage", n,
				"a damaged claim log was met and this copy of it kept; no message was lost: look after the disk, then remove the file"))
		}
	}
	return findings
}

const restoreCure = "the store refuses to open, so that nothing is lost silently: keep a copy of the directory as it is, then restore it from a backup"

// state is contents of a store that is open in this process.
func (x *examination) state() []punctual.Finding {
	if x.open.state.HasFailed() {
		return []punctual.Finding{bad("store", oneLine(x.open.state.Cause()), "the store has stopped: see that the disk works, then open it again")}
	}
	return []punctual.Finding{good("store", fmt.Sprintf("format %d", directory.FormatVersion)), good("in use", "by this process")}
}

// contents tells whether the store is free, and what opening it would meet.
func (x *examination) contents() []punctual.Finding {
	if !x.there {
		return nil
	}
	if held := x.tryLock(func() {}); held != nil {
		return held
	}
	c, err := x.openReadOnly()
	if err != nil {
		// Somebody may have opened the store and changed its files under our eyes: look again
		// while nobody can.
		if held := x.tryLock(func() { c, err = x.openReadOnly() }); held != nil {
			return held
		}
	}
	x.passed = c.passed
	if err != nil {
		return []punctual.Finding{good("in use", "no"), brokenStore(err)}
	}
	text := fmt.Sprintf("format %d, %s, %s, %s", directory.FormatVersion, count(c.topics, "topic"), count(c.live, "message"), count(c.dead, "dead message"))
	findings := []punctual.Finding{good("in use", "no"), good("store", text)}
	if len(c.damaged) == 0 {
		return append(findings, good("damage", "none that opening would meet; a full check reads everything"))
	}
	return append(findings, warning("damage", strings.Join(c.damaged, ", "),
		"some attempts will not be counted and some messages may be delivered once more; no message is lost: look after the disk"))
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// brokenStore is a store that would not open.
func brokenStore(err error) punctual.Finding {
	switch {
	case errors.Is(err, punctual.ErrCorrupt):
		return bad("damage", oneLine(err), restoreCure)
	case errors.Is(err, punctual.ErrUnsupported):
		return bad("store", oneLine(err), "nothing is damaged: use the release of Punctual that wrote it, or a newer one")
	case errors.Is(err, fs.ErrPermission):
		return bad("store", oneLine(err), needsDirectory)
	}
	return bad("store", oneLine(err), "the store refuses to open: look at the disk and at the kernel's log")
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// tryLock calls do with the lock of the directory held, or returns why it cannot.
func (x *examination) tryLock(do func()) []punctual.Finding {
	lock, err := directory.TryLock(x.opt.fs, x.dir, false)
	if err == nil {
		do()
		err = lock.Close()
	}
	if err == nil {
		return nil
	}
	if err = directory.LockError(x.dir, err); !errors.Is(err, punctual.ErrLocked) {
		return []punctual.Finding{bad("in use", "not known: "+oneLine(err), needsDirectory)}
	}
	by := "by another process"
	if o, err := directory.ReadOwner(x.opt.fs, x.dir); err == nil {
		by = "by " + o.String()
	}
	return []punctual.Finding{warning("in use", by, "one process owns a store at a time, so others cannot open it, and what it holds was not looked at")}
}

// seen is what a look into a store that is not open found.
type seen struct {
	topics, live, dead int64
	passed             time.Time
	damaged            []string // segments of the claim log
}

// openReadOnly does what Open does, but for the writing.
func (x *examination) openReadOnly() (c seen, err error) {
	opt := x.opt
	opt.fs, opt.Logger = failstop.ReadOnly{FS: opt.fs}, slog.New(slog.DiscardHandler)
	s := newStore(x.dir, opt)
	o := s.databaseOptions()
	o.ReadOnly = true
	db, err := database.Open(x.dir, o)
	if err != nil {
		return c, err
	}
	defer func() { err = cmp.Or(err, s.state.Do("close the database", db.Close)) }()
	logged, err := claimlog.Read(s.fs, s.dir, func(name string, _ []byte, unreadable int) error {
		c.damaged = append(c.damaged, fmt.Sprintf("%s has %d bytes that cannot be read", name, unreadable))
		return nil
	})
	if err != nil {
		return c, errkind.Classify("claim log", err)
	}
	stored, err := db.Load(logged.Durable)
	if err != nil {
		return c, err
	}
	c.passed = passedTime(logged, stored)
	for _, t := range stored.Topics {
		c.topics, c.live, c.dead = c.topics+1, c.live+t.Live(), c.dead+t.Dead()
	}
	return c, nil
}

// probe makes a file, syncs it a few times, and removes it.
func (x *examination) probe() []punctual.Finding {
	name := x.opt.fs.PathJoin(x.base, fmt.Sprintf("temporary.examine-%d-%x", os.Getpid(), rand.Uint64()))
	f, err := x.opt.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return []punctual.Finding{bad("writable", "no: "+oneLine(err), needsDirectory)}
	}
	median, err := timeFsync(f)
	findings := []punctual.Finding{good("writable", "yes")}
	switch {
	case err != nil:
		findings = append(findings, bad("fsync", oneLine(err), "what cannot be written and synced is not stored: look at the disk and at the kernel's log"))
	case median > slowFsync:
		findings = append(findings, warning("fsync", fsyncTime(median), "each push that comes alone waits that long; pushes that come together share one"))
	default:
		findings = append(findings, good("fsync", fsyncTime(median)))
	}
	if err := x.opt.fs.Remove(name); err != nil {
		findings = append(findings, warning("trial file", oneLine(err), "it can be removed by hand"))
	}
	return findings
}

func fsyncTime(median time.Duration) string {
	return fmt.Sprintf("%v, the median of %d", median.Round(time.Microsecond), fsyncs)
}

// timeFsync appends to a file and syncs it, and returns the median of what that took. It
// closes the file.
func timeFsync(f vfs.File) (time.Duration, error) {
	var took []time.Duration
	for range fsyncs {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, errkind.JoinClose(err, f)
		}
		if err := f.Sync(); err != nil {
			return 0, errkind.JoinClose(err, f)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], f.Close()
}

// space compares what is free with what is kept in reserve.
func (x *examination) space() []punctual.Finding {
	usage, err := x.opt.fs.GetDiskUsage(x.base)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil // a file system in memory
	}
	if err != nil {
		return []punctual.Finding{bad("free space", oneLine(err), "a store that cannot tell how much space is free takes no messages: look at the file system")}
	}
	text := fmt.Sprintf("%s, of which %s are kept in reserve", size(usage.AvailBytes), size(x.opt.ReserveBytes))
	switch {
	case usage.AvailBytes < x.opt.ReserveBytes:
		return []punctual.Finding{bad("free space", text, "pushes are refused until there is room again; acks and cancels still work")}
	case usage.AvailBytes < 2*x.opt.ReserveBytes:
		return []punctual.Finding{warning("free space", text, "pushes will be refused soon: make room")}
	}
	return []punctual.Finding{good("free space", text)}
}

func size(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// clock compares the clock with the time that the store has seen.
func (x *examination) clock() []punctual.Finding {
	now := x.opt.Clock.Now().Round(0)
	if x.open != nil {
		x.passed = x.open.clock.Now()
	}
	behind := x.passed.Sub(now)
	switch {
	case x.passed.IsZero():
		return nil
	case behind > clockBehind:
		return []punctual.Finding{warning("clock", fmt.Sprintf("%v behind the store's", behind.Round(time.Second)),
			"the machine's clock was set back; the store's never runs backwards, and goes at half speed until the other has caught up: messages come late meanwhile")}
	}
	return []punctual.Finding{good("clock", "not behind the store's")}
}

// fileSystem is a kind of file system and what it means for the store.
type fileSystem struct {
	name     string
	volatile bool // gone after a power cut
	remedy   string
}

// fileSystem tells what the file system keeps, and with it the class of the store's durability.
func (x *examination) fileSystem() []punctual.Finding {
	m, ok := fileSystem{}, false
	if vfs.Root(x.opt.fs) == vfs.Default {
		m, ok = fileSystemOf(x.base)
	}
	switch {
	case !ok:
		return []punctual.Finding{good("durability", string(punctual.Fsync))}
	case m.volatile:
		return []punctual.Finding{
			bad("file system", m.name, "it is in memory: a power cut or restart of the machine takes all messages: name a place on a disk"),
			bad("durability", string(punctual.Volatile), "here the store cannot keep its promise "+string(punctual.Fsync)),
		}
	case m.remedy != "":
		return []punctual.Finding{warning("file system", m.name, m.remedy), good("durability", string(punctual.Fsync))}
	}
	return []punctual.Finding{good("file system", m.name), good("durability", string(punctual.Fsync))}
}
