package console

import (
	"math"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
)

// Observer returns an observer that measures rates and lateness. It also notes the consumers,
// unless Options.Consumers or the store reports those. Give it to the Server, Queue or Worker that
// uses the same store. A console whose Observer method was never called shows neither rates nor
// lateness.
func (c *Console) Observer() *punctual.Observer {
	c.observed.Store(true)
	if c.options.Consumers != nil || c.reporter != nil {
		return c.meter.Observer()
	}
	return punctual.JoinObservers(c.meter.Observer(), c.tracker.Observer(wire.OwnName()))
}

// perMinute writes the mean per minute of a count over some minutes, rounded to a whole number.
func perMinute(n, minutes int64) string { return overview.Grouped((n + minutes/2) / minutes) }

// traffic shows what the meter has counted: rates of the last minutes, and the lateness of the last
// hour.
type traffic struct {
	// Since is when counting began.
	Since time.Time
	// Rates are means over the last rateMinutes minutes. The page of all topics leaves out Rates
	// and Curve.
	Rates []rate
	// Curve is the lateness of each minute of the last hour, nil if nothing was delivered in it.
	Curve *curve
}

// rate is the mean number of events of one kind in a minute.
type rate struct {
	// Name is the kind, and the end of its key in the catalogue.
	Name      string
	PerMinute string
}

// curve is a picture of lateness over time, on a logarithmic scale, and the same numbers as a
// table.
type curve struct {
	// Name is the key of the caption. Path leads to the page of lateness, or is "" on that page.
	Name, Path string
	Paths      []curvePath
	Lines      []line
	Prompt     float64 // y of the line at overview.PromptLimit
	// Oldest is the y of the line for the message that has been ready longest, if HasOldest is
	// true.
	Oldest    float64
	HasOldest bool
	Ticks     []tick
	Rows      []curveRow
}

type curvePath struct{ Name, D string }

// curveRow is a step in which something was delivered.
type curveRow struct {
	Label         string
	Deliveries    int64
	P50, P99, Max string
}

const (
	// trafficMinutes is how many minutes a spark and the curve of the last hour cover, rateMinutes
	// over how many minutes rates are averaged.
	trafficMinutes, rateMinutes = 60, 5
)

// traffic returns what the meter has counted, or nil if it does not count.
func (c *call) traffic(f *frame) *traffic {
	if !c.console.observed.Load() {
		return nil
	}
	t := &traffic{Since: c.console.meter.Since()}
	if steps, sum := c.console.meter.Steps("", rateMinutes, 1); steps != nil {
		for _, r := range []struct {
			name  string
			count int64
		}{{"pushes", sum.Pushes}, {"deliveries", sum.Deliveries}, {"acks", sum.Acks}, {"retries", sum.Retries}, {"discards", sum.Discards}} {
			t.Rates = append(t.Rates, rate{r.name, perMinute(r.count, rateMinutes)})
		}
	}
	minutes, _ := c.console.meter.Steps("", trafficMinutes, 1)
	if t.Curve = curveOf(f, latenessSpans()[0], minutes, 0); t.Curve != nil {
		t.Curve.Path = f.Path("/lateness")
	}
	return t
}

// heights maps latenesses up to most to heights in a picture, by their logarithm.
type heights struct {
	most   time.Duration
	height float64
}

// leastMost is the least upper end of a scale. It is above overview.PromptLimit, so that every
// picture contains the line at that limit.
const leastMost = 10 * time.Second

// heightsFor returns a scale that reaches to the greatest lateness of the steps, and to oldest.
func heightsFor(height float64, oldest time.Duration, all ...overview.Traffic) heights {
	h := heights{max(leastMost, oldest), height}
	for _, m := range all {
		h.most = max(h.most, m.Max)
	}
	return h
}

func (h heights) of(d time.Duration) float64 {
	return round(h.height - (h.height-h.height/10)*math.Log10(float64(d.Milliseconds())+1)/math.Log10(float64(h.most.Milliseconds())+1))
}

// latenessPaths returns the lines of the greatest lateness, the 99th percentile and the median.
func (h heights) latenessPaths(all []overview.Traffic) (out []curvePath) {
	for _, p := range []struct {
		name string
		of   func(overview.Traffic) time.Duration
	}{
		{"max", func(t overview.Traffic) time.Duration { return t.Max }},
		{"p99", func(t overview.Traffic) time.Duration { return t.P99 }},
		{"p50", func(t overview.Traffic) time.Duration { return t.P50 }},
	} {
		out = append(out, curvePath{p.name, pathOf(all, func(t overview.Traffic) float64 { return h.of(p.of(t)) })})
	}
	return out
}

// curveOf returns the curve of the steps, or nil if nothing was delivered in them. oldest is how
// long a message has been ready by now; 0 draws no line for it.
func curveOf(f *frame, s latenessSpan, all []overview.Traffic, oldest time.Duration) *curve {
	h := heightsFor(chartHeight, oldest, all...)
	c := &curve{Name: "late." + s.name, Prompt: h.of(overview.PromptLimit), Oldest: h.of(oldest), HasOldest: oldest > 0, Paths: h.latenessPaths(all)}
	for _, d := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if d <= h.most {
			c.Lines = append(c.Lines, line{Y: h.of(d), Text: f.Span(d)})
		}
	}
	for i, m := range all {
		at := m.From.In(f.call.look.zone)
		if (60*at.Hour()+at.Minute())%s.tick == 0 {
			c.Ticks = append(c.Ticks, tick{X: percent(100 * float64(i) / float64(len(all))), Text: at.Format("15:04")})
		}
		if m.Deliveries > 0 {
			c.Rows = append(c.Rows, curveRow{at.Format("15:04"), m.Deliveries, f.Lateness(m.P50), f.Lateness(m.P99), f.Lateness(m.Max)})
		}
	}
	if c.Rows == nil {
		return nil
	}
	return c
}

// pathOf returns the SVG path of a line through the steps, whose x is in hundredths of the
// picture's width. The line is interrupted at steps without deliveries, because those have no
// lateness. A step with deliveries between two without is drawn as a short stroke.
func pathOf(all []overview.Traffic, y func(overview.Traffic) float64) string {
	var b strings.Builder
	step := 100 / float64(len(all))
	drawn := false
	for i, m := range all {
		if m.Deliveries == 0 {
			drawn = false
			continue
		}
		x := float64(i) * step
		if !drawn {
			b.WriteString("M" + number(x) + " " + number(y(m)))
		}
		b.WriteString("L" + number(x+step*0.5) + " " + number(y(m)))
		drawn = true
	}
	return b.String()
}
