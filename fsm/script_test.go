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
//	  enqueue Q BODY…   delay at lease ttl priority failures amo atomic header first group
//	                    dedup window unique
//	  dequeue Q,Q       max lease wait consumer attempt
//	  ack JOB…          JOB is a body: by its last receipt; a#2 by that of grant 2,
//	  nack JOB…         a! by id, a~ by a receipt with another tag
//	  release, extend, giveback
//	  withdraw r1…      requests are counted per node
//	  delete Q [force]
//	  back
//	  tx OP & OP…
//	  keyed KEY DIGEST OP
//	  alarm PERCENT
//	  reject JOB…       error
//	  settle VERB:JOB…  error delay lease
//	  requeue JOB…      from=STATES nack=1
//	  hold JOB…         from=STATES for
//	  cancel JOB…, remove, withdrawjob
//	  purge Q STATES    upto
//	  redrive Q         to reason max upto
//	  pause Q [in] [out] until
//	  configure Q       lease ttl delay failures deadletter deadttl backoff=MIN..MAX
//	                    maxlen maxbytes overflow=drop aging grouplimit fair=yes|no
//	                    create match put
//	  releaseconsumer W upto
//	  void OP           the op is marked as void
//	  answered OP       the op is marked as answered
//	away n1             an entry of the leader
//	raw n1 epoch= number= OP…   an entry with another header
//	queue Q, queues, alarms, job JOB, totals, due, sessions, parked n1, handed n1, chain, fate n1
//	jobs Q STATES [desc] limit, all STATES limit, consumer W limit, config Q
//	limits timers= tombs= sweep= scan=, restore, copy
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
	r.timersMax, r.tombsMax, r.sweepMax, r.scanMax = s.m.timersMax, s.m.tombsMax, s.m.sweepMax, s.m.scanMax
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
		out := s.entry(h, []Op{&NodeStart{Client: n.name + ":8080", Peer: "http://" + n.name, Version: "v1", FeatureLevel: FeatureLevel}})
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
		f := QueueFilter{Prefix: o.get("prefix", ""), MinLen: s.num(o.get("min", "0")), MaxLen: s.num(o.get("max", "-1"))}
		list, next := s.m.Queues(f, o.get("cursor", ""), int(s.num(o.get("limit", "100"))))
		for _, q := range list {
			out = append(out, showQueue(q))
		}
		if next != "" {
			out = append(out, "next "+next)
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
	case "alarms":
		return fmt.Sprint(s.m.DiskAlarm())
	case "chain":
		return fmt.Sprintf("index %d chain %016x", s.m.Position().Index, s.m.Chain())
	case "limits":
		o := s.options(args)
		s.m.timersMax = int(s.num(o.get("timers", "10000")))
		s.m.tombsMax = int(s.num(o.get("tombs", "100000")))
		s.m.sweepMax = int(s.num(o.get("sweep", "10000")))
		s.m.scanMax = int(s.num(o.get("scan", "10000")))
		return ""
	case "jobs", "all", "consumer":
		return s.list(words[0], s.options(args))
	case "config":
		q, _ := s.m.Queue(args[0])
		return fmt.Sprintf("version %d %+v", q.Version, q.Config)
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
			if v, ok := op.(markedOp); ok {
				op, flags = v.Op, v.flag
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
		a, err := m.Apply(m.Position().Index+1, 1, data, Self{Origin: n.id, Epoch: epoch})
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
