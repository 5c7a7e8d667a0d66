package raftnode

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
	"raftq/wal"
)

// timeBase says when this node wrote the last stamped entry of its log. lost
// means: in another boot of the machine, so BootNs is not comparable (it is then
// the time of this start, at which the entry counts as written if nobody knows
// better).
type timeBase struct {
	wal.TimeBase
	lost bool
}

// logClock is log time. Every node tracks base; a leader settles its own time
// from it before the first stamp of its term and advances it by CLOCK_BOOTTIME,
// slewed by at most 1 % toward the median of the voters' wall clocks.
//
// Why it never runs early: base pairs a stamp with a moment of this machine that
// is not before the stamp was made, and from there it moves with real time.
type logClock struct {
	base    timeBase
	settled bool  // leader only, this term
	asked   int64 // boot ns of the question to the voters, 0 = none
	ns      int64 // log time at boot, in ns
	boot    int64
}

// slewPart bounds the slew: 1/100 of the elapsed time.
const slewPart = 100

// logStepNs is how often log time is slewed, at the most: a leader stamps many
// entries in a millisecond.
const logStepNs = 1e6

// writtenNow makes a position the base and counts it as written now: late, never
// early. Whatever the base was of before is gone from the log.
func (c *core) writtenNow(p fsm.Position) {
	c.clock.base = timeBase{TimeBase: wal.TimeBase{Index: p.Index, Term: p.Term, StampMs: p.TimeMs, BootNs: c.now.boot}}
}

// wrote notes entries on their way to the log. When they replace the log's end
// and hold no stamp, the base may have been of an entry that is gone: then what
// is committed counts as written now. A base of a truncated entry would be early:
// its leader's time may have been ahead of that of the leader that replaced it.
func (c *core) wrote(ents []*pb.Entry) {
	l, now := &c.clock, c.now
	if len(ents) > 0 && ents[0].GetIndex() <= l.base.Index {
		c.writtenNow(c.confirmed)
	}
	for i := len(ents) - 1; i >= 0; i-- {
		h, ok := stampOf(ents[i])
		if !ok {
			continue
		}
		l.base = timeBase{TimeBase: wal.TimeBase{Index: ents[i].GetIndex(), Term: ents[i].GetTerm(), StampMs: h.TimeMs, BootNs: now.boot}}
		return
	}
}

// stampOf returns the header of an entry's batch; false: it has no stamp.
func stampOf(e *pb.Entry) (fsm.BatchHeader, bool) {
	data, err := batchOf(e)
	if err != nil {
		return fsm.BatchHeader{}, false // applying it will say why
	}
	h, err := fsm.ReadBatchHeader(data)
	return h, err == nil
}

// settleClock fixes log time for this term; false while it must ask first.
func (c *core) settleClock() bool {
	l := &c.clock
	if l.settled {
		return true
	}
	if seeded == "log-time-is-wall-time" {
		c.startClock(max(l.base.StampMs, c.now.wall)*1e6, c.now.boot, "wall clock")
		return true
	}
	if seeded == "log-time-stops-at-failover" {
		c.startClock(l.base.StampMs*1e6, c.now.boot, "the last stamp")
		return true
	}
	if !l.base.lost {
		c.startClock(l.base.StampMs*1e6, l.base.BootNs, "this boot")
		return true
	}
	voters := c.conf.GetVoters()
	if l.asked == 0 {
		l.asked = c.now.boot
		c.out.ask = true
	}
	answers, lost := 1, 1 // this node itself
	best := int64(-1)
	walls := []int64{c.now.wall}
	for _, id := range voters {
		p := c.peers[id]
		if p == nil || p.heardStatus < l.asked {
			continue
		}
		answers++
		b := p.status.Base
		if b.Lost {
			lost++
		} else if b.Index == l.base.Index && b.Term == l.base.Term {
			// What passed on its way is missing: late, never early.
			best = max(best, b.SinceNs+c.now.boot-p.heardStatus)
		}
		walls = append(walls, p.wallNow(c.now))
	}
	majority := len(voters)/2 + 1
	if answers < majority || answers < len(voters) && c.now.boot-l.asked < 3*c.cfg.heartbeatNs {
		if c.now.boot-l.asked > 10*c.cfg.heartbeatNs {
			l.asked = 0 // ask again
		}
		return false
	}
	switch {
	case best >= 0:
		c.startClock(l.base.StampMs*1e6+best, c.now.boot, "another voter's boot")
	case lost >= majority:
		// Nobody of a majority knows how long ago the last stamp was (first
		// start, all rebooted, restored): their wall clocks decide, if later.
		c.startClock(max(l.base.StampMs, median(walls))*1e6, c.now.boot, "median wall clock")
	default:
		c.startClock(l.base.StampMs*1e6, c.now.boot, "counted as written now")
	}
	return true
}

func (c *core) startClock(ns, boot int64, from string) {
	l := &c.clock
	l.settled, l.ns, l.boot = true, ns, boot
	c.logNow()
	c.log.Info("log time settled", zap.String("from", from), zap.Int64("ms", l.ns/1e6))
}

// logNow advances log time to now and returns it in ms. Leader, settled.
func (c *core) logNow() int64 {
	l := &c.clock
	d := c.now.boot - l.boot
	if d < logStepNs {
		return (l.ns + max(d, 0)) / 1e6 // what it slews by in so short a time is less than a stamp shows
	}
	walls := []int64{c.now.wall}
	for _, id := range c.conf.GetVoters() {
		if p := c.peers[id]; p != nil && c.now.boot-p.heardStatus < 5e9 && p.heardStatus > 0 {
			walls = append(walls, p.wallNow(c.now))
		}
	}
	slew := int64(0)
	if len(walls) > len(c.conf.GetVoters())/2 {
		slew = max(-d/slewPart, min(d/slewPart, median(walls)*1e6-l.ns-d))
	}
	l.ns += d + slew
	l.boot = c.now.boot
	return l.ns / 1e6
}

// reckonedNow is log time now as this node can tell, for showing ages: the
// leader's own, else what has passed since the last stamped entry was written.
func (c *core) reckonedNow() int64 {
	now := c.clock.base.StampMs
	switch {
	case c.lead != nil && c.clock.settled:
		now = c.logNow()
	case !c.clock.base.lost:
		now += (c.now.boot - c.clock.base.BootNs) / 1e6
	}
	return max(now, c.machine.Position().TimeMs)
}

// median is the lower one of an even number.
func median(v []int64) int64 {
	slices.Sort(v)
	return v[(len(v)-1)/2]
}
