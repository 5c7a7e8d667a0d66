//go:build seeded

package raftnode

// seeded names the bug that this build has on purpose; the linker sets it.
var seeded string
