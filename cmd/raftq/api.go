package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// api speaks to the nodes of a cluster over HTTP. It stays with the node that
// answered last and goes on to the next one when that can do no harm.
type api struct {
	nodes []string // base URLs, the preferred one first
	http  *http.Client
}

// request is one call of the API.
type request struct {
	method, path string
	query        url.Values
	json         any // sent as JSON when not nil
	body         []byte
	// repeatable: doing it twice harms nobody, so it may be sent again after its
	// answer got lost.
	repeatable bool
}

// answer is what a node said, with a status below 300.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// refusal is an answer with an error status, as problem+json tells it.
type refusal struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Applied   string `json:"applied"` // no | unknown
	Retryable bool   `json:"retryable"`
}

func (r *refusal) Error() string {
	text := r.Detail
	if text == "" {
		text = r.Title
	}
	return fmt.Sprintf("%s (%s)", text, r.Code)
}

// lostAnswer: the request was sent and nothing came back.
type lostAnswer struct {
	node string
	err  error
}

func (l *lostAnswer) Error() string {
	return fmt.Sprintf("the answer of %s got lost, it may have been done or not: %v", l.node, l.err)
}

// answerMax bounds what is read of one answer: the largest batch as base64.
const answerMax = 64 << 20

func newAPI(endpoints string) (*api, error) {
	a := &api{http: &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     30 * time.Second,
		},
	}}
	for e := range strings.SplitSeq(endpoints, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		if !strings.Contains(e, "://") {
			e = "http://" + e
		}
		u, err := url.Parse(e)
		if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("endpoints: %q is not host:port", e)
		}
		a.nodes = append(a.nodes, u.Scheme+"://"+u.Host)
	}
	if len(a.nodes) == 0 {
		return nil, errors.New("endpoints: none given")
	}
	return a, nil
}

// do carries a request out on the first node that can. It goes on to the next
// node when nothing can have happened (not connected, or 503), and when the
// answer got lost but the request is repeatable.
func (a *api) do(ctx context.Context, r request) (*answer, error) {
	var last error
	for i := range a.nodes {
		ans, err := a.sendTo(ctx, i, r)
		if err == nil {
			a.nodes[0], a.nodes[i] = a.nodes[i], a.nodes[0]
			return ans, nil
		}
		last = err
		if !goOn(err, r.repeatable) || ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// isUnknown tells whether an error leaves open if the request was carried out.
func isUnknown(err error) bool {
	var refused *refusal
	var lost *lostAnswer
	return errors.As(err, &lost) || errors.As(err, &refused) && refused.Applied == "unknown"
}

// goOn tells whether the next node may be asked.
func goOn(err error, repeatable bool) bool {
	var refused *refusal
	switch {
	case isUnknown(err):
		return repeatable
	case errors.As(err, &refused):
		return refused.Status == http.StatusServiceUnavailable
	}
	return true // not connected
}

// sendTo carries a request out on one node.
func (a *api) sendTo(ctx context.Context, i int, r request) (*answer, error) {
	body, contentType := r.body, "application/octet-stream"
	if r.json != nil {
		var err error
		if body, err = json.Marshal(r.json); err != nil {
			return nil, err
		}
		contentType = "application/json"
	}
	node := a.nodes[i]
	target := node + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if r.method != http.MethodGet {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return nil, &exitError{exitUnavailable, fmt.Errorf("no connection to %s: %w", node, dial.Err)}
		}
		return nil, &lostAnswer{node, err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	if err != nil {
		return nil, &lostAnswer{node, err}
	}
	if resp.StatusCode < 300 {
		return &answer{resp.StatusCode, resp.Header, text}, nil
	}
	refused := &refusal{}
	if json.Unmarshal(text, refused) != nil || refused.Code == "" {
		refused = &refusal{Code: fmt.Sprintf("http_%d", resp.StatusCode), Title: strings.TrimSpace(string(text)), Applied: "unknown"} // not a node of ours
		if resp.StatusCode == http.StatusNotFound {
			refused.Title = fmt.Sprintf("%s does not know %s; is this the peer port?", node, r.path)
		}
	}
	refused.Status = resp.StatusCode
	return nil, refused
}

// withCode gives an error of do its exit code.
func withCode(err error) error {
	var refused *refusal
	switch {
	case err == nil:
		return nil
	case isUnknown(err):
		return &exitError{exitUnknown, err}
	case !errors.As(err, &refused):
		return err
	case refused.Status == http.StatusNotFound, refused.Status == http.StatusGone:
		return &exitError{exitNothing, err}
	case refused.Retryable:
		return &exitError{exitUnavailable, err}
	case refused.Status < 500:
		return &exitError{exitRefused, err}
	}
	return err
}
