package main

import "fmt"

// redisCharts are the charts about the store on Redis.
var redisCharts = []picture{
	{"redis-rates.svg", redisRatesChart},
	{"redis-lateness.svg", redisLatenessChart},
}

// addRivals draws three bars for each scenario: in the middle Punctual's rate, to its left that of
// the reference, and to its right that of asynq.
func (p *panel) addRivals(r run, reference string, scenarios []string) {
	label := func(s spread) string {
		if s.median < 10_000 {
			return fmt.Sprintf("%.1fk", s.median/1000)
		}
		return fmt.Sprintf("%.0fk", s.median/1000)
	}
	p.Legend.Add("Punctual", p.bars(ours, 0, r.spreads("rate", scenarios...), label))
	p.Legend.Add("the same bytes, raw", p.bars(raw, -1.1, r.spreads(reference, scenarios...), label))
	p.Legend.Add("asynq", p.bars(rival, 1.1, r.spreads("asynq_rate", scenarios...), label))
	p.upTo(p.Y.Max * 1.1) // room for the legend above the bars
}

func redisRatesChart(r run) chart {
	var groups, scenarios []string
	for _, x := range redisSchedules() {
		if x.fsync != everySecond || x.callers == 1 && x.batch == 1 {
			continue
		}
		name := fmt.Sprintf("lists of %d", x.batch)
		if x.batch == 1 {
			name = fmt.Sprintf("%d callers", x.callers)
		}
		groups, scenarios = append(groups, name), append(scenarios, x.name())
	}
	schedule := newPanel("schedule", "", "messages a second", groups...)
	schedule.addRivals(r, "lists_rate", scenarios)

	groups, scenarios = nil, nil
	for _, x := range redisDrains() {
		if x.fsync == everySecond && x.rivals {
			groups, scenarios = append(groups, fmt.Sprint(x.processes)), append(scenarios, x.name())
		}
	}
	drain := newPanel("claim and ack, concurrency 64", "processes", "messages a second", groups...)
	drain.addRivals(r, "raw_rate", scenarios)
	return chart{title: "Rates on Redis, appendfsync everysec", panels: []*panel{schedule, drain}}
}

func redisLatenessChart(r run) chart {
	var ps []*panel
	for _, rate := range redisRates {
		var groups, scenarios []string
		for _, x := range redisLatenesses(rate) {
			name := fmt.Sprint(x.processes)
			switch x.system {
			case sysAsynq:
				name = "asynq " + name
			case sysBullMQ:
				name = "BullMQ " + name
			case sysAsynqFast:
				name = "fast " + name
			}
			groups, scenarios = append(groups, name), append(scenarios, x.name())
		}
		p := newLogPanel(0.1, commas(int64(rate))+" a second", "processes", late, groups...)
		p.addLateness(r, scenarios...)
		if rate == 2_000 {
			p.aim(-0.5, 1.5, aimRedisLate, "aim 5")
		}
		ps = append(ps, p)
	}
	return chart{title: "Lateness on Redis; asynq's messages that came early are drawn as on time", panels: sameScale(ps)}
}
