package fsm

import (
	"bytes"
	"maps"
	"testing"
)

// TestJobEnd proves what is said of a job that lives, died, was acked, or whose
// time was over.
func TestJobEnd(t *testing.T) {
	r := newRig(t)
	a := r.apply(t, &Enqueue{First: 1000, Jobs: []NewJob{{Queue: "q", Priority: 4}, {Queue: "q", Priority: 4}, {Queue: "q", Priority: 4, TTLMs: 1000}, {Queue: "q", Priority: 4}}},
		&Dequeue{Request: 1, Queues: []string{"q"}, Max: 2})
	jobs := a.Results[1].Jobs
	r.apply(t, &Ack{Items: []Item{jobs[0].Receipt().Item()}}, &Reject{Items: []Item{jobs[1].Receipt().Item()}})
	r.now += 2000
	r.apply(t, &NodeBack{})
	for i, want := range []End{EndDone, EndDead, EndExpired, EndNone} {
		id := a.Results[0].Items[i].ID
		e, code := r.m.JobEnd(id.Key)
		if code != CodeOK || e.End != want || (want == EndDead || want == EndNone) != (e.Job.ID == id) {
			t.Errorf("job %d: %v %+v, want end %d", i, code, e, want)
		}
	}
	if _, code := r.m.JobEnd(Key{1, 1}); code != CodeJobNotFound {
		t.Errorf("one that never was: %v", code)
	}
}

// TestKeptRead proves that what is kept under a key can be read without using it.
func TestKeptRead(t *testing.T) {
	r := newRig(t)
	a := r.apply(t, &Keyed{Key: "k", Op: &Enqueue{First: 1000, Jobs: []NewJob{{Queue: "q", Priority: 4}}}})
	res, ok := r.m.Kept("k")
	if !ok || !res.Replay || len(res.Items) != 1 || res.Items[0].ID != a.Results[0].Items[0].ID {
		t.Errorf("%v %+v", ok, res)
	}
	if _, ok := r.m.Kept("other"); ok {
		t.Error("a key that nobody used")
	}
}

// TestQueueConsistencies proves that the list follows configurations, deletions and
// restores, and says when it changed.
func TestQueueConsistencies(t *testing.T) {
	r := newRig(t)
	set := func(queue string, v uint8) {
		r.apply(t, &Configure{Queue: queue, Config: QueueConfig{Consistency: v}, Fields: FieldConsistency})
	}
	want := func(want map[string]uint8) {
		t.Helper()
		if got := r.m.QueueConsistencies(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	want(map[string]uint8{})
	set("a", ConsistencyFast)
	set("b", ConsistencyStrong)
	want(map[string]uint8{"a": 2, "b": 1})
	before := r.m.Copy()
	at := r.m.ConsistencyChanged()
	r.apply(t, &Configure{Queue: "c", Config: QueueConfig{MaxLen: 1}, Fields: FieldMaxLen}, r.enqueue("d", nil, 1))
	if r.m.ConsistencyChanged() != at {
		t.Error("what says nothing of it changed it")
	}
	set("a", 0)
	r.apply(t, &DeleteQueue{Queue: "b"})
	want(map[string]uint8{})
	if r.m.ConsistencyChanged() == at {
		t.Error("a change went unnoticed")
	}
	if got := before.QueueConsistencies(); len(got) != 2 || before.ConsistencyChanged() != at {
		t.Errorf("the copy: %v", got)
	}
	set("a", ConsistencyFast)
	var b bytes.Buffer
	if err := r.m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	r.m = restored
	want(map[string]uint8{"a": 2})
	if err := r.m.Check(); err != nil {
		t.Error(err)
	}
}

// TestTopicConsistencies is the same for topics.
func TestTopicConsistencies(t *testing.T) {
	r := newRig(t)
	set := func(topic string, v uint8) {
		r.apply(t, &ConfigureTopic{Topic: topic, Config: TopicConfig{Consistency: v}, Fields: FieldTopicConsistency})
	}
	want := func(want map[string]uint8) {
		t.Helper()
		if got := r.m.TopicConsistencies(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	set("a", ConsistencyFast)
	set("b", ConsistencyStrong)
	want(map[string]uint8{"a": 2, "b": 1})
	at := r.m.ConsistencyChanged()
	r.apply(t, &Append{Topic: "a", Messages: []NewMessage{{Body: []byte("x")}}})
	if r.m.ConsistencyChanged() != at {
		t.Error("a message changed it")
	}
	set("a", 0)
	r.apply(t, &DeleteTopic{Topic: "b"})
	want(map[string]uint8{})
	if len(r.m.QueueConsistencies()) != 0 || r.m.ConsistencyChanged() == at {
		t.Error("a change went unnoticed, or to the queues")
	}
	set("c", ConsistencyFast)
	var b bytes.Buffer
	if err := r.m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.m, err = Decode(&b); err != nil {
		t.Fatal(err)
	}
	want(map[string]uint8{"c": 2})
}
