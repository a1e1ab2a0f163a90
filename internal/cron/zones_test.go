package cron

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A former name that the machine's files lack is the present name, so that both mean the same
// there; a name that the files have, or of which they have neither, stays.
func TestFormerNames(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"America/Winnipeg", "Asia/Kolkata", "Asia/Calcutta"} {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"Canada/Central": "America/Winnipeg", // lacking, and its present name is there
		"Asia/Calcutta":  "Asia/Calcutta",    // there
		"Cuba":           "Cuba",             // neither is there
		"Europe/Berlin":  "Europe/Berlin",    // no former name
		"":               "",
	} {
		if got := presentName(name, []string{filepath.Join(folder, "nothing"), folder}); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for former, present := range links() {
		one, err := LoadZone(former)
		two, err2 := LoadZone(present)
		if err != nil || err2 != nil {
			t.Errorf("%s, now %s: %v, %v", former, present, err, err2)
			continue
		}
		for _, month := range []time.Month{time.January, time.July} {
			at := time.Date(2025, month, 15, 12, 0, 0, 0, time.UTC)
			if a, b := at.In(one).Format(time.DateTime), at.In(two).Format(time.DateTime); a != b {
				t.Errorf("%s shows %s, and %s shows %s", former, a, present, b)
			}
		}
	}
	if n := len(links()); n != 151 {
		t.Errorf("%d former names, want 151", n)
	}
}

// Doctor says which data a program has.
func TestZoneData(t *testing.T) {
	folder := t.TempDir()
	if got := zoneData([]string{folder}); !strings.HasPrefix(got, "none on this machine: the copy in this program, of go") {
		t.Errorf("without files: %s", got)
	}
	if err := os.MkdirAll(filepath.Join(folder, "Europe", "Berlin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := zoneData([]string{folder}); got != "of an unknown version in "+folder {
		t.Errorf("without a file of rules: %s", got)
	}
	if err := os.WriteFile(filepath.Join(folder, "tzdata.zi"), []byte("# version 2026f\n# more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := zoneData([]string{folder}); got != "2026f in "+folder {
		t.Errorf("with one: %s", got)
	}
	t.Setenv("ZONEINFO", "/zones.zip")
	if got := ZoneData(); got != "as the variable ZONEINFO says: /zones.zip" {
		t.Errorf("with ZONEINFO: %s", got)
	}
}
