package bench

import (
	"strconv"
	"strings"
)

// paths are the request lines of a run for one queue, with everything that
// does not change: a request is one of these, then its body.
type paths struct {
	enqueue string // body is the job
	frames  string // body is frames
	dequeue string // one job as bytes, or a batch as frames; waits
	poll    string // the same, does not wait
	stats   string
}

// requestLines are those that belong to no queue.
type requestLines struct {
	ack, nack, extend string
	dequeueMany       string // several queues
	job               string // up to the id
	end               string // after the id
}

// waitTime is how long a dequeue waits for a job. The end of a run waits as
// long at worst.
func waitTime(c *Config) string {
	if c.Workload == WorkWaiters {
		return "5s" // rarely, so that parking again is not the load
	}
	return "2s"
}

// leaseTime outlives any run that is not broken, so that no job comes twice.
const leaseTime = "10m"

func newPaths(queue string, c *Config) paths {
	base := "POST /v1/queues/" + queue
	dequeue := func(wait string) string {
		return base + "/dequeue?lease=" + leaseTime + wait + "&max=" + strconv.Itoa(c.Batch) + "&consistency=" + c.Consistency + fields(acceptOf(c), "")
	}
	return paths{
		enqueue: base + "/enqueue?consistency=" + c.Consistency + fields("", "application/octet-stream"),
		frames:  base + "/jobs?consistency=" + c.Consistency + fields("", framesType),
		dequeue: dequeue("&wait=" + waitTime(c)),
		poll:    dequeue(""),
		stats:   "GET /v1/queues/" + queue + "?consistency=" + c.Consistency + fields("", ""),
	}
}

func newRequestLines(c *Config) requestLines {
	settle := func(verb string) string {
		return "POST /v1/" + verb + "?consistency=" + c.Consistency + fields("", "application/json")
	}
	return requestLines{
		ack: settle("ack"), nack: settle("nack"), extend: settle("extend"),
		dequeueMany: "POST /v1/dequeue?consistency=" + c.Consistency + fields(acceptOf(c), "application/json"),
		job:         "GET /v1/jobs/",
		end:         "?consistency=" + c.Consistency + fields("", ""),
	}
}

// acceptOf asks for what is cheapest to read: a job as its bytes, several as
// frames.
func acceptOf(c *Config) string {
	if c.Batch == 1 {
		return "application/octet-stream"
	}
	return framesType
}

// fields ends a request line and begins its header.
func fields(accept, contentType string) string {
	s := " HTTP/1.1\r\nHost: raftq\r\n"
	if accept != "" {
		s += "Accept: " + accept + "\r\n"
	}
	if contentType != "" {
		s += "Content-Type: " + contentType + "\r\n"
	}
	return s
}

// appendRequest appends a request with a body.
func appendRequest(b []byte, line string, body []byte) []byte {
	return append(appendLength(append(b, line...), len(body)), body...)
}

// appendLength ends the header of a request whose body has n bytes.
func appendLength(b []byte, n int) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n\r\n"...)
}

// appendItems appends the body of an ack, nack or extend, whose length goes in
// front of it: {"items":[{"receipt":"…"},…]}.
func appendItems(b []byte, line string, jobs []held, option string) []byte {
	const open, close = `{"items":[`, `]}`
	const before, after = `{"receipt":"`, `"`
	n := len(open) + len(close) + len(jobs) - 1
	for i := range jobs {
		n += len(before) + int(jobs[i].size) + len(after) + len(option) + 1
	}
	b = append(b, line...)
	b = append(appendLength(b, n), open...)
	for i := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, before...)
		b = append(b, jobs[i].text()...)
		b = append(b, after...)
		b = append(b, option...)
		b = append(b, '}')
	}
	return append(b, close...)
}

// manyBody is the body of a dequeue from several queues.
func manyBody(queues []string, c *Config, wait bool) []byte {
	s := `{"queues":["` + strings.Join(queues, `","`) + `"],"max":` + strconv.Itoa(c.Batch) + `,"lease":"` + leaseTime + `"`
	if wait {
		s += `,"wait":"` + waitTime(c) + `"`
	}
	return []byte(s + "}")
}

// held is a job that a connection has in its hands. It is a plain value: a
// connection keeps a list of them and allocates nothing.
type held struct {
	receipt [118]byte
	size    uint8
	seq     int64
}

func (h *held) text() []byte { return h.receipt[:h.size] }

// id is the job id, which a receipt begins with; tests of the receipt's form
// are the server's.
func (h *held) id() []byte {
	t := h.text()
	for i, c := range t {
		if c == '.' {
			return t[:i]
		}
	}
	return t
}

// set copies a receipt; one that is too long or not plain text is refused.
func (h *held) set(receipt []byte, seq int64) bool {
	if len(receipt) == 0 || len(receipt) > len(h.receipt) {
		return false
	}
	for _, c := range receipt {
		if c <= ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	h.size = uint8(copy(h.receipt[:], receipt))
	h.seq = seq
	return true
}
