//go:build !seeded

package httpapi

// seeded names the bug that this build has on purpose: none. See
// consistency/seeded_test.go.
const seeded = ""
