package main

import (
	"fmt"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// charts are the charts about the embedded store.
var charts = []picture{
	{"lateness.svg", latenessChart},
	{"schedule.svg", scheduleChart},
	{"drain.svg", drainChart},
	{"pending.svg", pendingChart},
	{"gomaxprocs.svg", busyChart},
}

// quantiles are the quantiles of lateness that the charts show, with their names in the legend.
var quantiles = []struct{ value, name string }{
	{"start_p50_ms", "p50"}, {"start_p99_ms", "p99, with its value"}, {"start_p999_ms", "p99.9"}, {"start_max_ms", "max"},
}

const late = "ms late when the handler starts"

// addLateness draws the quantiles of lateness of each scenario, the medians over its rounds, at
// places 0, 1, 2 and so on of the horizontal axis.
func (p *panel) addLateness(r run, scenarios ...string) {
	values := plotter.XYLabels{}
	for n, q := range quantiles {
		points := plotter.XYs{}
		for i, scenario := range scenarios {
			s, ok := r.over(scenario, q.value)
			if !ok {
				continue
			}
			p.upTo(s.median)
			points = append(points, plotter.XY{X: float64(i), Y: p.shown(s.median)})
			if q.value == "start_p99_ms" {
				values.XYs = append(values.XYs, points[len(points)-1])
				values.Labels = append(values.Labels, digits(s.median))
			}
		}
		if len(points) == 0 {
			continue
		}
		dots := must(plotter.NewScatter(points))
		dots.GlyphStyle = draw.GlyphStyle{Color: ordered[n], Radius: 3.5, Shape: draw.CircleGlyph{}}
		p.Add(dots)
		p.Legend.Add(q.name, dots)
	}
	if len(values.XYs) > 0 {
		p.label(values, vg.Point{X: 6, Y: -3}, text.XLeft, ordered[3])
	}
}

func latenessChart(r run) chart {
	panelOf := func(title, prefix string) *panel {
		var groups, scenarios []string
		for _, rate := range steadyRates {
			groups = append(groups, short(float64(rate)))
			scenarios = append(scenarios, prefix+rateName(rate))
		}
		p := newLogPanel(0.1, title, "messages a second", late, groups...)
		p.addLateness(r, scenarios...)
		p.aim(0.5, 1.4, aim20k, "aim 5")
		p.aim(1.5, 2.4, aim100k, "aim 20")
		return p
	}
	return chart{
		title: "Lateness under a steady load",
		panels: sameScale([]*panel{
			panelOf("nothing else pending", "steady/"),
			panelOf(short(float64(r.machine.Sizes.Pending))+" pending beside it", "pending/steady-"),
		}),
	}
}

// spreads returns the spread of a value for each scenario, or nil for a scenario of which no round
// has it.
func (r run) spreads(value string, scenarios ...string) []*spread {
	var out []*spread
	for _, scenario := range scenarios {
		if s, ok := r.over(scenario, value); ok {
			out = append(out, &s)
		} else {
			out = append(out, nil)
		}
	}
	return out
}

// ratioPanel returns a panel with a bar for each row: its rate as a share of the machine's limit.
func ratioPanel(r run, title string, rows []row, names ...string) *panel {
	p := newPanel(title, "", "share of the machine's limit", names...)
	var scenarios []string
	for _, w := range rows {
		scenarios = append(scenarios, w.scenario)
	}
	p.bars(ours, 0, r.spreads("ratio", scenarios...), func(s spread) string { return ratio(s.median) })
	return p
}

func scheduleChart(r run) chart {
	return chart{
		title: "Durable rates, as shares of raw append and fdatasync of the same bytes; medians, thin lines span all rounds",
		panels: sameScale([]*panel{
			ratioPanel(r, "schedule", chartedSchedules(), "1 at a time", "64 at a time", "lists of 100", "of 1000"),
			ratioPanel(r, "with "+short(float64(r.machine.Sizes.Pending))+" pending", chartedAmends(), "cancel, 64", "lists of 100", "resched., 64", "lists of 100"),
		}),
	}
}

// medianRound returns the round of a scenario whose value is the closest to the median, the first
// of them if there are several. It returns false if no round has the value.
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
	rate := newPanel("handled messages a second", "seconds since they were due", "")
	bystanders := newPanel("bystanders, one each 10 ms: the latest of each 0.1 s", "seconds since the others were due", "ms late")
	rate.X.Min, rate.X.Max, bystanders.X.Min, bystanders.X.Max = 0, 1, 0, 1
	if res, ok := r.medianRound("drain", "rate"); ok {
		rate.curve(res.Series["rate"], ours)
		bystanders.curve(res.Series["bystander_worst_ms"], rival)
	}
	bystanders.X.Max = max(rate.X.Max, bystanders.X.Max)
	rate.X.Max = bystanders.X.Max
	bystanders.aim(0, bystanders.X.Max, aimBystander, "aim p99 250 ms")
	return chart{
		title:  "Drain of " + short(float64(r.machine.Sizes.Burst)) + " messages due in one instant",
		panels: []*panel{rate, bystanders},
	}
}

func pendingChart(r run) chart {
	count := float64(r.machine.Sizes.Pending)
	growth := func(title, unit, series string) *panel {
		p := newPanel(title, "messages pending", unit)
		p.X.Min, p.X.Max = 0, count
		for _, res := range r.results {
			if res.Scenario == fillScenario {
				var ps []point
				for _, q := range res.Series[series] {
					ps = append(ps, point{q.X, q.Y * 1e-6})
				}
				p.curve(ps, ours)
			}
		}
		return p
	}
	memory := growth("memory", "RSS, MB", "rss_bytes")
	memory.aim(0, count, aimMemory, "aim 400 MB")
	reopen := newPanel("open", "", "seconds", "after close", "after kill -9")
	opened := r.spreads("open_ms", "pending/reopen", "pending/reopen-killed")
	for _, s := range opened {
		if s != nil {
			*s = s.times(1e-3)
		}
	}
	reopen.bars(ours, 0, opened, func(s spread) string { return digits(s.median) + " s" })
	reopen.aim(-0.5, 1.5, aimReopen, "aim 1 s")
	return chart{title: short(count) + " messages pending", panels: []*panel{memory, growth("disk", "MB", "disk_bytes"), reopen}}
}

func busyChart(r run) chart {
	var ps []*panel
	for _, procs := range busyProcs {
		var groups, scenarios []string
		for busy := range busyMost + 1 {
			groups = append(groups, fmt.Sprint(busy))
			scenarios = append(scenarios, busyName(procs, busy))
		}
		p := newLogPanel(0.1, fmt.Sprintf("GOMAXPROCS = %d", procs), "handlers that compute all the time", late, groups...)
		p.addLateness(r, scenarios...)
		ps = append(ps, p)
	}
	return chart{title: fmt.Sprintf("Lateness at %s/s beside busy handlers, on %d cores", commas(busyRate), r.machine.Cores), panels: sameScale(ps)}
}
