package raftnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"raftq/snapshot"
)

// Rejoin is what a node keeps that comes back as a new member because its log lost
// what it had promised: it may neither vote nor serve with that. It is in the data
// directory from before the log is set aside until the new one is there.
type Rejoin struct {
	Why     string   `json:"why"`
	Aside   string   `json:"aside"` // the directory with the damaged log, as a data directory of its own
	Cluster uint64   `json:"cluster"`
	Standby bool     `json:"standby,omitempty"` // it was a learner that is not to become a voter by itself
	Peers   []string `json:"peers"`             // peer URLs of the others, as last known
	Clients []string `json:"clients"`           // their client addresses
}

func (d *dataDir) rejoin() string { return filepath.Join(d.path, "rejoin") }

// Rejoining returns what a node has begun that comes back as a new member, nil when
// there is nothing of the kind. Join ends it.
func Rejoining(dataDir string) (*Rejoin, error) { return rejoining(dirOf(dataDir)) }

func rejoining(d *dataDir) (*Rejoin, error) {
	// With a log it is either not begun, and the log as damaged as before, or done.
	if there, err := d.hasLog(); err != nil || there {
		return nil, err
	}
	b, err := os.ReadFile(d.rejoin())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var r Rejoin
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.rejoin(), err)
	}
	return &r, nil
}

// LastKnown reads from a data directory whose log is damaged who the other members
// were: from the newest snapshot that is whole, and from the first members.
func LastKnown(cfg Config, why error) (*Rejoin, error) {
	r := &Rejoin{Why: why.Error()}
	if len(cfg.InitialCluster) > 0 {
		_, r.Cluster = cfg.members()
		for _, m := range cfg.InitialCluster {
			if m.Name != cfg.Name {
				r.Peers = append(r.Peers, m.Peer)
			}
		}
	}
	files, err := snapshot.List(dirOf(cfg.DataDir).snapDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		machine, h, err := readMachine(f.Path)
		if err != nil {
			continue // an older one knows less, and something
		}
		r.Cluster = h.ClusterID
		for _, m := range machine.Members() {
			if m.Name == cfg.Name {
				r.Standby = m.Standby
				continue
			}
			if !slices.Contains(r.Peers, m.Peer) {
				r.Peers = append(r.Peers, m.Peer)
			}
			if s, ok := machine.Session(m.ID); ok && s.Start.Client != "" {
				r.Clients = append(r.Clients, s.Start.Client)
			}
		}
		break
	}
	return r, nil
}

// AskClients asks the peers for their client addresses and adds them.
func (r *Rejoin) AskClients(ctx context.Context) {
	client := newPeerClient()
	defer client.CloseIdleConnections()
	for _, peer := range r.Peers {
		s, err := fetchStatus(ctx, client, peer, 0, r.Cluster)
		if err == nil && s.Client != "" && !slices.Contains(r.Clients, s.Client) {
			r.Clients = append(r.Clients, s.Client)
		}
	}
}

// SetAside moves the damaged log into a directory of its own within the data
// directory, and deletes nothing. From then on the node cannot start but as a new
// member. Cut short by a crash it may be called again.
func (r *Rejoin) SetAside(dataDir string) error {
	d, err := openDataDir(dataDir)
	if err != nil {
		return err
	}
	defer d.close() // only a lock
	whole, err := filepath.Abs(d.path)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		r.Aside = filepath.Join(whole, fmt.Sprintf("damaged-%d", n))
		if _, err := os.Stat(filepath.Join(r.Aside, "log")); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(d.rejoin(), append(b, '\n')); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Aside, 0o700); err != nil {
		return err
	}
	// The log last: as long as it is there nothing has happened.
	for _, path := range []string{d.note(), d.boots(), filepath.Join(d.path, "log")} {
		if err := os.Rename(path, filepath.Join(r.Aside, filepath.Base(path))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return errors.Join(syncDir(r.Aside), syncDir(d.path))
}
