package examine

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are for a file system in memory, at a time that stands still.
func options(fs vfs.FS) Options {
	return Options{FS: fs, Clock: storekit.NewManualClock(time.UnixMilli(1e12)), ReserveBytes: 1, CacheBytes: 1 << 20, Timeout: time.Minute}
}

// found returns the findings of an examination by their names.
func found(t *testing.T, dir string, o Options) map[string]storekit.Finding {
	t.Helper()
	findings, err := Run(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]storekit.Finding, len(findings))
	for _, f := range findings {
		byName[f.Name] = f
	}
	return byName
}

func want(t *testing.T, got map[string]storekit.Finding, name string, severity storekit.Severity, text string) {
	t.Helper()
	if f, ok := got[name]; !ok || f.Severity != severity || !strings.Contains(f.Value, text) {
		t.Errorf("%s is %+v, want severity %s and %q", name, f, severity, text)
	}
}

// TestStepsEndWhereNoStoreCanBe: the examination of a directory with foreign files does not write
// to it. That of a missing directory below it does, and removes its trial file.
func TestStepsEndWhereNoStoreCanBe(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("foreign", 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := mem.Create("foreign/letter.txt", vfs.WriteCategoryUnspecified)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	got := found(t, "foreign", options(mem))
	want(t, got, "store", storekit.SeverityBad, "letter.txt")
	if _, ok := got["writable"]; ok {
		t.Error("a directory of somebody else was written to")
	}
	got = found(t, "foreign/below", options(mem))
	want(t, got, "store", storekit.SeverityWarning, "none")
	want(t, got, "fsync", storekit.SeverityGood, "the median of 5")
	names, err := mem.List("foreign")
	if err != nil || len(names) != 1 {
		t.Errorf("the examination left %v, %v", names, err)
	}
}

// TestOfAnOpenStore: the findings about a store that is open in this process come from its state
// and its clock.
func TestOfAnOpenStore(t *testing.T) {
	mem, quiet := vfs.NewMem(), slog.New(slog.NewTextHandler(io.Discard, nil))
	dir, err := directory.Make(mem, "store")
	if err != nil {
		t.Fatal(err)
	}
	state := failstop.New(dir, quiet, time.Minute)
	owned := directory.New(mem, dir, 1, state, quiet)
	if _, err := owned.Own(0); err != nil {
		t.Fatal(err)
	}
	defer owned.Release()
	o := options(mem)
	o.Open = &Open{Owned: owned, State: state, Clock: func() storekit.ClockState { return storekit.ClockState{Follows: "machine", Ahead: time.Hour} }}
	got := found(t, dir, o)
	want(t, got, "in use", storekit.SeverityGood, "by this process")
	want(t, got, "store's clock", storekit.SeverityWarning, "1h0m0s ahead of that of the machine")

	state.Fail(errors.New("the disk is gone"))
	want(t, found(t, dir, o), "store", storekit.SeverityBad, "the disk is gone")
}

// TestClock: a machine's clock that is more than 2 s behind the store's is a warning. One that
// opening refuses, in either direction, is bad, and the finding names what mends it.
func TestClock(t *testing.T) {
	o := options(vfs.NewMem())
	now := o.Clock.Now()
	for _, c := range []struct {
		passed   time.Time // by the store's clock
		severity storekit.Severity
		text     string
	}{
		{now, storekit.SeverityGood, "not ahead"},
		{now.Add(-MaxClockStep), storekit.SeverityGood, "not ahead"},
		{now.Add(storekit.StepBeyond), storekit.SeverityGood, "not ahead"},
		{now.Add(time.Hour), storekit.SeverityWarning, "1h0m0s ahead"},
		{now.Add(MaxClockStep), storekit.SeverityWarning, "8784h0m0s ahead"},
		{now.Add(MaxClockStep + time.Hour), storekit.SeverityBad, "366 days behind"},
		{now.Add(-MaxClockStep - time.Hour), storekit.SeverityBad, "366 days ahead of"},
	} {
		x := &examination{dir: "orders", opt: o, passed: c.passed}
		got := x.clock()
		if len(got) != 1 || !strings.HasSuffix(got[0].Name, "clock") || got[0].Severity != c.severity || !strings.Contains(got[0].Value, c.text) {
			t.Errorf("the store's clock at %v, the machine's at %v: %+v, want severity %s and %q", c.passed, now, got, c.severity, c.text)
		}
		if c.severity == storekit.SeverityBad && len(got) == 1 && !strings.Contains(got[0].Remedy, "punctual clock orders --set") {
			t.Errorf("the remedy does not name the command: %+v", got[0])
		}
	}
	if got := (&examination{opt: o}).clock(); got != nil {
		t.Errorf("a store that has no time yet: %+v, want nothing", got)
	}
}

func TestFileLimit(t *testing.T) {
	for limit, want := range map[uint64]int{0: 0, 1024: 1, 4096: 0, 1 << 20: 0} {
		if got := filesFinding(limit); len(got) != want || want == 1 && got[0].Severity != storekit.SeverityWarning {
			t.Errorf("with %d files: %+v, want %d warnings", limit, got, want)
		}
	}
}
