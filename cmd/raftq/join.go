package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"raftq/client"
	"raftq/fsm"
	"raftq/raftnode"
)

const (
	joinAgain   = 500 * time.Millisecond // between rounds through the members
	joinTimeout = 20 * time.Second       // for one look at the members

	// joinAnswer is for one answer. A member passes the request on to the leader that it
	// knows; if that one is this node, in its last life, nobody answers before another
	// one leads. Asking again does no harm.
	joinAnswer = 5 * time.Second
)

// joinCluster makes the data directory of a node that joins, if it has none. It
// asks until a member takes it, one refuses it for good, or a signal comes.
func joinCluster(cfg serveConfig, log *zap.Logger, signals <-chan os.Signal) error {
	members, err := client.New(strings.Join(cfg.join, ","), client.WithPolicy(client.Ordered), client.WithRetryFor(0), client.WithUserAgent("raftq/"+version()))
	if err != nil {
		return err
	}
	defer members.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	joined := make(chan error, 1)
	go func() {
		joined <- raftnode.Join(ctx, cfg.node, func(ctx context.Context, m fsm.NewMember) (raftnode.Joined, error) {
			m.Replace, m.Standby = cfg.replace, cfg.standby
			return askToJoin(ctx, members, m, log)
		})
	}()
	select {
	case err := <-joined:
		return err
	case s := <-signals:
		cancel()
		return errors.Join(fmt.Errorf("%v: ended before the node has joined; started again it goes on", s), <-joined)
	}
}

// askToJoin asks the members, one after the other, again and again. Each may be
// asked twice: they know the node by what it has drawn.
func askToJoin(ctx context.Context, members *client.Client, m fsm.NewMember, log *zap.Logger) (raftnode.Joined, error) {
	role := "voter"
	if m.Standby {
		role = "learner"
	}
	r := withJSON(client.Request{Method: http.MethodPost, Path: "/v1/cluster/members", Query: url.Values{"timeout": {joinAnswer.String()}},
		Repeat: client.RepeatAlways, Attempt: joinAnswer + changeGrace},
		map[string]any{"name": m.Name, "peer": m.Peer, "role": role, "replace": m.Replace, "join": strconv.FormatUint(m.Join, 16), "cluster_token": m.Token, "feature_level": m.FeatureLevel})
	for {
		ans, err := members.Do(ctx, r)
		var refused *client.Error
		switch {
		case err == nil:
			return joinedOf(ans.Body)
		case errors.As(err, &refused) && !refused.Retryable && refused.Applied != client.Unknown && refused.Code != client.ErrUnreachable:
			return raftnode.Joined{}, clientError{err}
		}
		log.Warn("not joined yet", zap.Error(err))
		select {
		case <-time.After(joinAgain):
		case <-ctx.Done():
			return raftnode.Joined{}, ctx.Err()
		}
	}
}

// joinedOf reads a member's answer.
func joinedOf(text []byte) (j raftnode.Joined, err error) {
	var got client.MembersChanged
	if err := json.Unmarshal(text, &got); err != nil {
		return j, fmt.Errorf("the member's answer is not understood: %w", err)
	}
	var err1, err2 error
	j.ID, err1 = strconv.ParseUint(got.Member.ID, 16, 64)
	j.Cluster, err2 = strconv.ParseUint(got.ClusterID, 16, 64)
	if err := errors.Join(err1, err2); err != nil {
		return j, fmt.Errorf("the member's answer is not understood: %w", err)
	}
	j.Index = got.Index
	for _, m := range got.Members {
		j.Peers = append(j.Peers, m.Peer)
	}
	return j, nil
}
