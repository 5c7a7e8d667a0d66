package consistency

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"

	"raftq/cluster"
)

// faultNet puts a proxy before each node's peer listener, so that a test can cut
// any directed link. Who is calling it reads from the first request of each
// connection: rafthttp and the status exchange name their node there.
type faultNet struct {
	mu      sync.Mutex
	proxies []*peerProxy
	ids     map[string]int // node id in hex → place
	cut     map[[2]int]bool
	spoil   func() int // where to flip a bit of a snapshot on its way; nil = nowhere
	spoiled int        // snapshots
}

type peerProxy struct {
	net   *faultNet
	to    int
	addr  string // of the node itself
	ln    net.Listener
	mu    sync.Mutex
	open  map[*link]bool
	ended bool
	wg    sync.WaitGroup
}

type link struct {
	from    int // -1 = not known yet
	in, out net.Conn
}

func (l *link) close() {
	l.in.Close()
	if l.out != nil {
		l.out.Close()
	}
}

// interpose sets the proxies up; call it before the cluster starts.
func interpose(t *testing.T, c *cluster.Cluster) *faultNet {
	t.Helper()
	f := &faultNet{ids: map[string]int{}, cut: map[[2]int]bool{}}
	for i, n := range c.Nodes {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := &peerProxy{net: f, to: i, addr: n.Peer, ln: ln, open: map[*link]bool{}}
		n.PeerVia = ln.Addr().String()
		f.proxies = append(f.proxies, p)
		p.wg.Go(p.run)
	}
	t.Cleanup(func() {
		for _, p := range f.proxies {
			p.ln.Close()
			p.mu.Lock()
			p.ended = true
			p.mu.Unlock()
			p.closeLinks(func(*link) bool { return true })
			p.wg.Wait()
		}
	})
	return f
}

// learn tells the ids of the nodes, from /v1/cluster.
func (f *faultNet) learn(name int, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids[strings.TrimLeft(id, "0")] = name
}

// isolate cuts all links of a node, both ways; heal mends all.
func (f *faultNet) isolate(node int) {
	f.mu.Lock()
	for i := range f.proxies {
		if i != node {
			f.cut[[2]int{i, node}], f.cut[[2]int{node, i}] = true, true
		}
	}
	f.mu.Unlock()
	for _, p := range f.proxies {
		p.closeLinks(func(l *link) bool { return f.isCut(l.from, p.to) })
	}
}

// cutLink cuts the connections that one node makes to another.
func (f *faultNet) cutLink(from, to int) {
	f.mu.Lock()
	f.cut[[2]int{from, to}] = true
	f.mu.Unlock()
	f.proxies[to].closeLinks(func(l *link) bool { return f.isCut(l.from, to) })
}

func (f *faultNet) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.cut)
}

// isCut tells whether a link is cut; an unknown caller counts as cut while
// anything is, so that nothing slips through.
func (f *faultNet) isCut(from, to int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from < 0 {
		return len(f.cut) > 0
	}
	return f.cut[[2]int{from, to}]
}

func (f *faultNet) place(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.ids[id]; ok {
		return i
	}
	return -1
}

func (p *peerProxy) closeLinks(which func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		if which(l) {
			l.close()
		}
	}
}

func (p *peerProxy) run() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(in) })
	}
}

func (p *peerProxy) serve(in net.Conn) {
	l := &link{from: -1, in: in}
	p.mu.Lock()
	p.open[l] = true
	ended := p.ended
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, l)
		l.close()
		p.mu.Unlock()
	}()
	if ended {
		return
	}
	// The head of the first request says who calls; it is passed on as it came.
	var head bytes.Buffer
	br := bufio.NewReader(in)
	for {
		line, err := br.ReadBytes('\n')
		head.Write(line)
		if err != nil {
			return
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
	}
	if req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head.Bytes()))); err == nil {
		l.from = p.net.place(req.Header.Get("X-Server-From"))
	}
	if p.net.isCut(l.from, p.to) {
		return
	}
	out, err := net.Dial("tcp", p.addr)
	if err != nil {
		return
	}
	p.mu.Lock()
	l.out = out
	ended = p.ended
	p.mu.Unlock()
	if ended || p.net.isCut(l.from, p.to) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		copyUntilError(out, &spoiler{r: io.MultiReader(&head, br), net: p.net, left: -1})
		in.Close()
		out.Close()
	})
	copyUntilError(in, out)
	in.Close()
	out.Close()
	both.Wait()
}

// spoiler passes on what a node sends, and flips a bit of a snapshot in it when it is
// told to.
type spoiler struct {
	r    io.Reader
	net  *faultNet
	left int // bytes before the one whose bit is flipped, < 0 = there is none
}

var sendsSnapshot = []byte("POST " + rafthttp.RaftSnapshotPrefix + " ")

func (s *spoiler) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.net.spoil != nil && bytes.HasPrefix(b[:n], sendsSnapshot) { // a request begins with a write
		s.left = s.net.spoil()
	}
	if s.left >= 0 && s.left < n {
		b[s.left] ^= 1
		s.net.spoiled++
	}
	s.left = max(-1, s.left-n)
	return n, err
}

func copyUntilError(dst net.Conn, src io.Reader) {
	b := make([]byte, 64<<10)
	for {
		n, err := src.Read(b)
		if n > 0 {
			if _, err := dst.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
