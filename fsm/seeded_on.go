//go:build seeded

package fsm

// seeded names the bug that this process has on purpose. See
// consistency/seeded_test.go.
var seeded string

// Seed gives the machine a bug. The machine itself asks no environment.
func Seed(bug string) { seeded = bug }
