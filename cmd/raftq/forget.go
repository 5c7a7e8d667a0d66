package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"raftq/fsm"
)

// RemoveMember removes a member by the route of this node's own REST API, which
// finds the leader and lets the member's clients go elsewhere first.
func (r respReplica) RemoveMember(id uint64, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+5*time.Second) // the node itself knows better
	defer cancel()
	url := fmt.Sprintf("%s/v1/cluster/members/%s?timeout=%dms", r.rest, hex16(id), timeout.Milliseconds())
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return &fsm.Error{Code: fsm.CodeCommitTimeout, Unknown: true, Detail: err.Error()}
	}
	defer res.Body.Close()
	if res.StatusCode < 300 {
		return nil
	}
	var p struct{ Code, Detail, Applied string }
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		return fmt.Errorf("%s: %w", res.Status, err)
	}
	for _, c := range fsm.Codes() {
		if c.String() == p.Code {
			return &fsm.Error{Code: c, Unknown: p.Applied == "unknown", Detail: p.Detail}
		}
	}
	return fmt.Errorf("%s: %s: %s", res.Status, p.Code, p.Detail)
}

// ownREST is the URL by which a node reaches its own REST API.
func ownREST(listen string) string {
	host, port, _ := net.SplitHostPort(listen) //nolint:errcheck // it was checked
	if isWildcard(listen) {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
