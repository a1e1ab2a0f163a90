package console

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// chart is a picture of counts over time: bars on the server's side, and the same numbers as a table. Across it everything is in percent, so
// that it fits every screen, and no style is needed, which the content policy forbids.
type chart struct {
	// Name is the key of the caption.
	Name   string
	Bars   []bar
	Ticks  []tick
	Lines  []line
	Keys   []legend
	Rows   []chartRow
	Height float64
	// Log tells that the height of a bar grows with the number of its digits; Scale leads to the other scale.
	Log   bool
	Scale string
	// Total is what the bars between Overdue and Beyond count.
	Total, Overdue, Beyond int64
}

// bar is a column of parts, one upon the other.
type bar struct {
	X, Width string
	Parts    []part
	Path     string
	// Text says it in words; Kind is "overdue", "beyond" or "".
	Text, Kind string
	Count      int64
	// Top is how high the highest part reaches, Middle the middle of the column.
	Top    float64
	Middle string
}

type part struct {
	Y, Height float64
	// Hue is the number of the class of a colour.
	Hue int
}

type tick struct{ X, Text string }

type line struct {
	Y    float64
	Text string
}

type legend struct {
	Hue  int
	Text string
	Path string
}

// chartRow is a row of the table: the same as a bar.
type chartRow struct {
	Label, Path string
	Count       int64
	Parts       []int64
}

// series are the counts of one colour.
type series struct {
	name, path string
	hue        int
	counts     []int64
	overdue    int64
	beyond     int64
}

// columns are what a chart is made of.
type columns struct {
	name   string
	edges  []time.Time
	series []series
	// label names column i in words, path is where its list is, or "".
	label func(i int) string
	path  func(i int) string
	ticks []tick
	log   bool
	scale string
	// around has the columns Overdue and Beyond beside the others.
	around bool
	// pathOverdue and pathBeyond are where those lists are, or "".
	pathOverdue, pathBeyond string
}

const (
	chartHeight = 132.0
	// sideWidth is the width of Overdue and Beyond, sideGap the space beside them, in percent.
	sideWidth, sideGap = 4.0, 1.5
	// besideSide is how close to Overdue and Beyond the time of a tick would stand upon their names, in percent, where a chart is narrow.
	besideSide = 8.0
)

// draw makes the picture and its table.
func (f *frame) draw(k columns) *chart {
	text := f.call.look.language.text
	c := &chart{Name: k.name, Height: chartHeight, Log: k.log, Scale: k.scale, Ticks: k.ticks}
	n := len(k.edges) - 1
	sums := make([]int64, n)
	for _, s := range k.series {
		for i := range sums {
			sums[i] += s.counts[i]
		}
		c.Overdue, c.Beyond = c.Overdue+s.overdue, c.Beyond+s.beyond
		c.Keys = append(c.Keys, legend{s.hue, s.name, s.path})
	}
	var most int64
	for _, v := range sums {
		most, c.Total = max(most, v), c.Total+v
	}
	scale := scaleTo(most, k.log)
	c.Lines = scale.lines()
	left, width := 0.0, 100.0
	if k.around {
		left, width = sideWidth+sideGap, 100-2*(sideWidth+sideGap)
		c.Bars = append(c.Bars, f.column(k, scale, 0, sideWidth, c.Overdue, func(s series) int64 { return s.overdue }, text("chart.overdue"), k.pathOverdue, "overdue"))
	}
	step := width / float64(n)
	for i := range sums {
		path := ""
		if k.path != nil && sums[i] > 0 {
			path = k.path(i)
		}
		b := f.column(k, scale, left+float64(i)*step, step*0.82, sums[i], func(s series) int64 { return s.counts[i] }, k.label(i), path, "")
		if sums[i] > 0 {
			c.Bars = append(c.Bars, b)
		}
		row := chartRow{Label: k.label(i), Path: path, Count: sums[i]}
		for _, s := range k.series {
			row.Parts = append(row.Parts, s.counts[i])
		}
		c.Rows = append(c.Rows, row)
	}
	if k.around {
		c.Bars = append(c.Bars, f.column(k, scale, 100-sideWidth, sideWidth, c.Beyond, func(s series) int64 { return s.beyond }, text("chart.beyond"), k.pathBeyond, "beyond"))
		for i, t := range c.Ticks {
			at, _ := strconv.ParseFloat(t.X[:len(t.X)-1], 64)
			c.Ticks[i].X = percent(left + at/100*width)
			if at < besideSide || at > 100-besideSide {
				c.Ticks[i].Text = ""
			}
		}
	}
	return c
}

// column is one bar.
func (f *frame) column(k columns, scale scale, x, width float64, count int64, of func(series) int64, label, path, kind string) bar {
	b := bar{X: percent(x), Width: percent(width), Path: path, Kind: kind, Count: count, Text: label + ": " + thousands(count)}
	whole := scale.height(count)
	b.Top, b.Middle = round(chartHeight-whole), percent(x+width/2)
	y := chartHeight
	for _, s := range k.series {
		if v := of(s); v > 0 {
			h := whole * float64(v) / float64(count)
			y -= h
			b.Parts = append(b.Parts, part{Y: round(y), Height: round(h), Hue: s.hue})
		}
	}
	return b
}

// scale says how high a count is.
type scale struct {
	most int64
	log  bool
}

func scaleTo(most int64, log bool) scale {
	if log {
		return scale{int64(math.Pow(10, math.Ceil(math.Log10(float64(max(most, 9)+1))))), true}
	}
	return scale{roundUp(most), false}
}

// roundUp is the least number of 1, 2, 5 times a power of ten, at least 4, that is not less.
func roundUp(n int64) int64 {
	for p := int64(1); ; p *= 10 {
		for _, m := range []int64{1, 2, 4, 5} {
			if m*p >= max(n, 4) || p >= math.MaxInt64/100 {
				return m * p
			}
		}
	}
}

// height leaves a little room above the highest; the smallest count is still seen.
func (s scale) height(n int64) float64 {
	const room = chartHeight - 14
	switch {
	case n == 0:
		return 0
	case n > s.most: // Overdue and Beyond, which the scale does not follow: their number stands above them
		return room
	case s.log:
		return max(2, room*math.Log10(float64(n)+1)/math.Log10(float64(s.most)+1))
	}
	return max(2, room*float64(n)/float64(s.most))
}

// lines are those that help the eye.
func (s scale) lines() []line {
	marks := []int64{s.most / 2, s.most}
	if s.log {
		marks = nil
		for p := int64(1); p <= s.most; p *= 10 {
			if s.most <= 10_000 || p == s.most || p == 1 || math.Mod(math.Log10(float64(p)), 2) == 0 {
				marks = append(marks, p)
			}
		}
	}
	var out []line
	for _, m := range marks {
		out = append(out, line{Y: round(chartHeight - s.height(m)), Text: shortCount(m)})
	}
	return out
}

// shortCount is a count in few characters: 12k, 3.4M.
func shortCount(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= 10*u.size || n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func percent(x float64) string { return number(x) + "%" }

func number(x float64) string { return strconv.FormatFloat(round(x), 'f', -1, 64) }

func round(x float64) float64 { return math.Round(x*100) / 100 }

// axis is the story of a message on a line.
type axis struct {
	Points []axisPoint
	Now    string
}

type axisPoint struct {
	X, Kind, Text string
	Ahead         bool
}

// axisOf puts events on a line by time. Far apart they would lie upon each other, so space grows with the logarithm of the time between.
func axisOf(f *frame, story []event) *axis {
	if len(story) < 2 {
		return nil
	}
	at := make([]float64, len(story))
	for i := 1; i < len(story); i++ {
		at[i] = at[i-1] + 1 + math.Log10(1+story[i].Gap.Seconds())
	}
	a := &axis{}
	whole := at[len(at)-1]
	for i, e := range story {
		x := 2 + 96*at[i]/whole
		p := axisPoint{X: percent(x), Kind: e.Kind, Ahead: e.Ahead}
		p.Text = fmt.Sprintf("%s %s", f.call.look.language.text("event."+e.Kind, e.Attempt), e.At.In(f.call.look.zone).Format(time.DateTime))
		if e.Kind == "now" {
			a.Now = p.X
		}
		a.Points = append(a.Points, p)
	}
	return a
}
