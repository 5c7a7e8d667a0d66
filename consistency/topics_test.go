package consistency

import (
	"bytes"
	"context"
	"crypto/sha256"
	be "encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rq "raftq/client"
	"raftq/cluster"
)

// topicRun is one run of TestTopicStream: producers append batches to one topic while
// readers on all nodes go through it, and the leader dies in the middle.
type topicRun struct {
	t         *testing.T
	ctx       context.Context
	c         *cluster.Cluster
	seed      uint64
	messages  int // in all
	batch     int
	producers int
	appended  atomic.Int64
}

const streamTopic = "stream"

// body is message n of a producer: who and which it is, and bytes that follow from it.
func (r *topicRun) body(producer, n int) []byte {
	b := make([]byte, 0, 100)
	b = be.BigEndian.AppendUint64(b, uint64(producer))
	b = be.BigEndian.AppendUint64(b, uint64(n))
	rnd := rand.NewPCG(r.seed, uint64(producer)<<32|uint64(n))
	for len(b) < 96 {
		b = be.BigEndian.AppendUint64(b, rnd.Uint64())
	}
	return append(b, "end."...)
}

// endpoints are all nodes, from one on.
func (r *topicRun) endpoints(from int) string {
	var all []string
	for i := range r.c.Nodes {
		all = append(all, r.c.Nodes[(from+i)%len(r.c.Nodes)].Client)
	}
	return strings.Join(all, ",")
}

func (r *topicRun) client(node int) *rq.Client {
	c, err := rq.New(r.endpoints(node), rq.WithPolicy(rq.Ordered), rq.WithAttemptTimeout(20*time.Second), rq.WithRetryFor(2*time.Minute))
	if err != nil {
		r.t.Error(err)
		return nil
	}
	return c
}

func (r *topicRun) produce(producer int) {
	c := r.client(producer)
	defer c.Close()
	mine := r.messages / r.producers
	for n := 0; n < mine; n += r.batch {
		batch := make([]rq.NewMessage, min(r.batch, mine-n))
		for i := range batch {
			batch[i].Body = r.body(producer, n+i)
		}
		got, err := c.AppendBatch(r.ctx, streamTopic, batch)
		if err != nil || got.Count != len(batch) {
			r.t.Errorf("producer %d, message %d: %v %+v", producer, n, err, got)
			return
		}
		r.appended.Add(int64(len(batch)))
	}
}

// read goes through the topic and returns a hash of all that was seen: each message
// once, as it was sent, those of a producer in its order.
func (r *topicRun) read(reader int) (sum string) {
	c := r.client(reader)
	defer c.Close()
	var how []rq.ReadOption
	if reader%2 == 1 {
		how = append(how, rq.Fast)
	}
	next, offset, all := make([]int, r.producers), uint64(0), sha256.New()
	for {
		// The topic is made by the first message.
		var at rq.Meta
		_, err := c.Topic(r.ctx, streamTopic, rq.Into(&at))
		if err == nil {
			// A fast read of a node that lags might not know it yet.
			how = append(how, rq.MinIndex(at.Index))
			break
		}
		if r.ctx.Err() != nil {
			r.t.Errorf("reader %d: %v", reader, err)
			return ""
		}
		time.Sleep(10 * time.Millisecond) // between polls of a condition
	}
	for m, err := range c.Tail(r.ctx, streamTopic, rq.MessageRange{To: uint64(r.messages)}, how...) {
		if err != nil {
			r.t.Errorf("reader %d at %d: %v", reader, offset, err)
			return ""
		}
		if len(m.Body) != 100 || m.Offset != offset {
			r.t.Errorf("reader %d: message %d of %d bytes, want %d", reader, m.Offset, len(m.Body), offset)
			return ""
		}
		producer := int(be.BigEndian.Uint64(m.Body))
		if producer >= r.producers || !bytes.Equal(m.Body, r.body(producer, next[producer])) {
			r.t.Errorf("reader %d: message %d is not message %d of producer %d as it was sent: %x", reader, offset, next[producer], producer, m.Body)
			return ""
		}
		next[producer]++
		offset++
		all.Write(m.Body)
	}
	if offset != uint64(r.messages) {
		r.t.Errorf("reader %d saw %d messages of %d", reader, offset, r.messages)
	}
	return hex.EncodeToString(all.Sum(nil))
}

// figures sums a metric over the nodes that run.
func (r *topicRun) figures(name string) (sum float64) {
	for i, n := range r.c.Nodes {
		v, err := newClient(newHistory(), i, n.Client).metric(r.ctx, name)
		if err != nil {
			r.t.Fatalf("%s of n%d: %v", name, i+1, err)
		}
		sum += v
	}
	return sum
}

// TestTopicStream proves that messages which producers append in batches are read by
// eight readers on three nodes, strong and fast, while they come: each once, byte for
// byte, in the same order everywhere, although the leader is killed in the middle. It
// prints what that took. RAFTQ_TOPIC_MESSAGES says how many (make test-topics: a
// million).
func TestTopicStream(t *testing.T) {
	c, ctx := start(t, 3)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	r := &topicRun{t: t, ctx: ctx, c: c, seed: rand.Uint64(), messages: env("RAFTQ_TOPIC_MESSAGES", 20_000), batch: 500, producers: 4}
	r.messages -= r.messages % r.producers
	t.Logf("seed %d, %d messages", r.seed, r.messages)
	rss, cpu := r.figures("process_resident_memory_bytes"), r.figures("process_cpu_seconds_total")

	began := time.Now()
	var producers, readers sync.WaitGroup
	for p := range r.producers {
		producers.Go(func() { r.produce(p) })
	}
	sums := make([]string, 8)
	for i := range sums {
		readers.Go(func() { sums[i] = r.read(i) })
	}
	eventually(t, 10*time.Minute, "half of the messages", func() bool { return r.appended.Load() >= int64(r.messages/2) || t.Failed() })
	killed := leader(t, c, ctx)
	used, err := newClient(newHistory(), killed, c.Nodes[killed].Client).metric(ctx, "process_cpu_seconds_total")
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[killed].Kill9()
	if err := c.Nodes[killed].Start(); err != nil {
		t.Fatal(err)
	}
	producers.Wait()
	appending := time.Since(began)
	readers.Wait()
	reading := time.Since(began)
	for i, sum := range sums {
		if sum != sums[0] || sum == "" {
			t.Errorf("reader %d saw another topic than reader 0", i)
		}
	}
	if t.Failed() {
		return
	}
	if err := c.Nodes[killed].WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	n := float64(r.messages)
	cpu = r.figures("process_cpu_seconds_total") + used - cpu
	t.Logf("appended %.0f/s, read %.0f/s by 8 readers together, while the leader was killed", n/appending.Seconds(), 8*n/reading.Seconds())
	t.Logf("%.2f s of the servers' CPU per 1000 messages appended and read by 8", cpu/n*1000)
	t.Logf("resident memory of a node: %.0f bytes more a message (100 bytes of body)", (r.figures("process_resident_memory_bytes")-rss)/3/n)

	// Now that nothing is written, from one node.
	began = time.Now()
	total := atomic.Int64{}
	for i := range sums {
		readers.Go(func() {
			c := r.client(i)
			defer c.Close()
			for from := uint64(0); from < uint64(r.messages); {
				list, next, err := c.Messages(ctx, streamTopic, rq.MessageRange{From: int64(from)}, rq.Fast)
				if err != nil {
					t.Error(err)
					return
				}
				from = next
				total.Add(int64(len(list)))
			}
		})
	}
	readers.Wait()
	if total.Load() != int64(8*r.messages) {
		t.Errorf("read %d again, want %d", total.Load(), 8*r.messages)
	}
	t.Logf("read again %.0f/s by 8 readers, nothing written", float64(total.Load())/time.Since(began).Seconds())
}

// TestLignumReadme proves that what Lignum's README tells to send works on each node:
// the very requests of its two calls of curl.
func TestLignumReadme(t *testing.T) {
	c, _ := start(t, 3)
	const post = "{\n\t\"topic\": \"test\",\n\t\"message\":\"this is a test message\"\n}"
	const get = "{\n\t\"topic\": \"test\",\n\t\"from\": 0,\n\t\"to\": 3\n}"
	messages := ""
	for i, n := range c.Nodes {
		if out := curl(t, "--request", "POST", "--url", "http://"+n.Client+"/api/message", "--header", "Content-Type: application/json", "--data", post); out != `{"status": "message commited", "data": "this is a test message"}` {
			t.Errorf("n%d: %s", i+1, out)
		}
		messages += fmt.Sprintf(`,{"Id":%d,"Data":"this is a test message"}`, i)
		for j, other := range c.Nodes {
			want := fmt.Sprintf(`{"messages":[%s],"count":%d}`, messages[1:], i+1) + "\n"
			if out := curl(t, "--request", "GET", "--url", "http://"+other.Client+"/api/message", "--header", "Content-Type: application/json", "--data", get); out != want {
				t.Errorf("posted at n%d, asked at n%d: %s", i+1, j+1, out)
			}
		}
	}
	for _, n := range c.Nodes {
		if out := curl(t, "http://"+n.Client+"/api/topics"); out != `[{"name":"test","message_count":3}]`+"\n" {
			t.Errorf("%s: %s", n.Client, out)
		}
		if out := curl(t, "http://"+n.Client+"/ping"); out != "PONG" {
			t.Errorf("%s: %s", n.Client, out)
		}
		if out := curl(t, "-X", "POST", "-d", "{}", "-o", "/dev/null", "-w", "%{http_code}", "http://"+n.Client+"/api/follower/register"); out != "410" {
			t.Errorf("%s: %s", n.Client, out)
		}
	}
}

func curl(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"-sS", "--max-time", "20"}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("curl %q: %v %s", args, err, out)
	}
	return string(out)
}
