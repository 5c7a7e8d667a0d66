package httpapi

import (
	"bytes"
	"strconv"
	"strings"

	"raftq/fsm"
)

// form is how jobs are written.
type form uint8

const (
	formJSON form = iota
	formNDJSON
	formFrames
	formBytes
)

// form reads the Accept header; what it does not know is JSON.
func (c *call) form() form {
	accept := c.ctx.Request.Header.PeekCanonical(fieldAccept)
	switch {
	case len(accept) == 0:
		return formJSON
	case containsFold(accept, typeBytes):
		return formBytes
	case containsFold(accept, typeFrames):
		return formFrames
	case containsFold(accept, typeNDJSON):
		return formNDJSON
	}
	return formJSON
}

// mediaType returns a Content-Type in lower case, without its parameters.
func mediaType(b []byte) string {
	if i := bytes.IndexByte(b, ';'); i >= 0 {
		b = b[:i]
	}
	return strings.ToLower(string(bytes.TrimSpace(b)))
}

// containsFold is bytes.Contains for a part in lower case, whatever the case of b.
func containsFold(b, part []byte) bool {
	for i := 0; i+len(part) <= len(b); i++ {
		if bytes.EqualFold(b[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// answerJobs writes what a dequeue was handed.
func (c *call) answerJobs(f form, jobs []fsm.Delivered) error {
	b := c.out[:0]
	switch f {
	case formBytes:
		return c.answerBytes(&jobs[0])
	case formFrames:
		for i := range jobs {
			b = appendFrame(b, jobs[i].Body, func(b []byte) []byte {
				b = appendFacts(append(b, '{'), &jobs[i])
				return append(b, '}')
			})
		}
		c.out = b
		return c.answer(c.written(200), typeFrames)
	case formNDJSON:
		for i := range jobs {
			b = append(c.appendJob(b, &jobs[i]), '\n')
		}
		c.out = b
		return c.answer(c.written(200), typeNDJSON)
	}
	b = append(b, `{"jobs":[`...)
	for i := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.appendJob(b, &jobs[i])
	}
	c.out = append(c.appendUncommitted(append(b, ']')), "}\n"...)
	return c.answer(c.written(200), typeJSON)
}

func (c *call) appendJob(b []byte, d *fsm.Delivered) []byte {
	b = appendFacts(append(b, '{'), d)
	b = append(b, ',')
	b = appendBody(b, d.Body, c.opts.base64)
	return append(b, '}')
}

// appendFacts appends the members of a hand-out, without its body.
func appendFacts(b []byte, d *fsm.Delivered) []byte {
	b = append(b, `"id":"`...)
	b = d.ID.Append(b)
	b = append(b, `","receipt":"`...)
	b = d.Receipt().Append(b)
	b = append(b, '"')
	return appendCommon(b, d)
}

// appendCommon appends what hand-outs and reads of a job share.
func appendCommon(b []byte, d *fsm.Delivered) []byte {
	b = append(b, `,"queue":`...)
	b = appendString(b, d.Queue)
	b = appendHeaders(b, d.Headers)
	b = appendMember(b, "priority", uint64(d.Priority))
	b = appendText(b, "group", d.Group)
	b = appendMember(b, "deliveries", uint64(d.Deliveries))
	b = appendMember(b, "failures", uint64(d.Failures))
	b = appendTime(append(b, ','), "enqueued_at", d.EnqueuedMs)
	if d.LeaseUntil > 0 {
		b = appendTime(append(b, ','), "lease_until", d.LeaseUntil)
	}
	if d.ExpiresMs > 0 {
		b = appendTime(append(b, ','), "expires_at", d.ExpiresMs)
	}
	if d.Fence > 0 {
		b = appendMember(b, "fence", d.Fence)
	}
	if d.LastError != "" {
		b = append(b, `,"last_error":`...)
		b = appendString(b, d.LastError)
	}
	return b
}

// appendHeaders appends the member of user headers, if there are any.
func appendHeaders(b []byte, headers []fsm.Header) []byte {
	if len(headers) == 0 {
		return b
	}
	b = append(b, `,"headers":{`...)
	for i, h := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, h.Name)
		b = append(b, ':')
		b = appendString(b, h.Value)
	}
	return append(b, '}')
}

var (
	fieldReceipt      = []byte("Raftq-Receipt")
	fieldID           = []byte("Raftq-Id")
	fieldQueue        = []byte("Raftq-Queue")
	fieldDeliveries   = []byte("Raftq-Deliveries")
	fieldFailures     = []byte("Raftq-Failures")
	fieldPriority     = []byte("Raftq-Priority")
	fieldLeaseUntil   = []byte("Raftq-Lease-Until")
	fieldLeaseUntilMs = []byte("Raftq-Lease-Until-Ms")
	fieldFence        = []byte("Raftq-Fence")
	fieldHeader       = []byte("Raftq-Header-")
)

// answerBytes writes one job as its bytes, with its facts as header fields.
// The body is not copied: it is immutable and fasthttp only reads it.
func (c *call) answerBytes(d *fsm.Delivered) error {
	res := &c.ctx.Response
	h := &res.Header
	c.num = d.Receipt().Append(c.num[:0])
	h.SetCanonical(fieldReceipt, c.num)
	h.SetCanonical(fieldID, c.num[:fsm.IDLen])
	c.num = appendField(c.num[:0], d.Queue)
	h.SetCanonical(fieldQueue, c.num)
	c.field(fieldDeliveries, uint64(d.Deliveries))
	c.field(fieldFailures, uint64(d.Failures))
	c.field(fieldPriority, uint64(d.Priority))
	c.num = appendRFC3339(c.num[:0], d.LeaseUntil)
	h.SetCanonical(fieldLeaseUntil, c.num)
	c.num = strconv.AppendInt(c.num[:0], d.LeaseUntil, 10)
	h.SetCanonical(fieldLeaseUntilMs, c.num)
	c.field(fieldFence, d.Fence)
	for _, x := range d.Headers {
		c.num = append(append(c.num[:0], fieldHeader...), x.Name...)
		h.SetCanonical(c.num, stringBytes(x.Value))
	}
	res.SetStatusCode(c.written(200))
	h.SetContentTypeBytes(typeBytes)
	res.SetBodyRaw(stringBytes(d.Body))
	return nil
}
