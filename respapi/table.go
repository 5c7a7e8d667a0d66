package respapi

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// command is a line of the table of commands.
type command struct {
	name  string
	arity int // arguments with the name: exactly so many, or at least so many when negative
	flags cmdFlags
	// run executes the first request, appends its reply, and may take those behind
	// it along; it returns how many it took.
	run func(c *session, left []request) (taken int)

	calls, nanos counter
	seconds      prometheus.Observer
}

type cmdFlags uint8

// What COMMAND shows of a command, and what it may do when.
const (
	writes cmdFlags = 1 << iota
	reads
	needsMemory
	administers
	whileLoading
	beforeAuth
	quick
)

// flagNames are those that COMMAND shows.
var flagNames = []struct {
	flag cmdFlags
	name string
}{{writes, "write"}, {reads, "readonly"}, {needsMemory, "denyoom"}, {administers, "admin"}, {whileLoading, "loading"}, {quick, "fast"}}

// commandTable returns the commands by name.
func commandTable(st *stats) map[string]*command {
	table := []*command{
		{name: "addjob", arity: -4, flags: writes | needsMemory | quick, run: addjob},
		{name: "getjob", arity: -2, flags: writes | quick, run: single(getjob)},
		{name: "ackjob", arity: -1, flags: writes | quick, run: ackjob},
		{name: "fastack", arity: -1, flags: writes | quick, run: fastack},
		{name: "nack", arity: -1, flags: writes | needsMemory | quick, run: nack},
		{name: "enqueue", arity: -1, flags: writes | needsMemory | quick, run: enqueue},
		{name: "dequeue", arity: -1, flags: writes | quick, run: dequeue},
		{name: "deljob", arity: -1, flags: writes | quick, run: deljob},
		{name: "working", arity: 2, flags: writes | quick, run: single(working)},
		{name: "show", arity: 2, flags: reads | quick, run: single(show)},

		{name: "qlen", arity: 2, flags: reads | quick, run: single(qlen)},
		{name: "qstat", arity: 2, flags: reads | quick, run: single(qstat)},
		{name: "qpeek", arity: 3, flags: reads, run: single(qpeek)},
		{name: "qscan", arity: -1, flags: reads, run: single(qscan)},
		{name: "jscan", arity: -1, flags: reads, run: single(jscan)},
		{name: "pause", arity: -3, flags: writes | quick, run: single(pause)},

		{name: "hello", arity: 1, flags: reads | quick, run: single(hello)},
		{name: "info", arity: -1, flags: reads | whileLoading, run: single(info)},
		{name: "cluster", arity: -2, flags: administers | reads, run: single(clusterCmd)},
		{name: "config", arity: -2, flags: administers | reads, run: single(config)},
		{name: "client", arity: -2, flags: administers | reads, run: single(client)},
		{name: "slowlog", arity: -2, flags: reads, run: single(slowlogCmd)},
		{name: "command", arity: 0, flags: reads | whileLoading, run: single(commandCmd)},
		{name: "auth", arity: 2, flags: reads | whileLoading | beforeAuth | quick, run: single(auth)},
		{name: "ping", arity: -1, flags: reads | quick, run: single(ping)},
		{name: "time", arity: 1, flags: reads | quick, run: single(timeCmd)},
		{name: "quit", arity: -1, flags: reads | whileLoading | beforeAuth | quick, run: single(quit)},
		{name: "shutdown", arity: -1, flags: administers | reads | whileLoading, run: single(shutdown)},
		{name: "bgrewriteaof", arity: 1, flags: administers | reads, run: single(bgrewriteaof)},
		{name: "monitor", arity: 1, flags: administers | reads, run: single(monitor)},
		{name: "latency", arity: -2, flags: administers | reads | whileLoading, run: single(latency)},
		{name: "debug", arity: -2, flags: administers, run: single(debugCmd)},
		{name: "loadjob", arity: 2, flags: writes, run: single(loadjob)},
	}
	all := make(map[string]*command, len(table))
	for _, cmd := range table {
		cmd.seconds = st.seconds.WithLabelValues(cmd.name)
		all[cmd.name] = cmd
	}
	return all
}

// rename gives commands other names. All old names go first, so that two can
// change places.
func rename(commands map[string]*command, names map[string]string) error {
	moved := map[string]*command{}
	for old, name := range names {
		cmd := commands[old]
		if cmd == nil {
			return fmt.Errorf("respapi: rename %q: there is no such command", old)
		}
		if name != "" {
			if moved[name] != nil {
				return fmt.Errorf("respapi: rename %q: two commands cannot be named %q", old, name)
			}
			moved[name] = cmd
		}
	}
	for old := range names {
		delete(commands, old)
	}
	for name, cmd := range moved {
		if commands[name] != nil {
			return fmt.Errorf("respapi: rename %q: there is a command %q", cmd.name, name)
		}
		commands[name] = cmd
	}
	return nil
}

// look finds a request's command and checks its number of arguments.
func (s *Server) look(args [][]byte) request {
	var lower [64]byte
	name := args[0]
	if len(name) <= len(lower) {
		for i, b := range name {
			if b >= 'A' && b <= 'Z' {
				b += 'a' - 'A'
			}
			lower[i] = b
		}
		name = lower[:len(name)]
	}
	cmd := s.commands[string(name)]
	switch {
	case cmd == nil:
		return request{args: args, bad: refuse("ERR", "unknown command '%s'", shown(args[0]))}
	case cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		return request{cmd: cmd, args: args, bad: refuse("ERR", "wrong number of arguments for '%s' command", cmd.name)}
	}
	return request{cmd: cmd, args: args}
}

// is compares an option's name, whatever its case.
func is(arg []byte, name string) bool {
	return len(arg) == len(name) && strings.EqualFold(string(arg), name)
}

// shown is an argument in an error reply.
func shown(arg []byte) string {
	if len(arg) > wordsLogged {
		return string(arg[:wordsLogged]) + "…"
	}
	return string(arg)
}
