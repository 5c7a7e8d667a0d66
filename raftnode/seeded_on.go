//go:build seeded

package raftnode

import (
	"os"

	"raftq/fsm"
)

// seeded names the bug that this process has on purpose. See
// consistency/seeded_test.go.
var seeded = os.Getenv("SEEDED_BUG")

func init() { fsm.Seed(seeded) }
