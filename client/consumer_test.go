package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// consume runs a consumer until everything is settled and idle; the function that
// it returns stops it and returns Run's error.
func consume(t *testing.T, q *fakeQueue, handle Handler, opts ...ConsumerOption) (*Consumer, func() error) {
	t.Helper()
	k, err := q.client().NewConsumer([]string{"q"}, handle, opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return k, func() error {
		cancel()
		return <-done
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// What a handler returns decides what becomes of its job.
func TestHandlerOutcomes(t *testing.T) {
	long := strings.Repeat("ü", 1000)
	outcomes := map[string]func() error{
		"nil":     func() error { return nil },
		"error":   func() error { return errors.New("smtp 451") },
		"reject":  func() error { return RejectJob(errors.New("no such user")) },
		"release": func() error { return ReleaseJob(nil) },
		"retry":   func() error { return RetryIn(90*time.Second, errors.New("later")) },
		"now":     func() error { return RetryIn(0, errors.New("now")) },
		"wrapped": func() error { return fmt.Errorf("work: %w", RejectJob(errors.New("bad"))) },
		"panic":   func() error { panic("oh") },
		"goexit":  func() error { runtime.Goexit(); return nil },
		"long":    func() error { return errors.New(long) },
	}
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		for id := range outcomes {
			q.put(id)
		}
		k, stop := consume(t, q, func(_ context.Context, job *Job) error { return outcomes[job.ID]() }, Concurrency(2))
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		want := sorted([]string{
			"ack nil", "nack error smtp 451", "reject reject no such user", "release release", "nack retry 90000ms later", "nack now 0 now",
			"reject wrapped work: bad", "nack panic panic: oh", "nack goexit the handler ended its goroutine", "nack long " + long[:1024],
		})
		if got := sorted(q.did()); !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
		if s := k.Stats(); s.Taken != 10 || s.Handled != 10 || s.Acked != 1 || s.Nacked != 6 || s.Rejected != 2 || s.Released != 1 || s.Panics != 1 || s.Running+s.Queued+s.Settling != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put("a", "b", "c")
		_, stop := consume(t, q, func(_ context.Context, job *Job) error {
			if job.ID == "c" {
				return RetryIn(time.Second, errors.New("no"))
			}
			return errors.New("no")
		}, Backoff(func(job *Job, cause error) time.Duration {
			if job.ID == "a" {
				return time.Duration(job.Failures+5) * time.Second
			}
			return 0
		}))
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := sorted(q.did()); !slices.Equal(got, []string{"nack a 5000ms no", "nack b 0 no", "nack c 1000ms no"}) {
			t.Errorf("%q", got)
		}
	})
}

// ids of jobs that are handed out at most once, and at least once.
const (
	onceID  = "D-00000009-00000000001000000000042n-000a"
	leastID = "D-00000009-00000000001000000000042n-000b"
)

// Jobs that wait here for a worker are given back after a third of their lease;
// those that nobody else may have are kept.
func TestQueuedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put("a", "slow")
		k, stop := consume(t, q, func(_ context.Context, job *Job) error {
			if job.ID == "slow" {
				time.Sleep(100 * time.Second)
			}
			return nil
		}, Prefetch(2))
		time.Sleep(time.Second)
		q.put(leastID, onceID) // behind the slow one
		time.Sleep(30 * time.Second)
		q.mu.Lock()
		var back *event
		for i, e := range q.events {
			if e.what == "release" {
				back = &q.events[i]
			}
		}
		if back == nil || back.job != leastID || back.at < 20*time.Second || back.at > 22*time.Second {
			t.Errorf("%+v", q.events)
		}
		q.mu.Unlock()
		time.Sleep(100 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := q.did()
		if !slices.Contains(got, "extend "+onceID) || got[len(got)-1] != "ack "+onceID {
			t.Errorf("%q", got)
		}
		if s := k.Stats(); s.Released != 1 || s.Acked != 3 || s.Taken != 4 {
			t.Errorf("%+v", s)
		}
	})
}

// Stopping: running jobs are finished, those not begun given back at once, nothing
// more is taken, and the name is released at last.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put("a")
		var causes []error
		k, stop := consume(t, q, func(ctx context.Context, job *Job) error {
			if job.ID != "a" {
				time.Sleep(5 * time.Second)
				causes = append(causes, context.Cause(ctx))
			}
			return nil
		}, Prefetch(4))
		time.Sleep(time.Second)
		q.put("b", leastID, "d", onceID)
		time.Sleep(time.Second)
		if s := k.Stats(); s.Running != 1 || s.Queued != 3 {
			t.Fatalf("%+v", s)
		}
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
		q.mu.Lock()
		n := len(q.polls)
		q.mu.Unlock()
		q.put("late")
		time.Sleep(time.Minute)
		if len(q.polls) != n {
			t.Error("it takes jobs after its end")
		}
		got := q.did()
		want := []string{"ack a", "release " + leastID, "release d", "ack b", "ack " + onceID}
		if !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
		for _, e := range q.events {
			if e.what == "release" && e.at > 2100*time.Millisecond {
				t.Errorf("given back late: %+v", e)
			}
		}
		if causes[0] != nil || causes[1] != nil {
			t.Error(causes)
		}
		if last := q.events[len(q.events)-1]; last.what != "release-consumer" || last.job != "/v1/consumers/"+k.Name() {
			t.Errorf("%+v", last)
		}
		if err := k.Run(context.Background()); !errors.Is(err, ErrInvalidOption) {
			t.Errorf("a second Run: %v", err)
		}
	})
}

// After DrainTimeout the handlers are told; what they did not finish is given back
// as not failed.
func TestDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put("a", "b")
		var end ended1
		_, stop := consume(t, q, func(ctx context.Context, job *Job) error {
			if job.ID == "b" {
				return nil
			}
			end.wait(ctx, q.began)
			return ctx.Err()
		}, DrainTimeout(5*time.Second), Concurrency(2))
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if end.cause != ErrDraining || end.at != 6*time.Second {
			t.Errorf("%v at %v", end.cause, end.at)
		}
		if got := q.did(); !slices.Equal(got, []string{"ack b", "release a"}) {
			t.Errorf("%q", got)
		}
	})
}

// What will not pass ends Run with its error, after draining.
func TestLastingErrorEnds(t *testing.T) {
	for _, tc := range []struct {
		status int
		code   Code
	}{{422, ErrInvalidOption}, {403, ErrForbidden}, {401, ErrUnauthenticated}, {404, ErrRouteNotFound}} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(t, time.Minute)
			q.put("a")
			k, _ := consume(t, q, func(context.Context, *Job) error { time.Sleep(time.Second); return nil })
			_ = k
			time.Sleep(100 * time.Millisecond)
			k2, err := q.client().NewConsumer([]string{"q"}, func(context.Context, *Job) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			q.setRefuse(func(path string) (int, Code, Applied) {
				if strings.HasSuffix(path, "/dequeue") {
					return tc.status, tc.code, NotApplied
				}
				return 0, "", ""
			})
			if err := k2.Run(context.Background()); !errors.Is(err, tc.code) {
				t.Errorf("%v, want %s", err, tc.code)
			}
			time.Sleep(2 * time.Second) // the first one polls, and ends
			if got := q.did(); !slices.Equal(got, []string{"ack a"}) {
				t.Errorf("%q", got)
			}
		})
	}
}

// Whatever passes is borne, however long it takes: polls and acks go on.
func TestOutageIsBorne(t *testing.T) {
	for _, how := range []struct {
		status  int
		code    Code
		applied Applied
	}{{503, ErrNoLeader, NotApplied}, {504, ErrCommitTimeout, Unknown}, {-1, "", ""}, {507, ErrMemoryLimit, NotApplied}} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(t, time.Hour)
			q.put("a")
			k, stop := consume(t, q, func(_ context.Context, job *Job) error {
				if job.ID == "a" {
					q.setRefuse(func(string) (int, Code, Applied) { return how.status, how.code, how.applied })
				}
				return nil
			})
			time.Sleep(5 * time.Minute)
			q.setRefuse(nil)
			q.put("b")
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if got := sorted(q.did()); !slices.Equal(got, []string{"ack a", "ack b"}) {
				t.Errorf("%+v: %q", how, got)
			}
			if s := k.Stats(); s.Failures == 0 || s.Acked != 2 || s.Unsettled != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What a poll took whose answer got lost comes with the next: it was not given twice.
// The same holds for what a settlement did.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Hour)
		k, stop := consume(t, q, func(_ context.Context, job *Job) error {
			if job.ID == "c" {
				return errors.New("no")
			}
			return nil
		}, Concurrency(3))
		acks, failures := 0, uint64(0)
		q.mu.Lock()
		q.lose = func(path string) bool {
			switch path {
			case "/v1/ack": // the first
				acks++
				return acks == 1
			case "/v1/nack": // as long as one call is tried again, and no longer
				if failures == 0 {
					failures = k.Stats().Failures
				}
				return k.Stats().Failures == failures
			}
			return time.Since(q.began) < 2*retryForDefault
		}
		q.mu.Unlock()
		q.put("a", "b", "c")
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := sorted(q.did()); !slices.Equal(got, []string{"ack a", "ack b", "nack c no"}) {
			t.Errorf("%q", got)
		}
		if s := k.Stats(); q.grants != 3 || s.Taken != 3 || s.Handled != 3 || s.Acked != 2 || s.Nacked != 1 || s.LeaseLost != 0 {
			t.Errorf("%d grants, %+v", q.grants, s)
		}
	})
}

// Acks that come together go together.
func TestAcksGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put(numbered(500)...)
		k, stop := consume(t, q, func(context.Context, *Job) error { time.Sleep(10 * time.Millisecond); return nil }, Concurrency(500))
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		requests := map[int]bool{}
		for _, e := range q.events[:500] {
			requests[e.request] = true
		}
		if s := k.Stats(); s.Acked != 500 || len(requests) != 1 {
			t.Errorf("%d acks in %d requests", s.Acked, len(requests))
		}
	})
}

// Never more jobs are held than asked for, and slow jobs are not taken in advance.
func TestPrefetchIsBounded(t *testing.T) {
	for _, tc := range []struct {
		work time.Duration
		opts []ConsumerOption
		most int
	}{
		{time.Millisecond, []ConsumerOption{Concurrency(4), Prefetch(6)}, 14},
		{time.Millisecond, []ConsumerOption{Concurrency(4)}, 24},
		{time.Second, []ConsumerOption{Concurrency(4), Prefetch(100)}, 8},
		{time.Second, []ConsumerOption{Concurrency(4), Prefetch(100), Ahead(2 * time.Second)}, 16},
		{time.Millisecond, []ConsumerOption{Concurrency(4), Prefetch(0)}, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(t, time.Minute)
			q.put(numbered(300)...)
			k, stop := consume(t, q, func(context.Context, *Job) error { time.Sleep(tc.work); return nil }, append(tc.opts, AckDelay(0))...)
			time.Sleep(2 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			// Of quick jobs each worker's last may be not acked yet.
			if q.held > tc.most || k.Stats().Acked != 300 {
				t.Errorf("%v %v: %d held, want at most %d; %+v", tc.work, tc.opts, q.held, tc.most, k.Stats())
			}
		})
	}
}

// Jobs in stock are fetched together, not one by one.
func TestStockIsFilledTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put(numbered(1000)...)
		k, stop := consume(t, q, func(context.Context, *Job) error { time.Sleep(time.Millisecond); return nil }, Concurrency(4), Prefetch(100))
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(q.polls); n > 30 || k.Stats().Acked != 1000 {
			t.Errorf("%d polls, %+v", n, k.Stats())
		}
	})
}

// An idle consumer asks once for each wait.
func TestIdlePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		_, stop := consume(t, q, func(context.Context, *Job) error { return nil }, Concurrency(8), As("w"), Wait(10*time.Second), Lease(time.Minute))
		time.Sleep(95 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(q.polls); n != 10 {
			t.Errorf("%d polls in 95 s", n)
		}
		p := q.polls[0]
		if p.Get("max") != "8" || p.Get("wait") != "10000ms" || p.Get("lease") != "60000ms" || !strings.HasPrefix(p.Get("consumer"), "w-") || p.Get("attempt_id") == "" {
			t.Errorf("%v", p)
		}
	})
}

// A node that freezes while a long poll is parked there is left for another, long
// before the wait is over; one that is not ready for a moment is not.
func TestFrozenNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		c := q.client(WithPolicy(Ordered))
		var handled time.Duration
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- c.Consume(ctx, "q", func(context.Context, *Job) error {
				handled = time.Since(q.began)
				return nil
			}, Wait(50*time.Second))
		}()
		freeze := func(host string) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.frozen = host
		}
		time.Sleep(9 * time.Second)
		freeze("h1:1")
		time.Sleep(2 * time.Second) // one look is missed
		freeze("")
		time.Sleep(9 * time.Second)
		q.mu.Lock()
		if len(q.polls) != 1 || q.looks < 8 {
			t.Errorf("%d polls, %d looks in 20 s", len(q.polls), q.looks)
		}
		q.mu.Unlock()
		freeze("h1:1")
		q.put("a")
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if handled == 0 || handled > 27*time.Second || q.polls[0].Get("attempt_id") != q.polls[1].Get("attempt_id") {
			t.Errorf("handled after %v, %v", handled, q.polls)
		}
		if got := q.did(); !slices.Equal(got, []string{"ack a"}) {
			t.Errorf("%q", got)
		}
	})
}

// A node that does not wait is not asked in a tight loop.
func TestHastyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.hasty = true
		_, stop := consume(t, q, func(context.Context, *Job) error { return nil })
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(q.polls); n < 10 || n > 250 {
			t.Errorf("%d polls in 10 s", n)
		}
	})
}

// What a look at the leases and a worker that begins do to each other.
func TestLeasesAndWorkersMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		k, err := q.client().NewConsumer([]string{"q"}, func(context.Context, *Job) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		r := newRun(k, context.Background())
		l := &leases{r: r, wake: make(chan struct{}, 1), held: map[*hold]struct{}{}}
		h := &hold{job: &Job{ID: "a"}}
		h.lasts(time.Now(), time.Minute)
		l.held[h] = struct{}{}
		// It was begun, which is not noted yet: it is not given back, and looked at again.
		h.state.Store(holdRunning)
		l.look(time.Now().Add(30 * time.Second))
		if len(l.wake) != 1 || h.state.Load() != holdRunning {
			t.Error("nobody looks again")
		}
		// It was lost before its handler's context was noted: that ends at once.
		delete(l.held, h)
		ctx, cancel := context.WithCancelCause(context.Background())
		l.begin(h, cancel)
		if context.Cause(ctx) != ErrLeaseLost {
			t.Error(context.Cause(ctx))
		}
	})
}

func TestConsumerOptionsAreChecked(t *testing.T) {
	c, err := New("h:1")
	if err != nil {
		t.Fatal(err)
	}
	ok := func(context.Context, *Job) error { return nil }
	for name, f := range map[string]func() (*Consumer, error){
		"handle":      func() (*Consumer, error) { return c.NewConsumer([]string{"q"}, nil) },
		"queues":      func() (*Consumer, error) { return c.NewConsumer(nil, ok) },
		"Concurrency": func() (*Consumer, error) { return c.NewConsumer([]string{"q"}, ok, Concurrency(0)) },
		"Wait":        func() (*Consumer, error) { return c.NewConsumer([]string{"q"}, ok, Wait(time.Minute)) },
		"Lease":       func() (*Consumer, error) { return c.NewConsumer([]string{"q"}, ok, Lease(-1)) },
	} {
		if _, err := f(); !errors.Is(err, ErrInvalidOption) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
