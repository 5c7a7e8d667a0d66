package fsm

// FeatureLevel is what this build can do. Members report theirs with their node
// start; what needs a level is used only when every member has reported it.
//
//	1  jobs, leases, waiters, sessions
//	2  configuration and pauses, groups, keys, transactions, dead letters,
//	   management of jobs, topics, changes of the members
//	3  an at-most-once job that two requests of an attempt were answered with is not
//	   given back by one of them after its lease
const FeatureLevel = 3

// LevelOf is the feature level that an op needs.
func LevelOf(op Op) uint32 {
	switch op := op.(type) {
	case *NodeStart, *NodeAway, *NodeBack, *Ack, *Nack, *Release, *Extend, *Withdraw, *GiveBack, *DeleteQueue:
		return 1
	case *Enqueue:
		for i := range op.Jobs {
			j := &op.Jobs[i]
			if j.Group != "" || j.DedupID != "" || j.UniqueKey != "" || j.DedupTTLMs != 0 || j.MaxLen != 0 {
				return 2
			}
		}
		return 1
	case *Dequeue:
		if op.AttemptID == "" {
			return 1
		}
	}
	return 2
}
