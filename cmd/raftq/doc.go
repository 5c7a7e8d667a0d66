// Command raftq is the whole of raftq in one binary: a node (serve), a cluster
// in one terminal (local), a demonstration (demo) and a person's client
// (enqueue, dequeue, ack, nack, release, extend, fate, stats, cluster).
//
// The package ties the others together and holds no logic of the queue: flags
// become a raftnode.Config, a raftnode.Node becomes httpapi's Replica, and the
// client commands speak HTTP like anybody else. Each file holds one command or
// one of the things they share: units.go (durations and sizes), config.go
// (flags over environment over file), api.go (HTTP with failover), exit.go
// (exit codes, which scripts rely on).
package main
