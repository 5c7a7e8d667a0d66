package raftnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	stats "go.etcd.io/etcd/server/v3/etcdserver/api/v2stats"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
	"raftq/snapshot"
)

// transport carries raft messages, batches and snapshots between members by
// rafthttp, and a small status each second beside it on the same listener.
type transport struct {
	n      *Node
	raft   *rafthttp.Transport
	ln     net.Listener
	srv    *http.Server
	peers  map[uint64]*statusPoll
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	errs   chan error
}

// statusPoll asks one peer for its status.
type statusPoll struct {
	url string
	ask chan struct{}
}

const statusPath = "/raftq/status"

func newTransport(n *Node, members []fsm.Member) (*transport, error) {
	quiet := n.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	t := &transport{n: n, peers: map[uint64]*statusPoll{}, errs: make(chan error, 1)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}, Timeout: 2 * time.Second}
	self := types.ID(n.id)
	t.raft = &rafthttp.Transport{
		Logger:      quiet,
		DialTimeout: time.Second,
		ID:          self,
		ClusterID:   types.ID(n.cluster),
		Raft:        peerRaft{n},
		Snapshotter: snap.New(quiet, n.dir.snapDir()),
		ServerStats: stats.NewServerStats(n.cfg.Name, self.String()),
		LeaderStats: stats.NewLeaderStats(quiet, self.String()),
		ErrorC:      t.errs,
	}
	u, err := types.NewURLs([]string{n.cfg.AdvertisePeer})
	if err != nil {
		return nil, fmt.Errorf("advertise-peer %q: %w", n.cfg.AdvertisePeer, err)
	}
	t.raft.URLs = u
	if t.ln, err = rafthttp.NewListener(url.URL{Scheme: "http", Host: n.cfg.ListenPeer}, nil); err != nil {
		return nil, fmt.Errorf("listen-peer %s: %w", n.cfg.ListenPeer, err)
	}
	if err := t.raft.Start(); err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.ID != n.id {
			t.peers[m.ID] = &statusPoll{url: strings.TrimSuffix(m.Peer, "/") + statusPath, ask: make(chan struct{}, 1)}
			t.raft.AddPeer(types.ID(m.ID), []string{m.Peer})
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc(statusPath, t.serveStatus)
	mux.Handle("/", t.raft.Handler())
	t.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: zap.NewStdLog(quiet)}
	return t, nil
}

func (t *transport) start() {
	t.wg.Go(func() {
		if err := t.srv.Serve(t.ln); err != nil && err != http.ErrServerClosed {
			t.n.box.post(failed{fmt.Errorf("peer listener: %w", err)})
		}
	})
	t.wg.Go(func() {
		select {
		case err := <-t.errs:
			t.n.box.post(failed{fmt.Errorf("peers: %w", err)})
		case <-t.ctx.Done():
		}
	})
	for id, p := range t.peers {
		t.wg.Go(func() { t.poll(id, p) })
	}
}

func (t *transport) stop() {
	t.cancel()
	t.raft.Stop()
	_ = t.srv.Close() // streams never end by themselves
	t.client.CloseIdleConnections()
	t.wg.Wait()
}

// send takes messages over; they are read-only from here on, because rafthttp
// marshals them in other goroutines.
func (t *transport) send(ms []*pb.Message) { t.raft.Send(ms) }

// sendSnapshot streams the file of a MsgSnap. raft hears how it ended in every
// case, or the follower would stay in StateSnapshot for ever.
func (t *transport) sendSnapshot(m *pb.Message) {
	index, to := m.GetSnapshot().GetMetadata().GetIndex(), m.GetTo()
	f, err := os.Open(snapshot.Path(t.n.dir.snapDir(), index))
	if err == nil {
		var st os.FileInfo
		if st, err = f.Stat(); err == nil {
			t.n.held.hold(index)
			t.n.log.Info("sending a snapshot", zap.Uint64("index", index), zap.String("to", types.ID(to).String()), zap.Int64("bytes", st.Size()))
			sm := snap.NewMessage(m, f, st.Size())
			t.raft.SendSnapshot(sm)
			t.wg.Go(func() {
				<-sm.CloseNotify()
				t.n.held.drop(index)
			})
			return
		}
		f.Close()
	}
	t.n.log.Error("snapshot not sent", zap.Uint64("index", index), zap.Error(err))
	t.n.box.post(snapshotSent{to, false})
}

// serveStatus answers a peer's question.
func (t *transport) serveStatus(w http.ResponseWriter, r *http.Request) {
	ch := make(chan status, 1)
	if !t.n.box.post(statusAsked{func(s status) { ch <- s }}) {
		http.Error(w, errStopped.Error(), http.StatusServiceUnavailable)
		return
	}
	s := <-ch
	s.Cluster = t.n.cluster
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // the peer asks again
}

// askAll asks every peer at once, without waiting for the next second.
func (t *transport) askAll() {
	for _, p := range t.peers {
		select {
		case p.ask <- struct{}{}:
		default:
		}
	}
}

func (t *transport) poll(id uint64, p *statusPoll) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if s, err := t.fetch(p.url); err == nil && s.ID == id {
			if s.Cluster != t.n.cluster {
				t.n.log.Error("a peer belongs to another cluster", zap.String("peer", p.url))
			} else {
				t.n.box.post(peerStatus{s})
			}
		}
		select {
		case <-tick.C:
		case <-p.ask:
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *transport) fetch(url string) (s status, err error) {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodGet, url, nil)
	if err != nil {
		return s, err
	}
	req.Header.Set("X-Server-From", types.ID(t.n.id).String())
	res, err := t.client.Do(req)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return s, fmt.Errorf("status %d", res.StatusCode)
	}
	return s, json.NewDecoder(res.Body).Decode(&s)
}

// peerRaft is the node as rafthttp sees it. Nothing here blocks: rafthttp calls
// some of it back from the goroutine that sends.
type peerRaft struct{ n *Node }

// Process takes a message in: batches apart from raft's messages, and a
// snapshot only when its file is whole and decodes, because raft cannot undo it.
func (p peerRaft) Process(_ context.Context, m *pb.Message) error {
	if m.GetTo() != p.n.id {
		return fmt.Errorf("message for %x came to %x", m.GetTo(), p.n.id)
	}
	e := received{m: m}
	switch m.GetType() {
	case pb.MsgProp:
		data := make([][]byte, 0, len(m.GetEntries()))
		for _, ent := range m.GetEntries() {
			data = append(data, ent.GetData())
		}
		p.n.box.post(batchesCame{m.GetFrom(), data})
		return nil
	case pb.MsgSnap:
		machine, err := p.load(m.GetSnapshot())
		if err != nil {
			p.n.log.Error("received snapshot refused", zap.Error(err))
			return err
		}
		e.machine = machine
	}
	if !p.n.box.post(e) {
		return errStopped
	}
	return nil
}

func (p peerRaft) load(s *pb.Snapshot) (*fsm.Machine, error) {
	meta := s.GetMetadata()
	path := snapshot.Path(p.n.dir.snapDir(), meta.GetIndex())
	p.n.held.hold(meta.GetIndex()) // until it is installed, or raft ignores it
	m, h, err := readMachine(path)
	switch {
	case err != nil:
	case h.ClusterID != p.n.cluster || h.Index != meta.GetIndex() || h.Term != meta.GetTerm():
		err = fmt.Errorf("snapshot file %s is of cluster %x, index %d, term %d, not %x, %d, %d", path, h.ClusterID, h.Index, h.Term, p.n.cluster, meta.GetIndex(), meta.GetTerm())
	default:
		return m, nil
	}
	p.n.held.drop(meta.GetIndex())
	return nil, errorsJoinRemove(err, path)
}

// IsIDRemoved tells rafthttp whom to refuse for good.
func (p peerRaft) IsIDRemoved(uint64) bool { return false }

func (p peerRaft) ReportUnreachable(id uint64) { p.n.box.post(unreachable{id}) }

func (p peerRaft) ReportSnapshot(id uint64, st raft.SnapshotStatus) {
	p.n.box.post(snapshotSent{id, st == raft.SnapshotFinish})
}
