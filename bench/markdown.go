package bench

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Markers between which a document's tables stand.
const (
	markBegin = "<!-- bench-report:begin -->"
	markEnd   = "<!-- bench-report:end -->"
)

// WriteMarkdown writes the tables of a document.
func (rep *Report) WriteMarkdown(w io.Writer) {
	e := rep.Environment
	fmt.Fprintf(w, "Measured on %s with raftq %s: %s, %d CPUs, %s of memory, Linux %s, data on %s, %s; load average before the runs %.1f.\n",
		rep.Time.UTC().Format("2006-01-02 15:04 UTC"), rep.version(), e.CPU, e.CPUs, formatBytes(float64(e.Memory)), e.Kernel, or(e.Disk, "an unknown file system"), e.Go, e.Load)
	for _, g := range rep.Groups {
		fmt.Fprintf(w, "\n### %s\n\n", g.Title)
		if g.Note != "" {
			fmt.Fprintf(w, "%s\n\n", g.Note)
		}
		fmt.Fprintln(w, "| run | operation | jobs/s | p50 | p99 | p99.9 | max | errors | server CPU s / 1000 ops | RSS | fsyncs/s | written/s |")
		fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
		for _, r := range g.Runs {
			name, use := r.Config.Name, r.useColumns()
			for _, o := range r.shown() {
				l := o.Latency
				rate := "-"
				if o.Rate > 0 {
					rate = formatRate(o.Rate)
				}
				fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %d | %s | %s | %s | %s |\n", name, o.Name, rate,
					formatNs(l.P50), formatNs(l.P99), formatNs(l.P999), formatNs(l.Max), r.errorsOf(o.Name), use[0], use[2], use[3], use[4])
				name, use = "", make([]string, len(use))
			}
		}
		for _, r := range g.Runs {
			for _, line := range r.remarks() {
				fmt.Fprintf(w, "\n- %s: %s", r.Config.Name, line)
			}
		}
		fmt.Fprintln(w)
	}
	if len(rep.Bars) > 0 {
		fmt.Fprintf(w, "\n### Ratios\n\n| what | ratio | at most | medians |\n|---|--:|--:|---|\n")
		for _, b := range rep.Bars {
			want := "-"
			if b.Want > 0 {
				want = fmt.Sprintf("%g: %s", b.Want, map[bool]string{true: "met", false: "**not met**"}[b.Met()])
			}
			fmt.Fprintf(w, "| %s | %.2f | %s | %s |\n", b.What, b.Value, want, b.Note)
		}
	}
}

// version is the one of the nodes.
func (rep *Report) version() string {
	for _, g := range rep.Groups {
		for _, r := range g.Runs {
			for _, n := range r.Nodes {
				if n.Version != "" {
					return n.Version
				}
			}
		}
	}
	return "(unknown version)"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// ReplaceTables returns a document with the report between its markers.
func (rep *Report) ReplaceTables(doc []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(doc, []byte(markBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(markEnd))
	if !ok || !ok2 {
		return nil, fmt.Errorf("the document has no %s and %s", markBegin, markEnd)
	}
	var tables strings.Builder
	rep.WriteMarkdown(&tables)
	return fmt.Appendf(nil, "%s%s\n%s%s%s", before, markBegin, tables.String(), markEnd, after), nil
}
