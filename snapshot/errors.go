package snapshot

import "fmt"

// DamageError: the file is not what was written. It is of no use; another
// snapshot, or another node's, has to be taken.
type DamageError struct {
	Path string
	What string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("snapshot: %s is damaged: %s; delete it and take an older one or another node's", e.Path, e.What)
}
