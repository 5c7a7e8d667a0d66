package fsm

import "testing"

// TestDepends proves what an answer stands on: the last entries that changed what
// it read, so that a fast answer waits for their commit, and for no other.
func TestDepends(t *testing.T) {
	r := newRig(t)
	configure := func(c QueueConfig, fields ConfigFields) Op {
		return &Configure{Queue: "q", Config: c, Fields: fields}
	}
	job := func(set func(j *NewJob)) *Enqueue {
		op := r.enqueue("q", []byte("x"), 1)
		set(&op.Jobs[0])
		return op
	}
	dequeue := func(attempt string) *Dequeue {
		op := r.dequeue("q", 1, 0)
		op.AttemptID = attempt
		return op
	}
	keyed := func(digest byte, op Op) Op { return &Keyed{Key: "k", Digest: [16]byte{digest}, Op: op} }
	var last []Delivered
	at := map[string]uint64{} // index of the entry of a step
	for _, step := range []struct {
		name string
		op   func() Op
		on   string // the step whose entry the answer stands on, "" = none
		code Code
	}{
		{"plain", func() Op { return r.enqueue("q", nil, 1) }, "", CodeOK},
		{"purge", func() Op { return &Purge{Queue: "q", States: StateAll} }, "", CodeOK},

		{"dedup", func() Op { return job(func(j *NewJob) { j.DedupID = "d" }) }, "", CodeOK},
		{"dedup hit", func() Op { return job(func(j *NewJob) { j.DedupID = "d" }) }, "dedup", CodeOK},
		{"another id", func() Op { return job(func(j *NewJob) { j.DedupID = "e" }) }, "", CodeOK},
		{"first out", func() Op { return dequeue("") }, "dedup", CodeOK},
		{"first done", func() Op { return &Ack{[]Item{last[0].Receipt().Item()}} }, "first out", CodeOK},
		{"dedup hit after the ack", func() Op { return job(func(j *NewJob) { j.DedupID = "d" }) }, "dedup", CodeOK},
		{"second out", func() Op { return dequeue("") }, "another id", CodeOK},
		{"second done", func() Op { return &Ack{[]Item{last[0].Receipt().Item()}} }, "second out", CodeOK},
		{"forgotten by time", func() Op { r.now += DedupTTLMs; return job(func(j *NewJob) { j.DedupID = "d" }) }, "", CodeOK},
		{"third out", func() Op { return dequeue("") }, "forgotten by time", CodeOK},
		{"third done", func() Op { return &Ack{[]Item{last[0].Receipt().Item()}} }, "third out", CodeOK},

		// The queue was idle and went: what keys it had before depends on that.
		{"unique", func() Op { return job(func(j *NewJob) { j.UniqueKey = "u" }) }, "forgotten by time", CodeOK},
		{"unique out", func() Op { return dequeue("") }, "unique", CodeOK},
		{"unique done", func() Op { return &Ack{[]Item{last[0].Receipt().Item()}} }, "unique out", CodeOK},
		{"unique again", func() Op { return job(func(j *NewJob) { j.UniqueKey = "u" }) }, "unique done", CodeOK},
		{"no key", func() Op { return r.enqueue("q", nil, 1) }, "", CodeOK},
		{"purge 2", func() Op { return &Purge{Queue: "q", States: StateAll} }, "", CodeOK},

		{"keyed", func() Op { return keyed(1, r.enqueue("other", nil, 1)) }, "", CodeOK},
		{"replay", func() Op { return keyed(1, r.enqueue("other", nil, 1)) }, "keyed", CodeOK},
		{"mismatch", func() Op { return keyed(2, r.enqueue("other", nil, 1)) }, "keyed", CodeIdempotencyMismatch},

		{"for an attempt", func() Op { return r.enqueue("q", nil, 1) }, "", CodeOK},
		{"attempt", func() Op { return dequeue("a") }, "for an attempt", CodeOK},
		{"attempt again", func() Op { return dequeue("a") }, "attempt", CodeOK},
		{"extended", func() Op { return &Extend{[]Item{last[0].Receipt().Item()}} }, "attempt", CodeOK},
		{"attempt after that", func() Op { return dequeue("a") }, "extended", CodeOK},
		{"purge 3", func() Op { return &Purge{Queue: "q", States: StateAll} }, "", CodeOK},

		{"group", func() Op {
			op := r.enqueue("q", nil, 4)
			for i := range op.Jobs {
				op.Jobs[i].Group = "g"
			}
			return op
		}, "", CodeOK},
		{"group out", func() Op { return dequeue("") }, "group", CodeOK},
		{"nothing for the group", func() Op { return dequeue("") }, "", CodeOK},
		{"group done", func() Op { return &Ack{[]Item{last[0].Receipt().Item()}} }, "group out", CodeOK},
		// If the ack is lost, the group has no slot for this one.
		{"next of the group", func() Op { return dequeue("") }, "group done", CodeOK},
		{"two at a time", func() Op { return configure(QueueConfig{GroupLimit: 2}, FieldGroupLimit) }, "", CodeOK},
		{"one more of the group", func() Op { return dequeue("") }, "two at a time", CodeOK},
		{"by time", func() Op { r.now += LeaseDefault; return r.enqueue("other", nil, 1) }, "", CodeOK},
		{"after a lease is over", func() Op { return dequeue("") }, "by time", CodeOK},
	} {
		res := r.apply(t, step.op()).Results[0]
		at[step.name] = res.Position.Index
		want := at[step.on]
		if res.Depends != want || res.Code != step.code {
			t.Fatalf("%s: %v, stands on entry %d, want %d (%s)", step.name, res.Code, res.Depends, want, step.on)
		}
		if len(res.Jobs) > 0 {
			last = res.Jobs
		}
	}
}
