package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Network is a bridge with a namespace for each node on it. Every node can be
// reached from the machine itself, whatever links between nodes are cut.
//
// A network has a number, taken by locking a file; the names of all that belongs
// to it begin with the number, and the file lists its mounts. The lock ends with
// the process, so whoever takes the number next cleans up after one that was
// killed.
type Network struct {
	namespaces []string

	number int
	lock   *os.File

	mu    sync.Mutex
	rules map[[2]int]bool // cut links: from, to
	loss  map[int]bool
	slow  map[int]bool
}

const (
	// One place for the whole machine, as namespaces and addresses are the machine's:
	// with one in TMPDIR two runs with different ones pull down each other's networks.
	lockDir = "/run/lock"

	networksMax = 64
	firstHost   = 10 // of the nodes' addresses
)

// newNetwork takes a free number and builds a network without nodes.
func newNetwork() (*Network, error) {
	if err := os.MkdirAll(lockDir, 0o777|os.ModeSticky); err != nil {
		return nil, err
	}
	for number := range networksMax {
		path := fmt.Sprintf("%s/raftq-network-%d.lock", lockDir, number)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			f.Close()
			continue
		}
		n := &Network{number: number, lock: f, rules: map[[2]int]bool{}, loss: map[int]bool{}, slow: map[int]bool{}}
		n.clean()
		if err := errors.Join(
			tool("ip", "link", "add", n.bridge(), "type", "bridge"),
			tool("ip", "addr", "add", n.gateway()+"/24", "dev", n.bridge()),
			tool("ip", "link", "set", n.bridge(), "up")); err != nil {
			n.close()
			return nil, err
		}
		return n, nil
	}
	return nil, errors.New("all networks are in use")
}

func (n *Network) bridge() string              { return fmt.Sprintf("rqbr%d", n.number) }
func (n *Network) gateway() string             { return fmt.Sprintf("198.18.%d.1", n.number) }
func (n *Network) address(i int) string        { return fmt.Sprintf("198.18.%d.%d", n.number, firstHost+i) }
func (n *Network) namespaceOf(s string) string { return fmt.Sprintf("rq%d-%s", n.number, s) }

// add makes a namespace for one more node. In it the table of the node's own
// addresses comes behind a place for rules that drop what arrives (Cut), and the
// shortcut that keeps arriving packets of open connections from the rules is off.
func (n *Network) add(name string) (namespace string, err error) {
	ip := func(args ...string) {
		if err == nil {
			err = tool("ip", args...)
		}
	}
	i := len(n.namespaces)
	ns, end := n.namespaceOf(name), fmt.Sprintf("rqv%d-%d", n.number, i)
	n.namespaces = append(n.namespaces, ns)
	ip("netns", "add", ns)
	ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", ns)
	ip("link", "set", end, "master", n.bridge(), "up")
	ip("-n", ns, "addr", "add", n.address(i)+"/24", "dev", "eth0")
	ip("-n", ns, "link", "set", "eth0", "up")
	ip("-n", ns, "link", "set", "lo", "up")
	ip("-n", ns, "rule", "add", "pref", "10", "lookup", "local")
	ip("-n", ns, "rule", "del", "pref", "0")
	ip("netns", "exec", ns, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_early_demux")
	return ns, err
}

// clean removes what an earlier owner of the number left behind.
func (n *Network) clean() {
	for s := bufio.NewScanner(n.lock); s.Scan(); {
		_ = thaw(s.Text())                     // else what hangs in it never ends
		_ = tool("umount", "--lazy", s.Text()) // perhaps it was unmounted before its owner died
	}
	_ = n.lock.Truncate(0)
	_, _ = n.lock.Seek(0, 0)
	out, _ := exec.Command("ip", "netns", "list").Output()
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, n.namespaceOf("")) {
			_ = tool("ip", "netns", "del", name)
		}
	}
	// A namespace goes some time after it was deleted; its end of the pair goes now.
	ends, _ := filepath.Glob(fmt.Sprintf("/sys/class/net/rqv%d-*", n.number))
	for _, end := range ends {
		_ = tool("ip", "link", "del", filepath.Base(end))
	}
	_ = tool("ip", "link", "del", n.bridge()) // mostly it is not there
}

// mounted notes a mount point for whoever comes after a crash.
func (n *Network) mounted(dir string) error {
	_, err := fmt.Fprintln(n.lock, dir)
	return err
}

func (n *Network) close() {
	n.clean()
	n.lock.Close()
}

// Cut drops what node from sends to node to. What the other one sends arrives,
// but for an open connection the answers are missing, so it soon ends too.
func (n *Network) Cut(from, to int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if from == to || n.rules[[2]int{from, to}] {
		return nil
	}
	n.rules[[2]int{from, to}] = true
	return tool("ip", "-n", n.namespaces[to], "rule", "add", "pref", "1", "from", n.address(from), "blackhole")
}

// Split cuts all links between nodes of different groups; nodes in no group are
// cut off from nobody.
func (n *Network) Split(groups ...[]int) error {
	var err error
	for i, a := range groups {
		for _, b := range slices.Delete(slices.Clone(groups), i, i+1) {
			for _, from := range a {
				for _, to := range b {
					if !slices.Contains(a, to) && !slices.Contains(b, from) {
						err = errors.Join(err, n.Cut(from, to))
					}
				}
			}
		}
	}
	return err
}

// Loss drops a part of the packets that arrive at a node from the others. It
// needs iptables.
func (n *Network) Loss(to int, part float64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss[to] = true
	return tool("ip", "netns", "exec", n.namespaces[to], "iptables", "-A", "INPUT", "!", "-s", n.gateway(),
		"-m", "statistic", "--mode", "random", "--probability", fmt.Sprint(part), "-j", "DROP")
}

// CanLose tells whether Loss works here.
func (n *Network) CanLose() bool {
	_, err := exec.LookPath("iptables")
	return err == nil
}

// Slow limits what a node sends, to its clients as well. It needs tc.
func (n *Network) Slow(from, kbit int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[from] = true
	return tool("tc", "-n", n.namespaces[from], "qdisc", "replace", "dev", "eth0", "root", "tbf",
		"rate", fmt.Sprintf("%dkbit", kbit), "burst", "16kb", "latency", "200ms")
}

// Heal undoes Cut, Loss and Slow.
func (n *Network) Heal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	for r := range n.rules {
		err = errors.Join(err, tool("ip", "-n", n.namespaces[r[1]], "rule", "del", "pref", "1", "from", n.address(r[0]), "blackhole"))
	}
	for i := range n.loss {
		err = errors.Join(err, tool("ip", "netns", "exec", n.namespaces[i], "iptables", "-F", "INPUT"))
	}
	for i := range n.slow {
		err = errors.Join(err, tool("tc", "-n", n.namespaces[i], "qdisc", "del", "dev", "eth0", "root"))
	}
	clear(n.rules)
	clear(n.loss)
	clear(n.slow)
	return err
}
