package client

import (
	"context"
	"net/http"
)

// NewMember is a node to be added to the cluster.
type NewMember struct {
	Name    string // unique
	Peer    string // URL by which the other nodes reach it, such as http://h4:9080
	Learner bool   // stays one until it is promoted; else it becomes a voter when it has caught up
	Replace bool   // a dead member of that name is removed first
}

// MemberLine is a line of the member table.
type MemberLine struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Role string `json:"role"` // voter or learner
	Peer string `json:"peer"`
}

// MembersChanged is what became of a change, and who the members are now.
type MembersChanged struct {
	Member    MemberLine   `json:"member"`  // whom it was about
	Already   bool         `json:"already"` // it was so before
	Index     uint64       `json:"index"`   // of the log, since when it is so
	ClusterID string       `json:"cluster_id"`
	Members   []MemberLine `json:"members"`
}

// AddMember adds a member. A node that joins does so itself; this makes its place
// before it is started.
func (c *Client) AddMember(ctx context.Context, m NewMember) (MembersChanged, error) {
	body := map[string]any{"name": m.Name, "peer": m.Peer}
	if m.Learner {
		body["role"] = "learner"
	}
	if m.Replace {
		body["replace"] = true
	}
	var got MembersChanged
	err := c.change(ctx, http.MethodPost, "/members", body, &got)
	return got, err
}

// RemoveMember removes a member, by its name or id, and returns when its machine may
// go. It is refused with ErrQuorumAtRisk when the others could not go on.
func (c *Client) RemoveMember(ctx context.Context, member string) (MembersChanged, error) {
	var got MembersChanged
	err := c.change(ctx, http.MethodDelete, "/members/"+pathEscape(member), nil, &got)
	return got, err
}

// PromoteMember makes a learner that has caught up a voter.
func (c *Client) PromoteMember(ctx context.Context, member string) (MembersChanged, error) {
	var got MembersChanged
	err := c.change(ctx, http.MethodPost, "/members/"+pathEscape(member)+"/promote", nil, &got)
	return got, err
}

// TransferLeader moves leadership to a voter, by its name, or with "" to whoever is
// fit. It returns who leads now.
func (c *Client) TransferLeader(ctx context.Context, to string) (string, error) {
	body := map[string]any{}
	if to != "" {
		body["to"] = to
	}
	var got struct {
		Leader string `json:"leader"`
	}
	err := c.change(ctx, http.MethodPost, "/transfer-leader", body, &got)
	return got.Leader, err
}

// Drain makes a node serve nobody, so that it can be stopped, and returns when what
// was under way there has ended.
func (c *Client) Drain(ctx context.Context, node string) error { return c.drain(ctx, node, false) }

// Undrain lets a drained node serve again.
func (c *Client) Undrain(ctx context.Context, node string) error { return c.drain(ctx, node, true) }

func (c *Client) drain(ctx context.Context, node string, undo bool) error {
	if node == "" {
		return refuse("node: name the node to be drained")
	}
	return c.change(ctx, http.MethodPost, "/drain", map[string]any{"node": node, "undo": undo}, nil)
}

// change changes the cluster. All that may be repeated: what is done is answered as
// such.
func (c *Client) change(ctx context.Context, method, path string, body, out any) error {
	o := call{timeout: timeoutMax}
	r := c.begin(ctx, &o, method, "/v1/cluster"+path, RepeatAlways)
	if body != nil {
		if err := r.jsonBody(body); err != nil {
			return err
		}
	}
	_, err := c.send(ctx, &o, r, out)
	return err
}
