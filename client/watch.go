package client

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// While a node makes a request wait, nothing tells whether it still can answer: a
// process that hangs keeps its connections, and a node that is cut off from the
// others is not handed a job. So its readiness is asked from time to time.
const (
	watchEvery  = 2 * time.Second
	watchWithin = 2 * time.Second // for an answer
	watchMisses = 2               // in a row: one alone may be an election
)

// errNotServing: the node that made the request wait does not serve any more.
var errNotServing = errors.New("the node does not serve any more")

// watch asks a node whether it serves until ctx ends, and calls lost when it does not.
func (c *Client) watch(ctx context.Context, n *node, lost func(error)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for misses := 0; misses < watchMisses; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.serves(ctx, n) {
			misses = 0
		} else {
			misses++
		}
	}
	lost(errNotServing)
}

// serves tells whether a node answers that it is ready.
func (c *Client) serves(ctx context.Context, n *node) bool {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+"/readyz", nil)
	if err != nil {
		return false
	}
	c.sign(req.Header)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = readAll(resp) // so that the connection is used again
	return err == nil && resp.StatusCode == http.StatusOK
}
