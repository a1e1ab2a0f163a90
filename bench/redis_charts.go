package main

import "fmt"

// The charts of docs/performance.md about the store on Redis.

var redisCharts = []picture{
	{"redis-rates.svg", redisRatesChart},
	{"redis-lateness.svg", redisLatenessChart},
}

// side is a bar of a group: a value, its colour, and how far from the middle of the group.
type side struct {
	value, class string
	offset       float64
}

// addSides draws the values of a scenario beside each other.
func (p *panel) addSides(r run, at float64, scenario string, sides ...side) {
	for _, x := range sides {
		if s, ok := r.over(scenario, x.value); ok {
			p.upTo(s.max)
			p.bar(at+x.offset, s.median, s.min, s.max, x.class, thousands(s.median))
		}
	}
}

// thousands labels a rate in little space.
func thousands(v float64) string {
	if v < 10_000 {
		return fmt.Sprintf("%.1fk", v/1000)
	}
	return fmt.Sprintf("%.0fk", v/1000)
}

func redisRatesChart(r run) chart {
	schedule := &panel{slim: true, title: "schedule", yTitle: "messages a second"}
	for _, x := range redisSchedules() {
		if x.fsync != everySecond || x.callers == 1 && x.batch == 1 {
			continue
		}
		at := float64(len(schedule.groups))
		name := fmt.Sprintf("lists of %d", x.batch)
		if x.batch == 1 {
			name = fmt.Sprintf("%d callers", x.callers)
		}
		schedule.groups = append(schedule.groups, name)
		schedule.addSides(r, at, x.name(), side{"lists_rate", "q1", -0.27}, side{"rate", "a", 0}, side{"asynq_rate", "b", 0.27})
	}
	drain := &panel{slim: true, title: "claim and ack, concurrency 64", xTitle: "processes", yTitle: "messages a second"}
	for _, x := range redisDrains() {
		if x.fsync != everySecond || !x.rivals {
			continue
		}
		at := float64(len(drain.groups))
		drain.groups = append(drain.groups, fmt.Sprint(x.processes))
		drain.addSides(r, at, x.name(), side{"raw_rate", "q1", -0.27}, side{"rate", "a", 0}, side{"asynq_rate", "b", 0.27})
	}
	schedule.upTo(0)
	drain.upTo(0)
	return chart{
		title:  "Rates on Redis, appendfsync everysec",
		legend: []key{{"a", "Punctual"}, {"q1", "the same bytes, raw"}, {"b", "asynq"}},
		panels: []*panel{schedule, drain},
	}
}

func redisLatenessChart(r run) chart {
	var ps []*panel
	for _, rate := range redisRates {
		p := &panel{title: commas(int64(rate)) + " a second", xTitle: "processes", yTitle: "ms late when the handler starts"}
		p.logUpTo(0.1, 10)
		for i, x := range redisLatenesses(rate) {
			name := fmt.Sprint(x.processes)
			switch x.system {
			case sysAsynq:
				name = "asynq " + name
			case sysAsynqFast:
				name = "fast " + name
			}
			p.groups = append(p.groups, name)
			p.addQuantiles(r, float64(i), x.name())
		}
		if rate == 2_000 {
			p.aim(-0.5, 2.5, aimRedisLate, "aim 5")
		}
		ps = append(ps, p)
	}
	return chart{
		title:  "Lateness on Redis; asynq's messages that came early are drawn as on time",
		legend: quantileLegend, panels: sameScale(ps),
	}
}
