package raftnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	stats "go.etcd.io/etcd/server/v3/etcdserver/api/v2stats"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/failpoint"
	"raftq/fsm"
	"raftq/snapshot"
)

// transport carries raft messages, batches and snapshots between members by
// rafthttp, and a small status each second beside it on the same listener.
type transport struct {
	n       *Node
	raft    *rafthttp.Transport
	ln      net.Listener
	srv     *http.Server
	peers   map[uint64]*peerLink // of the core's goroutine
	client  *http.Client
	lending chan struct{} // a place for each snapshot that a joining node fetches
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	errs    chan error
}

// peerLink is what there is of one peer beside rafthttp's own.
type peerLink struct {
	peer atomic.Pointer[string] // URL
	ask  chan struct{}          // for its status, now
	gone chan struct{}          // closed: it is no member any more
}

const (
	statusPath   = "/raftq/status"
	snapshotPath = "/raftq/snapshot"

	// As rafthttp's own requests have them.
	fieldFrom    = "X-Server-From"
	fieldCluster = "X-Etcd-Cluster-Id"

	pollEvery = time.Second
	pollAgain = 250 * time.Millisecond // after no answer

	// removedGrace is how long a removed peer's connections stay, so that it
	// learns from its own log, and its clients get their last answers.
	removedGrace = time.Second
)

func newTransport(n *Node, m *fsm.Machine) (*transport, error) {
	quiet := n.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	t := &transport{n: n, peers: map[uint64]*peerLink{}, errs: make(chan error, 1), lending: make(chan struct{}, lendingMax)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.client = newPeerClient()
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
	if err := timeStreams(t.raft); err != nil {
		return nil, err
	}
	t.setMembers(m.Members())
	mux := http.NewServeMux()
	mux.HandleFunc(statusPath, t.serveStatus)
	mux.HandleFunc(snapshotPath, t.serveSnapshot)
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
			// The one thing that rafthttp reports: a peer's answer that this node
			// was removed.
			t.n.log.Warn("a peer refuses this node", zap.Error(err))
			t.n.box.post(failed{ErrRemoved})
		case <-t.ctx.Done():
		}
	})
}

func newPeerClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}, Timeout: 2 * time.Second}
}

// setMembers follows the member table: connections to who is new, new addresses,
// none to who has gone. Names in addresses are looked up at each dial.
func (t *transport) setMembers(table []fsm.Member) {
	there := map[uint64]bool{}
	for _, m := range table {
		there[m.ID] = true
		p := t.peers[m.ID]
		switch {
		case m.ID == t.n.id:
		case p == nil:
			p = &peerLink{ask: make(chan struct{}, 1), gone: make(chan struct{})}
			p.peer.Store(&m.Peer)
			t.peers[m.ID] = p
			t.raft.AddPeer(types.ID(m.ID), []string{m.Peer})
			t.wg.Go(func() { t.poll(m.ID, p) })
		case *p.peer.Load() != m.Peer:
			p.peer.Store(&m.Peer)
			t.raft.UpdatePeer(types.ID(m.ID), []string{m.Peer})
		}
	}
	for id, p := range t.peers {
		if !there[id] {
			close(p.gone)
			delete(t.peers, id)
		}
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
	err := errors.New("the node is no peer")
	if t.raft.Get(types.ID(to)) != nil {
		err = t.sendFile(m, index, to)
	}
	if err != nil {
		t.n.log.Error("snapshot not sent", zap.Uint64("index", index), zap.Error(err))
		t.n.box.post(snapshotSent{to, false})
	}
}

func (t *transport) sendFile(m *pb.Message, index, to uint64) error {
	f, err := os.Open(snapshot.Path(t.n.dir.snapDir(), index))
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	t.n.held.hold(index)
	t.n.log.Info("sending a snapshot", zap.Uint64("index", index), zap.String("to", types.ID(to).String()), zap.Int64("bytes", st.Size()))
	sm := snap.NewMessage(m, f, st.Size())
	t.raft.SendSnapshot(sm)
	t.wg.Go(func() {
		<-sm.CloseNotify()
		t.n.held.drop(index)
	})
	return nil
}

// peerAsks reads who asks. A removed member that nobody needs any more is told so,
// which ends it.
func (t *transport) peerAsks(w http.ResponseWriter, r *http.Request) (from uint64, ok bool) {
	w.Header().Set(fieldCluster, types.ID(t.n.cluster).String())
	if cluster := r.Header.Get(fieldCluster); cluster != "" && cluster != types.ID(t.n.cluster).String() {
		http.Error(w, "another cluster", http.StatusPreconditionFailed)
		return 0, false
	}
	id, err := types.IDFromString(r.Header.Get(fieldFrom))
	if err == nil && t.n.isGone(uint64(id)) {
		http.Error(w, "removed member", http.StatusGone)
		return 0, false
	}
	return uint64(id), true
}

// serveStatus answers a peer's question.
func (t *transport) serveStatus(w http.ResponseWriter, r *http.Request) {
	from, ok := t.peerAsks(w, r)
	if !ok {
		return
	}
	ch := make(chan status, 1)
	if !t.n.box.post(statusAsked{from, func(s status) { ch <- s }}) {
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

// poll asks one peer for its status until it is gone.
func (t *transport) poll(id uint64, p *peerLink) {
	again := time.NewTimer(time.Second)
	defer again.Stop()
	for {
		again.Reset(pollAgain) // soon: it may just be starting
		peer, asked := *p.peer.Load(), clocks().boot
		switch s, err := fetchStatus(t.ctx, t.client, peer, t.n.id, t.n.cluster); {
		case errors.Is(err, ErrRemoved):
			t.n.log.Warn("a peer says that this node was removed", zap.String("peer", peer))
			t.n.box.post(failed{ErrRemoved})
		case errors.Is(err, errOtherCluster):
			t.n.log.Error("a peer belongs to another cluster", zap.String("peer", peer))
		case err == nil && s.ID == id:
			again.Reset(pollEvery)
			t.n.box.post(peerStatus{s, asked})
		}
		select {
		case <-again.C:
		case <-p.ask:
		case <-p.gone:
			select {
			case <-time.After(removedGrace):
				t.raft.RemovePeer(types.ID(id))
			case <-t.ctx.Done():
			}
			return
		case <-t.ctx.Done():
			return
		}
	}
}

var errOtherCluster = errors.New("it belongs to another cluster")

// fetchStatus asks a peer for its status.
func fetchStatus(ctx context.Context, client *http.Client, peer string, from, cluster uint64) (s status, err error) {
	res, err := askPeer(ctx, client, strings.TrimSuffix(peer, "/")+statusPath, from, cluster)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	return s, json.NewDecoder(res.Body).Decode(&s)
}

// askPeer gets a URL of a peer that is of the same cluster.
func askPeer(ctx context.Context, client *http.Client, url string, from, cluster uint64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(fieldFrom, types.ID(from).String())
	req.Header.Set(fieldCluster, types.ID(cluster).String())
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	ours := res.Header.Get(fieldCluster) == types.ID(cluster).String()
	switch {
	case res.StatusCode == http.StatusOK && ours:
		return res, nil
	case res.StatusCode == http.StatusGone && ours:
		err = ErrRemoved
	case res.StatusCode == http.StatusPreconditionFailed:
		err = errOtherCluster
	default:
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // the status says enough
		err = fmt.Errorf("status %d %s", res.StatusCode, strings.TrimSpace(string(text)))
	}
	_ = res.Body.Close() // read and done with
	return nil, err
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
	if p.IsIDRemoved(m.GetFrom()) {
		return removedSender{m.GetFrom()}
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
	if !p.n.deliver(e) {
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
	case checkConf(meta.GetConfState(), m.Members()) != nil:
		err = fmt.Errorf("snapshot file %s: %w", path, checkConf(meta.GetConfState(), m.Members()))
	default:
		failpoint.Hit(failpoint.InstallReceived)
		return m, nil
	}
	p.n.held.drop(meta.GetIndex())
	return nil, errorsJoinRemove(err, path)
}

// IsIDRemoved tells rafthttp whom to refuse for good.
func (p peerRaft) IsIDRemoved(id uint64) bool { return p.n.isGone(id) }

// removedSender is what rafthttp tells a removed member that sends a message.
type removedSender struct{ id uint64 }

func (e removedSender) Error() string { return fmt.Sprintf("a message of removed member %x", e.id) }

func (e removedSender) WriteTo(w http.ResponseWriter) {
	http.Error(w, "removed member", http.StatusForbidden)
}

func (p peerRaft) ReportUnreachable(id uint64) { p.n.box.post(unreachable{id}) }

func (p peerRaft) ReportSnapshot(id uint64, st raft.SnapshotStatus) {
	p.n.box.post(snapshotSent{id, st == raft.SnapshotFinish})
}
