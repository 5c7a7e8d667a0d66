package fsm

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// aKey returns the key of a job, mostly one that may be there.
func (w *world) aKey(t *rapid.T) Key {
	known := rapid.IntRange(0, 9).Draw(t, "known") > 0
	if n := len(w.keys); n > 0 && known {
		return w.keys[rapid.IntRange(max(0, n-20), n-1).Draw(t, "of")]
	}
	return Key{1, 2}
}

// jobOp is an op that names jobs.
func (w *world) jobOp(t *rapid.T) Op {
	keys := rapid.SliceOfN(rapid.Custom(w.aKey), 1, 3).Draw(t, "keys")
	switch rapid.IntRange(0, 9).Draw(t, "job op") {
	case 0, 1:
		return &Requeue{Keys: keys, From: w.from(t), Nack: rapid.Bool().Draw(t, "nack")}
	case 2:
		return &Hold{Keys: keys, From: w.from(t), ForMs: rapid.SampledFrom([]int64{0, 0, 1, 800}).Draw(t, "for")}
	case 3:
		return &Cancel{keys}
	case 4:
		return &DeleteJobs{keys}
	case 5:
		return &WithdrawJobs{keys}
	case 6, 7:
		return &Reject{w.items(t)}
	}
	op := &Settle{}
	for _, it := range w.items(t) {
		op.Items = append(op.Items, SettleItem{Verb(rapid.IntRange(0, int(verbEnd)-1).Draw(t, "verb")), it})
	}
	return op
}

// from is the states that a requeue or a hold is about, mostly all.
func (w *world) from(t *rapid.T) StateSet {
	return rapid.SampledFrom([]StateSet{0, 0, 0, StateReady, StateDelayed | StateHeld, StateAll}).Draw(t, "from")
}

func (w *world) config(t *rapid.T) QueueConfig {
	c := QueueConfig{
		LeaseMs:     rapid.SampledFrom([]int64{0, 0, 1, 700}).Draw(t, "lease"),
		TTLMs:       rapid.SampledFrom([]int64{0, 0, 1500}).Draw(t, "ttl"),
		DelayMs:     rapid.SampledFrom([]int64{0, 0, 900}).Draw(t, "delay"),
		MaxFailures: rapid.SampledFrom([]int32{0, -1, 1, 1, 2}).Draw(t, "max failures"),
		DeadLetter:  rapid.SampledFrom([]string{"", "a", "b", "c", "e"}).Draw(t, "dead letter"),
		DeadTTLMs:   rapid.SampledFrom([]int64{0, 0, 5000}).Draw(t, "dead ttl"),
		MaxLen:      rapid.SampledFrom([]int64{0, 0, 1, 4}).Draw(t, "max len"),
		MaxBytes:    rapid.SampledFrom([]int64{0, 0, 600, 4000}).Draw(t, "max bytes"),
		Overflow:    rapid.SampledFrom([]uint8{OverflowReject, OverflowDropOldest}).Draw(t, "overflow"),
		AgingMs:     rapid.SampledFrom([]int64{0, 0, 1, 700}).Draw(t, "aging"),
		GroupLimit:  rapid.SampledFrom([]int32{0, 1, 2}).Draw(t, "group limit"),
		Fair:        rapid.Bool().Draw(t, "fair"),
		Consistency: uint8(rapid.IntRange(0, 2).Draw(t, "consistency")),
	}
	if b := rapid.SampledFrom([][2]int64{{}, {}, {1, 1}, {1, 9}, {500, 3000}}).Draw(t, "backoff"); b[0] > 0 {
		c.BackoffMinMs, c.BackoffMaxMs = b[0], b[1]
	}
	return c
}

// queueOp is an op that names a queue or a consumer.
func (w *world) queueOp(t *rapid.T) Op {
	queue := rapid.SampledFrom(append([]string{"e"}, w.queues...)).Draw(t, "queue")
	upTo := rapid.SampledFrom([]uint64{0, 0, 1, w.m.seq, w.m.seq / 2}).Draw(t, "up to")
	switch rapid.IntRange(0, 11).Draw(t, "queue op") {
	case 0, 1, 2:
		fields := AllFields
		if rapid.Bool().Draw(t, "patch") {
			fields = ConfigFields(rapid.IntRange(0, int(AllFields)).Draw(t, "fields"))
		}
		op := &Configure{Queue: queue, Config: w.config(t), Fields: fields, Create: rapid.IntRange(0, 9).Draw(t, "create") == 0}
		if q, ok := w.m.Queue(queue); ok && rapid.IntRange(0, 3).Draw(t, "if match") == 0 {
			op.IfMatch = q.Version + rapid.Uint64Range(0, 1).Draw(t, "off")
		}
		return op
	case 3, 4, 5:
		return &Pause{
			Queue: queue, In: rapid.Bool().Draw(t, "in"), Out: rapid.Bool().Draw(t, "out"),
			UntilMs: rapid.SampledFrom([]int64{0, 1, w.m.now, w.m.now + 1, w.m.now + 1000, w.m.now + 60_000}).Draw(t, "until"),
		}
	case 6:
		return &Purge{queue, StateSet(rapid.IntRange(0, int(StateAll)).Draw(t, "states")), upTo}
	case 7, 8, 9:
		return &Redrive{
			Queue: queue, To: rapid.SampledFrom([]string{"", "", "a", "d"}).Draw(t, "to"),
			Reason: rapid.SampledFrom([]string{"", "", "max_failures", "rejected", "at_most_once", "?"}).Draw(t, "reason"),
			Max:    rapid.SampledFrom([]int32{0, 0, 1, 10}).Draw(t, "max"), UpTo: upTo,
		}
	case 10:
		return &DeleteQueue{queue, true}
	}
	return &ReleaseConsumer{rapid.SampledFrom([]string{"", "worker", "worker"}).Draw(t, "consumer"), rapid.SampledFrom([]uint64{0, 0, 5, w.m.index}).Draw(t, "up to")}
}

// checkLists goes through each list in small pages.
func (w *world) checkLists(t *rapid.T) {
	if w.checks++; w.checks%4 != 0 {
		return
	}
	show := func(jobs []*mJob, desc bool) (keys []string) {
		for _, j := range jobs {
			keys = append(keys, fmt.Sprintf("%v %s %s", j.key, j.queue.name, j.state))
		}
		if desc {
			slices.Reverse(keys)
		}
		return keys
	}
	add := func(keys []string, jobs []JobInfo) []string {
		if len(jobs) > 2 {
			t.Fatalf("%d jobs in a page of 2", len(jobs))
		}
		for _, j := range jobs {
			keys = append(keys, fmt.Sprintf("%v %s %s", j.ID.Key, j.Queue, j.State))
		}
		return keys
	}
	for _, q := range w.model.queues {
		if q.doomed || !q.made {
			continue
		}
		for _, states := range []StateSet{StateReady, StateAll, StateAll &^ StateReady, StateLeased | StateDead} {
			for _, desc := range []bool{false, true} {
				want := w.model.list(q, states)
				if states == StateReady {
					want = w.model.in(q, "ready")
				}
				var got []string
				for after, more := (JobCursor{}), true; more; {
					var jobs []JobInfo
					jobs, after, more, _ = w.m.QueueJobs(q.name, states, desc, after, 2)
					got = add(got, jobs)
				}
				compare(t, fmt.Sprintf("%d of %s, from the end %v", states, q.name, desc), got, show(want, desc))
			}
		}
	}
	var all []*mJob
	for _, j := range w.model.jobs {
		if !j.queue.doomed && j.state != "ready" {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *mJob) int {
		if a.key.Less(b.key) {
			return -1
		}
		return 1
	})
	var got []string
	for after, more := (Key{}), true; more; {
		var jobs []JobInfo
		jobs, after, more = w.m.AllJobs(StateAll&^StateReady, after, 2)
		got = add(got, jobs)
	}
	compare(t, "all jobs", got, show(all, false))
	got = nil
	for after, more := (JobCursor{}), true; more; {
		var jobs []JobInfo
		jobs, after, more = w.m.ConsumerJobs("worker", after, 2)
		got = add(got, jobs)
	}
	compare(t, "jobs of a consumer", got, show(w.model.heldBy("worker"), false))
	var names, want []string
	infos, _ := w.model.infos()
	for _, q := range infos {
		if q.Ready >= 1 && q.Ready <= 3 {
			want = append(want, q.Queue)
		}
	}
	for cursor, more := "", true; more; more = cursor != "" {
		var page []QueueInfo
		page, cursor = w.m.Queues(QueueFilter{MinLen: 1, MaxLen: 3}, cursor, 2)
		for _, q := range page {
			names = append(names, q.Queue)
		}
	}
	compare(t, "queues of one to three", names, want)
}
