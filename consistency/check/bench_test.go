package check

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCheckers is what each checker takes for a hundred thousand operations on
// queues, topics and groups.
func BenchmarkCheckers(b *testing.B) {
	s := newStory(b)
	s.configure("bad", 2, "graves")
	s.keep("short", 50)
	for i := 0; len(s.h.Ops) < 100_000; i++ {
		name := func(what string, n int) string { return fmt.Sprintf("%s %d %d", what, i, n) }
		s.enqueue("q", name("a", 0), name("a", 1), name("a", 2))
		s.enqueueJobs("g", Job{Body: name("g", 0), Group: fmt.Sprint(i % 7)}, Job{Body: name("g", 1), Group: fmt.Sprint(i % 5)})
		s.append("t", name("m", 0), name("m", 1))
		s.append("short", name("s", 0))
		s.read("t", uint64(max(0, 2*i-20)), 20)
		d := s.dequeue("q", 3)
		s.count("q")
		s.tx(d, name("told", 0), Job{Body: name("step", 0), Queue: "q"})
		if g := s.dequeue("g", 3); len(g.Got) > 0 {
			s.settle(Ack, g, 0)
		}
		s.enqueue("bad", name("b", 0))
		if bad := s.dequeue("bad", 1); len(bad.Got) > 0 {
			s.settle(Nack, bad, 0)
		}
		if i%10 == 0 {
			s.pause("q", true, false, nowhere+int64(i))
			s.pause("q", false, false, 0)
		}
	}
	b.ResetTimer()
	for name, do := range map[string]func(){
		"accounting": func() { Accounting(&s.h) },
		"witness":    func() { Witness(&s.h, s.log) },
		"black box":  func() { BlackBox(&s.h) },
		"topics":     func() { Topics(&s.h) },
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				do()
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(len(s.h.Ops))*float64(time.Second/time.Microsecond), "µs/op-checked")
		})
	}
}
