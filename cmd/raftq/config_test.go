package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"raftq/raftnode"
)

// settingsOf loads and checks what a command line, an environment and a file
// (none if empty) say together.
func settingsOf(t *testing.T, args, environ []string, yaml string) (serveConfig, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(fs)
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "raftq.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	settings, err := loadSettings(fs, environ)
	if err != nil {
		return serveConfig{}, err
	}
	return newServeConfig(settings)
}

// Flags win over the environment, it over the file, it over the default.
func TestPrecedence(t *testing.T) {
	const yaml = "heartbeat: 300ms\n"
	environ := []string{"RAFTQ_HEARTBEAT=200ms"}
	args := []string{"--heartbeat", "150ms"}
	for _, c := range []struct {
		name          string
		args, environ []string
		yaml          string
		want          time.Duration
	}{
		{"all", args, environ, yaml, 150 * time.Millisecond},
		{"flag and file", args, nil, yaml, 150 * time.Millisecond},
		{"environment and file", nil, environ, yaml, 200 * time.Millisecond},
		{"file", nil, nil, yaml, 300 * time.Millisecond},
		{"default", nil, nil, "", 100 * time.Millisecond},
		{"flag equal to the default", []string{"--heartbeat", "100ms"}, environ, yaml, 100 * time.Millisecond},
	} {
		cfg, err := settingsOf(t, c.args, c.environ, c.yaml)
		if err != nil || cfg.node.Heartbeat != c.want {
			t.Errorf("%s: heartbeat = %v, %v; want %v", c.name, cfg.node.Heartbeat, err, c.want)
		}
	}
}

// No flags: a durable single node on loopback.
func TestDefaults(t *testing.T) {
	cfg, err := settingsOf(t, nil, []string{"HOME=/root", "RAFTQ_ENDPOINTS=a:1,b:2"}, "")
	if err != nil {
		t.Fatal(err)
	}
	want := raftnode.Config{
		Name: "n1", DataDir: "./raftq-data", ListenPeer: "127.0.0.1:9080", AdvertisePeer: "http://127.0.0.1:9080",
		AdvertiseClient: "127.0.0.1:8080", ClusterToken: "raftq", Tick: 10 * time.Millisecond,
		Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second, SnapshotBytes: 64 << 20,
	}
	got := cfg.node
	if got.InitialCluster != nil || got.Name != want.Name || got.DataDir != want.DataDir || got.ListenPeer != want.ListenPeer ||
		got.AdvertisePeer != want.AdvertisePeer || got.AdvertiseClient != want.AdvertiseClient || got.ClusterToken != want.ClusterToken ||
		got.Tick != want.Tick || got.Heartbeat != want.Heartbeat || got.ElectionTimeout != want.ElectionTimeout ||
		got.SnapshotBytes != want.SnapshotBytes || got.SnapshotEntries != 0 || got.MaxMemory != 0 {
		t.Errorf("node = %+v, want %+v", got, want)
	}
	if cfg.listenClient != "127.0.0.1:8080" || cfg.maxBody != 1<<20 || cfg.logFormat != "text" {
		t.Errorf("config = %+v", cfg)
	}
}

// A whole file, with a list where the flag has commas.
func TestFile(t *testing.T) {
	cfg, err := settingsOf(t, nil, nil, `
name: n2
data-dir: /var/lib/raftq
listen-client: 10.0.0.2:8080
listen-peer: 0.0.0.0:9080
insecure: true
snapshot-entries: 5000
max-body: 16MiB
initial-cluster:
  - n1=http://10.0.0.1:9080
  - n2=http://10.0.0.2:9080
`)
	if err != nil {
		t.Fatal(err)
	}
	n := cfg.node
	if n.Name != "n2" || n.AdvertisePeer != "http://10.0.0.2:9080" || n.AdvertiseClient != "10.0.0.2:8080" || n.SnapshotEntries != 5000 ||
		cfg.maxBody != 16<<20 || len(n.InitialCluster) != 2 || n.InitialCluster[0] != (raftnode.Member{Name: "n1", Peer: "http://10.0.0.1:9080"}) {
		t.Errorf("config = %+v", cfg)
	}
}

// What is wrong stops the start, and the error names it.
func TestRefusedSettings(t *testing.T) {
	for _, c := range []struct {
		args    []string
		environ string
		yaml    string
		want    string // in the error
	}{
		{yaml: "listen-clients: 127.0.0.1:1\n", want: `raftq.yaml: unknown key "listen-clients"`},
		{yaml: "listen:\n  client: 127.0.0.1:1\n", want: `unknown key "listen.client"`},
		{yaml: "config: other.yaml\n", want: `unknown key "config"`},
		{yaml: "help: true\n", want: `unknown key "help"`},
		{yaml: "name: [unclosed\n", want: "raftq.yaml: "},
		{yaml: "name: {a: b}\n", want: `unknown key "name.a"`},
		{args: []string{"--config", "/does/not/exist.yaml"}, want: "/does/not/exist.yaml: "},
		{environ: "RAFTQ_LISTEN_CLIENTS=127.0.0.1:1", want: "unknown key RAFTQ_LISTEN_CLIENTS"},
		{environ: "RAFTQ_CONFIG=/does/not/exist.yaml", want: "/does/not/exist.yaml: "},
		{environ: "RAFTQ_TICK=10", want: `tick: "10" has no unit`},
		{yaml: "heartbeat: 100\n", want: `heartbeat: "100" has no unit`},
		{yaml: "max-body: 1048576\n", want: `max-body: "1048576" has no unit`},
		{args: []string{"--tick", "10"}, want: `tick: "10" has no unit`},
		{args: []string{"--snapshot-bytes", "64 apples"}, want: "snapshot-bytes: "},
		{args: []string{"--snapshot-entries", "-1"}, want: "snapshot-entries: "},
		{args: []string{"--max-body", "17MiB"}, want: "max-body: "},
		{args: []string{"--max-body", "0"}, want: "max-body: "},
		{args: []string{"--election-timeout", "150ms"}, want: "election-timeout"},
		{args: []string{"--tick", "200ms"}, want: "tick"},
		{args: []string{"--listen-client", "0.0.0.0:8080"}, want: "--insecure"},
		{args: []string{"--listen-client", ":8080"}, want: "--insecure"},
		{args: []string{"--listen-client", "10.1.2.3:8080"}, want: "--insecure"},
		{args: []string{"--listen-client", "0.0.0.0:8080", "--insecure"}, want: "advertise-client: is needed"},
		{args: []string{"--listen-peer", "0.0.0.0:9080"}, want: "advertise-peer: is needed"},
		{args: []string{"--listen-client", "8080"}, want: "listen-client: "},
		{args: []string{"--listen-client", "127.0.0.1:http"}, want: "listen-client: "},
		{args: []string{"--advertise-peer", "h1:9080"}, want: "advertise-peer: "},
		{args: []string{"--advertise-client", "h1"}, want: "advertise-client: "},
		{args: []string{"--initial-cluster", "n2=http://h2:9080"}, want: "does not name this node"},
		{args: []string{"--initial-cluster", "n1"}, want: "is not name=URL"},
		{args: []string{"--initial-cluster", "n1=h1:9080"}, want: "is not a URL"},
		{args: []string{"--initial-cluster", "n1=http://h1:9080,n1=http://h2:9080"}, want: "there twice"},
		{args: []string{"--initial-cluster", "n1=http://h1:9080", "--advertise-peer", "http://h2:9080"}, want: "but initial-cluster says"},
		{args: []string{"--name", "a b"}, want: "name: "},
		{args: []string{"--name", ""}, want: "name: "},
		{args: []string{"--data-dir", ""}, want: "data-dir: "},
		{args: []string{"--log-level", "loud"}, want: "log-level: "},
		{args: []string{"--log-format", "xml"}, want: "log-format: "},
		{yaml: "insecure: perhaps\n", want: "insecure: "},
	} {
		_, err := settingsOf(t, c.args, []string{c.environ}, c.yaml)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %s %q: error = %v, want %q in it", c.args, c.environ, c.yaml, err, c.want)
		}
	}
	if _, err := settingsOf(t, []string{"--listen-client", "10.1.2.3:8080", "--insecure"}, nil, ""); err != nil {
		t.Errorf("insecure: %v", err)
	}
}

// Flags are read like the rest: days, sizes, a switch with and without a value.
func TestFlagForms(t *testing.T) {
	cfg, err := settingsOf(t, []string{"--election-timeout", "1d", "--heartbeat=5s", "--max-memory", "2GiB", "--insecure", "--listen-client", "10.1.2.3:80"}, nil, "")
	if err != nil || cfg.node.ElectionTimeout != day || cfg.node.MaxMemory != 2<<30 {
		t.Errorf("config = %+v, %v", cfg, err)
	}
	if _, err := settingsOf(t, []string{"--insecure=false", "--listen-client", "10.1.2.3:80"}, []string{"RAFTQ_INSECURE=true"}, ""); err == nil {
		t.Error("--insecure=false does not win over the environment")
	}
}

// Every flag's variable is known by the same name.
func TestVariables(t *testing.T) {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if v := variableOfKey(f.Name); keyOfVariable(v) != f.Name {
			t.Errorf("%s → %s → %s", f.Name, v, keyOfVariable(v))
		}
	})
}
