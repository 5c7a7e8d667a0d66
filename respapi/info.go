package respapi

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"raftq/fsm"
)

// protocolVersion is the version of Disque whose commands these are.
const protocolVersion = "1.0-rc1"

// info is INFO [section]: lines of name:value in sections, with Disque's names.
func info(c *session, args [][]byte) {
	section := "default"
	switch {
	case len(args) > 2:
		c.fail(errSyntax)
		return
	case len(args) == 2:
		section = strings.ToLower(string(args[1]))
	}
	if c.flush() != nil {
		return
	}
	c.bulk(c.s.info(section))
}

var infoSections = []struct {
	name   string
	always bool // part of the default
	write  func(*Server, *strings.Builder)
}{
	{"Server", true, (*Server).infoServer},
	{"Clients", true, (*Server).infoClients},
	{"Memory", true, (*Server).infoMemory},
	{"Jobs", true, (*Server).infoJobs},
	{"Queues", true, (*Server).infoQueues},
	{"Persistence", true, (*Server).infoPersistence},
	{"Stats", true, (*Server).infoStats},
	{"CPU", true, (*Server).infoCPU},
	{"Commandstats", false, (*Server).infoCommandstats},
}

func (s *Server) info(section string) string {
	var b strings.Builder
	for _, x := range infoSections {
		if section != "all" && (section != "default" || !x.always) && section != strings.ToLower(x.name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + x.name + "\r\n")
		x.write(s, &b)
	}
	return b.String()
}

func line(b *strings.Builder, name string, value any) { fmt.Fprintf(b, "%s:%v\r\n", name, value) }

func (s *Server) infoServer(b *strings.Builder) {
	var u unix.Utsname
	_ = unix.Uname(&u) //nolint:errcheck // then it is empty
	up := time.Since(s.started)
	exe, _ := os.Executable() //nolint:errcheck // then it is empty
	line(b, "disque_version", protocolVersion)
	line(b, "raftq_version", s.opts.Version)
	line(b, "disque_git_sha1", "00000000")
	line(b, "disque_git_dirty", 0)
	line(b, "disque_build_id", 0)
	line(b, "os", fmt.Sprintf("%s %s %s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])))
	line(b, "arch_bits", strconv.IntSize)
	line(b, "multiplexing_api", "epoll")
	line(b, "gcc_version", "0.0.0")
	line(b, "go_version", runtime.Version())
	line(b, "process_id", os.Getpid())
	line(b, "run_id", s.runID)
	line(b, "tcp_port", s.opts.Facts["port"])
	line(b, "uptime_in_seconds", int64(up.Seconds()))
	line(b, "uptime_in_days", int64(up.Hours()/24))
	line(b, "hz", 100)
	line(b, "executable", exe)
	line(b, "config_file", s.opts.ConfigFile)
}

func (s *Server) infoClients(b *strings.Builder) {
	line(b, "connected_clients", s.sessions.len())
	line(b, "client_longest_output_list", 0)
	line(b, "client_biggest_input_buf", 0)
	line(b, "blocked_clients", s.sessions.blocks.Load())
}

func (s *Server) infoMemory(b *strings.Builder) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	used := samples[0].Value.Uint64()
	peak := s.stats.peak(used)
	rss := residentBytes()
	line(b, "used_memory", used)
	line(b, "used_memory_human", human(used))
	line(b, "used_memory_rss", rss)
	line(b, "used_memory_peak", peak)
	line(b, "used_memory_peak_human", human(peak))
	line(b, "mem_fragmentation_ratio", fmt.Sprintf("%.2f", float64(rss)/float64(max(1, used))))
	line(b, "mem_allocator", "go")
}

// totals reads this node's own state: INFO answers when there is no leader, too.
func (s *Server) totals() (jobs, queues int) {
	_, _ = s.replica.Read(fsm.ReadHow{TimeoutMs: 1000}, func(m *fsm.Machine) { //nolint:errcheck // loading: none are known
		t := m.Totals()
		jobs, queues = t.Ready+t.Delayed+t.Leased+t.Held+t.Dead, m.QueueCount()
	})
	return jobs, queues
}

func (s *Server) infoJobs(b *strings.Builder) {
	jobs, _ := s.totals()
	line(b, "registered_jobs", jobs)
}

func (s *Server) infoQueues(b *strings.Builder) {
	_, queues := s.totals()
	line(b, "registered_queues", queues)
}

func (s *Server) infoPersistence(b *strings.Builder) {
	loading := 0
	if s.replica.Started() != nil {
		loading = 1
	}
	line(b, "loading", loading)
	line(b, "aof_enabled", 1)
	line(b, "aof_state", "on")
	line(b, "aof_rewrite_in_progress", 0)
	line(b, "aof_rewrite_scheduled", 0)
	line(b, "aof_last_rewrite_time_sec", -1)
	line(b, "aof_current_rewrite_time_sec", -1)
	line(b, "aof_last_bgrewrite_status", "ok")
	line(b, "aof_last_write_status", "ok")
}

func (s *Server) infoStats(b *strings.Builder) {
	st := s.stats
	line(b, "total_connections_received", st.accepted.since())
	line(b, "total_commands_processed", st.executed.since())
	now := time.Now()
	kbps := func(r *rate) string { return fmt.Sprintf("%.2f", float64(r.perSecond(now))/1024) }
	line(b, "instantaneous_ops_per_sec", st.ops.perSecond(now))
	line(b, "total_net_input_bytes", st.bytesIn.since())
	line(b, "total_net_output_bytes", st.bytesOut.since())
	line(b, "instantaneous_input_kbps", kbps(&st.in))
	line(b, "instantaneous_output_kbps", kbps(&st.out))
	line(b, "rejected_connections", st.refused.since())
	line(b, "latest_fork_usec", 0)
}

func (s *Server) infoCPU(b *strings.Builder) {
	var self, children unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &self)         //nolint:errcheck // then it is 0
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &children) //nolint:errcheck // then it is 0
	seconds := func(t unix.Timeval) string { return fmt.Sprintf("%.2f", float64(t.Nano())/1e9) }
	line(b, "used_cpu_sys", seconds(self.Stime))
	line(b, "used_cpu_user", seconds(self.Utime))
	line(b, "used_cpu_sys_children", seconds(children.Stime))
	line(b, "used_cpu_user_children", seconds(children.Utime))
}

func (s *Server) infoCommandstats(b *strings.Builder) {
	var all []*command
	for _, cmd := range s.commands {
		all = append(all, cmd)
	}
	slices.SortFunc(all, func(a, b *command) int { return strings.Compare(a.name, b.name) })
	for _, cmd := range all {
		if calls := cmd.calls.since(); calls > 0 {
			us := cmd.nanos.since() / 1000
			line(b, "cmdstat_"+cmd.name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f", calls, us, float64(us)/float64(calls)))
		}
	}
}

// residentBytes is what the process takes of the machine's memory.
func residentBytes() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64) //nolint:errcheck // then it is 0
	return pages * uint64(os.Getpagesize())
}

// human is a size for people, as Disque writes them.
func human(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	f := float64(n)
	for _, unit := range "KMGT" {
		if f /= 1024; f < 1024 || unit == 'T' {
			return fmt.Sprintf("%.2f%c", f, unit)
		}
	}
	return ""
}
