package raftnode

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/raft/v3"

	"raftq/fsm"
)

// copies are requests on the leader that wait until so many members have an entry
// on disk. Raft's match indexes tell.
type copies struct{ list []*copyWait }

// copyWait is one of them. It belongs to the core between copiesAsked and
// copiesLeft, or until done has a value.
type copyWait struct {
	index uint64
	n     int
	term  uint64 // of the leader that counts
	done  chan bool
}

// Events of copies.
type (
	copiesAsked struct{ wait *copyWait }
	copiesLeft  struct{ wait *copyWait }
)

const (
	// takeBackMax is how long taking back may take that did not get its copies.
	takeBackMax = 5 * time.Second
	// copiesRounds is how often a job under an idempotency key may have been taken
	// back before.
	copiesRounds = 1000
	// askPauseMin and askPauseMax are between two questions to the same member.
	askPauseMin, askPauseMax = 2 * time.Millisecond, 50 * time.Millisecond
)

func (q *copies) add(c *core, w *copyWait) {
	w.term = c.term
	q.list = append(q.list, w)
}

func (q *copies) remove(w *copyWait) {
	if i := slices.Index(q.list, w); i >= 0 {
		q.list = slices.Delete(q.list, i, i+1)
	}
}

// settle runs at the end of each turn: it ends the waits that are over, true when
// the copies are there and false when this node does not lead any more.
func (q *copies) settle(c *core) {
	if len(q.list) == 0 {
		return
	}
	var matches []uint64
	if c.role == raft.StateLeader {
		c.rn.WithProgress(func(_ uint64, _ raft.ProgressType, pr progress) { matches = append(matches, pr.Match) })
	}
	keep := q.list[:0]
	for _, w := range q.list {
		have := 0
		for _, m := range matches {
			if m >= w.index {
				have++
			}
		}
		switch {
		case c.role != raft.StateLeader || c.term != w.term:
			w.done <- false
		case have >= w.n:
			w.done <- true
		default:
			keep = append(keep, w)
		}
	}
	clear(q.list[len(keep):])
	q.list = keep
}

// DoCopies is Do for an op that adds jobs, answered when n members have them on
// disk. When it is not so in time, the jobs are withdrawn: an item's code is
// CodeNotEnoughReplicas then, or CodeCommitTimeout when the job was handed out
// before. The leader counts as it hears of them, other nodes ask the members, which
// takes longer.
//
// A job with a dedup id is never withdrawn, and its code is CodeCommitTimeout then:
// whoever comes with the id meanwhile is told that this job is his, and so is who
// tries again. Such an answer waits for the copies of that job as well.
//
// Under an idempotency key the withdrawal is kept beside the result, so that the
// request may come again: what was taken back is tried anew, under a key of its own.
func (n *Node) DoCopies(op fsm.Op, copies int, timeout time.Duration) (fsm.Result, error) {
	v := n.view.Load()
	switch {
	case copies > v.members:
		return fsm.Result{}, fsm.Refuse(fsm.CodeNotEnoughReplicas, "replicate: %d copies are asked for, and the cluster has %d members", copies, v.members)
	case copies <= v.voters/2+1 || seeded == "copies-not-awaited":
		return n.Do(op, false, timeout, nil) // a commit is as much
	}
	end := time.Now().Add(timeout)
	keyed, _ := op.(*fsm.Keyed)
	for round := range copiesRounds {
		if round > 0 {
			next := *keyed
			next.Key = keyed.Key + "\x00" + strconv.Itoa(round)
			op = &next
		}
		res, err := n.Do(op, false, max(time.Until(end), time.Millisecond), nil)
		if err != nil || res.Code != fsm.CodeOK {
			return res, err
		}
		living := added(&res)
		if res.Replay {
			var gone bool
			if living, gone, err = n.replayed(op, &res, end); err != nil {
				return fsm.Result{}, err
			}
			if gone {
				continue
			}
		}
		back, stay := takeBack(op, &res, living)
		if len(back)+len(stay) > 0 && !n.awaitCopies(res.Position.Index, copies, end) {
			note(&res, stay, nil)
			if len(back) > 0 {
				n.withdraw(op, back, &res)
			}
		}
		return res, nil
	}
	return fsm.Result{}, fsm.Refuse(fsm.CodeNotEnoughReplicas, "replicate: withdrawn %d times under this Idempotency-Key", copiesRounds)
}

// added returns the keys of the jobs that an op has added.
func added(res *fsm.Result) (keys []fsm.Key) {
	for i := range res.Items {
		if it := &res.Items[i]; it.Code == fsm.CodeOK && !it.Duplicate {
			keys = append(keys, it.ID.Key)
		}
	}
	return keys
}

// takeBack returns which of the jobs that wait for copies are taken back when those
// do not come, and which stay: of an atomic enqueue all or none.
func takeBack(op fsm.Op, res *fsm.Result, living []fsm.Key) (back, stay []fsm.Key) {
	fsm.EachEnqueue(op, func(e *fsm.Enqueue) {
		for i := range res.Items {
			switch it := &res.Items[i]; {
			case it.Code != fsm.CodeOK:
			case it.Duplicate || e.Jobs[i].DedupID != "":
				stay = append(stay, it.ID.Key)
			case slices.Contains(living, it.ID.Key):
				back = append(back, it.ID.Key)
			}
		}
		if e.Atomic && len(stay) > 0 {
			back, stay = nil, append(stay, back...)
		}
	})
	return back, stay
}

// awaitCopies is true when so many members have the entry in time.
func (n *Node) awaitCopies(index uint64, copies int, end time.Time) bool {
	w := &copyWait{index: index, n: copies, done: make(chan bool, 1)}
	if !n.box.post(copiesAsked{w}) {
		return false
	}
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	select {
	case ok := <-w.done:
		return ok || n.askForCopies(index, copies, end)
	case <-n.done:
	case <-over.C:
		n.box.post(copiesLeft{w})
	}
	return false
}

// askForCopies asks the members until so many have applied the entry: they have it
// on disk then, and it is committed. It is for nodes that do not lead.
func (n *Node) askForCopies(index uint64, copies int, end time.Time) bool {
	ctx, cancel := context.WithDeadline(n.peers.ctx, end)
	defer cancel()
	have := map[uint64]bool{}
	for pause := askPauseMin; ; pause = min(2*pause, askPauseMax) {
		members := n.Status().Nodes
		applied := make([]uint64, len(members))
		var wg sync.WaitGroup
		for i, m := range members {
			switch {
			case have[m.ID]:
				applied[i] = index
			case m.ID == n.id:
				applied[i] = m.Applied
			default:
				wg.Go(func() {
					if s, err := fetchStatus(ctx, n.peers.client, m.Peer, n.id, n.cluster); err == nil && s.ID == m.ID {
						applied[i] = s.Applied
					}
				})
			}
		}
		wg.Wait()
		count := 0
		for i, m := range members {
			if applied[i] >= index {
				have[m.ID] = true
				count++
			}
		}
		if count >= copies {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// withdraw takes jobs back and says in their items what came of that.
func (n *Node) withdraw(op fsm.Op, keys []fsm.Key, res *fsm.Result) {
	took := fsm.Op(&fsm.WithdrawJobs{Keys: keys})
	if k, ok := op.(*fsm.Keyed); ok {
		took = &fsm.Keyed{Key: withdrawnKey(k), Op: took}
	}
	out, err := n.Do(took, false, takeBackMax, nil)
	if err != nil || out.Code != fsm.CodeOK {
		out.Items = nil // nobody knows
	}
	note(res, keys, out.Items)
}

func withdrawnKey(k *fsm.Keyed) string { return k.Key + "\x00withdrawn" }

// note puts into the items of jobs what came of taking them back.
func note(res *fsm.Result, keys []fsm.Key, took []fsm.ItemResult) {
	res.Items = slices.Clone(res.Items)
	for i := range res.Items {
		it := &res.Items[i]
		if !slices.Contains(keys, it.ID.Key) {
			continue
		}
		it.Code = fsm.CodeCommitTimeout // it stays, it was handed out by then, or nobody knows
		for j := range took {
			if took[j].ID.Key == it.ID.Key && took[j].Code == fsm.CodeOK {
				it.Code = fsm.CodeNotEnoughReplicas
			}
		}
	}
}

// replayed looks what became of the jobs of a request that comes again under its
// key. gone: all were taken back, so that it may be tried anew. Else res says which
// were, and living are those that nobody has tried to take back.
func (n *Node) replayed(op fsm.Op, res *fsm.Result, end time.Time) (living []fsm.Key, gone bool, err error) {
	keys := added(res)
	var took fsm.Result
	var tried bool
	_, err = n.Read(fsm.ReadHow{Strong: true, TimeoutMs: max(time.Until(end).Milliseconds(), 1)}, func(m *fsm.Machine) {
		living = living[:0]
		if took, tried = m.Kept(withdrawnKey(op.(*fsm.Keyed))); tried {
			return
		}
		for _, k := range keys {
			if e, code := m.JobEnd(k); code == fsm.CodeOK && e.End == fsm.EndNone {
				living = append(living, k)
			}
		}
	})
	if err != nil || !tried {
		return living, false, err
	}
	note(res, keys, took.Items)
	for i := range res.Items {
		if it := &res.Items[i]; slices.Contains(keys, it.ID.Key) && it.Code != fsm.CodeNotEnoughReplicas {
			return nil, false, nil
		}
	}
	return nil, true, nil
}
