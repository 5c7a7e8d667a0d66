package check

import (
	"fmt"

	"raftq/fsm"
)

// Chains compares what nodes say of their states: at the same entry the same
// running hash, and that of the log's replay in a fresh machine. members are those
// of the genesis; without them the claims are compared with each other only.
func Chains(h *History, log []Entry, members []fsm.Member) []Problem {
	var p problems
	claims := map[uint64]map[string]string{} // index → hash → node
	for _, c := range h.Chains {
		if claims[c.Index] == nil {
			claims[c.Index] = map[string]string{}
		}
		claims[c.Index][c.Hash] = c.Node
	}
	for index, hashes := range claims {
		if len(hashes) > 1 {
			p.add("chain: nodes", "at entry %d the nodes have different states: %v", index, hashes)
		}
	}
	if members == nil {
		return p.all()
	}
	m := fsm.New(members)
	for _, e := range log {
		if _, err := m.Apply(e.Index, e.Term, e.Data, fsm.Self{}); err != nil {
			p.add("chain: replay", "entry %d: %v", e.Index, err)
			return p.all()
		}
		want := fmt.Sprintf("%016x", m.Chain())
		for hash, node := range claims[e.Index] {
			if hash != want {
				p.add("chain: replay", "%s says %s at entry %d, the log's replay is %s", node, hash, e.Index, want)
			}
		}
	}
	if err := m.Check(); err != nil {
		p.add("chain: invariants", "%v", err)
	}
	return p.all()
}
