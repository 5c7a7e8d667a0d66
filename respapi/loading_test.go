package respapi

import (
	"io"
	"net"
	"testing"
	"time"
)

// A client of a node that loads is told so, whatever it sends, and the connection
// ends behind that.
func TestAnswerLoading(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, sent := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\n", string(make([]byte, 100<<10))} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			AnswerLoading(nc)
			close(answered)
		}()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // seen below
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "-LOADING the node is loading its state\r\n" {
			t.Errorf("%.20q: %q, %v", sent, got, err)
		}
		c.Close()
		<-answered
	}
}
