//go:build !failpoints

package failpoint

// Hit is passed when the code is at a point.
func Hit(string) {}

// WallOffset is how wrong the wall clock is, in ns.
func WallOffset() int64 { return 0 }
