package httpapi

import (
	"math"
	"strings"

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
	wantStates  // words with commas between
	wantQueue   // a queue's name
	wantTopic   // a topic's
	wantBackoff // {"min","max"}; in JSON alone
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
	optHeaders:     {name: "headers", form: wantHeaders, example: "t1", doc: "Kept with the job or message. Names are HTTP tokens, values text without control characters."},
	optTimeout:     {name: "timeout", form: wantDuration, low: 1, high: timeoutMax.Milliseconds(), example: "10s", doc: "How long this request may take to commit; 30 s unless set."},
	optConsistency: {name: "consistency", form: wantWord, words: []string{"strong", "fast"}, example: "strong", doc: "When the answer leaves: at commit, or at the leader's append. Reads: linearizable, or this node's own committed state. Also as the header Raftq-Consistency."},
	optAtomic:      {name: "atomic", form: wantBool, example: "true", doc: "All jobs or none."},
	optMax:         {name: "max", form: wantWhole, low: 1, high: fsm.BatchItemsMax, example: "10", doc: "At most so many jobs; 1 unless set."},
	optWait:        {name: "wait", form: wantDuration, high: fsm.WaitMaxMs, example: "1ms", doc: "How long to wait when there is none."},
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

	optGroup:      {name: "group", form: wantText, low: 1, high: fsm.KeyMax, example: "customer-17", doc: "At most one job of a group is handed out at a time, the next only after ack or death."},
	optDedupID:    {name: "dedup_id", form: wantText, low: 1, high: fsm.KeyMax, example: "welcome-17", doc: "A second job with it, within dedup_ttl, is the first one: its id, duplicate true."},
	optDedupTTL:   {name: "dedup_ttl", form: wantDuration, low: fsm.DedupTTLMinMs, high: fsm.DedupTTLMaxMs, example: "10m", doc: "How long a dedup_id is remembered; 5 min unless set."},
	optUniqueKey:  {name: "unique_key", form: wantText, low: 1, high: fsm.KeyMax, example: "report-17", doc: "Refused while a job of the queue with it is not done."},
	optMaxLen:     {name: "max_len", form: wantWhole, high: math.MaxInt64, example: "1000", doc: "Jobs: refused when so many of the queue are ready. A queue's configuration: its own limit, 0 = none. A list: queues with at most so many ready jobs."},
	optReplicate:  {name: "replicate", form: wantWhole, low: 1, high: replicateMax, example: "1", doc: "Answered when so many nodes have it on disk; if not in time, withdrawn. In a batch the highest counts for all."},
	optAttemptID:  {name: "attempt_id", form: wantText, low: 1, high: fsm.KeyMax, example: "8f2c", doc: "The same again, while a lease of it lives, is answered with the same jobs."},
	optMinLen:     {name: "min_len", form: wantWhole, high: math.MaxInt64, example: "1", doc: "Queues with at least so many ready jobs."},
	optStates:     {name: "state", form: wantStates, words: stateNames, example: "ready", doc: "Jobs in this state, or in one of several with commas between."},
	optOrder:      {name: "order", form: wantWord, words: []string{"asc", "desc"}, example: "desc", doc: "asc: in the order of delivery when state is ready alone, else as they were put in. desc: from the end."},
	optReason:     {name: "reason", form: wantText, low: 1, high: fsm.ReasonMax, example: "max_failures", doc: "Only jobs that died of this."},
	optTo:         {name: "to", form: wantQueue, example: "mail", doc: "The queue that they go to; unless set the one they died in."},
	optMost:       {name: "max", form: wantWhole, low: 1, high: math.MaxInt32, example: "100", doc: "At most so many jobs; all unless set."},
	optIn:         {name: "in", form: wantBool, example: "true", doc: "Take no new jobs, and hold what would come back."},
	optOut:        {name: "out", form: wantBool, example: "true", doc: "Hand nothing out."},
	optUntil:      {name: "until", form: wantTime, example: "2035-01-31T12:00:00Z", doc: "The pause is over then; unless set it lasts until it is changed."},
	optFor:        {name: "for", form: wantWord, words: []string{"done"}, example: "done", doc: "What to wait for."},
	optDeadLetter: {name: "dead_letter", form: wantQueue, example: "mail-dead", doc: "The queue that dead jobs move to; unless set they stay."},
	optDeadTTL:    {name: "dead_ttl", form: wantDuration, low: 1, high: fsm.TTLMaxMs, example: "14d", doc: "How long dead jobs are kept; 14 days unless set."},
	optBackoff:    {name: "backoff", form: wantBackoff, high: fsm.DelayMaxMs, doc: "How long a nack without delay keeps a job back: min doubled with each failure, up to max. None unless set."},
	optMaxBytes:   {name: "max_bytes", form: wantWhole, high: math.MaxInt64, example: "1073741824", doc: "Limit of what a queue's jobs take, 0 = none; of what a topic's messages take, 0 = 1 GiB."},
	optOverflow:   {name: "overflow", form: wantWord, words: []string{"reject", "drop_oldest"}, example: "reject", doc: "What a full queue does with a new job: refuse it, or drop its oldest ready one."},
	optAging:      {name: "aging", form: wantDuration, high: fsm.DelayMaxMs, example: "1h", doc: "A ready job's priority rises by one each time this is over; 0 = never."},
	optGroupLimit: {name: "group_limit", form: wantWhole, low: 1, high: math.MaxInt32, example: "2", doc: "How many jobs of a group may be handed out at a time; 1 unless set."},
	optFrom:       {name: "from", form: wantWhole, high: math.MaxInt64, example: "0", doc: "The first offset to read; unless set that of the oldest message."},
	optBelow:      {name: "to", form: wantWhole, high: math.MaxInt64, example: "100", doc: "The offset to end before."},
	optSince:      {name: "since", form: wantTime, example: "2024-01-31T12:00:00Z", doc: "Messages appended then or later; instead of from."},
	optBefore:     {name: "before", form: wantWhole, high: math.MaxInt64, example: "1", doc: "Messages with lower offsets are dropped; above the last one, all."},
	optMaxCount:   {name: "max_count", form: wantWhole, high: math.MaxInt64, example: "100000", doc: "Keep at most so many messages; 0 = no limit."},
	optMaxAge:     {name: "max_age", form: wantDuration, high: fsm.TTLMaxMs, example: "7d", doc: "Keep messages for so long; 0 = no limit."},
	optTopic:      {name: "topic", form: wantTopic, example: "news", doc: "A topic's name."},
	optCursorName: {name: "cursor", form: wantText, low: 1, high: fsm.ConsumerMax, example: "w1", doc: "A cursor's name."},
	optOffset:     {name: "offset", form: wantWhole, high: math.MaxInt64, example: "0", doc: "The offset to read next; at most that of the message to come."},
	optIfMatch:    {name: "if_match", form: wantWhole, high: math.MaxInt64, example: "0", doc: "Only when this is the cursor's version still; 0: only when there is no such cursor yet."},
	optFair:       {name: "fair", form: wantBool, example: "true", doc: "Round robin over groups."},
}

var stateNames = []string{"delayed", "ready", "leased", "held", "dead"}

func (o option) String() string { return optionFacts[o].name }

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
	case wantStates:
		any := strings.Join(f.words, "|")
		return node{{"type", "string"}, {"pattern", "^(" + any + ")(,(" + any + "))*$"}}
	case wantQueue, wantTopic:
		return node{{"type", "string"}, {"minLength", 1}, {"maxLength", fsm.NameMax}}
	case wantBackoff:
		d := shapeTypes["duration"]
		return node{{"type", "object"}, {"properties", node{{"min", d}, {"max", d}}}, {"required", []string{"min", "max"}}, {"additionalProperties", false}}
	}
	if f.low > 0 {
		return node{{"type", "string"}, {"minLength", f.low}, {"maxLength", f.high}}
	}
	return node{{"type", "string"}, {"maxLength", f.high}}
}

const durationPattern = `^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$`
