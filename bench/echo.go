package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"

	"github.com/valyala/fasthttp"
)

// echoAnswer is as long as the answer to an enqueue.
const echoAnswer = `{"id":"D-00000000-000000000000000000000000-0000","queue":"echo","committed":true,"duplicate":false}`

// ServeEcho answers every request at once, until the listener is closed: the
// bare server under raftq's REST, with nothing on top.
func ServeEcho(ln net.Listener) error {
	body := []byte(echoAnswer)
	s := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusCreated)
			ctx.SetBody(body)
		},
		NoDefaultServerHeader: true,
		MaxRequestBodySize:    batchBytesMax + 1<<20,
	}
	return s.Serve(ln)
}

// EchoProcess is an echo server in a process of its own, as a node is.
type EchoProcess struct {
	Addr  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// StartEcho starts a command that prints its address as its first line, serves
// the echo, and ends when its input does.
func StartEcho(ctx context.Context, command string, args ...string) (*EchoProcess, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the generator
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the echo server: %w", err)
	}
	p := &EchoProcess{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if p.Addr = strings.TrimSpace(line); err != nil {
		p.Close()
		return nil, fmt.Errorf("start the echo server: it told no address: %w", err)
	}
	return p, nil
}

// Close ends the process and waits for it.
func (p *EchoProcess) Close() {
	_ = p.stdin.Close() // that is what ends it
	_ = p.cmd.Wait()    // how it ended does not matter
}
