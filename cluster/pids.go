package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// pids keeps the file that lists the running processes, for people and scripts.
type pids struct {
	path string

	mu    sync.Mutex
	lines map[string]string // by node name
}

func newPids(dir string) *pids {
	return &pids{path: filepath.Join(dir, "pids"), lines: map[string]string{}}
}

func (p *pids) add(name string, pid int, startTime string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines[name] = fmt.Sprintf("%d %s %s\n", pid, startTime, name)
	return p.write()
}

// remove drops a process that has ended. A line too many harms nobody, so a
// file that cannot be written is passed over.
func (p *pids) remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lines, name)
	_ = p.write()
}

func (p *pids) write() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.lines)) {
		b.WriteString(p.lines[name])
	}
	tmp := p.path + ".tmp"
	if err := os.WriteFile(tmp, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, p.path)
}

// refuseSecond is an error when processes that an earlier file lists still run.
func (p *pids) refuseSecond() error {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return nil // none was here
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if err == nil && startTime(pid) == f[1] {
			return fmt.Errorf("%s is in use: its node %s still runs as process %d", filepath.Dir(p.path), f[2], pid)
		}
	}
	return nil
}

// startTime returns when a process was started, in clock ticks since boot
// (field 22 of its stat), "" when it is not there.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the command in parentheses and may hold spaces.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 20 {
		return ""
	}
	return f[19]
}
