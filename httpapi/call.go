package httpapi

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"raftq/fsm"
	"raftq/hangup"
)

// call is one request on its way. It belongs to its connection's goroutine and
// is reused after the answer, so nothing in it may reach an op.
type call struct {
	s         *Server
	ctx       *fasthttp.RequestCtx
	conn      *hangup.Conn // nil when the connection did not come from Serve's listener
	route     *route
	raw       [2][]byte // path parameters, not decoded yet
	params    [2][]byte // decoded
	query     query
	opts      options
	nowMs     int64        // log time of a read's answer
	pos       fsm.Position // what the answer reflects; zero: nothing
	stale     int64        // ms, of a weak read; -1: none
	batch     fsm.BatchRef // of a fast answer
	key       []byte       // Idempotency-Key, nil: none
	replay    bool         // the answer is that of an earlier request with the key
	sweep     int          // which op of a request that takes several
	forwarded bool         // the answer is another node's, header fields and all
	out       []byte       // the answer's body
	num       []byte       // a header's value being made
	items     []settleItem
}

var calls = sync.Pool{New: func() any { return &call{stale: -1} }}

// scratchMax is the largest buffer that a call keeps for the next one.
const scratchMax = 64 << 10

func (c *call) release() {
	query, out, num, items := c.query.buf[:0], c.out[:0], c.num[:0], c.items[:0]
	if cap(query)+cap(out) > scratchMax {
		query, out = nil, nil
	}
	*c = call{out: out, num: num, items: items, stale: -1}
	c.query.buf = query
	calls.Put(c)
}

// begin parses the query, and the headers that stand for options.
func (c *call) begin() error {
	c.query.rest = c.ctx.URI().QueryString()
	for {
		name, val, ok, err := c.query.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := c.opts.set(name, value{isText, val}, c.route.query); err != nil {
			return err
		}
	}
	h := &c.ctx.Request.Header
	if enc := h.ContentEncoding(); len(enc) > 0 && !bytes.EqualFold(enc, identity) {
		return refuse(fsm.CodeInvalidRequest, "Content-Encoding: bodies are bytes and are not decoded here; send them without, as %q", "identity")
	}
	if err := c.pathParams(); err != nil {
		return err
	}
	if !c.route.query.has(optConsistency) {
		return nil
	}
	if v := h.PeekCanonical(fieldConsistency); len(v) > 0 && !c.opts.given.has(optConsistency) {
		if err := c.opts.set([]byte("consistency"), value{isText, v}, setOf(optConsistency)); err != nil {
			return err
		}
	}
	if !c.opts.given.has(optConsistency) {
		c.opts.fast = c.fastByDefault()
	}
	if c.route.reads() {
		return nil
	}
	return c.readKey()
}

// pathParams decodes the path's parameters, once.
func (c *call) pathParams() (err error) {
	for i := range c.raw {
		if c.params[i], err = c.decoded(c.raw[i]); err != nil {
			return err
		}
	}
	return nil
}

// fastByDefault is what holds for a request that does not say: the queue's or
// topic's default, else the node's.
func (c *call) fastByDefault() bool {
	said := uint8(0)
	switch {
	case c.route.onQueue:
		said = c.s.replica.QueueConsistency(c.params[0])
	case c.route.onTopic:
		said = c.s.replica.TopicConsistency(c.params[0])
	}
	if said == 0 {
		return c.s.opts.Fast
	}
	return said == fsm.ConsistencyFast
}

// queue returns the path's queue.
func (c *call) queue() (string, error) { return queueName("queue", c.params[0]) }

// jobID returns the path's job.
func (c *call) jobID() (fsm.ID, error) {
	id, ok := fsm.ParseID(c.params[0])
	if !ok {
		return id, refuse(fsm.CodeBadJobID, "%q is no job id", c.params[0])
	}
	return id, nil
}

func (c *call) decoded(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '%') < 0 {
		return raw, nil
	}
	start := len(c.query.buf)
	var err error
	c.query.buf, err = appendDecoded(c.query.buf, raw, false)
	return c.query.buf[start:len(c.query.buf):len(c.query.buf)], err
}

// submit hands op to the replica and waits.
func (c *call) submit(op fsm.Op, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	if c.key != nil {
		op = c.keyed(op, 1)
	}
	res, err := c.s.replica.Do(op, c.opts.fast, timeout, gone)
	return c.took(res, err)
}

// took notes what the answer reflects.
func (c *call) took(res fsm.Result, err error) (fsm.Result, error) {
	if err != nil {
		return res, err
	}
	c.pos, c.replay = res.Position, res.Replay
	if res.Fast {
		c.batch = res.Batch
	}
	return res, nil
}

// fast tells whether the answer is one that is not committed yet.
func (c *call) fast() bool { return c.batch != fsm.BatchRef{} }

// written is the status of a write that succeeded: 202 until it is committed.
func (c *call) written(status int) int {
	if c.fast() {
		return 202
	}
	return status
}

// appendUncommitted appends what a list's answer says only when it is fast.
func (c *call) appendUncommitted(b []byte) []byte {
	if c.fast() {
		return append(b, `,"committed":false`...)
	}
	return b
}

// timeout is how long the answer of a request without wait may take.
func (c *call) timeout() time.Duration {
	if c.opts.timeout > 0 {
		return c.opts.timeout
	}
	return timeoutDefault
}

// read runs f on the machine: linearizable, or this node's own state when the
// request asked for fast.
func (c *call) read(f func(m *fsm.Machine)) error {
	seen, err := c.s.replica.Read(c.readHow(), f)
	c.pos, c.nowMs = seen.Position, max(seen.NowMs, seen.TimeMs)
	if err == nil && c.opts.fast {
		c.stale = seen.StaleMs
	}
	return err
}

func (c *call) readHow() fsm.ReadHow {
	return fsm.ReadHow{Strong: !c.opts.fast, Age: c.opts.fast, MinIndex: c.opts.minIndex, MaxStaleMs: c.opts.maxStaleMs, TimeoutMs: c.timeout().Milliseconds()}
}

var (
	fieldIndex       = []byte("Raftq-Index")
	fieldTerm        = []byte("Raftq-Term")
	fieldTime        = []byte("Raftq-Time")
	fieldStale       = []byte("Raftq-Stale-Ms")
	fieldBatch       = []byte("Raftq-Batch")
	fieldForwarded   = []byte("Raftq-Forwarded")
	fieldNode        = []byte("Raftq-Node")
	fieldLeader      = []byte("Raftq-Leader")
	fieldRetryAfter  = []byte("Retry-After")
	fieldAllow       = []byte("Allow")
	fieldAccept      = []byte("Accept")
	fieldConsistency = []byte("Raftq-Consistency")
	fieldReplay      = []byte("Idempotent-Replay")
	fieldNextCursor  = []byte("Raftq-Next-Cursor")
	fieldNextOffset  = []byte("Raftq-Next-Offset")
	fieldETag        = []byte("Etag")
	fieldIfMatch     = []byte("If-Match")
	fieldIfNoneMatch = []byte("If-None-Match")

	typeJSON    = []byte("application/json")
	typeProblem = []byte("application/problem+json")
	typeNDJSON  = []byte("application/x-ndjson")
	typeFrames  = []byte("application/vnd.raftq.frames")
	typeBytes   = []byte("application/octet-stream")
	identity    = []byte("identity")
)

// answer makes c.out the answer's body.
func (c *call) answer(status int, contentType []byte) error {
	res := &c.ctx.Response
	res.SetStatusCode(status)
	res.Header.SetContentTypeBytes(contentType)
	c.out = res.SwapBody(c.out)
	return nil
}

// answerProblem is the one place that turns errors into answers.
func (c *call) answerProblem(err error) {
	p := asProblem(err)
	res := &c.ctx.Response
	res.ResetBody()
	c.out = appendProblem(c.out[:0], p, c.ctx.URI().PathOriginal())
	c.answer(p.kind.status, typeProblem) //nolint:errcheck // never fails
	if s := p.kind.retryAfter(); s > 0 {
		c.field(fieldRetryAfter, uint64(s))
	}
	if p.allow != "" {
		res.Header.SetCanonical(fieldAllow, []byte(p.allow))
	}
}

// finish sets the header fields that each answer has.
func (c *call) finish() {
	if c.forwarded {
		return
	}
	h := &c.ctx.Response.Header
	if c.pos.Index > 0 {
		c.field(fieldIndex, c.pos.Index)
		c.field(fieldTerm, c.pos.Term)
		c.field(fieldTime, uint64(c.pos.TimeMs))
	}
	if c.stale >= 0 {
		c.field(fieldStale, uint64(c.stale))
	}
	if c.fast() {
		c.num = appendBatch(c.num[:0], c.batch)
		h.SetCanonical(fieldBatch, c.num)
	}
	if c.replay {
		h.SetCanonical(fieldReplay, []byte("true"))
	}
	h.SetCanonical(fieldNode, c.s.nameField)
	if leader := c.s.replica.Leader(); leader != "" {
		c.num = appendField(c.num[:0], leader)
		h.SetCanonical(fieldLeader, c.num)
	}
}

func (c *call) field(name []byte, v uint64) {
	c.num = strconv.AppendUint(c.num[:0], v, 10)
	c.ctx.Response.Header.SetCanonical(name, c.num)
}
