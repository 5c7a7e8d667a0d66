package consistency

import (
	"os"
	"sync"

	"raftq/consistency/check"
)

// reports are the runs of this process; TestMain makes them a page.
var reports runs

type runs struct {
	mu  sync.Mutex
	all []*check.Result
}

func (r *runs) add(one *check.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// write makes the page that RAFTQ_CONSISTENCY_REPORT names.
func (r *runs) write() error {
	path := os.Getenv("RAFTQ_CONSISTENCY_REPORT")
	if path == "" || len(r.all) == 0 {
		return nil
	}
	return os.WriteFile(path, check.Page(r.all), 0o644)
}
