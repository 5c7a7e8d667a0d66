package respapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftq/cluster"
)

// startCluster runs three processes with the binary of this tree.
func startCluster(t *testing.T, args ...string) *cluster.Cluster {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "raftq")
	build := exec.Command("go", "build", "-o", binary, "raftq/cmd/raftq")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "raftq-respapi-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Options{Binary: binary, Dir: dir, Nodes: 3, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Log("data and logs stay in", dir)
		} else {
			os.RemoveAll(dir)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes { // until each has heard of the others
		r := dialResp(t, n.Resp)
		for strings.Count(fmt.Sprint(r.do("HELLO")), "127.0.0.1") != 3 {
			if ctx.Err() != nil {
				t.Fatal("the nodes never heard of each other")
			}
			r.do("AUTH", testPassword)        // nodes without one refuse it
			time.Sleep(20 * time.Millisecond) // between polls of a condition
		}
		r.Close()
	}
	return c
}

const testPassword = "a secret"

// respClient is a plain client for tests.
type respClient struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dialResp(t testing.TB, addr string) *respClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	return &respClient{nc, t, bufio.NewReader(nc)}
}

func packed(args ...any) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		s := fmt.Sprint(a)
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b
}

func (c *respClient) send(args ...any) {
	c.t.Helper()
	if _, err := c.Write(packed(args...)); err != nil {
		c.t.Fatal(err)
	}
}

// do returns a string, an int64, an error, nil, or a slice of them.
func (c *respClient) do(args ...any) any {
	c.t.Helper()
	c.send(args...)
	return c.receive()
}

func (c *respClient) receive() any {
	c.t.Helper()
	v, err := receiveResp(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func receiveResp(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	var n int64
	if line[0] != '+' && line[0] != '-' {
		if _, err := fmt.Sscan(line[1:], &n); err != nil {
			return nil, err
		}
	}
	switch line[0] {
	case '+':
		return line[1:], nil
	case '-':
		return fmt.Errorf("%s", line[1:]), nil
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		if n < 0 {
			return nil, nil
		}
		all := make([]any, n)
		for i := range all {
			if all[i], err = receiveResp(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("reply %q", line)
}

// fields makes a map of a flat array of names and values.
func fields(t testing.TB, v any) map[string]any {
	t.Helper()
	list, ok := v.([]any)
	if !ok || len(list)%2 != 0 {
		t.Fatalf("no names and values: %v", v)
	}
	m := map[string]any{}
	for i := 0; i < len(list); i += 2 {
		m[list[i].(string)] = list[i+1]
	}
	return m
}

// rest asks over HTTP.
func rest(t testing.TB, method, url, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s %v", method, url, res.StatusCode, b, err)
	}
	m := map[string]any{}
	if len(b) > 0 {
		if err := json.NewDecoder(bytes.NewReader(b)).Decode(&m); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// TestCluster plays all transcripts through two nodes of three processes, and
// what only real nodes can show.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	c := startCluster(t, "--resp-debug")
	paths, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	t.Run("transcripts", func(t *testing.T) {
		for _, path := range paths {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
				t.Parallel()
				play(t, path, []string{c.Nodes[0].Resp, c.Nodes[1].Resp})
			})
		}
	})
	t.Run("through both doors", func(t *testing.T) { throughBothDoors(t, c) })
	t.Run("hang-ups", func(t *testing.T) { hangUps(t, c) })
	t.Run("three copies", func(t *testing.T) {
		for i := range c.Nodes {
			if v := text(dialResp(t, c.Nodes[i].Resp).do("ADDJOB", "copies", "x", 20000, "REPLICATE", 3)); !strings.HasPrefix(v, "D-") {
				t.Errorf("node %d: %s", i, v)
			}
		}
	})
	t.Run("a leaving node", func(t *testing.T) { leavingNode(t, c) })
	t.Run("a killed leader", func(t *testing.T) { killedLeader(t, c) })
	t.Run("metrics", func(t *testing.T) {
		res, err := http.Get("http://" + c.Nodes[0].Client + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		for _, want := range []string{`raftq_resp_seconds_count{command="addjob"}`, `raftq_resp_errors_total{word="BADID"}`, "raftq_resp_connections_total", "raftq_resp_answers_written_total"} {
			if !bytes.Contains(b, []byte(want)) {
				t.Errorf("no %s", want)
			}
		}
	})
	// The last: nothing is left, and a node stops when it is told to.
	t.Run("flush and stop", func(t *testing.T) {
		r := dialResp(t, c.Nodes[0].Resp)
		if v := r.do("DEBUG", "FLUSHALL"); v != "OK" {
			t.Fatal(v)
		}
		if v := r.do("JSCAN"); fmt.Sprint(v) != "[0 []]" {
			t.Errorf("jobs are left: %v", v)
		}
		r.send("SHUTDOWN")
		if v, err := receiveResp(r.r); err != io.EOF {
			t.Errorf("SHUTDOWN answered %v, %v", v, err)
		}
		select {
		case <-c.Nodes[0].Ended():
		case <-time.After(30 * time.Second):
			t.Error("the node did not stop")
		}
	})
	t.Run("copies and FORGET without it", func(t *testing.T) { forgottenNode(t, c) })
}

// forgottenNode: the first node is stopped, a copy on three cannot be had, on
// neither of the others. Then they forget it.
func forgottenNode(t *testing.T, c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead := 0
	for lead == 0 {
		var err error
		if lead, err = c.Leader(ctx); err != nil {
			t.Fatal(err)
		}
	}
	l, f := dialResp(t, c.Nodes[lead].Resp), dialResp(t, c.Nodes[3-lead].Resp)
	var gone string
	for _, n := range f.do("HELLO").([]any)[2:] {
		if n := n.([]any); c.Nodes[0].Resp == fmt.Sprintf("%s:%s", n[1], n[2]) {
			gone = n[0].(string)
		}
	}
	for i, r := range []*respClient{l, f} {
		if v := text(r.do("ADDJOB", "copies", "x", 300, "REPLICATE", 3)); !strings.HasPrefix(v, "NOREPL ") {
			t.Errorf("node %d: %s", i, v)
		}
		if v := text(r.do("ADDJOB", "copies", "x", 20000, "REPLICATE", 2)); !strings.HasPrefix(v, "D-") {
			t.Errorf("node %d: %s", i, v)
		}
	}
	if v := l.do("QLEN", "copies"); v != int64(2) {
		t.Errorf("%v jobs, want 2", v)
	}
	if v := f.do("CLUSTER", "FORGET", gone); v != "OK" {
		t.Fatalf("FORGET %s: %v", gone, v)
	}
	for _, r := range []*respClient{l, f} {
		for v := ""; !strings.Contains(v, "cluster_known_nodes:2"); time.Sleep(20 * time.Millisecond) { // between polls of a condition
			if v = text(r.do("CLUSTER", "INFO")); ctx.Err() != nil {
				t.Fatal(v)
			}
		}
	}
	if v := text(l.do("CLUSTER", "FORGET", gone)); !strings.HasPrefix(v, "ERR no node is known ") {
		t.Error(v)
	}
	if v := text(f.do("ADDJOB", "copies", "x", 20000)); !strings.HasPrefix(v, "D-") {
		t.Error(v)
	}
}

// throughBothDoors: a job added over RESP on one node, taken over REST on another,
// acked over RESP on the third, looks the same everywhere all the way.
func throughBothDoors(t *testing.T, c *cluster.Cluster) {
	one, three := dialResp(t, c.Nodes[0].Resp), dialResp(t, c.Nodes[2].Resp)
	restURL := "http://" + c.Nodes[1].Client
	look := func(id, state, restState string, nacks, additional, deliveries, failures int) {
		t.Helper()
		show := fields(t, three.do("SHOW", id))
		if show["id"] != id || show["state"] != state || show["nacks"] != int64(nacks) || show["additional-deliveries"] != int64(additional) {
			t.Errorf("SHOW: %v, want %s with %d nacks and %d additional deliveries", show, state, nacks, additional)
		}
		job := rest(t, "GET", restURL+"/v1/jobs/"+id, "")
		if job["id"] != id || job["state"] != restState || job["queue"] != show["queue"] || job["body"] != show["body"] ||
			job["deliveries"] != float64(deliveries) || job["failures"] != float64(failures) {
			t.Errorf("REST: %v, want %s with %d deliveries and %d failures", job, restState, deliveries, failures)
		}
		if at, _ := time.Parse(time.RFC3339, job["enqueued_at"].(string)); at.UnixMilli()*1e6 != show["ctime"] {
			t.Errorf("enqueued at %v, or at %v", job["enqueued_at"], show["ctime"])
		}
	}
	queue := func(ready, leased, delayed, in, out, acked int) {
		t.Helper()
		stat := fields(t, one.do("QSTAT", "doors"))
		if stat["len"] != int64(ready) || stat["jobs-in"] != int64(in) || stat["jobs-out"] != int64(out) {
			t.Errorf("QSTAT: %v, want %d, %d in, %d out", stat, ready, in, out)
		}
		q := rest(t, "GET", restURL+"/v1/queues/doors", "")
		if q["ready"] != float64(ready) || q["leased"] != float64(leased) || q["delayed"] != float64(delayed) || q["enqueued_total"] != float64(in) ||
			q["delivered_total"] != float64(out) || q["acked_total"] != float64(acked) {
			t.Errorf("REST: %v, want %d ready, %d leased, %d delayed, %d in, %d out, %d acked", q, ready, leased, delayed, in, out, acked)
		}
	}

	id := one.do("ADDJOB", "doors", "hello", 0, "RETRY", 100).(string)
	if me := one.do("CLUSTER", "MYID").(string); id[2:10] != me[:8] {
		t.Errorf("%s is not of node %s", id, me)
	}
	look(id, "queued", "ready", 0, 0, 0, 0)
	queue(1, 0, 0, 1, 0, 0)
	take := func() map[string]any {
		t.Helper()
		jobs := rest(t, "POST", restURL+"/v1/queues/doors/dequeue", "")["jobs"].([]any)
		return jobs[0].(map[string]any)
	}
	job := take()
	if job["id"] != id || job["body"] != "hello" {
		t.Errorf("dequeued %v", job)
	}
	look(id, "active", "leased", 0, 0, 1, 0)
	queue(0, 1, 0, 1, 1, 0)
	if v := three.do("WORKING", id); v != int64(100) {
		t.Errorf("WORKING: %v", v)
	}
	if v := one.do("NACK", id); v != int64(1) {
		t.Errorf("NACK: %v", v)
	}
	look(id, "queued", "ready", 1, 0, 1, 1)
	receipt := take()["receipt"].(string)
	look(id, "active", "leased", 1, 0, 2, 1)
	rest(t, "POST", restURL+"/v1/release", `{"items":[{"receipt":"`+receipt+`"}]}`)
	look(id, "queued", "ready", 1, 1, 2, 1)
	if v := one.do("GETJOB", "WITHCOUNTERS", "FROM", "doors"); fmt.Sprint(v) != fmt.Sprintf("[[doors %s hello nacks 1 additional-deliveries 1]]", id) {
		t.Errorf("GETJOB: %v", v)
	}
	queue(0, 1, 0, 1, 3, 0)
	if v := three.do("ACKJOB", id); v != int64(1) {
		t.Errorf("ACKJOB: %v", v)
	}
	queue(0, 0, 0, 1, 3, 1)
	if v := one.do("SHOW", id); v != nil {
		t.Errorf("SHOW of an acked job: %v", v)
	}

	// The other way round, with what only REST has.
	made := rest(t, "POST", restURL+"/v1/queues/doors/enqueue?delay=1h&header.a=b", "other")["id"].(string)
	look(made, "active", "delayed", 0, 0, 0, 0)
	if v := fields(t, one.do("SHOW", made)); v["ttl"] != int64(-1) || v["delay"] != int64(3600) || v["retry"] != int64(60) {
		t.Errorf("SHOW: %v", v)
	}
	if v := three.do("ENQUEUE", made); v != int64(1) {
		t.Errorf("ENQUEUE: %v", v)
	}
	look(made, "queued", "ready", 0, 0, 0, 0)
	if v := one.do("DELJOB", made); v != int64(1) {
		t.Errorf("DELJOB: %v", v)
	}
}

// hangUps: clients leave in all ways while they wait, or as their job comes; each
// job is given to exactly one of those that stay.
func hangUps(t *testing.T, c *cluster.Cluster) {
	const rounds = 60
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	producer := dialResp(t, c.Nodes[0].Resp)
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var left atomic.Int64
	for w := range 3 { // they stay
		wg.Go(func() {
			r := dialResp(t, c.Nodes[w].Resp)
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, _ := r.do("GETJOB", "TIMEOUT", 50, "FROM", "hup").([]any)
				for _, j := range v {
					id := j.([]any)[1].(string)
					mu.Lock()
					got[id]++
					mu.Unlock()
					r.do("ACKJOB", id)
				}
			}
		})
	}
	var leavers sync.WaitGroup
	sent := map[string]bool{}
	for i := range rounds {
		nc, err := net.Dial("tcp", c.Nodes[rnd.IntN(3)].Resp)
		if err != nil {
			t.Fatal(err)
		}
		how, pause := rnd.IntN(3), time.Duration(rnd.IntN(3000))*time.Microsecond
		nc.Write(packed("GETJOB", "COUNT", 2, "FROM", "hup"))
		if i%4 == 0 {
			nc.Write(packed("GETJOB", "FROM", "hup"))
		}
		leavers.Go(func() {
			defer nc.Close()
			time.Sleep(pause) // the moment is what is random
			switch how {
			case 0:
				nc.(*net.TCPConn).SetLinger(0)
				return
			case 1:
				return
			}
			// Half-closed, it still reads: what it reads is its own.
			nc.(*net.TCPConn).CloseWrite()
			nc.SetReadDeadline(time.Now().Add(20 * time.Second))
			r := bufio.NewReader(nc)
			for {
				v, err := receiveResp(r)
				if err != nil {
					return
				}
				jobs, _ := v.([]any)
				for _, j := range jobs {
					left.Add(1)
					mu.Lock()
					got[j.([]any)[1].(string)]++
					mu.Unlock()
					producerAck(t, c, j.([]any)[1].(string))
				}
			}
		})
		for range 2 {
			sent[producer.do("ADDJOB", "hup", i, 0, "RETRY", 2).(string)] = true
		}
	}
	leavers.Wait()
	// What was written into a socket whose client left comes again after its retry
	// time: that is the contract. Nothing may stay away, and nothing may be doubled
	// among those who stayed to read.
	deadline := time.Now().Add(30 * time.Second)
	for {
		mu.Lock()
		n := len(got)
		mu.Unlock()
		if n == len(sent) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d jobs came", n, len(sent))
		}
		time.Sleep(20 * time.Millisecond) // between polls of a condition
	}
	close(stop)
	wg.Wait()
	for id, n := range got {
		if !sent[id] || n != 1 {
			t.Errorf("%s came %d times, sent: %v", id, n, sent[id])
		}
	}
	t.Logf("%d jobs, %d read by clients that had half-closed", len(sent), left.Load())
}

func producerAck(t *testing.T, c *cluster.Cluster, id string) {
	nc, err := net.Dial("tcp", c.Nodes[1].Resp)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	nc.Write(packed("ACKJOB", id))
	if v, err := receiveResp(bufio.NewReader(nc)); v != int64(1) {
		t.Errorf("ACKJOB: %v, %v", v, err)
	}
}

// killedLeader: clients of the other nodes see no error when the leader is killed,
// and each job that was added comes exactly once.
func killedLeader(t *testing.T, c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lead, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 400
	var ids [2][]string
	var added atomic.Int64
	var wg sync.WaitGroup
	for i := range ids {
		r := dialResp(t, c.Nodes[(lead+1+i)%3].Resp)
		wg.Go(func() {
			for n := range jobs {
				id, ok := r.do("ADDJOB", "killed", n, 0, "RETRY", 600).(string)
				if !ok {
					t.Errorf("job %d of producer %d: no id", n, i)
					return
				}
				ids[i] = append(ids[i], id)
				added.Add(1)
			}
		})
	}
	for added.Load() < jobs/4 && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // between polls of a condition
	}
	c.Nodes[lead].Kill9()
	wg.Wait()
	got := map[string]int{}
	r := dialResp(t, c.Nodes[(lead+1)%3].Resp)
	for {
		list, _ := r.do("GETJOB", "NOHANG", "COUNT", 100, "FROM", "killed").([]any)
		if len(list) == 0 {
			break
		}
		args := []any{"ACKJOB"}
		for _, j := range list {
			id := j.([]any)[1].(string)
			got[id]++
			args = append(args, id)
		}
		if v := r.do(args...); v != int64(len(list)) {
			t.Errorf("ACKJOB of %d: %v", len(list), v)
		}
	}
	for i := range ids {
		for _, id := range ids[i] {
			if got[id] != 1 {
				t.Errorf("%s came %d times", id, got[id])
			}
		}
	}
	if len(got) != 2*jobs {
		t.Errorf("%d jobs came, %d were added", len(got), 2*jobs)
	}
	if err := c.Nodes[lead].Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// leavingNode: a node that clients should not come to says so, and so do the
// others; it goes on serving but lets nobody wait.
func leavingNode(t *testing.T, c *cluster.Cluster) {
	one, two := dialResp(t, c.Nodes[0].Resp), dialResp(t, c.Nodes[1].Resp)
	priority := func(r *respClient, id any) any {
		t.Helper()
		for _, n := range r.do("HELLO").([]any)[2:] {
			if n.([]any)[0] == id {
				return n.([]any)[3]
			}
		}
		return nil
	}
	await := func(what string, cond func() bool) {
		t.Helper()
		for start := time.Now(); !cond(); time.Sleep(20 * time.Millisecond) { // between polls of a condition
			if time.Since(start) > 15*time.Second {
				t.Fatal("not within 15 s:", what)
			}
		}
	}
	me := one.do("CLUSTER", "MYID")
	if v := one.do("CLUSTER", "LEAVING", "yes"); v != "OK" {
		t.Fatal(v)
	}
	if v := one.do("CLUSTER", "LEAVING"); v != "yes" {
		t.Error(v)
	}
	await("the others know", func() bool { return priority(two, me) == "100" })
	await("it leads no more", func() bool {
		for _, n := range two.do("HELLO").([]any)[2:] {
			if n.([]any)[3] == "1" && n.([]any)[0] != me {
				return true
			}
		}
		return false
	})
	if v := one.do("GETJOB", "FROM", "leaving"); !strings.HasPrefix(fmt.Sprint(v), "LEAVING ") {
		t.Errorf("GETJOB: %v", v)
	}
	if v := one.do("GETJOB", "NOHANG", "FROM", "leaving"); v != nil {
		t.Errorf("GETJOB NOHANG: %v", v)
	}
	id := one.do("ADDJOB", "leaving", "x", 0)
	if v := one.do("GETJOB", "FROM", "leaving"); fmt.Sprint(v) != fmt.Sprintf("[[leaving %s x]]", id) {
		t.Errorf("GETJOB: %v", v)
	}
	if v := one.do("ACKJOB", id); v != int64(1) {
		t.Errorf("ACKJOB: %v", v)
	}
	if v := one.do("CLUSTER", "LEAVING", "no"); v != "OK" {
		t.Error(v)
	}
	await("it is back", func() bool { p := priority(two, me); return p == "1" || p == "2" })
}
