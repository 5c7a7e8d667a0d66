package client

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"raftq/cluster"
)

// exampleNode is the single node of the examples, started by the first of them.
var exampleNode = sync.OnceValues(func() (*cluster.Cluster, error) {
	bin, err := raftqBin()
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(cluster.Options{Binary: bin, Dir: filepath.Join(scratch, "example"), Nodes: 1})
	if err != nil {
		return nil, err
	}
	exampleStarted = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c, c.Start(ctx)
})

var exampleStarted bool

// Endpoints is where the examples find a cluster.
func Endpoints() string {
	c, err := exampleNode()
	if err != nil {
		panic(err)
	}
	return c.Endpoints()
}

// endExamples stops the node.
func endExamples() {
	if !exampleStarted {
		return
	}
	if c, err := exampleNode(); err == nil {
		c.Close()
	}
	_ = os.RemoveAll(filepath.Join(scratch, "example")) // scratch goes too
}
