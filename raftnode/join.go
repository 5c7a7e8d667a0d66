package raftnode

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
	"raftq/snapshot"
	"raftq/wal"
)

// Joined is what a member answers a node that joins.
type Joined struct {
	ID, Cluster uint64
	Index       uint64   // at which the node is a member, or behind it
	Peers       []string // peer URLs of the members
}

// Join makes the data directory of a node that joins a running cluster, if there
// is none: ask brings its wish to a member; then it fetches a snapshot of a state
// in which it is a member, from any of the others. Open goes on from there. What a
// crash or ctx cuts short is taken up by the next call: until the directory is
// whole the node asks as the same one, and is given the same id.
func Join(ctx context.Context, cfg Config, ask func(context.Context, fsm.NewMember) (Joined, error)) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	dir, err := openDataDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer dir.close() // only a lock
	if there, err := dir.hasLog(); err != nil || there {
		return err
	}
	nonce, err := dir.joinNonce()
	if err != nil {
		return err
	}
	j, err := ask(ctx, fsm.NewMember{Name: cfg.Name, Peer: cfg.AdvertisePeer, Join: nonce, Token: cfg.ClusterToken, FeatureLevel: fsm.FeatureLevel})
	if err != nil {
		return err
	}
	cfg.Logger.Info("the cluster takes this node as a member", zap.String("id", fmt.Sprintf("%016x", j.ID)), zap.String("cluster", fmt.Sprintf("%016x", j.Cluster)))
	self := identity{identityFormat, j.Cluster, j.ID, cfg.Name, tokenHash(cfg.ClusterToken)}
	if err := dir.build(cfg, self, func(snaps string) (wal.Marker, error) { return fetchSnapshot(ctx, cfg, j, snaps) }); err != nil {
		return fmt.Errorf("join as %s: %w", cfg.Name, err)
	}
	return errors.Join(removeFile(dir.join()), removeFile(dir.rejoin()))
}

// joinNonce is what the node tells by which a member knows it again, drawn once
// for a data directory.
func (d *dataDir) joinNonce() (uint64, error) {
	b, err := os.ReadFile(d.join())
	if errors.Is(err, os.ErrNotExist) {
		var drawn [8]byte
		_, _ = rand.Read(drawn[:]) // never fails
		b = fmt.Appendf(nil, "%016x\n", max(binary.BigEndian.Uint64(drawn[:]), 1))
		err = writeFile(d.join(), b)
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", d.join(), err)
	}
	return n, nil
}

// fetchSnapshot fetches a node's first state into snaps, from whichever peer has
// it first.
func fetchSnapshot(ctx context.Context, cfg Config, j Joined, snaps string) (wal.Marker, error) {
	client := newPeerClient()
	client.Timeout = 0 // a state may be large; connections have their own
	defer client.CloseIdleConnections()
	for {
		var last error
		for _, peer := range j.Peers {
			if peer == cfg.AdvertisePeer {
				continue
			}
			m, err := fetchSnapshotFrom(ctx, client, peer, j, snaps)
			if err == nil || errors.Is(err, ErrRemoved) || ctx.Err() != nil {
				return m, err
			}
			cfg.Logger.Warn("no snapshot from a member; asking the next", zap.String("peer", peer), zap.Error(err))
			last = err
		}
		if last == nil {
			return wal.Marker{}, errors.New("the cluster has no other member to fetch a snapshot from")
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return wal.Marker{}, fmt.Errorf("no snapshot from any member: %w", last)
		}
	}
}

func fetchSnapshotFrom(ctx context.Context, client *http.Client, peer string, j Joined, snaps string) (m wal.Marker, err error) {
	res, err := askPeer(ctx, client, strings.TrimSuffix(peer, "/")+snapshotPath+"?min="+strconv.FormatUint(j.Index, 10), j.ID, j.Cluster)
	if err != nil {
		return m, err
	}
	defer res.Body.Close()
	index, err := strconv.ParseUint(res.Header.Get(fieldSnapshot), 10, 64)
	if err != nil || index < j.Index {
		return m, fmt.Errorf("it sends a snapshot of index %q", res.Header.Get(fieldSnapshot))
	}
	path := snapshot.Path(snaps, index)
	if err := receiveFile(path, res.Body, res.ContentLength); err != nil {
		return m, errors.Join(err, removeFile(path))
	}
	machine, h, err := readMachine(path)
	if err == nil && (h.ClusterID != j.Cluster || h.Index != index) {
		err = fmt.Errorf("the snapshot is of cluster %x at %d, not %x at %d", h.ClusterID, h.Index, j.Cluster, index)
	}
	if err == nil {
		if _, ok := machine.Member(j.ID); !ok {
			err = fmt.Errorf("in the snapshot at %d node %x is no member", index, j.ID)
		}
	}
	if err != nil {
		return m, errors.Join(err, removeFile(path))
	}
	return wal.Marker{Index: h.Index, Term: h.Term, ConfState: confOf(machine.Members())}, nil
}

// receiveFile writes a file of a certain size, durably but for its name.
func receiveFile(path string, r io.Reader, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, r)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of %d came", n, size)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// build makes the log directory aside: first puts a snapshot file into it and
// says which; a log begins there. Then it is renamed, so that it is there whole or
// not at all.
func (d *dataDir) build(cfg Config, self identity, first func(snaps string) (wal.Marker, error)) error {
	tmp := filepath.Join(d.path, "log.tmp")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	// A note of an earlier log would judge this one.
	if err := removeFile(d.note()); err != nil {
		return err
	}
	snaps := filepath.Join(tmp, "snap")
	if err := os.MkdirAll(snaps, 0o700); err != nil {
		return err
	}
	marker, err := first(snaps)
	if err != nil {
		return err
	}
	meta, err := json.Marshal(self)
	if err != nil {
		return err
	}
	opts := wal.Options{Dir: filepath.Join(tmp, "wal"), NotePath: d.note(), SegmentBytes: cfg.SegmentBytes, ArchiveDir: cfg.WALArchive, Logger: cfg.Logger}
	if opts.BootID, err = readBootID(); err != nil {
		return err
	}
	hs := &pb.HardState{Term: new(marker.Term), Vote: new(uint64(0)), Commit: new(marker.Index)}
	// The log is closed again before the rename: a directory renamed under an
	// open one breaks its next segment.
	if err := wal.Create(opts, meta, hs, marker); err != nil {
		return err
	}
	if err := removeFile(d.note()); err != nil {
		return err
	}
	for _, dir := range []string{snaps, opts.Dir, tmp} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, filepath.Join(d.path, "log")); err != nil {
		return err
	}
	return syncDir(d.path)
}

// genesis makes the log directory of a first member: a snapshot at index 1, term
// 1, the same bytes on all first members.
func genesis(dir *dataDir, cfg Config) error {
	if err := cfg.checkGenesis(); err != nil {
		return err
	}
	if _, err := os.Stat(dir.boots()); err == nil {
		return &DataError{filepath.Join(dir.path, "log"), "this node has run before, and its log is gone; it must not begin again", joinAnew}
	}
	if r, err := rejoining(dir); err != nil || r != nil {
		return errors.Join(err, errors.New("this node is on its way back as a new member, because its log is damaged; it must not begin again"))
	}
	members, cluster := cfg.members()
	self := identity{identityFormat, cluster, nodeID(cfg.ClusterToken, cfg.Name), cfg.Name, ""}
	if err := refuseWiped(self, members); err != nil && seeded != "wiped-node-votes" {
		return err
	}
	return dir.build(cfg, self, func(snaps string) (wal.Marker, error) {
		machine := fsm.New(members)
		pos := machine.Position()
		conf := confOf(machine.Members())
		_, err := snapshot.Write(snaps, snapshot.Header{ClusterID: cluster, Index: pos.Index, Term: pos.Term, ConfState: conf}, nil, machine.Encode)
		return wal.Marker{Index: pos.Index, Term: pos.Term, ConfState: conf}, err
	})
}

// refuseWiped asks the other first members, as far as they run, whether they know
// this node already. Then its disk was lost: it has forgotten what it had promised
// and may not come back as the same.
func refuseWiped(self identity, members []fsm.Member) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client := newPeerClient()
	defer client.CloseIdleConnections()
	answers := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID == self.Node {
			continue
		}
		wg.Go(func() {
			s, err := fetchStatus(ctx, client, m.Peer, self.Node, self.Cluster)
			switch {
			case errors.Is(err, ErrRemoved):
				answers[i] = err
			case err == nil && s.Yours != 0:
				answers[i] = fmt.Errorf("%s knows start %d of node %s, so this empty data directory is not its first: a node that lost its disk comes back only as a new member (remove the old one, start this with --join)", m.Name, s.Yours>>32, self.Name)
			}
		})
	}
	wg.Wait()
	return errors.Join(answers...)
}
