package fsm

import (
	"fmt"
	"strings"
)

// lifeOp parses the ops by which jobs and queues are managed.
func (s *script) lifeOp(word string, o options) Op {
	switch word {
	case "reject":
		return &Reject{s.items(o)}
	case "settle":
		op := &Settle{}
		for _, w := range o.rest {
			name, job, _ := strings.Cut(w, ":")
			verb := map[string]Verb{"ack": VerbAck, "nack": VerbNack, "release": VerbRelease, "reject": VerbReject, "extend": VerbExtend}[name]
			one := o
			one.rest = []string{job}
			op.Items = append(op.Items, SettleItem{verb, s.items(one)[0]})
		}
		return op
	case "requeue":
		return &Requeue{Keys: s.keys(o), From: s.states(o.get("from", "")), Nack: o.is("nack")}
	case "hold":
		return &Hold{Keys: s.keys(o), From: s.states(o.get("from", "")), ForMs: s.ms(o.get("for", "0"))}
	case "cancel":
		return &Cancel{s.keys(o)}
	case "remove":
		return &DeleteJobs{s.keys(o)}
	case "withdrawjob":
		return &WithdrawJobs{s.keys(o)}
	case "purge":
		return &Purge{o.rest[0], s.states(o.rest[1]), uint64(s.num(o.get("upto", "0")))}
	case "redrive":
		return &Redrive{
			Queue: o.rest[0], To: o.get("to", ""), Reason: o.get("reason", ""), Max: int32(s.num(o.get("max", "0"))), UpTo: uint64(s.num(o.get("upto", "0"))),
		}
	case "pause":
		return &Pause{Queue: o.rest[0], In: o.is("in"), Out: o.is("out"), UntilMs: s.ms(o.get("until", "0"))}
	case "configure":
		return s.configureOp(o)
	case "releaseconsumer":
		return &ReleaseConsumer{o.rest[0], uint64(s.num(o.get("upto", "0")))}
	}
	s.t.Fatalf("%s: unknown op %q", s.at, word)
	return nil
}

func (s *script) keys(o options) (keys []Key) {
	for _, name := range o.rest {
		k := Key{99, 99}
		if list := s.jobs[name]; len(list) > 0 {
			k = list[0].ID.Key
		}
		keys = append(keys, k)
	}
	return keys
}

func (s *script) states(text string) (set StateSet) {
	switch text {
	case "all":
		return StateAll
	case "":
		return 0
	}
	for name := range strings.SplitSeq(text, ",") {
		one, ok := ParseState(name)
		if !ok {
			s.t.Fatalf("%s: no state %q", s.at, name)
		}
		set |= one
	}
	return set
}

func (s *script) configureOp(o options) *Configure {
	op := &Configure{Queue: o.rest[0], Create: o.is("create"), IfMatch: uint64(s.num(o.get("match", "0")))}
	c := &op.Config
	for _, f := range []struct {
		name  string
		field ConfigFields
		set   func(text string)
	}{
		{"lease", FieldLease, func(t string) { c.LeaseMs = s.ms(t) }},
		{"ttl", FieldTTL, func(t string) { c.TTLMs = s.ms(t) }},
		{"delay", FieldDelay, func(t string) { c.DelayMs = s.ms(t) }},
		{"failures", FieldMaxFailures, func(t string) { c.MaxFailures = int32(s.num(t)) }},
		{"deadletter", FieldDeadLetter, func(t string) { c.DeadLetter = t }},
		{"deadttl", FieldDeadTTL, func(t string) { c.DeadTTLMs = s.ms(t) }},
		{"backoff", FieldBackoff, func(t string) {
			from, to, _ := strings.Cut(t, "..")
			c.BackoffMinMs, c.BackoffMaxMs = s.ms(from), s.ms(to)
		}},
		{"maxlen", FieldMaxLen, func(t string) { c.MaxLen = s.num(t) }},
		{"maxbytes", FieldMaxBytes, func(t string) { c.MaxBytes = s.num(t) }},
		{"aging", FieldAging, func(t string) { c.AgingMs = s.ms(t) }},
		{"grouplimit", FieldGroupLimit, func(t string) { c.GroupLimit = int32(s.num(t)) }},
		{"fair", FieldFair, func(t string) { c.Fair = t == "yes" }},
		{"overflow", FieldOverflow, func(t string) { c.Overflow = OverflowDropOldest }},
	} {
		if v, ok := o.values[f.name]; ok {
			f.set(v)
			op.Fields |= f.field
		}
	}
	if o.is("put") {
		op.Fields = AllFields
	}
	return op
}

// list goes through a list of jobs, a page a line.
func (s *script) list(what string, o options) string {
	limit := int(s.num(o.get("limit", "100")))
	var b strings.Builder
	page := func(jobs []JobInfo, more bool) {
		for _, j := range jobs {
			name := s.names[j.ID.Key]
			fmt.Fprintf(&b, "%s(%s) ", name, j.State)
		}
		if more {
			b.WriteString("…\n")
		}
	}
	for cursor, key, more := (JobCursor{}), (Key{}), true; more; {
		var jobs []JobInfo
		switch what {
		case "jobs":
			var code Code
			if jobs, cursor, more, code = s.m.QueueJobs(o.rest[0], s.states(o.rest[1]), o.is("desc"), cursor, limit); code != CodeOK {
				return code.String()
			}
		case "all":
			jobs, key, more = s.m.AllJobs(s.states(o.rest[0]), key, limit)
		case "consumer":
			jobs, cursor, more = s.m.ConsumerJobs(o.rest[0], cursor, limit)
		}
		page(jobs, more)
	}
	return strings.TrimSpace(b.String())
}
