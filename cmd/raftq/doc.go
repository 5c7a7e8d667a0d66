// Command raftq is the whole of raftq in one binary: a node (serve), a cluster
// in one terminal (local), a demonstration (demo), a load generator (bench), and
// a person's client, from enqueue to work; docs/cli.md shows it by task.
//
// The package ties the others together and holds no logic of the queue: flags
// become a raftnode.Config, a raftnode.Node becomes httpapi's Replica, and the
// client commands speak through package client like anybody else. Each file holds
// one command or one of the things they share:
//
//	session.go       a client command's flags, requests and answers
//	output.go        -o text or json; table.go, body.go, units.go, terminal.go: for people
//	failure.go       errors as people read them, with hint.go's next steps
//	exit.go          exit codes, which scripts rely on
//	config.go        flags over environment over file
//	pages.go         lists from their pages; names.go, lines.go: from standard input
//	worker.go        what work does with a job; workproc.go: the command's process
//	complete.go      what a shell is offered
//
// Results go to standard output, all else to standard error. Every command has an
// example in its help, and a test runs it.
package main
