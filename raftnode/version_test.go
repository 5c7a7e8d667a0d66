package raftnode

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

// The data directory of a single node, as the build of an earlier version left
// it, is in testdata/versionN.tar.gz; what was in it then, in versionN.json. Both
// are written with RAFTQ_MAKE_VERSION=N go test -run TestMakeVersion ./raftnode.

// versionWant is what the node of that time read before it was closed.
type versionWant struct {
	Index uint64
	Chain string
	Jobs  []versionJob
	Ready int
	Acked uint64
}

type versionJob struct{ ID, Body, State string }

func versionConfig(dir string) Config {
	return Config{Name: "n1", DataDir: dir, ListenPeer: "127.0.0.1:0", AdvertisePeer: "http://127.0.0.1:9080", SegmentBytes: 64 << 10, SnapshotEntries: 60,
		Heartbeat: 50 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond}
}

func versionJobs(m *fsm.Machine, ids []fsm.ID) (jobs []versionJob) {
	for _, id := range ids {
		j, code := m.Job(id.Key)
		if code != fsm.CodeOK {
			j.State = code.String()
		}
		jobs = append(jobs, versionJob{id.String(), versionBody(j.Body), j.State})
	}
	return jobs
}

// versionBody is enough of a body to know it again.
func versionBody(body string) string { return fmt.Sprintf("%.25q of %d", body, len(body)) }

// TestMakeVersion leaves a snapshot and a log behind it of several segments and
// of two lives of a node.
func TestMakeVersion(t *testing.T) {
	version := os.Getenv("RAFTQ_MAKE_VERSION")
	if version == "" {
		t.Skip("RAFTQ_MAKE_VERSION=N writes test data of this build as that of version N")
	}
	cfg := versionConfig(filepath.Join(t.TempDir(), "data"))
	var ids []fsm.ID
	var want versionWant
	for life := range 2 {
		n, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a ready node", func() bool { return n.Ready() == nil })
		for i := range 60 {
			ids = append(ids, enqueueOn(t, n, fmt.Sprintf("job %d of life %d %s", i, life, strings.Repeat("x", 20*i))))
			switch i % 10 {
			case 3:
				for _, d := range dequeueOn(t, n, 0) {
					if _, err := n.Do(&fsm.Ack{Items: []fsm.Item{d.Receipt().Item()}}, false, 10*time.Second, nil); err != nil {
						t.Fatal(err)
					}
				}
			case 6:
				job := fsm.NewJob{Queue: "later", Body: []byte("later"), Priority: 4, DelayMs: fsm.DelayMaxMs, Headers: []fsm.Header{{Name: "a", Value: "b"}}}
				res, err := n.Do(&fsm.Enqueue{Jobs: []fsm.NewJob{job}}, false, 10*time.Second, nil)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, res.Items[0].ID)
			}
		}
		if _, err := n.Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) {
			q, _ := m.Queue("q")
			want = versionWant{m.Position().Index, fmt.Sprintf("%016x", m.Chain()), versionJobs(m, ids), q.Ready, q.Acked}
		}); err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
	}
	text, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/version"+version+".json", text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/version"+version+".tar.gz", pack(t, cfg.DataDir), 0o644); err != nil {
		t.Fatal(err)
	}
}

func closeNode(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// pack archives a data directory without what only a running node needs.
func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w := tar.NewWriter(z)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, ".tmp") || e.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

// unpack returns a fresh data directory with an archive's files.
func unpack(t *testing.T, archive string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		} else if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOldDataDirectory proves that a node starts on the data directory of an
// earlier version, that its log leads to the chain and the jobs of that time, and
// that it goes on from there.
func TestOldDataDirectory(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, version := range []string{"1"} {
		var want versionWant
		text, err := os.ReadFile("testdata/version" + version + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		var ids []fsm.ID
		for _, j := range want.Jobs {
			id, ok := fsm.ParseID(j.ID)
			if !ok {
				t.Fatalf("id %q", j.ID)
			}
			ids = append(ids, id)
		}
		dir := unpack(t, "testdata/version"+version+".tar.gz")
		replayed(t, dir, want, ids)

		n, err := Open(versionConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a ready node", func() bool { return n.Ready() == nil })
		ids = append(ids, enqueueOn(t, n, "new"))
		want.Jobs = append(want.Jobs, versionJob{ids[len(ids)-1].String(), versionBody("new"), "ready"})
		if _, err := n.Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) {
			if q, _ := m.Queue("q"); q.Ready != want.Ready+1 || q.Acked != want.Acked {
				t.Errorf("version %s: %+v", version, q)
			}
			for i, j := range versionJobs(m, ids) {
				if want.Jobs[i].State == "delayed" && j.State == "ready" {
					j.State = "delayed" // its delay of years is over some day
				}
				if j != want.Jobs[i] {
					t.Errorf("version %s: job %+v, want %+v", version, j, want.Jobs[i])
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
	}
}

// replayed boots a data directory without a core, and applies its log by hand.
func replayed(t *testing.T, dir string, want versionWant, ids []fsm.ID) {
	t.Helper()
	cfg, err := versionConfig(dir).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b, err := boot(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	m := b.core.machine
	ents, err := b.storage.Entries(m.Position().Index+1, want.Index+1, 1<<40)
	if err != nil || len(ents) == 0 || m.Position().Index == 1 {
		t.Fatalf("%d entries behind the snapshot at %d: %v", len(ents), m.Position().Index, err)
	}
	for _, e := range ents {
		if _, err := m.Apply(e.GetIndex(), e.GetTerm(), e.GetData(), fsm.Self{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprintf("%016x", m.Chain()); got != want.Chain {
		t.Errorf("chain %s at index %d, want %s", got, want.Index, want.Chain)
	}
	for i, j := range versionJobs(m, ids) {
		if j != want.Jobs[i] {
			t.Errorf("job %+v, want %+v", j, want.Jobs[i])
		}
	}
}
