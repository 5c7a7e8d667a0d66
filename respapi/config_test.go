package respapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"raftq/fsm"
)

func TestConfigCommands(t *testing.T) {
	r := newInProcess(t)
	level := zap.NewAtomicLevel()
	s := newServer(t, r, Options{Config: Config{Level: &level}, Facts: map[string]string{"port": "7711", "dir": "/d"}})
	c := dialResp(t, listen(t, s))
	get := func(pattern string) string { return text(c.do("CONFIG", "GET", pattern)) }
	for _, tc := range []struct{ name, good, stored, bad string }{
		{"timeout", "12", "12", "-1"},
		{"maxclients", "77", "77", "0"},
		{"slowlog-log-slower-than", "5000", "5000", "x"},
		{"slowlog-log-slower-than", "-1", "-1", ""},
		{"slowlog-max-len", "3", "3", "-1"},
		{"loglevel", "warning", "warning", "loud"},
		{"loglevel", "VERBOSE", "notice", "loud"},
		{"aof-enqueue-jobs-once", "yes", "yes", "maybe"},
		{"appendonly", "yes", "yes", "no"},
		{"appendfsync", "always", "always", "everysec"},
		{"maxmemory-policy", "noeviction", "noeviction", "acks"},
	} {
		if v := c.do("CONFIG", "SET", strings.ToUpper(tc.name), tc.good); v != "OK" {
			t.Errorf("%s %s: %v", tc.name, tc.good, v)
		}
		if v := text(c.do("CONFIG", "SET", tc.name, tc.bad)); !strings.HasPrefix(v, "ERR ") {
			t.Errorf("%s %s: %v", tc.name, tc.bad, v)
		}
		if v := get(tc.name); v != "["+tc.name+" "+tc.stored+"]" {
			t.Errorf("%s: %s, want %s", tc.name, v, tc.stored)
		}
	}
	if level.Level() != zap.InfoLevel {
		t.Error(level.Level())
	}
	if v := get("*"); !strings.Contains(v, "port 7711") || !strings.Contains(v, "dir /d") || !strings.Contains(v, "requirepass ") {
		t.Error(v)
	}
	if v := get("slowlog-*"); v != "[slowlog-log-slower-than -1 slowlog-max-len 3]" {
		t.Error(v)
	}
	if v := text(c.do("CONFIG", "REWRITE")); !strings.HasPrefix(v, "ERR ") {
		t.Error(v)
	}
}

func TestConfigRewrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disque.conf")
	old := "# mine\nport 7711\n  TIMEOUT 5\ntimeout 6\nhz 10\n"
	if err := os.WriteFile(file, []byte(old), 0o640); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, newInProcess(t), Options{ConfigFile: file})
	c := dialResp(t, listen(t, s))
	read := func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if v := c.do("CONFIG", "REWRITE"); v != "OK" || read() != old {
		t.Errorf("%v, %q", v, read())
	}
	c.do("CONFIG", "SET", "timeout", 60)
	c.do("CONFIG", "SET", "maxclients", 5)
	c.do("CONFIG", "SET", "requirepass", `a "b\`)
	c.do("AUTH", `a "b\`) // from now on this client must, too
	if v := c.do("CONFIG", "REWRITE"); v != "OK" {
		t.Error(v)
	}
	if got, want := read(), "# mine\nport 7711\ntimeout 60\nhz 10\nmaxclients 5\nrequirepass \"a \\\"b\\\\\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o640 {
		t.Error(info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Dir(file) + "/*"); len(left) != 1 {
		t.Error(left)
	}
}

func TestRename(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{Rename: map[string]string{"config": "", "ping": "pong", "debug": "secret-debug"}})
	c := dialResp(t, listen(t, s))
	for cmd, want := range map[string]string{"CONFIG": "ERR unknown", "PING": "ERR unknown", "PONG": "PONG", "DEBUG": "ERR unknown", "SECRET-DEBUG": "ERR wrong number"} {
		if v := text(c.do(cmd)); !strings.HasPrefix(v, want) {
			t.Errorf("%s: %v", cmd, v)
		}
	}
	for _, names := range []map[string]string{{"nosuch": "x"}, {"ping": "qlen"}, {"ping": "x", "time": "x"}} {
		s := New(newInProcess(t), Options{Rename: names})
		if s.broken == nil {
			t.Errorf("%v is taken", names)
		}
		closeServer(t, s)
	}
	s = New(newInProcess(t), Options{Rename: map[string]string{"ping": "time", "time": "ping"}})
	if s.broken != nil {
		t.Error(s.broken)
	}
	closeServer(t, s)
}

func TestSlowlog(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{Config: Config{SlowerThan: time.Nanosecond, SlowlogLen: 3}})
	c := dialResp(t, listen(t, s))
	c.do("ADDJOB", "q", "the body", 0)
	args := []any{"ACKJOB"}
	for range 40 {
		args = append(args, "D-ca1fe000-aaaaaaaaaaaaaaaaaaaaaaaa-05a1")
	}
	c.do(args...)
	c.do("QLEN", strings.Repeat("long", 60))
	got := c.do("SLOWLOG", "GET").([]any)
	if len(got) != 3 {
		t.Fatalf("%d entries: %v", len(got), got)
	}
	entry := func(i int) []any { return got[i].([]any)[3].([]any) }
	if v := text(entry(2)); v != "[ADDJOB q (8 bytes) 0]" {
		t.Error(v)
	}
	if v := entry(1); len(v) != 32 || v[31] != "... (10 more arguments)" {
		t.Error(v)
	}
	if v := entry(0)[1].(string); len(v) > wordsLogged+5 {
		t.Error(v)
	}
	if v := c.do("SLOWLOG", "LEN"); v != int64(3) {
		t.Error(v)
	}
	if v := c.do("SLOWLOG", "GET", 1).([]any); len(v) != 1 || v[0].([]any)[0].(int64) <= got[0].([]any)[0].(int64) {
		t.Error(v)
	}
	c.do("CONFIG", "SET", "slowlog-log-slower-than", -1)
	c.do("SLOWLOG", "RESET")
	c.do("PING")
	if v := c.do("SLOWLOG", "LEN"); v != int64(0) {
		t.Error(v)
	}
}

func TestInfo(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{Version: "v1.2.3", Facts: map[string]string{"port": "7711"}})
	c := dialResp(t, listen(t, s))
	c.do("ADDJOB", "q", "x", 0)
	all := c.do("INFO", "ALL").(string)
	for _, name := range strings.Fields(`disque_version disque_git_sha1 disque_git_dirty disque_build_id os arch_bits multiplexing_api gcc_version process_id run_id
		tcp_port uptime_in_seconds uptime_in_days hz executable config_file connected_clients client_longest_output_list client_biggest_input_buf blocked_clients
		used_memory used_memory_human used_memory_rss used_memory_peak used_memory_peak_human mem_fragmentation_ratio mem_allocator registered_jobs registered_queues
		loading aof_enabled aof_state aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status
		aof_last_write_status total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes
		instantaneous_input_kbps instantaneous_output_kbps
		rejected_connections latest_fork_usec used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children cmdstat_addjob`) {
		if !strings.Contains(all, "\r\n"+name+":") {
			t.Errorf("no %s", name)
		}
	}
	for _, want := range []string{"# Server\r\n", "raftq_version:v1.2.3\r\n", "registered_jobs:1\r\n", "registered_queues:1\r\n", "connected_clients:1\r\n", "tcp_port:7711\r\n", "cmdstat_addjob:calls=1,usec="} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if v := c.do("INFO", "jobs"); v != "# Jobs\r\nregistered_jobs:1\r\n" {
		t.Error(v)
	}
	if v := c.do("INFO").(string); strings.Contains(v, "# Commandstats") || !strings.Contains(v, "# CPU") {
		t.Error(v)
	}
	c.do("CONFIG", "RESETSTAT")
	if v := c.do("INFO", "commandstats").(string); strings.Contains(v, "addjob") || !strings.Contains(v, "cmdstat_config:calls=1,") {
		t.Error(v)
	}
}

func TestHuman(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.00K", 1536: "1.50K", 5 << 20: "5.00M", 3 << 30: "3.00G", 1 << 50: "1024.00T"} {
		if got := human(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	var r rate
	at := time.Unix(100, 0)
	r.add(at, 5)
	r.add(at.Add(999*time.Millisecond), 2)
	if v := r.perSecond(at.Add(time.Second)); v != 7 {
		t.Error(v)
	}
	r.add(at.Add(time.Second), 1)
	if v := r.perSecond(at.Add(time.Second)); v != 7 {
		t.Error(v)
	}
	r.add(at.Add(5*time.Second), 1)
	if v := r.perSecond(at.Add(5 * time.Second)); v != 0 {
		t.Error(v)
	}
	if v := r.perSecond(at.Add(8 * time.Second)); v != 0 {
		t.Error(v)
	}
}

// Jobs that other nodes took in count as imported, for a few seconds.
func TestImports(t *testing.T) {
	now := time.Unix(1000, 0)
	m := imports{now: func() time.Time { return now }}
	self := uint64(7) << 32
	job := func(queue string, node uint32) []fsm.Delivered {
		return []fsm.Delivered{{Queue: queue, ID: fsm.ID{Node: node}}}
	}
	m.note(job("q", 7), self)
	if from, rate := m.of("q"); from != nil || rate != 0 {
		t.Error(from, rate)
	}
	for range 100 {
		m.note(job("q", 9), self)
		m.note(job("q", 8), self)
		now = now.Add(10 * time.Millisecond)
	}
	if from, rate := m.of("q"); len(from) != 2 || from[0] != 8 || from[1] != 9 || rate < 190 || rate > 210 {
		t.Error(from, rate)
	}
	now = now.Add(6 * time.Second)
	if from, rate := m.of("q"); from != nil || rate != 0 {
		t.Error(from, rate)
	}
	for i := range 3 * importQueues {
		m.note(job(string(rune(i)), 9), self)
	}
	if len(m.queues) != importQueues {
		t.Errorf("%d queues are counted", len(m.queues))
	}
	now = now.Add(6 * time.Second)
	m.note(job("new", 9), self)
	if from, _ := m.of("new"); len(from) != 1 || len(m.queues) != 1 {
		t.Errorf("%v, %d queues are counted", from, len(m.queues))
	}
}
