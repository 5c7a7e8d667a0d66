package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A shell is offered commands, flags, their values and the names of queues.
func TestCompletion(t *testing.T) {
	node, _ := fakeNode(t, func(w http.ResponseWriter, r *http.Request) {
		var names []string
		for _, n := range []string{"mail", "mail.dead", "orders"} {
			if strings.HasPrefix(n, r.URL.Query().Get("prefix")) {
				names = append(names, `{"queue":"`+n+`"}`)
			}
		}
		answerJSON(200, `{"queues":[`+strings.Join(names, ",")+`]}`)(w, r)
	})
	t.Setenv("RAFTQ_ENDPOINTS", node)
	for _, c := range []struct {
		line string // the last word is begun
		want []string
		not  string
	}{
		{"enq", []string{"enqueue"}, "dequeue"},
		{"job ", []string{"show", "wait", "requeue", "hold", "cancel", "delete"}, ""},
		{"enqueue m", []string{"mail", "mail.dead"}, "orders"},
		{"enqueue mail ", nil, "orders"},
		{"dequeue mail o", []string{"orders"}, "mail"},
		{"stats ", []string{"mail", "orders"}, ""},
		{"work o", []string{"orders"}, "mail"},
		{"queue configure m", []string{"mail"}, ""},
		{"queue configure mail --dead-letter o", []string{"orders"}, ""},
		{"queue configure mail --over", []string{"--overflow"}, ""},
		{"queue configure mail --overflow ", []string{"reject", "drop_oldest"}, ""},
		{"peek mail --state ", []string{"ready", "dead", "all"}, ""},
		{"stats -o ", []string{"text", "json"}, ""},
		{"dequeue mail --consistency ", []string{"fast", "strong"}, ""},
		{"ack ", nil, "mail"},
		{"completion ", []string{"bash", "zsh", "fish"}, "powershell"},
	} {
		words := strings.Split(c.line, " ")
		code, out, errs := raftqRun(t, "", append([]string{"__complete"}, words...)...)
		offered := map[string]bool{}
		for line := range strings.Lines(out) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			offered[name] = true
		}
		if code != exitOK {
			t.Errorf("%q: exit code %d\n%s", c.line, code, errs)
		}
		for _, w := range c.want {
			if !offered[w] {
				t.Errorf("%q: %s is not offered\n%s", c.line, w, out)
			}
		}
		if c.not != "" && offered[c.not] {
			t.Errorf("%q: %s is offered\n%s", c.line, c.not, out)
		}
	}
	// Nobody there: nothing is offered, and soon.
	t.Setenv("RAFTQ_ENDPOINTS", deadNode(t))
	if code, out, _ := raftqRun(t, "", "__complete", "stats", ""); code != exitOK || !strings.HasPrefix(out, ":") {
		t.Errorf("without a node: exit code %d\n%s", code, out)
	}
}

// bash takes the script and completes with it.
func TestCompletionInBash(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed")
	}
	bin := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(bin, "raftq")); err != nil {
		t.Fatal(err)
	}
	node, _ := fakeNode(t, answerJSON(http.StatusOK, `{"queues":[{"queue":"mail"}]}`))
	const script = `set -u
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; }
__ltrim_colon_completions() { :; }
compopt() { :; }
source <(raftq completion bash)
complete_line() {
	COMP_WORDS=($1) COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
	__start_raftq
	echo "$1: ${COMPREPLY[*]}"
}
complete_line 'raftq stats m'
complete_line 'raftq work mail -- m'
complete_line 'raftq dequeue mail --consistency f'`
	cmd := exec.Command("bash", "-c", script)
	cmd.Env = append(cleanEnviron(), beRaftq, "PATH="+bin+":"+os.Getenv("PATH"), "RAFTQ_ENDPOINTS="+node)
	out, err := cmd.CombinedOutput()
	if want := "raftq stats m: mail\nraftq work mail -- m: \nraftq dequeue mail --consistency f: fast\n"; err != nil || string(out) != want {
		t.Errorf("%v, completed\n%s, want\n%s", err, out, want)
	}
}
