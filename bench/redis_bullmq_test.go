package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A run of scenarios of BullMQ at a tiny size has the values that the report shows. The rounds
// check that every job was delivered.
func TestBullMQRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and processes")
	}
	if _, err := bullmqCommand(t.Context(), "push"); err != nil {
		t.Skip(err)
	}
	z := tinySizes()
	z.RedisBurst = 500
	o := runOptions{
		dir: filepath.Join(t.TempDir(), "data"), results: filepath.Join(t.TempDir(), "r.ndjson"), rounds: 1, sizes: z,
		only: mustCompile(`^redis-bullmq/(single-64|batch-100|drain-1x64)$|^redis-lateness/2k-bullmq-1$`),
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
		"redis-bullmq/single-64":     {"rate", "cpu_us_per_message", "redis_us_per_message"},
		"redis-bullmq/batch-100":     {"rate", "cpu_us_per_message"},
		"redis-bullmq/drain-1x64":    {"rate", "first_ms", "cpu_us_per_message", "early"},
		"redis-lateness/2k-bullmq-1": {"start_p50_ms", "start_p99_ms", "start_max_ms", "early"},
	} {
		for _, v := range values {
			if s, ok := runs[0].over(scenario, v); !ok || v == "rate" && s.median <= 0 {
				t.Errorf("%s has no value %s", scenario, v)
			}
		}
	}
}

// Without Node the error says what to do.
func TestBullMQWithoutNode(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := openBullMQ(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "tools/deps.sh bench") {
		t.Errorf("without Node the error is %v", err)
	}
}

// The table shows BullMQ beside Punctual with the ratio of both, and says where something was not
// measured.
func TestBullMQTable(t *testing.T) {
	text := bullmqTable(run{results: []Result{
		{Scenario: "redis-bullmq/single-64", Values: map[string]float64{"rate": 20_000}},
		{Scenario: "redis-schedule/single-64", Values: map[string]float64{"rate": 50_000, "asynq_rate": 25_000}},
	}})
	for _, want := range []string{
		"| schedule, 64 callers, one by one | 20,000 | 50,000 | 2.50 | 25,000 |",
		"| schedule, 1 caller, one by one | not measured | not measured | not measured | not measured |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

// The file of a consumer is read back, and a body of another size gives an error.
func TestBullMQRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	writeFile(t, path, "[5,1000,1003,200]\n[6,1001,1000,200]\n")
	list, err := readBullMQRecords(path)
	if err != nil || len(list) != 2 || list[0].Seq != 5 || list[0].At.Sub(list[0].Due) != 3*time.Millisecond || !list[1].At.Before(list[1].Due) {
		t.Errorf("two records are read as %v, %v", list, err)
	}
	writeFile(t, path, "[5,1000,1003,199]\n")
	if _, err := readBullMQRecords(path); err == nil {
		t.Error("a body of 199 bytes gives no error")
	}
}
