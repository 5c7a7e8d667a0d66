//go:build seeded

package fsm

import "os"

func init() { Seed(os.Getenv("SEEDED_BUG")) }
