package httpapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"raftq/fsm"
)

// forwardsMax bounds the connections to a leader.
const forwardsMax = 512

func newForwarder() *fasthttp.Client {
	return &fasthttp.Client{
		NoDefaultUserAgentHeader: true,
		MaxConnsPerHost:          forwardsMax,
		MaxIdleConnDuration:      10 * time.Second,
		// A write is sent once: whether it took effect is not known afterwards.
		MaxIdemponentCallAttempts: 1,
		RetryIfErr:                func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
		DisablePathNormalizing:    true,
		// What the leader has handed out must not be thrown away here: no limit
		// below what it may answer. A job's headers are header fields of raw bytes.
		ReadBufferSize: 64 << 10,
		Dial: func(addr string) (net.Conn, error) {
			return net.DialTimeout("tcp", addr, dialTimeout)
		},
	}
}

// forward passes a fast write on to the leader, which alone can answer before
// commit, and passes its answer back; false when this node answers itself. A dequeue
// decides when its body is read.
func (c *call) forward() (bool, error) {
	if !c.opts.fast || !c.route.traits.has(mayBeFast) || c.route.traits.has(givesJobs) {
		return false, nil
	}
	return c.forwardNow(c.timeout(), false)
}

// wasForwarded tells whether another node has passed the request on.
func (c *call) wasForwarded() bool {
	return len(c.ctx.Request.Header.PeekCanonical(fieldForwarded)) > 0
}

// forwardNow passes the request on, unless this node leads, knows no leader, or the
// request was passed on already. limit is how long the leader may take. With mayWait an answer that nothing was found or done, 204 or
// 503, is not passed back: this node goes on itself.
func (c *call) forwardNow(limit time.Duration, mayWait bool) (bool, error) {
	if c.wasForwarded() {
		return false, nil
	}
	leader := c.s.replica.LeaderClient()
	if leader == "" {
		return false, nil
	}
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	c.ctx.Request.CopyTo(req)
	req.Header.SetCanonical(fieldForwarded, c.s.nameField)
	if c.opts.fast {
		req.Header.SetCanonical(fieldConsistency, []byte("fast")) // it may be this node's default alone
	}
	req.Header.Del("Connection")
	req.SetHost(leader)
	err := c.s.forwarder.DoTimeout(req, res, limit+forwardGrace)
	var dial *net.OpError
	switch {
	case errors.Is(err, fasthttp.ErrNoFreeConns), errors.As(err, &dial) && dial.Op == "dial", err != nil && seeded == "forwarded-again":
		return false, nil // nothing was sent: answer it here
	case err != nil:
		return true, &fsm.Error{Code: fsm.CodeCommitTimeout, Unknown: true, Detail: "the leader gave no answer to the forwarded request: " + err.Error()}
	}
	if s := res.StatusCode(); mayWait && (s == 204 || s == 503) {
		return false, nil
	}
	if c.conn != nil {
		if items := receiptsOf(res); len(items) > 0 {
			c.conn.Leave(items)
		}
	}
	res.Header.Del("Connection")
	res.CopyTo(&c.ctx.Response)
	c.forwarded = true
	return true, nil
}

const (
	forwardGrace = 2 * time.Second
	dialTimeout  = time.Second
)

// receiptsOf finds the receipts in a dequeue's answer, whatever its form, so
// that they are given back when this node's client is gone.
func receiptsOf(res *fasthttp.Response) (items []fsm.Item) {
	if res.StatusCode() >= 300 {
		return nil
	}
	if r, ok := fsm.ParseReceipt(res.Header.Peek("Raftq-Receipt")); ok {
		return append(items, r.Item())
	}
	body := res.Body()
	if mediaType(res.Header.ContentType()) != string(typeFrames) {
		return appendReceipts(nil, body)
	}
	for len(body) >= 4 {
		n := int(binary.BigEndian.Uint32(body))
		if len(body) < 8+n {
			break
		}
		items = appendReceipts(items, body[4:4+n])
		body = body[4+n:]
		body = body[min(len(body), 4+int(binary.BigEndian.Uint32(body))):]
	}
	return items
}

// appendReceipts finds "receipt" members. A quote inside a string is escaped, so
// a body cannot look like one.
func appendReceipts(items []fsm.Item, b []byte) []fsm.Item {
	member := []byte(`"receipt":"`)
	for {
		i := bytes.Index(b, member)
		if i < 0 {
			return items
		}
		escaped := i > 0 && b[i-1] == '\\'
		b = b[i+len(member):]
		if end := bytes.IndexByte(b, '"'); end > 0 && !escaped {
			if r, ok := fsm.ParseReceipt(b[:end]); ok {
				items = append(items, r.Item())
			}
		}
	}
}
