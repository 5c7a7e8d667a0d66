package consistency

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHangUps lets 1,000 clients hang up at random moments around the answer to
// their dequeue, some over pipelined connections, by FIN, half-close or reset.
// Each job is back, uncounted, within 100 ms of the hang-up, or its node counted
// the answer as written before.
func TestHangUps(t *testing.T) {
	total := env("RAFTQ_HANGUPS", 1000)
	seed := uint64(env("RAFTQ_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d (RAFTQ_SEED=%d)", seed, seed)
	c, ctx := start(t, 3)
	h := newHistory()
	written := func() (n float64) {
		for i, node := range c.Nodes {
			v, err := newClient(h, i, node.Client).metric(ctx, "raftq_answers_written_total")
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
		return n
	}
	before := written()

	const workers = 4
	var mu sync.Mutex
	var back []time.Duration
	kept, never := 0, 0
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			observer := newClient(h, w%3, c.Nodes[w%3].Client)
			for i := range total / workers {
				queue := fmt.Sprintf("hup-%d-%d", w, i)
				took, state := hangUpOnce(t, ctx, rnd, c.Nodes[rnd.IntN(3)].Client, observer, queue)
				mu.Lock()
				switch state {
				case "back":
					back = append(back, took)
				case "leased":
					kept++
				default:
					never++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(back)
	if len(back) == 0 {
		t.Fatal("vacuous: no job came back")
	}
	delta := int(written() - before)
	t.Logf("%d hang-ups: %d jobs free again (median %v, p99 %v, worst %v after the hang-up), %d counted as written, %d answers written in all",
		total, len(back), back[len(back)/2].Round(time.Microsecond), back[len(back)*99/100].Round(time.Microsecond), back[len(back)-1].Round(time.Microsecond), kept, delta)
	if kept != delta {
		t.Errorf("%d jobs stay leased, but the nodes counted %d answers as written", kept, delta)
	}
	// The observer sees it with a read or two; on a busy machine their own
	// slowest answer is what it cannot tell apart.
	slowest := time.Duration(slowestRead.Load())
	if worst := back[len(back)-1]; worst > 100*time.Millisecond+2*slowest {
		t.Errorf("a job came back only %v after the hang-up; the slowest read took %v", worst, slowest)
	}
}

var slowestRead atomic.Int64

// hangUpOnce runs one dequeue whose client leaves, and says what became of the
// job: "back" with the time it took, or "leased".
func hangUpOnce(t *testing.T, ctx context.Context, rnd *rand.Rand, addr string, observer *client, queue string) (time.Duration, string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return 0, "error"
	}
	defer conn.Close()
	request := fmt.Sprintf("POST /v1/queues/%s/dequeue?wait=10s&lease=10m HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", queue)
	switch rnd.IntN(4) {
	case 0: // pipelined behind another request
		request = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + request
	case 1: // with another one behind it
		request += "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	}
	// The job comes before the dequeue, or while it waits.
	first := rnd.IntN(2) == 0
	body := queue + "-job"
	var e *enqueue
	if first {
		_, e = observer.enqueue(ctx, queue, body)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Error(err)
	}
	var enq sync.WaitGroup
	if !first {
		after := time.Duration(rnd.IntN(4000)) * time.Microsecond
		enq.Go(func() {
			pause(after)
			_, e = observer.enqueue(ctx, queue, body)
		})
	}
	pause(time.Duration(rnd.IntN(6000)) * time.Microsecond)
	left := time.Now()
	switch tcp := conn.(*net.TCPConn); rnd.IntN(3) {
	case 0:
		tcp.SetLinger(0)
		conn.Close()
	case 1:
		tcp.CloseWrite()
	default:
		conn.Close()
	}
	enq.Wait()
	if e.outcome != done {
		t.Errorf("enqueue to %s failed", queue)
		return 0, "error"
	}
	from := left
	if at := observer.h.base.Add(e.ret); at.After(left) {
		from = at // the job came later than the hang-up
	}
	// Leased means written, or not noticed yet: it must settle within the bound.
	for {
		asked := time.Now()
		a, err := observer.do(ctx, "GET", "/v1/jobs/"+e.id, nil)
		slowestRead.Store(max(slowestRead.Load(), int64(time.Since(asked))))
		if err != nil {
			t.Error(err)
			return 0, "error"
		}
		var job struct {
			State      string
			Deliveries int
		}
		if err := json.Unmarshal(a.body, &job); err != nil {
			t.Errorf("job: %s", a.body)
			return 0, "error"
		}
		took := time.Since(from)
		switch {
		case job.State == "ready" && job.Deliveries == 0:
			// It may be about to be handed to the waiter that left: it is back
			// for good when no waiter is known any more.
			if s, err := observer.queue(ctx, queue); err == nil && s.Waiters == 0 && s.Ready == 1 {
				return took, "back"
			}
		case job.State == "ready":
			t.Errorf("job of %s is back but counted: %s", queue, strings.TrimSpace(string(a.body)))
			return took, "error"
		case took > 500*time.Millisecond:
			return took, "leased"
		}
	}
}

// pause lets a random time pass: the moment of the hang-up is the test's input.
func pause(d time.Duration) { <-time.After(d) }
