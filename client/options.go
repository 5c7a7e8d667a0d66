package client

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// Limits of the servers that the client needs to know.
const (
	timeoutMax  = 55 * time.Second // of one request, and of one long poll
	itemsMax    = 1000             // of one batch
	bytesMax    = 8 << 20          // bodies of one batch
	errorMax    = 1 << 10          // text of a nack's error
	queryMax    = 8 << 10          // options in a query; more go into the body
	headerField = "header."
)

// Options of calls are values of small types, each named after what it sets:
//
//	c.Enqueue(ctx, "mail", body, client.Priority(7), client.Delay(time.Minute), client.Fast)
//
// The interfaces say which call takes which of them.
type (
	// EnqueueOption is an option of Enqueue.
	EnqueueOption interface{ enqueueOption(*call) }
	// JobOption is an option of one new job, of Enqueue and within a batch alike.
	JobOption interface {
		EnqueueOption
		jobOption(*jobHead)
	}
	// DequeueOption is an option of Dequeue.
	DequeueOption interface{ dequeueOption(*call) }
	// NackOption is an option of Nack.
	NackOption interface{ nackOption(*call) }
	// WriteOption is an option of every other call that changes something.
	WriteOption interface {
		EnqueueOption
		NackOption
		writeOption(*call)
	}
	// ReadOption is an option of calls that only look.
	ReadOption interface{ readOption(*call) }
	// CallOption is an option of every call.
	CallOption interface {
		WriteOption
		DequeueOption
		ReadOption
	}
)

// call is the options of one call.
type call struct {
	job         jobHead
	query       url.Values
	consistency Consistency
	timeout     time.Duration
	key         string
	meta        *Meta
	wait        time.Duration
	delay       string // of a nack
	attemptID   string
}

func (o *call) set(name, value string) {
	if o.query == nil {
		o.query = url.Values{}
	}
	o.query.Set(name, value)
}

// Consistency says how long to wait for an answer.
type Consistency string

// Strong and Fast are options of every call.
const (
	// Strong is answered when a majority of the nodes has it on disk. A strong read
	// shows everything that was answered before it began.
	Strong Consistency = "strong"
	// Fast is answered when the leader has taken it: it may be lost when the node
	// that answered dies at once. A fast read shows the state of the node asked.
	Fast Consistency = "fast"
)

func (c Consistency) enqueueOption(o *call) { o.consistency = c }
func (c Consistency) dequeueOption(o *call) { o.consistency = c }
func (c Consistency) nackOption(o *call)    { o.consistency = c }
func (c Consistency) writeOption(o *call)   { o.consistency = c }
func (c Consistency) readOption(o *call)    { o.consistency = c }

// Timeout is how long one node may take, at most 55 s; see WithAttemptTimeout.
type Timeout time.Duration

func (t Timeout) enqueueOption(o *call) { o.timeout = time.Duration(t) }
func (t Timeout) dequeueOption(o *call) { o.timeout = time.Duration(t) }
func (t Timeout) nackOption(o *call)    { o.timeout = time.Duration(t) }
func (t Timeout) writeOption(o *call)   { o.timeout = time.Duration(t) }
func (t Timeout) readOption(o *call)    { o.timeout = time.Duration(t) }

// IdempotencyKey names a call, so that it takes effect once however often it is
// made: again within an hour it is answered as the first time, by whatever process
// makes it. The client makes a key of its own for each call that has none; give one
// when the same call may be made again after a crash of yours. At most 128 bytes.
type IdempotencyKey string

func (k IdempotencyKey) enqueueOption(o *call) { o.key = string(k) }
func (k IdempotencyKey) nackOption(o *call)    { o.key = string(k) }
func (k IdempotencyKey) writeOption(o *call)   { o.key = string(k) }

// Meta is what an answer says beside its content.
type Meta struct {
	Index  uint64        // of the log, that the answer reflects
	Term   uint64        // of that entry
	Time   time.Time     // its log time, on which leases and delays run
	Node   string        // name of the node that answered
	Leader string        // name of the leader as that node knows it
	Batch  string        // of a fast answer, for Fate
	Stale  time.Duration // of a fast read: holds all that was committed so long ago; -1 when not known
	Replay bool          // the answer of an earlier call with the same key
}

// Into fills m from the call's answer. After an error m is as it was.
func Into(m *Meta) CallOption { return intoOption{m} }

type intoOption struct{ m *Meta }

func (i intoOption) enqueueOption(o *call) { o.meta = i.m }
func (i intoOption) dequeueOption(o *call) { o.meta = i.m }
func (i intoOption) nackOption(o *call)    { o.meta = i.m }
func (i intoOption) writeOption(o *call)   { o.meta = i.m }
func (i intoOption) readOption(o *call)    { o.meta = i.m }

// MinIndex makes a read wait until the node asked has applied an index: what
// Meta.Index said of a write is seen by the read then, also when it is fast.
type MinIndex uint64

func (i MinIndex) readOption(o *call) { o.set("min_index", strconv.FormatUint(uint64(i), 10)) }

// MaxStale makes a fast read wait for a state at most so old.
type MaxStale time.Duration

func (d MaxStale) readOption(o *call) { o.set("max_stale", wireDuration(time.Duration(d))) }

// jobHead is the options of a new job by their names on the wire.
type jobHead struct {
	names   []string
	values  []any // string, int or bool
	headers map[string]string
}

func (j *jobHead) set(name string, value any) {
	j.names = append(j.names, name)
	j.values = append(j.values, value)
}

// toQuery adds the options to a query.
func (j *jobHead) toQuery(o *call) {
	for i, name := range j.names {
		switch v := j.values[i].(type) {
		case string:
			o.set(name, v)
		case int:
			o.set(name, strconv.Itoa(v))
		case bool:
			o.set(name, strconv.FormatBool(v))
		}
	}
	for name, v := range j.headers {
		o.set(headerField+name, v)
	}
}

// object returns the options as members of a JSON object.
func (j *jobHead) object() map[string]any {
	m := make(map[string]any, len(j.names)+1)
	for i, name := range j.names {
		m[name] = j.values[i]
	}
	if len(j.headers) > 0 {
		m["headers"] = j.headers
	}
	return m
}

// json returns the options as a JSON object, nothing when there are none.
func (j *jobHead) json() ([]byte, error) {
	if len(j.names) == 0 && len(j.headers) == 0 {
		return nil, nil
	}
	return json.Marshal(j.object())
}

type (
	// Delay keeps a new job, or one that is given back, from being handed out before.
	Delay time.Duration
	// At is a time before which a new job is not handed out.
	At time.Time
	// Lease is how long a hand-out is the taker's: of a Dequeue, or of a new job for
	// dequeues that do not say. At most 12 h; the queue's, else 60 s, unless set.
	Lease time.Duration
	// TTL is a job's life: it is dropped then, leased or not.
	TTL time.Duration
	// Priority is 0 to 9, higher first, 4 unless set.
	Priority int
	// Group: at most one job of a group is leased at a time (or the queue's limit).
	Group string
	// DedupID makes a second enqueue with the same id, within 5 minutes or DedupTTL,
	// return the first job's id and Duplicate.
	DedupID string
	// DedupTTL is how long a DedupID is remembered, 1 s to 7 days.
	DedupTTL time.Duration
	// UniqueKey refuses the job with ErrNotUnique while one with the same key is not
	// done.
	UniqueKey string
	// MaxFailures is how many failures make a job dead; 0 is never.
	MaxFailures int
	// MaxLen refuses the job with ErrQueueFull when its queue is so long.
	MaxLen int
	// Replicate waits for so many nodes to have the job on disk, not just a majority.
	Replicate int
	// Headers are kept with a job. Names are HTTP tokens.
	Headers map[string]string
)

// AtMostOnce makes a job be handed out once, whatever happens: it is rather lost
// than delivered twice.
var AtMostOnce JobOption = atMostOnce{}

type atMostOnce struct{}

func (d Delay) jobOption(j *jobHead)       { j.set("delay", wireDuration(time.Duration(d))) }
func (t At) jobOption(j *jobHead)          { j.set("at", time.Time(t).UTC().Format(time.RFC3339Nano)) }
func (d Lease) jobOption(j *jobHead)       { j.set("lease", wireDuration(time.Duration(d))) }
func (d TTL) jobOption(j *jobHead)         { j.set("ttl", wireDuration(time.Duration(d))) }
func (p Priority) jobOption(j *jobHead)    { j.set("priority", int(p)) }
func (g Group) jobOption(j *jobHead)       { j.set("group", string(g)) }
func (i DedupID) jobOption(j *jobHead)     { j.set("dedup_id", string(i)) }
func (d DedupTTL) jobOption(j *jobHead)    { j.set("dedup_ttl", wireDuration(time.Duration(d))) }
func (k UniqueKey) jobOption(j *jobHead)   { j.set("unique_key", string(k)) }
func (n MaxFailures) jobOption(j *jobHead) { j.set("max_failures", int(n)) }
func (n MaxLen) jobOption(j *jobHead)      { j.set("max_len", int(n)) }
func (n Replicate) jobOption(j *jobHead)   { j.set("replicate", int(n)) }
func (atMostOnce) jobOption(j *jobHead)    { j.set("at_most_once", true) }
func (h Headers) jobOption(j *jobHead) {
	if j.headers == nil {
		j.headers = make(map[string]string, len(h))
	}
	for name, v := range h {
		j.headers[name] = v
	}
}

func (d Delay) enqueueOption(o *call)       { d.jobOption(&o.job) }
func (t At) enqueueOption(o *call)          { t.jobOption(&o.job) }
func (d Lease) enqueueOption(o *call)       { d.jobOption(&o.job) }
func (d TTL) enqueueOption(o *call)         { d.jobOption(&o.job) }
func (p Priority) enqueueOption(o *call)    { p.jobOption(&o.job) }
func (g Group) enqueueOption(o *call)       { g.jobOption(&o.job) }
func (i DedupID) enqueueOption(o *call)     { i.jobOption(&o.job) }
func (d DedupTTL) enqueueOption(o *call)    { d.jobOption(&o.job) }
func (k UniqueKey) enqueueOption(o *call)   { k.jobOption(&o.job) }
func (n MaxFailures) enqueueOption(o *call) { n.jobOption(&o.job) }
func (n MaxLen) enqueueOption(o *call)      { n.jobOption(&o.job) }
func (n Replicate) enqueueOption(o *call)   { n.jobOption(&o.job) }
func (a atMostOnce) enqueueOption(o *call)  { a.jobOption(&o.job) }
func (h Headers) enqueueOption(o *call)     { h.jobOption(&o.job) }

func (d Delay) nackOption(o *call)    { o.delay = wireDuration(time.Duration(d)) }
func (d Lease) dequeueOption(o *call) { o.set("lease", wireDuration(time.Duration(d))) }

type (
	// Max is how many jobs a Dequeue takes at most, 1 unless set, at most 1000.
	Max int
	// Wait is how long a Dequeue waits for a job, any length; 0 unless set.
	Wait time.Duration
	// As names the consumer, for people and for ReleaseConsumer.
	As string
	// AttemptID names a Dequeue: the same id again gives the same jobs, while their
	// lease lives. The client makes one for each call that has none.
	AttemptID string
)

func (n Max) dequeueOption(o *call)       { o.set("max", strconv.Itoa(int(n))) }
func (d Wait) dequeueOption(o *call)      { o.wait = time.Duration(d) }
func (n As) dequeueOption(o *call)        { o.set("consumer", string(n)) }
func (i AttemptID) dequeueOption(o *call) { o.attemptID = string(i) }

// wireDuration writes a duration as the servers read it, rounded up to what they
// know: nothing ends early.
func wireDuration(d time.Duration) string {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.FormatInt(int64(ms), 10) + "ms"
}
