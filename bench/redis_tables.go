package main

import (
	"fmt"
	"strings"
)

// redisTables are the tables about the store on Redis.
var redisTables = []table{
	{"redis-machine", redisMachineTable},
	{"redis-aims", redisAimsTable},
	{"redis-schedule", redisScheduleTable},
	{"redis-drain", redisDrainTable},
	{"redis-lateness", redisLatenessTable},
	{"redis-bullmq", bullmqTable},
	{"redis-cost", redisCostTable},
	{"redis-idle", redisIdleTable},
}

func redisMachineTable(r run) string {
	m, z := r.machine, r.machine.Sizes
	return r.machineTable("beside it", fmt.Sprintf("redis-server %s on loopback, asynq %s, BullMQ %s", orUnknown(m.Redis), orUnknown(m.Asynq), orUnknown(m.BullMQ)),
		fmt.Sprintf("rates over %v, lateness over %v, %s messages due in one instant, %s pending",
			z.RedisSpan, z.RedisWindow, commas(int64(z.RedisBurst)), commas(int64(z.RedisPending))))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// The aims for the store on Redis.
const (
	aimDrainTimes    = 10.0  // times the rate of asynq, with 64 handlers
	aimScheduleTimes = 2.3   // times the rate of asynq, with 64 callers
	aimScheduleBare  = 0.65  // times the rate of the bare commands in a pipeline, with 64 callers
	aimLoneTimes     = 1.0   // times the rate of asynq, with one caller
	aimRedisMemory   = 470.0 // bytes for each pending message
	aimCalls         = 0.08  // script calls for each message, with 64 handlers
	aimRedisLife     = 12.0  // µs of CPU time of the server for each message, with 64 handlers
	aimRedisLate     = 5.0   // ms, p99 of how late handlers start, at 2,000/s with 1 and 8 processes
	aimRedisLateMany = 6.0   // ms, the same with 32 processes
	aimRedisLate20k  = 15.0  // ms, the same at 20,000/s with 1 process
	aimRedisTopics   = 50.0  // ms, the same in 10,000 topics
	aimRedisIdle     = 0.005 // cores, an idle process and its server
)

// goal is an aim for a value: to be at least the limit (atLeast) or below it.
type goal struct {
	what, scenario, value, unit string
	scale                       float64 // factor from the unit of the value to that of the limit
	atLeast                     bool
	limit                       float64
}

func redisAims() []goal {
	const one, callers = "redis-schedule/single-1", "redis-schedule/single-64"
	all := []goal{
		{"drain, 64 handlers", "redis-drain/1x64", "times_asynq", " times asynq", 1, true, aimDrainTimes},
		{"schedule, 64 callers one by one", callers, "piped_ratio", " of the bare commands, pipelined", 1, true, aimScheduleBare},
		{"the same", callers, "times_asynq", " times asynq", 1, true, aimScheduleTimes},
		{"schedule, 1 caller", one, "times_asynq", " times asynq", 1, true, aimLoneTimes},
		{"the same, with a context that cannot end", one, "endless_times_asynq", " times asynq", 1, true, aimLoneTimes},
		{"Redis CPU for a message's life under load, 64 handlers", lifeName(redisHands), "redis_us_per_message", " µs", 1, false, aimRedisLife},
		{"script calls for a message's life under load, 64 handlers", lifeName(redisHands), "commands_per_message", "", 1, false, aimCalls},
	}
	late := func(what string, x redisLateness, limit float64) {
		all = append(all, goal{fmt.Sprintf("lateness at %s, p99, %s", what, processes(x.processes)), x.name(), "start_p99_ms", " ms", 1, false, limit})
	}
	late("2,000/s", redisLateness{2_000, sysPunctual, 1}, aimRedisLate)
	late("2,000/s", redisLateness{2_000, sysPunctual, 8}, aimRedisLate)
	late("2,000/s", redisLateness{2_000, sysPunctual, 32}, aimRedisLateMany)
	late("20,000/s", redisLateness{20_000, sysPunctual, 1}, aimRedisLate20k)
	return append(all,
		goal{"lateness in 10,000 topics of one worker, p99", topicsScenario, "start_p99_ms", " ms", 1, false, aimRedisTopics},
		goal{"CPU of an idle process and its server", idleName(sysPunctual, 1), "all_cpu", " cores", 1, false, aimRedisIdle},
		goal{"Redis memory for a pending message of 200 bytes", memoryScenario, "bytes_per_message", " bytes", 1, false, aimRedisMemory})
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

func redisAimsTable(r run) string { return goalsTable(r, redisAims()) + earlyRow(r) }

// goalsTable has a row for each goal, which says whether every round met it, only the median did,
// or not even that.
func goalsTable(r run, all []goal) string {
	var b strings.Builder
	b.WriteString("| | aim | measured | rounds | |\n|---|--:|--:|--:|---|\n")
	for _, a := range all {
		word := "below"
		if a.atLeast {
			word = "at least"
		}
		fmt.Fprintf(&b, "| %s | %s %s%s |", a.what, word, short(a.limit), a.unit)
		s, ok := r.over(a.scenario, a.value)
		if !ok {
			b.WriteString(" not measured | 0 | not known |\n")
			continue
		}
		s = s.times(a.scale)
		fmt.Fprintf(&b, " %s%s | %d | %s |\n", s.figure(digits), a.unit, s.rounds, a.told(s))
	}
	return b.String()
}

func (a goal) told(s spread) string {
	worst, met := s.max, func(v float64) bool { return v < a.limit }
	if a.atLeast {
		worst, met = s.min, func(v float64) bool { return v >= a.limit }
	}
	switch {
	case met(worst):
		return "met"
	case met(s.median):
		return "met in the median, not in every round"
	}
	return "**not met**"
}

// earlyRow returns the row about messages that Punctual delivered early. A round with such a
// message has failed with an error that names P2.
func earlyRow(r run) string {
	rounds, bad := 0, 0
	for _, res := range r.results {
		_, counted := res.Values["early"]
		switch {
		case strings.Contains(res.Error, "(P2)"):
			bad++
		case counted && (strings.HasPrefix(res.Scenario, "redis-drain/") || strings.Contains(res.Scenario, "-"+sysPunctual+"-")):
			rounds++
		}
	}
	const head = "| messages delivered early, all rounds of drain and lateness | none |"
	switch {
	case bad > 0:
		return fmt.Sprintf("%s some, in %d rounds | %d | **not met** |\n", head, bad, rounds+bad)
	case rounds == 0:
		return head + " not measured | 0 | not known |\n"
	}
	return fmt.Sprintf("%s none | %d | met |\n", head, rounds)
}

func redisScheduleTable(r run) string {
	var rows []row
	for _, x := range redisSchedules() {
		rows = append(rows, row{callersLabel(x.callers, x.batch) + comma(x.fsync), x.name()})
	}
	return scenarioTable(r, "scheduled by", rows,
		value("messages/s", "rate", digits),
		value("with chosen IDs/s", "chosen_rate", digits),
		value("pairs/s", "raw_rate", digits),
		value("ratio", "ratio", ratio),
		value("pairs, 64 in a pipeline/s", "piped_rate", digits),
		value("ratio", "piped_ratio", ratio),
		value("lists/s", "lists_rate", digits),
		value("ratio", "lists_ratio", ratio),
		value("asynq/s", "asynq_rate", digits),
		value("times asynq", "times_asynq", digits),
		value("with a context that cannot end, times asynq", "endless_times_asynq", digits),
		value("CPU µs per message", "cpu_us_per_message", digits),
		value("call p50 ms", "call_p50_ms", digits),
		value("call p99 ms", "call_p99_ms", digits),
		othersColumn, roundsColumn)
}

func comma(fsync string) string {
	if fsync == always {
		return ", fsync always"
	}
	return ""
}

func redisDrainTable(r run) string {
	var rows []row
	for _, x := range redisDrains() {
		rows = append(rows, row{fmt.Sprintf("%s, concurrency %d%s", processes(x.processes), x.slots, comma(x.fsync)), x.name()})
	}
	return scenarioTable(r, "drained by", rows,
		value("messages/s", "rate", digits),
		value("reference/s", "raw_rate", digits),
		value("ratio", "ratio", ratio),
		value("asynq/s", "asynq_rate", digits),
		value("asynq, polls down/s", "asynq_fast_rate", digits),
		value("times asynq", "times_asynq", digits),
		value("first after ms", "first_ms", digits),
		value("asynq ms", "asynq_first_ms", digits),
		value("consumers' CPU µs per message", "cpu_us_per_message", digits),
		othersColumn, roundsColumn)
}

// systemLabel returns the name of a system in tables.
func systemLabel(system string) string {
	return map[string]string{sysPunctual: "Punctual", sysAsynq: "asynq, defaults", sysAsynqFast: "asynq, polls down", sysBullMQ: "BullMQ", sysRiver: "River"}[system]
}

func redisLatenessTable(r run) string {
	var rows []row
	for _, rate := range redisRates {
		for _, x := range redisLatenesses(rate) {
			rows = append(rows, row{fmt.Sprintf("%s/s, %s, %s", commas(int64(rate)), systemLabel(x.system), processes(x.processes)), x.name()})
		}
	}
	rows = append(rows, row{fmt.Sprintf("%d/s in 10,000 topics, Punctual, 1 process", topicsRate), topicsScenario})
	return scenarioTable(r, "load", rows,
		value("handler start p50 ms", "start_p50_ms", digits),
		value("p99 ms", "start_p99_ms", digits),
		value("p99.9 ms", "start_p999_ms", digits),
		value("max ms", "start_max_ms", digits),
		value("pushed too late", "overdue_share", percent),
		value("early", "early_share", percent),
		value("by up to ms", "earliest_ms", digits),
		value("script calls per message", "commands_per_message", digits),
		value("Redis CPU µs per message", "redis_us_per_message", digits),
		value("consumers' CPU µs per message", "cpu_us_per_message", digits),
		othersColumn, roundsColumn)
}

// redisCostTable has a row for each cost and a column for each system.
func redisCostTable(r run) string {
	var b strings.Builder
	b.WriteString("| per message | Punctual | reference | asynq |\n|---|--:|--:|--:|\n")
	put := func(what, scenario, value string, f func(float64) string, prefixes ...string) {
		fmt.Fprintf(&b, "| %s |", what)
		for _, p := range prefixes {
			s, ok := r.over(scenario, p+value)
			switch {
			case p == none:
				b.WriteString(" |")
			case !ok:
				b.WriteString(" not measured |")
			default:
				b.WriteString(" " + s.figure(f) + " |")
			}
		}
		b.WriteByte('\n')
	}
	pending := commas(int64(r.machine.Sizes.RedisPending))
	put("bytes of Redis memory, pending, at "+pending, memoryScenario, "bytes_per_message", digits, "", "raw_", "asynq_")
	put("the most on the way there", memoryScenario, "worst_bytes_per_message", digits, "", "raw_", "asynq_")
	const push, batch, drain = "redis-schedule/single-64", "redis-schedule/batch-1000", "redis-drain/1x64"
	put("Redis CPU µs, push, 64 callers one by one", push, "redis_us_per_message", digits, "", "raw_", "asynq_")
	put("Redis CPU µs, push, batches of 1000", batch, "redis_us_per_message", digits, "", "raw_", none)
	put("the same with chosen IDs, 64 callers one by one", push, "chosen_redis_us_per_message", digits, "", none, none)
	put("the same with chosen IDs, batches of 1000", batch, "chosen_redis_us_per_message", digits, "", none, none)
	put("Redis CPU µs, claim and ack, 1 process", drain, "redis_us_per_message", digits, "", "raw_", "asynq_fast_")
	put("script calls, push, 64 callers one by one", push, "commands_per_message", digits, "", "raw_", "asynq_")
	put("script calls, claim and ack, 1 process", drain, "commands_per_message", digits, "", "raw_", "asynq_fast_")
	for _, slots := range lifeSlots {
		life := fmt.Sprintf(", whole life under load, concurrency %d", slots)
		put("script calls"+life, lifeName(slots), "commands_per_message", digits, "", none, "asynq_")
		put("other commands, in scripts or alone"+life, lifeName(slots), "script_commands_per_message", digits, "", none, "asynq_")
		put("Redis CPU µs"+life, lifeName(slots), "redis_us_per_message", digits, "", none, "asynq_")
	}
	return b.String()
}

// none stands in place of a prefix where a system has no such figure.
const none = "-"

func redisIdleTable(r run) string {
	var rows []row
	for _, x := range idleProcesses {
		rows = append(rows, row{systemLabel(x.system) + ", " + processes(x.processes), idleName(x.system, x.processes)})
	}
	return scenarioTable(r, "idle", rows,
		value("scripts a second and process", "scripts_per_s", digits),
		value("with PING and the like", "commands_per_s", digits),
		value("other commands, in scripts or alone", "script_commands_per_s", digits),
		value("Redis CPU, all processes, cores", "redis_cpu", digits),
		value("with the processes' own, cores", "all_cpu", digits),
		othersColumn)
}
