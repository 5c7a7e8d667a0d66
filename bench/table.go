package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes the report for a terminal.
func (rep *Report) WriteTable(w io.Writer) error {
	for i, g := range rep.Groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if g.Title != "" {
			fmt.Fprintln(w, g.Title)
		}
		if err := writeOps(w, g.Runs); err != nil {
			return err
		}
		fmt.Fprintln(w)
		if err := writeUse(w, g.Runs); err != nil {
			return err
		}
		for _, r := range g.Runs {
			for _, line := range r.remarks() {
				fmt.Fprintf(w, "%s: %s\n", r.Config.Name, line)
			}
		}
	}
	if len(rep.Bars) > 0 {
		fmt.Fprintln(w)
		for _, b := range rep.Bars {
			fmt.Fprintln(w, b.text())
		}
	}
	return nil
}

func writeOps(w io.Writer, runs []*Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RUN\tOPERATION\tREQUESTS\tJOBS/S\tP50\tP90\tP99\tP99.9\tP99.99\tMAX\tERRORS\t")
	for _, r := range runs {
		name := r.Config.Name
		for _, o := range r.shown() {
			rate := "-"
			if o.Rate > 0 {
				rate = formatRate(o.Rate)
			}
			l := o.Latency
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", name, o.Name, o.Requests, rate,
				formatNs(l.P50), formatNs(l.P90), formatNs(l.P99), formatNs(l.P999), formatNs(l.P9999), formatNs(l.Max), r.errorsOf(o.Name))
			name = ""
		}
		if len(r.Ops) == 0 {
			fmt.Fprintf(t, "%s\tnothing measured\t\t\t\t\t\t\t\t\t%d\t\n", name, r.errorCount())
		}
	}
	return t.Flush()
}

func writeUse(w io.Writer, runs []*Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RUN\tSERVER CPU s/1000 OPS\tCORES\tRSS (MAX)\tFSYNCS/s\tWRITTEN/s\tOPS/ENTRY\tGENERATOR CPU s/1000 OPS\tALLOCS/REQUEST\t")
	for _, r := range runs {
		fmt.Fprintf(t, "%s\t%s\t\n", r.Config.Name, strings.Join(r.useColumns(), "\t"))
	}
	return t.Flush()
}

// useColumns are what a run used: server CPU, cores, memory, fsyncs, bytes,
// operations in an entry, generator CPU and allocations.
func (r *Result) useColumns() []string {
	columns := []string{"-", "-", "-", "-", "-", "-"}
	if len(r.Nodes) > 0 && r.Seconds > 0 {
		batches := r.use(func(u NodeUse) float64 { return float64(u.Batches) })
		perEntry := "-"
		if batches > 0 {
			perEntry = fmt.Sprintf("%.1f", r.use(func(u NodeUse) float64 { return float64(u.BatchedOps) })/batches)
		}
		columns = []string{
			fmt.Sprintf("%.3f", r.serverCPU()),
			fmt.Sprintf("%.2f", r.use(func(u NodeUse) float64 { return u.CPUSeconds })/r.Seconds),
			formatBytes(float64(r.rssMax())),
			formatRate(r.use(func(u NodeUse) float64 { return float64(u.Fsyncs) }) / r.Seconds),
			formatBytes(r.use(func(u NodeUse) float64 { return float64(u.WALBytes) }) / r.Seconds),
			perEntry,
		}
	}
	own := "-"
	if n := r.jobOps(); n > 0 {
		own = fmt.Sprintf("%.3f", r.Generator.CPUSeconds/float64(n)*1000)
	}
	return append(columns, own, fmt.Sprintf("%.2f", r.Generator.AllocsPerRequest))
}

// remarks are what a reader of the tables must know of a run.
func (r *Result) remarks() (lines []string) {
	for _, t := range r.Tenths {
		lines = append(lines, fmt.Sprintf("%s %d jobs in %.1f s; first tenth %s/s, last tenth %s/s",
			t.Phase, t.Jobs, t.Seconds, formatRate(t.First), formatRate(t.Last)))
	}
	for _, e := range r.Errors {
		lines = append(lines, fmt.Sprintf("%d × %s failed: %s", e.Count, e.Op, e.Code))
	}
	if c := r.Check; c != nil {
		if bad := c.Verdict(); bad != "" {
			lines = append(lines, bad)
		} else {
			lines = append(lines, fmt.Sprintf("check passed: %d jobs enqueued, each delivered and acked once (%d of them taken out at the end)", c.Enqueued, c.Drained))
		}
	}
	if c := r.Check; c != nil && c.Adrift+c.Unsettled+c.Unknown > 0 {
		lines = append(lines, fmt.Sprintf("of lost answers: %d jobs may be there or not, %d are leased to nobody until their leases end, %d may be acked or not",
			c.Unknown, c.Adrift, c.Unsettled))
	}
	return append(lines, r.Notes...)
}

func (r *Result) errorsOf(op string) (n int64) {
	for _, e := range r.Errors {
		if e.Op == op {
			n += e.Count
		}
	}
	return n
}

// text is a bar on one line.
func (b Bar) text() string {
	s := fmt.Sprintf("%s: %.2f", b.What, b.Value)
	if b.Want > 0 {
		verdict := "met"
		if !b.Met() {
			verdict = "NOT met"
		}
		s += fmt.Sprintf(" (at most %g: %s)", b.Want, verdict)
	}
	if b.Note != "" {
		s += "; " + b.Note
	}
	return s
}

// Met tells whether the value is what it should be.
func (b Bar) Met() bool { return b.Want == 0 || b.Value <= b.Want }

// formatNs writes a latency with three digits.
func formatNs(ns int64) string {
	d := time.Duration(ns)
	switch {
	case ns <= 0:
		return "0"
	case d < time.Microsecond:
		return strconv.FormatInt(ns, 10) + " ns"
	case d < time.Millisecond:
		return threeDigits(float64(ns)/1e3) + " µs"
	case d < time.Second:
		return threeDigits(float64(ns)/1e6) + " ms"
	}
	return threeDigits(float64(ns)/1e9) + " s"
}

func threeDigits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// formatRate writes a rate with thousands apart.
func formatRate(v float64) string {
	if v < 100 && v != math.Trunc(v) {
		return threeDigits(v)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func formatBytes(v float64) string {
	for _, u := range []struct {
		name string
		n    float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v >= u.n {
			return threeDigits(v/u.n) + " " + u.name
		}
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " B"
}
