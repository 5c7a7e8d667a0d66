package httpapi

import (
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// A node that loads says so to whoever asks, whatever they ask, with what a client
// needs to go on elsewhere; its probe of life is fine.
func TestLoading(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	l := NewLoading("n1", 0, zap.NewNop())
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go l.Answer(nc)
		}
	}()
	long := strings.Repeat("x", 1<<20)
	for text, status := range map[string]int{
		"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n":                                                               200,
		"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n":                                                              503,
		"GET /startupz HTTP/1.0\r\n\r\n":                                                                       503,
		"GET /no/such HTTP/1.1\r\nHost: x\r\n\r\n":                                                             503,
		"POST /v1/queues/q/enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + long:              503,
		"POST /v1/queues/q/dequeue?wait=20s HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n": 503,
	} {
		c := dial(t, ln.Addr().String())
		c.send(text)
		a := c.receive("GET")
		if a.status != status || a.header("Raftq-Node") != "n1" {
			t.Errorf("%.40q: %d %s %s", text, a.status, a.header("Raftq-Node"), a.body)
		}
		if status == 503 && (a.header("Retry-After") != "1" || a.header("Content-Type") != string(typeProblem) ||
			!strings.Contains(a.body, `"code":"loading","retryable":true,"applied":"no"`)) {
			t.Errorf("%.40q: %s %s", text, a.header("Retry-After"), a.body)
		}
		if _, err := c.br.ReadByte(); err != io.EOF {
			t.Errorf("%.40q: the connection goes on: %v", text, err)
		}
	}
}
