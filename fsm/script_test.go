package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the scripts' outputs into testdata")

// TestScripts proves the rules of the machine, one topic a file. A file is a
// list of commands, each with what it printed after "----". Lines of several
// ops, separated by " | ", are one entry. After each command the machine must
// pass Check, and what its encoded state restores must have the same bytes.
//
//	time +5s            the clock of later entries
//	tick                an empty batch of the leader
//	start n1 boot=2     node start; n1 and n2 are started at first use
//	[n2:] OP            an entry of a node, n1 if not said
//	  enqueue Q BODY…   delay at lease ttl priority failures amo atomic header first
//	  dequeue Q,Q       max lease wait consumer
//	  ack JOB…          JOB is a body: by its last receipt; a#2 by that of grant 2,
//	  nack JOB…         a! by id, a~ by a receipt with another tag
//	  release, extend, giveback
//	  withdraw r1…      requests are counted per node
//	  delete Q [force]
//	  back
//	  void OP           the op is marked as void
//	away n1             an entry of the leader
//	raw n1 epoch= number= OP…   an entry with another header
//	queue Q, queues, job JOB, totals, due, sessions, parked n1, handed n1, chain, fate n1
//	limits timers= tombs=, restore, copy
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t)
	var out strings.Builder
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if line == "" || strings.HasPrefix(line, "#") {
			out.WriteString(line + "\n")
			continue
		}
		var want []string
		if i+1 < len(lines) && lines[i+1] == "----" {
			for i += 2; i < len(lines) && lines[i] != ""; i++ {
				want = append(want, lines[i])
			}
			i--
		}
		s.at = fmt.Sprintf("%s: %s", file, line)
		got := strings.TrimRight(s.command(line), "\n")
		if !*rewrite && got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", s.at, got, strings.Join(want, "\n"))
		}
		out.WriteString(line + "\n")
		if got != "" {
			out.WriteString("----\n" + got + "\n")
		}
		s.check()
	}
	if *rewrite {
		text := strings.TrimRight(out.String(), "\n") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

type script struct {
	t     *testing.T
	at    string
	m     *Machine
	now   int64
	nodes map[string]*scriptNode
	jobs  map[string][]Receipt // by body: all receipts; the first has grant 0
	names map[Key]string
}

type scriptNode struct {
	name                            string
	id, epoch, number, counter, req uint64
}

func newScript(t *testing.T) *script {
	s := &script{t: t, nodes: map[string]*scriptNode{}, jobs: map[string][]Receipt{}, names: map[Key]string{}}
	var members []Member
	for i := range uint64(4) {
		n := &scriptNode{name: "n" + strconv.Itoa(int(i)+1), id: (i + 1) << 32}
		s.nodes[n.name] = n
		if i < 3 { // n4 is no member
			members = append(members, Member{ID: n.id, Name: n.name})
		}
	}
	s.m = New(members)
	return s
}

func (s *script) check() {
	if err := s.m.Check(); err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	r := s.restored()
	if r.Hash() != s.m.Hash() || r.Bytes() != s.m.Bytes() {
		s.t.Fatalf("%s: restored differs", s.at)
	}
}

func (s *script) restored() *Machine {
	var b bytes.Buffer
	if err := s.m.Encode(&b); err != nil {
		s.t.Fatal(err)
	}
	r, err := Decode(&b)
	if err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	if err := r.Check(); err != nil {
		s.t.Fatalf("%s: restored: %v", s.at, err)
	}
	r.timersMax, r.tombsMax = s.m.timersMax, s.m.tombsMax
	return r
}

// command runs a line and returns what it prints.
func (s *script) command(line string) string {
	words := strings.Fields(line)
	args := words[1:]
	switch words[0] {
	case "time":
		s.now += s.ms(args[0])
		return ""
	case "tick":
		return s.entry(BatchHeader{}, nil)
	case "empty":
		return s.entry(BatchHeader{Number: ^uint64(0)}, nil)
	case "away":
		n := s.nodes[args[0]]
		return s.entry(BatchHeader{}, []Op{&NodeAway{n.id, n.epoch}})
	case "start":
		n := s.nodes[args[0]]
		o := s.options(args[1:])
		epoch := uint64(s.num(o.get("boot", "1")))<<32 | uint64(s.num(o.get("random", strconv.FormatUint(n.id>>32+6, 10))))
		h := BatchHeader{Origin: n.id, Epoch: epoch}
		out := s.entry(h, []Op{&NodeStart{Client: n.name + ":8080", Peer: "http://" + n.name, Version: "v1"}})
		if got, ok := s.m.Session(n.id); ok && got.Epoch == epoch && got.LastBatch == 0 && n.epoch != epoch {
			n.epoch, n.number, n.counter, n.req = epoch, 0, 0, 0
		}
		return out
	case "raw":
		n := s.nodes[args[0]]
		o := s.options(args[1:])
		h := BatchHeader{Origin: n.id, Epoch: uint64(s.num(o.get("epoch", "4294967303"))), Number: uint64(s.num(o.get("number", "0")))}
		if o.get("origin", "") == "0" {
			h.Origin = 0
		}
		return s.entry(h, s.ops(n, strings.Join(o.rest, " ")))
	case "queue":
		q, ok := s.m.Queue(args[0])
		if !ok {
			return "none"
		}
		return showQueue(q)
	case "queues":
		var out []string
		o := s.options(args)
		for _, q := range s.m.Queues(o.get("prefix", ""), o.get("cursor", ""), int(s.num(o.get("limit", "100")))) {
			out = append(out, showQueue(q))
		}
		return strings.Join(out, "\n")
	case "totals":
		return showQueue(s.m.Totals())
	case "job":
		return s.showJob(args[0])
	case "due":
		ms, ok := s.m.NextDue()
		return fmt.Sprintf("%s %v, now %s", show(ms), ok, show(s.m.Position().TimeMs))
	case "sessions":
		var out []string
		for _, e := range s.m.Sessions() {
			out = append(out, fmt.Sprintf("n%d epoch %x last %d away %v waiters %d client %s", e.Node>>32, e.Epoch, e.LastBatch, e.Away, e.Waiters, e.Start.Client))
		}
		return strings.Join(out, "\n")
	case "parked":
		n := s.nodes[args[0]]
		return fmt.Sprint(s.m.Parked(n.id, n.epoch))
	case "handed":
		n := s.nodes[args[0]]
		var requests []uint64
		for r := range n.req {
			requests = append(requests, r+1)
		}
		return s.handouts(n.name, s.m.HandedTo(n.epoch, requests))
	case "fate":
		n := s.nodes[args[0]]
		last, ok := s.m.Fate(n.id, uint64(s.num(args[1])))
		return fmt.Sprint(last, " ", ok)
	case "used":
		return fmt.Sprint(s.m.EpochUsed(uint64(s.num(args[0]))))
	case "chain":
		return fmt.Sprintf("index %d chain %016x", s.m.Position().Index, s.m.Chain())
	case "limits":
		o := s.options(args)
		s.m.timersMax = int(s.num(o.get("timers", "10000")))
		s.m.tombsMax = int(s.num(o.get("tombs", "100000")))
		return ""
	case "restore":
		s.m = s.restored()
		return ""
	case "copy":
		s.m = s.m.Copy()
		return ""
	}
	n := s.nodes["n1"]
	if name, ok := strings.CutSuffix(words[0], ":"); ok {
		n = s.nodes[name]
		line = strings.Join(args, " ")
	}
	if n.epoch == 0 {
		s.command("start " + n.name)
	}
	n.number++
	return s.entry(BatchHeader{Origin: n.id, Epoch: n.epoch, Number: n.number}, s.ops(n, line))
}

// entry applies a batch to the machine, as its origin sees it, and prints what
// came of it for every node.
func (s *script) entry(h BatchHeader, ops []Op) string {
	h.TimeMs = s.now
	var data []byte
	if h.Number != ^uint64(0) {
		data = AppendBatchHeader(nil, h)
		for _, op := range ops {
			flags := byte(0)
			if v, ok := op.(voidOp); ok {
				op, flags = v.Op, FlagVoid
			}
			at := len(data)
			data = AppendOp(data, op)
			data[at+1] = flags
		}
	}
	var out strings.Builder
	var first *Machine
	names := []string{"n1", "n2", "n3", "n4"}
	// The origin first: its results name the new jobs.
	slices.SortStableFunc(names, func(a, b string) int {
		if s.nodes[a].id == h.Origin {
			return -1
		} else if s.nodes[b].id == h.Origin {
			return 1
		}
		return 0
	})
	for _, name := range names {
		n := s.nodes[name]
		m := s.m.Copy()
		if name == "n3" {
			m = s.restored() // as a node that was started from a snapshot
		}
		epoch := n.epoch
		if n.id == h.Origin {
			epoch = h.Epoch
		}
		a, err := m.Apply(m.Position().Index+1, 1, data, Self{n.id, epoch})
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		if first == nil {
			first = m
			if a.Fired > 0 {
				fmt.Fprintf(&out, "fired %d\n", a.Fired)
			}
			if !a.Effect && len(data) > 0 {
				out.WriteString("no effect\n")
			}
			if a.Position.TimeMs != s.now && len(data) > 0 {
				fmt.Fprintf(&out, "time held at %s\n", show(a.Position.TimeMs))
			}
		} else if m.Chain() != first.Chain() || m.Hash() != first.Hash() {
			s.t.Fatalf("%s: nodes differ", s.at)
		}
		for i, r := range a.Results {
			out.WriteString(s.result(ops[i], r))
		}
		out.WriteString(s.handouts(name, a.Handouts))
	}
	s.m = first
	return out.String()
}

type voidOp struct{ Op }

func (s *script) result(op Op, r Result) string {
	if v, ok := op.(voidOp); ok {
		op = v.Op
	}
	var b strings.Builder
	b.WriteString(strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", op), "*fsm.")))
	if d, ok := op.(*Dequeue); ok {
		fmt.Fprintf(&b, " r%d", d.Request)
	}
	b.WriteByte(':')
	if r.Code != CodeOK {
		fmt.Fprintf(&b, " %v", r.Code)
	}
	if r.Parked {
		b.WriteString(" parked")
	}
	if r.Count > 0 {
		fmt.Fprintf(&b, " %d jobs", r.Count)
	}
	for i, it := range r.Items {
		if e, ok := op.(*Enqueue); ok {
			name := string(e.Jobs[i].Body)
			if it.Code == CodeOK {
				s.names[it.ID.Key] = name
				s.jobs[name] = []Receipt{{ID: it.ID}}
			}
		}
		fmt.Fprintf(&b, " %s=%v", s.names[it.ID.Key], it.Code)
		if it.Late {
			b.WriteString(",late")
		}
		if it.Already {
			b.WriteString(",already")
		}
		if it.Dead {
			b.WriteString(",dead")
		}
		if it.LeaseUntil != 0 {
			b.WriteString(",until " + show(it.LeaseUntil))
		}
	}
	b.WriteString(s.delivered(r.Jobs))
	return b.String() + "\n"
}

func (s *script) delivered(jobs []Delivered) string {
	var b strings.Builder
	for _, d := range jobs {
		s.jobs[d.Body] = append(s.jobs[d.Body], d.Receipt())
		fmt.Fprintf(&b, " %s#%d(%s until %s", d.Body, d.Grant, d.Queue, show(d.LeaseUntil))
		if d.Deliveries != d.Grant {
			fmt.Fprintf(&b, " deliveries %d", d.Deliveries)
		}
		if d.Failures > 0 {
			fmt.Fprintf(&b, " failures %d", d.Failures)
		}
		if d.LastError != "" {
			fmt.Fprintf(&b, " error %q", d.LastError)
		}
		if len(d.Headers) > 0 {
			fmt.Fprintf(&b, " headers %v", d.Headers)
		}
		if d.Fence != s.m.Position().Index+1 && d.Fence != s.m.Position().Index {
			fmt.Fprintf(&b, " fence %d", d.Fence)
		}
		b.WriteByte(')')
	}
	return b.String()
}

func (s *script) handouts(node string, all []Handout) string {
	var b strings.Builder
	for _, h := range all {
		fmt.Fprintf(&b, "%s r%d:%s\n", node, h.Request, s.delivered(h.Result.Jobs))
	}
	return b.String()
}

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
		return voidOp{s.op(n, words[1:])}
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
			WaitMs: s.ms(o.get("wait", "0")), Consumer: o.get("consumer", ""),
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
	s.t.Fatalf("%s: unknown op %q", s.at, words[0])
	return nil
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

var flagWords = []string{"amo", "atomic", "force"}

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

func show(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func showQueue(q QueueInfo) string {
	return fmt.Sprintf("%s ready %d delayed %d leased %d held %d dead %d waiters %d oldest %s; enqueued %d delivered %d acked %d failed %d expired %d dead %d",
		q.Queue, q.Ready, q.Delayed, q.Leased, q.Held, q.Dead, q.Waiters, show(q.OldestReadyMs),
		q.Enqueued, q.Delivered, q.Acked, q.Failed, q.Expired, q.DeadTotal)
}

func (s *script) showJob(name string) string {
	list := s.jobs[name]
	if len(list) == 0 {
		return "never made"
	}
	j, code := s.m.Job(list[0].ID.Key)
	if code != CodeOK {
		return code.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s in %s priority %d deliveries %d failures %d last %d", j.ID, j.State, j.Queue, j.Priority, j.Deliveries, j.Failures, j.LastIndex)
	for _, f := range []struct {
		name string
		ms   int64
	}{{"deliver", j.DeliverMs}, {"lease until", j.LeaseUntil}, {"expires", j.ExpiresMs}} {
		if f.ms != 0 {
			fmt.Fprintf(&b, " %s %s", f.name, show(f.ms))
		}
	}
	for _, f := range [][2]string{{"consumer", j.Consumer}, {"error", j.LastError}, {"reason", j.DeadReason}} {
		if f[1] != "" {
			fmt.Fprintf(&b, " %s %s", f[0], f[1])
		}
	}
	if j.Grant != 0 {
		fmt.Fprintf(&b, " grant %d fence %d", j.Grant, j.Fence)
	}
	if j.AtMostOnce {
		b.WriteString(" at most once")
	}
	return b.String()
}
