package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"raftq/fsm"
)

// transferLeader moves leadership to the member that is named, or to any.
func (c *call) transferLeader() error {
	to, _, err := c.nodeBody("to", "")
	if err != nil {
		return err
	}
	return c.byLeader("", func(left time.Duration) error {
		if err := c.s.replica.TransferLeader(to, left); err != nil {
			return err
		}
		return c.answerValue(struct {
			Leader string `json:"leader"`
		}{c.s.replica.Leader()})
	})
}

// drain lets a node serve nobody, or again: this one, or one that is named.
func (c *call) drain() error {
	node, undo, err := c.nodeBody("node", "undo")
	if err != nil {
		return err
	}
	cl := c.s.replica.Cluster()
	if node == "" {
		node = c.s.replica.Name()
	}
	if node != c.s.replica.Name() {
		for _, n := range cl.Nodes {
			if n.Name != node {
				continue
			}
			done, err := c.passOn(n.Client, "", c.timeout())
			if !done && err == nil {
				return refuse(fsm.CodeNoLeader, "the client address of %s is not known here", node)
			}
			return err
		}
		return refuse(fsm.CodeMemberNotFound, "no member is named %q", node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout())
	defer cancel()
	if undo {
		err = c.s.replica.Undrain(ctx)
	} else if !othersServe(&cl, node) {
		return refuse(fsm.CodeQuorumAtRisk, "no other voter is alive: nobody would serve")
	} else {
		err = c.s.replica.Drain(ctx)
	}
	var refused *fsm.Error
	if errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return &problem{kind: kindOf(fsm.CodeCommitTimeout), unknown: true, detail: "not everything under way here has ended in time: " + err.Error()}
	}
	return c.answerValue(struct {
		Node     string `json:"node"`
		Draining bool   `json:"draining"`
	}{node, !undo})
}

func othersServe(cl *Cluster, node string) bool {
	for _, n := range cl.Nodes {
		if n.Name != node && n.Alive && n.Role == "voter" && !n.Draining {
			return true
		}
	}
	return false
}

// drainOther asks another member to serve nobody, or again; nil when it does.
func (c *call) drainOther(name string, undo bool, timeout time.Duration) error {
	for _, n := range c.s.replica.Cluster().Nodes {
		if n.Name != name || n.Client == "" || !n.Alive {
			continue
		}
		req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(res)
		req.Header.SetMethod(http.MethodPost)
		req.SetRequestURI("http://" + n.Client + "/v1/cluster/drain?timeout=" + formatDuration(max(timeout.Milliseconds(), 1)))
		req.Header.SetCanonical(fieldForwarded, c.s.nameField)
		req.Header.SetContentTypeBytes(typeJSON)
		fmt.Fprintf(req.BodyWriter(), `{"undo":%v}`, undo)
		if err := c.s.forwardTo(req, res, timeout); err != nil {
			return err
		}
		if res.StatusCode() != http.StatusOK {
			return fmt.Errorf("%s does not drain: %s", name, res.Body())
		}
		return nil
	}
	return errors.New("it is not alive")
}

// nodeBody reads an optional body with an optional node's name and flag.
func (c *call) nodeBody(nameField, flagField string) (name string, flag bool, err error) {
	body := c.ctx.Request.Body()
	if len(body) == 0 {
		return "", false, nil
	}
	r := jsonReader{b: body}
	err = r.members(func(field []byte) error {
		v, err := r.value()
		switch {
		case err != nil:
		case string(field) == nameField:
			var text []byte
			text, err = v.text(nameField)
			name = string(text)
		case flagField != "" && string(field) == flagField:
			flag, err = v.boolean(flagField)
		default:
			err = invalid(string(field), "unknown here")
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	return name, flag, err
}
