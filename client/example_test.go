package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"raftq/client"
)

// endpoints of a cluster that runs, such as "h1:8080,h2:8080,h3:8080".
var endpoints = client.Endpoints

func Example() {
	ctx := context.Background()
	c, err := client.New(endpoints())
	if err != nil {
		panic(err)
	}
	defer c.Close()

	if _, err := c.Enqueue(ctx, "greetings", []byte("hello"), client.Priority(7)); err != nil {
		panic(err)
	}
	jobs, err := c.Dequeue(ctx, "greetings", client.Wait(5*time.Second))
	if err != nil {
		panic(err)
	}
	for _, job := range jobs {
		fmt.Printf("%s, delivery %d\n", job.Body, job.Deliveries)
		if _, err := c.Ack(ctx, job.Receipt); err != nil {
			panic(err)
		}
	}
	// Output: hello, delivery 1
}

// A worker that runs until it is told to stop.
func ExampleClient_Consume() {
	c, err := client.New(endpoints(), client.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	// Ctrl-C, or the SIGTERM of a deployment: running jobs are finished first.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	for i := range 3 {
		if _, err := c.Enqueue(ctx, "mail", fmt.Appendf(nil, "mail %d", i)); err != nil {
			panic(err)
		}
	}
	var sent atomic.Int32
	err = c.Consume(ctx, "mail", func(ctx context.Context, job *client.Job) error {
		if sent.Add(1) == 3 {
			stop() // here: that is all there is
		}
		return nil // acked
	}, client.Concurrency(8), client.Lease(30*time.Second))
	fmt.Println(sent.Load(), err)
	// Output: 3 <nil>
}

// What a handler returns decides what becomes of the job.
func ExampleHandler() {
	var handle client.Handler = func(ctx context.Context, job *client.Job) error {
		to, ok := strings.CutPrefix(string(job.Body), "to: ")
		switch {
		case !ok:
			return client.RejectJob(errors.New("no address")) // dead at once: it can never go well
		case strings.HasSuffix(to, ".test"):
			return client.ReleaseJob(nil) // for another worker; not counted as a failure
		case job.Failures > 0:
			return client.RetryIn(time.Minute, errors.New("mailbox full")) // a failure; again in a minute
		}
		return nil // done
	}
	fmt.Println(handle(context.Background(), &client.Job{Body: []byte("to: ann")}))
	fmt.Println(handle(context.Background(), &client.Job{Body: []byte("ann")}))
	// Output:
	// <nil>
	// no address
}

// Many jobs in one request. Each is taken or refused on its own.
func ExampleClient_EnqueueBatch() {
	ctx := context.Background()
	c, err := client.New(endpoints())
	if err != nil {
		panic(err)
	}
	defer c.Close()
	jobs, err := c.EnqueueBatch(ctx, "batch", []client.NewJob{
		{Body: []byte("one")},
		{Body: []byte("two"), Options: []client.JobOption{client.Priority(9), client.Headers{"tenant": "t1"}}},
	})
	var some *client.BatchError
	if errors.As(err, &some) {
		for _, item := range some.Items {
			fmt.Println("not taken:", item.Index, item.Err.Code)
		}
	} else if err != nil {
		panic(err)
	}
	fmt.Println(len(jobs))
	// Output: 2
}

// Errors have stable codes, and say whether something may have happened.
func ExampleError() {
	ctx := context.Background()
	c, err := client.New(endpoints())
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, err = c.Queue(ctx, "nothing-here")
	var e *client.Error
	if errors.Is(err, client.ErrQueueNotFound) && errors.As(err, &e) {
		fmt.Println(e.Code, e.Status, "applied:", e.Applied)
	}
	// Output: queue_not_found 404 applied: no
}

// A fast enqueue is answered before it is committed. What became of it can be asked.
func ExampleClient_Fate() {
	ctx := context.Background()
	c, err := client.New(endpoints())
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var meta client.Meta
	job, err := c.Enqueue(ctx, "clicks", []byte("x"), client.Fast, client.Into(&meta))
	if err != nil {
		panic(err)
	}
	if !job.Committed {
		for fate := client.Pending; fate == client.Pending; {
			if fate, err = c.Fate(ctx, meta.Batch); err != nil {
				panic(err)
			}
			if fate == client.Lost {
				fmt.Println("enqueue it again")
			}
		}
	}
	fmt.Println("committed")
	// Output: committed
}
