package raftnode

import "fmt"

// DataError: a file of the data directory, other than the log, is not one that this
// node can start with. The log's own errors are those of package wal.
type DataError struct {
	Path string
	What string
	Do   string // what helps
}

func (e *DataError) Error() string {
	return fmt.Sprintf("data directory: %s: %s; %s", e.Path, e.What, e.Do)
}

const joinAnew = "let the node join as a new member: remove the old one, and start it with --join and an empty directory"
