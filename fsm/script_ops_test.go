package fsm

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// ops parses a line of ops.
func (s *script) ops(n *scriptNode, line string) (ops []Op) {
	for part := range strings.SplitSeq(line, "|") {
		if part = strings.TrimSpace(part); part != "" {
			ops = append(ops, s.op(n, strings.Fields(part)))
		}
	}
	return ops
}

func (s *script) op(n *scriptNode, words []string) Op {
	o := s.options(words[1:])
	switch words[0] {
	case "void":
		return markedOp{s.op(n, words[1:]), FlagVoid}
	case "tx":
		op := &Tx{}
		for part := range strings.SplitSeq(strings.Join(words[1:], " "), "&") {
			if part = strings.TrimSpace(part); part != "" {
				op.Ops = append(op.Ops, s.op(n, strings.Fields(part)))
			}
		}
		return op
	case "keyed":
		op := &Keyed{Key: words[1], Op: s.op(n, words[3:])}
		copy(op.Digest[:], words[2])
		return op
	case "alarm":
		return &Alarm{uint8(s.num(words[1]))}
	case "answered":
		return markedOp{s.op(n, words[1:]), FlagAnswered}
	case "enqueue":
		op := &Enqueue{First: n.counter + 1, Atomic: o.is("atomic")}
		if first := o.get("first", ""); first != "" {
			op.First = uint64(s.num(first))
		}
		for _, body := range o.rest[1:] {
			n.counter++
			j := NewJob{
				Queue: o.rest[0], Body: []byte(body), Priority: uint8(s.num(o.get("priority", "4"))), AtMostOnce: o.is("amo"),
				DelayMs: s.ms(o.get("delay", "0")), AtMs: s.ms(o.get("at", "0")), LeaseMs: s.ms(o.get("lease", "0")),
				TTLMs: s.ms(o.get("ttl", "0")), MaxFailures: int32(s.num(o.get("failures", "0"))),
				DedupID: o.get("dedup", ""), DedupTTLMs: s.ms(o.get("window", "0")), UniqueKey: o.get("unique", ""), Group: o.get("group", ""),
				MaxLen: s.num(o.get("maxlen", "0")),
			}
			if h := o.get("header", ""); h != "" {
				name, value, _ := strings.Cut(h, ":")
				j.Headers = []Header{{name, value}}
			}
			op.Jobs = append(op.Jobs, j)
		}
		if many := s.num(o.get("many", "0")); many > 0 {
			one := op.Jobs[0]
			op.Jobs = slices.Repeat([]NewJob{one}, int(many))
			n.counter += uint64(many) - 1
		}
		return op
	case "dequeue":
		n.req++
		op := &Dequeue{
			Request: n.req, Max: int32(s.num(o.get("max", "1"))), LeaseMs: s.ms(o.get("lease", "0")),
			WaitMs: s.ms(o.get("wait", "0")), Consumer: o.get("consumer", ""), AttemptID: o.get("attempt", ""),
		}
		if len(o.rest) > 0 {
			op.Queues = strings.Split(o.rest[0], ",")
		}
		if r := o.get("request", ""); r != "" {
			op.Request = uint64(s.num(r))
		}
		return op
	case "ack":
		return &Ack{s.items(o)}
	case "nack":
		return &Nack{s.items(o)}
	case "release":
		return &Release{s.items(o)}
	case "extend":
		return &Extend{s.items(o)}
	case "giveback":
		return &GiveBack{s.items(o)}
	case "withdraw":
		op := &Withdraw{}
		for _, r := range o.rest {
			op.Requests = append(op.Requests, uint64(s.num(r[1:])))
		}
		return op
	case "delete":
		return &DeleteQueue{o.rest[0], o.is("force")}
	case "back":
		return &NodeBack{}
	case "away":
		return &NodeAway{s.nodes[o.rest[0]].id, s.nodes[o.rest[0]].epoch}
	case "nodestart":
		return &NodeStart{}
	}
	return s.lifeOp(words[0], o)
}

func (s *script) items(o options) (items []Item) {
	for _, name := range o.rest {
		byID := strings.HasSuffix(name, "!")
		wrong := strings.HasSuffix(name, "~")
		name, grant, exact := strings.Cut(strings.TrimRight(name, "!~"), "#")
		list := s.jobs[name]
		if len(list) == 0 {
			items = append(items, Item{Key: Key{99, 99}, DelayMs: -1})
			continue
		}
		r := list[len(list)-1]
		if exact {
			r = list[slices.IndexFunc(list, func(r Receipt) bool { return int64(r.Grant) == s.num(grant) })]
		}
		it := r.Item()
		it.ByID = byID
		if wrong {
			it.Tag++
		}
		if d := o.get("delay", ""); d != "" {
			it.DelayMs = s.ms(d)
		}
		it.LeaseMs = s.ms(o.get("lease", "0"))
		it.Error = o.get("error", "")
		items = append(items, it)
	}
	return items
}

// options are the name=value words and flags of a command.
type options struct {
	values map[string]string
	rest   []string
}

var flagWords = []string{"amo", "atomic", "force", "in", "out", "desc", "create", "put"}

func (s *script) options(words []string) options {
	o := options{values: map[string]string{}}
	for _, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok {
			o.values[name] = value
		} else if slices.Contains(flagWords, w) {
			o.values[w] = "yes"
		} else {
			o.rest = append(o.rest, w)
		}
	}
	return o
}

func (o options) is(name string) bool { return o.values[name] != "" }

func (o options) get(name, otherwise string) string {
	if v, ok := o.values[name]; ok {
		return v
	}
	return otherwise
}

func (s *script) num(text string) int64 {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	return n
}

func (s *script) ms(text string) int64 {
	d, err := time.ParseDuration(strings.TrimPrefix(text, "+"))
	if err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	return d.Milliseconds()
}
