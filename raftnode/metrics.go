package raftnode

import "github.com/prometheus/client_golang/prometheus"

// metric is one figure of /metrics.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(n *Node, v *view) float64
}

func counter(name, help string, get func(n *Node, v *view) float64) metric {
	return metric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, get}
}

func gauge(name, help string, get func(n *Node, v *view) float64) metric {
	return metric{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, get}
}

var metrics = []metric{
	gauge("raftq_raft_term", "Raft term.", func(_ *Node, v *view) float64 { return float64(v.term) }),
	gauge("raftq_raft_is_leader", "1 on the leader.", func(_ *Node, v *view) float64 { return b2f(v.isLeader) }),
	counter("raftq_raft_leader_changes_total", "Changes of the known leader.", func(_ *Node, v *view) float64 { return float64(v.stats.leaderChanges) }),
	gauge("raftq_raft_commit_index", "Commit index.", func(_ *Node, v *view) float64 { return float64(v.commit) }),
	gauge("raftq_raft_applied_index", "Index of the last applied entry.", func(_ *Node, v *view) float64 { return float64(v.facts.pos.Index) }),
	gauge("raftq_log_first_index", "First entry that a follower can still be sent as such.", func(n *Node, _ *view) float64 {
		i, _ := n.storage.FirstIndex() // in memory, never fails
		return float64(i)
	}),
	gauge("raftq_log_time_seconds", "Log time of the last applied entry.", func(_ *Node, v *view) float64 { return float64(v.facts.pos.TimeMs) / 1000 }),
	counter("raftq_batches_total", "Batches this node has packed.", func(_ *Node, v *view) float64 { return float64(v.stats.batches) }),
	counter("raftq_batched_ops_total", "Operations in them.", func(_ *Node, v *view) float64 { return float64(v.stats.ops) }),
	counter("raftq_batches_resent_total", "Batches sent again.", func(_ *Node, v *view) float64 { return float64(v.stats.resent) }),
	counter("raftq_proposals_dropped_total", "Batches raft did not take.", func(_ *Node, v *view) float64 { return float64(v.stats.dropped) }),
	counter("raftq_applied_entries_total", "Log entries with a batch that were applied.", func(_ *Node, v *view) float64 { return float64(v.stats.entries) }),
	counter("raftq_given_back_total", "Hand-outs given back because nobody took them.", func(_ *Node, v *view) float64 { return float64(v.stats.givenBack) }),
	counter("raftq_hangups_total", "Clients that left while their dequeue was under way.", func(_ *Node, v *view) float64 { return float64(v.stats.hangups) }),
	counter("raftq_read_rounds_total", "Leadership checks for linearizable reads.", func(_ *Node, v *view) float64 { return float64(v.stats.readRounds) }),
	counter("raftq_snapshots_total", "Snapshots taken.", func(_ *Node, v *view) float64 { return float64(v.stats.snapshots) }),
	counter("raftq_snapshots_installed_total", "Snapshots installed from a peer.", func(_ *Node, v *view) float64 { return float64(v.stats.installs) }),
	gauge("raftq_state_bytes", "Bytes of the machine's state.", func(_ *Node, v *view) float64 { return float64(v.facts.bytes) }),
	gauge("raftq_state_limit_bytes", "The smallest max-memory of the members, 0 = none.", func(_ *Node, v *view) float64 { return float64(v.facts.memoryLimit) }),
	gauge("raftq_disk_used_percent", "How full the data directory's filesystem is.", func(n *Node, _ *view) float64 { return float64(n.diskPercent.Load()) }),
	gauge("raftq_disk_alarm_percent", "The highest step that a member's disk has passed: 0, 75, 90, 95.", func(_ *Node, v *view) float64 { return float64(v.facts.diskAlarm) }),
	counter("raftq_refused_full_total", "New jobs refused here because memory or a disk is full.", func(_ *Node, v *view) float64 { return float64(v.stats.refusedFull) }),
	gauge("raftq_parked_requests", "Waiting dequeues of this node's clients.", func(_ *Node, v *view) float64 { return float64(v.parked) }),
	counter("raftq_wal_fsyncs_total", "Fsyncs of the log.", func(n *Node, _ *view) float64 { return float64(n.wal.Stats().Syncs) }),
	counter("raftq_wal_bytes_total", "Bytes written to the log.", func(n *Node, _ *view) float64 { return float64(n.wal.Stats().Bytes) }),
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe and Collect make Node a prometheus.Collector.
func (n *Node) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

func (n *Node) Collect(ch chan<- prometheus.Metric) {
	v := n.view.Load()
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.get(n, v))
	}
}
