package httpapi

import (
	"encoding/base64"

	"raftq/fsm"
)

// jobList is the jobs of one request while they are read, or its messages: these
// are jobs that have nothing but a body and headers.
type jobList struct {
	s         *Server
	allowed   optionSet // of an envelope
	what      string    // "jobs" or "messages", for refusals
	queue     string    // or topic
	named     string    // what each envelope, which has an op then, calls its queue or topic
	body      []byte    // owned: the jobs keep slices of it
	jobs      []fsm.NewJob
	bytes     int
	replicate int // the highest of all
}

func (c *call) newList(allowed optionSet, what, into string) jobList {
	return jobList{s: c.s, allowed: allowed, what: what, queue: into, body: append([]byte(nil), c.ctx.Request.Body()...)}
}

// read reads the request; single tells that it is one envelope.
func (l *jobList) read(contentType []byte) (single bool, err error) {
	switch mediaType(contentType) {
	case string(typeFrames):
		return false, l.readFrames()
	case string(typeNDJSON):
		return false, l.readLines()
	}
	return l.readJSON()
}

// readJSON reads one envelope or an array.
func (l *jobList) readJSON() (single bool, err error) {
	r := jsonReader{b: l.body}
	switch r.peek() {
	case '{':
		if err := l.envelope(&r); err != nil {
			return true, err
		}
		return true, r.end()
	case '[':
		err := r.elements(func(n int) error {
			if err := l.envelope(&r); err != nil {
				return asProblem(err).at(l.what, n)
			}
			return nil
		})
		if err != nil {
			return false, err
		}
		return false, r.end()
	}
	return false, r.fail(`want an envelope such as {"body":"…"} or an array of them`)
}

// readLines reads NDJSON; empty lines are skipped.
func (l *jobList) readLines() error {
	r := jsonReader{b: l.body}
	for n := 0; r.peek() != 0; n++ {
		if err := l.envelope(&r); err != nil {
			return asProblem(err).at(l.what, n)
		}
		if c := r.lineEnd(); c != 0 && c != '\n' {
			return r.fail("want one envelope a line")
		}
	}
	return r.end()
}

// lineEnd skips blanks of a line and returns what stops it, 0 at the end.
func (r *jsonReader) lineEnd() byte {
	for ; r.i < len(r.b); r.i++ {
		if c := r.b[r.i]; c != ' ' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

// envelope reads one job.
func (l *jobList) envelope(r *jsonReader) error {
	var o options
	bodies, ops := 0, 0
	err := r.members(func(name []byte) error {
		switch string(name) {
		case "body", "body_base64", "json":
			bodies++
			return l.envelopeBody(r, string(name), &o.job)
		}
		v, err := r.value()
		switch {
		case err != nil:
			return err
		case l.named != "" && string(name) == "op":
			if ops++; ops > 1 {
				return invalid("op", "given twice")
			}
			return nil
		case l.named != "" && string(name) == l.named:
			if l.queue != "" {
				return invalid(l.named, "given twice")
			}
			b, err := v.text(l.named)
			if err == nil {
				l.queue, err = nameOf(l.named, l.named, b)
			}
			return err
		}
		return o.set(name, v, l.allowed)
	})
	if err != nil {
		return err
	}
	if l.named != "" && l.queue == "" {
		return invalid(l.named, "name it")
	}
	if bodies != 1 {
		return invalid("body", "an envelope has exactly one of body, body_base64 and json")
	}
	return l.add(&o)
}

func (l *jobList) envelopeBody(r *jsonReader, name string, job *fsm.NewJob) (err error) {
	if name == "json" {
		job.Body, err = r.raw()
		return err
	}
	if r.peek() != '"' {
		return invalid(name, "want a string")
	}
	text, err := r.str()
	if err != nil || name == "body" {
		job.Body = text
		return err
	}
	job.Body = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(job.Body, text)
	if err != nil {
		return invalid(name, "not standard base64 with padding")
	}
	job.Body = job.Body[:n]
	return nil
}

// add checks a job and the batch's limits.
func (l *jobList) add(o *options) error {
	if err := o.finishJob(); err != nil {
		return err
	}
	if err := l.s.checkBody(len(o.job.Body)); err != nil {
		return err
	}
	if len(l.jobs) == fsm.BatchItemsMax {
		return invalid(l.what, "at most %d %s in a request", fsm.BatchItemsMax, l.what)
	}
	if l.bytes += len(o.job.Body); l.bytes > fsm.BatchBytesMax && len(l.jobs) > 0 {
		return refuse(fsm.CodeBodyTooLarge, "the bodies of a request with several %s have at most %d bytes together", l.what, fsm.BatchBytesMax)
	}
	l.replicate = max(l.replicate, o.replicate)
	o.job.Queue = l.queue
	l.jobs = append(l.jobs, o.job)
	return nil
}
