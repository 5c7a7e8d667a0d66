package respapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftq/fsm"
)

// Close ends what waits with LEAVING and lets what is under way be answered.
func TestClose(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	addr := listen(t, s)
	waiting, idle, half := dialResp(t, addr), dialResp(t, addr), dialResp(t, addr)
	waiting.Write(slices.Concat(packed("GETJOB", "FROM", "q"), packed("PING")))
	r.await(t, "the waiting GETJOB", func() bool { return len(r.parked) == 1 })
	if v := idle.do("PING"); v != "PONG" {
		t.Fatal(v)
	}
	half.Write([]byte("*2\r\n$4\r\nPI"))
	closeServer(t, s)
	if v := text(waiting.receive()); !strings.HasPrefix(v, "LEAVING ") {
		t.Error(v)
	}
	if v := waiting.receive(); v != "PONG" {
		t.Error(v)
	}
	for _, c := range []*respClient{waiting, idle, half} {
		if v, err := receiveResp(c.r); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("still there: %v, %v", v, err)
		}
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("still listening")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.parked) != 0 {
		t.Error("a waiter is left")
	}
}

// Close cuts what does not end, and gives back what was not written.
func TestCloseCuts(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	addr := listen(t, s)
	block, stuck := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.refuse = func(op fsm.Op) error {
		if _, ok := op.(*fsm.Dequeue); ok {
			once.Do(func() { close(stuck) })
			r.mu.Unlock()
			<-block
			r.mu.Lock()
		}
		return nil
	}
	c := dialResp(t, addr)
	c.do("ADDJOB", "q", "x", 0)
	c.send("GETJOB", "NOHANG", "FROM", "q")
	<-stuck
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if v, err := receiveResp(c.r); err == nil {
		t.Errorf("answered %v", v)
	}
	close(block)
	r.await(t, "what comes back", func() bool { return r.returned == 1 })
}

func TestLimitsOfConnections(t *testing.T) {
	r := newInProcess(t)
	addr := listen(t, newServer(t, r, Options{Config: Config{MaxClients: 2}}))
	a, b := dialResp(t, addr), dialResp(t, addr)
	a.do("PING")
	b.do("PING")
	c := dialResp(t, addr)
	if v, err := receiveResp(c.r); err != nil || !strings.HasPrefix(text(v), "ERR max number of clients") {
		t.Errorf("%v, %v", v, err)
	}
	if v := a.do("CONFIG", "SET", "maxclients", 3); v != "OK" {
		t.Error(v)
	}
	if v := dialResp(t, addr).do("PING"); v != "PONG" {
		t.Error(v)
	}
	// An idle one is closed, one that waits is not.
	a.do("CONFIG", "SET", "timeout", 1)
	b.do("PING")
	a.send("GETJOB", "FROM", "q")
	if v, err := receiveResp(b.r); err != io.EOF {
		t.Errorf("an idle client: %v, %v", v, err)
	}
	d := dialResp(t, addr)
	id := d.do("ADDJOB", "q", "x", 0)
	if v := text(a.receive()); v != fmt.Sprintf("[[q %v x]]", id) {
		t.Error(v)
	}
}

func TestClientCommands(t *testing.T) {
	r := newInProcess(t)
	addr := listen(t, newServer(t, r, Options{}))
	a, b := dialResp(t, addr), dialResp(t, addr)
	b.do("CLIENT", "SETNAME", "b")
	b.send("GETJOB", "FROM", "q")
	r.await(t, "the waiting GETJOB", func() bool { return len(r.parked) == 1 })
	list := text(a.do("CLIENT", "LIST"))
	if strings.Count(list, "\n") != 2 || !strings.Contains(list, "addr="+b.LocalAddr().String()+" name=b ") || !strings.Contains(list, "cmd=getjob\n") || !strings.Contains(list, "cmd=client\n") {
		t.Error(list)
	}
	if v := a.do("CLIENT", "KILL", b.LocalAddr().String()); v != "OK" {
		t.Error(v)
	}
	r.await(t, "the end of the wait", func() bool { return len(r.parked) == 0 })
	if v := a.do("CLIENT", "KILL", a.LocalAddr().String()); v != "OK" {
		t.Error(v)
	}
	if v, err := receiveResp(a.r); err != io.EOF {
		t.Errorf("%v, %v", v, err)
	}
	// Jobs carry the name of who took them.
	c := dialResp(t, addr)
	c.do("CLIENT", "SETNAME", "worker-7")
	c.do("ADDJOB", "q", "x", 0)
	id, _ := fsm.ParseID(c.do("GETJOB", "FROM", "q").([]any)[0].([]any)[1].(string))
	r.mu.Lock()
	defer r.mu.Unlock()
	if j, _ := r.m.Job(id.Key); j.Consumer != "worker-7" {
		t.Errorf("taken by %q", j.Consumer)
	}
}
