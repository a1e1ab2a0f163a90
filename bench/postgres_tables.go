package main

import (
	"fmt"
	"strings"
)

// postgresTables are the tables about the store on PostgreSQL.
var postgresTables = []table{
	{"postgres-machine", postgresMachineTable},
	{"postgres-aims", postgresAimsTable},
	{"postgres-schedule", postgresScheduleTable},
	{"postgres-drain", postgresDrainTable},
	{"postgres-cost", postgresCostTable},
	{"postgres-lateness", postgresLatenessTable},
	{"postgres-life", postgresLifeTable},
	{"postgres-size", postgresSizeTable},
	{"postgres-held", heldTable},
}

func postgresMachineTable(r run) string {
	m, z := r.machine, r.machine.Sizes
	return r.machineTable("beside it", fmt.Sprintf("PostgreSQL %s on loopback, River %s", orUnknown(m.Postgres), orUnknown(m.River)),
		fmt.Sprintf("rates over %v, lateness over %v, %s messages due at once", z.RedisSpan, z.RedisWindow, commas(int64(z.RedisBurst))))
}

// The aims for the store on PostgreSQL.
const (
	aimPostgresDrain = 5.0      // times the rate of the faster River that was measured
	aimPostgresLives = 50_000.0 // whole lives a second
	aimPostgresLate  = 5.0      // ms, p99 of how late handlers start, at 2,000/s
)

func postgresAimsTable(r run) string {
	return goalsTable(r, []goal{
		{"drain, 1 process with 64 handlers", postgresDrain, "times_river", " times River", 1, true, aimPostgresDrain},
		{"drain, 8 processes with 64 handlers each", postgresFleet, "times_river", " times River", 1, true, aimPostgresDrain},
		{"whole lives a second, in batches of 1000", postgresLife, "rate", "", 1, true, aimPostgresLives},
		{"lateness at 2,000/s, p99", postgresLateness, "start_p99_ms", " ms", 1, false, aimPostgresLate},
		{"messages delivered early at 2,000/s", postgresLateness, "early", "", 1, false, 1},
	})
}

func postgresScheduleTable(r run) string {
	var rows []row
	for _, x := range postgresSchedules {
		rows = append(rows, row{callersLabel(x.callers, x.batch), postgresScheduleName(x.callers, x.batch)})
	}
	return scenarioTable(r, "scheduled by", rows,
		value("messages/s", "rate", digits),
		value("with chosen IDs/s", "chosen_rate", digits),
		value("rows/s", "rows_rate", digits),
		value("River/s", "river_rate", digits),
		value("times River", "times_river", ratio),
		value("CPU µs per message", "cpu_us_per_message", digits),
		value("server's", "server_us_per_message", digits),
		value("server's with chosen IDs", "chosen_server_us_per_message", digits),
		othersColumn, roundsColumn)
}

func postgresDrainTable(r run) string {
	return scenarioTable(r, "drained by", []row{{"1 process", postgresDrain}, {"8 processes", postgresFleet}},
		value("messages/s", "rate", digits),
		value("rows/s", "rows_rate", digits),
		value("River/s", "river_rate", digits),
		value(fastLabel()+"/s", "river_fast_rate", digits),
		value("times River", "times_river", ratio),
		othersColumn, roundsColumn)
}

// postgresCostTable has a row for each cost of a message in postgresDrain and a column for each
// system.
func postgresCostTable(r run) string {
	var b strings.Builder
	b.WriteString("| per message | Punctual | rows | River | " + fastLabel() + " |\n|---|--:|--:|--:|--:|\n")
	for _, x := range []struct{ what, value string }{
		{"server's CPU µs, from push to ack", "server_us_per_message"},
		{"CPU µs of the process that handles", "cpu_us_per_message"},
		{"transactions", "transactions_per_message"},
		{"bytes of WAL", "wal_bytes_per_message"},
	} {
		fmt.Fprintf(&b, "| %s |", x.what)
		for _, c := range postgresSystems {
			if s, ok := r.over(postgresDrain, c.prefix+x.value); ok {
				b.WriteString(" " + s.figure(digits) + " |")
			} else {
				b.WriteString(" not measured |")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func postgresLatenessTable(r run) string {
	return scenarioTable(r, "load", []row{{commas(postgresRate) + "/s", postgresLateness}},
		value("handler start p50 ms", "start_p50_ms", digits),
		value("p99 ms", "start_p99_ms", digits),
		value("p99.9 ms", "start_p999_ms", digits),
		value("max ms", "start_max_ms", digits),
		value("pushed too late", "overdue_share", percent),
		value("transactions per message", "transactions_per_message", digits),
		value("server's CPU µs per message", "server_us_per_message", digits),
		othersColumn, roundsColumn)
}

func postgresLifeTable(r run) string {
	return scenarioTable(r, "lives", []row{{"1 process, batches of 1000", postgresLife}},
		value("lives/s", "rate", digits),
		value("rows/s", "rows_rate", digits),
		value("ratio", "ratio", ratio),
		value("CPU µs per life", "cpu_us_per_message", digits),
		value("server's", "server_us_per_message", digits),
		value("bytes of WAL", "wal_bytes_per_message", digits),
		othersColumn, roundsColumn)
}

func postgresSizeTable(r run) string {
	return scenarioTable(r, "after many lives", []row{{"batches of 1000", postgresSize}},
		value("messages", "messages", func(v float64) string { return commas(int64(v)) }),
		value("lives/s", "rate", digits),
		value("table MB", "table_bytes", inMB),
		value("indexes MB", "index_bytes", inMB),
		value("claim of 1000, first tenth p50 ms", "first_claim_p50_ms", digits),
		value("p99 ms", "first_claim_p99_ms", digits),
		value("last tenth p50 ms", "last_claim_p50_ms", digits),
		value("p99 ms", "last_claim_p99_ms", digits),
		value("then with a snapshot held", "held_messages", func(v float64) string { return commas(int64(v)) }),
		value("last tenth p50 ms", "held_last_claim_p50_ms", digits),
		value("p99 ms", "held_last_claim_p99_ms", digits),
		value("acks tried again, because another claim held the row", "held_acks", func(v float64) string { return commas(int64(v)) }),
		othersColumn, roundsColumn)
}
