package check

import (
	"cmp"
	"slices"
	"time"
)

// LogTime judges that log time is never ahead of true time, by the client's clock:
// between two entries it moves by no more than what has passed from the call of the
// first to the answer of the second, and 1.2 %, for it may run 1 % fast, and 50 ms.
// What wall clocks say does not count, except after a reboot of a majority. Fast
// answers do not either: their entry may be lost, and another one be at its index.
func LogTime(h *History) []Problem {
	var p problems
	ops := slices.DeleteFunc(slices.Clone(h.Ops), func(o *Op) bool {
		return o.Outcome != OK || o.Fast || !o.written() || o.Index == 0 || o.TimeMs == 0
	})
	slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(a.Index, b.Index) })
	ahead := func(o *Op, at time.Duration) time.Duration {
		return time.Duration(o.TimeMs)*time.Millisecond - at - at*12/1000
	}
	var latest *Op // of those before: whose stamp is the latest for its call
	for _, o := range ops {
		if latest != nil && h.rebooted(latest.Call, o.Ret) {
			latest = nil
		}
		if latest != nil && ahead(o, o.Ret)-ahead(latest, latest.Call) > 50*time.Millisecond {
			p.add("black box: log time", "%v to %v took %v at the most, and log time moved by %d ms", latest, o, o.Ret-latest.Call, o.TimeMs-latest.TimeMs)
		}
		if latest == nil || ahead(o, o.Call) < ahead(latest, latest.Call) {
			latest = o
		}
	}
	return p.all()
}
