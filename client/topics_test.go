package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// On a real node: messages come back as they went in, once each and in order, also to
// a reader who waits; positions are kept.
func TestTopics(t *testing.T) {
	if testing.Short() {
		t.Skip("a real node")
	}
	c := newTestClient(t, Endpoints())
	ctx := t.Context()
	const topic = "client/topics"
	if _, err := c.Topic(ctx, topic); !errors.Is(err, ErrTopicNotFound) {
		t.Fatal(err)
	}
	first, err := c.Append(ctx, topic, []byte("\x00\xff"))
	if err != nil || first.Offset != 0 || first.Count != 1 || !first.Committed {
		t.Fatalf("%v %+v", err, first)
	}
	batch, err := c.AppendBatch(ctx, topic, []NewMessage{{Body: []byte("1"), Headers: map[string]string{"k": "v"}}, {}, {Body: []byte("3")}})
	if err != nil || batch.Offset != 1 || batch.Count != 3 {
		t.Fatalf("%v %+v", err, batch)
	}
	all, next, err := c.Messages(ctx, topic, MessageRange{From: Oldest})
	if err != nil || next != 4 || len(all) != 4 || string(all[0].Body) != "\x00\xff" || all[1].Headers["k"] != "v" || len(all[2].Body) != 0 || all[3].Time.IsZero() {
		t.Fatalf("%v %d %+v", err, next, all)
	}
	if some, next, err := c.Messages(ctx, topic, MessageRange{From: 1, To: 3, Limit: 1}, Fast); err != nil || next != 2 || len(some) != 1 || some[0].Offset != 1 {
		t.Errorf("%v %d %+v", err, next, some)
	}
	if none, next, err := c.Messages(ctx, topic, MessageRange{From: 4, Wait: 10 * time.Millisecond}); err != nil || next != 4 || len(none) != 0 {
		t.Errorf("%v %d %+v", err, next, none)
	}
	if some, _, err := c.Messages(ctx, topic, MessageRange{Since: all[0].Time}); err != nil || len(some) != 4 {
		t.Errorf("%v %+v", err, some)
	}

	// A tail sees what is there, and what comes while it waits.
	came := make(chan Message)
	tailing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for m, err := range c.Tail(tailing, topic, MessageRange{From: 2}) {
			if err != nil {
				ended <- err
				return
			}
			came <- m
		}
	}()
	for i := 2; i < 20; i++ {
		if m := <-came; m.Offset != uint64(i) || i >= 4 && string(m.Body) != fmt.Sprint(i) {
			t.Fatalf("%d: %+v", i, m)
		}
		if i >= 3 {
			if _, err := c.Append(ctx, topic, fmt.Append(nil, i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-came
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of a tail: %v", err)
	}
	var bounded []uint64
	for m, err := range c.Tail(ctx, topic, MessageRange{From: 18, To: 20}) {
		if err != nil {
			t.Fatal(err)
		}
		bounded = append(bounded, m.Offset)
	}
	if !slices.Equal(bounded, []uint64{18, 19}) {
		t.Errorf("%v", bounded)
	}

	if _, err := c.Cursor(ctx, topic, "w"); !errors.Is(err, ErrCursorNotFound) {
		t.Error(err)
	}
	at, err := c.SetCursor(ctx, topic, "w", 7, IfNew)
	if err != nil || at.Offset != 7 {
		t.Fatalf("%v %+v", err, at)
	}
	if _, err := c.SetCursor(ctx, topic, "w", 8, IfMatch(at.Version+1)); !errors.Is(err, ErrETagMismatch) {
		t.Error(err)
	}
	results, err := c.Tx(ctx, []TxOp{TxAppend{topic, NewMessage{Body: []byte("x"), Headers: map[string]string{"a": "b"}}}, TxCursor{topic, "w", 9, &at.Version}, NewJob{Queue: "client-topics", Body: []byte("j")}})
	if err != nil || results[0].Offset != 21 || results[1].Version <= at.Version || results[2].ID == "" {
		t.Errorf("%v %+v", err, results)
	}
	if got, err := c.Cursor(ctx, topic, "w"); err != nil || got.Offset != 9 || got.Version != results[1].Version {
		t.Errorf("%v %+v", err, got)
	}
	if list, err := c.Cursors(ctx, topic); err != nil || len(list) != 1 || list[0].Cursor != "w" {
		t.Errorf("%v %+v", err, list)
	}
	if err := c.DeleteCursor(ctx, topic, "w"); err != nil {
		t.Error(err)
	}

	if n, err := c.PurgeTopic(ctx, topic, 5); err != nil || n != 5 {
		t.Errorf("%d %v", n, err)
	}
	var trimmed *Error
	if _, _, err := c.Messages(ctx, topic, MessageRange{From: 3}); !errors.As(err, &trimmed) || !errors.Is(err, ErrOffsetTrimmed) || trimmed.FirstOffset != 5 {
		t.Errorf("%v", err)
	}
	version, err := c.ConfigureTopic(ctx, topic, TopicConfig{MaxCount: 2, MaxAge: 36 * time.Hour, Consistency: Strong}, IfMatch(0))
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Topic(ctx, topic)
	if want := (TopicConfig{MaxCount: 2, MaxBytes: 1 << 30, MaxAge: 36 * time.Hour, Consistency: Strong}); err != nil || info.Version != version || info.Config != want || info.FirstOffset != 20 || info.NextOffset != 22 {
		t.Errorf("%v %+v", err, info)
	}
	var names []string
	for info, err := range c.Topics(ctx, "client/") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Topic)
	}
	if !slices.Equal(names, []string{topic}) {
		t.Errorf("%q", names)
	}
	if n, err := c.DeleteTopic(ctx, topic); err != nil || n != 2 {
		t.Errorf("%d %v", n, err)
	}
	for _, bad := range [][]NewMessage{nil, make([]NewMessage, 1001), {{Body: make([]byte, 5<<20)}, {Body: make([]byte, 5<<20)}}} {
		if _, err := c.AppendBatch(ctx, topic, bad); !errors.Is(err, ErrInvalidOption) {
			t.Errorf("%d messages: %v", len(bad), err)
		}
	}
}

// A tail goes on at another node when one fails: no gap, nothing twice.
func TestTailFailover(t *testing.T) {
	page := func(from, n int) answer {
		var b []byte
		for i := range n {
			b = appendFrame(b, fmt.Appendf(nil, `{"offset":%d}`, from+i), []byte("x"))
		}
		return answer{status: 200, body: string(b), header: [2]string{"Raftq-Next-Offset", fmt.Sprint(from + n)}}
	}
	f := startFakes(t, 2, page(0, 3), answer{status: 503, body: `{"code":"leaving","applied":"no","status":503,"retryable":true}`}, page(3, 2), page(5, 1))
	var got []uint64
	for m, err := range fakeClient(t, f).Tail(t.Context(), "t", MessageRange{To: 6}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Offset)
	}
	if !slices.Equal(got, []uint64{0, 1, 2, 3, 4, 5}) {
		t.Errorf("%v", got)
	}
}
