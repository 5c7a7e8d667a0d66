package raftnode

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func envInt(name string, or int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return or
}

// TestSim runs clusters of real cores under a virtual clock, with clients,
// faults and checkers, one world for each seed; docs/testing.md says what it
// checks and how to replay a seed.
func TestSim(t *testing.T) {
	ops := envInt("RAFTQ_SIM_OPS", 2000)
	if v := os.Getenv("RAFTQ_SIM_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		cut, err := parseCut(os.Getenv("RAFTQ_SIM_CUT"))
		if err != nil {
			t.Fatal(err)
		}
		simOne(t, simRun{seed, ops, cut})
		return
	}
	from, seeds := envInt("RAFTQ_SIM_FROM", 1), envInt("RAFTQ_SIM_SEEDS", simSeeds())
	var until time.Time
	if v := os.Getenv("RAFTQ_SIM_TIME"); v != "" {
		long, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		until, seeds = time.Now().Add(long), 1<<30
		if os.Getenv("RAFTQ_SIM_FROM") == "" {
			from = int(until.Unix() * 1000)
		}
	}
	if v := os.Getenv("RAFTQ_SIM_WORKER"); v != "" {
		if os.Getenv("RAFTQ_SIM_CHILD") != "" {
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				os.Exit(1)
			}()
		}
		worker, _ := strconv.Atoi(v)
		simWork(t, from+worker, from+seeds, ops, until)
		return
	}
	began := time.Now()
	if !until.IsZero() {
		t.Logf("seeds from %d (RAFTQ_SIM_FROM) for %s", from, os.Getenv("RAFTQ_SIM_TIME"))
	}
	sum, failed := simSpawn(t, from, seeds, ops)
	t.Logf("%d seeds x %d operations in %.1f s: %s", sum.Seeds, ops, time.Since(began).Seconds(), sum)
	if failed {
		t.FailNow()
	}
	if until.IsZero() && sum.Seeds != seeds {
		t.Fatalf("%d seeds of %d were run", sum.Seeds, seeds)
	}
	if sum.Seeds >= 50 {
		sum.vacuous(t)
	}
}

func simSeeds() int {
	switch {
	case raceEnabled && testing.Short():
		return 10
	case raceEnabled, testing.Short():
		return 60
	}
	return 2000
}

const simWorkers = 2

// simSpawn runs the seeds in child processes: raft's randomness is a global of
// the process.
func simSpawn(t *testing.T, from, seeds, ops int) (sum simStats, failed bool) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	told := began
	for k := range simWorkers {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSim$", "-test.timeout=0")
		cmd.Env = append(os.Environ(), "RAFTQ_SIM_CHILD=1", "RAFTQ_SIM_WORKER="+strconv.Itoa(k),
			"RAFTQ_SIM_FROM="+strconv.Itoa(from),
			"RAFTQ_SIM_SEEDS="+strconv.Itoa(seeds), "RAFTQ_SIM_OPS="+strconv.Itoa(ops))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		// The child ends when this pipe does, however this process ends.
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close() })
		wg.Go(func() {
			s := bufio.NewScanner(out)
			s.Buffer(nil, 1<<24)
			for s.Scan() {
				line, isStats := strings.CutPrefix(s.Text(), "SIMSTATS ")
				mu.Lock()
				if isStats {
					var st simStats
					if err := json.Unmarshal([]byte(line), &st); err == nil {
						sum.add(st)
					}
					if time.Since(told) > 10*time.Second {
						told = time.Now()
						of := fmt.Sprintf(" of %d", seeds)
						if seeds == 1<<30 {
							of = ""
						}
						fmt.Printf("sim: %d%s seeds, %d operations, %.0f s\n", sum.Seeds, of, sum.Ops, time.Since(began).Seconds())
					}
				} else if line != "PASS" {
					fmt.Println(line)
				}
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				mu.Lock()
				failed = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return sum, failed
}

// simWork is a child: every second seed, until some time if one is set. It goes on
// after a failure, up to a few, when it has made the first one small.
func simWork(t *testing.T, from, to, ops int, until time.Time) {
	debug.SetGCPercent(800) // worlds are small and short-lived
	failures := 0
	for seed := from; seed < to && failures < 3 && (until.IsZero() || time.Now().Before(until)); seed += simWorkers {
		run := simRun{seed: uint64(seed), ops: ops}
		st, trace, failure := runWorld(t, run, nil)
		if failure != "" && failures == 0 {
			failure += shrunk(t, run, simTry{true, st.Ops, st.Faults})
		}
		if failure == "" && seed%50 == 0 {
			if _, again, _ := runWorld(t, run, nil); again != trace {
				failure = fmt.Sprintf("seed %d: two runs have different traces, %x and %x", seed, trace, again)
			}
		}
		if failure != "" {
			failures++
			t.Errorf("%s", failure)
			fmt.Println("FAIL " + failure)
		}
		b, _ := json.Marshal(st)
		fmt.Printf("SIMSTATS %s\n", b)
	}
}

// simOne runs one seed with a full trace.
func simOne(t *testing.T, run simRun) {
	began := time.Now()
	st, trace, failure := runWorld(t, run, func(w *world) *zap.Logger {
		if !testing.Verbose() {
			return zap.NewNop()
		}
		enc := zap.NewDevelopmentEncoderConfig()
		enc.EncodeTime = func(at time.Time, e zapcore.PrimitiveArrayEncoder) { e.AppendString(ms(at.UnixNano())) }
		core := zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stdout), zap.DebugLevel)
		return zap.New(core, zap.WithClock(virtualClock{w}))
	})
	t.Logf("trace %x, %.3f s, %s", trace, time.Since(began).Seconds(), st)
	if failure != "" {
		t.Fatal(failure)
	}
}

type virtualClock struct{ w *world }

func (c virtualClock) Now() time.Time                         { return time.Unix(0, c.w.now) }
func (c virtualClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

func (s *simStats) add(o simStats) {
	a, b := reflect.ValueOf(s).Elem(), reflect.ValueOf(o)
	for i := range a.NumField() {
		a.Field(i).SetInt(a.Field(i).Int() + b.Field(i).Int())
	}
}

func (s simStats) String() string {
	var b strings.Builder
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		fmt.Fprintf(&b, "%s %d, ", v.Type().Field(i).Name, v.Field(i).Int())
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// vacuous fails a batch of runs in which what it is there for did not happen.
func (s simStats) vacuous(t *testing.T) {
	for _, f := range []struct {
		what string
		n    int
	}{
		{"answered OK", s.OK}, {"unknown outcome", s.Unknown}, {"refusal", s.Refused},
		{"leader change", s.LeaderChanges}, {"snapshot install", s.Installs}, {"batch sent again", s.Resent},
		{"fast answer", s.Fast}, {"fast answer lost with its node", s.FastLost}, {"rollback", s.Rollbacks},
		{"append kept back", s.Held},
		{"hand-out given back", s.GivenBack}, {"node away", s.Away}, {"hand-out to a waiter", s.Handouts}, {"hang-up", s.Hangups},
		{"empty dequeue answered by a read", s.EmptyReads}, {"kill", s.Kills}, {"reboot", s.Reboots}, {"pause", s.Pauses},
		{"partition", s.Partitions}, {"wall jump", s.Jumps}, {"disk stall", s.Stalls}, {"start from an older snapshot", s.OldSnapshots},
		{"node that joined", s.Joins}, {"member removed", s.Removals}, {"leader removed", s.LeaderRemovals}, {"removed node that knows", s.Retired},
		{"node with a lost disk", s.Wiped}, {"leadership moved as asked", s.Moves}, {"removal refused for the quorum", s.QuorumRefusals},
		{"write under way at a crash", s.LostTails}, {"failed sync", s.DiskErrors}, {"log found damaged", s.Rotten}, {"snapshot that came twice", s.SnapTwice}, {"job settled as its lease ends", s.Edges},
		{"refusal of a side op", s.SideRefused}, {"transaction", s.SideTx}, {"hand-out of a side job", s.SideGrants}, {"dead letter", s.DeadLetters},
		{"stale receipt", s.StaleReceipts}, {"late ack", s.LateAcks}, {"epoch refused", s.EpochsRefused},
		{"retry under the same idempotency key", s.Replays}, {"retry on another node", s.ReplaysElsewhere}, {"retry under another leader", s.ReplaysLater},
		{"other request under a used key", s.Mismatches}, {"dequeue that came again", s.Attempts}, {"dequeue that came again on another node", s.AttemptsElsewhere},
		{"dequeue that came again under another leader", s.AttemptsLater}, {"place of a waiter that was taken over", s.WaitsTaken},
		{"retry of what a node that is dead has answered", s.ReplaysOutlived + s.AttemptsOutlived}, {"retry of what a snapshot holds", s.ReplaysRestored + s.AttemptsRestored},
		{"reject", s.Rejects}, {"mixed list of settlements", s.Settles}, {"refusal of a unique key", s.NotUnique}, {"purged job", s.Purged}, {"job of a released consumer", s.Released},
	} {
		if f.n == 0 {
			t.Errorf("vacuous: not one %s in %d seeds", f.what, s.Seeds)
		}
	}
	if s.Seeds >= 500 && (s.Voids == 0 || s.HeldLost == 0 || s.Redriven == 0 || s.Shared == 0) { // about one in 20 to 50 seeds
		t.Errorf("vacuous: %d fast dequeues that did not survive, %d appends kept back and lost with their nodes, %d jobs redriven and %d hand-outs given back by two tries in %d seeds",
			s.Voids, s.HeldLost, s.Redriven, s.Shared, s.Seeds)
	}
}
