package cron

import (
	"bufio"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

//go:embed links.txt
var linksText string

// links are the present names of zones by their former ones.
var links = sync.OnceValue(func() map[string]string {
	present := make(map[string]string)
	for line := range strings.Lines(linksText) {
		if former, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && former != "#" {
			present[former] = name
		}
	}
	return present
})

// zoneFolders are the folders in which package time looks for the machine's zones, before it uses
// the copy in the program. With the variable ZONEINFO there are none, because package time looks
// there first, and the file may be an archive.
func zoneFolders() []string {
	if os.Getenv("ZONEINFO") != "" {
		return nil
	}
	return []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}
}

// presentName is the present name of a zone if the folders have that one and not the name itself.
func presentName(name string, folders []string) string {
	has := func(name string) bool {
		for _, folder := range folders {
			if _, err := os.Stat(filepath.Join(folder, filepath.FromSlash(name))); err == nil {
				return true
			}
		}
		return false
	}
	if present := links()[name]; present != "" && !has(name) && has(present) {
		return present
	}
	return name
}

// ZoneData says which time zone data this program uses: those of the machine's files and their
// version, or the copy in the program.
func ZoneData() string { return zoneData(zoneFolders()) }

func zoneData(folders []string) string {
	if file := os.Getenv("ZONEINFO"); file != "" {
		return "as the variable ZONEINFO says: " + file
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "Europe", "Berlin")); err == nil {
			return fmt.Sprintf("%s in %s", dataVersion(folder), folder)
		}
	}
	return "none on this machine: the copy in this program, of " + runtime.Version()
}

// dataVersion reads the version from the file that has all rules in one, where there is one.
func dataVersion(folder string) string {
	const unknown = "of an unknown version"
	file, err := os.Open(filepath.Join(folder, "tzdata.zi"))
	if err != nil {
		return unknown
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	if version, ok := "", false; lines.Scan() {
		if version, ok = strings.CutPrefix(lines.Text(), "# version "); ok {
			return version
		}
	}
	return unknown
}

// Zones loads zones and keeps them, because time.LoadLocation reads a file at each call. The zero
// Zones is empty. It is safe for concurrent use.
type Zones struct {
	mu     sync.Mutex
	loaded map[string]*time.Location // by name; guarded by mu
}

// ZonesOf returns Zones that have these already, by name, whatever the database of this machine
// says of the names.
func ZonesOf(known map[string]*time.Location) *Zones { return &Zones{loaded: maps.Clone(known)} }

// Load returns the zone that LoadZone returns for the name, and loads it only the first time. An
// error is not kept.
func (z *Zones) Load(name string) (*time.Location, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if loc := z.loaded[name]; loc != nil {
		return loc, nil
	}
	loc, err := LoadZone(name)
	if err != nil {
		return nil, err
	}
	if z.loaded == nil {
		z.loaded = make(map[string]*time.Location)
	}
	z.loaded[name] = loc
	return loc, nil
}
