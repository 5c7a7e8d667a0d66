package main

import (
	"strings"
	"testing"

	"raftq/fsm"
)

// Each code of the machine has a hint, if only an empty one: somebody thought
// about what to do next.
func TestHintForEachCode(t *testing.T) {
	for _, c := range fsm.Codes() {
		if _, ok := hints[c.String()]; !ok && c != fsm.CodeOK {
			t.Errorf("no hint for %s", c)
		}
	}
}

// Commands that a hint names exist, and so do their flags.
func TestHintsNameCommands(t *testing.T) {
	root := newRoot(new(bool))
	for code, hint := range hints {
		for i, quoted := range strings.Split(hint, `"`) {
			words := strings.Fields(quoted)
			if i%2 == 0 || len(words) < 2 || words[0] != "raftq" {
				continue
			}
			cmd, rest, err := root.Find(words[1:])
			if err != nil || cmd == root {
				t.Errorf("%s: there is no %q: %v", code, quoted, err)
				continue
			}
			for _, w := range rest {
				if name, ok := strings.CutPrefix(w, "--"); ok && cmd.Flags().Lookup(name) == nil {
					t.Errorf("%s: %q has no flag %s", code, quoted, w)
				}
			}
		}
	}
}
