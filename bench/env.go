package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Environment is the machine that a report was made on. The nodes may run
// elsewhere; their versions are in the results.
type Environment struct {
	Host   string  `json:"host"`
	OS     string  `json:"os"`
	Kernel string  `json:"kernel"`
	CPU    string  `json:"cpu"`
	CPUs   int     `json:"cpus"`
	Memory int64   `json:"memory_bytes"`
	Go     string  `json:"go"`
	Load   float64 `json:"load"` // average of the last minute, before the runs
	Disk   string  `json:"disk,omitempty"`
}

// ThisMachine reads the facts; what cannot be read stays empty.
func ThisMachine() Environment {
	e := Environment{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	e.Host, _ = os.Hostname()
	e.Kernel = strings.TrimSpace(fileText("/proc/sys/kernel/osrelease"))
	for _, line := range strings.Split(fileText("/proc/cpuinfo"), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			e.CPU = strings.TrimSpace(value)
			break
		}
	}
	for _, line := range strings.Split(fileText("/proc/meminfo"), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			e.Memory = kib << 10
		}
	}
	if f := strings.Fields(fileText("/proc/loadavg")); len(f) > 0 {
		e.Load, _ = strconv.ParseFloat(f[0], 64)
	}
	return e
}

func fileText(path string) string {
	b, _ := os.ReadFile(path) // missing: nothing to tell
	return string(b)
}

// FileSystem names the kind of file system that a directory is on.
func FileSystem(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs", 0x2fc12fc1: "zfs"}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return "0x" + strconv.FormatInt(int64(st.Type), 16)
}
