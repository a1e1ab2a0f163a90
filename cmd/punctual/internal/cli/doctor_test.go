package cli

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/cron"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/storekit"
)

// severities are those of the findings of a doctor run with --json, by name.
func (r result) severities() map[string]string {
	r.t.Helper()
	severities := make(map[string]string)
	for line := range strings.Lines(r.out) {
		var f wire.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			r.t.Fatalf("line %q: %v", line, err)
		}
		if f.Value == "" || !slices.Contains([]string{"good", "warning", "bad"}, f.Severity) || (f.Remedy == "") != (f.Severity == "good") {
			r.t.Errorf("finding %+v: want a value, a severity, and a remedy unless it is good", f)
		}
		severities[f.Name] = f.Severity
	}
	return severities
}

func TestDoctorOnADirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	if g := runOn(t, "disk:"+dir, "doctor", "--json").exits(exitOK).severities(); g["directory"] != "good" || g["store"] != "warning" || g["writable"] != "good" {
		t.Errorf("before there is a store: %v", g)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("doctor made the directory: %v", err)
	}
	runOn(t, "disk:"+dir, "push", "orders", "x", "--in", "1h").exits(exitOK)
	if g := runOn(t, "disk:"+dir, "doctor", "--json").exits(exitOK).severities(); g["store"] != "good" || g["in use"] != "good" || g["damage"] != "good" {
		t.Errorf("of a sound store: %v", g)
	}
	runOn(t, "disk:"+dir, "doctor").exits(exitOK).contains("✓ good", "1 topic, 1 message")
}

func TestDoctorOnStoresThatDoNotOpen(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	runOn(t, "disk:"+dir, "push", "orders", "x", "--in", "1h").exits(exitOK)

	s, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if g := runOn(t, "disk:"+dir, "doctor", "--json").exits(exitOK).severities(); g["in use"] != "warning" {
		t.Errorf("of a store in use: %v", g)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifest: %v", err)
	}
	for _, m := range manifests {
		if err := os.Remove(m); err != nil {
			t.Fatal(err)
		}
	}
	bad := runOn(t, "disk:"+dir, "doctor", "--json").exits(exitError).failsWith(codeProblems, true)
	if g := bad.severities(); g["damage"] != "bad" || g["free space"] == "" {
		t.Errorf("of a damaged store: %v", g)
	}

	file := filepath.Join(parent, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runOn(t, "disk:"+file, "doctor").exits(exitError, "not as it must be: directory").contains("✗ bad", "a file")
}

func TestDoctorOnOtherStores(t *testing.T) {
	runOn(t, "mem:", "doctor").exits(exitOK).prints("! warning  durability  volatile\n                       messages are gone when their process ends: use another store for those that matter\n✓ good     zone data   " + cron.ZoneData() + "\n")
	runOn(t, "mem:here", "doctor").exits(exitUsage, "no place")
	runOn(t, "disk:", "doctor").exits(exitUsage, "disk:PATH")
	runOn(t, "tape:x", "doctor").exits(exitUsage, "no known kind")
	runOn(t, "redis://user:secret@", "doctor").exits(exitUsage, "redis://host")
	runOn(t, "mem:", "doctor", "more").exits(exitUsage)
}

func TestDoctorOnRedis(t *testing.T) {
	store := "redis://" + redisrig.Start(t).Addr
	r := runOn(t, store, "doctor", "--json")
	severities := r.severities()
	if severities["durability"] == "" || severities["connection"] != "good" {
		t.Errorf("of a server: %v", severities)
	}
	bad := slices.Contains(slices.Collect(maps.Values(severities)), "bad")
	if want := map[bool]int{false: exitOK, true: exitError}[bad]; r.code != want {
		t.Errorf("exit %d with the severities %v, want %d", r.code, severities, want)
	}
	runOn(t, store, "topics").exits(exitError, "no store in this Redis") // doctor made none
	movedSchedule(t, store)
	runOn(t, store, "doctor").exits(exitError, "schedule daily in reports").contains("does not run as it should from", "its message was moved from", "put it again")
	runOn(t, store, "schedule", "put", "reports", "daily", "@daily").exits(exitOK)
	runOn(t, store, "doctor").contains("schedules", "none has a problem")
}

// movedSchedule puts the schedule daily of reports into a store, and reschedules its message.
func movedSchedule(t *testing.T, store string) {
	t.Helper()
	runOn(t, store, "schedule", "put", "reports", "daily", "@daily").exits(exitOK)
	runOn(t, store, "reschedule", "daily", "--topic", "reports@cron", "--in", "300d").exits(exitOK)
	runOn(t, store, "schedule", "list").contains("! its message was moved from")
	runOn(t, store, "schedule", "show", "reports", "daily").contains("its message was moved from", "put it again")
}

// Of a directory that a process shares, doctor asks that process for the schedules. It opens no
// directory by itself, and the socket that a killed process has left does it no harm.
func TestDoctorOnASharedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	movedSchedule(t, "disk:"+dir)
	runOn(t, "disk:"+dir, "doctor").exits(exitOK)
	s, err := sharedstore.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	runOn(t, "disk:"+dir, "doctor").exits(exitError, "schedule daily in reports").contains("its message was moved from")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, sharedstore.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	runOn(t, "disk:"+dir, "doctor").exits(exitOK)
}

// When an examination fails halfway, the findings until then are shown. Text of a server in a
// finding can neither steer the terminal nor look like a finding of its own.
func TestDoctorShowsWhatItHas(t *testing.T) {
	var out, errs buffer
	a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }})
	a.schemes = []scheme{{name: "x", form: "x:", examine: func(context.Context, place) ([]storekit.Finding, error) {
		return []storekit.Finding{
			{Name: "one", Value: "fine\n✓ good  two  \x1b[2J", Severity: storekit.SeverityGood},
			{Name: "eviction", Value: "allkeys-lru", Severity: storekit.SeverityBad, Remedy: "set it"},
		}, errors.New("the rest was out of reach")
	}}}
	code := a.run(t.Context(), []string{"--store", "x:", "doctor"})
	r := result{t, nil, code, out.String(), errs.String()}
	r.exits(exitError, "out of reach").prints("✓ good     one        fine ✓ good two �[2J\n✗ bad      eviction   allkeys-lru\n                      set it\n✓ good     zone data  " + cron.ZoneData() + "\n")
	if !strings.Contains(r.err, "eviction") {
		t.Errorf("standard error %q does not say what is bad", r.err)
	}
}
