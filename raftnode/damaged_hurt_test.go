package raftnode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

// damagedCopy is a copy of a data directory, in memory, that something happens to.
type damagedCopy struct {
	files map[string][]byte // paths whose content is nil are gone
	r     *rand.Rand
	note  richNote
	did   []string
	// harmless: all that was done so far has to leave a node that starts and has
	// lost nothing.
	harmless bool
	dirsGone []string
}

func (c *damagedCopy) did1(format string, args ...any) {
	c.did = append(c.did, fmt.Sprintf(format, args...))
}

func (c *damagedCopy) names(what string) (names []string) {
	for name, b := range c.files {
		if b != nil && fileKind(name) == what {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func fileKind(name string) string {
	switch {
	case strings.HasSuffix(name, ".wal"):
		return "segment"
	case strings.HasSuffix(name, ".snap.db"):
		return "snapshot"
	}
	return name
}

func (c *damagedCopy) any() string {
	segments, snaps := c.names("segment"), c.names("snapshot")
	switch p := c.r.IntN(20); {
	case p < 5 && len(segments) > 0:
		return segments[len(segments)-1]
	case p < 7 && len(segments) > 0:
		return segments[0]
	case p < 12 && len(segments) > 0:
		return segments[c.r.IntN(len(segments))]
	case p < 16 && len(snaps) > 0:
		return snaps[c.r.IntN(len(snaps))]
	case p < 18 && c.files["note"] != nil:
		return "note"
	case c.files["boot"] != nil:
		return "boot"
	}
	all := slices.Sorted(maps.Keys(c.files))
	return all[c.r.IntN(len(all))]
}

func (c *damagedCopy) put(name string, b []byte) { c.files[name] = bytes.Clone(b) }

// frames finds the records of a segment.
func frames(b []byte) (at [][2]int) {
	for off := 0; off+8 <= len(b); {
		l := binary.LittleEndian.Uint64(b[off:])
		n := int(l & (1<<56 - 1))
		end := off + 8 + n + (-n & 7)
		if n == 0 || end > len(b) {
			break
		}
		at = append(at, [2]int{off, end})
		off = end
	}
	return at
}

// hurt does one thing. mate is another node of the same cluster, stranger one of
// another.
func (c *damagedCopy) hurt(d, mate, stranger *richDir) string {
	r := c.r
	name := c.any()
	b := bytes.Clone(c.files[name])
	kind := fileKind(name)
	harmless := c.harmless
	c.harmless = false
	// One snapshot file may go: there is another, and the log reaches back to it.
	lone := kind == "snapshot" && harmless && !strings.Contains(strings.Join(c.did, " "), "snap")
	k := r.IntN(14)
	what := damageNames[k]
	switch {
	case len(b) == 0 && k < 6:
		b = append(b, byte(r.Uint32()))
	case k == 0:
		i := r.IntN(len(b))
		if at := frames(b); kind == "segment" && len(at) > 0 && r.IntN(4) > 0 {
			f := at[r.IntN(len(at))]
			part := r.IntN(4)
			switch part {
			case 0: // the length
				i = f[0] + r.IntN(8)
			case 1: // type and checksum
				i = f[0] + 8 + r.IntN(8)
			case 2: // the end: data and padding
				i = f[1] - 1 - r.IntN(min(16, f[1]-f[0]))
			default:
				i = f[0] + r.IntN(f[1]-f[0])
			}
			i = min(i, len(b)-1)
		}
		b[i] ^= 1 << r.IntN(8)
		c.did1("%s: bit at byte %d", name, i)
	case k == 1:
		b = b[:r.IntN(len(b))]
		c.did1("%s: cut to %d", name, len(b))
	case k == 2:
		i := r.IntN(len(b)/512+1) * 512
		clear(b[min(i, len(b)):min(i+512, len(b))])
		c.did1("%s: zero sector at %d", name, i)
	case k == 3:
		i := r.IntN(len(b)/512+1) * 512
		clear(b[min(i, len(b)):])
		c.did1("%s: zero from %d", name, i)
	case k == 4:
		b = append(b, big(r, 1+r.IntN(3000))...)
		c.did1("%s: garbage behind it", name)
	case k == 5:
		b = []byte{}
		c.did1("%s: empty", name)
	case k == 6:
		c.did1("%s: deleted", name)
		c.harmless = harmless && (lone && k != 7 || kind == "note" || kind == "lock")
		c.files[name] = nil
		if r.IntN(12) == 0 {
			dir := []string{"log/snap", "log/wal", "log"}[r.IntN(3)]
			c.did1("%s: the directory deleted", dir)
			c.harmless = false
			for f := range c.files {
				if strings.HasPrefix(f, dir+"/") {
					c.files[f] = nil
				}
			}
			c.dirsGone = append(c.dirsGone, dir)
		}
		return what
	case k == 7: // two files change places, or one gets the content of the other
		others := c.names(kind)
		o := others[r.IntN(len(others))]
		if kind != "segment" && kind != "snapshot" {
			o = c.any()
		}
		if o == name || c.files[o] == nil {
			c.harmless = harmless
			return c.hurt(d, mate, stranger)
		}
		if r.IntN(2) == 0 {
			c.did1("%s and %s swapped", name, o)
			c.put(name, c.files[o])
			c.put(o, b)
			return what
		}
		c.did1("%s: content of %s", name, o)
		b = c.files[o]
	case k == 8:
		old, ok := d.older[r.IntN(len(d.older))][name]
		if !ok {
			c.harmless = harmless
			return c.hurt(d, mate, stranger)
		}
		c.did1("%s: an older version", name)
		b = old
	case k == 9, k == 10:
		from, whose := mate, "another node"
		if k == 10 {
			from, whose = stranger, "another cluster"
		}
		o := name
		if kind == "segment" { // of the same place
			for f := range from.files {
				if fileKind(f) == kind && path.Base(f)[:16] == path.Base(name)[:16] {
					o = f
				}
			}
		}
		if from.files[o] == nil || k == 9 && kind == "snapshot" { // that one is the same
			c.harmless = harmless
			return c.hurt(d, mate, stranger)
		}
		c.did1("%s: that of %s", name, whose)
		b = from.files[o]
	case k == 11:
		to := path.Dir(name) + "/"
		var seq, index uint64
		fmt.Sscanf(path.Base(name), "%016x-%016x.wal", &seq, &index)
		switch {
		case kind == "segment" && r.IntN(3) == 0:
			to += fmt.Sprintf("%016x-%016x.wal", seq+1+r.Uint64N(3), index)
		case kind == "segment" && r.IntN(2) == 0:
			to += fmt.Sprintf("%016x-%016x.wal", seq, r.Uint64N(2*index+3))
		case kind == "segment":
			to += "copy of " + path.Base(name)
		case kind == "snapshot":
			fmt.Sscanf(path.Base(name), "%016x.snap.db", &index)
			to += fmt.Sprintf("%016x.snap.db", r.Uint64N(2*index+3))
		default:
			to = name + ".bak"
		}
		c.did1("%s: renamed to %s", name, path.Base(to))
		c.files[to], c.files[name] = b, nil
		return what
	case k == 12: // what a crash leaves behind
		o := []string{"boot.tmp", "note.torn", "join", "rejoin", "log/wal/0.tmp", "log/wal/1.tmp", "log/snap/tmp-1", "log.tmp", "damaged-1", "lock"}[r.IntN(10)]
		c.did1("%s: a stray file", o)
		c.put(o, big(r, r.IntN(2000)))
		c.harmless = harmless
		return what
	case k == 13: // a tail as a power cut leaves it: behind what was synced
		segments := c.names("segment")
		if len(segments) == 0 {
			return c.hurt(d, mate, stranger)
		}
		name = segments[len(segments)-1]
		b = bytes.Clone(c.files[name])
		var seq uint64
		fmt.Sscanf(path.Base(name), "%016x", &seq)
		if seq != c.note.segment || int(c.note.offset) >= len(b) {
			c.harmless = harmless
			return c.hurt(d, mate, stranger)
		}
		from := int(c.note.offset)
		used := from
		if at := frames(b); len(at) > 0 {
			used = at[len(at)-1][1]
		}
		i := from + r.IntN(max(used-from, 0)+600)
		i = min(i, len(b))
		switch r.IntN(3) {
		case 0:
			b = b[:i]
			c.did1("%s: torn at %d, synced to %d", name, i, from)
		case 1:
			i = min((i+511)/512*512, len(b))
			clear(b[i:])
			c.did1("%s: sectors from %d never came, synced to %d", name, i, from)
		case 2:
			i = (i + 511) / 512 * 512
			clear(b[min(i, len(b)):min(i+512, len(b))])
			c.did1("%s: the sector at %d never came, synced to %d", name, i, from)
		}
		c.harmless = harmless
	}
	if k < 11 {
		c.harmless = harmless && (lone && k != 7 || kind == "note" && k != 7 && k != 9 && k != 10 || kind == "lock")
	}
	c.files[name] = b
	return what
}

var damageNames = [...]string{"bit flip", "truncation", "zero sector", "lost sectors", "garbage appended", "empty file", "deleted", "swapped or doubled", "old version",
	"of another node", "of another cluster", "renamed", "stray file", "torn tail"}
