package main

import (
	"path/filepath"
	"testing"
)

// One scenario of follow-ups, that of groups and that of the shift run on the embedded store at a
// tiny size and have positive values.
func TestFollowRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	o := runOptions{
		dir: filepath.Join(t.TempDir(), "data"), results: filepath.Join(t.TempDir(), "r.ndjson"), rounds: 1, sizes: tinySizes(),
		only: mustCompile(`^(follow/disk-100|groups/disk|bulk/shift)$`),
	}
	var progress lockedText
	if err := runAll(t.Context(), o, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	runs, err := readRuns(o.results)
	if err != nil {
		t.Fatal(err)
	}
	for scenario, values := range map[string][]string{
		followName("disk", 100): {"apart_us", "then_us", "ratio"},
		groupsName("disk"):      {"groups_rate", "pushes_rate", "ratio"},
		bulkScenario:            {"rate"},
	} {
		for _, v := range values {
			if s, ok := runs[0].over(scenario, v); !ok || s.median <= 0 {
				t.Errorf("%s has %v as its value %s", scenario, s.median, v)
			}
		}
	}
}
