package respapi

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

func text(v any) string { return fmt.Sprint(v) }

// TestTrains proves that pipelined commands of one kind share ops, are answered in
// their order, and that what they wait for keeps them apart.
func TestTrains(t *testing.T) {
	r := newInProcess(t)
	c := dialResp(t, listen(t, newServer(t, r, Options{})))
	var train []byte
	for i := range 100 {
		train = append(train, packed("ADDJOB", "q", i, 0)...)
	}
	train = append(train, packed("ADDJOB", "q", "fast", 0, "ASYNC")...)
	train = append(train, packed("ADDJOB", "q", "slow", 7000)...)
	train = append(train, packed("PING")...)
	if _, err := c.Write(train); err != nil {
		t.Fatal(err)
	}
	var ids []any
	for range 102 {
		ids = append(ids, c.receive())
	}
	if v := c.receive(); v != "PONG" {
		t.Fatal(v)
	}
	r.mu.Lock()
	ops, fast := r.ops, r.fast
	r.mu.Unlock()
	// The train may have come in pieces, but not in a hundred.
	if len(ops) > 20 {
		t.Errorf("%d ops for 102 jobs", len(ops))
	}
	n := 0
	for i, op := range ops {
		e := op.(*fsm.Enqueue)
		for j := range e.Jobs {
			want := text(n)
			switch n {
			case 100:
				want = "fast"
			case 101:
				want = "slow"
			}
			if string(e.Jobs[j].Body) != want || fast[i] != (n == 100) || want == "fast" && len(e.Jobs) != 1 {
				t.Errorf("job %d: %q of %d jobs, fast %v", n, e.Jobs[j].Body, len(e.Jobs), fast[i])
			}
			n++
		}
	}
	jobs := c.do("GETJOB", "COUNT", 200, "FROM", "q").([]any)
	for i, j := range jobs {
		if j.([]any)[1] != ids[i] {
			t.Fatalf("job %d came as %v, added as %v", i, j, ids[i])
		}
	}

	before := len(r.ops)
	train = nil
	for _, id := range ids[:50] {
		train = append(train, packed("ACKJOB", id)...)
	}
	train = append(train, packed(append([]any{"ACKJOB"}, ids...)...)...)
	if _, err := c.Write(train); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if v := c.receive(); v != int64(1) {
			t.Error(v)
		}
	}
	if v := c.receive(); v != int64(52) {
		t.Errorf("acked %v", v)
	}
	if n := len(r.ops) - before; n > 10 {
		t.Errorf("%d ops for 51 acks", n)
	}
}

// More ids than an op takes are as many ops.
func TestManyIDs(t *testing.T) {
	r := newInProcess(t)
	c := dialResp(t, listen(t, newServer(t, r, Options{})))
	args := []any{"ACKJOB"}
	for range 25 {
		var train []byte
		for range 100 {
			train = append(train, packed("ADDJOB", "q", "x", 0)...)
		}
		c.Write(train)
		for range 100 {
			args = append(args, c.receive())
		}
	}
	if v := c.do(args...); v != int64(2500) {
		t.Errorf("acked %v", v)
	}
	if v := c.do("QLEN", "q"); v != int64(0) {
		t.Error(v)
	}
}

// REPLICATE waits for copies above a majority, and only when it is said.
func TestReplicate(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	c := dialResp(t, listen(t, s))
	for _, tc := range []struct {
		args   []any
		copies int // asked of the replica, 0 = none
		want   string
	}{
		{nil, 0, "D-"},
		{[]any{"REPLICATE", 1}, 0, "D-"},
		{[]any{"REPLICATE", 2}, 0, "D-"},
		{[]any{"REPLICATE", 3}, 3, "D-"},
		{[]any{"REPLICATE", 3, "ASYNC"}, 0, "D-"},
		{[]any{"REPLICATE", 4}, 0, "NOREPL "},
		{[]any{"REPLICATE", 1, "RETRY", 0}, 0, "D-"},
	} {
		r.copies = nil
		v := text(c.do(append([]any{"ADDJOB", "q", "x", 0}, tc.args...)...))
		if !strings.HasPrefix(v, tc.want) || len(r.copies) > 1 || tc.copies > 0 && (len(r.copies) != 1 || r.copies[0] != tc.copies) || tc.copies == 0 && len(r.copies) > 0 {
			t.Errorf("%v: %v, copies asked: %v", tc.args, v, r.copies)
		}
	}
	if v := c.do("QLEN", "q"); v != int64(6) {
		t.Errorf("%v jobs", v)
	}
	// Not in time: nothing stays. Of a train, those that asked for it alone.
	r.slow = 1
	c.Write(slices.Concat(packed("ADDJOB", "late", "a", 100), packed("ADDJOB", "late", "b", 100, "REPLICATE", 3), packed("ADDJOB", "late", "c", 100, "REPLICATE", 3), packed("ADDJOB", "late", "d", 100)))
	for i, want := range []string{"D-", "NOREPL ", "NOREPL ", "D-"} {
		if v := text(c.receive()); !strings.HasPrefix(v, want) {
			t.Errorf("answer %d: %v, want %s", i, v, want)
		}
	}
	if v := c.do("QLEN", "late"); v != int64(2) {
		t.Errorf("%v jobs", v)
	}
	// A node that is away cannot have a copy: refused at once.
	r.mu.Lock()
	r.members.Nodes[0].Alive = false
	r.mu.Unlock()
	s.members.forget()
	if v := text(c.do("ADDJOB", "q", "x", 0, "REPLICATE", 3)); !strings.HasPrefix(v, "NOREPL ") {
		t.Error(v)
	}
	if v := text(c.do("ADDJOB", "q", "x", 0)); !strings.HasPrefix(v, "D-") {
		t.Error(v)
	}
	// One node alone: a job is delivered at most once without more words.
	r.mu.Lock()
	r.members.Nodes = r.members.Nodes[2:]
	r.mu.Unlock()
	s.members.forget()
	if v := text(c.do("ADDJOB", "q", "x", 0, "RETRY", 0)); !strings.HasPrefix(v, "D-") {
		t.Error(v)
	}
	if v := text(c.do("ADDJOB", "q", "x", 0, "REPLICATE", 2)); !strings.HasPrefix(v, "NOREPL ") {
		t.Error(v)
	}
}

// What one op of a train ends with is the answer of its commands alone.
func TestTrainsThatFail(t *testing.T) {
	r := newInProcess(t)
	c := dialResp(t, listen(t, newServer(t, r, Options{})))
	id := c.do("ADDJOB", "q", "x", 0)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fsm.Refuse(fsm.CodeNoLeader, "x"), "NOLEADER "},
		{fsm.Refuse(fsm.CodeOverloaded, "x"), "BUSY "},
		{fsm.Refuse(fsm.CodeMemoryLimit, "x"), "OOM "},
		{fsm.Refuse(fsm.CodeDiskLimit, "x"), "OOM "},
		{fsm.Refuse(fsm.CodeLeaving, "x"), "LEAVING "},
		{&fsm.Error{Code: fsm.CodeCommitTimeout, Unknown: true}, "NOREPL "},
		{errors.New("surprise"), "ERR internal"},
	} {
		r.mu.Lock()
		r.refuse = func(op fsm.Op) error {
			if _, ok := op.(*fsm.Enqueue); ok {
				return tc.err
			}
			return nil
		}
		r.mu.Unlock()
		train := slices.Concat(packed("ADDJOB", "q", "a", 0), packed("ADDJOB", "q", "b", 0, "TTL", 0), packed("ADDJOB", "q", "c", 0), packed("ACKJOB", id), packed("ADDJOB", "q", "d", 0))
		c.Write(train)
		for i := range 5 {
			v := text(c.receive())
			switch {
			case i == 1 && !strings.HasPrefix(v, "ERR TTL"), i == 3 && v != "1" && v != "0", i != 1 && i != 3 && !strings.HasPrefix(v, tc.want):
				t.Errorf("%v: answer %d is %q", tc.err, i, v)
			}
		}
	}
}

// Answers that are ready leave before a command waits.
func TestFlushBeforeWaiting(t *testing.T) {
	r := newInProcess(t)
	c := dialResp(t, listen(t, newServer(t, r, Options{})))
	c.Write(slices.Concat(packed("PING"), packed("ADDJOB", "other", "x", 0), packed("GETJOB", "FROM", "q"), packed("PING", "behind")))
	if v := c.receive(); v != "PONG" {
		t.Fatal(v)
	}
	if v, ok := c.receive().(string); !ok {
		t.Fatal(v)
	}
	r.await(t, "the waiting GETJOB", func() bool { return len(r.parked) == 1 })
	other := dialResp(t, c.RemoteAddr().String())
	id := other.do("ADDJOB", "q", "x", 0)
	if v := c.receive(); text(v) != fmt.Sprintf("[[q %v x]]", id) {
		t.Error(v)
	}
	if v := c.receive(); v != "behind" {
		t.Error(v)
	}
}

func TestAuth(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{Config: Config{Password: "secret"}})
	addr := listen(t, s)
	c := dialResp(t, addr)
	for _, cmd := range [][]any{{"PING"}, {"ADDJOB", "q", "x", 0}, {"INFO"}, {"CONFIG", "GET", "*"}, {"HELLO"}, {"SHUTDOWN"}} {
		if v := text(c.do(cmd...)); !strings.HasPrefix(v, "NOAUTH ") {
			t.Errorf("%v: %v", cmd, v)
		}
	}
	if v := text(c.do("AUTH", "wrong")); !strings.HasPrefix(v, "ERR ") {
		t.Error(v)
	}
	if v := c.do("AUTH", "secret"); v != "OK" {
		t.Error(v)
	}
	if v := c.do("PING"); v != "PONG" {
		t.Error(v)
	}
	// A new password counts for those who come.
	if v := c.do("CONFIG", "SET", "requirepass", "other"); v != "OK" {
		t.Error(v)
	}
	if v := c.do("PING"); v != "PONG" {
		t.Error(v)
	}
	d := dialResp(t, addr)
	if v := text(d.do("AUTH", "secret")); !strings.HasPrefix(v, "ERR ") {
		t.Error(v)
	}
	if v := d.do("AUTH", "other"); v != "OK" {
		t.Error(v)
	}
	// A wrong one ends what a right one began.
	d.do("AUTH", "no")
	if v := text(d.do("PING")); !strings.HasPrefix(v, "NOAUTH ") {
		t.Error(v)
	}
	if v := d.do("QUIT"); v != "OK" {
		t.Error(v)
	}
	if strings.Contains(text(c.do("SLOWLOG", "GET", 100)), "secret") {
		t.Error("the slow log knows the password")
	}
}

// A node that loads its state says so, and answers what needs none.
func TestLoading(t *testing.T) {
	r := newInProcess(t)
	r.started = fsm.Refuse(fsm.CodeLoading, "wait")
	c := dialResp(t, listen(t, newServer(t, r, Options{})))
	for _, cmd := range [][]any{{"PING"}, {"ADDJOB", "q", "x", 0}, {"GETJOB", "FROM", "q"}, {"QLEN", "q"}, {"HELLO"}} {
		if v := text(c.do(cmd...)); !strings.HasPrefix(v, "LOADING ") {
			t.Errorf("%v: %v", cmd, v)
		}
	}
	if v := text(c.do("INFO")); !strings.Contains(v, "loading:1\r\n") {
		t.Error(v)
	}
	r.mu.Lock()
	r.started = nil
	r.mu.Unlock()
	if v := text(c.do("INFO", "persistence")); !strings.Contains(v, "loading:0\r\n") {
		t.Error(v)
	}
}

// MONITOR shows what others ask for, without bodies and secrets, until the client
// leaves.
func TestMonitor(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	addr := listen(t, s)
	m, c := dialResp(t, addr), dialResp(t, addr)
	if v := m.do("MONITOR"); v != "OK" {
		t.Fatal(v)
	}
	for s.monitors.n.Load() == 0 {
		time.Sleep(time.Millisecond) // between polls of a condition
	}
	c.Write(slices.Concat(packed("ADDJOB", "q", "the body", 0), packed("AUTH", "secret"), packed("NOSUCH"), packed("CONFIG", "SET", "requirepass", ""), packed("QLEN", "a\r\nb")))
	who := " [" + c.LocalAddr().String() + "] "
	for _, want := range []string{`"ADDJOB" "q" "(8 bytes)" "0"`, `"AUTH" "(secret)"`, `"CONFIG" "SET" "requirepass" "(secret)"`, `"QLEN" "a\r\nb"`} {
		if v := text(m.receive()); !strings.HasSuffix(v, who+want) {
			t.Errorf("%s, want %s", v, want)
		}
	}
	m.Close()
	for s.monitors.n.Load() != 0 {
		c.do("PING")
	}
	n := dialResp(t, addr)
	n.do("MONITOR")
	closeServer(t, s)
	if v, err := receiveResp(n.r); err != io.EOF {
		t.Errorf("%v, %v", v, err)
	}
}

// Disque's times, without waiting for them: retry after five minutes, WORKING for
// half of the day, and the end of the day.
func TestTimes(t *testing.T) {
	r := newInProcess(t)
	c := dialResp(t, listen(t, newServer(t, r, Options{})))
	id := c.do("ADDJOB", "q", "x", 0)
	delayed := c.do("ADDJOB", "later", "x", 0, "DELAY", 3600)
	once := c.do("ADDJOB", "once", "x", 0, "RETRY", 0, "REPLICATE", 1)
	job := func(queue string, id any, additional int) string {
		return fmt.Sprintf("[[%s %v x nacks 0 additional-deliveries %d]]", queue, id, additional)
	}
	get := func(queue, want string) {
		t.Helper()
		if v := text(c.do("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", queue)); v != want {
			t.Errorf("%s: %v, want %v", queue, v, want)
		}
	}
	get("q", job("q", id, 0))
	get("once", job("once", once, 0))
	r.advance(299 * time.Second)
	get("q", "<nil>")
	r.advance(2 * time.Second)
	get("q", job("q", id, 1))
	r.advance(250 * time.Second)
	if v := c.do("WORKING", id); v != int64(300) {
		t.Error(v)
	}
	r.advance(250 * time.Second)
	get("q", "<nil>")
	get("later", "<nil>")
	r.advance(time.Hour)
	get("later", job("later", delayed, 0))
	get("once", "<nil>")
	r.advance(10*time.Hour + 30*time.Minute)
	get("q", job("q", id, 2))
	if v := c.do("WORKING", id); v != int64(300) {
		t.Error(v)
	}
	r.advance(time.Hour)
	if v := text(c.do("WORKING", id)); !strings.HasPrefix(v, "TOOLATE ") {
		t.Error(v)
	}
	if v := c.do("SHOW", once); v == nil {
		t.Error("a job that was delivered at most once is kept until an ack")
	}
	r.advance(12 * time.Hour)
	for _, id := range []any{id, once, delayed} {
		if v := c.do("SHOW", id); v != nil {
			t.Errorf("after its TTL: %v", v)
		}
	}
}

// A body above the limit is refused alone; one that the reader cannot hold ends
// the connection.
func TestLargeBodies(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{MaxBody: 100_000})
	c := dialResp(t, listen(t, s))
	if v, ok := c.do("ADDJOB", "q", strings.Repeat("x", 100_000), 0).(string); !ok {
		t.Error(v)
	}
	if v := text(c.do("ADDJOB", "q", strings.Repeat("x", 100_001), 0)); !strings.HasPrefix(v, "ERR a job's body has at most 100000 bytes") {
		t.Error(v)
	}
	if v := c.do("QLEN", "q"); v != int64(1) {
		t.Error(v)
	}
	if v := c.do("GETJOB", "FROM", "q").([]any)[0].([]any)[2]; v != strings.Repeat("x", 100_000) {
		t.Error("another body")
	}
	c.Write([]byte("*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$900000000\r\n"))
	if v := text(c.receive()); !strings.HasPrefix(v, "ERR Protocol error: invalid bulk length") {
		t.Error(v)
	}
}

// TestUnixSocket proves that the protocol, and a hang-up, work there.
func TestUnixSocket(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	path := t.TempDir() + "/sock"
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	dial := func() *respClient {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return &respClient{nc, t, bufio.NewReader(nc)}
	}
	c := dial()
	id := c.do("ADDJOB", "q", "x", 0)
	if v := text(c.do("GETJOB", "FROM", "q")); v != fmt.Sprintf("[[q %v x]]", id) {
		t.Error(v)
	}
	c.send("GETJOB", "FROM", "q")
	r.await(t, "the waiting GETJOB", func() bool { return len(r.parked) == 1 })
	c.Close()
	r.await(t, "its end", func() bool { return len(r.parked) == 0 })
	closeServer(t, s)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestTLS proves that the protocol, and a hang-up, work over it.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(crand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	r := newInProcess(t)
	addr := listen(t, newServer(t, r, Options{TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}))
	tc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	c := &respClient{tc, t, bufio.NewReader(tc)}
	id := c.do("ADDJOB", "q", "x", 0)
	if v := text(c.do("GETJOB", "FROM", "q")); v != fmt.Sprintf("[[q %v x]]", id) {
		t.Error(v)
	}
	c.send("GETJOB", "FROM", "q")
	r.await(t, "the waiting GETJOB", func() bool { return len(r.parked) == 1 })
	c.send("PING") // a record while it waits is no hang-up
	tc.NetConn().Close()
	r.await(t, "its end", func() bool { return len(r.parked) == 0 })
}

// A panic in a command is answered, logged, and costs its connection alone.
func TestPanic(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	s.commands["ping"].run = func(*session, []request) int { panic("a bug") }
	addr := listen(t, s)
	c := dialResp(t, addr)
	if v := text(c.do("PING")); !strings.HasPrefix(v, "ERR internal error") {
		t.Error(v)
	}
	if v, err := receiveResp(c.r); err != io.EOF {
		t.Errorf("%v, %v", v, err)
	}
	if v := dialResp(t, addr).do("QLEN", "q"); v != int64(0) {
		t.Error(v)
	}
}

// FuzzCommands: whatever is sent, each command has one well-formed answer, and the
// machine stays sound.
func FuzzCommands(f *testing.F) {
	for _, s := range []string{
		"ADDJOB q x 0 REPLICATE 1 RETRY 0 TTL 9\nGETJOB NOHANG COUNT 9 WITHCOUNTERS FROM q\n", "QPEEK q -9223372036854775808\nQPEEK q 9223372036854775807\n",
		"ADDJOB q x 9223372036854775807 DELAY 1 TTL 9223372036854775807\n", "JSCAN 0 COUNT -1 STATE active REPLY all\nQSCAN COUNT 0 MAXLEN 3\n",
		"PAUSE q in out all none state bcast\nQSTAT q\n", "SLOWLOG GET -1\nCONFIG GET [\nCLIENT LIST\nCLUSTER NODES\n", "ADDJOB q x 0 MAXLEN 9223372036854775807\n",
		"SHOW D-ca1fe000-aaaaaaaaaaaaaaaaaaaaaaaa-05a1\nACKJOB\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		r := newInProcess(t)
		s := newServer(t, r, Options{Debug: true})
		client, server := net.Pipe()
		c := &session{s: s, nc: server, authed: true}
		ln := &oneConn{server: server}
		wrapped, _ := s.conns.Listen(ln).Accept()
		c.conn, c.nc = connOf(wrapped), wrapped
		defer wrapped.Close()
		defer client.Close()
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(client)
			got <- b
		}()
		var ids []string
		n := 0
		for line := range bytes.Lines(script) {
			if n++; n > 50 {
				break
			}
			args, rest, ok, err := parseInline(append(bytes.TrimRight(line, "\n"), '\n'), nil)
			if err != nil || !ok || len(rest) > 0 || len(args) == 0 || is(args[0], "shutdown") || is(args[0], "monitor") {
				continue
			}
			if is(args[0], "getjob") { // waits are another test's
				args = slices.Insert(args, 1, []byte("NOHANG"))
			}
			for i := range args { // $0 is an id that was answered
				if len(args[i]) == 2 && args[i][0] == '$' && int(args[i][1]-'0') < len(ids) && args[i][1] >= '0' {
					args[i] = []byte(ids[args[i][1]-'0'])
				}
			}
			c.out = c.out[:0]
			c.train = append(c.train[:0], s.look(args))
			c.run()
			lines, err := readReply(bufio.NewReader(bytes.NewReader(c.out)), 0)
			if err != nil || len(lines) == 0 {
				t.Fatalf("%q: answer %q: %v", args, c.out, err)
			}
			if strings.Contains(string(c.out), "internal error") {
				t.Fatalf("%q: %q", args, c.out)
			}
			if strings.HasPrefix(lines[0], "+D-") {
				ids = append(ids, lines[0][1:])
			}
			if c.closing {
				break
			}
		}
		wrapped.Close()
		<-got
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.m.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
