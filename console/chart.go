package console

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/punctualmq/punctual/internal/overview"
)

// chart is a picture of counts over time, whose bars the console computes, and the same numbers as
// a table. Widths are in percent, so that the picture fits every screen without inline styles,
// which the content policy forbids.
type chart struct {
	// Name is the key of the caption.
	Name  string
	Bars  []bar
	Ticks []tick
	Lines []line
	Keys  []legend
	Rows  []chartRow
	// Runs mark the columns in which schedules come. HasRuns is true if there is at least one mark.
	Runs    []runMark
	HasRuns bool
	// RunsUntil is the time up to which Runs are complete, zero if that is the end of the picture.
	// RunsLeft is true if there are more schedules than were read.
	RunsUntil time.Time
	RunsLeft  bool
	Height    float64
	// Log is true if the scale is logarithmic. Scale is the path of the same page with the other
	// scale.
	Log   bool
	Scale string
	// HasBroken is true if a bar counts more than the scale reaches.
	HasBroken bool
	// Total is the sum of all steps. Overdue is the count before the first step, Beyond the one
	// after the last step.
	Total, Overdue, Beyond int64
}

// bar is one column of a chart. Its parts are stacked, one for each series that has a count in the
// column.
type bar struct {
	X, Width string
	Parts    []part
	Path     string
	// Text is the name of the column with its count. Kind is "overdue" or "beyond" for the columns
	// at the sides, otherwise "".
	Text, Kind string
	Count      int64
	// Top is the y of the bar's upper end, Middle the x of its middle.
	Top    float64
	Middle string
	// Broken marks a bar that counts more than the scale reaches. The bar is drawn with a gap,
	// which rises from BreakLow at its left side to BreakHigh at its right side, whose x is Right.
	Broken              bool
	Right               string
	BreakLow, BreakHigh float64
}

type part struct {
	Y, Height float64
	// Hue is the number in the name of a colour's CSS class, such as 1 in h1.
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

// chartRow is a row of a chart's table, with the numbers of one bar.
type chartRow struct {
	Label, Path string
	Count       int64
	Parts       []int64
	// Runs is how many times of schedules are in the step.
	Runs int
}

// series is the counts of one colour: one for each step, one of what is overdue, and one of what is
// due after the last step.
type series struct {
	name, path string
	hue        int
	counts     []int64
	overdue    int64
	beyond     int64
}

// columns is the input of draw.
type columns struct {
	name   string
	edges  []time.Time
	series []series
	// label names column i in words, path returns the path of its list, or "". A nil path means
	// that no column has a list.
	label func(i int) string
	path  func(i int) string
	ticks []tick
	log   bool
	scale string
	// around adds the columns Overdue on the left and Beyond on the right.
	around bool
	// pathOverdue and pathBeyond are the paths of their lists, or "".
	pathOverdue, pathBeyond string
	// runs are marked above the columns.
	runs comingRuns
}

const (
	chartHeight = 132.0
	// sideWidth is the width of each of the columns Overdue and Beyond, sideGap the space between
	// them and the others, in percent.
	sideWidth, sideGap = 4.0, 1.5
	// besideSide is how near a tick may be to either end of the columns between Overdue and Beyond,
	// in percent of their width. A nearer tick has no text, because the text would overlap the name
	// of Overdue or Beyond in a narrow chart.
	besideSide = 8.0
	// breakBelow is how far the gap of a broken bar is below the top of the bar at its right side,
	// breakSlope how much lower the gap is at the left side.
	breakBelow, breakSlope = 14.0, 7.0
)

// draw returns the picture and its table.
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
	c.addRuns(k.runs, k.edges, func(i int) string { return percent(left + (float64(i)+0.41)*step) }, text)
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
	c.HasBroken = slices.ContainsFunc(c.Bars, func(b bar) bool { return b.Broken })
	return c
}

// column returns one bar. The function of returns what the bar shows of a series.
func (f *frame) column(k columns, scale scale, x, width float64, count int64, of func(series) int64, label, path, kind string) bar {
	b := bar{X: percent(x), Width: percent(width), Path: path, Kind: kind, Count: count, Text: label + ": " + overview.Grouped(count)}
	whole := scale.height(count)
	b.Top, b.Middle = round(chartHeight-whole), percent(x+width/2)
	if b.Broken = count > scale.most; b.Broken {
		b.Right, b.BreakLow, b.BreakHigh = percent(x+width), round(b.Top+breakBelow+breakSlope), round(b.Top+breakBelow)
	}
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

// scale maps counts up to most to heights.
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

// roundUp returns the least number that is not less than n or 4 and is 1, 2, 4 or 5 times a power
// of ten, but never more than 10^17.
func roundUp(n int64) int64 {
	for p := int64(1); ; p *= 10 {
		for _, m := range []int64{1, 2, 4, 5} {
			if m*p >= max(n, 4) || p >= math.MaxInt64/100 {
				return m * p
			}
		}
	}
}

// height returns the height of a count. It leaves 14 units free above the highest bar, for the
// marks of schedules and the numbers of Overdue and Beyond. Every count but 0 gets at least 2
// units, so that it is seen.
func (s scale) height(n int64) float64 {
	const room = chartHeight - 14
	switch {
	case n == 0:
		return 0
	case n > s.most: // the scale is made for the steps alone, so Overdue and Beyond may exceed it; the number above them says how many
		return room
	case s.log:
		return max(2, room*math.Log10(float64(n)+1)/math.Log10(float64(s.most)+1))
	}
	return max(2, room*float64(n)/float64(s.most))
}

// lines returns the horizontal lines of the scale with their numbers.
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

// shortCount writes a count in few characters, such as 12k or 3.4M.
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

// axis is the history of a message as points on a line. Now is the x of the present, "" if the
// history does not contain it.
type axis struct {
	Points []axisPoint
	Now    string
}

type axisPoint struct {
	X, Kind, Text string
	Ahead         bool
}

// axisOf places events on a line, in order of time. The space between two of them grows with the
// logarithm of the time between them, because events within one second would overlap in a history
// of weeks if the space were in proportion to the time. It returns nil for fewer than two events.
func axisOf(f *frame, events []happening) *axis {
	if len(events) < 2 {
		return nil
	}
	at := make([]float64, len(events))
	for i := 1; i < len(events); i++ {
		at[i] = at[i-1] + 1 + math.Log10(1+events[i].Gap.Seconds())
	}
	a := &axis{}
	whole := at[len(at)-1]
	for i, e := range events {
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
