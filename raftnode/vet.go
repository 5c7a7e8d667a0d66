package raftnode

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"

	"raftq/fsm"
)

// verdict says what to do about a change: op to log it (first: then look again),
// err to refuse it, wait to look again later, and none of them when nothing is to
// be done. member is whom it is about.
type verdict struct {
	op     *fsm.MemberChange
	first  bool
	err    *fsm.Error
	wait   bool
	member fsm.Member
}

func refusal(code fsm.Code, format string, args ...any) verdict {
	return verdict{err: fsm.Refuse(code, format, args...)}
}

// vet judges a change by the table at the log's end. No other change can come
// between it and the entry that it leads to.
func (c *core) vet(ch *change) verdict {
	if level := c.machine.FeatureLevel(); level < fsm.LevelOf(&fsm.MemberChange{}) {
		return refusal(fsm.CodeFeatureLevel, "some member's build does not know changes of the members yet (feature level %d); upgrade all nodes first", level)
	}
	if ch.verb == fsm.MemberAdd {
		return c.vetAdd(ch)
	}
	m, ok := c.named(ch.member)
	if !ok {
		if ch.verb == fsm.MemberRemove && ch.member.ID != 0 && c.machine.Removed(ch.member.ID) {
			return c.vetGone(ch.member)
		}
		if ch.reply == nil {
			return verdict{}
		}
		return refusal(fsm.CodeMemberNotFound, "no member has the id or name; there are %s", c.describe())
	}
	op := &fsm.MemberChange{Verb: ch.verb, Member: fsm.Member{ID: m.ID}}
	if ch.verb == fsm.MemberPromote {
		if !m.Learner {
			return verdict{member: m}
		}
		if why := c.lags(m); why != "" {
			return refusal(fsm.CodeQuorumAtRisk, "%s is no voter yet: %s", m.Name, why)
		}
		return verdict{op: op, member: m}
	}
	v := c.vetRemove(m, ch)
	v.op, v.member = op, m
	return v
}

// named finds a member by its id or, without one, by its name.
func (c *core) named(want fsm.Member) (fsm.Member, bool) {
	for _, m := range c.machine.Members() {
		if want.ID != 0 && m.ID == want.ID || want.ID == 0 && m.Name == want.Name {
			return m, true
		}
	}
	return fsm.Member{}, false
}

func (c *core) vetAdd(ch *change) verdict {
	want := ch.member
	all := c.machine.Members()
	for _, m := range all {
		if want.Join != 0 && m.Join == want.Join {
			return verdict{member: m} // its first answer was lost
		}
	}
	for _, m := range all {
		_, started := c.machine.Session(m.ID)
		switch {
		case m.Name == want.Name && m.Peer == want.Peer && m.Join == 0 && !started && m.Learner:
			// Added before its node came.
			if want.Join == 0 {
				return verdict{member: m}
			}
			m.Join = want.Join
			return verdict{op: &fsm.MemberChange{Verb: fsm.MemberClaim, Member: m}, member: m}
		case m.Name == want.Name && !ch.replace:
			return refusal(fsm.CodeMemberExists, "a member %s (%016x) exists; if its disk is lost, remove it first, or replace it", m.Name, m.ID)
		case m.Name == want.Name && started && c.answers(m.ID, ch.asked):
			return refusal(fsm.CodeMemberExists, "member %s (%016x) is alive: only a dead one is replaced", m.Name, m.ID)
		case m.Name == want.Name && started && c.now.boot-ch.asked < c.cfg.electionNs:
			return verdict{wait: true}
		case m.Name == want.Name:
			v := c.vetRemove(m, ch)
			v.op, v.member, v.first = &fsm.MemberChange{Verb: fsm.MemberRemove, Member: fsm.Member{ID: m.ID}}, m, true
			return v
		case m.Peer == want.Peer:
			return refusal(fsm.CodeMemberExists, "%s is the peer address of member %s (%016x)", m.Peer, m.Name, m.ID)
		}
	}
	if len(all) >= membersMax {
		return refusal(fsm.CodeInvalidRequest, "a cluster has at most %d members", membersMax)
	}
	if level := c.machine.FeatureLevel(); ch.level != 0 && ch.level < level {
		return refusal(fsm.CodeFeatureLevel, "the new node's build is older than its cluster (feature level %d, the cluster uses %d)", ch.level, level)
	}
	want.ID, want.Learner = c.newID(), true
	return verdict{op: &fsm.MemberChange{Verb: fsm.MemberAdd, Member: want}, member: want}
}

// newID draws an id that nobody has or had, and whose short form, which is in the
// ids of jobs, is no other's either.
func (c *core) newID() uint64 {
	for {
		id := uint64(c.cfg.random32())<<32 | uint64(c.cfg.random32())
		taken := id == 0 || id == raft.LocalAppendThread || id == raft.LocalApplyThread || c.machine.Removed(id)
		for _, m := range c.machine.Members() {
			taken = taken || uint32(m.ID) == uint32(id)
		}
		if !taken {
			return id
		}
	}
}

// answers tells whether a member surely lived after a moment: it answered a
// question that was asked later. A message that came later may be an old one.
func (c *core) answers(id uint64, since int64) bool {
	p := c.peers[id]
	if id == c.cfg.id || p != nil && p.lived > since {
		return true
	}
	c.out.ask = true
	return false
}

// vetGone tells the others that a removed member is not needed any more. That is
// so once this entry is committed: it was proposed by a leader that had applied
// the removal, so that whoever has it has the removal's commit on its disk as well.
func (c *core) vetGone(m fsm.Member) verdict {
	if slices.Contains(c.machine.RemovedMembers(false), m.ID) {
		return verdict{op: &fsm.MemberChange{Verb: fsm.MemberGone, Member: fsm.Member{ID: m.ID}}, member: m}
	}
	return verdict{member: m}
}

// vetRemove tells whether a member may go: those who are left must be able to
// decide without it, and have answered since somebody asked for it.
func (c *core) vetRemove(m fsm.Member, ch *change) verdict {
	if m.Learner {
		return verdict{}
	}
	asked := ch.asked
	var rest []string
	living := 0
	for _, v := range c.machine.Members() {
		if v.ID == m.ID || v.Learner {
			continue
		}
		state := " (not alive)"
		if c.answers(v.ID, asked) {
			living++
			state = " (alive)"
		}
		rest = append(rest, v.Name+state)
	}
	need := len(rest)/2 + 1
	switch {
	case len(rest) == 0:
		return refusal(fsm.CodeQuorumAtRisk, "%s is the only voter", m.Name)
	case living < len(rest) && c.now.boot-asked < c.cfg.electionNs:
		return verdict{wait: true}
	case living < need:
		return refusal(fsm.CodeQuorumAtRisk, "without %s the voters are %s: %d of %d alive, and %d are needed", m.Name, strings.Join(rest, ", "), living, len(rest), need)
	case m.ID == c.cfg.id && !ch.dry:
		// It hands leadership over first; then its client asks the next leader.
		c.transfer()
		return verdict{wait: true}
	}
	return verdict{}
}

func (c *core) describe() string {
	var names []string
	for _, m := range c.members {
		names = append(names, fmt.Sprintf("%s (%016x)", m.Name, m.ID))
	}
	return strings.Join(names, ", ")
}

// catchUp judges how far a learner lags: it has caught up when it has confirmed
// all that the log held a little while ago. So a voter that it becomes is behind
// the others by no more than that while, however fast the log grows.
type catchUp struct {
	target uint64 // the log's end, a while ago
	at     int64  // boot ns: when that was
	ready  bool
	lacks  uint64 // entries
}

// catchUpHeartbeats is that while, in heartbeats.
const catchUpHeartbeats = 3

// watchLearners promotes learners that have caught up.
func (c *core) watchLearners() {
	l := c.lead
	if l == nil || !c.leading() {
		return
	}
	for _, m := range c.members {
		if !m.Learner {
			continue
		}
		w := l.learners[m.ID]
		if w == nil {
			w = &catchUp{target: c.lastAppended, at: c.now.boot}
			l.learners[m.ID] = w
		}
		if c.now.boot-w.at < catchUpHeartbeats*c.cfg.heartbeatNs {
			continue
		}
		w.ready, w.lacks = false, c.lastAppended
		c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr progress) {
			if id == m.ID {
				w.lacks = c.lastAppended - min(pr.Match, c.lastAppended)
				w.ready = pr.State == tracker.StateReplicate && pr.Match >= w.target
			}
		})
		w.target, w.at = c.lastAppended, c.now.boot
		if m.Standby || c.lags(m) != "" || len(c.changes.queue) > 0 || c.changes.under != nil {
			continue
		}
		c.log.Info("learner has caught up", zap.String("member", m.Name), zap.Uint64("lacks", w.lacks))
		c.changes.queue = append(c.changes.queue, &change{verb: fsm.MemberPromote, member: m, deadline: 1<<63 - 1})
	}
}

// lags says why a learner may not become a voter yet, "" when it may.
func (c *core) lags(m fsm.Member) string {
	s, started := c.machine.Session(m.ID)
	w := c.lead.learners[m.ID]
	switch {
	case !started:
		return "its node has not started"
	case !c.alive(m.ID) || s.Away:
		return "it is not alive"
	case w == nil:
		return "it has just come"
	case !w.ready:
		return fmt.Sprintf("it has not caught up, it lacks %d entries of the log", w.lacks)
	}
	return ""
}
