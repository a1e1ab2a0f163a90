package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// tables are the tables about the embedded store.
var tables = []table{
	{"machine", machineTable},
	{"aims", aimsTable},
	{"schedule", scheduleTable},
	{"steady", steadyTable},
	{"drain", drainTable},
	{"pending", pendingTable},
	{"amend", amendTable},
	{"busy", busyTable},
}

// column is a column of a table that has a scenario in each row.
type column struct {
	head string
	cell func(r run, scenario string) string
}

// value returns a column that shows the value with the given name as f writes it, or "-" where no
// round of the scenario has it.
func value(head, name string, f func(float64) string) column {
	return column{head, func(r run, scenario string) string {
		s, ok := r.over(scenario, name)
		if !ok {
			return "-"
		}
		return s.figure(f)
	}}
}

func inMB(v float64) string { return digits(v / 1e6) }

var (
	roundsColumn = column{"rounds", func(r run, scenario string) string { return fmt.Sprint(r.rounds(scenario)) }}
	othersColumn = value("CPU used by others", "others_cpu", percent)
)

// rounds returns how many rounds of a scenario were measured, without those that failed.
func (r run) rounds(scenario string) (n int) {
	for _, res := range r.results {
		if res.Scenario == scenario && res.Error == "" {
			n++
		}
	}
	return n
}

// row is a scenario and its label in a table.
type row struct{ label, scenario string }

// callersLabel says how many callers there are, and how many messages each passes in one call.
func callersLabel(callers, batch int) string {
	who := fmt.Sprintf("%d callers", callers)
	if callers == 1 {
		who = "1 caller"
	}
	if batch == 1 {
		return who + ", one by one"
	}
	return fmt.Sprintf("%s, batches of %d", who, batch)
}

// scenarioTable returns a table with the given rows. The cells of a scenario of which no round was
// measured say "not measured".
func scenarioTable(r run, head string, rows []row, columns ...column) string {
	var b strings.Builder
	b.WriteString("| " + head + " |")
	rule := "|---|"
	for _, c := range columns {
		b.WriteString(" " + c.head + " |")
		rule += "--:|"
	}
	b.WriteString("\n" + rule + "\n")
	for _, w := range rows {
		b.WriteString("| " + w.label + " |")
		for _, c := range columns {
			if r.rounds(w.scenario) == 0 {
				b.WriteString(" not measured |")
				continue
			}
			b.WriteString(" " + c.cell(r, w.scenario) + " |")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func machineTable(r run) string {
	z := r.machine.Sizes
	return r.machineTable("memory", fmt.Sprintf("%d GiB", r.machine.MemoryGiB),
		fmt.Sprintf("rates over %v, lateness over %v, %s messages due in one instant, %s pending", z.Span, z.Window, commas(int64(z.Burst)), commas(int64(z.Pending))))
}

// machineTable returns the table that says where and when the rounds of a part were measured. The
// row "what" has a value that differs from part to part.
func (r run) machineTable(what, value, sizes string) string {
	m := r.machine
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"measured", strings.TrimSuffix(strings.Replace(m.Run, "T", " ", 1), "Z") + " UTC"},
		{"processor", fmt.Sprintf("%d cores, %s", m.Cores, m.CPU)},
		{"system", fmt.Sprintf("%s, %s, %s", m.Kernel, m.FileSystem, m.Go)},
		{what, value},
		{"sizes", sizes},
		{"CPU used by others meanwhile", r.others()},
		{"rounds", r.tellRounds()},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	return b.String()
}

// others says which share of the machine's CPU time other programs used during the rounds: the
// mean, in which each round counts the same, the least and the most.
func (r run) others() string {
	var s spread
	sum := 0.0
	s.min = math.Inf(1)
	for _, res := range r.results {
		if v, ok := res.Values["others_cpu"]; ok {
			s.rounds++
			sum += v
			s.min, s.max = min(s.min, v), max(s.max, v)
		}
	}
	if s.rounds == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s on average over the rounds, %s to %s", percent(sum/float64(s.rounds)), percent(s.min), percent(s.max))
}

// tellRounds says how many rounds were measured, and names those that failed, with their errors.
func (r run) tellRounds() string {
	var failed []string
	for _, res := range r.results {
		if res.Error != "" {
			failed = append(failed, fmt.Sprintf("%s round %d failed: %s", res.Scenario, res.Round, strings.ReplaceAll(res.Error, "|", "/")))
		}
	}
	return strings.Join(append([]string{fmt.Sprintf("%d measured", len(r.results)-len(failed))}, failed...), "; ")
}

// Aims on a machine with two cores.
const (
	aim20k       = 5.0   // ms, p99 of how late handlers start at 20,000 messages a second
	aim100k      = 20.0  // ms, the same at 100,000 messages a second
	aimBystander = 250.0 // ms, the same of bystanders during a drain
	aimReopen    = 1.0   // s
	aimMemory    = 400.0 // MB, the peak of the resident memory

	// Messages a second beside many pending, in lists. From 64 goroutines one by one the aim is
	// half of that.
	aimChosen     = 60_000
	aimCancel     = 60_000
	aimReschedule = 40_000
)

func aimsTable(r run) string {
	pending := strings.TrimSpace(short(float64(r.machine.Sizes.Pending)))
	all := []goal{
		{"lateness at 20,000/s, p99", "steady/20k", "start_p99_ms", " ms", 1, false, aim20k},
		{"lateness at 100,000/s, p99", "steady/100k", "start_p99_ms", " ms", 1, false, aim100k},
		{"lateness at 20,000/s beside " + pending + " pending, p99", "pending/steady-20k", "start_p99_ms", " ms", 1, false, aim20k},
		{"lateness at 100,000/s beside " + pending + " pending, p99", "pending/steady-100k", "start_p99_ms", " ms", 1, false, aim100k},
		{"bystander while " + short(float64(r.machine.Sizes.Burst)) + " due in one instant are drained, p99", "drain", "start_p99_ms", " ms", 1, false, aimBystander},
		{"memory while " + pending + " are pushed, RSS at its peak", fillScenario, "rss_peak_bytes", " MB", 1e-6, false, aimMemory},
		{"memory at 100,000/s beside " + pending + " pending, RSS at its peak", "pending/steady-100k", "rss_peak_bytes", " MB", 1e-6, false, aimMemory},
		{"reopen with " + pending + " pending, after close", "pending/reopen", "open_ms", " s", 1e-3, false, aimReopen},
		{"reopen with " + pending + " pending, after kill -9", "pending/reopen-killed", "open_ms", " s", 1e-3, false, aimReopen},
	}
	for _, a := range []struct {
		what, batch, callers string
		aim                  float64
	}{
		{"pushes with chosen IDs", "schedule/chosen-batch-100", "schedule/chosen-single-64", aimChosen},
		{"cancels", "cancel-batch-1000", "cancel-single-64", aimCancel},
		{"reschedules", "reschedule-batch-1000", "reschedule-single-64", aimReschedule},
	} {
		all = append(all,
			goal{a.what + " beside " + pending + ", in lists", "pending/" + a.batch, "rate", "/s", 1, true, a.aim},
			goal{"the same, 64 goroutines one by one", "pending/" + a.callers, "rate", "/s", 1, true, a.aim / 2})
	}
	return goalsTable(r, all)
}

var rateColumns = []column{
	value("messages/s", "rate", digits),
	value("limit/s", "limit", digits),
	value("ratio", "ratio", ratio),
	value("CPU µs per message", "cpu_us_per_message", digits),
	value("call p50 ms", "call_p50_ms", digits),
	value("call p99 ms", "call_p99_ms", digits),
	othersColumn,
	roundsColumn,
}

// scheduleRows returns a row for each way of scheduling, first those on an empty store and then
// those beside the pending messages.
func scheduleRows(z sizes) []row {
	var rows []row
	for _, x := range schedules() {
		rows = append(rows, row{x.label(), x.name()})
	}
	for _, x := range pendingSchedules() {
		rows = append(rows, row{x.label() + ", beside " + short(float64(z.Pending)), x.pendingName()})
	}
	return rows
}

func scheduleTable(r run) string {
	return scenarioTable(r, "scheduled by", scheduleRows(r.machine.Sizes), rateColumns...)
}

func amendRows() []row {
	var rows []row
	for _, a := range amendments() {
		who := fmt.Sprintf("%d goroutines, one by one", a.callers)
		if a.batch > 1 {
			who = fmt.Sprintf("%d goroutine, lists of %d", a.callers, a.batch)
		}
		rows = append(rows, row{a.verb + ", " + who, a.name()})
	}
	return rows
}

// chartedSchedules returns the rows that scheduleChart shows: those on an empty store, with IDs
// that the store makes.
func chartedSchedules() []row {
	var rows []row
	for _, x := range schedules() {
		if !x.chosen {
			rows = append(rows, row{x.label(), x.name()})
		}
	}
	return rows
}

// chartedAmends returns the rows that scheduleChart shows: all except those with lists of 1000.
func chartedAmends() []row {
	return slices.DeleteFunc(amendRows(), func(w row) bool { return strings.HasSuffix(w.scenario, "-1000") })
}

func amendTable(r run) string { return scenarioTable(r, "amended by", amendRows(), rateColumns...) }

// steadyRows returns a row for each steady load, first those with nothing else pending and then
// those beside the pending messages.
func steadyRows(z sizes) []row {
	var rows []row
	for _, beside := range []struct{ label, name string }{{"", "steady/"}, {" beside " + short(float64(z.Pending)), "pending/steady-"}} {
		for _, rate := range steadyRates {
			rows = append(rows, row{commas(int64(rate)) + "/s" + beside.label, beside.name + rateName(rate)})
		}
	}
	return rows
}

func steadyTable(r run) string {
	return scenarioTable(r, "load", steadyRows(r.machine.Sizes),
		value("pushed/s", "rate", digits),
		value("handled/s", "handled_rate", digits),
		value("push p99 ms", "push_p99_ms", digits),
		value("claimed p99 ms", "claim_p99_ms", digits),
		value("handler start p50 ms", "start_p50_ms", digits),
		value("p99 ms", "start_p99_ms", digits),
		value("bytes written per life", "disk_bytes_per_life", digits),
		value("times the body", "disk_bytes_per_body_byte", digits),
		value("fsyncs per life", "syncs_per_life", digits),
		value("p99.9 ms", "start_p999_ms", digits),
		value("max ms", "start_max_ms", digits),
		value("CPU µs per message", "cpu_us_per_message", digits),
		value("cores", "cpu_cores", digits),
		value("peak RSS MB", "rss_peak_bytes", inMB),
		othersColumn, roundsColumn)
}

func drainTable(r run) string {
	rows := []row{{commas(int64(r.machine.Sizes.Burst)) + " due in one instant", "drain"}}
	return scenarioTable(r, "drain", rows,
		value("messages/s", "rate", digits),
		value("ratio", "ratio", ratio),
		value("CPU µs per message", "cpu_us_per_message", digits),
		value("bystanders", "bystanders", digits),
		value("bystander p50 ms", "start_p50_ms", digits),
		value("p99 ms", "start_p99_ms", digits),
		value("max ms", "start_max_ms", digits),
		value("peak RSS MB", "rss_peak_bytes", inMB),
		othersColumn, roundsColumn)
}

func pendingTable(r run) string {
	var b strings.Builder
	b.WriteString("| | measured | rounds |\n|---|--:|--:|\n")
	put := func(what, scenario, value, unit string, f func(float64) string) {
		if s, ok := r.over(scenario, value); ok {
			fmt.Fprintf(&b, "| %s | %s%s | %d |\n", what, s.figure(f), unit, s.rounds)
		} else {
			fmt.Fprintf(&b, "| %s | not measured | 0 |\n", what)
		}
	}
	put("pushed in batches of 1000", fillScenario, "rate", "/s", digits)
	put("ratio to the machine's limit", fillScenario, "ratio", "", ratio)
	put("RSS when all are pushed", fillScenario, "rss_bytes", " MB", inMB)
	put("RSS at its peak until then", fillScenario, "rss_peak_bytes", " MB", inMB)
	put("disk, per message", fillScenario, "disk_bytes_per_message", " bytes", digits)
	put("open after close", "pending/reopen", "open_ms", " ms", digits)
	put("first push durable after close, from the start of open", "pending/reopen", "first_push_ms", " ms", digits)
	put("RSS after that", "pending/reopen", "rss_bytes", " MB", inMB)
	put("open after kill -9 under a load of pushes", "pending/reopen-killed", "open_ms", " ms", digits)
	put("first push durable after kill -9, from the start of open", "pending/reopen-killed", "first_push_ms", " ms", digits)
	return b.String()
}

func busyTable(r run) string {
	var rows []row
	for _, procs := range busyProcs {
		for busy := range busyMost + 1 {
			rows = append(rows, row{fmt.Sprintf("%d, %d busy", procs, busy), busyName(procs, busy)})
		}
	}
	z := r.machine.Sizes
	return fmt.Sprintf("%s/s for %v:\n\n", commas(busyRate), busyWindow(z).Round(time.Millisecond)) +
		scenarioTable(r, "GOMAXPROCS, handlers", rows,
			value("handler start p50 ms", "start_p50_ms", digits),
			value("p99 ms", "start_p99_ms", digits),
			value("p99.9 ms", "start_p999_ms", digits),
			value("max ms", "start_max_ms", digits),
			othersColumn, roundsColumn)
}
