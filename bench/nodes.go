package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// askMax is the time for one request that is not part of the load.
const askMax = 10 * time.Second

// asker makes a connection for each request, so that none stays behind.
var asker = &http.Client{Timeout: askMax, Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second}}

// ask carries out a request that is not part of the load.
func ask(ctx context.Context, method, addr, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := asker.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return resp.StatusCode, body, err
}

// clusterView is what GET /v1/cluster tells, as far as it matters here.
type clusterView struct {
	Leader string `json:"leader"`
	Nodes  []struct {
		Name    string `json:"name"`
		Client  string `json:"client"`
		Version string `json:"version"`
	} `json:"nodes"`
}

// askCluster asks the endpoints in turn.
func askCluster(ctx context.Context, endpoints []string) (*clusterView, error) {
	var errs []error
	for _, addr := range endpoints {
		status, body, err := ask(ctx, http.MethodGet, addr, "/v1/cluster")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var view clusterView
		if status != http.StatusOK || json.Unmarshal(body, &view) != nil {
			errs = append(errs, fmt.Errorf("%s: GET /v1/cluster answered %d: is it raftq?", addr, status))
			continue
		}
		return &view, nil
	}
	return nil, errors.Join(errs...)
}

// node is one whose counters are read.
type node struct{ name, addr, version string }

// nodes are those of the cluster, or the endpoints when it tells no addresses.
func (v *clusterView) nodes(endpoints []string) (all []node) {
	for _, n := range v.Nodes {
		if n.Client != "" {
			all = append(all, node{n.Name, strings.TrimPrefix(n.Client, "http://"), n.Version})
		}
	}
	if len(all) == 0 {
		for _, e := range endpoints {
			all = append(all, node{name: e, addr: e})
		}
	}
	return all
}

// NodeUse is what one node used in the measured time.
type NodeUse struct {
	Name       string  `json:"name"`
	Addr       string  `json:"addr"`
	Version    string  `json:"version,omitempty"`
	CPUSeconds float64 `json:"cpu_seconds"`
	RSSBytes   int64   `json:"rss_bytes"` // at the end
	Fsyncs     int64   `json:"fsyncs"`
	WALBytes   int64   `json:"wal_bytes"`
	Batches    int64   `json:"batches"`     // log entries that it packed
	BatchedOps int64   `json:"batched_ops"` // operations in them
}

// nodeCounters are read from a node's /metrics.
type nodeCounters struct {
	err    error
	values [len(metricNames)]float64
}

// Metrics that are read, in the order of nodeCounters.values.
var metricNames = [...]string{
	"process_cpu_seconds_total", "process_resident_memory_bytes", "raftq_wal_fsyncs_total",
	"raftq_wal_bytes_total", "raftq_batches_total", "raftq_batched_ops_total",
}

func (n node) use(before, after nodeCounters) NodeUse {
	d := func(i int) float64 { return after.values[i] - before.values[i] }
	return NodeUse{
		Name: n.name, Addr: n.addr, Version: n.version,
		CPUSeconds: d(0), RSSBytes: int64(after.values[1]), Fsyncs: int64(d(2)), WALBytes: int64(d(3)),
		Batches: int64(d(4)), BatchedOps: int64(d(5)),
	}
}

// scrapeAll reads the counters of all nodes.
func scrapeAll(ctx context.Context, nodes []node) []nodeCounters {
	all := make([]nodeCounters, len(nodes))
	for i, n := range nodes {
		status, body, err := ask(ctx, http.MethodGet, n.addr, "/metrics")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET /metrics answered %d", status)
		}
		if all[i].err = err; err == nil {
			all[i].read(string(body))
		}
	}
	return all
}

// read takes the values out of Prometheus' text.
func (c *nodeCounters) read(text string) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			continue
		}
		for i, want := range metricNames {
			if name == want {
				// A value that is no number stays 0, as if it were not there.
				c.values[i], _ = strconv.ParseFloat(value, 64)
			}
		}
	}
}

// deleteQueue deletes a queue with its jobs; none is as good.
func deleteQueue(ctx context.Context, addrs []string, queue string) error {
	var errs []error
	for _, addr := range addrs {
		status, body, err := ask(ctx, http.MethodDelete, addr, "/v1/queues/"+queue+"?force=true")
		switch {
		case err != nil:
			errs = append(errs, err)
		case status < 300 || status == http.StatusNotFound:
			return nil
		default:
			errs = append(errs, fmt.Errorf("%s: %d %s", addr, status, errorCode(status, body)))
		}
	}
	return errors.Join(errs...)
}
