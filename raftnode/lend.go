package raftnode

import (
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"

	"raftq/snapshot"
)

const (
	// lendingMax bounds the snapshots that are fetched from a node at once.
	lendingMax = 2
	// lendingWait is how long a node that joins waits for a new enough snapshot; it
	// asks again.
	lendingWait = 20 * time.Second

	fieldSnapshot = "Raftq-Snapshot-Index"
)

// serveSnapshot hands a snapshot file to a node that joins: its first state. It is
// of an index at which that node was a member already, so that raft there takes
// everything that follows.
func (t *transport) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	from, ok := t.peerAsks(w, r)
	if !ok {
		return
	}
	index, err := strconv.ParseUint(r.URL.Query().Get("min"), 10, 64)
	if err != nil {
		http.Error(w, "min: no index", http.StatusBadRequest)
		return
	}
	select {
	case t.lending <- struct{}{}:
		defer func() { <-t.lending }()
	default:
		http.Error(w, "other nodes fetch snapshots already", http.StatusServiceUnavailable)
		return
	}
	f, at := t.n.borrow(r, index)
	if f == nil {
		http.Error(w, "no snapshot of index "+strconv.FormatUint(index, 10)+" yet", http.StatusServiceUnavailable)
		return
	}
	defer t.n.held.drop(at)
	defer f.Close() // only read
	st, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	t.n.log.Info("a joining node fetches a snapshot", zap.Uint64("index", at), zap.String("to", strconv.FormatUint(from, 16)), zap.Int64("bytes", st.Size()))
	w.Header().Set(fieldSnapshot, strconv.FormatUint(at, 10))
	w.Header().Set("Content-Length", strconv.FormatInt(st.Size(), 10))
	_, _ = io.Copy(w, f) // who got less asks again
}

// borrow opens and holds the newest snapshot file, when it is of index or behind
// it; it lets one be taken and waits for it. nil: not in time.
func (n *Node) borrow(r *http.Request, index uint64) (*os.File, uint64) {
	end := time.After(lendingWait)
	tick := time.NewTicker(n.cfg.Tick)
	defer tick.Stop()
	n.box.post(snapshotAsked{index})
	for {
		if at := n.newest.Load(); at >= index {
			n.held.hold(at)
			if f, err := os.Open(snapshot.Path(n.dir.snapDir(), at)); err == nil {
				return f, at
			}
			n.held.drop(at) // a newer one has come meanwhile
		}
		select {
		case <-tick.C:
		case <-end:
			return nil, 0
		case <-r.Context().Done():
			return nil, 0
		case <-n.done:
			return nil, 0
		}
	}
}
