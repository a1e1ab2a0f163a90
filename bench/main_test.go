package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the bench start itself: with the verb of a round, a consumer or a server the test
// binary does what the bench does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{childVerb, consumerVerb, servePunctualVerb, serveNATSVerb}, os.Args[1]) {
		if err := command(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// lockedText is a text to which the run and its processes write at the same time.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func tinySizes() sizes {
	return sizes{
		Span: 30 * time.Millisecond, Window: 100 * time.Millisecond, Burst: 200, Pending: 12_000,
		RedisSpan: 30 * time.Millisecond, RedisWindow: 200 * time.Millisecond, RedisBurst: 200, RedisPending: 3000, PostgresLives: 3000,
		PostgresHeld: time.Second,
	}
}

// A run of several scenarios on the embedded store at a tiny size, with the large store and a kill
// -9, has the values that the report needs, loses no message, and removes the folder for the
// stores.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	o := runOptions{
		dir: filepath.Join(t.TempDir(), "data"), results: filepath.Join(t.TempDir(), "results", "r.ndjson"),
		rounds: 1, sizes: tinySizes(), only: mustCompile(`^(schedule/(chosen-)?batch-100|schedule/chosen-single-64|drain|steady/2k|pending/(fill|reopen.*|cancel-batch-100|reschedule-single-64|reschedule-batch-1000|schedule/chosen-batch-100))$`),
	}
	var progress lockedText
	if err := runAll(t.Context(), o, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	runs, err := readRuns(o.results)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 {
		t.Fatalf("%d runs in the file of results, want 1", len(runs))
	}
	for scenario, values := range map[string][]string{
		"schedule/batch-100":                {"rate", "limit", "ratio", "cpu_us_per_message", "call_p99_ms"},
		"schedule/chosen-batch-100":         {"rate", "limit", "ratio", "cpu_us_per_message", "call_p99_ms"},
		"schedule/chosen-single-64":         {"rate", "ratio"},
		"drain":                             {"rate", "ratio", "start_p99_ms", "rss_peak_bytes"},
		"steady/2k":                         {"start_p50_ms", "start_p999_ms", "claim_p99_ms", "handled_rate", "cpu_us_per_message", "disk_bytes_per_life", "disk_bytes_per_body_byte", "syncs_per_life"},
		"pending/fill":                      {"rate", "ratio", "rss_peak_bytes", "disk_bytes_per_message"},
		"pending/reopen":                    {"open_ms", "first_push_ms"},
		"pending/reopen-killed":             {"open_ms", "first_push_ms"},
		"pending/cancel-batch-100":          {"rate", "ratio"},
		"pending/reschedule-single-64":      {"rate", "ratio"},
		"pending/reschedule-batch-1000":     {"rate", "ratio"},
		"pending/schedule/chosen-batch-100": {"rate", "ratio"},
	} {
		for _, v := range append(values, "others_cpu") {
			if _, ok := runs[0].over(scenario, v); !ok {
				t.Errorf("%s has no value %s", scenario, v)
			}
		}
	}
	if s, _ := runs[0].over("pending/reopen", "pending"); s.median != float64(o.sizes.Pending) {
		t.Errorf("after %d pushes and a close the store has %v messages (P1)", o.sizes.Pending, s.median)
	}
	if s, _ := runs[0].over("pending/reopen-killed", "pending"); s.median < float64(o.sizes.Pending)-2*float64(o.sizes.Pending)/12+fillBatch {
		t.Errorf("after kill -9 the store has %v messages: fewer than were pushed and not cancelled (P1)", s.median)
	}
	if _, err := os.Stat(o.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder for the stores is still there: %v", err)
	}
}

// A round that fails is noted, and a scenario that does not depend on it is still measured.
func TestRunNotesFailures(t *testing.T) {
	o := runOptions{
		dir: filepath.Join(t.TempDir(), "data"), results: filepath.Join(t.TempDir(), "r.ndjson"),
		rounds: 1, sizes: tinySizes(), only: mustCompile(`^(schedule/batch-1000|pending/reopen)$`),
	}
	err := runAll(t.Context(), o, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "1 rounds failed") {
		t.Errorf("a run without %s gives error %v", fillScenario, err)
	}
	runs, err := readRuns(o.results)
	if err != nil {
		t.Fatal(err)
	}
	if n := runs[0].rounds("schedule/batch-1000"); n != 1 {
		t.Errorf("%d rounds of the scenario that can run, want 1", n)
	}
	if text := runs[0].tellRounds(); !strings.Contains(text, "1 measured; pending/reopen round 1 failed") {
		t.Errorf("the report says of the rounds: %s", text)
	}
}

func TestPlan(t *testing.T) {
	o := runOptions{rounds: 2, only: mustCompile(`^schedule/single|pending/(fill|reopen$)|pending/load`)}
	var got []string
	for _, p := range plan(o) {
		got = append(got, fmt.Sprintf("%s %d", p.scenario.name, p.n))
	}
	want := "schedule/single-1 1, schedule/single-64 1, schedule/single-1 2, schedule/single-64 2, pending/fill 1, pending/reopen 1, pending/reopen 2"
	if strings.Join(got, ", ") != want {
		t.Errorf("plan is %s\nwant    %s", strings.Join(got, ", "), want)
	}
}

func TestCommandRefuses(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"measure"},
		{"run", "-rounds", "0"},
		{"run", "-only", "("},
		{"run", "-pending", "-1"},
		{"child"},
		{"report", "-results", filepath.Join(t.TempDir(), "none")},
	} {
		if err := command(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("bench %s gives no error", strings.Join(args, " "))
		}
	}
	dir := t.TempDir()
	o := runOptions{dir: dir, results: filepath.Join(dir, "r"), rounds: 1, sizes: tinySizes(), only: mustCompile("schedule")}
	if err := runAll(t.Context(), o, io.Discard); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder that exists is used and would be removed: %v", err)
	}
}
