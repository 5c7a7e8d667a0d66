package bench

import "sync/atomic"

// tenthClock notes when each tenth of a number of jobs was done, to tell
// whether a queue slows down as it grows. A nil one counts nothing.
type tenthClock struct {
	total int64
	jobs  atomic.Int64
	marks [11]atomic.Int64 // ns since the run began; [0] is the start
}

func newTenthClock(now int64, total int) *tenthClock {
	c := &tenthClock{total: int64(max(total, 10))}
	c.marks[0].Store(now)
	return c
}

// count adds jobs that are done by now.
func (c *tenthClock) count(n int, now int64) {
	if c == nil || n == 0 {
		return
	}
	after := c.jobs.Add(int64(n))
	before := after - int64(n)
	for k := before*10/c.total + 1; k <= min(10, after*10/c.total); k++ {
		c.marks[k].Store(now)
	}
}

// seconds is how long it took, up to the last tenth that was reached.
func (c *tenthClock) seconds() float64 {
	for k := 10; k > 0; k-- {
		if at := c.marks[k].Load(); at != 0 {
			return float64(at-c.marks[0].Load()) / 1e9
		}
	}
	return 0
}

func (c *tenthClock) tenths(phase string) Tenths {
	rate := func(k int) float64 {
		from, to := c.marks[k-1].Load(), c.marks[k].Load()
		if to <= from || k > 1 && from == 0 {
			return 0
		}
		return float64(c.total) / 10 / (float64(to-from) / 1e9)
	}
	return Tenths{Phase: phase, Jobs: c.jobs.Load(), Seconds: c.seconds(), First: rate(1), Last: rate(10)}
}
