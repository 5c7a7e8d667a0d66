package raftnode

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"raftq/failpoint"
	"raftq/fsm"
	"raftq/snapshot"
	"raftq/wal"
)

// The data directory:
//
//	lock      flock of the running process
//	boot      the boot counter: how often this node started
//	join      while the node joins: what it is known by until it has an id
//	rejoin    while a node whose log is damaged comes back as a new member: Rejoin
//	damaged-1 such a log, with its note and boot counter
//	note      lost-tail note of the log
//	log/wal   the log
//	log/snap  snapshots
//
// log is made aside and renamed, so that it is there whole or not at all.
type dataDir struct {
	path string
	lock *os.File
}

func (d *dataDir) walDir() string  { return filepath.Join(d.path, "log", "wal") }
func (d *dataDir) snapDir() string { return filepath.Join(d.path, "log", "snap") }
func (d *dataDir) note() string    { return filepath.Join(d.path, "note") }
func (d *dataDir) boots() string   { return filepath.Join(d.path, "boot") }
func (d *dataDir) join() string    { return filepath.Join(d.path, "join") }

// HasData tells whether a data directory is that of a node already.
func HasData(dir string) bool {
	there, err := dirOf(dir).hasLog()
	return there && err == nil
}

// dirOf is a data directory that is only looked at.
func dirOf(path string) *dataDir { return &dataDir{path: path} }

// hasLog tells whether the node has begun to be a member.
func (d *dataDir) hasLog() (bool, error) {
	_, err := os.Stat(filepath.Join(d.path, "log"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d *dataDir) close() error { return d.lock.Close() }

// identity is the log's metadata: who this data directory belongs to.
type identity struct {
	Format  int    `json:"format"`
	Cluster uint64 `json:"cluster"`
	Node    uint64 `json:"node"`
	Name    string `json:"name"`
	// Token is a hash of the cluster token, for a node that joined: the id of a
	// first member follows from it.
	Token string `json:"token,omitempty"`
}

const identityFormat = 1

func tokenHash(token string) string { return fmt.Sprintf("%016x", xxhash.Sum64String(token)) }

// check tells whether a data directory is this node's.
func (was identity) check(cfg Config, dir string) error {
	ours := was.Token == tokenHash(cfg.ClusterToken)
	if was.Token == "" {
		ours = was.Node == nodeID(cfg.ClusterToken, was.Name)
	}
	switch {
	case was.Format != identityFormat:
		return fmt.Errorf("data directory %s is of format %d, this build knows %d", dir, was.Format, identityFormat)
	case was.Name != cfg.Name || !ours:
		return fmt.Errorf("data directory %s belongs to node %q (%016x) of cluster %016x, not to node %q: the name or the cluster token has changed", dir, was.Name, was.Node, was.Cluster, cfg.Name)
	}
	return nil
}

// booted is what a start found, ready for a core.
type booted struct {
	core    coreConfig
	cluster uint64
	log     *wal.Log
	storage *raft.MemoryStorage
	dir     *dataDir
}

func (b *booted) close() {
	_ = b.log.Close()
	_ = b.dir.close()
}

// boot opens the data directory, or makes it at the first start.
func boot(cfg Config) (_ *booted, err error) {
	dir, err := openDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = dir.close()
		}
	}()
	bootID, err := readBootID()
	if err != nil {
		return nil, err
	}
	opts := wal.Options{Dir: dir.walDir(), NotePath: dir.note(), SegmentBytes: cfg.SegmentBytes, ArchiveDir: cfg.WALArchive, BootID: bootID, Logger: cfg.Logger}
	if there, err := dir.hasLog(); err != nil {
		return nil, err
	} else if !there {
		if err := genesis(dir, cfg); err != nil {
			return nil, fmt.Errorf("first start in %s: %w", dir.path, err)
		}
	}
	if _, err := os.Stat(dir.boots()); errors.Is(err, os.ErrNotExist) {
		opts.Fresh = true // built and never opened: there is no note yet
	}
	// What a crash left half-written.
	if _, err := snapshot.Clean(dir.snapDir()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // without the directory there is no snapshot, which wal.Open says better
	}
	now := clocks()
	var unread error // what could not be read, which is not to say that it is bad
	log, st, err := wal.Open(opts, func(metadata []byte, m wal.Marker) bool {
		// A whole file of another cluster may have the name, and its index and term.
		var owner identity
		h, err := snapshot.Verify(snapshot.Path(dir.snapDir(), m.Index))
		if damaged := (*snapshot.DamageError)(nil); err != nil && !errors.As(err, &damaged) && !errors.Is(err, os.ErrNotExist) {
			unread = errors.Join(unread, err)
			cfg.Logger.Warn("a snapshot cannot be read", zap.Error(err))
		}
		return err == nil && h.Index == m.Index && h.Term == m.Term && json.Unmarshal(metadata, &owner) == nil && h.ClusterID == owner.Cluster
	})
	if none := (*wal.NoSnapshotError)(nil); unread != nil && errors.As(err, &none) && seeded != "unread-snapshot-is-lost" {
		err = unread // not a loss: --recover=rejoin would give up a log that may be whole
	}
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir.walDir(), err)
	}
	failpoint.Hit(failpoint.BootLogOpen)
	b := &booted{log: log, dir: dir, storage: raft.NewMemoryStorage()}
	defer func() {
		if err != nil {
			_ = log.Close()
		}
	}()
	var self identity
	if err := json.Unmarshal(st.Metadata, &self); err != nil {
		return nil, &DataError{dir.walDir(), fmt.Sprintf("the log's metadata: %v", err), joinAnew}
	}
	if err := self.check(cfg, dir.path); err != nil {
		return nil, err
	}
	b.cluster = self.Cluster
	machine, _, err := readMachine(snapshot.Path(dir.snapDir(), st.Marker.Index))
	if err != nil {
		return nil, err
	}
	conf := st.Marker.ConfState
	if err := b.storage.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(st.Marker.Index), Term: new(st.Marker.Term), ConfState: conf}}); err != nil {
		return nil, err
	}
	_ = b.storage.SetHardState(st.HardState) // in memory, never fails
	if err := b.storage.Append(st.Entries); err != nil {
		return nil, err
	}
	seen, _ := machine.Session(self.Node)
	counter, err := nextBoot(dir.boots(), seen.Epoch>>32)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.BootCounterSaved)
	base := bootBase(st, machine, now)
	b.core = coreConfig{
		id: self.Node, name: cfg.Name,
		tickNs: int64(cfg.Tick), heartbeatNs: int64(cfg.Heartbeat), electionNs: int64(cfg.ElectionTimeout),
		epoch: counter<<32 | uint64(random32()), random32: random32,
		start:   fsm.NodeStart{Client: cfg.AdvertiseClient, Peer: cfg.AdvertisePeer, Version: cfg.Version, FeatureLevel: fsm.FeatureLevel, MaxMemory: cfg.MaxMemory},
		version: cfg.Version, resp: cfg.AdvertiseResp, machine: machine, conf: conf, storage: b.storage,
		base:      base,
		snapBytes: cfg.SnapshotBytes, snapEntries: cfg.SnapshotEntries,
		now: now, log: cfg.Logger,
	}
	if fi, err := os.Stat(snapshot.Path(dir.snapDir(), st.Marker.Index)); err == nil {
		b.core.snapLast = fi.Size()
	}
	return b, nil
}

// bootBase says when the last stamped entry of the log was written: from the
// note if it covers that entry in this boot, else now (late, never early).
func bootBase(st *wal.State, m *fsm.Machine, now reading) timeBase {
	pos := m.Position()
	last := wal.TimeBase{Index: pos.Index, Term: pos.Term, StampMs: pos.TimeMs, BootNs: now.boot}
	for _, e := range st.Entries {
		if h, ok := stampOf(e); ok {
			last = wal.TimeBase{Index: e.GetIndex(), Term: e.GetTerm(), StampMs: h.TimeMs, BootNs: now.boot}
		}
	}
	// Of that very entry: a note may be older than the end of the log, and its
	// entry truncated since.
	if st.Base != nil && st.SameBoot && st.Base.Index == last.Index && st.Base.Term == last.Term && st.Base.StampMs == last.StampMs && st.Base.BootNs <= now.boot {
		return timeBase{TimeBase: *st.Base}
	}
	return timeBase{TimeBase: last, lost: st.Base == nil || !st.SameBoot}
}

// readMachine verifies a snapshot file whole and decodes it.
func readMachine(path string) (m *fsm.Machine, h snapshot.Header, err error) {
	h, err = snapshot.Read(path, func(h snapshot.Header, r io.Reader) (err error) {
		if m, err = fsm.Decode(r); err != nil {
			return err
		}
		if p := m.Position(); p.Index != h.Index || p.Term != h.Term {
			return fmt.Errorf("snapshot %s holds the state at %d/%d, its header says %d/%d", path, p.Index, p.Term, h.Index, h.Term)
		}
		return nil
	})
	return m, h, err
}

// openDataDir makes and locks the data directory.
func openDataDir(path string) (*dataDir, error) {
	if err := makeDurably(path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("data directory %s is in use by another process (%w)", path, err)
	}
	return &dataDir{path, f}, nil
}

// makeDurably is os.MkdirAll whose directories outlive a power cut: what is synced in
// a directory without a name is lost, and a node that finds nothing takes itself for
// new, though it has voted and answered.
func makeDurably(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	made := path // the directory nearest to the root that is to be made, or else path
	for up := filepath.Dir(path); up != filepath.Dir(up); up = filepath.Dir(up) {
		if _, err := os.Stat(up); !errors.Is(err, os.ErrNotExist) {
			break
		}
		made = up
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	if seeded == "data-directory-not-synced" {
		return nil
	}
	// One that is there already may have been made by an earlier start, cut short.
	for dir := path; ; dir = filepath.Dir(dir) {
		// What we must not read we have not made, and where directories cannot be synced,
		// as at a mount point that is made on demand, there is nothing to sync.
		if err := syncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		if dir == made {
			return nil
		}
	}
}

// nextBoot counts this start, durably, before anything of its epoch leaves the
// process. seen is the last start of this node that its own snapshot knows: a
// counter that is not above it would number batches anew.
func nextBoot(path string, seen uint64) (uint64, error) {
	n := uint64(0)
	if b, err := os.ReadFile(path); err == nil {
		if n, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 16); err != nil {
			return 0, &DataError{path, fmt.Sprintf("the boot counter is damaged: %v", err), joinAnew}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	switch n++; {
	case n > 1<<16-1:
		return 0, &DataError{path, fmt.Sprintf("the boot counter is used up after %d starts", n-1), joinAnew}
	case n <= seen:
		return 0, &DataError{path, fmt.Sprintf("this would be start %d, but the node's own state has seen start %d: the boot counter is gone, old or of another node", n, seen), joinAnew}
	}
	return n, writeFile(path, fmt.Appendln(nil, n))
}

// writeFile replaces a small file, durably.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func readBootID() (id [16]byte, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("boot id: %w", err)
	}
	var raw [32]byte
	n := copy(raw[:], strings.ReplaceAll(strings.TrimSpace(string(b)), "-", ""))
	for i := 0; i+1 < n; i += 2 {
		v, err := strconv.ParseUint(string(raw[i:i+2]), 16, 8)
		if err != nil {
			return id, fmt.Errorf("boot id: %w", err)
		}
		id[i/2] = byte(v)
	}
	return id, nil
}

func random32() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint32(b[:])
}

// nodeID is a first member's raft id.
func nodeID(token, name string) uint64 {
	id := xxhash.Sum64String(token + "\x00" + name)
	if id == 0 || id == raft.LocalAppendThread || id == raft.LocalApplyThread {
		id = 1
	}
	return id
}

// members returns the first members, sorted by id, and the cluster id, which
// proves that all first members were given the same list.
func (cfg Config) members() ([]fsm.Member, uint64) {
	var ms []fsm.Member
	for _, m := range cfg.InitialCluster {
		ms = append(ms, fsm.Member{ID: nodeID(cfg.ClusterToken, m.Name), Name: m.Name, Peer: m.Peer})
	}
	slices.SortFunc(ms, func(a, b fsm.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	h := xxhash.New()
	fmt.Fprintf(h, "%q", cfg.ClusterToken)
	for _, m := range ms {
		fmt.Fprintf(h, " %x %q %q", m.ID, m.Name, m.Peer)
	}
	return ms, max(h.Sum64(), 1)
}

func errorsJoinRemove(err error, path string) error { return errors.Join(err, removeFile(path)) }
