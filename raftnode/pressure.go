package raftnode

import (
	"go.uber.org/zap"

	"raftq/fsm"
)

// Steps of memory and disk, in percent. At warn somebody is told, at noFast no fast
// enqueue is taken, at noJobs none at all. What makes room is always taken.
const (
	warnAt   = 75
	noFastAt = 90
	noJobsAt = 95
)

// stepOf returns the step that a use has passed.
func stepOf(used, of int64) uint8 {
	if of <= 0 {
		return 0
	}
	for _, step := range [...]uint8{noJobsAt, noFastAt, warnAt} {
		// Divided, so that nothing overflows.
		if float64(used) >= float64(of)*float64(step)/100 {
			return step
		}
	}
	return 0
}

// pressure keeps how full memory and disk are. Memory is the machine's own count
// against the smallest limit of the members; the disks are the members' alarms in
// the log, which each member raises and clears itself.
type pressure struct {
	memory, disk uint8 // as last told to people

	own    uint8 // this node's disk, as last seen
	logged uint8 // as last logged under this epoch

	// What the members say, looked up once in a step.
	step  uint64
	limit int64
	alarm uint8
}

// diskSeen: the node's disk is that full.
type diskSeen struct{ step uint8 }

// admit refuses a request that the log must not hold: an op that some member does
// not know, and new jobs when memory or a disk is full. It costs nothing for what
// adds nothing.
func (c *core) admit(r *request) bool {
	if level := fsm.LevelOf(r.op); level > 1 {
		if have := c.machine.FeatureLevel(); level > have {
			c.refuse(r, fsm.CodeFeatureLevel, "this needs feature level %d, and the members have %d: start all of them in a version that has it", level, have)
			return false
		}
	}
	if !adds(r.op) {
		return true
	}
	p := &c.pressure
	if p.step != c.stats.steps {
		p.step, p.limit, p.alarm = c.stats.steps, c.machine.MemoryLimit(), c.machine.DiskAlarm()
	}
	used := int64(0)
	if p.limit > 0 {
		used = c.machine.Bytes() + int64(c.origin.bytes) + int64(c.origin.queuedBytes) + int64(r.bytes)
	}
	refusedAt, which := uint8(noJobsAt), "new jobs"
	if r.fast {
		refusedAt, which = noFastAt, "fast enqueues"
	}
	if stepOf(used, p.limit) >= refusedAt {
		c.stats.refusedFull++
		c.refuse(r, fsm.CodeMemoryLimit, "the state takes %d of at most %d bytes (max-memory): %s are refused from %d %% on, until jobs are acked", c.machine.Bytes(), p.limit, which, refusedAt)
		return false
	}
	if disk := max(p.alarm, p.own); disk >= refusedAt {
		c.stats.refusedFull++
		c.refuse(r, fsm.CodeDiskLimit, "a member's disk is filled to %d %% or more: %s are refused from %d %% on, until there is room", disk, which, refusedAt)
		return false
	}
	return true
}

// adds tells whether an op makes the state larger: new jobs and messages.
func adds(op fsm.Op) bool {
	switch op := op.(type) {
	case *fsm.Enqueue, *fsm.Append:
		return true
	case *fsm.Keyed:
		return adds(op.Op)
	case *fsm.Tx:
		for _, part := range op.Ops {
			if adds(part) {
				return true
			}
		}
	}
	return false
}

// onDisk notes how full the node's disk is.
func (c *core) onDisk(step uint8) { c.pressure.own = step }

// alarmOp returns what this node has to log about its disk, nil for nothing.
func (c *core) alarmOp() fsm.Op {
	p := &c.pressure
	if p.own == p.logged || c.machine.FeatureLevel() < 2 {
		return nil
	}
	p.logged = p.own
	return &fsm.Alarm{Disk: p.own}
}

// pressureTick tells people when a step is passed, or left behind.
func (c *core) pressureTick() {
	p := &c.pressure
	m := c.committed()
	memory, disk := stepOf(m.Bytes(), m.MemoryLimit()), m.DiskAlarm()
	if memory != p.memory {
		c.tell("memory", memory, p.memory, zap.Int64("bytes", m.Bytes()), zap.Int64("max-memory", m.MemoryLimit()))
		p.memory = memory
	}
	if disk != p.disk {
		c.tell("disk", disk, p.disk)
		p.disk = disk
	}
}

func (c *core) tell(what string, step, was uint8, fields ...zap.Field) {
	fields = append(fields, zap.String("of", what), zap.Uint8("percent", step))
	switch {
	case step >= noJobsAt:
		c.log.Error("nearly full: new jobs are refused", fields...)
	case step >= noFastAt:
		c.log.Warn("filling up: fast enqueues are refused", fields...)
	case step > was:
		c.log.Warn("filling up", fields...)
	default:
		c.log.Info("room again", fields...)
	}
}
