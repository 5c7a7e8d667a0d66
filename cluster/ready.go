package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	pollEvery   = 20 * time.Millisecond
	probeLimit  = 2 * time.Second // one probe's time
	logTailSize = 4 << 10
	logTailMax  = 15 // lines
)

// probes makes a connection for each request, so that no goroutine and no
// half-dead connection stays behind.
var probes = &http.Client{
	Timeout:   probeLimit,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// WaitReady waits until every node answers 200 on /readyz. A node that has
// ended, or ends meanwhile, is an error.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// WaitReady waits until the node answers 200 on /readyz.
func (n *Node) WaitReady(ctx context.Context) error {
	p := n.current()
	if p == nil {
		return fmt.Errorf("%s was never started", n.Name)
	}
	last := "no answer yet"
	for {
		status, body, err := n.get(ctx, "/readyz")
		switch {
		case err == nil && status == http.StatusOK && p.running():
			return nil
		case err == nil:
			last = fmt.Sprintf("%d %s", status, strings.TrimSpace(string(body)))
		case ctx.Err() == nil:
			last = err.Error()
		}
		select {
		case <-p.ended:
			if p.err == nil {
				return fmt.Errorf("%s ended before it was ready\n%s", n.Name, n.logTail())
			}
			return n.endedErr(p)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w); its last answer: %s\n%s", n.Name, ctx.Err(), last, n.logTail())
		case <-time.After(pollEvery):
		}
	}
}

// Leader waits until a running node is known as leader by a node, and returns
// the index of the one with the highest term.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	for {
		best, term := -1, uint64(0)
		for _, n := range c.Nodes {
			if !n.Running() {
				continue
			}
			var view struct {
				Leader string
				Term   uint64
			}
			status, body, err := n.get(ctx, "/v1/cluster")
			if err != nil || status != http.StatusOK || json.Unmarshal(body, &view) != nil || view.Term < term {
				continue
			}
			if i := c.index(view.Leader); i >= 0 && c.Nodes[i].Running() {
				best, term = i, view.Term
			}
		}
		if best >= 0 {
			return best, nil
		}
		select {
		case <-ctx.Done():
			return -1, fmt.Errorf("no running leader: %w", ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

func (c *Cluster) index(name string) int {
	for i, n := range c.Nodes {
		if n.Name == name {
			return i
		}
	}
	return -1
}

func (n *Node) get(ctx context.Context, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Client+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := probes.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, body, err
}

// logTail returns the last lines of the node's log, under a headline.
func (n *Node) logTail() string {
	f, err := os.Open(n.LogFile)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > logTailSize {
		if _, err := f.Seek(-logTailSize, io.SeekEnd); err != nil {
			return "(log not readable: " + err.Error() + ")"
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return "(log not readable: " + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "--- end of " + n.LogFile + "\n" + strings.Join(lines[max(0, len(lines)-logTailMax):], "\n")
}
