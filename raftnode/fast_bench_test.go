package raftnode

import (
	"testing"

	"raftq/fsm"
)

// BenchmarkFast is what a fast request costs a lone leader's core: the turn that
// answers it, and its share of the turns that write and confirm what was held.
func BenchmarkFast(b *testing.B) {
	l := newLoneCore(b)
	r := &request{done: make(chan struct{}, 1)}
	b.ReportAllocs()
	for b.Loop() {
		op := &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: l.body, Priority: 4}}}
		*r = request{op: op, fast: true, timeout: 1e12, bytes: fsm.Size(op), done: r.done}
		l.now.boot += 30e3
		out, err := l.c.step(l.now, []any{submitted{[]*request{r}}})
		if err != nil || len(out.done) != 1 || !r.res.Fast {
			b.Fatalf("%v, %d answers, %+v", err, len(out.done), r.res)
		}
		for len(out.appends) > 0 {
			jobs := append([]*appendJob(nil), out.appends...)
			for _, j := range jobs {
				if err := l.storage.Append(j.m.GetEntries()); err != nil {
					b.Fatal(err)
				}
			}
			if out, err = l.c.step(l.now, []any{appended{jobs}}); err != nil {
				b.Fatal(err)
			}
		}
		l.cut()
	}
}
