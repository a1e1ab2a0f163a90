package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tables say that the tuned River has more workers than the others have handlers.
func TestTunedRiverIsNamedByItsWorkers(t *testing.T) {
	for _, table := range []string{postgresDrainTable(run{}), postgresCostTable(run{})} {
		if !strings.Contains(table, "| River, tuned, 1,000 workers") {
			t.Errorf("the table does not say how many workers River has:\n%s", table)
		}
	}
}

// A run of most scenarios on PostgreSQL at a tiny size has the main values of the tables. The
// rounds themselves check the messages: after scheduling that all are pending, after a drain or a
// load that each was delivered, of whole lives that as many were finished as pushed. Those of
// lateness and of the drain by processes also check that Punctual delivered none early.
func TestPostgresRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers and processes")
	}
	dir, err := os.MkdirTemp("", "bench-") // not t.TempDir, because the server may run as another user, who has to reach the folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := runOptions{
		dir: filepath.Join(dir, "data"), results: filepath.Join(t.TempDir(), "r.ndjson"), rounds: 1, sizes: tinySizes(),
		only: mustCompile(`^postgres-(schedule/batch-1000|drain/.*|lateness/2k|life/.*|size|held/.*)$`),
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
		"postgres-schedule/batch-1000": {"rate", "rows_rate", "river_rate", "times_river", "wal_bytes_per_message", "chosen_rate", "chosen_server_us_per_message"},
		postgresDrain:                  {"rate", "rows_rate", "river_rate", "river_fast_rate", "times_river", "server_us_per_message", "river_fast_transactions_per_message"},
		postgresFleet:                  {"rate", "river_fast_rate", "times_river", "server_us_per_message"},
		postgresLife:                   {"rate", "rows_rate", "ratio", "cpu_us_per_message", "server_us_per_message"},
		postgresSize:                   {"messages", "rate", "table_bytes", "index_bytes", "last_claim_p99_ms", "held_messages", "held_last_claim_p50_ms"},
		heldName(sysPunctual):          {"messages", "first_rate", "last_claim_p50_ms", "last_claim_p99_ms", "database_bytes", "server_us_per_message"},
		heldName(sysRiver):             {"messages", "first_rate", "last_claim_p50_ms", "last_claim_p99_ms", "database_bytes", "server_us_per_message"},
		postgresLateness:               {"start_p99_ms", "early", "transactions_per_message"},
	} {
		for _, v := range values {
			if _, ok := runs[0].over(scenario, v); !ok {
				t.Errorf("%s has no value %s", scenario, v)
			}
		}
	}
}
