package httpapi

import (
	"strconv"

	"raftq/fsm"
)

// configFields are a configuration's fields by their options.
var configFields = []struct {
	opt   option
	field fsm.ConfigFields
}{
	{optLease, fsm.FieldLease}, {optTTL, fsm.FieldTTL}, {optDelay, fsm.FieldDelay}, {optMaxFailures, fsm.FieldMaxFailures},
	{optDeadLetter, fsm.FieldDeadLetter}, {optDeadTTL, fsm.FieldDeadTTL}, {optBackoff, fsm.FieldBackoff}, {optMaxLen, fsm.FieldMaxLen},
	{optMaxBytes, fsm.FieldMaxBytes}, {optOverflow, fsm.FieldOverflow}, {optAging, fsm.FieldAging}, {optGroupLimit, fsm.FieldGroupLimit},
	{optFair, fsm.FieldFair}, {optConsistency, fsm.FieldConsistency},
}

func (c *call) putQueue() error   { return c.configure(true) }
func (c *call) patchQueue() error { return c.configure(false) }

// configure sets the path's queue's configuration: whole, what is not named being
// its default, or only what is named.
func (c *call) configure(whole bool) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	op := &fsm.Configure{Queue: queue, Fields: fsm.AllFields}
	named, err := c.readConfig(op)
	switch {
	case err != nil:
		return err
	case op.Config.DeadLetter == queue:
		return invalid("dead_letter", "names the queue itself; unset, dead jobs stay in it")
	case !whole && named == 0:
		return refuse(fsm.CodeInvalidRequest, "name at least one field; the body is an object such as {\"max_len\":1000}")
	case !whole:
		op.Fields = named
	}
	if err := op.Config.Validate(); err != nil {
		return err
	}
	if op.IfMatch, op.Create, err = c.readMatch(); err != nil {
		return err
	}
	res, err := c.submit(op, c.timeout(), nil)
	if err != nil {
		return err
	}
	return c.configured(&res, op.Create, "queue", queue)
}

// configured answers a new configuration of a queue or topic; create: it must have
// been the first.
func (c *call) configured(res *fsm.Result, create bool, what, name string) error {
	switch {
	case res.Code == fsm.CodeETagMismatch && create:
		return refuse(res.Code, "%s %q has been configured", what, name)
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "%s %q", what, name)
	}
	c.setETag(res.Version)
	b := append(append(append(c.out[:0], `{"`...), what...), `":`...)
	b = appendMember(appendString(b, name), "version", res.Version)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

// configObject reads the request's body, an object of a configuration. null is a
// field's default.
func (c *call) configObject(allowed optionSet) (o options, err error) {
	r := jsonReader{b: c.ctx.Request.Body()}
	err = r.members(func(name []byte) error {
		v, err := r.value()
		if err != nil {
			return err
		}
		if opt := allowed.find(name); v.kind == isNull && opt != optNone {
			if o.given.has(opt) {
				return invalid(opt.String(), "given twice")
			}
			o.given |= setOf(opt)
			return nil
		}
		return o.set(name, v, allowed)
	})
	if err == nil {
		err = r.end()
	}
	return o, err
}

// readConfig reads the request's body into op's configuration and tells which
// fields it names.
func (c *call) readConfig(op *fsm.Configure) (named fsm.ConfigFields, err error) {
	o, err := c.configObject(configOptions)
	if err != nil {
		return 0, err
	}
	op.Config = o.config
	op.Config.LeaseMs, op.Config.TTLMs, op.Config.DelayMs = o.leaseMs, o.job.TTLMs, o.job.DelayMs
	op.Config.MaxFailures, op.Config.MaxLen = o.job.MaxFailures, o.maxLen
	op.Config.Consistency = o.consistency
	for _, f := range configFields {
		if o.given.has(f.opt) {
			named |= f.field
		}
	}
	return named, nil
}

// readMatch reads If-Match and If-None-Match. What was never configured, or never
// made, has the ETag "0".
func (c *call) readMatch() (match uint64, create bool, err error) {
	h := &c.ctx.Request.Header
	if v := h.PeekCanonical(fieldIfNoneMatch); len(v) > 0 {
		if string(v) != "*" {
			return 0, false, invalid("If-None-Match", "only * is known here: there must be none yet")
		}
		create = true
	}
	v := h.PeekCanonical(fieldIfMatch)
	if len(v) == 0 {
		return 0, create, nil
	}
	ok := false
	if len(v) > 2 && v[0] == '"' && v[len(v)-1] == '"' {
		match, ok = parseUint(v[1 : len(v)-1])
	}
	switch {
	case !ok:
		return 0, false, invalid("If-Match", "want the ETag of one earlier answer, such as \"812\"")
	case match == 0:
		return 0, true, nil
	case create:
		return 0, false, invalid("If-Match", "contradicts If-None-Match")
	}
	return match, false, nil
}

func (c *call) setETag(version uint64) {
	c.num = append(strconv.AppendUint(append(c.num[:0], '"'), version, 10), '"')
	c.ctx.Response.Header.SetCanonical(fieldETag, c.num)
}

// appendConfig appends a configuration as it holds: with the defaults of what was
// not said. What has no default is null. All of it may be sent back.
func appendConfig(b []byte, q *fsm.QueueConfig) []byte {
	ms := func(name string, v, def int64) {
		if v == 0 {
			v = def
		}
		b = append(append(append(b, '"'), name...), '"', ':')
		if v == 0 {
			b = append(b, "null,"...)
			return
		}
		b = append(append(append(b, '"'), formatDuration(v)...), '"', ',')
	}
	whole := func(name string, v int64) {
		b = append(append(append(b, '"'), name...), '"', ':')
		b = append(strconv.AppendInt(b, v, 10), ',')
	}
	text := func(name, v string) {
		b = append(append(append(b, '"'), name...), '"', ':')
		if v == "" {
			b = append(b, "null,"...)
			return
		}
		b = append(appendString(b, v), ',')
	}
	b = append(b, '{')
	ms("lease", q.LeaseMs, fsm.LeaseDefault)
	ms("ttl", q.TTLMs, 0)
	ms("delay", q.DelayMs, 0)
	switch q.MaxFailures {
	case 0:
		whole("max_failures", fsm.MaxFailuresDefault)
	case -1:
		whole("max_failures", 0)
	default:
		whole("max_failures", int64(q.MaxFailures))
	}
	text("dead_letter", q.DeadLetter)
	ms("dead_ttl", q.DeadTTLMs, fsm.DeadTTLMs)
	if q.BackoffMaxMs == 0 {
		b = append(b, `"backoff":null,`...)
	} else {
		b = append(b, `"backoff":{"min":"`...)
		b = append(append(b, formatDuration(q.BackoffMinMs)...), `","max":"`...)
		b = append(append(b, formatDuration(q.BackoffMaxMs)...), `"},`...)
	}
	whole("max_len", q.MaxLen)
	whole("max_bytes", q.MaxBytes)
	text("overflow", optionFacts[optOverflow].words[q.Overflow])
	ms("aging", q.AgingMs, 0)
	whole("group_limit", max(1, int64(q.GroupLimit)))
	b = strconv.AppendBool(append(b, `"fair":`...), q.Fair)
	b = append(b, ',')
	switch q.Consistency {
	case fsm.ConsistencyStrong:
		text("consistency", "strong")
	case fsm.ConsistencyFast:
		text("consistency", "fast")
	default:
		text("consistency", "")
	}
	b[len(b)-1] = '}'
	return b
}
