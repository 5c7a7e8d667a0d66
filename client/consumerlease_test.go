package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A lease is extended at each third of it while the handler runs.
func TestLeaseIsExtended(t *testing.T) {
	for _, opt := range [][]ConsumerOption{nil, {Lease(time.Minute)}} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(t, time.Minute)
			q.put("a")
			k, stop := consume(t, q, func(ctx context.Context, _ *Job) error {
				time.Sleep(110 * time.Second)
				return ctx.Err()
			}, opt...)
			time.Sleep(2 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if got := q.did(); !slices.Equal(got, []string{"extend a", "extend a", "extend a", "extend a", "extend a", "ack a"}) {
				t.Errorf("%q", got)
			}
			for i, e := range q.events[:5] {
				want := time.Duration(i+1) * 20 * time.Second
				if e.at < want-time.Second || e.at > want {
					t.Errorf("extend %d at %v, want %v", i+1, e.at, want)
				}
			}
			if s := k.Stats(); s.Extended != 5 || s.LeaseLost != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Many leases are extended by one request.
func TestExtendsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put(numbered(50)...)
		_, stop := consume(t, q, func(context.Context, *Job) error { time.Sleep(30 * time.Second); return nil }, Concurrency(50))
		time.Sleep(25 * time.Second)
		requests := map[int]bool{}
		q.mu.Lock()
		for _, e := range q.events {
			requests[e.request] = true
		}
		if len(q.events) != 50 || len(requests) != 1 {
			t.Errorf("%d extends in %d requests", len(q.events), len(requests))
		}
		q.mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// ended is how a handler's context ended.
type ended1 struct {
	mu    sync.Mutex
	cause error
	at    time.Duration
}

func (e *ended1) wait(ctx context.Context, began time.Time) {
	<-ctx.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause, e.at = context.Cause(ctx), time.Since(began)
}

// Somebody cancels the job: its handler's context ends, and the job is gone.
func TestCancelIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put("a")
		q.extended = func(string) string {
			until, _ := time.Now().Add(time.Minute).MarshalJSON()
			return `{"id":"a","status":200,"cancel":true,"lease_until":` + string(until) + `}`
		}
		var end ended1
		k, stop := consume(t, q, func(ctx context.Context, _ *Job) error {
			end.wait(ctx, q.began)
			time.Sleep(30 * time.Second) // cleaning up; the lease is still kept
			return ctx.Err()
		})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if end.cause != ErrJobCancelled || end.at > 20*time.Second {
			t.Errorf("%v after %v", end.cause, end.at)
		}
		if got := q.did(); !slices.Equal(got, []string{"extend a", "extend a", "ack a"}) {
			t.Errorf("%q", got)
		}
		if s := k.Stats(); s.Cancelled != 1 || s.Acked != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A lease that is lost ends the handler's context, and no word is said of the job.
func TestLeaseLost(t *testing.T) {
	for _, code := range []Code{ErrLeaseLost, ErrJobGone, ErrJobNotFound} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(t, time.Minute)
			q.put("a")
			q.extended = func(string) string { return fmt.Sprintf(`{"id":"a","status":409,"code":%q,"detail":"x"}`, code) }
			var end ended1
			k, stop := consume(t, q, func(ctx context.Context, _ *Job) error {
				end.wait(ctx, q.began)
				return errors.New("stopped")
			})
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if end.cause != ErrLeaseLost || end.at > 21*time.Second {
				t.Errorf("%v after %v", end.cause, end.at)
			}
			if got := q.did(); !slices.Equal(got, []string{"extend a"}) {
				t.Errorf("%q", got)
			}
			if s := k.Stats(); s.LeaseLost != 1 || s.Nacked != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// When nobody extends a lease, it is taken for lost before it ends: another may
// have the job then. Work that was done all the same is acked.
func TestLeaseCannotBeExtended(t *testing.T) {
	for name, refuse := range map[string]func(string) (int, Code, Applied){
		"silent": func(path string) (int, Code, Applied) { return map[bool]int{true: -1}[path == "/v1/extend"], "", "" },
		"refused": func(path string) (int, Code, Applied) {
			return map[bool]int{true: 503}[path == "/v1/extend"], ErrNoLeader, NotApplied
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(t, time.Minute)
				q.put("a")
				q.refuse = refuse
				var end ended1
				k, stop := consume(t, q, func(ctx context.Context, _ *Job) error {
					end.wait(ctx, q.began)
					return nil
				})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if end.cause != ErrLeaseLost || end.at < 53*time.Second || end.at > 55*time.Second {
					t.Errorf("%v after %v", end.cause, end.at)
				}
				if got := q.did(); !slices.Equal(got, []string{"ack a"}) {
					t.Errorf("%q", got)
				}
				if s := k.Stats(); s.Extended != 0 || s.Acked != 1 {
					t.Errorf("%+v", s)
				}
				if q.most > 1 {
					t.Errorf("%d extends at once", q.most)
				}
			})
		})
	}
}

// A job that may not be extended keeps what it has.
func TestTooLateToExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		q.put("a")
		q.extended = func(string) string { return `{"id":"a","status":409,"code":"too_late","detail":"x"}` }
		_, stop := consume(t, q, func(ctx context.Context, _ *Job) error {
			time.Sleep(50 * time.Second)
			return ctx.Err()
		})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := q.did(); !slices.Equal(got, []string{"extend a", "ack a"}) {
			t.Errorf("%q", got)
		}
	})
}
