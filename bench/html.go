package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html.tmpl
var reportTemplate string

var reportPage = template.Must(template.New("report").Parse(reportTemplate))

// paletteSize is the number of colours in the template.
const paletteSize = 8

// page is what the template shows.
type page struct {
	Title, Command string
	Facts          [][2]string
	Bars           []barView
	Groups         []groupView
}

type barView struct {
	What, Value, Verdict, Note string
	Width                      float64 // percent of the scale
	Mark                       float64 // percent, of the promise; 0 for none
	Good, Bad                  bool
}

type groupView struct {
	ID, Title, Note string
	Runs            []runView
	Ops             []opView // tabs
	Use             []useView
	Remarks         []remarkView
}

type runView struct {
	Color  int
	Name   string
	Config [][2]string
	Nodes  []NodeUse
}

// opView is one operation of all runs of a group.
type opView struct {
	Name       string
	Rows       []rowView
	Throughput template.HTML
	Curve      template.HTML
	Latency    []latencyView
}

type rowView struct {
	Color                                      int
	Run, Rate, P50, P90, P99, P999, P9999, Max string
	Share                                      float64 // of the best rate, in percent
	Requests, Errors                           int64
}

type latencyView struct {
	Color int
	Run   string
	Chart template.HTML
}

type useView struct {
	Color   int
	Run     string
	Columns []string
}

type remarkView struct {
	Color     int
	Run, Text string
	Bad       bool
}

// WriteHTML writes the report as one page that needs nothing else.
func (rep *Report) WriteHTML(w io.Writer) error {
	return reportPage.Execute(w, rep.page())
}

func (rep *Report) page() page {
	e := rep.Environment
	p := page{Title: rep.Title, Command: rep.Command}
	add := func(name, value string) {
		if value != "" {
			p.Facts = append(p.Facts, [2]string{name, value})
		}
	}
	if !rep.Time.IsZero() {
		add("measured", rep.Time.UTC().Format("2006-01-02 15:04 UTC"))
	}
	add("raftq", strings.Trim(rep.version(), "()"))
	add("processor", e.CPU)
	if e.CPUs > 0 {
		add("CPUs", fmt.Sprint(e.CPUs))
		add("memory", formatBytes(float64(e.Memory)))
		add("load before", fmt.Sprintf("%.1f", e.Load))
	}
	add("kernel", e.Kernel)
	add("data on", e.Disk)
	add("Go", strings.TrimPrefix(e.Go, "go"))
	for i, g := range rep.Groups {
		p.Groups = append(p.Groups, g.view(fmt.Sprintf("g%d", i+1)))
	}
	for _, b := range rep.Bars {
		p.Bars = append(p.Bars, b.view())
	}
	return p
}

// view scales a ratio so that the promise, or 1, stands in the middle.
func (b Bar) view() barView {
	middle := b.Want
	if middle == 0 {
		middle = 1
	}
	v := barView{What: b.What, Value: fmt.Sprintf("%.2f", b.Value), Note: b.Note, Width: min(100, 50*b.Value/middle), Mark: 50}
	if b.Want > 0 {
		v.Verdict, v.Good, v.Bad = fmt.Sprintf("at most %g: met", b.Want), b.Met(), !b.Met()
		if v.Bad {
			v.Verdict = fmt.Sprintf("at most %g: not met", b.Want)
		}
	}
	return v
}

func (g Group) view(id string) groupView {
	v := groupView{ID: id, Title: g.Title, Note: g.Note}
	for i, r := range g.Runs {
		v.Runs = append(v.Runs, runView{Color: i % paletteSize, Name: r.Config.Name, Config: r.Config.facts(), Nodes: r.Nodes})
		v.Use = append(v.Use, useView{i % paletteSize, r.Config.Name, r.useColumns()})
		for _, text := range r.remarks() {
			bad := strings.Contains(text, "failed")
			v.Remarks = append(v.Remarks, remarkView{i % paletteSize, r.Config.Name, text, bad})
		}
	}
	for o := range opCount {
		if op, ok := g.opView(o); ok {
			v.Ops = append(v.Ops, op)
		}
	}
	return v
}

// opView shows one operation of those runs that have it.
func (g Group) opView(o op) (v opView, ok bool) {
	v.Name = opNames[o]
	rate := chart{title: v.Name + ": throughput over time", x: xTime, format: formatRate}
	curve := chart{title: v.Name + ": latency by percentile", x: xNines, logY: true, format: tickNs}
	var times []chart
	best := 0.0
	for i, r := range g.Runs {
		for _, res := range r.shown() {
			if res.Name != v.Name {
				continue
			}
			best = max(best, res.Rate)
			v.Rows = append(v.Rows, rowOf(i, r, res))
			rate.lines = append(rate.lines, rateLine(i, r, res))
			curve.lines = append(curve.lines, curveLine(i, r.Config.Name, res))
			times = append(times, latencyChart(i, r, res))
			v.Latency = append(v.Latency, latencyView{Color: i % paletteSize, Run: r.Config.Name})
			if n := len(res.Series); n > 0 {
				rate.xMax = max(rate.xMax, res.Series[n-1].Second)
			}
		}
	}
	if len(v.Rows) == 0 {
		return v, false
	}
	for i := range v.Rows {
		v.Rows[i].Share = 100 * v.Rows[i].Share / max(best, 1e-9)
	}
	rate.fitY()
	curve.fitY()
	v.Throughput, v.Curve = rate.svg(), curve.svg()
	sameScale(times)
	for i := range times {
		v.Latency[i].Chart = times[i].svg()
	}
	return v, true
}

func rowOf(i int, r *Result, res OpResult) rowView {
	l := res.Latency
	row := rowView{
		Color: i % paletteSize, Run: r.Config.Name, Rate: "–", Share: res.Rate,
		P50: formatNs(l.P50), P90: formatNs(l.P90), P99: formatNs(l.P99), P999: formatNs(l.P999), P9999: formatNs(l.P9999), Max: formatNs(l.Max),
		Requests: res.Requests, Errors: r.errorsOf(res.Name),
	}
	if res.Rate > 0 {
		row.Rate = formatRate(res.Rate)
	}
	return row
}

func rateLine(i int, r *Result, res OpResult) line {
	l := line{name: r.Config.Name, color: i}
	perRequest := 1.0
	if res.Jobs > 0 && res.Requests > 0 {
		perRequest = float64(res.Jobs) / float64(res.Requests)
	}
	for _, p := range res.Series {
		if p.Length < 0.1 { // too short to be a rate: the rest at the end
			continue
		}
		l.points = append(l.points, point{p.Second - p.Length/2, float64(p.Requests) * perRequest / p.Length})
	}
	// The fill of a backlog is over before its drain: that is no stall.
	for n := len(l.points); r.Config.Workload == WorkBacklog && n > 0 && l.points[n-1].y == 0; n-- {
		l.points = l.points[:n-1]
	}
	return l
}

func curveLine(i int, name string, res OpResult) line {
	l := line{name: name, color: i}
	for _, p := range res.Curve {
		l.points = append(l.points, point{p.Percentile, float64(p.Ns)})
	}
	return l
}

// latencyChart shows the latency of one run over time.
func latencyChart(i int, r *Result, res OpResult) chart {
	c := chart{title: r.Config.Name + ", " + res.Name + ": latency over time", x: xTime, logY: true, format: tickNs}
	p50, p99, most := line{name: "p50", color: i}, line{name: "p99", color: i, style: "thin"}, line{name: "max", color: i, style: "dots"}
	for _, p := range res.Series {
		if p.Requests == 0 {
			continue
		}
		x := p.Second - p.Length/2
		p50.points = append(p50.points, point{x, float64(p.P50)})
		p99.points = append(p99.points, point{x, float64(p.P99)})
		most.points = append(most.points, point{x, float64(p.Max)})
		c.xMax = max(c.xMax, p.Second)
	}
	c.lines = []line{most, p99, p50}
	return c
}

// sameScale gives charts that are compared the same axes.
func sameScale(charts []chart) {
	all := chart{logY: true}
	for _, c := range charts {
		all.lines = append(all.lines, c.lines...)
		all.xMax = max(all.xMax, c.xMax)
	}
	all.fitY()
	for i := range charts {
		charts[i].yMin, charts[i].yMax, charts[i].xMax = all.yMin, all.yMax, all.xMax
	}
}

// tickNs writes a latency without digits that say nothing.
func tickNs(ns float64) string {
	s := formatNs(int64(ns + 0.5))
	value, unit, _ := strings.Cut(s, " ")
	if strings.Contains(value, ".") {
		value = strings.TrimRight(strings.TrimRight(value, "0"), ".")
	}
	return value + " " + unit
}

// facts are a configuration for a reader.
func (c *Config) facts() (facts [][2]string) {
	add := func(name string, value any) {
		switch s := fmt.Sprint(value); s {
		case "", "0", "0s", "false":
		default:
			facts = append(facts, [2]string{name, s})
		}
	}
	add("workload", c.Workload)
	if c.Workload != WorkEcho {
		add("consistency", c.Consistency)
	}
	add("endpoints", strings.Join(c.Endpoints, ", "))
	add("leader only", c.LeaderOnly)
	add("connections", c.Connections)
	add("producers", c.Producers)
	add("pipeline", c.Pipeline)
	add("jobs in a request", c.Batch)
	add("body", fmt.Sprintf("%d bytes", c.Size))
	add("queues", c.Queues)
	if c.Rate > 0 {
		add("rate", fmt.Sprintf("%g/s, open loop", c.Rate))
	} else {
		add("loop", "closed")
	}
	add("unacked at most", c.Cap)
	add("jobs", c.Jobs)
	add("requests at most", c.Requests)
	add("warm-up", time.Duration(c.Warmup))
	add("measured at most", time.Duration(c.Duration))
	return facts
}
