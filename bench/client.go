package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Pauses of a client that cannot go on.
const (
	pauseFailed  = 50 * time.Millisecond // the connection
	pauseRefused = 10 * time.Millisecond // 429, 503, 507
)

// client is one connection. Its goroutine owns everything in it.
type client struct {
	run    *run
	shard  *shard
	addr   string
	nc     net.Conn
	reader *reader
	fresh  time.Time // the deadline of nc

	queues []int // of the run's, those that it uses, in turn
	turnAt int
	rng    *rand.Rand
	body   []byte
	many   []byte // body of a dequeue from several queues

	due     []int64 // sending times of the requests of this turn
	out     []byte  // requests to be written
	flights []flight
	resp    response
	held    []held

	foundNone bool // the last dequeue found no job
}

// flight is one request that is written and not answered.
type flight struct {
	op   op
	sent int64 // when it should have been sent, ns since the run began
	seq  int64 // of its first job
	jobs int
	held []held // what it settles; part of the client's list
}

func newClient(r *run, i int, queues []int) *client {
	c := &client{
		run: r, shard: r.rec.shards[i%len(r.rec.shards)],
		addr:    r.addrs[i%len(r.addrs)],
		queues:  queues,
		rng:     rand.New(rand.NewPCG(uint64(i), 0x72616674)),
		due:     make([]int64, 0, r.cfg.Pipeline),
		flights: make([]flight, 0, r.cfg.Pipeline),
		held:    make([]held, 0, r.cfg.Pipeline*r.cfg.Batch),
	}
	c.body = newBody(r.tag, r.cfg.Size, c.rng)
	if len(queues) > 1 {
		names := make([]string, len(queues))
		for j, q := range queues {
			names[j] = r.queues[q]
		}
		c.many = manyBody(names, &r.cfg, true)
	}
	return c
}

// queue returns the paths of the queue whose turn it is.
func (c *client) queue() *paths {
	c.turnAt++
	return &c.run.paths[c.queues[c.turnAt%len(c.queues)]]
}

// turn waits until the connection may send and notes the sending times of up
// to n requests in c.due. It returns false when the run is over.
func (c *client) turn(n int) bool {
	r := c.run
	c.due = c.due[:0]
	if r.stopped() {
		return false
	}
	if n = r.allow(n); n == 0 {
		r.stop()
		return false
	}
	if r.sched == nil {
		now := r.now()
		for range n {
			c.due = append(c.due, now)
		}
		return true
	}
	at := r.sched.take()
	now := r.now()
	if wait := at - now; wait > 0 {
		sleep(time.Duration(wait), r.stopCh)
		if r.stopped() {
			return false
		}
		now = r.now()
		r.rec.measured(c.shard, opLag, at, now)
	}
	c.due = append(c.due, at)
	for len(c.due) < n {
		at, ok := r.sched.takeDue(now)
		if !ok {
			break
		}
		c.due = append(c.due, at)
	}
	return true
}

// addEnqueue adds the enqueue of a batch of jobs, stamped with their sending time.
func (c *client) addEnqueue(sent int64) {
	r, p := c.run, c.queue()
	n := r.cfg.Batch
	f := flight{op: opEnqueue, sent: sent, jobs: n, seq: r.shared.seq.Add(int64(n)) - int64(n)}
	if n == 1 {
		stampBody(c.body, f.seq, sent)
		c.out = appendRequest(c.out, p.enqueue, c.body)
	} else {
		c.out = append(c.out, p.frames...)
		c.out = appendLength(c.out, framesSize(n, len(c.body)))
		for i := range n {
			stampBody(c.body, f.seq+int64(i), sent)
			c.out = appendFrame(c.out, c.body)
		}
	}
	if r.ledger != nil {
		r.ledger.sending(f.seq, n)
	}
	c.flights = append(c.flights, f)
}

// addDequeue adds a dequeue, opDequeue where jobs are expected to be there,
// opWait where they are waited for.
func (c *client) addDequeue(o op, sent int64, wait bool) {
	p := c.queue()
	switch {
	case c.many != nil:
		c.out = appendRequest(c.out, c.run.lines.dequeueMany, c.many)
	case wait:
		c.out = appendRequest(c.out, p.dequeue, nil)
	default:
		c.out = appendRequest(c.out, p.poll, nil)
	}
	c.flights = append(c.flights, flight{op: o, sent: sent})
}

// addSettle adds an ack, nack or extend of jobs that the client holds.
func (c *client) addSettle(o op, sent int64, jobs []held) {
	line, option := c.run.lines.ack, ""
	switch o {
	case opNack:
		line, option = c.run.lines.nack, `,"delay":"0s"`
	case opExtend:
		line, option = c.run.lines.extend, `,"lease":"`+leaseTime+`"`
	}
	c.out = appendItems(c.out, line, jobs, option)
	c.flights = append(c.flights, flight{op: o, sent: sent, jobs: len(jobs), held: jobs})
}

// addRead adds a look at a job in the client's hands, or at a queue.
func (c *client) addRead(sent int64) {
	if n := len(c.held); n > 0 && c.rng.Uint32()&1 == 0 {
		c.out = append(c.out, c.run.lines.job...)
		c.out = append(c.out, c.held[n-1].id()...)
		c.out = append(c.out, c.run.lines.end...)
	} else {
		c.out = append(c.out, c.queue().stats...)
	}
	c.out = append(c.out, "\r\n"...)
	c.flights = append(c.flights, flight{op: opRead, sent: sent, jobs: 1})
}

// roundTrip writes what was added and reads the answers. A failure counts for
// every request that has no answer, and costs a pause and a new connection.
func (c *client) roundTrip() (ok bool) {
	defer func() { c.out, c.flights = c.out[:0], c.flights[:0] }()
	if len(c.flights) == 0 {
		return true
	}
	if c.nc == nil {
		if err := c.dial(); err != nil {
			c.roam()
			c.broken(0, "connect", false)
			return false
		}
	}
	c.refresh()
	if _, err := c.nc.Write(c.out); err != nil {
		c.broken(0, netCode(err), true)
		return false
	}
	ok = true
	for i := range c.flights {
		if c.nc == nil { // closed by the server after the answer before
			c.broken(i, "closed", true)
			return false
		}
		if err := c.reader.next(&c.resp); err != nil {
			c.broken(i, netCode(err), true)
			return false
		}
		if !c.answered(&c.flights[i]) {
			ok = false
		}
		if c.resp.close {
			c.hangUp()
		}
	}
	return ok
}

func (c *client) dial() error {
	nc, err := c.run.dialer.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	if !c.run.track(c, nc) {
		nc.Close()
		return net.ErrClosed
	}
	c.nc, c.reader = nc, newReader(nc)
	c.fresh = time.Time{}
	return nil
}

// roam goes on to the next node, as a client of a user would.
func (c *client) roam() {
	i := slices.Index(c.run.addrs, c.addr)
	c.addr = c.run.addrs[(i+1)%len(c.run.addrs)]
}

// refresh moves the deadline of the connection now and then: it costs as much
// as a tenth of a request.
func (c *client) refresh() {
	timeout := time.Duration(c.run.cfg.Timeout)
	if now := time.Now(); c.fresh.Sub(now) < timeout {
		c.fresh = now.Add(timeout + timeout/4)
		_ = c.nc.SetDeadline(c.fresh) // a connection without one fails by itself
	}
}

func (c *client) hangUp() {
	if c.nc != nil {
		c.run.track(c, nil)
		_ = c.nc.Close() // nothing unread matters
		c.nc = nil
	}
}

// broken counts flights from i on as failed, and waits a little.
func (c *client) broken(i int, code string, sent bool) {
	for ; i < len(c.flights); i++ {
		f := &c.flights[i]
		c.run.rec.failed(c.shard, f.op, code, 1)
		if sent {
			c.run.unknown(f)
		} else if c.run.ledger != nil && f.op == opEnqueue {
			c.run.ledger.refused(f.seq, f.jobs)
		}
		c.run.enqueueFailed(f)
	}
	c.hangUp()
	c.pause(pauseFailed)
}

func (c *client) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.run.stopCh:
	}
}

// netCode names what happened to a connection.
func netCode(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, net.ErrClosed):
		return "cut_at_end"
	case errors.Is(err, errAnswer), errors.Is(err, errFrames):
		return "bad_answer"
	}
	return "network"
}

// answered takes one answer and tells whether it is a good one.
func (c *client) answered(f *flight) bool {
	now := c.run.now()
	r, status := c.run, c.resp.status
	if status == 207 {
		return c.answeredInPart(f, now)
	}
	if status == 404 && f.op == opRead && r.cfg.Consistency == Fast {
		// A fast read shows what is committed; the job or its queue is not yet.
		r.rec.empty(c.shard, f.op, f.sent)
		return true
	}
	if status > 207 {
		c.refused(f, errorCode(status, c.resp.body), 1)
		return false
	}
	switch f.op {
	case opEnqueue:
		if r.ledger != nil {
			r.ledger.enqueued(f.seq, f.jobs)
		}
		r.fill.count(f.jobs, now)
	case opDequeue, opWait:
		n, ok := 0, true
		if status != 204 {
			n, ok = c.take(now)
		}
		if !ok {
			r.rec.failed(c.shard, f.op, "bad_answer", 1)
			return false
		}
		c.foundNone = n == 0
		if f.jobs = n; n == 0 {
			r.rec.empty(c.shard, f.op, f.sent)
			return true
		}
	case opAck:
		r.acked(f.held, now)
		if bytes.Contains(c.resp.body, []byte(`"already":true`)) {
			r.shared.already.Add(1)
		}
	case opNack:
		if r.ledger != nil {
			r.ledger.nacked(f.held)
		}
	}
	r.rec.answered(c.shard, f.op, f.sent, now, f.jobs, status, c.resp.fast)
	return true
}

// refused counts an answer that is none of success.
func (c *client) refused(f *flight, code string, n int64) {
	c.run.rec.failed(c.shard, f.op, code, n)
	switch c.resp.status {
	case 504, 500:
		c.run.unknown(f)
	default:
		if c.run.ledger != nil && f.op == opEnqueue {
			c.run.ledger.refused(f.seq, f.jobs)
		}
	}
	c.run.enqueueFailed(f)
	switch c.resp.status {
	case 429, 503, 507:
		c.pause(pauseRefused)
	}
}

// answeredInPart takes the answer to several jobs of which some failed. It is
// rare and may cost.
func (c *client) answeredInPart(f *flight, now int64) bool {
	var body struct {
		Results []struct {
			Status int    `json:"status"`
			Code   string `json:"code"`
		} `json:"results"`
	}
	if json.Unmarshal(c.resp.body, &body) != nil || len(body.Results) != f.jobs {
		c.run.rec.failed(c.shard, f.op, "bad_answer", 1)
		return false
	}
	good := 0
	for i, res := range body.Results {
		if res.Status >= 300 {
			c.run.rec.failed(c.shard, f.op, res.Code, 1)
			if c.run.ledger != nil && f.op == opEnqueue {
				c.run.ledger.refused(f.seq+int64(i), 1)
			}
			continue
		}
		good++
		switch {
		case f.op == opAck:
			c.run.acked(f.held[i:i+1], now)
		case c.run.ledger == nil:
		case f.op == opEnqueue:
			c.run.ledger.enqueued(f.seq+int64(i), 1)
		case f.op == opNack:
			c.run.ledger.nacked(f.held[i : i+1])
		}
	}
	c.run.rec.answered(c.shard, f.op, f.sent, now, good, 207, c.resp.fast)
	return false
}

// take takes the jobs of a dequeue's answer into the client's hands.
func (c *client) take(now int64) (n int, ok bool) {
	if c.run.cfg.Batch == 1 {
		return 1, c.takeOne(c.resp.receipt, c.resp.body, now)
	}
	for rest := c.resp.body; len(rest) > 0; n++ {
		var head, body []byte
		var err error
		if head, body, rest, err = cutFrame(rest); err != nil {
			return n, false
		}
		if !c.takeOne(receiptOf(head), body, now) {
			return n, false
		}
	}
	return n, true
}

func (c *client) takeOne(receipt, body []byte, now int64) bool {
	seq, sent, ok := readBody(body, c.run.tag)
	if !ok {
		c.run.shared.invented.Add(1)
		return false
	}
	c.run.rec.measured(c.shard, opDelivery, sent, now)
	if c.run.ledger != nil {
		c.run.ledger.delivered(seq)
	}
	c.held = append(c.held, held{})
	h := &c.held[len(c.held)-1]
	if !h.set(receipt, seq) {
		c.held = c.held[:len(c.held)-1]
		return false
	}
	return true
}

// receiptOf finds the receipt in a frame's JSON object.
func receiptOf(object []byte) []byte {
	const name = `"receipt":"`
	i := bytes.Index(object, []byte(name))
	if i < 0 {
		return nil
	}
	rest := object[i+len(name):]
	return rest[:max(0, bytes.IndexByte(rest, '"'))]
}

// errorCode is the code of a problem, or one made of the status.
func errorCode(status int, body []byte) string {
	const name = `"code":"`
	if i := bytes.Index(body, []byte(name)); i >= 0 {
		rest := body[i+len(name):]
		if end := bytes.IndexByte(rest, '"'); end > 0 && end < 64 {
			return string(rest[:end])
		}
	}
	return "http_" + strconv.Itoa(status)
}
