package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart is one or more panels beside each other, each with its own axes, and is written as SVG.

// chart is a title and the panels below it.
type chart struct {
	title  string
	panels []*panel
}

// panel is a plot with one pair of axes.
type panel struct {
	*plot.Plot
	logFrom float64 // where a logarithmic vertical axis begins; 0 if the axis is linear, which begins at 0
}

// The colours. Values that have an order, such as quantiles, have steps of one hue (ordered).
// Punctual, the reference and the rival have three different hues. The background is transparent,
// and all colours can be read on white and on black.
var (
	ordered = []color.Color{rgb(0xa5cbf7), rgb(0x6aa7ec), rgb(0x2a78d6), rgb(0x2560ab)}
	ours    = rgb(0x2a78d6)
	raw     = rgb(0x9d9c96)
	rival   = rgb(0xd95926)
	aimed   = rgb(0xd6453d)
	ink     = rgb(0x7d8590)
	gridded = color.NRGBA{R: 0x7d, G: 0x85, B: 0x90, A: 0x50}
)

func rgb(v uint32) color.Color {
	return color.RGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 0xff}
}

// sans is the variant of the font in which the plots are drawn. The drawing package then writes
// fontFamily into the SVG, and svg adds fallbacks to it, for readers who do not have that font.
const (
	sans       = "Sans"
	fontFamily = "font-family:Liberation Sans"
	fallbacks  = ",Arial,Helvetica,sans-serif"
)

const (
	chartWidth  = 11 * vg.Inch
	chartHeight = 4.6 * vg.Inch
	barWidth    = 0.28 * vg.Inch
)

func newPanel(title, x, y string, groups ...string) *panel {
	p := &panel{Plot: plot.New()}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Y.Min, p.Y.Max = 0, 1
	p.Y.Tick.Marker = shortTicks{plot.DefaultTicks{}}
	p.X.Tick.Marker = shortTicks{plot.DefaultTicks{}}
	if len(groups) > 0 {
		p.NominalX(groups...)
		p.X.Min, p.X.Max = -0.5, float64(len(groups))-0.5
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = gridded
	p.Add(grid)
	p.Legend.Top, p.Legend.Padding = true, 3
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant, style.Color = sans, ink
	}
	p.BackgroundColor = nil
	for _, line := range []*draw.LineStyle{&p.X.LineStyle, &p.Y.LineStyle, &p.X.Tick.LineStyle, &p.Y.Tick.LineStyle} {
		line.Color = ink
	}
	return p
}

// newLogPanel returns a panel with a logarithmic vertical axis. The axis begins at from, which is
// also the least value shown.
func newLogPanel(from float64, title, x, y string, groups ...string) *panel {
	p := newPanel(title, x, y, groups...)
	p.logFrom = from
	p.Y.Min, p.Y.Max = from, 10*from
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, shortTicks{plot.LogTicks{Prec: -1}}
	return p
}

// shortTicks writes the labels of an axis as short does.
type shortTicks struct{ plot.Ticker }

func (t shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := t.Ticker.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

// upTo makes the vertical axis reach beyond the values, if it does not yet.
func (p *panel) upTo(vs ...float64) {
	for _, v := range vs {
		if p.logFrom > 0 {
			p.Y.Max = max(p.Y.Max, math.Pow(10, math.Ceil(math.Log10(max(v, p.logFrom)*1.2))))
		} else {
			p.Y.Max = max(p.Y.Max, v*1.15)
		}
	}
}

// shown returns v, or the begin of a logarithmic axis if v is less.
func (p *panel) shown(v float64) float64 { return max(v, p.logFrom) }

// bars draws a bar for each value that is not nil: as high as the median, with a thin line from the
// least to the greatest of the rounds, and a label above. offset moves the bars aside, in widths of
// a bar. bars returns their entry for a legend.
func (p *panel) bars(c color.Color, offset float64, vs []*spread, label func(spread) string) plot.Thumbnailer {
	values := make(plotter.Values, len(vs))
	ranges := errorPoints{}
	labels := plotter.XYLabels{}
	for i, s := range vs {
		if s == nil {
			continue
		}
		values[i] = s.median
		top := plotter.XY{X: float64(i), Y: s.median}
		ranges.XYs = append(ranges.XYs, top)
		ranges.YErrors = append(ranges.YErrors, struct{ Low, High float64 }{s.median - s.min, s.max - s.median})
		labels.XYs = append(labels.XYs, plotter.XY{X: top.X, Y: s.max})
		labels.Labels = append(labels.Labels, label(*s))
		p.upTo(s.max)
	}
	aside := vg.Length(offset) * barWidth
	bars := must(plotter.NewBarChart(values, barWidth))
	bars.Color, bars.LineStyle.Width, bars.Offset = c, 0, aside
	p.Add(bars)
	if len(labels.XYs) > 0 {
		errorBars := must(plotter.NewYErrorBars(ranges))
		errorBars.Color = ink
		p.Add(moved{errorBars, aside})
		p.label(labels, vg.Point{X: aside, Y: 3}, text.XCenter, ink)
	}
	return bars
}

// errorPoints are points with their ranges, as plotter.NewYErrorBars needs them.
type errorPoints struct {
	plotter.XYs
	plotter.YErrors
}

// moved is a plotter that is drawn beside its place: by that much to the right.
type moved struct {
	plot.Plotter
	by vg.Length
}

func (m moved) Plot(c draw.Canvas, p *plot.Plot) {
	c.Min.X += m.by
	c.Max.X += m.by
	m.Plotter.Plot(c, p)
}

func (p *panel) label(l plotter.XYLabels, offset vg.Point, align text.XAlignment, c color.Color) {
	labels := must(plotter.NewLabels(l))
	labels.Offset = offset
	for i := range labels.TextStyle {
		labels.TextStyle[i].XAlign, labels.TextStyle[i].Color = align, c
		labels.TextStyle[i].Font.Size, labels.TextStyle[i].Font.Variant = 8, sans
	}
	p.Add(labels)
}

// curve draws a line through points, and widens the axes so that all points are within them.
func (p *panel) curve(ps []point, c color.Color) {
	xys := plotter.XYs{}
	for _, q := range ps {
		xys = append(xys, plotter.XY{X: q.X, Y: q.Y})
		p.upTo(q.Y)
		p.X.Max = max(p.X.Max, q.X)
	}
	if len(xys) == 0 {
		return
	}
	l := must(plotter.NewLine(xys))
	l.Color, l.Width = c, 1.5
	p.Add(l)
}

// aim draws a dashed line at the height v from one place of the horizontal axis to another, with a
// label above its left end.
func (p *panel) aim(from, to, v float64, label string) {
	p.upTo(v)
	l := must(plotter.NewLine(plotter.XYs{{X: from, Y: v}, {X: to, Y: v}}))
	l.Color, l.Dashes = aimed, []vg.Length{4, 3}
	p.Add(l)
	p.label(plotter.XYLabels{XYs: plotter.XYs{{X: from, Y: v}}, Labels: []string{label}}, vg.Point{X: 2, Y: 2}, text.XLeft, aimed)
}

// sameScale makes all vertical axes end where the highest ends, so that the panels can be compared,
// and returns the panels.
func sameScale(ps []*panel) []*panel {
	top := 0.0
	for _, p := range ps {
		top = max(top, p.Y.Max)
	}
	for _, p := range ps {
		p.Y.Max = top
	}
	return ps
}

// svg returns the chart as SVG.
func (c chart) svg() string {
	canvas := vgsvg.New(chartWidth, chartHeight)
	area := draw.New(canvas)
	style := text.Style{Color: ink, Font: font.From(plot.DefaultFont, 14), Handler: plot.DefaultTextHandler}
	style.Font.Variant = sans
	area.FillText(style, vg.Point{X: 12, Y: chartHeight - 22}, c.title)
	tiles := draw.Tiles{Rows: 1, Cols: len(c.panels), PadTop: 34, PadBottom: 8, PadLeft: 8, PadRight: 12, PadX: 16}
	for i, p := range c.panels {
		p.Draw(tiles.At(area, i, 0))
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		panic(fmt.Sprintf("bench: a chart cannot be written to memory: %v", err))
	}
	return strings.ReplaceAll(b.String(), fontFamily, fontFamily+fallbacks)
}

// must returns v and panics if err is not nil. It is for the plotters, which return an error only
// for NaN, infinities and an empty list.
func must[T any](v T, err error) T {
	if err != nil {
		panic("bench: " + err.Error())
	}
	return v
}
