package respapi

import (
	"bytes"
	"net"
	"testing"
	"time"

	"raftq/fsm"
)

// instant is a replica that answers at once.
type instant struct {
	*inProcess
	jobs []fsm.Delivered
}

func (r *instant) Do(op fsm.Op, _ bool, _ time.Duration, _ <-chan struct{}) (fsm.Result, error) {
	switch op := op.(type) {
	case *fsm.Enqueue:
		return fsm.Result{Items: make([]fsm.ItemResult, len(op.Jobs))}, nil
	case *fsm.Ack:
		return fsm.Result{Items: make([]fsm.ItemResult, len(op.Items))}, nil
	}
	return fsm.Result{Jobs: r.jobs}, nil
}

func (r *instant) Started() error { return nil }

// sink is a connection that gives one text again and again and takes all.
type sink struct {
	net.Conn
	text   []byte
	at     int
	rounds int
}

func (c *sink) Read(p []byte) (int, error) {
	if c.rounds == 0 {
		return 0, net.ErrClosed
	}
	n := copy(p, c.text[c.at:])
	if c.at += n; c.at == len(c.text) {
		c.at = 0
		c.rounds--
	}
	return n, nil
}

func (c *sink) Write(p []byte) (int, error)        { return len(p), nil }
func (c *sink) SetReadDeadline(time.Time) error    { return nil }
func (c *sink) SetWriteDeadline(t time.Time) error { return nil }
func (c *sink) Close() error                       { return nil }
func (c *sink) RemoteAddr() net.Addr               { return &net.TCPAddr{} }

// benchmarkCommand measures what this package adds to a command, a read and a
// write of the socket apart.
func benchmarkCommand(b *testing.B, pipeline int, args ...any) {
	r := &instant{inProcess: newInProcess(b)}
	r.jobs = []fsm.Delivered{{Queue: "q", Body: "a body of a hundred bytes", ID: fsm.ID{Key: fsm.Key{Hi: 1, Lo: 1}, Node: 1, Minutes: 7}}}
	s := newServer(b, r, Options{})
	c := &sink{text: bytes.Repeat(packed(args...), pipeline), rounds: (b.N + pipeline - 1) / pipeline}
	wrapped, err := s.conns.Listen(&oneConn{server: c}).Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	s.accept(wrapped)
	for s.sessions.len() > 0 {
		time.Sleep(50 * time.Microsecond) // the session goes on until its text is read
	}
}

var benchBody = string(bytes.Repeat([]byte("x"), 100))

func BenchmarkPing(b *testing.B)     { benchmarkCommand(b, 1, "PING") }
func BenchmarkAddjob(b *testing.B)   { benchmarkCommand(b, 1, "ADDJOB", "q", benchBody, 0) }
func BenchmarkAddjob16(b *testing.B) { benchmarkCommand(b, 16, "ADDJOB", "q", benchBody, 0) }
func BenchmarkGetjob(b *testing.B)   { benchmarkCommand(b, 1, "GETJOB", "FROM", "q") }
func BenchmarkAckjob(b *testing.B) {
	benchmarkCommand(b, 1, "ACKJOB", fsm.ID{Key: fsm.Key{Hi: 1, Lo: 1}, Node: 1, Minutes: 7}.String())
}
