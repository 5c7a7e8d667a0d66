package hangup

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// failing fails so often with an error of the system before it accepts.
type failing struct {
	net.Listener
	mu   sync.Mutex
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) > 0 {
		err := l.errs[0]
		if len(l.errs) > 1 || err != syscall.EMFILE {
			l.errs = l.errs[1:]
		}
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
	}
	return l.Listener.Accept()
}

// A lack of descriptors or memory, and clients that gave up, end no listener: front
// ends stop for good when Accept fails.
func TestAcceptGoesOn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := newEnd(t, "tcp", "127.0.0.1:0", 1)
	l := e.Listen(&failing{Listener: ln, errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED}})
	defer l.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sc, err := l.Accept()
	if err != nil {
		t.Fatalf("Accept: %v", err)
	}
	sc.Close()
}

// Closing ends an Accept that waits for better times.
func TestCloseWhileAcceptFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := newEnd(t, "tcp", "127.0.0.1:0", 1)
	l := e.Listen(&failing{Listener: ln, errs: []error{syscall.EMFILE}}) // for good
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	l.Close()
	if err := <-ended; err == nil {
		t.Error("accepted")
	}
	if _, err := l.Accept(); err == nil || !errors.Is(err, syscall.EMFILE) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
}

// Connections leave descriptors for everything else, whatever Max is, and say why
// they are refused.
func TestDescriptorsAreLeft(t *testing.T) {
	if n := descriptors(); n < 1 {
		t.Fatalf("connections may take %d descriptors", n)
	}
	e := newEnd(t, "tcp", "127.0.0.1:0", 10)
	why := make(chan string, 1)
	e.Conns.opts.Refuse = func(nc net.Conn, limit string) { why <- limit; nc.Close() }
	_, sc := e.connect(t)
	e.Conns.fds = 1 // fewer than are in use
	second, err := net.Dial("tcp", e.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	go e.ln.Accept()
	if _, err := second.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the second was not refused: %v", err)
	}
	if got := <-why; !strings.Contains(got, "ulimit -n") {
		t.Errorf("refused for %q", got)
	}
	if e.Len() != 1 {
		t.Errorf("%d connections", e.Len())
	}
	sc.Close()
}
