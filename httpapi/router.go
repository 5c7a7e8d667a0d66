package httpapi

import (
	"bytes"
	"slices"
	"strings"
)

// segment is a node of the routes' tree.
type segment struct {
	name   string
	next   []*segment
	any    *segment // a parameter
	rest   bool     // a last *
	routes []*route // one for each method
}

// buildTree numbers the routes and makes a tree of them.
func buildTree(table []route) *segment {
	root := &segment{}
	for i := range table {
		table[i].index = i
		table[i].onQueue = strings.HasPrefix(table[i].pattern, "/v1/queues/{q}")
		table[i].onTopic = strings.HasPrefix(table[i].pattern, "/v1/topics/{t}")
		at := root
		for name := range strings.SplitSeq(table[i].pattern[1:], "/") {
			at = at.child(name)
		}
		at.routes = append(at.routes, &table[i])
	}
	return root
}

func (s *segment) child(name string) *segment {
	if name[0] == '{' {
		if s.any == nil {
			s.any = &segment{name: name}
		}
		return s.any
	}
	for _, n := range s.next {
		if n.name == name {
			return n
		}
	}
	n := &segment{name: name, rest: name == "*"}
	s.next = append(s.next, n)
	return n
}

// find returns the node of a path, or nil, and the path's parameters.
func (s *segment) find(path []byte, params *[2][]byte) *segment {
	if len(path) == 0 || path[0] != '/' {
		return nil
	}
	n := 0
	for path = path[1:]; ; {
		part, last := path, true
		if i := bytes.IndexByte(path, '/'); i >= 0 {
			part, path, last = path[:i], path[i+1:], false
		}
		next := s.step(part)
		if next == nil {
			return nil
		}
		if next.rest {
			return next
		}
		if next == s.any {
			params[n] = part
			n++
		}
		if s = next; last {
			return s
		}
	}
}

func (s *segment) step(part []byte) *segment {
	for _, n := range s.next {
		if n.name == string(part) || n.rest {
			return n
		}
	}
	return s.any
}

func (s *segment) method(m []byte) *route {
	for _, r := range s.routes {
		if r.method == string(m) {
			return r
		}
	}
	if string(m) == "HEAD" {
		return s.method([]byte("GET"))
	}
	return nil
}

// route finds the call's route.
func (c *call) findRoute() error {
	path := c.ctx.URI().PathOriginal()
	at := c.s.tree.find(path, &c.raw)
	if at == nil || len(at.routes) == 0 {
		return &problem{kind: kindNoRoute, detail: routeHint(c.s.tree, path)}
	}
	if c.route = at.method(c.ctx.Method()); c.route == nil {
		allow := at.allow()
		return &problem{kind: kindNoMethod, allow: allow, detail: "this path takes " + allow}
	}
	return nil
}

func (s *segment) allow() string {
	var all []string
	for _, r := range s.routes {
		all = append(all, r.method)
		if r.method == "GET" {
			all = append(all, "HEAD")
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// routeHint guesses what was meant.
func routeHint(tree *segment, path []byte) string {
	var params [2][]byte
	exists := func(p []byte) bool {
		at := tree.find(p, &params)
		return at != nil && len(at.routes) > 0
	}
	if p := bytes.TrimRight(path, "/"); len(p) < len(path) && exists(p) {
		return "without the slash at the end there is one: " + string(p)
	}
	if p := append([]byte("/v1"), path...); exists(p) {
		return "paths begin with /v1: " + string(p)
	}
	if bytes.HasPrefix(path, []byte("/v1/queues/")) {
		return "a queue has /enqueue, /jobs and /dequeue; a slash inside its name is written %2F"
	}
	return "routes are /v1/queues/{q}/enqueue, /jobs, /dequeue, /v1/ack, /v1/nack, /v1/release, /v1/extend, /v1/jobs/{id}, /v1/topics/{t}, /v1/cluster and more; /openapi.json has all"
}
