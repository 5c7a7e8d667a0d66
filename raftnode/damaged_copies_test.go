package raftnode

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"raftq/snapshot"
	"raftq/wal"
)

// damagedBytes and damagedTime bound what the start on a damaged directory may take:
// a flipped length must not be believed.
const (
	damagedBytes = 64 << 20
	damagedTime  = 20 * time.Second
)

// TestDamagedCopies opens damaged copies of whole data directories as a node does.
// Each is refused, with an error that names what is damaged and what to do, or gives
// a state that was true, and not one older than what the note says was synced.
// RAFTQ_DAMAGED_COPIES=n runs n of them, RAFTQ_DAMAGED_SEED=s that one alone.
func TestDamagedCopies(t *testing.T) {
	copies := envInt("RAFTQ_DAMAGED_COPIES", 300)
	if testing.Short() || raceEnabled {
		copies = min(copies, 60)
	}
	first := uint64(time.Now().UnixNano()) / 1000 * 1000 // so that seeds are near each other
	if v, err := strconv.ParseUint(os.Getenv("RAFTQ_DAMAGED_SEED"), 10, 64); err == nil {
		first, copies = v, 1
	}
	t.Logf("first seed %d (RAFTQ_DAMAGED_SEED repeats one)", first)
	const each = 500 // copies of one directory; part of the seed's meaning
	s := damagedStats{opened: map[string]int{}, refused: map[string]int{}, by: map[string]*[2]int{}}
	scratch := scratch(t)
	var mine, mate, stranger *richDir
	built := uint64(0)
	for seed := first; seed < first+uint64(copies); seed++ {
		if base := seed/each + 1; base != built {
			built = base
			mine, mate, stranger = buildRichDir(t, base, "mine", "n1"), buildRichDir(t, base, "mine", "n2"), buildRichDir(t, base, "another", "n1")
		}
		if failure := damageOne(t, seed, scratch, mine, mate, stranger, &s); failure != "" {
			t.Errorf("seed %d: %s\n  replay: RAFTQ_DAMAGED_SEED=%d go test ./raftnode -run 'TestDamagedCopies$' -v", seed, failure, seed)
			if s.failed++; s.failed == 5 {
				break
			}
		}
	}
	s.print(t)
	if copies >= 300 && (s.total(s.opened) < copies/20 || s.total(s.refused) < copies/20 || s.mustStart == 0) {
		t.Error("vacuous: too few of a kind")
	}
}

type damagedStats struct {
	opened, refused map[string]int
	by              map[string]*[2]int // by kind of damage, of copies with that one alone: opened, refused
	mustStart       int
	failed          int
	mostBytes       uint64
	longest         time.Duration
}

func (s *damagedStats) total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

func (s *damagedStats) print(t *testing.T) {
	t.Logf("%d opened, %d refused, %d of those that had to open; at most %.1f MiB allocated, %v", s.total(s.opened), s.total(s.refused), s.mustStart, float64(s.mostBytes)/(1<<20), s.longest.Round(time.Millisecond))
	for _, m := range []map[string]int{s.opened, s.refused} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			t.Logf("  %6d  %s", m[k], k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.by)) {
		t.Logf("  alone: %-20s %5d opened, %5d refused", k, s.by[k][0], s.by[k][1])
	}
}

// damageOne makes the copy of a seed, opens it and judges; it returns what is wrong.
func damageOne(t *testing.T, seed uint64, scratch string, mine, mate, stranger *richDir, s *damagedStats) string {
	r := rand.New(rand.NewPCG(seed, 23))
	c := &damagedCopy{files: maps.Clone(mine.files), r: r, harmless: true}
	// Of the last syncs some note: after a power cut it is older than the log.
	c.note = mine.notes[len(mine.notes)-1-r.IntN(2)*r.IntN(12)]
	c.files["note"] = c.note.content
	kind := ""
	times := 1 + r.IntN(2)*(1+r.IntN(2))
	for range times {
		kind = c.hurt(mine, mate, stranger)
	}
	if slices.Contains(c.dirsGone, "log") {
		c.files["boot"] = mine.files["boot"] // with that gone too it is an empty disk: TestWipedFirstMember
	}
	promised := 0
	if n, ok := wholeNote(c.files["note"]); ok {
		for _, was := range mine.notes {
			if was.sequence == n.sequence && was.segment == n.segment && was.offset == n.offset {
				promised = was.points
			}
		}
	}
	cfg := mine.cfg
	cfg.DataDir = filepath.Join(scratch, strconv.FormatUint(seed, 10))
	defer os.RemoveAll(cfg.DataDir)
	for _, dir := range []string{"log/wal", "log/snap"} {
		if !slices.Contains(c.dirsGone, dir) && !slices.Contains(c.dirsGone, "log") {
			must(os.MkdirAll(filepath.Join(cfg.DataDir, dir), 0o700))
		}
	}
	for name, b := range c.files {
		if b != nil {
			path := filepath.Join(cfg.DataDir, name)
			must(os.MkdirAll(filepath.Dir(path), 0o700))
			must(os.WriteFile(path, b, 0o600))
		}
	}
	what := strings.Join(c.did, "; ")
	before, began := allocated(), time.Now()
	o := openWithin(cfg)
	s.mostBytes, s.longest = max(s.mostBytes, allocated()-before), max(s.longest, time.Since(began))
	if c.harmless {
		s.mustStart++
	}
	if times == 1 {
		if s.by[kind] == nil {
			s.by[kind] = &[2]int{}
		}
	}
	switch {
	case o.hung:
		return what + ": the start hangs"
	case o.panicked != "":
		return what + ": " + o.panicked
	case allocated()-before > damagedBytes:
		return fmt.Sprintf("%s: the start allocates %d bytes", what, allocated()-before)
	case o.err != nil:
		reason, ok := refusalOf(o.err)
		s.refused[reason]++
		if times == 1 {
			s.by[kind][1]++
		}
		switch {
		case !ok:
			return fmt.Sprintf("%s: refused without a typed error that says what to do: %T %v", what, o.err, o.err)
		case c.harmless:
			return fmt.Sprintf("%s: has to start, and is refused: %v", what, o.err)
		}
		return ""
	}
	point, why := mine.find(&o, promised)
	if why != "" {
		return fmt.Sprintf("%s: %s", what, why)
	}
	how := "whole"
	switch {
	case promised == 0 && point < len(mine.points)-1:
		how = "no note, the log ends earlier"
	case o.marker != mine.points[point].markers[len(mine.points[point].markers)-1]:
		how = "from an older snapshot"
	case point < len(mine.points)-1:
		how = "the torn tail cut, all that was synced is there"
	}
	s.opened[how]++
	if times == 1 {
		s.by[kind][0]++
	}
	if r.IntN(4) == 0 { // what the start wrote must not spoil the next
		again := openWithin(cfg)
		if again.err != nil || again.panicked != "" || again.hung {
			return fmt.Sprintf("%s: the second start: %v %s", what, again.err, again.panicked)
		}
		if k, why := mine.find(&again, point); why != "" || mine.points[k].last() != mine.points[point].last() {
			return fmt.Sprintf("%s: the second start has another state: %s", what, why)
		}
	}
	return ""
}

func allocated() uint64 {
	s := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	runtimemetrics.Read(s)
	return s[0].Value.Uint64()
}

// openedDir is what a start found.
type openedDir struct {
	err                      error
	panicked                 string
	hung                     bool
	marker                   uint64
	term, vote, commit, last uint64
	sums                     []uint64
	hashes                   map[uint64]uint64 // of the state, at the marker and at the commit index
}

func openWithin(cfg Config) openedDir {
	done := make(chan openedDir, 1)
	go func() {
		var o openedDir
		defer func() {
			if p := recover(); p != nil {
				o.panicked = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
			}
			done <- o
		}()
		o.open(cfg)
	}()
	select {
	case o := <-done:
		return o
	case <-time.After(damagedTime):
		return openedDir{hung: true}
	}
}

func (o *openedDir) open(cfg Config) {
	b, err := boot(cfg)
	if err != nil {
		o.err = err
		return
	}
	defer b.close()
	c, err := newCore(b.core)
	if err != nil {
		o.err = err
		return
	}
	hs, _, _ := b.storage.InitialState()
	o.term, o.vote, o.commit = hs.GetTerm(), hs.GetVote(), hs.GetCommit()
	first, _ := b.storage.FirstIndex()
	o.last, _ = b.storage.LastIndex()
	o.marker = first - 1
	o.hashes = map[uint64]uint64{o.marker: c.machine.Hash()}
	if o.last < first {
		return
	}
	ents, err := b.storage.Entries(first, o.last+1, ^uint64(0))
	must(err)
	for _, e := range ents {
		o.sums = append(o.sums, entrySum(e))
		if e.GetIndex() <= o.commit {
			applyTo(c.machine, e)
		}
	}
	o.hashes[o.commit] = c.machine.Hash()
	if s, ok := c.machine.Session(b.core.id); ok && s.Epoch>>32 >= b.core.epoch>>32 {
		// The node ends when it sees that, before it proposes anything.
		o.err = &DataError{b.dir.boots(), "the boot counter is behind the log", joinAnew}
	}
}

// find gives the last point of the log that the start's state is that of, or what
// is wrong with it.
func (d *richDir) find(o *openedDir, promised int) (int, string) {
	for i := len(d.points) - 1; i >= 0; i-- {
		p := &d.points[i]
		term, vote := p.term, p.vote
		if p.lastTerm > term {
			term, vote = p.lastTerm, 0 // the hard state behind its entries is missing
		}
		if p.last() != o.last || term != o.term || vote != o.vote || p.commit != o.commit || !slices.Contains(p.markers, o.marker) || o.marker < p.base && len(p.sums) > 0 && p.base > 1 {
			continue
		}
		if !slices.Equal(p.sums[o.marker-p.base:], o.sums) {
			continue
		}
		for index, hash := range o.hashes {
			if d.hashes[index] != hash {
				return i, fmt.Sprintf("WRONG: the state at %d is another", index)
			}
		}
		if i+1 < promised {
			return i, fmt.Sprintf("WRONG: it starts at record %d, but %d were promised (last %d, term %d, commit %d)", i+1, promised, o.last, o.term, o.commit)
		}
		return i, ""
	}
	return -1, fmt.Sprintf("WRONG: a state that never was: marker %d, last %d, term %d, vote %x, commit %d", o.marker, o.last, o.term, o.vote, o.commit)
}

// refusalOf names the reason of an error, and tells whether it is of a type and
// tells which file and what to do.
func refusalOf(err error) (string, bool) {
	var lost *wal.LostTailError
	var corrupt *wal.CorruptError
	var none *wal.NoLogError
	var snap *wal.NoSnapshotError
	var data *DataError
	var file *snapshot.DamageError
	kind := ""
	switch {
	case errors.As(err, &lost):
		kind = "lost tail"
	case errors.As(err, &corrupt):
		kind = "corrupt log"
	case errors.As(err, &none):
		kind = "no log"
	case errors.As(err, &snap):
		kind = "no usable snapshot"
	case errors.As(err, &data):
		kind = "other file: " + filepath.Base(data.Path)
	case errors.As(err, &file):
		kind = "damaged snapshot"
	default:
		return "untyped", false
	}
	text := err.Error()
	names := strings.Contains(text, ".wal") || strings.Contains(text, "log/") || strings.Contains(text, string(filepath.Separator))
	does := strings.Contains(text, "rejoin") || strings.Contains(text, "join as a new member")
	return kind, names && does
}
