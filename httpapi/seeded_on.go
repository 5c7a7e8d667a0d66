//go:build seeded

package httpapi

import "os"

// seeded names the bug that this process has on purpose. See
// consistency/seeded_test.go.
var seeded = os.Getenv("SEEDED_BUG")
