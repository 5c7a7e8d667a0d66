package bench

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Size of a chart, in the units of its viewBox, and of what stands around it.
const (
	chartWidth, chartHeight                         = 540.0, 250.0
	marginLeft, marginRight, marginTop, marginBelow = 62.0, 26.0, 12.0, 34.0
	plotWidth                                       = chartWidth - marginLeft - marginRight
	plotHeight                                      = chartHeight - marginTop - marginBelow
)

// xScale says what the horizontal axis shows.
type xScale string

const (
	xTime  xScale = "time"  // seconds, from 0
	xNines xScale = "nines" // percentiles from 0 to 99.99, each nine as wide
)

// chart is a line chart.
type chart struct {
	title  string
	x      xScale
	xMax   float64 // seconds, for xTime
	logY   bool
	yMin   float64 // for logY
	yMax   float64
	format func(float64) string
	lines  []line
}

// line is one line of a chart. color is the number of its run; style is "",
// "thin" or "dots".
type line struct {
	name   string
	color  int
	style  string
	points []point
}

// point is in the units of the axes: seconds or percentiles, and values.
type point struct{ x, y float64 }

// svg draws the chart. What the script needs for its tooltip is in data-lines.
func (c *chart) svg() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s" data-x="%s" data-xmax="%g" data-left="%g" data-width="%g" data-lines="%s">`,
		chartWidth, chartHeight, html.EscapeString(c.title), c.x, c.xMax, marginLeft, plotWidth, html.EscapeString(c.tooltipData()))
	c.drawAxes(&b)
	for _, l := range c.lines {
		c.drawLine(&b, l)
	}
	fmt.Fprintf(&b, `<line class="cursor" y1="%g" y2="%g" x1="-9" x2="-9"/></svg>`, marginTop, marginTop+plotHeight)
	return template.HTML(b.String())
}

func (c *chart) drawAxes(b *strings.Builder) {
	for _, v := range c.yTicks() {
		y := c.py(v)
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, marginLeft, chartWidth-marginRight, y, y)
		fmt.Fprintf(b, `<text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`, marginLeft-8, y+3.5, c.format(v))
	}
	for _, v := range c.xTicks() {
		x := c.px(v)
		if c.x == xNines {
			fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, x, x, marginTop, marginTop+plotHeight)
		}
		fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, x, chartHeight-10, c.xLabel(v))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%g" x2="%g" y1="%g" y2="%g"/>`, marginLeft, chartWidth-marginRight, marginTop+plotHeight, marginTop+plotHeight)
}

func (c *chart) drawLine(b *strings.Builder, l line) {
	if len(l.points) == 0 {
		return
	}
	fmt.Fprintf(b, `<polyline class="line c%d %s" points="`, l.color%paletteSize, l.style)
	for i, p := range l.points {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(b, "%.1f,%.1f", c.px(p.x), c.py(p.y))
	}
	b.WriteString(`"/>`)
	if len(l.points) == 1 {
		fmt.Fprintf(b, `<circle class="dot c%d" cx="%.1f" cy="%.1f" r="2.5"/>`, l.color%paletteSize, c.px(l.points[0].x), c.py(l.points[0].y))
	}
}

// tooltipData has a line's name, colour, and its points as x, y and text.
func (c *chart) tooltipData() string {
	type entry struct {
		Name   string   `json:"n"`
		Color  int      `json:"c"`
		Points [][3]any `json:"p"`
	}
	entries := []entry{}
	for _, l := range c.lines {
		e := entry{Name: l.name, Color: l.color % paletteSize, Points: [][3]any{}}
		for _, p := range l.points {
			e.Points = append(e.Points, [3]any{math.Round(c.px(p.x)*10) / 10, math.Round(c.py(p.y)*10) / 10, c.format(p.y)})
		}
		entries = append(entries, e)
	}
	text, err := json.Marshal(entries)
	if err != nil {
		panic("BUG: " + err.Error()) // strings and numbers
	}
	return string(text)
}

// px and py turn values into positions.
func (c *chart) px(v float64) float64 {
	t := 0.0
	if c.x == xNines {
		t = -math.Log10(max(1-v/100, 1e-4)) / 4
	} else if c.xMax > 0 {
		t = v / c.xMax
	}
	return marginLeft + min(max(t, 0), 1)*plotWidth
}

func (c *chart) py(v float64) float64 {
	t := 0.0
	if c.logY {
		if span := math.Log(c.yMax / c.yMin); span > 0 {
			t = math.Log(max(v, c.yMin)/c.yMin) / span
		}
	} else if c.yMax > 0 {
		t = v / c.yMax
	}
	return marginTop + (1-min(max(t, 0), 1))*plotHeight
}

// fitY sets the vertical axis so that all lines are on it and it ends at a tick.
func (c *chart) fitY() {
	lo, hi := math.Inf(1), 0.0
	for _, l := range c.lines {
		for _, p := range l.points {
			if p.y > 0 {
				lo = min(lo, p.y)
			}
			hi = max(hi, p.y)
		}
	}
	if hi == 0 {
		lo, hi = 1, 10
	}
	if c.logY {
		c.yMin, c.yMax = floorTo125(lo), ceilTo125(hi)
		if c.yMin == c.yMax {
			c.yMin /= 2
		}
		return
	}
	step := ceilTo125(hi / 4)
	c.yMax = math.Ceil(hi/step*1.0001) * step
}

func (c *chart) yTicks() (ticks []float64) {
	if !c.logY {
		step := ceilTo125(c.yMax / 5)
		for v := 0.0; v <= c.yMax*1.001; v += step {
			ticks = append(ticks, v)
		}
		return ticks
	}
	factors := []float64{1, 2, 5}
	switch decades := math.Log10(c.yMax / c.yMin); {
	case decades > 3:
		factors = []float64{1}
	case decades > 2:
		factors = []float64{1, 3}
	}
	for e := math.Floor(math.Log10(c.yMin)); e <= math.Ceil(math.Log10(c.yMax)); e++ {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= c.yMin*0.999 && v <= c.yMax*1.001 {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

func (c *chart) xTicks() (ticks []float64) {
	if c.x == xNines {
		return []float64{0, 50, 90, 99, 99.9, 99.99}
	}
	step := ceilTo125(c.xMax / 8)
	for v := 0.0; v <= c.xMax*1.001 && step > 0; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

func (c *chart) xLabel(v float64) string {
	text := strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
	if c.x == xNines {
		return "p" + text
	}
	return text + " s"
}

// ceilTo125 and floorTo125 are the next 1, 2 or 5 times a power of ten.
func ceilTo125(v float64) float64 {
	if v <= 0 {
		return 1
	}
	e := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*e*1.0000001 {
			return f * e
		}
	}
	return 10 * e
}

func floorTo125(v float64) float64 {
	if v <= 0 {
		return 1
	}
	e := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if v >= f*e*0.9999999 {
			return f * e
		}
	}
	return e
}
