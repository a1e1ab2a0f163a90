package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of the report anew")

// The report of made-up results writes the page of measurements and the charts of testdata, which
// also has the results and the page before. Look at the charts when they change.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lab"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, text := range [][]byte{[]byte("# Performance\n"), readFile(t, filepath.Join("testdata", "before.md"))} {
		if err := os.WriteFile(filepath.Join(dir, pages[i]), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second report finds the tables of the first
		err := reportCommand([]string{"-results", filepath.Join("testdata", "results.ndjson"), "-docs", dir}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
	}
	golden(t, filepath.Join(dir, pages[1]), "after.md")
	for _, p := range parts() {
		for _, c := range p.charts {
			chart := filepath.Join(dir, "img", c.file)
			golden(t, chart, c.file)
			wellFormed(t, chart)
			onAnyGround(t, chart)
		}
	}
}

// onAnyGround checks that a chart can be read on a light and on a dark page: nothing in it is black
// or white, and every text has a colour, because without one a text is black.
func onAnyGround(t *testing.T, file string) {
	t.Helper()
	for _, part := range strings.Split(string(readFile(t, file)), "<")[1:] {
		plain := strings.HasPrefix(part, "text") && !strings.Contains(part, "fill:")
		if plain || strings.Contains(part, "#FFFFFF") || strings.Contains(part, "#000000") {
			t.Fatalf("%s: black or white: <%s", file, part)
		}
	}
}

// Where nothing was measured each table of values says so, no aim is met, and the charts can still
// be drawn.
func TestReportOfNothing(t *testing.T) {
	r := run{machine: Machine{Cores: 2, Sizes: quickSizes()}}
	dir := t.TempDir()
	for _, p := range parts() {
		for _, table := range p.tables {
			text := table.build(r)
			if !strings.HasSuffix(table.name, "machine") && !strings.Contains(text, "not measured") {
				t.Errorf("table %s of nothing:\n%s", table.name, text)
			}
			if strings.HasSuffix(table.name, "aims") && strings.Contains(text, "| met") {
				t.Errorf("aims met by nothing:\n%s", text)
			}
		}
		for _, c := range p.charts {
			path := filepath.Join(dir, c.file)
			if err := os.WriteFile(path, []byte(c.draw(r).svg()), 0o644); err != nil {
				t.Fatal(err)
			}
			wellFormed(t, path)
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func golden(t *testing.T, path, name string) {
	t.Helper()
	got, want := readFile(t, path), filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(want, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(got) != string(readFile(t, want)) {
		t.Errorf("%s differs from %s; if it should, go test -run TestReport -update", filepath.Base(path), want)
	}
}

// wellFormed checks that a file is XML and contains no NaN, no infinity and no mark of a wrong
// format (%!).
func wellFormed(t *testing.T, path string) {
	t.Helper()
	data := readFile(t, path)
	d := xml.NewDecoder(strings.NewReader(string(data)))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(string(data), bad) {
			t.Errorf("%s contains %s", path, bad)
		}
	}
}

func TestFillIn(t *testing.T) {
	const page = "before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n"
	got, err := fillIn(page, "a", "new\n")
	if want := "before\n<!-- begin a -->\nnew\n<!-- end a -->\nafter\n"; err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", "<!-- begin a -->\n", "<!-- end a -->\n<!-- begin a -->\n"} {
		if _, err := fillIn(bad, "a", "new\n"); err == nil {
			t.Errorf("a page %q without both markers in order gives no error", bad)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.4444: "0.444", 0.00123: "0.001", 5.678: "5.68", 12.34: "12.3", 999.4: "999", 999.6: "1,000",
		1234: "1,230", 98765: "98,800", 1234567: "1,230,000", -4321: "-4,320",
	} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.1: "0.1", 2000: "2 k", 20_000: "20 k", 1_500_000: "1.5 M", 100_000: "100 k"} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestSpread(t *testing.T) {
	r := run{results: []Result{
		{Scenario: "s", Values: map[string]float64{"x": 9}},
		{Scenario: "s", Values: map[string]float64{"x": 1}},
		{Scenario: "s", Error: "it broke"},
		{Scenario: "t", Values: map[string]float64{"x": 100}},
	}}
	s, ok := r.over("s", "x")
	if want := (spread{5, 1, 9, 2}); !ok || s != want {
		t.Errorf("spread of 9 and 1 is %v", s)
	}
	if got := s.figure(digits); got != "5.00 (1.00 to 9.00)" {
		t.Errorf("written %q", got)
	}
	r.results[2] = Result{Scenario: "s", Values: map[string]float64{"x": 2}}
	if s, _ = r.over("s", "x"); s.median != 2 || s.rounds != 3 {
		t.Errorf("spread of 9, 1 and 2 is %v", s)
	}
	if _, ok := r.over("s", "y"); ok {
		t.Error("a value that no round has is reported")
	}
}

func TestReadRunsRefuses(t *testing.T) {
	const machine = `{"kind":"machine","run":"r1"}` + "\n"
	for name, text := range map[string]string{
		"not JSON": "x\n", "another kind": `{"kind":"other"}` + "\n", "a run that is not described": machine + `{"kind":"result","run":"r2"}` + "\n",
		"a value that is no number": machine + `{"kind":"result","run":"r1","values":{"a":"b"}}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), "r")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readRuns(path); err == nil {
			t.Errorf("a file with %s gives no error", name)
		}
	}
}

func TestNewestResults(t *testing.T) {
	dir := t.TempDir()
	if _, err := newestResults(dir); err == nil {
		t.Error("a folder without results gives no error")
	}
	for _, name := range []string{"2026-11-02.ndjson", "2026-11-20.ndjson", "2027.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := newestResults(dir); err != nil || filepath.Base(got) != "2026-11-20.ndjson" {
		t.Errorf("newest is %s, %v", got, err)
	}
}

func TestMedianRound(t *testing.T) {
	r := run{results: []Result{
		{Scenario: "s", Round: 1, Values: map[string]float64{"x": 9}},
		{Scenario: "s", Round: 2, Values: map[string]float64{"x": 4}},
		{Scenario: "s", Round: 3, Values: map[string]float64{"x": 1}},
	}}
	if got, ok := r.medianRound("s", "x"); !ok || got.Round != 2 {
		t.Errorf("the median of 9, 4 and 1 is that of round %d", got.Round)
	}
}
