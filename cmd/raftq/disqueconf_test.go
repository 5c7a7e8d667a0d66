package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func confFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disque.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What applies is used where nothing else says it; the rest is named.
func TestDisqueConf(t *testing.T) {
	other := confFile(t, "timeout 60\nhz 10\n")
	conf := confFile(t, fmt.Sprintf(`
# A comment, and blank lines.

port 7799
BIND 127.0.0.2
unixsocket "/tmp/with space/disque.sock"
unixsocketperm 770
requirepass 'se cret'
maxclients 50
maxmemory 2gb
loglevel notice
slowlog-log-slower-than 5000
slowlog-max-len 7
rename-command CONFIG ""
rename-command DEBUG hidden
include %s
daemonize no
appendonly yes
client-output-buffer-limit normal 0 0 0
hz 10
`, other))
	cfg, err := settingsOf(t, []string{"--disque-conf", conf}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	r := cfg.resp
	if r.listen != "127.0.0.2:7799" || r.advertise != r.listen || r.socket != "/tmp/with space/disque.sock" || r.socketMode != 0o770 || r.live.Password != "se cret" ||
		r.live.MaxClients != 50 || r.live.Idle != time.Minute || r.live.SlowerThan != 5*time.Millisecond || r.live.SlowlogLen != 7 || r.disqueConf != conf {
		t.Errorf("%+v", r)
	}
	if cfg.node.MaxMemory != 2<<30 || cfg.logLevel.String() != "info" || cfg.node.AdvertiseResp != r.listen {
		t.Errorf("%+v", cfg)
	}
	if len(r.rename) != 2 || r.rename["config"] != "" || r.rename["debug"] != "hidden" {
		t.Error(r.rename)
	}
	if want := []string{"appendonly", "client-output-buffer-limit", "daemonize", "hz"}; !slices.Equal(r.ignored, want) {
		t.Errorf("ignored %v, want %v", r.ignored, want)
	}

	// A flag, a variable and the YAML file each say it better.
	cfg, err = settingsOf(t, []string{"--disque-conf", conf, "--listen-resp", "127.0.0.1:7712"}, []string{"RAFTQ_RESP_PASSWORD=mine"}, "max-memory: 1GiB\n")
	if err != nil || cfg.resp.listen != "127.0.0.1:7712" || cfg.resp.live.Password != "mine" || cfg.node.MaxMemory != 1<<30 || cfg.resp.socketMode != 0o770 {
		t.Errorf("%+v, %v", cfg.resp, err)
	}
	// Named in the file or the environment, it is read as well.
	if cfg, err = settingsOf(t, nil, []string{"RAFTQ_DISQUE_CONF=" + conf}, ""); err != nil || cfg.resp.listen != "127.0.0.2:7799" {
		t.Errorf("%+v, %v", cfg.resp, err)
	}
	if cfg, err = settingsOf(t, nil, nil, "disque-conf: "+conf+"\n"); err != nil || cfg.resp.listen != "127.0.0.2:7799" {
		t.Errorf("%+v, %v", cfg.resp, err)
	}
	// A port alone is one on loopback, port 0 none.
	if cfg, err = settingsOf(t, []string{"--disque-conf", confFile(t, "port 7755\n")}, nil, ""); err != nil || cfg.resp.listen != "127.0.0.1:7755" {
		t.Errorf("%+v, %v", cfg.resp, err)
	}
	if cfg, err = settingsOf(t, []string{"--disque-conf", confFile(t, "port 0\n")}, nil, ""); err != nil || cfg.resp.listen != "" {
		t.Errorf("%+v, %v", cfg.resp, err)
	}
}

func TestDisqueConfRefused(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop.conf")
	if err := os.WriteFile(loop, []byte("include "+loop+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"port x\n", ":1: port"},
		{"\nport 70000\n", ":2: port"},
		{"port\n", "takes one value"},
		{"bind\n", "names no address"},
		{"bind 127.0.0.1 127.0.0.2\n", "2 addresses"},
		{"maxmemory 5parsec\n", "not a size"},
		{"maxmemory -1\n", "not a size"},
		{"maxclients 0\n", "maxclients"},
		{"timeout -1\n", "timeout"},
		{"loglevel loud\n", "loglevel"},
		{"rename-command PING\n", "new name"},
		{"requirepass \"open\n", "quotes"},
		{"requirepass 'open\n", "quotes"},
		{"slowlog-max-len x\n", "slowlog-max-len"},
		{"slowlog-log-slower-than x\n", "slowlog-log-slower-than"},
		{"include /nowhere/disque.conf\n", "no such file"},
		{"include " + loop + "\n", "include each other"},
		{strings.Repeat("#\n", disqueConfMax), "at most"},
		{"bind 0.0.0.0\n", "--resp-password"},
	} {
		if _, err := settingsOf(t, []string{"--disque-conf", confFile(t, c.text)}, nil, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestConfBytes(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "5b": 5, "1k": 1000, "1KB": 1024, "3m": 3_000_000, "3mb": 3 << 20, "2G": 2_000_000_000, "2gb": 2 << 30} {
		if got, err := confBytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
}

// Settings of the RESP port, their defaults and what is refused.
func TestRespSettings(t *testing.T) {
	for _, c := range []struct {
		args              []string
		listen, advertise string
		want              string // in the error
	}{
		{nil, "127.0.0.1:7711", "127.0.0.1:7711", ""},
		{[]string{"--listen-resp", ""}, "", "", ""},
		{[]string{"--listen-resp", "", "--advertise-resp", "h:1"}, "", "", "there is no listen-resp"},
		{[]string{"--listen-resp", "10.0.0.1:7711"}, "", "", "--resp-password"},
		{[]string{"--listen-resp", "10.0.0.1:7711", "--resp-password", "x"}, "10.0.0.1:7711", "10.0.0.1:7711", ""},
		{[]string{"--listen-resp", "0.0.0.0:7711", "--insecure", "--advertise-client", "h1:8080"}, "0.0.0.0:7711", "h1:7711", ""},
		{[]string{"--listen-resp", ":7711", "--insecure", "--advertise-resp", "h2:77"}, ":7711", "h2:77", ""},
		{[]string{"--listen-resp", "nonsense"}, "", "", "not host:port"},
		{[]string{"--advertise-resp", "nonsense"}, "", "", "not host:port"},
		{[]string{"--resp-unixsocketperm", "999"}, "", "", "octal"},
		{[]string{"--resp-debug=maybe"}, "", "", "resp-debug"},
	} {
		cfg, err := settingsOf(t, c.args, nil, "")
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %q", c.args, err, c.want)
			}
			continue
		}
		if err != nil || cfg.resp.listen != c.listen || cfg.node.AdvertiseResp != c.advertise {
			t.Errorf("%v: %q, %q, %v; want %q, %q", c.args, cfg.resp.listen, cfg.node.AdvertiseResp, err, c.listen, c.advertise)
		}
	}
}
