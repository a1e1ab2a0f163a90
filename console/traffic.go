package console

import (
	"math"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
)

// Observer returns what counts rates and lateness, and what handlers hold. Give it to the Server, Queue or Worker that uses the same
// store. Without it the pages say nothing of them.
func (c *Console) Observer() *punctual.Observer {
	c.observed.Store(true)
	if c.options.Consumers != nil || c.reporter != nil {
		return c.meter.Observer()
	}
	return punctual.JoinObservers(c.meter.Observer(), c.tracker.Observer(wire.OwnName()))
}

// perMinute is the mean of a count over some minutes.
func perMinute(n, minutes int64) string { return thousands((n + minutes/2) / minutes) }

// traffic is what passed in the last hour.
type traffic struct {
	// Since is when counting began.
	Since time.Time
	// Rates are those of the last minutes.
	Rates []rate
	// Curve is the lateness by the minute; nil when nothing was delivered.
	Curve *curve
}

// rate is how many messages there were in a minute of the last few.
type rate struct {
	// Name is the end of the catalogue's key.
	Name      string
	PerMinute string
}

// curve is lateness over time on a logarithmic scale: a picture, and a table.
type curve struct {
	// Name is the key of the caption; Path leads to more, if not "".
	Name, Path string
	Paths      []curvePath
	Lines      []line
	Prompt     float64 // where the line of the promise is
	// Oldest is where the line of the message is that has been ready for longest; HasOldest tells that there is one.
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
	// trafficMinutes is how far the curve looks back, rateMinutes over how much rates are averaged.
	trafficMinutes, rateMinutes = 60, 5
)

// traffic is nil when nobody feeds the meter.
func (c *call) traffic(f *frame) *traffic {
	if !c.console.observed.Load() {
		return nil
	}
	t := &traffic{Since: c.console.meter.Since()}
	if sum, ok := c.console.meter.Total("", rateMinutes); ok {
		for _, r := range []struct {
			name  string
			count int64
		}{{"pushes", sum.Pushes}, {"deliveries", sum.Deliveries}, {"acks", sum.Acks}, {"retries", sum.Retries}, {"discards", sum.Discards}} {
			t.Rates = append(t.Rates, rate{r.name, perMinute(r.count, rateMinutes)})
		}
	}
	if t.Curve = curveOf(f, latenessSpans()[0], c.console.meter.Series("", trafficMinutes), 0); t.Curve != nil {
		t.Curve.Path = f.Path("/lateness")
	}
	return t
}

// heights says how high a lateness stands in a picture, by its logarithm.
type heights struct {
	most   time.Duration
	height float64
}

// leastMost has the line of the promise in every picture.
const leastMost = 10 * time.Second

// heightsFor has room for the latest of some steps, and for one that waits.
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

// latenessPaths are the lines of the latest, the 99th and the middle one of a hundred deliveries.
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

// curveOf is nil when nothing was delivered. oldest is for how long a message has been ready by now; 0 is none.
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

// pathOf is the way of a line through the steps, in hundredths of the picture. A step without deliveries has no lateness, and breaks it; one
// between two such is a short stroke.
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
