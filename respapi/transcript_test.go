package respapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// A transcript is a conversation: commands, and the exact replies.
//
//	> ADDJOB mail hello 0        a command, sent as an array, on connection 1
//	+{a}                         the reply: a status line; {a} is some job's id, from here on "a"
//	2> GETJOB FROM mail          on another connection: its number says to which node
//	*1
//	  *3
//	    $mail
//	    ${a}                     the same id
//	    $hello
//
// Replies are a line each: +status, -error, :integer, $bulk, $-1 (nil), *n with its
// n elements below, *-1. Bulks are quoted when they need it. In an error, "..." at
// the end stands for any text. {int} is any integer, {3..5} one in that range,
// {text} any text; ":{a}" and the like of an unknown lower-case name take what is
// there, later uses must be equal.
//
//	1b>> GETJOB FROM mail        sent, and not waited for; 1b is another connection to node 1
//	1b<                          its reply follows
//	>~ QLEN mail                 again and again until the reply is this one
//	>inline PING                 sent as a line
//	=raw *1\r\n$4\r\nPING\r\n    these bytes
//	.closed 1b                   the server closes the connection
//	.close 1b                    the client does
//	.wait 1b                     until some client waits in GETJOB of the queue: ".blocked mail 1"
//
// Each transcript has queues of its own: "mail" above is written as mail${q} where
// ${q} is replaced by a text that no other run uses.

type transcriptStep struct {
	line   int
	conn   string
	verb   string // ">", ">>", "<", ">~", "inline", "raw", "closed", "close", "blocked"
	args   []string
	raw    string
	expect []string
}

func parseTranscript(t testing.TB, name, text string) (steps []transcriptStep) {
	t.Helper()
	head := regexp.MustCompile(`^(\d[a-z]?)?(>>|>~|>inline|>|<)(?: (.*))?$`)
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " ")
		bad := func(why string) { t.Fatalf("%s:%d: %s: %s", name, i+1, why, line) }
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		step := transcriptStep{line: i + 1, conn: "1"}
		switch m := head.FindStringSubmatch(line); {
		case m != nil:
			if m[1] != "" {
				step.conn = m[1]
			}
			step.verb = strings.TrimPrefix(m[2], ">")
			if m[2] == ">" || m[2] == ">>" || m[2] == ">~" {
				step.verb = m[2]
			}
			var err error
			if step.verb == "inline" {
				step.raw = m[3]
			} else if step.args, err = splitArgs(m[3]); err != nil {
				bad(err.Error())
			}
		case strings.HasPrefix(line, "=raw "):
			raw, err := strconv.Unquote(`"` + strings.TrimPrefix(line, "=raw ") + `"`)
			if err != nil {
				bad(err.Error())
			}
			step.verb, step.raw = "raw", raw
		case strings.HasPrefix(line, "."):
			words := strings.Fields(line[1:])
			if len(words) < 2 {
				bad("a directive and its argument")
			}
			step.verb, step.conn, step.args = words[0], words[1], words[1:]
		case len(steps) == 0:
			bad("a reply to nothing")
		default:
			last := &steps[len(steps)-1]
			last.expect = append(last.expect, line)
			continue
		}
		steps = append(steps, step)
	}
	return steps
}

// splitArgs splits a command at spaces, but within quotes.
func splitArgs(s string) (args []string, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		if s[0] == '"' {
			q, err := strconv.QuotedPrefix(s)
			if err != nil {
				return nil, fmt.Errorf("quotes: %w", err)
			}
			arg, err := strconv.Unquote(q)
			if err != nil {
				return nil, err
			}
			args, s = append(args, arg), s[len(q):]
			continue
		}
		word, rest, _ := strings.Cut(s, " ")
		args, s = append(args, word), rest
	}
	return args, nil
}

// player plays transcripts against nodes.
type player struct {
	t     *testing.T
	name  string
	addrs []string // by number - 1
	conns map[string]*playerConn
	vars  map[string]string
}

type playerConn struct {
	net.Conn
	r *bufio.Reader
}

func play(t *testing.T, path string, addrs []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, name: filepath.Base(path), addrs: addrs, conns: map[string]*playerConn{}, vars: map[string]string{}}
	p.vars["q"] = fmt.Sprintf(".%s.%d", strings.TrimSuffix(p.name, ".txt"), time.Now().UnixNano())
	defer func() {
		for _, c := range p.conns {
			c.Close()
		}
	}()
	text = bytes.ReplaceAll(text, []byte("${q}"), []byte(p.vars["q"]))
	for _, s := range parseTranscript(t, p.name, string(text)) {
		p.step(&s)
	}
}

func (p *player) conn(name string) *playerConn {
	if c := p.conns[name]; c != nil {
		return c
	}
	n, _ := strconv.Atoi(name[:1])
	nc, err := net.Dial("tcp", p.addrs[(n-1)%len(p.addrs)])
	if err != nil {
		p.t.Fatal(err)
	}
	c := &playerConn{nc, bufio.NewReader(nc)}
	p.conns[name] = c
	return c
}

func (p *player) step(s *transcriptStep) {
	p.t.Helper()
	fail := func(format string, args ...any) {
		p.t.Helper()
		p.t.Fatalf("%s:%d: %s", p.name, s.line, fmt.Sprintf(format, args...))
	}
	args := make([]string, len(s.args))
	for i, a := range s.args {
		args[i] = p.filled(a)
	}
	if s.verb == "close" {
		p.conn(s.conn).Close()
		delete(p.conns, s.conn)
		return
	}
	if s.verb == "blocked" {
		p.blocked(fail, args[0], args[1])
		return
	}
	c := p.conn(s.conn)
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if s.verb == "closed" {
		if b, err := c.r.ReadByte(); err != io.EOF {
			fail("want the end of the connection, got %q, %v", b, err)
		}
		c.Close()
		delete(p.conns, s.conn)
		return
	}
	for start := time.Now(); ; {
		var text []byte
		switch s.verb {
		case ">", ">>", ">~":
			text = fmt.Appendf(nil, "*%d\r\n", len(args))
			for _, a := range args {
				text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(a), a)
			}
		case "inline":
			text = []byte(p.filled(s.raw) + "\r\n")
		case "raw":
			text = []byte(s.raw)
		}
		if _, err := c.Write(text); err != nil {
			fail("%v", err)
		}
		if s.verb == ">>" || s.verb == "raw" && len(s.expect) == 0 {
			return
		}
		got, err := readReply(c.r, 0)
		if err != nil {
			fail("%v after %q", err, got)
		}
		for s.verb == "raw" && len(got) < len(s.expect) { // several commands
			more, err := readReply(c.r, 0)
			if err != nil {
				fail("%v after %q", err, got)
			}
			got = append(got, more...)
		}
		why := p.match(s.expect, got)
		if why == "" {
			return
		}
		if s.verb != ">~" || time.Since(start) > 15*time.Second {
			fail("%s\ngot:\n  %s\nwant:\n  %s", why, strings.Join(got, "\n  "), strings.Join(s.expect, "\n  "))
		}
		time.Sleep(20 * time.Millisecond) // between polls of a condition
	}
}

// blocked waits until so many clients wait for a queue.
func (p *player) blocked(fail func(string, ...any), queue, n string) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between polls of a condition
		c := p.conn("1")
		fmt.Fprintf(c, "*2\r\n$5\r\nQSTAT\r\n$%d\r\n%s\r\n", len(queue), queue)
		got, err := readReply(c.r, 0)
		if err != nil {
			fail("%v", err)
		}
		for i := range got {
			if strings.TrimSpace(got[i]) == "$blocked" && strings.TrimSpace(got[i+1]) == ":"+n {
				return
			}
		}
		if time.Since(start) > 15*time.Second {
			fail("%s clients never waited: %q", n, got)
		}
	}
}

// filled puts the values of known names into an argument.
func (p *player) filled(s string) string {
	return regexp.MustCompile(`\{[a-z][a-z0-9]*\}`).ReplaceAllStringFunc(s, func(name string) string {
		if v, ok := p.vars[name[1:len(name)-1]]; ok {
			return v
		}
		return name
	})
}

// match compares a reply with what is expected; "" = they agree.
func (p *player) match(want, got []string) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d lines, want %d", len(got), len(want))
	}
	bound := map[string]string{}
	for i := range want {
		if !p.matchLine(strings.TrimSpace(want[i]), strings.TrimSpace(got[i]), bound) ||
			indent(want[i]) != indent(got[i]) {
			return fmt.Sprintf("line %d differs", i+1)
		}
	}
	for k, v := range bound {
		p.vars[k] = v
	}
	return ""
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }

var wild = regexp.MustCompile(`\{([a-z][a-z0-9]*|-?\d+\.\.\d+)\}`)

func (p *player) matchLine(want, got string, bound map[string]string) bool {
	if strings.HasPrefix(want, "-") && strings.HasSuffix(want, "...") {
		return strings.HasPrefix(got, strings.TrimSuffix(want, "..."))
	}
	var re strings.Builder
	re.WriteString(`(?s)^`)
	var names []string
	rest := want
	for {
		at := wild.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		re.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		name := rest[at[2]:at[3]]
		v, known := p.vars[name]
		switch {
		case known:
			re.WriteString(regexp.QuoteMeta(v))
		case name == "text":
			re.WriteString(`.*`)
		case name == "int":
			re.WriteString(`-?\d+`)
		case strings.Contains(name, ".."):
			re.WriteString(`(-?\d+)`)
			names = append(names, name)
		default:
			re.WriteString(`(\S+)`)
			names = append(names, name)
		}
		rest = rest[at[1]:]
	}
	re.WriteString(regexp.QuoteMeta(rest) + "$")
	m := regexp.MustCompile(re.String()).FindStringSubmatch(got)
	if m == nil {
		return false
	}
	for i, name := range names {
		v := m[i+1]
		if low, high, ok := strings.Cut(name, ".."); ok {
			n, _ := strconv.ParseInt(v, 10, 64)
			lo, _ := strconv.ParseInt(low, 10, 64)
			hi, _ := strconv.ParseInt(high, 10, 64)
			if n < lo || n > hi {
				return false
			}
			continue
		}
		if old, ok := bound[name]; ok && old != v {
			return false
		}
		bound[name] = v
	}
	return true
}

// readReply reads one reply as the lines of a transcript.
func readReply(r *bufio.Reader, depth int) (lines []string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(line, "\r\n") || len(line) < 4 {
		return nil, fmt.Errorf("a line ends wrongly: %q", line)
	}
	line = line[:len(line)-2]
	pad := strings.Repeat("  ", depth)
	switch line[0] {
	case '+', '-':
		return []string{pad + line}, nil
	case ':':
		if _, err := strconv.ParseInt(line[1:], 10, 64); err != nil {
			return nil, fmt.Errorf("no integer: %q", line)
		}
		return []string{pad + line}, nil
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < -1 {
			return nil, fmt.Errorf("no bulk: %q", line)
		}
		if n < 0 {
			return []string{pad + "$-1"}, nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil || string(b[n:]) != "\r\n" {
			return nil, fmt.Errorf("a bulk ends wrongly: %q, %v", b, err)
		}
		text := string(b[:n])
		if q := strconv.Quote(text); text == "" || text == "-1" || q != `"`+text+`"` || strings.TrimSpace(text) != text {
			text = q
		}
		return []string{pad + "$" + text}, nil
	case '*':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < -1 {
			return nil, fmt.Errorf("no array: %q", line)
		}
		lines = []string{pad + line}
		for range n {
			more, err := readReply(r, depth+1)
			if lines = append(lines, more...); err != nil {
				return lines, err
			}
		}
		return lines, nil
	}
	return nil, fmt.Errorf("no reply: %q", line)
}

// TestTranscripts plays all conversations against one machine.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			r := newInProcess(t)
			s := newServer(t, r, Options{Debug: true, Facts: map[string]string{"port": "7711"}})
			addr := listen(t, s)
			r.mu.Lock()
			r.members.Nodes[2].RESP = addr
			r.mu.Unlock()
			play(t, path, []string{addr})
			r.mu.Lock()
			defer r.mu.Unlock()
			if err := r.m.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

var _ = fsm.CodeOK
