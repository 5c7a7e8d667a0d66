package bench

// What one connection does, by workload. Each returns when the run is over.

// enqueueLoop enqueues.
func (c *client) enqueueLoop() {
	for c.turn(c.run.cfg.Pipeline) {
		for _, at := range c.due {
			c.addEnqueue(at)
		}
		c.roundTrip()
	}
}

// cappedLoop enqueues, never more unacked jobs than the cap allows.
func (c *client) cappedLoop() {
	for c.run.reserve() {
		if !c.turn(1) {
			return
		}
		c.addEnqueue(c.due[0])
		c.roundTrip()
	}
}

// cycleLoop enqueues, dequeues and acks in turn.
func (c *client) cycleLoop() {
	for c.turn(c.run.cfg.Pipeline) {
		for _, at := range c.due {
			c.addEnqueue(at)
		}
		n := len(c.due)
		c.roundTrip()
		c.takeAndAck(opDequeue, n, n == 1)
	}
}

// takeAndAck sends n dequeues and acks what they brought.
func (c *client) takeAndAck(o op, n int, wait bool) {
	now := c.run.now()
	for range n {
		c.addDequeue(o, now, wait)
	}
	c.roundTrip()
	c.ackAll()
}

// ackAll acks all that the client holds, as many in a request as a batch has,
// and as many requests at once as the pipeline has.
func (c *client) ackAll() {
	for i := 0; i < len(c.held); {
		now := c.run.now()
		for n := 0; n < c.run.cfg.Pipeline && i < len(c.held); n++ {
			end := min(i+c.run.cfg.Batch, len(c.held))
			c.addSettle(opAck, now, c.held[i:end])
			i = end
		}
		c.roundTrip()
	}
	c.held = c.held[:0]
}

// consumeLoop waits for jobs and acks them.
func (c *client) consumeLoop() {
	for !c.run.stopped() {
		c.takeAndAck(opWait, 1, true)
	}
}

// drainLoop dequeues and acks until the jobs are gone.
func (c *client) drainLoop() { c.drain(1) }

// holdMax is how many answers a connection of the dequeue workload takes before
// it acks their jobs. An ack right after its dequeue would wait for the
// commit of that, and a fast one would look as slow as a strong one. It holds them
// for a quarter of the run at most: a short run on a slow disk has acks as well.
const holdMax = 64

// dequeueLoop dequeues some jobs, then acks them, until the jobs are gone.
func (c *client) dequeueLoop() {
	c.drain(holdMax)
	c.ackAll()
}

// drain dequeues and acks after every n answers, or a quarter of the run.
func (c *client) drain(n int) {
	longest := int64(c.run.cfg.Duration) / 4
	for taken, since := 0, c.run.now(); c.turn(c.run.cfg.Pipeline); {
		for _, at := range c.due {
			c.addDequeue(opDequeue, at, false)
		}
		c.foundNone = false
		c.roundTrip()
		if taken += len(c.due); taken >= n || c.foundNone || c.run.now()-since >= longest {
			c.ackAll()
			taken, since = 0, c.run.now()
		}
		if c.foundNone { // others may still hold jobs, but none is left to take
			c.run.stop()
			return
		}
	}
}

// fillLoop enqueues until as many jobs are in as the backlog should have.
func (c *client) fillLoop() {
	for c.run.wantMore() && c.turn(1) {
		c.addEnqueue(c.due[0])
		c.roundTrip()
	}
}

// mixedHeldMax is how many jobs a connection of the mixed workload holds.
const mixedHeldMax = 4

// mixedLoop does a bit of everything: 70 % enqueue, dequeue and ack in equal
// parts, 20 % reads, 5 % nack, 5 % extend. It sends one request at a time.
func (c *client) mixedLoop() {
	for c.turn(1) {
		at := c.due[0]
		n, have := c.rng.UintN(100), len(c.held)
		switch {
		case n < 20:
			c.addRead(at)
		case n < 25 && have > 0:
			c.settleLast(opNack, at)
			continue
		case n < 30 && have > 0:
			c.addSettle(opExtend, at, c.held[have-1:])
		case n < 55 && have > 0 || have >= mixedHeldMax:
			c.settleLast(opAck, at)
			continue
		case n < 78:
			c.addEnqueue(at)
		default:
			c.addDequeue(opDequeue, at, false)
		}
		c.roundTrip()
	}
	c.ackAll()
}

// settleLast acks or nacks the job that came last.
func (c *client) settleLast(o op, at int64) {
	last := max(0, len(c.held)-c.run.cfg.Batch)
	c.addSettle(o, at, c.held[last:])
	c.roundTrip()
	c.held = c.held[:last]
}
