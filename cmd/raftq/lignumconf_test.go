package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// lignumYML is the file that Lignum comes with.
const lignumYML = `# config file

server:
  host: "0.0.0.0"
  port: 8080
  service-key: "service/lignum/key/master"

consul:
  host: "localhost"
  port: 8500
  session-ttl-in-seconds: 15
  session-renewal-ttl-in-seconds: 13
  lock-delay-in-ms: 10
  leader-election-interval-in-ms: 10

message:
  initial-size-per-topic: 1000

follower:
  healthcheck-interval-in-seconds: 1
  healthcheck-ping-timeout-in-ms: 100
  registration-leader-check-interval-in-seconds: 1

replication:
  internal-queue-size: 1024
  client-timeout-in-ms: 25
`

func serveSettings(t *testing.T, text string, args ...string) (map[string]string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yml")
	touchWith(t, path, text)
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(fs)
	if err := fs.Parse(append([]string{"--config", path}, args...)); err != nil {
		t.Fatal(err)
	}
	return loadSettings(fs, nil)
}

// Lignum's own config.yml starts a node: where clients find it counts, the rest is
// named, and a key that is neither's is refused.
func TestLignumConf(t *testing.T) {
	settings, err := serveSettings(t, lignumYML, "--insecure", "--name", "n7", "--advertise-client", "h1:8080")
	if err != nil || settings["listen-client"] != "0.0.0.0:8080" {
		t.Fatalf("%v, listen-client %s", err, settings["listen-client"])
	}
	cfg, err := newServeConfig(settings)
	if err != nil || len(cfg.lignum) != 13 || !slices.Contains(cfg.lignum, "consul.port") || slices.Contains(cfg.lignum, "server.port") {
		t.Errorf("%v, ignored %q", err, cfg.lignum)
	}
	if _, err := serveSettings(t, lignumYML+"  compress: true\n"); err == nil || !strings.Contains(err.Error(), "replication.compress") {
		t.Errorf("an unknown key: %v", err)
	}
	for text, want := range map[string]string{
		"server:\n  port: 8090\n":                                        "127.0.0.1:8090",
		"server:\n  port: 8090\nlisten-client: 127.0.0.1:9999\n":         "127.0.0.1:9999",
		"consul:\n  host: x\nname: n1\n":                                 "127.0.0.1:8080",
		"server:\n  host: localhost\nmessage:\n  data-dir: \"topics\"\n": "localhost:8080",
	} {
		settings, err := serveSettings(t, text)
		if err != nil || settings["listen-client"] != want || settings["data-dir"] != "./raftq-data" {
			t.Errorf("%q: %v, %s, %s", text, err, settings["listen-client"], settings["data-dir"])
		}
	}
	if settings, err := serveSettings(t, lignumYML, "--listen-client", "127.0.0.1:1"); err != nil || settings["listen-client"] != "127.0.0.1:1" {
		t.Errorf("the flag: %v, %s", err, settings["listen-client"])
	}
}
