package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"raftq/fsm"
)

// Membership is what this package needs of a replica to change the cluster. What
// changes members, and the move of leadership, is the leader's to do: other nodes
// refuse with CodeNoLeader. Every call may be repeated: what is done is answered
// as such.
type Membership interface {
	AddMember(m fsm.NewMember, timeout time.Duration) (fsm.MembersChanged, error)
	// RemoveMember returns when nobody needs the removed node any more. A leader
	// asked to remove itself hands over and refuses with CodeNoLeader.
	RemoveMember(id uint64, name string, timeout time.Duration) (fsm.MembersChanged, error)
	// MayRemoveMember tells whether RemoveMember would be taken.
	MayRemoveMember(id uint64, name string, timeout time.Duration) (fsm.MembersChanged, error)
	PromoteMember(id uint64, name string, timeout time.Duration) (fsm.MembersChanged, error)
	// TransferLeader returns when that node leads; "" is whoever is fit.
	TransferLeader(to string, timeout time.Duration) error
	// Drain lets the node serve nobody, and Undrain serve again.
	Drain(ctx context.Context) error
	Undrain(ctx context.Context) error
}

const (
	leaderPause = 50 * time.Millisecond // between looks for a leader
	drainMax    = 5 * time.Second       // for the clients of a node that is removed
)

// byLeader has the leader do what only it can: here, or by passing the request on.
// While leadership moves it looks for the next leader, until the time is over. do
// may be called again whatever became of it. uri, if not empty, stands for the
// request's own when it is passed on.
func (c *call) byLeader(uri string, do func(left time.Duration) error) error {
	end := time.Now().Add(c.timeout())
	unknown := false
	for {
		done, err := c.passOn(c.s.replica.LeaderClient(), uri, time.Until(end))
		if done && err == nil {
			return nil
		}
		if !done {
			err = do(time.Until(end))
		}
		p := asProblemOrNil(err)
		if p == nil {
			return nil
		}
		unknown = unknown || p.unknown
		passed := len(c.ctx.Request.Header.PeekCanonical(fieldForwarded)) > 0
		again := p.kind == kindOf(fsm.CodeNoLeader) || p.kind == kindOf(fsm.CodeCommitTimeout)
		if !again || passed || time.Until(end) < 2*leaderPause {
			return p.afterAll(unknown)
		}
		time.Sleep(leaderPause)
	}
}

// afterAll is what the last of several attempts says about all of them: it may have
// done nothing, and even been refused because of what an earlier one did.
func (p *problem) afterAll(unknown bool) *problem {
	if !unknown {
		return p
	}
	all := *p
	all.unknown = true
	if all.kind.status == http.StatusServiceUnavailable {
		all.kind = kindOf(fsm.CodeCommitTimeout)
	}
	return &all
}

func asProblemOrNil(err error) *problem {
	if err == nil {
		return nil
	}
	return asProblem(err)
}

// passOn sends the request to another node and takes over its answer; false when
// there is nobody to send it to, or it was passed on before. An error that it answers
// is an error.
func (c *call) passOn(client, uri string, timeout time.Duration) (bool, error) {
	if client == "" || len(c.ctx.Request.Header.PeekCanonical(fieldForwarded)) > 0 {
		return false, nil
	}
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	c.ctx.Request.CopyTo(req)
	req.Header.SetCanonical(fieldForwarded, c.s.nameField)
	req.Header.Del("Connection")
	if uri != "" {
		req.SetRequestURI(uri)
	}
	req.SetHost(client)
	if err := c.s.forwardTo(req, res, timeout); err != nil {
		return true, err
	}
	if res.StatusCode() >= http.StatusBadRequest {
		var said struct{ Code, Detail, Applied string }
		_ = json.Unmarshal(res.Body(), &said) // an empty detail is no harm
		return true, &problem{kind: kindNamed(said.Code), detail: said.Detail, unknown: said.Applied != "no"}
	}
	res.Header.Del("Connection")
	res.CopyTo(&c.ctx.Response)
	c.forwarded = true
	return true, nil
}

// forwardTo sends a request to another node.
func (s *Server) forwardTo(req *fasthttp.Request, res *fasthttp.Response, timeout time.Duration) error {
	err := s.forwarder.DoTimeout(req, res, max(timeout, 0)+forwardGrace)
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fasthttp.ErrNoFreeConns), errors.As(err, &dial) && dial.Op == "dial":
		return refuse(fsm.CodeNoLeader, "%s cannot be reached: %v", req.Host(), err)
	}
	return &problem{kind: kindOf(fsm.CodeCommitTimeout), unknown: true, detail: fmt.Sprintf("%s gave no answer to the forwarded request: %v", req.Host(), err)}
}

// kindNamed is the kind of a code that another node has answered.
func kindNamed(code string) *kind {
	for i := range kinds {
		if kinds[i].code == code {
			return &kinds[i]
		}
	}
	return kindOf(fsm.CodeCommitTimeout)
}

// addMember makes a node a member. The node itself asks so when it joins.
func (c *call) addMember() error {
	m, err := c.newMember()
	if err != nil {
		return err
	}
	return c.byLeader("", func(left time.Duration) error {
		ch, err := c.s.replica.AddMember(m, left)
		if err != nil {
			return err
		}
		return c.answerMembers(&ch)
	})
}

// newMember reads the body of addMember.
func (c *call) newMember() (m fsm.NewMember, err error) {
	r := jsonReader{b: c.ctx.Request.Body()}
	given := map[string]bool{}
	err = r.members(func(name []byte) error {
		v, err := r.value()
		if err != nil {
			return err
		}
		option := string(name)
		if given[option] {
			return invalid(option, "given twice")
		}
		given[option] = true
		var text []byte
		switch option {
		case "name":
			text, err = v.text(option)
			m.Name = string(text)
		case "peer":
			text, err = v.text(option)
			m.Peer = string(text)
		case "role":
			if text, err = v.text(option); err == nil && string(text) != "voter" && string(text) != "learner" {
				err = invalid(option, "want voter (when it has caught up) or learner (until it is promoted)")
			}
			m.Standby = string(text) == "learner"
		case "replace":
			m.Replace, err = v.boolean(option)
		case "join":
			if text, err = v.text(option); err == nil {
				if m.Join, err = strconv.ParseUint(string(text), 16, 64); err != nil || m.Join == 0 {
					err = invalid(option, "want up to 16 hexadecimal digits, not all 0")
				}
			}
		case "cluster_token":
			text, err = v.text(option)
			m.Token = string(text)
		case "feature_level":
			level, ok := parseUint(v.b)
			if v.kind != isNumber || !ok || level < 1 || level > 1<<31 {
				err = invalid(option, "want a whole number from 1 to %d", 1<<31)
			}
			m.FeatureLevel = uint32(level)
		default:
			err = invalid(option, "unknown here; a member has name, peer, role and replace, and from the node itself join, cluster_token and feature_level")
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return m, err
	}
	return m, checkMember(m)
}

func checkMember(m fsm.NewMember) error {
	if m.Name == "" || len(m.Name) > fsm.NameMax || strings.ContainsAny(m.Name, "=,/ \t\r\n") {
		return invalid("name", "want 1 to %d bytes without spaces, commas, slashes and equals signs", fsm.NameMax)
	}
	u, err := url.Parse(m.Peer)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Path != "" || len(m.Peer) > 1024 {
		return invalid("peer", "want a URL such as http://host:9080")
	}
	return nil
}

// member finds out whom the path means: a name, or an id in hexadecimal digits.
// The id is what counts from then on: a request may be repeated when the name is
// not known any more.
func (c *call) member() (id uint64, name string, err error) {
	name = string(c.params[0])
	id, parsed := strconv.ParseUint(name, 16, 64)
	for _, n := range c.s.replica.Cluster().Nodes {
		if n.Name == name {
			if id, err := strconv.ParseUint(n.ID, 16, 64); err == nil {
				return id, name, nil
			}
		}
	}
	if parsed != nil || len(name) != 16 {
		return 0, name, nil
	}
	return id, name, nil
}

// memberURI is how the leader is asked about a member: by its id.
func (c *call) memberURI(id uint64, rest string) string {
	if id == 0 {
		return ""
	}
	uri := fmt.Sprintf("/v1/cluster/members/%016x%s", id, rest)
	if q := c.ctx.URI().QueryString(); len(q) > 0 {
		uri += "?" + string(q)
	}
	return uri
}

// removeMember removes a member: first its clients go elsewhere, if it lives. If it
// stays it serves them again; if nobody knows, the error says so, and what to do.
func (c *call) removeMember() error {
	id, name, err := c.member()
	if err != nil {
		return err
	}
	passed := len(c.ctx.Request.Header.PeekCanonical(fieldForwarded)) > 0
	was, drained := c.memberByID(id).Draining, ""
	err = c.byLeader(c.memberURI(id, ""), func(left time.Duration) error {
		end := time.Now().Add(left)
		may, err := c.s.replica.MayRemoveMember(id, name, left)
		if err != nil {
			return err
		}
		if !may.Already && c.drainOther(may.Member.Name, false, min(drainMax, time.Until(end)/2)) == nil {
			drained = may.Member.Name
		}
		ch, err := c.s.replica.RemoveMember(id, name, time.Until(end))
		if err != nil {
			return err
		}
		return c.answerMembers(&ch)
	})
	p := asProblemOrNil(err)
	if p == nil {
		return nil
	}
	busy := p.kind.status == http.StatusServiceUnavailable
	switch {
	case p.unknown && passed || busy && passed:
		// Whoever passed it on goes on.
	case p.unknown && id != 0:
		p.detail += fmt.Sprintf("; the member may be removed or not, and serve nobody. Ask again by the id %016x: that is answered as done if it is", id)
	case p.unknown || was:
	case busy:
		_ = c.drainOther(c.memberByID(id).Name, true, drainMax) // another node may have drained it; if this fails, it is seen to drain
	case drained != "":
		_ = c.drainOther(drained, true, drainMax) // as above
	}
	return p
}

// memberByID is the member with an id, as this node knows it; empty when there is
// none.
func (c *call) memberByID(id uint64) ClusterNode {
	for _, n := range c.s.replica.Cluster().Nodes {
		if n.ID == fmt.Sprintf("%016x", id) {
			return n
		}
	}
	return ClusterNode{}
}

func (c *call) promoteMember() error {
	id, name, err := c.member()
	if err != nil {
		return err
	}
	return c.byLeader(c.memberURI(id, "/promote"), func(left time.Duration) error {
		ch, err := c.s.replica.PromoteMember(id, name, left)
		if err != nil {
			return err
		}
		return c.answerMembers(&ch)
	})
}

// answerMembers tells of a change, and who the members are now.
func (c *call) answerMembers(ch *fsm.MembersChanged) error {
	type line struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Role string `json:"role"`
		Peer string `json:"peer"`
	}
	of := func(m fsm.Member) line {
		role := "voter"
		if m.Learner {
			role = "learner"
		}
		return line{fmt.Sprintf("%016x", m.ID), m.Name, role, m.Peer}
	}
	all := make([]line, 0, len(ch.Members))
	for _, m := range ch.Members {
		all = append(all, of(m))
	}
	return c.answerValue(struct {
		Member    line   `json:"member"`
		Already   bool   `json:"already"`
		Index     uint64 `json:"index"`
		ClusterID string `json:"cluster_id"`
		Members   []line `json:"members"`
	}{of(ch.Member), ch.Already, ch.Index, c.s.replica.Cluster().ClusterID, all})
}
