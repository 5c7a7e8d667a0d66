package raftnode

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// nameServer answers for one name, with what it is set to.
type nameServer struct {
	mu   sync.Mutex
	addr net.IP
}

func (s *nameServer) set(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = net.ParseIP(addr).To4()
}

// serveNames has this process ask a name server of the test, until it ends.
func serveNames(t *testing.T) *nameServer {
	s := &nameServer{}
	was := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asks, answers := net.Pipe()
		go s.serve(answers)
		return asks, nil
	}}
	t.Cleanup(func() { net.DefaultResolver = was })
	return s
}

// serve answers one question, in DNS's form for streams.
func (s *nameServer) serve(c net.Conn) {
	defer c.Close()
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	q := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, q); err != nil {
		return
	}
	end := 12 + bytes.IndexByte(q[12:], 0) + 5 // the name, its type and its class
	s.mu.Lock()
	addr := s.addr
	s.mu.Unlock()
	a := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if q[end-3] == 1 { // an IPv4 address, for no time at all
		a[7] = 1
		a = append(append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4), addr...)
	}
	_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)) // who asked asks again
}

// TestNameThatMoves proves that a member whose address is a name is found where the
// name points to, however often that changes, by nodes that go on all the time.
func TestNameThatMoves(t *testing.T) {
	defer goleak.VerifyNone(t)
	names := serveNames(t)
	cr := newCrew(t)
	cr.config("n1")
	n1 := cr.open("n1")
	cfg := cr.config("n2")
	_, port, err := net.SplitHostPort(cfg.ListenPeer)
	if err != nil {
		t.Fatal(err)
	}
	cfg.AdvertisePeer = "http://n2.raftq.test:" + port
	for i, addr := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		cfg.ListenPeer = addr + ":" + port
		cr.cfg["n2"] = cfg
		names.set(addr)
		if i == 0 {
			if err := cr.join("n2", false); err != nil {
				t.Fatal(err)
			}
		}
		cr.open("n2")
		cr.voter("n2")
		enqueueOn(t, n1, "which needs both")
		cr.close("n2")
	}
	cr.closeAll()
}
