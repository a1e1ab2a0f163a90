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
	Paths  []curvePath
	Lines  []line
	Prompt float64 // where the line of the promise is
	Ticks  []tick
	Rows   []curveRow
}

type curvePath struct{ Name, D string }

// curveRow is a minute in which something was delivered.
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
	t.Curve = curveOf(f, c.console.meter.Series("", trafficMinutes))
	return t
}

func curveOf(f *frame, all []overview.Traffic) *curve {
	most := 10 * time.Second // the line of the promise is in the picture
	some := false
	for _, m := range all {
		most, some = max(most, m.Max), some || m.Deliveries > 0
	}
	if !some {
		return nil
	}
	height := func(d time.Duration) float64 {
		const room = chartHeight - 14
		return round(chartHeight - room*math.Log10(float64(d.Milliseconds())+1)/math.Log10(float64(most.Milliseconds())+1))
	}
	c := &curve{Prompt: height(overview.PromptLimit)}
	for _, d := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute, time.Hour} {
		if d <= most {
			c.Lines = append(c.Lines, line{Y: height(d), Text: f.Span(d)})
		}
	}
	for _, p := range []struct {
		name string
		of   func(overview.Traffic) time.Duration
	}{
		{"max", func(t overview.Traffic) time.Duration { return t.Max }},
		{"p99", func(t overview.Traffic) time.Duration { return t.P99 }},
		{"p50", func(t overview.Traffic) time.Duration { return t.P50 }},
	} {
		c.Paths = append(c.Paths, curvePath{p.name, pathOf(all, func(t overview.Traffic) float64 { return height(p.of(t)) })})
	}
	for i, m := range all {
		at := m.From.In(f.call.look.zone)
		if at.Minute()%10 == 0 {
			c.Ticks = append(c.Ticks, tick{X: percent(100 * float64(i) / float64(len(all))), Text: at.Format("15:04")})
		}
		if m.Deliveries > 0 {
			c.Rows = append(c.Rows, curveRow{at.Format("15:04"), m.Deliveries, f.Span(m.P50), f.Span(m.P99), f.Span(m.Max)})
		}
	}
	return c
}

// pathOf is the way of a line through the minutes, in hundredths of the picture. A minute without deliveries has no lateness, and breaks it; one
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
