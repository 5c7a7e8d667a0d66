package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// dial says whether an address can be connected to; the test binary runs it
// inside a node's namespace.
func dial() {
	c, err := net.DialTimeout("tcp", os.Args[1], 500*time.Millisecond)
	if err != nil {
		fmt.Print("no")
		return
	}
	c.Close()
	fmt.Print("yes")
}

func isolated(t *testing.T, nodes int) *Cluster {
	t.Helper()
	if err := CanIsolate(); err != nil {
		t.Skip(err)
	}
	c, err := New(Options{Binary: self(), Dir: t.TempDir(), Nodes: nodes, Env: []string{roleEnv + "=node"}, Isolated: true, DiskBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Cut links are cut in the direction that was asked for, the machine reaches
// every node all the same, and Heal undoes it.
func TestCutLinks(t *testing.T) {
	c := isolated(t, 3)
	if err := c.Start(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	reach := func(from, to int) bool {
		t.Helper()
		cmd := exec.Command("nsenter", "--net=/run/netns/"+c.Nodes[from].namespace, self(), c.Nodes[to].Client)
		cmd.Env = append(os.Environ(), roleEnv+"=dial")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out) == "yes"
	}
	check := func(what string, want bool, links ...[2]int) {
		t.Helper()
		for _, l := range links {
			if got := reach(l[0], l[1]); got != want {
				t.Errorf("%s: %d reaches %d: %v", what, l[0], l[1], got)
			}
		}
	}
	check("whole", true, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 0})
	if err := c.Net.Split([]int{0}, []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	check("split", false, [2]int{0, 1}, [2]int{1, 0}, [2]int{0, 2})
	check("split", true, [2]int{1, 2})
	if err := c.WaitReady(within(t, 5*time.Second)); err != nil {
		t.Error("the machine does not reach a node that is cut off:", err)
	}
	if err := c.Net.Heal(); err != nil {
		t.Fatal(err)
	}
	check("healed", true, [2]int{0, 1}, [2]int{1, 0}, [2]int{0, 2})
}

// A power cut loses what was not synced and keeps what was; a full disk refuses
// and is free again.
func TestPowerCut(t *testing.T) {
	c := isolated(t, 2)
	if err := c.Start(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	n := c.Nodes[0]
	kept := filepath.Join(n.Disk.Dir, "kept")
	f, err := os.Create(kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("synced"); err != nil || f.Sync() != nil || f.Close() != nil {
		t.Fatal(err)
	}
	lost, err := c.PowerCut(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !lost[0] || !lost[1] || n.Running() {
		t.Errorf("unsynced writes lost: %v; running: %v", lost, n.Running())
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "synced" {
		t.Errorf("a synced file reads %q, %v", text, err)
	}
	if err := n.Disk.Fill(0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, make([]byte, 1<<20), 0o600); err == nil {
		t.Error("a full disk takes a file")
	}
	if err := n.Disk.Free(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, make([]byte, 1<<20), 0o600); err != nil {
		t.Error(err)
	}
	if err := c.Start(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
}

// What a killed owner of a network left is removed by the next one.
func TestNetworkAfterCrash(t *testing.T) {
	if err := CanIsolate(); err != nil {
		t.Skip(err)
	}
	a, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.add("n1"); err != nil {
		t.Fatal(err)
	}
	d, err := newDisk(a, t.TempDir(), "n1", 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(d.image)
	a.lock.Close() // as the end of its process
	b, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if b.number != a.number {
		t.Skip("somebody else took the number first")
	}
	if _, err := b.add("n1"); err != nil {
		t.Error("the namespace is still there:", err)
	}
	if err := tool("mountpoint", "-q", d.Dir); err == nil {
		t.Error("the mount is still there")
	}
}

// The writes of a starved disk fail once and its file system lives on; a frozen one
// lets writers wait.
func TestSickDisks(t *testing.T) {
	c := isolated(t, 1)
	d := c.Nodes[0].Disk
	file := filepath.Join(d.Dir, "file")
	write := func() error {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, 1<<20))
		return errors.Join(err, f.Sync(), f.Close())
	}
	if !d.CanStarve() {
		t.Log("no disks in memory here, so no failing writes")
	}
	for round := 0; round < 2 && d.CanStarve(); round++ {
		if err := d.Starve(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err == nil {
			t.Error("a starved disk syncs")
		}
		if round == 1 { // as when a write of the journal itself fails
			if err := errors.Join(tool("mount", "-o", "remount,abort", d.Dir), d.failsOnce()); err != nil {
				t.Fatal(err)
			}
			if err := write(); !errors.Is(err, syscall.EROFS) {
				t.Error("a disk that became read-only takes a file:", err)
			}
		}
		if err := d.Feed(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Error("after Feed:", err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		// A copy has its own blocks too, as the disk had.
		saved, err := d.Save()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Restore(saved); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Freeze(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- write() }()
	select {
	case err := <-done:
		t.Errorf("a frozen disk takes a file: %v", err)
	case <-time.After(100 * time.Millisecond): // what is not to happen
	}
	if err := errors.Join(d.Thaw(), <-done); err != nil {
		t.Error(err)
	}
}
