package respapi

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Priorities of HELLO: lower is better.
const (
	priorityLeader  = 1
	priorityAlive   = 2
	priorityFailing = 10
	priorityLeaving = 100
)

// hello is HELLO: the protocol's version, this node, and each node that clients
// can reach with its priority.
func hello(c *session, _ [][]byte) {
	m := c.s.members.get()
	var nodes []Member
	for _, n := range m.Nodes {
		if n.RESP != "" {
			nodes = append(nodes, n)
		}
	}
	c.array(2 + len(nodes))
	c.integer(1)
	c.bulk(nodeName(m.Self))
	for _, n := range nodes {
		host, port := hostPort(n.RESP)
		c.array(4)
		c.bulk(nodeName(n.ID))
		c.bulk(host)
		c.bulk(port)
		c.bulkInt(int64(c.s.priority(&m.Members, &n)))
	}
}

func (s *Server) priority(m *Members, n *Member) int {
	switch {
	case n.Leaving || n.ID == m.Self && s.retreat.Load():
		return priorityLeaving
	case !n.Alive:
		return priorityFailing
	case n.ID == m.Leader:
		return priorityLeader
	}
	return priorityAlive
}

func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, "0"
	}
	return host, port
}

// clusterCmd is CLUSTER with its subcommands.
func clusterCmd(c *session, args [][]byte) {
	m := c.s.members.get()
	switch sub, n := args[1], len(args); {
	case is(sub, "myid") && n == 2:
		c.bulk(nodeName(m.Self))
	case is(sub, "nodes") && n == 2:
		c.bulk(c.s.clusterNodes(&m.Members))
	case is(sub, "info") && n == 2:
		c.bulk(c.s.clusterInfo(&m.Members))
	case is(sub, "saveconfig") && n == 2:
		c.ok() // the members are in the log
	case is(sub, "meet") && n == 4:
		c.meet(&m.Members, string(args[2]), args[3])
	case is(sub, "forget") && n == 3:
		c.forget(&m.Members, string(args[2]))
	case is(sub, "reset") && (n == 2 || n == 3 && (is(args[2], "soft") || is(args[2], "hard"))):
		c.fail(refuse("ERR", "a node cannot leave its cluster in place: remove it from another node with CLUSTER FORGET, and start it anew on an empty data directory"))
	case is(sub, "reset") && n == 3:
		c.fail(errSyntax)
	case is(sub, "leaving") && n == 2:
		if c.s.retreat.Load() {
			c.status("yes")
		} else {
			c.status("no")
		}
	case is(sub, "leaving") && n == 3:
		c.leave(args[2])
	default:
		c.fail(refuse("ERR", "no such CLUSTER subcommand with so many arguments"))
	}
}

func (s *Server) clusterNodes(m *Members) string {
	var b strings.Builder
	for _, n := range m.Nodes {
		addr, flags, link := n.RESP, []string(nil), "connected"
		if n.ID == m.Self {
			flags = append(flags, "myself")
		}
		if !n.Alive {
			flags = append(flags, "fail?")
			link = "disconnected"
		}
		if addr == "" {
			flags = append(flags, "noaddr")
			addr = ":0"
		}
		if s.priority(m, &n) == priorityLeaving {
			flags = append(flags, "leaving")
		}
		if flags == nil {
			flags = []string{"noflags"}
		}
		fmt.Fprintf(&b, "%s %s %s 0 0 %s\n", nodeName(n.ID), addr, strings.Join(flags, ","), link)
	}
	return b.String()
}

func (s *Server) clusterInfo(m *Members) string {
	state, reachable := "ok", 0
	if m.Leader == 0 {
		state = "fail"
	}
	for _, n := range m.Nodes {
		if n.Alive && n.ID != m.Self {
			reachable++
		}
	}
	return fmt.Sprintf("cluster_state:%s\r\ncluster_known_nodes:%d\r\ncluster_reachable_nodes:%d\r\ncluster_size:%d\r\ncluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n",
		state, len(m.Nodes), reachable, len(m.Nodes))
}

// meet answers clients that introduce the nodes of a list to each other: those
// that know each other are done.
func (c *session) meet(m *Members, host string, portArg []byte) {
	port, ok := integer(portArg)
	if !ok || port < 1 || port > 65535 || net.ParseIP(host) == nil && host != "localhost" {
		c.fail(refuse("ERR", "%s is not the address of a node", shown(fmt.Appendf(nil, "%s:%s", host, portArg))))
		return
	}
	addr := net.JoinHostPort(host, strconv.FormatInt(port, 10))
	for _, n := range m.Nodes {
		if n.RESP == addr || host == "localhost" && n.RESP == net.JoinHostPort("127.0.0.1", strconv.FormatInt(port, 10)) {
			c.ok()
			return
		}
	}
	c.fail(refuse("ERR", "%s is no node of this cluster as it is known here; a new one joins by itself: raftq serve --join", addr))
}

// forget removes a member.
func (c *session) forget(m *Members, name string) {
	if len(name) != 40 {
		c.fail(refuse("ERR", "a node's id has 40 digits"))
		return
	}
	for _, n := range m.Nodes {
		switch {
		case nodeName(n.ID) != strings.ToLower(name):
		case n.ID == m.Self:
			c.fail(refuse("ERR", "a node cannot forget itself; ask another one"))
			return
		case c.flush() != nil:
			return
		default:
			if err := c.s.replica.RemoveMember(n.ID, timeoutDefault); err != nil {
				c.failDetail(err)
				return
			}
			c.s.members.forget()
			c.ok()
			return
		}
	}
	c.fail(refuse("ERR", "no node is known by the id %s", name))
}

// leave makes this node one that clients should not come to, or takes that back.
// It goes on serving, but lets nobody wait, and leads no more.
func (c *session) leave(arg []byte) {
	switch {
	case is(arg, "yes"):
		if !c.s.retreat.Swap(true) {
			c.s.replica.SetLeaving(true)
		}
	case is(arg, "no"):
		if c.s.retreat.Swap(false) {
			c.s.replica.SetLeaving(false)
		}
	default:
		c.fail(refuse("ERR", "CLUSTER LEAVING takes yes or no"))
		return
	}
	c.s.members.forget()
	c.ok()
}
