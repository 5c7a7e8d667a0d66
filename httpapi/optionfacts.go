package httpapi

import (
	"math"

	"raftq/fsm"
)

// optionForm is the form that an option's value has.
type optionForm uint8

const (
	wantText     optionForm = iota
	wantDuration            // 250ms, 30s, 7d
	wantTime                // RFC 3339
	wantWhole               // a whole number
	wantBool
	wantWord    // one of some words
	wantHeaders // an object of strings; in a query header.NAME=value
	wantNames   // an array of queue names; in JSON alone
	wantBatch   // node.epoch.number
	wantCursor  // next_cursor of an earlier answer
	wantCut     // a text of any length, kept in part
)

// optionFact is what an option may say. The switch that reads options takes its
// limits from here, and so does the document that tells of them.
type optionFact struct {
	name      string
	form      optionForm
	low, high int64 // whole numbers; ms of a duration; high alone: bytes of a text
	words     []string
	example   string // as it stands in a query, decoded
	doc       string
}

var optionFacts = [optionCount]optionFact{
	optDelay:       {name: "delay", form: wantDuration, high: fsm.DelayMaxMs, example: "10m", doc: "Not handed out before so long from now."},
	optAt:          {name: "at", form: wantTime, example: "2035-01-31T12:00:00Z", doc: "Not handed out before this time; instead of delay."},
	optLease:       {name: "lease", form: wantDuration, low: 1, high: fsm.LeaseMaxMs, example: "2m", doc: "How long a hand-out lasts: of this dequeue, or of each hand-out of this job that does not say its own."},
	optAtMostOnce:  {name: "at_most_once", form: wantBool, example: "true", doc: "Handed out once, whatever happens."},
	optTTL:         {name: "ttl", form: wantDuration, low: 1, high: fsm.TTLMaxMs, example: "7d", doc: "The job dies when it is over."},
	optPriority:    {name: "priority", form: wantWhole, high: 9, example: "7", doc: "Higher first; 4 unless set."},
	optMaxFailures: {name: "max_failures", form: wantWhole, high: math.MaxInt32, example: "3", doc: "Dead after so many failures; 0 = never; else the queue's, 20 unless set."},
	optHeaders:     {name: "headers", form: wantHeaders, example: "t1", doc: "Kept with the job. Names are HTTP tokens, values text without control characters."},
	optTimeout:     {name: "timeout", form: wantDuration, low: 1, high: timeoutMax.Milliseconds(), example: "10s", doc: "How long this request may take to commit; 30 s unless set."},
	optConsistency: {name: "consistency", form: wantWord, words: []string{"strong", "fast"}, example: "strong", doc: "When the answer leaves: at commit, or at the leader's append. Reads: linearizable, or this node's own committed state. Also as the header Raftq-Consistency."},
	optAtomic:      {name: "atomic", form: wantBool, example: "true", doc: "All jobs or none."},
	optMax:         {name: "max", form: wantWhole, low: 1, high: fsm.BatchItemsMax, example: "10", doc: "At most so many jobs; 1 unless set."},
	optWait:        {name: "wait", form: wantDuration, high: fsm.WaitMaxMs, example: "1ms", doc: "How long to wait for a job when there is none."},
	optConsumer:    {name: "consumer", form: wantText, high: fsm.ConsumerMax, example: "w1", doc: "Who takes the jobs; shown with them."},
	optQueues:      {name: "queues", form: wantNames, high: fsm.QueuesMax, doc: "Queues to take from, left to right."},
	optEncoding:    {name: "encoding", form: wantWord, words: []string{"base64"}, example: "base64", doc: "Bodies always as body_base64."},
	optMinIndex:    {name: "min_index", form: wantWhole, high: math.MaxInt64, example: "1", doc: "Wait until this node has applied that index."},
	optMaxStale:    {name: "max_stale", form: wantDuration, low: 1, high: math.MaxInt32, example: "10s", doc: "Of a fast read: refuse a state older than that."},
	optBatch:       {name: "batch", form: wantBatch, example: "2253a2de6e18c479.4294967297.12", doc: "The Raftq-Batch field of a fast answer."},
	optForce:       {name: "force", form: wantBool, example: "true", doc: "Also when it holds jobs."},
	optPrefix:      {name: "prefix", form: wantText, high: fsm.NameMax, example: "ma", doc: "Names that begin so."},
	optCursor:      {name: "cursor", form: wantCursor, example: "bWFpbA", doc: "The next_cursor of the page before."},
	optLimit:       {name: "limit", form: wantWhole, low: 1, high: listMax, example: "10", doc: "At most so many a page; 100 unless set."},

	optError: {name: "error", form: wantCut, high: fsm.ErrorTextMax, example: "smtp 451", doc: "Kept as the job's last error; a long one is cut."},

	optGroup:     {name: "group"},
	optDedupID:   {name: "dedup_id"},
	optDedupTTL:  {name: "dedup_ttl"},
	optUniqueKey: {name: "unique_key"},
	optMaxLen:    {name: "max_len"},
	optReplicate: {name: "replicate"},
	optAttemptID: {name: "attempt_id"},
	optMinLen:    {name: "min_len"},
}

func (o option) String() string { return optionFacts[o].name }

// optionOf returns optNone for a name that is no option.
func optionOf(name []byte) option {
	for o := optNone + 1; o < optionCount; o++ {
		if string(name) == optionFacts[o].name {
			return o
		}
	}
	return optNone
}

// schema is the option's value as JSON Schema.
func (f *optionFact) schema() node {
	switch f.form {
	case wantDuration:
		return node{{"type", "string"}, {"pattern", durationPattern}, {"description", "A duration from " + formatDuration(f.low) + " to " + formatDuration(f.high) + "."}}
	case wantTime:
		return node{{"type", "string"}, {"format", "date-time"}}
	case wantWhole:
		return node{{"type", "integer"}, {"minimum", f.low}, {"maximum", f.high}}
	case wantBool:
		return node{{"type", "boolean"}}
	case wantWord:
		return node{{"type", "string"}, {"enum", f.words}}
	case wantHeaders:
		return node{{"type", "object"}, {"additionalProperties", node{{"type", "string"}}}, {"maxProperties", headersMax}}
	case wantNames:
		return node{{"type", "array"}, {"items", node{{"type", "string"}, {"minLength", 1}, {"maxLength", fsm.NameMax}}}, {"minItems", 1}, {"maxItems", f.high}, {"uniqueItems", true}}
	case wantBatch:
		return node{{"type", "string"}, {"pattern", `^[0-9a-f]+\.[0-9]+\.[0-9]+$`}}
	case wantCursor, wantCut:
		return node{{"type", "string"}}
	}
	return node{{"type", "string"}, {"maxLength", f.high}}
}

const durationPattern = `^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$`
