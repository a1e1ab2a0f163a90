package main

import (
	"fmt"
	"math"
	"strings"
)

// The charts of docs/performance.md about the embedded store.

var charts = []picture{
	{"lateness.svg", latenessChart},
	{"schedule.svg", scheduleChart},
	{"drain.svg", drainChart},
	{"pending.svg", pendingChart},
	{"gomaxprocs.svg", busyChart},
}

// quantiles are those of lateness that the charts show.
var (
	quantileValues  = []string{"start_p50_ms", "start_p99_ms", "start_p999_ms", "start_max_ms"}
	quantileClasses = []string{"q1", "q2", "q3", "q4"}
	quantileLegend  = []key{{"q1", "p50"}, {"q2", "p99, which the aims are for, with its value"}, {"q3", "p99.9"}, {"q4", "max"}}
)

const labelledQuantile = 1 // p99

// quantiles returns the medians of a scenario's lateness over its rounds.
func (r run) quantiles(scenario string) ([]float64, bool) {
	var vs []float64
	for _, name := range quantileValues {
		s, ok := r.over(scenario, name)
		if !ok {
			return nil, false
		}
		vs = append(vs, s.median)
	}
	return vs, true
}

// addQuantiles draws the lateness of a scenario at a place of the panel.
func (p *panel) addQuantiles(r run, at float64, scenario string) {
	if vs, ok := r.quantiles(scenario); ok {
		p.logUpTo(0.1, vs...)
		p.dots(at, vs, quantileClasses, labelledQuantile, digits(vs[labelledQuantile]))
	}
}

// sameScale gives all panels the range of the widest, so that they can be compared.
func sameScale(ps []*panel) []*panel {
	top := 0.0
	for _, p := range ps {
		top = max(top, p.yMax)
	}
	for _, p := range ps {
		p.yMax = top
	}
	return ps
}

func latenessChart(r run) chart {
	panelOf := func(title, prefix string) *panel {
		p := &panel{title: title, xTitle: "messages a second", yTitle: "ms late when the handler starts"}
		p.logUpTo(0.1, 100)
		for i, rate := range steadyRates {
			p.groups = append(p.groups, short(float64(rate)))
			p.addQuantiles(r, float64(i), prefix+rateName(rate))
		}
		p.aim(0.5, 0.94, aim20k, "aim 5")
		p.aim(1.5, 1.94, aim100k, "aim 20")
		return p
	}
	return chart{
		title: "Lateness under a steady load", legend: quantileLegend,
		panels: sameScale([]*panel{
			panelOf("nothing else pending", "steady/"),
			panelOf(short(float64(r.machine.Sizes.Pending))+" pending beside it", "pending/steady-"),
		}),
	}
}

// ratioPanel shows rates as shares of the machine's limit.
func ratioPanel(r run, title string, rows []row, names []string) *panel {
	p := &panel{title: title, groups: names, yTitle: "share of the machine's limit"}
	for i, w := range rows {
		s, ok := r.over(w.scenario, "ratio")
		if !ok {
			continue
		}
		p.upTo(s.max)
		label := ratio(s.median)
		if rate, ok := r.over(w.scenario, "rate"); ok {
			label += ", " + short(math.Round(rate.median/100)*100) + "/s"
		}
		p.bar(float64(i), s.median, s.min, s.max, "a", label)
	}
	p.upTo(0)
	return p
}

func scheduleChart(r run) chart {
	return chart{
		title:  "Durable rates, as shares of raw append and fdatasync of the same bytes",
		legend: []key{{"a", "median; thin lines span all rounds"}},
		panels: sameScale([]*panel{
			ratioPanel(r, "schedule", scheduleRows, []string{"1 at a time", "64 at a time", "lists of 100", "of 1000"}),
			ratioPanel(r, "with "+short(float64(r.machine.Sizes.Pending))+" pending", amendRows,
				[]string{"cancel, 64", "lists of 100", "resched., 64", "lists of 100"}),
		}),
	}
}

// median returns the round of a scenario with the median of a value.
func (r run) medianRound(scenario, value string) (Result, bool) {
	s, ok := r.over(scenario, value)
	if !ok {
		return Result{}, false
	}
	best, found := Result{}, false
	for _, res := range r.results {
		v, has := res.Values[value]
		if res.Scenario == scenario && has && (!found || math.Abs(v-s.median) < math.Abs(best.Values[value]-s.median)) {
			best, found = res, true
		}
	}
	return best, found
}

func drainChart(r run) chart {
	rate := &panel{title: "handled messages a second", xTitle: "seconds since they were due", xMax: 1}
	late := &panel{title: "bystanders: the latest of each 0.1 s", xTitle: "seconds since the others were due", xMax: 1, yTitle: "ms late"}
	if res, ok := r.medianRound("drain", "rate"); ok {
		rate.series(res.Series["rate"], "a")
		late.series(res.Series["bystander_worst_ms"], "b")
		rate.xMax = max(rate.xMax, late.xMax)
		late.xMax = rate.xMax
	}
	rate.upTo(0)
	late.upTo(aimBystander)
	late.aim(0, late.xMax, aimBystander, "aim p99 250 ms")
	return chart{
		title:  "Drain of " + short(float64(r.machine.Sizes.Burst)) + " messages due in one instant",
		legend: []key{{"a", "the drained topic"}, {"b", "a message each 10 ms in another topic"}},
		panels: []*panel{rate, late},
	}
}

// series draws a curve and widens the axes for it.
func (p *panel) series(ps []point, class string) {
	for _, q := range ps {
		p.upTo(q.Y)
		p.xMax = max(p.xMax, q.X)
	}
	p.curve(ps, class)
}

func pendingChart(r run) chart {
	scaled := func(series string, by float64) []point {
		var ps []point
		for _, res := range r.results {
			if res.Scenario == fillScenario {
				ps = ps[:0]
				for _, q := range res.Series[series] {
					ps = append(ps, point{q.X, q.Y * by})
				}
			}
		}
		return ps
	}
	count := float64(r.machine.Sizes.Pending)
	memory := &panel{title: "memory", xTitle: "messages pending", yTitle: "RSS, MB", xMax: count}
	memory.series(scaled("rss_bytes", 1e-6), "a")
	memory.upTo(aimMemory)
	memory.aim(0, count, aimMemory, "aim 400 MB")
	disk := &panel{title: "disk", xTitle: "messages pending", yTitle: "MB", xMax: count}
	disk.series(scaled("disk_bytes", 1e-6), "a")
	disk.upTo(0)
	reopen := &panel{title: "open", yTitle: "seconds", groups: []string{"after close", "after kill -9"}}
	for i, name := range []string{"pending/reopen", "pending/reopen-killed"} {
		if s, ok := r.over(name, "open_ms"); ok {
			s = s.times(1e-3)
			reopen.upTo(s.max)
			reopen.bar(float64(i), s.median, s.min, s.max, "a", digits(s.median)+" s")
		}
	}
	reopen.upTo(aimReopen)
	reopen.aim(-0.5, 1.5, aimReopen, "aim 1 s")
	return chart{
		title:  strings.TrimSpace(short(count)) + " messages pending",
		legend: []key{{"a", "as the store grows, and when it is opened again"}},
		panels: []*panel{memory, disk, reopen},
	}
}

func busyChart(r run) chart {
	var ps []*panel
	for _, procs := range busyProcs {
		p := &panel{
			title: fmt.Sprintf("GOMAXPROCS = %d", procs), xTitle: "handlers that compute all the time",
			yTitle: "ms late when the handler starts",
		}
		p.logUpTo(0.1, 100)
		for busy := range busyMost + 1 {
			p.groups = append(p.groups, fmt.Sprint(busy))
			p.addQuantiles(r, float64(busy), busyName(procs, busy))
		}
		ps = append(ps, p)
	}
	return chart{
		title:  fmt.Sprintf("Lateness at %s/s beside busy handlers, on %d cores", commas(busyRate), r.machine.Cores),
		legend: quantileLegend, panels: sameScale(ps),
	}
}
