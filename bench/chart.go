package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Drawing: a chart is one or more panels beside each other, each with its own axes. The
// result is SVG that needs nothing beside it and is legible on light and dark pages.

// chart is a picture.
type chart struct {
	title  string
	legend []key
	panels []*panel
}

// key is an entry of the legend. class is one of the colours in style.
type key struct{ class, text string }

// panel is one pair of axes with what is drawn between them. Coordinates are data.
type panel struct {
	title string
	// groups name the places along a category axis, whose coordinates are 0, 1, 2...; without
	// them the horizontal axis has numbers from 0 to xMax.
	groups []string
	xTitle string
	xMax   float64
	yTitle string
	yMin   float64 // of a log axis; others start at 0
	yMax   float64
	log    bool
	// slim makes bars slim enough for three beside each other in one group.
	slim bool
	// marks are drawn in order.
	marks []mark
}

// mark draws itself with the scales of its panel.
type mark func(b *strings.Builder, x, y scale)

// scale turns data into picture coordinates.
type scale func(float64) float64

const (
	chartWidth  = 820
	plotHeight  = 250
	plotTop     = 84 // title, legend and panel titles
	marginLeft  = 64
	marginRight = 18
	marginBelow = 48
)

// style has the colours for light pages and for dark ones. q1 to q4 are steps of one hue, for
// what has an order; a and b are two hues, for what has none.
const style = `<style>
svg { --page:#fcfcfb; --ink:#0b0b0b; --soft:#52514e; --grid:#e1e0d9; --axis:#8a897f;
  --q1:#86b6ef; --q2:#2a78d6; --q3:#184f95; --q4:#0d2c55; --a:#2a78d6; --b:#d95926; --aim:#b3261e }
@media (prefers-color-scheme: dark) { svg { --page:#1a1a19; --ink:#ffffff; --soft:#c3c2b7; --grid:#333331; --axis:#898781;
  --q1:#d6e6fb; --q2:#86b6ef; --q3:#3987e5; --q4:#2a66b4; --a:#3987e5; --b:#eb6834; --aim:#ff8a80 } }
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--soft) }
.title { font-size: 15px; font-weight: 600; fill: var(--ink) } .head { font-weight: 600; fill: var(--ink) }
.value { fill: var(--ink); font-size: 11px } .aimtext { fill: var(--aim); font-size: 11px }
.grid { stroke: var(--grid); stroke-width: 1 } .axis { stroke: var(--axis); stroke-width: 1 }
.aim { stroke: var(--aim); stroke-width: 1.5; stroke-dasharray: 5 3 } .range { stroke: var(--axis); stroke-width: 1.5 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.q1 { fill: var(--q1) } .q2 { fill: var(--q2) } .q3 { fill: var(--q3) } .q4 { fill: var(--q4) } .a { fill: var(--a) } .b { fill: var(--b) }
.line.a { fill: none; stroke: var(--a) } .line.b { fill: none; stroke: var(--b) }
</style>
`

// svg is the picture.
func (c chart) svg() string {
	var b strings.Builder
	height := plotTop + plotHeight + marginBelow
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", chartWidth, height, html.EscapeString(c.title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" style="fill:var(--page)"/>`+"\n", chartWidth, height)
	text(&b, 16, 24, "title", "start", c.title)
	c.drawLegend(&b)
	width := float64(chartWidth) / float64(len(c.panels))
	for i, p := range c.panels {
		p.draw(&b, float64(i)*width, width)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c chart) drawLegend(b *strings.Builder) {
	x := 16.0
	for _, k := range c.legend {
		fmt.Fprintf(b, `<circle class="%s" cx="%s" cy="44" r="5"/>`+"\n", k.class, num(x+5))
		text(b, x+15, 48, "", "start", k.text)
		x += 15 + 6.4*float64(len([]rune(k.text))) + 20
	}
}

// draw draws the panel in the part of the picture that starts at left.
func (p *panel) draw(b *strings.Builder, left, width float64) {
	x0, x1 := left+marginLeft, left+width-marginRight
	y0, y1 := float64(plotTop+plotHeight), float64(plotTop)
	text(b, x0, y1-14, "head", "start", p.title)
	y := p.vertical(y0, y1)
	for _, v := range p.ticks() {
		line(b, "grid", x0, y(v), x1, y(v))
		text(b, x0-6, y(v)+4, "", "end", short(v))
	}
	fmt.Fprintf(b, `<text transform="translate(%s %s) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
		num(left+15), num((y0+y1)/2), html.EscapeString(p.yTitle))
	x := p.horizontal(x0, x1)
	p.drawHorizontal(b, x, y0)
	line(b, "axis", x0, y0, x1, y0)
	text(b, (x0+x1)/2, y0+38, "", "middle", p.xTitle)
	for _, m := range p.marks {
		m(b, x, y)
	}
}

func (p *panel) drawHorizontal(b *strings.Builder, x scale, y0 float64) {
	for i, g := range p.groups {
		text(b, x(float64(i)), y0+19, "", "middle", g)
	}
	if len(p.groups) > 0 {
		return
	}
	step := niceStep(p.xMax)
	for v := 0.0; v <= p.xMax*1.001; v += step {
		line(b, "axis", x(v), y0, x(v), y0+4)
		text(b, x(v), y0+19, "", "middle", short(v))
	}
}

func (p *panel) horizontal(x0, x1 float64) scale {
	if n := len(p.groups); n > 0 {
		slot := (x1 - x0) / float64(n)
		return func(v float64) float64 { return x0 + (v+0.5)*slot }
	}
	return func(v float64) float64 { return x0 + v/p.xMax*(x1-x0) }
}

// vertical clips to the panel, so that 0 can be drawn on a log axis.
func (p *panel) vertical(y0, y1 float64) scale {
	return func(v float64) float64 {
		part := v / p.yMax
		if p.log {
			part = math.Log(max(v, p.yMin)/p.yMin) / math.Log(p.yMax/p.yMin)
		}
		return y0 + min(max(part, 0), 1)*(y1-y0)
	}
}

// ticks are the labelled values of the vertical axis.
func (p *panel) ticks() []float64 {
	var vs []float64
	if p.log {
		for v := p.yMin; v <= p.yMax*1.001; v *= 10 {
			vs = append(vs, v)
		}
		return vs
	}
	step := niceStep(p.yMax)
	for i := 0; float64(i)*step <= p.yMax*1.001; i++ {
		vs = append(vs, float64(i)*step)
	}
	return vs
}

// upTo has the vertical axis reach beyond the values.
func (p *panel) upTo(vs ...float64) {
	for _, v := range vs {
		p.yMax = max(p.yMax, v*1.08)
	}
	if p.yMax == 0 {
		p.yMax = 1
	}
}

// logUpTo makes the vertical axis one of powers of ten that starts at from and reaches beyond
// the values.
func (p *panel) logUpTo(from float64, vs ...float64) {
	p.log, p.yMin = true, from
	p.yMax = max(p.yMax, from*10)
	for _, v := range vs {
		for p.yMax < v*1.2 {
			p.yMax *= 10
		}
	}
}

// niceStep divides an axis up to limit into at most six parts of a round length.
func niceStep(limit float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(limit/6)))
	for _, f := range []float64{1, 2, 5} {
		if limit/(f*power) <= 6 {
			return f * power
		}
	}
	return 10 * power
}

// bar is a column from the axis up to v, with the range over the rounds as a thin line and a label.
func (p *panel) bar(at, v, low, high float64, class, label string) {
	p.marks = append(p.marks, func(b *strings.Builder, x, y scale) {
		half := min(22, (x(1)-x(0))*0.16)
		if p.slim {
			half *= 0.75
		}
		zero := y(0)
		if top := y(v); zero-top > 0.5 {
			fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="2"/>`+"\n",
				class, num(x(at)-half), num(top), num(2*half), num(zero-top))
		}
		if high > low {
			line(b, "range", x(at), y(low), x(at), y(high))
		}
		text(b, x(at), y(max(v, high))-6, "value", "middle", label)
	})
}

// dots are values above each other, joined by a thin line; classes go with the values. The label
// stands beside the value with its index.
func (p *panel) dots(at float64, vs []float64, classes []string, labelled int, label string) {
	p.marks = append(p.marks, func(b *strings.Builder, x, y scale) {
		line(b, "range", x(at), y(vs[0]), x(at), y(vs[len(vs)-1]))
		for i, v := range vs {
			fmt.Fprintf(b, `<circle class="%s" cx="%s" cy="%s" r="5"/>`+"\n", classes[i], num(x(at)), num(y(v)))
		}
		text(b, x(at)+9, y(vs[labelled])+4, "value", "start", label)
	})
}

// curve is a line through points.
func (p *panel) curve(ps []point, class string) {
	p.marks = append(p.marks, func(b *strings.Builder, x, y scale) {
		b.WriteString(`<polyline class="line ` + class + `" points="`)
		for i, q := range ps {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(num(x(q.X)) + "," + num(y(q.Y)))
		}
		b.WriteString(`"/>` + "\n")
	})
}

// aim is a dashed line at v between two places, with its text above the left end.
func (p *panel) aim(from, to, v float64, label string) {
	p.marks = append(p.marks, func(b *strings.Builder, x, y scale) {
		line(b, "aim", x(from), y(v), x(to), y(v))
		text(b, x(from)+2, y(v)-4, "aimtext", "start", label)
	})
}

func line(b *strings.Builder, class string, x0, y0, x1, y1 float64) {
	fmt.Fprintf(b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, num(x0), num(y0), num(x1), num(y1))
}

func text(b *strings.Builder, x, y float64, class, anchor, s string) {
	if s != "" {
		fmt.Fprintf(b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, num(x), num(y), anchor, html.EscapeString(s))
	}
}

// num is a coordinate, to a tenth.
func num(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
