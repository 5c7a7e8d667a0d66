package check

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// Page makes one self-contained page of runs: what was done to them, what their
// clients saw over time, and what is broken.
func Page(runs []*Result) []byte {
	type bar struct {
		X, W  float64
		Class string
		Title string
	}
	type view struct {
		*Result
		Bars      []bar
		OK, Bad   string // polylines
		Peak      int
		Faults    []string
		InWindows windowSum
		Length    string
		Checks    []string
		Lost      int
	}
	var data struct {
		Runs                         []view
		Ops, Faults, Terms, Problems int
		Jobs, Lost, Entries          int
	}
	for _, r := range runs {
		v := view{Result: r, Length: r.Length.Round(time.Second).String()}
		v.InWindows = r.windows()
		for _, p := range r.Problems {
			if strings.Contains(p.Check, "lost") {
				v.Lost++
			}
		}
		scale := float64(max(r.Length, time.Second)) / 1000
		for _, e := range r.h.Events {
			class := "cut"
			if e.Ended {
				class = "kill"
			}
			title := fmt.Sprintf("%s, %v to %v", e.What, e.From.Round(time.Millisecond), e.To.Round(time.Millisecond))
			v.Bars = append(v.Bars, bar{float64(e.From) / scale, max(2, float64(e.To-e.From)/scale), class, title})
			v.Faults = append(v.Faults, title)
		}
		v.OK, v.Bad, v.Peak = lines(r)
		for name, took := range r.Took {
			v.Checks = append(v.Checks, fmt.Sprintf("%s %v", name, took.Round(time.Millisecond)))
		}
		slices.Sort(v.Checks)
		data.Runs = append(data.Runs, v)
		data.Ops += r.Sum.OK
		data.Faults += len(r.h.Events)
		data.Terms += r.Terms
		data.Problems += len(r.Problems)
		data.Jobs += r.Sum.Jobs
		data.Lost += v.Lost
		data.Entries += r.Entries
	}
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		panic("BUG: the page's template: " + err.Error())
	}
	return b.Bytes()
}

// lines are answers over time, per slot: those that were OK, and all others.
func lines(r *Result) (ok, bad string, peak int) {
	const slots = 250
	var n [2][slots]int
	for _, o := range r.h.Ops {
		slot := int(int64(o.Call) * (slots - 1) / int64(max(r.Length, 1)))
		k := 0
		if o.Outcome != OK {
			k = 1
		}
		n[k][slot]++
		peak = max(peak, n[k][slot])
	}
	line := func(of [slots]int) string {
		var b strings.Builder
		for i, v := range of {
			fmt.Fprintf(&b, "%d,%.1f ", i*1000/slots, 80-78*float64(v)/float64(max(peak, 1)))
		}
		return b.String()
	}
	return line(n[0]), line(n[1]), peak
}
