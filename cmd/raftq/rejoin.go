package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"raftq/client"
	"raftq/raftnode"
)

// setAside brings a node back whose log lost what it had promised. Nothing is
// touched before the others show that they have a majority without this node: the
// lost records are there.
func setAside(cfg serveConfig, why error, log *zap.Logger, signals <-chan os.Signal) (*raftnode.Node, error) {
	log.Error("the log is damaged: this node is to come back as a new member", zap.Error(why))
	back, err := raftnode.LastKnown(cfg.node, why)
	if err != nil {
		return nil, err
	}
	if err := awaitOthers(&cfg, back, log, signals); err != nil {
		return nil, fmt.Errorf("recover: %w; nothing was changed: %w", err, why)
	}
	if err := back.SetAside(cfg.node.DataDir); err != nil {
		return nil, fmt.Errorf("recover: set the log aside: %w", err)
	}
	return rejoin(cfg, back, log, signals)
}

// rejoin goes on when the damaged log is set aside: the node asks to take its own
// place as a new member. The leader removes the old one first, if those who are left
// can decide without it. So no more voters are needed than before, at any time.
func rejoin(cfg serveConfig, back *raftnode.Rejoin, log *zap.Logger, signals <-chan os.Signal) (*raftnode.Node, error) {
	log.Warn("the damaged log is set aside; nobody needs it once this node is a voter again", zap.String("at", back.Aside))
	if err := awaitOthers(&cfg, back, log, signals); err != nil {
		return nil, fmt.Errorf("recover: %w; the damaged log is in %s", err, back.Aside)
	}
	cfg.replace, cfg.standby = true, back.Standby
	if err := joinCluster(cfg, log, signals); err != nil {
		return nil, fmt.Errorf("recover: join %s again: %w; the damaged log is in %s", strings.Join(cfg.join, ","), err, back.Aside)
	}
	return raftnode.Open(cfg.node)
}

// awaitOthers finds out by which addresses the others are asked, and waits until they
// can decide without this node.
func awaitOthers(cfg *serveConfig, back *raftnode.Rejoin, log *zap.Logger, signals <-chan os.Signal) error {
	given := slices.Clone(cfg.join)
	if len(given)+len(back.Peers)+len(back.Clients) == 0 {
		return errors.New("no other member is known: name some with --join, by their addresses for clients; a cluster of this node alone is restored from a backup")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		look, done := context.WithTimeout(ctx, joinTimeout)
		back.AskClients(look)
		cfg.join = given
		for _, a := range back.Clients {
			if a != cfg.node.AdvertiseClient && !slices.Contains(cfg.join, a) {
				cfg.join = append(cfg.join, a)
			}
		}
		err := decideWithout(look, cfg, back)
		done()
		if err == nil {
			return nil
		}
		log.Warn("waiting for the others", zap.Strings("members", cfg.join), zap.Error(err))
		select {
		case <-time.After(joinAgain):
		case s := <-signals:
			return fmt.Errorf("%v while it waited for the others: %w", s, err)
		}
	}
}

// decideWithout tells whether the others can decide without this node.
func decideWithout(ctx context.Context, cfg *serveConfig, back *raftnode.Rejoin) error {
	if len(cfg.join) == 0 {
		return fmt.Errorf("none of %s says by which address clients reach it", strings.Join(back.Peers, ", "))
	}
	members, err := client.New(strings.Join(cfg.join, ","), client.WithPolicy(client.Ordered), client.WithRetryFor(0), client.WithAttemptTimeout(2*time.Second))
	if err != nil {
		return err
	}
	defer members.Close()
	c, err := members.Cluster(ctx)
	switch {
	case err != nil:
		return clientError{err}
	case back.Cluster != 0 && c.ClusterID != hex16(back.Cluster):
		return fmt.Errorf("they belong to cluster %s, and this node to %s", c.ClusterID, hex16(back.Cluster))
	case c.Leader == "" || c.Leader == cfg.node.Name:
		return errors.New("they have no leader")
	}
	// Only a majority can answer this, and this node is not of it.
	_, err = members.Do(ctx, client.Request{Method: http.MethodGet, Path: "/v1/queues", Query: url.Values{"limit": {"1"}, "consistency": {"strong"}}, Repeat: client.RepeatAlways})
	if err != nil {
		return fmt.Errorf("no majority without this node: %w", clientError{err})
	}
	return nil
}
