package httpapi

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"raftq/fsm"
)

// option is a named option of a request, wherever it is written: query,
// envelope, frame header or item.
type option uint8

const (
	optNone option = iota
	optDelay
	optAt
	optLease
	optAtMostOnce
	optTTL
	optPriority
	optMaxFailures
	optHeaders
	optTimeout
	optConsistency
	optAtomic
	optMax
	optWait
	optConsumer
	optQueues
	optEncoding
	optMinIndex
	optMaxStale
	optBatch
	optForce
	optPrefix
	optCursor
	optLimit
	optError
	optGroup
	optDedupID
	optDedupTTL
	optUniqueKey
	optMaxLen
	optReplicate
	optAttemptID
	optMinLen
	optStates
	optOrder
	optReason
	optTo
	optMost // max of what sweeps a queue
	optIn
	optOut
	optUntil
	optFor
	optDeadLetter
	optDeadTTL
	optBackoff
	optMaxBytes
	optOverflow
	optAging
	optGroupLimit
	optFair
	optFrom
	optBelow // "to" of offsets
	optSince
	optBefore
	optMaxCount
	optMaxAge
	optTopic
	optCursorName
	optOffset
	optIfMatch
	optionCount
)

// optionSet is a set of options, a bit for each.
type optionSet uint64

func setOf(opts ...option) (s optionSet) {
	for _, o := range opts {
		s |= 1 << o
	}
	return s
}

func (s optionSet) has(o option) bool { return s>>o&1 != 0 }

func (s optionSet) String() string {
	var names []string
	for o := optNone + 1; o < optionCount; o++ {
		if s.has(o) {
			names = append(names, o.String())
		}
	}
	return strings.Join(names, ", ")
}

// known lists the options as they are written in a query, or in a JSON object: a job's
// envelope has its body beside them.
func (s optionSet) known(query bool) string {
	switch {
	case !s.has(optHeaders):
		return s.String()
	case query:
		return (s &^ (1 << optHeaders)).String() + ", header.NAME"
	}
	return "body, body_base64, json, " + s.String()
}

// find returns the option of that name, optNone when there is none here.
func (s optionSet) find(name []byte) option {
	for o := optNone + 1; o < optionCount; o++ {
		if s.has(o) && string(name) == optionFacts[o].name {
			return o
		}
	}
	return optNone
}

var (
	writeOptions   = setOf(optTimeout, optConsistency)
	readOptions    = setOf(optTimeout, optConsistency, optMinIndex, optMaxStale)
	pageOptions    = setOf(optCursor, optLimit)
	jobOptions     = setOf(optDelay, optAt, optLease, optAtMostOnce, optTTL, optPriority, optMaxFailures, optHeaders, optGroup, optDedupID, optDedupTTL, optUniqueKey, optMaxLen, optReplicate)
	dequeueOptions = setOf(optMax, optWait, optLease, optConsumer, optEncoding, optAttemptID)
	pauseOptions   = setOf(optIn, optOut, optUntil)
	redriveOptions = setOf(optMost, optReason, optTo)
	messageOptions = setOf(optHeaders)
	topicOptions   = setOf(optMaxCount, optMaxBytes, optMaxAge, optConsistency)
	commitOptions  = setOf(optTopic, optCursorName, optOffset, optIfMatch)
	configOptions  = setOf(optLease, optTTL, optDelay, optMaxFailures, optDeadLetter, optDeadTTL, optBackoff, optMaxLen, optMaxBytes, optOverflow, optAging, optGroupLimit, optFair, optConsistency)
)

// options are a request's options after checking. Zero means "not said".
type options struct {
	given      optionSet
	timeout    time.Duration
	fast       bool
	atomic     bool
	force      bool
	base64     bool
	max        int32
	limit      int
	waitMs     int64
	leaseMs    int64
	minIndex   uint64
	maxStaleMs int64
	batch      fsm.BatchRef
	consumer   string
	attemptID  string
	queues     []string
	errorText  string
	prefix     string
	cursor     string // decoded
	states     fsm.StateSet
	desc       bool
	minLen     int64
	maxLen     int64
	replicate  int
	reason     string
	to         string
	pause      fsm.Pause
	config     fsm.QueueConfig // what jobs do not have as well
	keep       fsm.TopicConfig
	from       uint64
	below      uint64
	sinceMs    int64
	before     uint64
	topic      string
	cursorName string
	offset     uint64
	ifMatch    uint64

	consistency uint8      // as a queue's default
	job         fsm.NewJob // options of a job; without queue and body
}

// set parses one option. allowed is what the place knows.
func (o *options) set(name []byte, v value, allowed optionSet) error {
	if v.kind == isText && bytes.HasPrefix(name, headerPrefix) && allowed.has(optHeaders) {
		return o.addHeader(name[len(headerPrefix):], v.b)
	}
	opt := allowed.find(name)
	if opt == optHeaders && v.kind == isText {
		opt = optNone // in a query each header is an option of its own
	}
	switch {
	case opt == optNone:
		if known := allowed.known(v.kind == isText); known != "" {
			return invalid(string(name), "unknown here; known are %s", known)
		}
		return invalid(string(name), "unknown here")
	case o.given.has(opt):
		return invalid(opt.String(), "given twice")
	}
	o.given |= 1 << opt
	return o.parse(opt, v)
}

var headerPrefix = []byte("header.")

// parse is the one place that knows where each option's value goes; its form and
// limits are in optionFacts.
func (o *options) parse(opt option, v value) (err error) {
	f := &optionFacts[opt]
	var n uint64
	switch opt {
	case optDelay:
		o.job.DelayMs, err = v.duration(f)
	case optAt:
		if o.job.AtMs, err = v.time(f.name); err == nil && (o.job.AtMs <= 0 || o.job.AtMs > time.Now().UnixMilli()+fsm.DelayMaxMs) {
			err = invalid(f.name, "outside 1970 to %s from now", formatDuration(fsm.DelayMaxMs))
		}
	case optLease:
		o.leaseMs, err = v.duration(f)
		o.job.LeaseMs = o.leaseMs
	case optAtMostOnce:
		o.job.AtMostOnce, err = v.boolean(f.name)
	case optTTL:
		o.job.TTLMs, err = v.duration(f)
	case optPriority:
		n, err = v.whole(f)
		o.job.Priority = uint8(n)
	case optMaxFailures:
		n, err = v.whole(f)
		if o.job.MaxFailures = int32(n); n == 0 {
			o.job.MaxFailures = -1 // 0 says "never" on the wire, "the queue's" in an op
		}
	case optHeaders:
		err = o.addHeaders(v)
	case optTimeout:
		var ms int64
		ms, err = v.duration(f)
		o.timeout = time.Duration(ms) * time.Millisecond
	case optConsistency:
		n, err = v.word(f)
		o.fast, o.consistency = n == 1, uint8(n)+fsm.ConsistencyStrong
	case optAtomic:
		o.atomic, err = v.boolean(f.name)
	case optForce:
		o.force, err = v.boolean(f.name)
	case optMax:
		n, err = v.whole(f)
		o.max = int32(n)
	case optLimit:
		n, err = v.whole(f)
		o.limit = int(n)
	case optWait:
		o.waitMs, err = v.duration(f)
	case optConsumer:
		o.consumer, err = v.bounded(f)
	case optQueues:
		err = o.addQueues(v)
	case optAttemptID:
		o.attemptID, err = v.bounded(f)
	case optGroup:
		o.job.Group, err = v.bounded(f)
	case optDedupID:
		o.job.DedupID, err = v.bounded(f)
	case optDedupTTL:
		o.job.DedupTTLMs, err = v.duration(f)
	case optUniqueKey:
		o.job.UniqueKey, err = v.bounded(f)
	case optMaxLen:
		n, err = v.whole(f)
		o.maxLen, o.job.MaxLen = int64(n), int64(n)
	case optMinLen:
		n, err = v.whole(f)
		o.minLen = int64(n)
	case optReplicate:
		n, err = v.whole(f)
		o.replicate = int(n)
	case optStates:
		o.states, err = v.states(f)
	case optOrder:
		n, err = v.word(f)
		o.desc = n == 1
	case optReason:
		o.reason, err = v.bounded(f)
	case optTo:
		o.to, err = v.queue(f)
	case optMost:
		n, err = v.whole(f)
		o.max = int32(n)
	case optIn:
		o.pause.In, err = v.boolean(f.name)
	case optOut:
		o.pause.Out, err = v.boolean(f.name)
	case optUntil:
		if o.pause.UntilMs, err = v.time(f.name); err == nil && o.pause.UntilMs <= 0 {
			err = invalid(f.name, "not after 1970")
		}
	case optFor:
		_, err = v.word(f)
	case optDeadLetter:
		o.config.DeadLetter, err = v.queue(f)
	case optDeadTTL:
		o.config.DeadTTLMs, err = v.duration(f)
	case optBackoff:
		o.config.BackoffMinMs, o.config.BackoffMaxMs, err = v.backoff(f)
	case optMaxBytes:
		n, err = v.whole(f)
		o.config.MaxBytes, o.keep.MaxBytes = int64(n), int64(n)
	case optOverflow:
		n, err = v.word(f)
		o.config.Overflow = uint8(n)
	case optAging:
		o.config.AgingMs, err = v.duration(f)
	case optGroupLimit:
		n, err = v.whole(f)
		o.config.GroupLimit = int32(n)
	case optFair:
		o.config.Fair, err = v.boolean(f.name)
	case optFrom:
		o.from, err = v.whole(f)
	case optBelow:
		o.below, err = v.whole(f)
	case optSince:
		o.sinceMs, err = v.time(f.name)
	case optBefore:
		o.before, err = v.whole(f)
	case optMaxCount:
		n, err = v.whole(f)
		o.keep.MaxCount = int64(n)
	case optMaxAge:
		o.keep.MaxAgeMs, err = v.duration(f)
	case optTopic:
		o.topic, err = v.topic(f)
	case optCursorName:
		o.cursorName, err = v.bounded(f)
	case optOffset:
		o.offset, err = v.whole(f)
	case optIfMatch:
		o.ifMatch, err = v.whole(f)
	case optEncoding:
		_, err = v.word(f)
		o.base64 = err == nil
	case optMinIndex:
		o.minIndex, err = v.whole(f)
	case optMaxStale:
		o.maxStaleMs, err = v.duration(f)
	case optBatch:
		var ok bool
		if o.batch, ok = parseBatch(string(v.b)); !ok {
			err = invalid(f.name, "want the Raftq-Batch field of a fast answer: node.epoch.number")
		}
	case optError:
		o.errorText, err = v.cut(f)
	case optPrefix:
		o.prefix, err = v.bounded(f)
	case optCursor:
		o.cursor, err = v.cursor(f)
	}
	return err
}

// addHeader adds a job's header and keeps the list sorted.
func (o *options) addHeader(name, val []byte) error {
	h, err := header(name, val)
	if err != nil {
		return err
	}
	at, twice := slices.BinarySearchFunc(o.job.Headers, h.Name, func(h fsm.Header, name string) int {
		return strings.Compare(h.Name, name)
	})
	if twice {
		return invalid("header."+h.Name, "given twice")
	}
	if len(o.job.Headers) == headersMax {
		return invalid("headers", "at most %d of them", headersMax)
	}
	total := len(h.Name) + len(h.Value)
	for _, x := range o.job.Headers {
		total += len(x.Name) + len(x.Value)
	}
	if total > fsm.HeadersMax {
		return invalid("headers", "at most %d bytes of names and values together", fsm.HeadersMax)
	}
	o.job.Headers = slices.Insert(o.job.Headers, at, h)
	return nil
}

func (o *options) addHeaders(v value) error {
	if v.kind != isCompound || v.b[0] != '{' {
		return invalid("headers", "want an object of strings")
	}
	r := jsonReader{b: v.b}
	return r.members(func(name []byte) error {
		if r.peek() != '"' {
			return invalid("headers", "want an object of strings")
		}
		val, err := r.str()
		if err != nil {
			return err
		}
		return o.addHeader(name, val)
	})
}

func (o *options) addQueues(v value) error {
	if v.kind != isCompound || v.b[0] != '[' {
		return invalid("queues", "want an array of names")
	}
	r := jsonReader{b: v.b}
	return r.elements(func(n int) error {
		if r.peek() != '"' {
			return invalid("queues", "want an array of names")
		}
		b, err := r.str()
		if err != nil {
			return err
		}
		name, err := queueName("queues", b)
		switch {
		case err != nil:
			return err
		case n == fsm.QueuesMax:
			return invalid("queues", "at most %d names", fsm.QueuesMax)
		case slices.Contains(o.queues, name):
			return invalid("queues", "%q is named twice", name)
		}
		o.queues = append(o.queues, name)
		return nil
	})
}

// finishJob fills in a job's defaults and refuses what contradicts itself.
func (o *options) finishJob() error {
	if o.given.has(optDelay) && o.given.has(optAt) {
		return invalid("at", "either delay or at, not both")
	}
	if o.given.has(optDedupTTL) && !o.given.has(optDedupID) {
		return invalid("dedup_ttl", "goes with a dedup_id")
	}
	if !o.given.has(optPriority) {
		o.job.Priority = fsm.PriorityDefault
	}
	return nil
}
