// Package examine looks at what is below a store: its directory, lock and files, the disk, the
// clock, and the kind of file system. It never opens a store. It changes nothing but one small
// file, which it makes and removes.
package examine

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
	"github.com/punctualmq/punctual/storekit"
)

// slowFsync is how long an fsync may take before an examination warns of it. A push that comes
// alone waits for one fsync.
const slowFsync = 50 * time.Millisecond

// MaxClockStep is how far the machine's clock may be from the store's, ahead or behind. A store
// whose clock is further away refuses to open.
const MaxClockStep = 366 * 24 * time.Hour

// ClockTooFar returns how far the machine's clock is from the store's, in words such as "400 days
// ahead of the store's", if that is further than MaxClockStep, and otherwise "".
func ClockTooFar(machine, store time.Time) string {
	step, how := machine.Sub(store), "ahead of"
	if step < 0 {
		how = "behind"
	}
	if step.Abs() <= MaxClockStep {
		return ""
	}
	return fmt.Sprintf("%d days %s the store's", step.Abs()/(24*time.Hour), how)
}

// Fsyncs is how often the trial file is synced. The median of the times counts.
const Fsyncs = 5

// Options of an examination. All fields but Open are needed.
type Options struct {
	FS    vfs.FS
	Clock storekit.Clock
	// ReserveBytes is the free space that the store keeps, CacheBytes the size of the cache with
	// which its database is read.
	ReserveBytes uint64
	CacheBytes   int64
	// Timeout is how long each step may wait for the disk.
	Timeout time.Duration
	// Open is the store that has the directory open, if that is one of this process; else nil.
	Open *Open
}

// Open is a store that is open in this process.
type Open struct {
	Owned *directory.Dir
	State *failstop.State
	Clock func() storekit.ClockState
}

// examination is one examination of what is below a store. Its steps run one after the other; none
// begins before the one before has ended.
type examination struct {
	dir  string
	base string // the directory itself, or the nearest one above that exists
	opt  Options

	there   bool                // the directory holds a store
	wrong   bool                // no store can work in the directory as it is, so further steps are left out
	passed  time.Time           // what the store's clock has passed; zero if it is not known
	stepped storekit.ClockState // the steps of the store's clock, without the rest
}

// Run examines a directory and returns what it found, in the order of the steps. A disk that does
// not answer for Options.Timeout is a finding; the goroutine that asked it ends when it answers. An
// error tells that ctx has ended.
func Run(ctx context.Context, dir string, o Options) (findings []storekit.Finding, err error) {
	x := &examination{dir: dir, base: dir, opt: o}
	contents := x.contents
	if o.Open != nil {
		contents = x.state
	}
	for _, step := range []func() []storekit.Finding{x.directory, contents, x.probe, x.space, x.files, x.clock, x.fileSystem} {
		found := make(chan []storekit.Finding, 1)
		go func() { found <- step() }()
		timer := time.NewTimer(o.Timeout)
		select {
		case fs := <-found:
			timer.Stop()
			findings = append(findings, fs...)
		case <-timer.C:
			return append(findings, storekit.Bad("disk", fmt.Sprintf("no answer for %v", o.Timeout),
				"the disk hangs, and so would a store: look at the disk and at the kernel's log")), nil
		case <-ctx.Done():
			timer.Stop()
			return findings, fmt.Errorf("examine store %s: %w", dir, errkind.Ended(ctx))
		}
		if x.wrong {
			break
		}
	}
	return findings, nil
}

// directory looks for the directory.
func (x *examination) directory() []storekit.Finding {
	if x.opt.Open != nil {
		if err := x.opt.Open.Owned.Verify(); err != nil {
			x.wrong = true
			return []storekit.Finding{storekit.Bad("directory", oneLine(err), "this store reports nothing more as stored: end this process or the other one, see to the directory, then open the store again")}
		}
	}
	full := x.dir
	if vfs.Root(x.opt.FS) == vfs.Default {
		if abs, err := filepath.Abs(x.dir); err == nil {
			full = abs
		}
	}
	x.base = full
	info, err := x.opt.FS.Stat(x.base)
	for directory.IsMissing(err) && x.opt.FS.PathDir(x.base) != x.base {
		x.base = x.opt.FS.PathDir(x.base)
		info, err = x.opt.FS.Stat(x.base)
	}
	switch {
	case err != nil:
		return x.refused(full, err)
	case !info.IsDir():
		x.wrong = true
		return []storekit.Finding{storekit.Bad("directory", x.base+", a file", "a store is a directory: name another place")}
	case x.base != full:
		return []storekit.Finding{
			storekit.Good("directory", full+", not there yet"),
			storekit.Warning("store", "none", noStoreYet),
		}
	}
	return append([]storekit.Finding{storekit.Good("directory", full)}, x.list(full)...)
}

func (x *examination) refused(dir string, err error) []storekit.Finding {
	x.wrong = true
	return []storekit.Finding{storekit.Bad("directory", fmt.Sprintf("%s: %v", dir, err), needsDirectory)}
}

const needsDirectory = "the store needs a directory that its process may read and write: change the owner or the mode, or name another place"

const noStoreYet = "it is made when it is first opened, as by a push; if there should be one, look for a mistake in the path"

// list tells from the names in the directory whether it holds a store, and whether damage was found
// earlier.
func (x *examination) list(dir string) (findings []storekit.Finding) {
	names, err := x.opt.FS.List(dir)
	if err != nil {
		x.wrong = true
		return []storekit.Finding{storekit.Bad("store", err.Error(), needsDirectory)}
	}
	switch x.there, err = directory.HoldsStore(names); {
	case errors.Is(err, punctual.ErrCorrupt):
		x.wrong = true
		return []storekit.Finding{storekit.Bad("damage", err.Error(), restoreCure)}
	case errors.Is(err, punctual.ErrUnsupported):
		return []storekit.Finding{brokenStore(err)}
	case err != nil:
		x.wrong = true
		return []storekit.Finding{storekit.Bad("store", err.Error(), "a store shares its directory with nothing: name another place")}
	case !x.there:
		return []storekit.Finding{storekit.Warning("store", "none", noStoreYet)}
	}
	for _, n := range names {
		if strings.HasSuffix(n, claimlog.DamagedSuffix) {
			findings = append(findings, storekit.Warning("earlier damage", n,
				"a damaged claim log was met and this copy of it kept; no message was lost: look after the disk, then remove the file"))
		}
	}
	return findings
}

const restoreCure = "the store refuses to open, so that nothing is lost silently: keep a copy of the directory as it is, then restore it from a backup"

// state is contents for a store that is open in this process.
func (x *examination) state() []storekit.Finding {
	if x.opt.Open.State.HasFailed() {
		return []storekit.Finding{storekit.Bad("store", oneLine(x.opt.Open.State.Cause()), "the store has stopped: see that the disk works, then open it again")}
	}
	return []storekit.Finding{storekit.Good("store", fmt.Sprintf("format %d", directory.FormatVersion)), storekit.Good("in use", "by this process")}
}

// contents tells whether the store is free, what it holds, and which damage openReadOnly finds.
func (x *examination) contents() []storekit.Finding {
	if !x.there {
		return nil
	}
	if held := x.tryLock(func() {}); held != nil {
		return held
	}
	c, err := x.openReadOnly()
	if err != nil {
		// Another process may have opened the store and changed its files meanwhile. So the files
		// are read again while the lock keeps others out.
		if held := x.tryLock(func() { c, err = x.openReadOnly() }); held != nil {
			return held
		}
	}
	x.passed, x.stepped = c.passed, c.clock
	if err != nil {
		return []storekit.Finding{storekit.Good("in use", "no"), brokenStore(err)}
	}
	text := fmt.Sprintf("format %d, %s, %s, %s", directory.FormatVersion, count(c.topics, "topic"), count(c.live, "message"), count(c.dead, "dead message"))
	findings := []storekit.Finding{storekit.Good("in use", "no"), storekit.Good("store", text)}
	if len(c.damaged) == 0 {
		return append(findings, storekit.Good("damage", "none found; a full check reads everything"))
	}
	return append(findings, storekit.Warning("damage", strings.Join(c.damaged, ", "),
		"some attempts will not be counted and some messages may be delivered once more; no message is lost: look after the disk"))
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// brokenStore returns the finding about a store that would refuse to open with err.
func brokenStore(err error) storekit.Finding {
	switch {
	case errors.Is(err, punctual.ErrCorrupt):
		return storekit.Bad("damage", oneLine(err), restoreCure)
	case errors.Is(err, punctual.ErrUnsupported):
		return storekit.Bad("store", oneLine(err), "nothing is damaged: use the release of Punctual that wrote it, or a newer one")
	case errors.Is(err, fs.ErrPermission):
		return storekit.Bad("store", oneLine(err), needsDirectory)
	}
	return storekit.Bad("store", oneLine(err), "the store refuses to open: look at the disk and at the kernel's log")
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// tryLock calls do with the locks of the directory held and returns nil, or returns the finding
// that says why it cannot.
func (x *examination) tryLock(do func()) []storekit.Finding {
	lock, err := directory.TryLock(x.opt.FS, x.dir, false)
	if err == nil {
		do()
		err = lock.Close()
	}
	if err == nil {
		return nil
	}
	if err = directory.LockError(x.dir, err); !errors.Is(err, punctual.ErrLocked) {
		return []storekit.Finding{storekit.Bad("in use", "not known: "+oneLine(err), needsDirectory)}
	}
	by := "by another process"
	if o, err := directory.ReadOwner(x.opt.FS, x.dir); err == nil {
		by = "by " + o.String()
	}
	return []storekit.Finding{storekit.Warning("in use", by, "one process owns a directory at a time, and others go through it if it shares it; what the store holds was not looked at")}
}

// seen is what openReadOnly has found in a store that is not open.
type seen struct {
	topics, live, dead int64
	passed             time.Time
	clock              storekit.ClockState // Steps and Last
	damaged            []string            // segments of the claim log
}

// openReadOnly opens the database and reads the claim log and the topics as the opening of a store
// does, but writes nothing. It does not read the records of leased and acked messages, which the
// opening of a store reads, too.
func (x *examination) openReadOnly() (c seen, err error) {
	files, quiet := failstop.ReadOnly{FS: x.opt.FS}, slog.New(slog.DiscardHandler)
	state := failstop.New(x.dir, quiet, x.opt.Timeout)
	verify := directory.New(files, x.dir, x.opt.ReserveBytes, state, quiet).Verify
	db, err := database.Open(x.dir, database.Options{
		FS: failstop.NewFS(files, state, verify, failstop.Database), State: state, Log: quiet,
		CacheBytes: x.opt.CacheBytes, Format: directory.FormatVersion, ReadOnly: true,
	})
	if err != nil {
		return c, err
	}
	defer func() { err = cmp.Or(err, state.Do("close the database", db.Close)) }()
	logged, err := claimlog.Read(failstop.NewFS(files, state, verify, failstop.Store), x.dir, func(u claimlog.Unreadable) error {
		if u.Damage {
			c.damaged = append(c.damaged, u.String())
		}
		return nil
	})
	if err != nil {
		return c, errkind.Classify("claim log", err)
	}
	stored, err := db.Load(logged.Durable)
	if err != nil {
		return c, err
	}
	c.passed = logged.Passed(stored.Clock, stored.Timed, stored.Step)
	c.clock.Steps, c.clock.Last = logged.Step.Told()
	for _, t := range stored.Topics {
		c.topics, c.live, c.dead = c.topics+1, c.live+t.Live(), c.dead+t.Dead()
	}
	return c, nil
}

// probe makes the trial file, syncs it a few times, and removes it.
func (x *examination) probe() []storekit.Finding {
	name := x.opt.FS.PathJoin(x.base, fmt.Sprintf("temporary.examine-%d-%x", os.Getpid(), rand.Uint64()))
	f, err := x.opt.FS.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return []storekit.Finding{storekit.Bad("writable", "no: "+oneLine(err), needsDirectory)}
	}
	median, err := timeFsync(f)
	findings := []storekit.Finding{storekit.Good("writable", "yes")}
	switch {
	case err != nil:
		findings = append(findings, storekit.Bad("fsync", oneLine(err), "what cannot be written and synced is not stored: look at the disk and at the kernel's log"))
	case median > slowFsync:
		findings = append(findings, storekit.Warning("fsync", fsyncTime(median), "each push that comes alone waits that long; pushes that come together share one"))
	default:
		findings = append(findings, storekit.Good("fsync", fsyncTime(median)))
	}
	if err := x.opt.FS.Remove(name); err != nil {
		findings = append(findings, storekit.Warning("trial file", oneLine(err), "it can be removed by hand"))
	}
	return findings
}

func fsyncTime(median time.Duration) string {
	return fmt.Sprintf("%v, the median of %d", median.Round(time.Microsecond), Fsyncs)
}

// timeFsync appends to a file and syncs it, Fsyncs times, and returns the median of what that took.
// It closes the file.
func timeFsync(f vfs.File) (time.Duration, error) {
	var took []time.Duration
	for range Fsyncs {
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
func (x *examination) space() []storekit.Finding {
	usage, err := x.opt.FS.GetDiskUsage(x.base)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil // a file system in memory
	}
	if err != nil {
		return []storekit.Finding{storekit.Bad("free space", oneLine(err), "a store that cannot tell how much space is free takes no messages: look at the file system")}
	}
	text := fmt.Sprintf("%s, of which %s are kept in reserve", size(usage.AvailBytes), size(x.opt.ReserveBytes))
	switch {
	case usage.AvailBytes < x.opt.ReserveBytes:
		return []storekit.Finding{storekit.Bad("free space", text, "pushes are refused until there is room again; acks and cancels still work")}
	case usage.AvailBytes < 2*x.opt.ReserveBytes:
		return []storekit.Finding{storekit.Warning("free space", text, "pushes will be refused soon: make room")}
	}
	return []storekit.Finding{storekit.Good("free space", text)}
}

// enoughFiles is about how many files a process with a store and a few thousand clients has open.
const enoughFiles = 4096

// files looks at how many files the process may have open.
func (x *examination) files() []storekit.Finding { return filesFinding(errkind.FileLimit()) }

func filesFinding(limit uint64) []storekit.Finding {
	if limit == 0 || limit >= enoughFiles {
		return nil
	}
	return []storekit.Finding{storekit.Warning("open files", fmt.Sprintf("at most %d", limit),
		"the store keeps up to a quarter of them open, and each client needs one; without one left the store waits, and fails in the end: raise RLIMIT_NOFILE, with ulimit -n or with LimitNOFILE of systemd")}
}

func size(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// clock compares the machine's clock with the time that the store's clock has passed.
func (x *examination) clock() []storekit.Finding {
	now := x.opt.Clock.Now().Round(0)
	if x.opt.Open != nil {
		return storekit.ClockFindings(x.opt.Open.Clock())
	}
	if x.passed.IsZero() {
		return nil
	}
	if tooFar := ClockTooFar(now, x.passed); tooFar != "" {
		return []storekit.Finding{storekit.Bad("clock", fmt.Sprintf("%s, which says %s", tooFar, x.passed.UTC().Format(time.RFC3339)),
			"opening the store is refused: set the machine's clock right, or if it is right run 'punctual clock "+x.dir+" --set' while nobody has the store open")}
	}
	state := x.stepped
	state.Now, state.Ahead, state.Follows = now, max(0, x.passed.Sub(now)), "machine"
	return storekit.ClockFindings(state)
}

// fileSystem is a kind of file system and what it means for the store.
type fileSystem struct {
	name     string
	volatile bool // gone after a power cut
	remedy   string
}

// fileSystem tells what the file system keeps, and with it the class of the store's durability.
func (x *examination) fileSystem() []storekit.Finding {
	m, ok := fileSystem{}, false
	if vfs.Root(x.opt.FS) == vfs.Default {
		m, ok = fileSystemOf(x.base)
	}
	switch {
	case !ok:
		return []storekit.Finding{storekit.Good("durability", string(punctual.Fsync))}
	case m.volatile:
		return []storekit.Finding{
			storekit.Bad("file system", m.name, "it is in memory: a power cut or restart of the machine takes all messages: name a place on a disk"),
			storekit.Bad("durability", string(punctual.Volatile), "here the store cannot keep its promise "+string(punctual.Fsync)),
		}
	case m.remedy != "":
		return []storekit.Finding{storekit.Warning("file system", m.name, m.remedy), storekit.Good("durability", string(punctual.Fsync))}
	}
	return []storekit.Finding{storekit.Good("file system", m.name), storekit.Good("durability", string(punctual.Fsync))}
}
