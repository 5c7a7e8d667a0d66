package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// config check says what counts and where it comes from, and refuses what serve
// refuses, without touching anything.
func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, envPrefix) {
			t.Setenv(name, "") // to be put back
			os.Unsetenv(name)
		}
	}
	file := filepath.Join(dir, "raftq.yaml")
	if err := os.WriteFile(file, []byte("name: n7\nheartbeat: 200ms\nmax-body: 4MiB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RAFTQ_HEARTBEAT", "150ms")
	t.Setenv("RAFTQ_ENDPOINTS", "a:1")
	t.Setenv("RAFTQ_JOB_ID", "D-1")

	code, out, errs := raftqRun(t, "", "config", "check", "--config", "raftq.yaml", "--tick", "20ms")
	want := "SETTING    VALUE       FROM\n" +
		"config     raftq.yaml  --config\n" +
		"heartbeat  150ms       RAFTQ_HEARTBEAT\n" +
		"max-body   4MiB        raftq.yaml\n" +
		"name       n7          raftq.yaml\n" +
		"tick       20ms        --tick\n" +
		"good: serve would start with these\n"
	if code != exitOK || out != want {
		t.Errorf("exit code %d\n%s%s, want\n%s", code, out, errs, want)
	}
	if code, out, _ := raftqRun(t, "", "config", "check", "--all"); code != exitOK || !strings.Contains(out, "election-timeout") || !strings.Contains(out, originDefault) {
		t.Errorf("--all: exit code %d\n%s", code, out)
	}
	if code, out, _ := raftqRun(t, "", "config", "check", "-o", "json", "--name", "x"); code != exitOK || !strings.Contains(out, `{"name":"name","value":"x","from":"--name"}`) {
		t.Errorf("json: exit code %d\n%s", code, out)
	}
	// What a disque.conf says is told; a password is not.
	if err := os.WriteFile("disque.conf", []byte("requirepass hush\nport 7999\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs = raftqRun(t, "", "config", "check", "--disque-conf", "disque.conf")
	if code != exitOK || strings.Contains(out, "hush") || !strings.Contains(out, "resp-password  (set)           disque-conf") || !strings.Contains(out, ":7999") {
		t.Errorf("disque.conf: exit code %d\n%s%s", code, out, errs)
	}
	if err := os.Remove("disque.conf"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--heartbeat", "5"}, `heartbeat: "5" has no unit`},
		{[]string{"--listen-client", "0.0.0.0:8080"}, "--insecure"},
		{[]string{"--config", "missing.yaml"}, "missing.yaml: "},
		{[]string{"--no-such-flag"}, "there is no flag --no-such-flag"},
		{[]string{"extra"}, "takes no arguments"},
	} {
		if code, _, errs := raftqRun(t, "", append([]string{"config", "check"}, c.args...)...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %s", c.args, code, errs)
		}
	}
	// Its own flags are no settings.
	if err := os.WriteFile(file, []byte("output: json\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := raftqRun(t, "", "config", "check", "--config", "raftq.yaml"); code != exitUsage || !strings.Contains(errs, `unknown key "output"`) {
		t.Errorf("output as a setting: exit code %d, %s", code, errs)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}

// A family without a member shows its help; a word that is none is an error that
// names them.
func TestFamily(t *testing.T) {
	if code, out, _ := raftqRun(t, "", "config"); code != exitOK || !strings.Contains(out, "check") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, _, errs := raftqRun(t, "", "job", "shwo", "D-1"); code != exitUsage || !strings.Contains(errs, `"shwo" is not one of show, `) {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}
