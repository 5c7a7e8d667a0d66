package httpapi

import (
	"slices"

	"raftq/fsm"
)

// route is one line of the table of routes: how a request is served, and all
// that /openapi.json tells of it.
type route struct {
	method  string
	pattern string // {x} is one path segment, a last * the rest
	handle  func(*call) error
	query   optionSet // options that its query may have
	must    optionSet // those of them that it needs
	doc     string

	takes  []media // bodies that it reads, the usual one first
	page   string  // media type of an answer that is somebody else's
	status int     // of a success, 200 unless set
	shape  string  // of the answer's body; a name of shapes
	traits trait
	codes  []fsm.Code // refusals of its own; those of many routes are in genericCodes
	items  []fsm.Code // of single items in a 207

	index   int  // of its metrics
	onQueue bool // its first parameter is a queue
	onTopic bool // or a topic
}

// media is one kind of request body.
type media struct {
	typ     string
	shape   string // "" is any bytes
	example string // a whole body; sampleID and sampleReceipt stand for ones that live
}

// trait is what a route shares with others.
type trait uint16

const (
	mayBeFast     trait = 1 << iota // 202 when the answer came before its commit
	mayBePart                       // 207 when an item failed
	mayBeEmpty                      // 204
	mayLackBody                     // the request's body is optional
	givesJobs                       // in the form that Accept asks for
	addsJobs                        // refused when memory or disk is full
	givesPage                       // text or bytes of others
	givesList                       // jobs, in the form that Accept asks for
	hasVersions                     // If-Match and If-None-Match
	givesMessages                   // in the form that Accept asks for
	plainRefusals                   // 400 is plain text
	readsWeak                       // of this node alone: not linearizable
)

func (t trait) has(x trait) bool { return t&x != 0 }

// anyOption marks a route that reads its query itself.
const anyOption = optionSet(1) << 63

// reads tells whether the route changes nothing. HEAD comes here as GET.
func (r *route) reads() bool { return r.method == "GET" }

const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
	mediaFrames = "application/vnd.raftq.frames"
	mediaBytes  = "application/octet-stream"
	mediaText   = "text/plain"

	// Well formed, and of no job.
	sampleID      = "D-00000009-000004gfFCB0000000000g0f-ffff"
	sampleReceipt = sampleID + ".1.1NAOLcol8qW"
)

func inJSON(shape, example string) media { return media{mediaJSON, shape, example} }

var (
	anyBytes    = []media{{mediaBytes, "", "any bytes"}}
	leaseItems  = []fsm.Code{fsm.CodeBadJobID, fsm.CodeJobNotFound, fsm.CodeLeaseLost, fsm.CodeJobGone}
	refusesJob  = []fsm.Code{fsm.CodeQueueFull, fsm.CodeQueuePaused, fsm.CodeNotUnique}
	jobCodes    = []fsm.Code{fsm.CodeBadJobID, fsm.CodeJobNotFound, fsm.CodeJobGone}
	oneReceipt  = `{"items":[{"receipt":"` + sampleReceipt + `"}]}`
	jobsOptions = dequeueOptions | writeOptions
)

// routes is the whole surface; documents and tests are made from it.
var routes = slices.Concat(baseRoutes, topicRoutes, lignumRoutes)

// baseRoutes are those of jobs, queues and the cluster.
var baseRoutes = []route{
	{
		method: "POST", pattern: "/v1/queues/{q}/enqueue", handle: (*call).enqueue, query: jobOptions | writeOptions,
		doc:   "Enqueue the request body as one job.",
		takes: anyBytes, status: 201, shape: "Enqueued", traits: mayBeFast | mayLackBody | addsJobs, codes: append(refusesJob[:3:3], fsm.CodeNotEnoughReplicas),
	},
	{
		method: "POST", pattern: "/v1/queues/{q}/jobs", handle: (*call).enqueueJobs, query: setOf(optAtomic) | writeOptions,
		doc: "Enqueue an envelope, an array or NDJSON of them, or frames.",
		takes: []media{
			inJSON("Envelopes", `{"json":{"to":"a@b.c"},"ttl":"7d","headers":{"tenant":"t1"}}`),
			inJSON("Envelopes", `[{"body":"one"},{"body_base64":"AP8=","max_failures":3}]`),
			{mediaNDJSON, "", "{\"body\":\"one\"}\n{\"body\":\"two\"}\n"},
			{mediaFrames, "", "\x00\x00\x00\x02{}\x00\x00\x00\x03one"},
		},
		status: 201, shape: "EnqueuedOrResults", traits: mayBeFast | mayBePart | addsJobs,
		codes: append(refusesJob[:3:3], fsm.CodeNotEnoughReplicas, fsm.CodeAborted), items: append(refusesJob[:3:3], fsm.CodeNotEnoughReplicas, fsm.CodeCommitTimeout),
	},
	{
		method: "POST", pattern: "/v1/queues/{q}/dequeue", handle: (*call).dequeueOne, query: jobsOptions,
		doc:   "Take jobs of a queue.",
		takes: []media{inJSON("DequeueOptions", `{"max":10,"lease":"2m","consumer":"w1"}`)}, shape: "Jobs", traits: mayBeFast | mayBeEmpty | givesJobs | mayLackBody,
	},
	{
		method: "POST", pattern: "/v1/dequeue", handle: (*call).dequeueMany, query: jobsOptions,
		doc:   "Take jobs of several queues, left to right.",
		takes: []media{inJSON("DequeueMany", `{"queues":["urgent","mail"],"max":10}`)}, shape: "Jobs", traits: mayBeFast | mayBeEmpty | givesJobs,
	},
	{
		method: "POST", pattern: "/v1/ack", handle: (*call).ack, query: writeOptions,
		doc:   "Done: the jobs are gone.",
		takes: []media{inJSON("AckItems", oneReceipt), inJSON("AckItems", `{"items":[{"id":"`+sampleID+`"}]}`)}, shape: "Results", traits: mayBeFast | mayBePart, items: leaseItems,
	},
	{
		method: "POST", pattern: "/v1/nack", handle: (*call).nack, query: writeOptions,
		doc:   "Failed: counted, and given back.",
		takes: []media{inJSON("NackItems", `{"items":[{"receipt":"`+sampleReceipt+`","delay":"30s","error":"smtp 451"}]}`)}, shape: "Results", traits: mayBeFast | mayBePart, items: leaseItems,
	},
	{
		method: "POST", pattern: "/v1/release", handle: (*call).releaseJobs, query: writeOptions,
		doc:   "Give jobs back without counting a failure.",
		takes: []media{inJSON("AckItems", oneReceipt)}, shape: "Results", traits: mayBeFast | mayBePart, items: append(leaseItems[:4:4], fsm.CodeAtMostOnce),
	},
	{
		method: "POST", pattern: "/v1/reject", handle: (*call).reject, query: writeOptions,
		doc:   "Never again: the jobs are dead at once.",
		takes: []media{inJSON("RejectItems", `{"items":[{"receipt":"`+sampleReceipt+`","error":"no such address"}]}`)}, shape: "Results", traits: mayBeFast | mayBePart, items: leaseItems,
	},
	{
		method: "POST", pattern: "/v1/extend", handle: (*call).extend, query: writeOptions,
		doc:   "Set new leases from now.",
		takes: []media{inJSON("ExtendItems", `{"items":[{"receipt":"`+sampleReceipt+`","lease":"5m"}]}`)}, shape: "Results", traits: mayBeFast | mayBePart, items: append(leaseItems[:4:4], fsm.CodeTooLate),
	},
	{
		method: "POST", pattern: "/v1/settle", handle: (*call).settleMixed, query: writeOptions,
		doc: "A mixed list of acks, nacks, releases, rejects and extends, each on its own.",
		takes: []media{inJSON("SettleItems", `{"items":[{"op":"ack","receipt":"`+sampleReceipt+`"}]}`),
			inJSON("SettleItems", `{"items":[{"op":"nack","receipt":"`+sampleReceipt+`","delay":"30s"},{"op":"ack","id":"`+sampleID+`"}]}`)},
		shape: "Results", traits: mayBeFast | mayBePart, items: append(leaseItems[:4:4], fsm.CodeTooLate, fsm.CodeAtMostOnce),
	},
	{
		method: "POST", pattern: "/v1/tx", handle: (*call).tx, query: writeOptions,
		doc: "All of a list or none, in one log entry: enqueues, what a settle has, messages of topics, positions of cursors.",
		takes: []media{inJSON("TxItems", `{"items":[{"op":"ack","receipt":"`+sampleReceipt+`"},{"op":"enqueue","queue":"next","body":"step 2","delay":"1m"}]}`),
			inJSON("TxItems", `{"items":[{"op":"append","topic":"done","json":{"order":17}},{"op":"cursor","topic":"done","cursor":"w1","offset":0}]}`)},
		shape: "Results", traits: addsJobs, codes: []fsm.Code{fsm.CodeAborted, fsm.CodeBadJobID},
	},
	{
		method: "GET", pattern: "/v1/jobs/{id}", handle: (*call).getJob, query: readOptions | setOf(optEncoding),
		doc:   "Show a job.",
		shape: "Job", codes: jobCodes,
	},
	{method: "DELETE", pattern: "/v1/jobs/{id}", handle: (*call).deleteJob, query: writeOptions, doc: "Delete a job in any state.", shape: "Result", codes: jobCodes},
	{
		method: "POST", pattern: "/v1/jobs/{id}/requeue", handle: (*call).requeueJob, query: writeOptions,
		doc:   "Make a job ready now, in its old place; whoever holds it loses it. A dead one comes back as by redrive.",
		shape: "Result", codes: append(jobCodes[:3:3], fsm.CodeAtMostOnce),
	},
	{
		method: "POST", pattern: "/v1/jobs/{id}/hold", handle: (*call).holdJob, query: writeOptions,
		doc:   "Keep a job from being handed out until it is requeued; whoever holds it loses it.",
		shape: "Result", codes: jobCodes,
	},
	{
		method: "POST", pattern: "/v1/jobs/{id}/cancel", handle: (*call).cancelJob, query: writeOptions,
		doc:   "Ask the worker that holds a job to stop: it sees that when it extends its lease. A job that nobody holds is deleted.",
		shape: "Result", codes: jobCodes,
	},
	{
		method: "GET", pattern: "/v1/jobs/{id}/wait", handle: (*call).waitJob, query: setOf(optFor, optTimeout),
		doc:   "Wait until a job is done or dead; timeout is how long.",
		shape: "Ended", traits: mayBeEmpty, codes: jobCodes[:2],
	},
	{
		method: "GET", pattern: "/v1/queues", handle: (*call).listQueues, query: readOptions | pageOptions | setOf(optPrefix, optMinLen, optMaxLen),
		doc:   "List queues by name.",
		shape: "Queues",
	},
	{
		method: "GET", pattern: "/v1/queues/{q}", handle: (*call).getQueue, query: readOptions,
		doc:   "Show a queue.",
		shape: "Queue", codes: []fsm.Code{fsm.CodeQueueNotFound},
	},
	{
		method: "DELETE", pattern: "/v1/queues/{q}", handle: (*call).deleteQueue, query: writeOptions | setOf(optForce),
		doc:   "Delete a queue.",
		shape: "Deleted", codes: []fsm.Code{fsm.CodeQueueNotFound, fsm.CodeQueueNotEmpty},
	},
	{
		method: "PUT", pattern: "/v1/queues/{q}", handle: (*call).putQueue, query: writeOptions,
		doc:   "Configure a queue, which makes it; what is not named is its default.",
		takes: []media{inJSON("Config", `{"max_failures":5,"dead_letter":"mail-dead","backoff":{"min":"1s","max":"5m"},"max_len":100000}`), inJSON("Config", `{}`)},
		shape: "Configured", traits: hasVersions, codes: []fsm.Code{fsm.CodeETagMismatch},
	},
	{
		method: "PATCH", pattern: "/v1/queues/{q}", handle: (*call).patchQueue, query: writeOptions,
		doc:   "Change the fields that are named; null is a field's default.",
		takes: []media{inJSON("Config", `{"lease":"5m","max_len":null}`)},
		shape: "Configured", traits: hasVersions, codes: []fsm.Code{fsm.CodeETagMismatch},
	},
	{
		method: "PUT", pattern: "/v1/queues/{q}/pause", handle: (*call).pauseQueue, query: writeOptions,
		doc:   "Set whether a queue takes jobs and hands them out. Acks always work.",
		takes: []media{inJSON("Pause", `{"in":true,"out":true,"until":"2035-01-31T12:00:00Z"}`), inJSON("Pause", `{"in":false,"out":false}`)},
		shape: "Paused",
	},
	{
		method: "GET", pattern: "/v1/queues/{q}/jobs", handle: (*call).listJobs, query: readOptions | pageOptions | setOf(optStates, optOrder, optEncoding),
		doc:   "List a queue's jobs.",
		shape: "JobList", traits: givesList, codes: []fsm.Code{fsm.CodeQueueNotFound},
	},
	{
		method: "DELETE", pattern: "/v1/queues/{q}/jobs", handle: (*call).purge, query: writeOptions | setOf(optStates),
		doc:   "Drop a queue's jobs by state: ready and delayed ones unless set. Those that come meanwhile are spared.",
		shape: "Purged", codes: []fsm.Code{fsm.CodeQueueNotFound},
	},
	{
		method: "POST", pattern: "/v1/queues/{q}/redrive", handle: (*call).redrive, query: writeOptions,
		doc:   "Move dead jobs back, behind what waits; their counters are reset.",
		takes: []media{inJSON("RedriveOptions", `{"max":100,"reason":"max_failures"}`)},
		shape: "Redriven", traits: mayLackBody, codes: []fsm.Code{fsm.CodeQueueNotFound},
	},
	{
		method: "GET", pattern: "/v1/consumers/{c}", handle: (*call).getConsumer, query: readOptions | pageOptions | setOf(optEncoding),
		doc:   "List what a consumer holds.",
		shape: "JobList", traits: givesList,
	},
	{
		method: "DELETE", pattern: "/v1/consumers/{c}", handle: (*call).releaseConsumer, query: writeOptions,
		doc:   "Give back all that a consumer holds, uncounted; at-most-once jobs stay with it.",
		shape: "Released",
	},
	{
		method: "GET", pattern: "/v1/log/fate", handle: (*call).fate, query: readOptions | setOf(optBatch), must: setOf(optBatch),
		doc:   "What became of a fast answer.",
		shape: "Fate",
	},
	{method: "GET", pattern: "/v1/cluster", handle: (*call).cluster, doc: "Show the cluster as this node sees it.", shape: "Cluster", traits: readsWeak},
	{
		method: "POST", pattern: "/v1/cluster/members", handle: (*call).addMember, query: setOf(optTimeout),
		doc:   "Add a member, as a learner that becomes a voter when it has caught up.",
		takes: []media{inJSON("NewMember", `{"name":"n4","peer":"http://n4.example:9080"}`)}, shape: "MembersChanged",
		codes: []fsm.Code{fsm.CodeMemberExists, fsm.CodeFeatureLevel, fsm.CodeQuorumAtRisk},
	},
	{
		method: "DELETE", pattern: "/v1/cluster/members/{member}", handle: (*call).removeMember, query: setOf(optTimeout),
		doc:   "Remove a member; answered when its machine may go.",
		shape: "MembersChanged", codes: []fsm.Code{fsm.CodeMemberNotFound, fsm.CodeQuorumAtRisk, fsm.CodeFeatureLevel},
	},
	{
		method: "POST", pattern: "/v1/cluster/members/{member}/promote", handle: (*call).promoteMember, query: setOf(optTimeout),
		doc:   "Make a learner that has caught up a voter.",
		shape: "MembersChanged", codes: []fsm.Code{fsm.CodeMemberNotFound, fsm.CodeQuorumAtRisk, fsm.CodeFeatureLevel},
	},
	{
		method: "POST", pattern: "/v1/cluster/transfer-leader", handle: (*call).transferLeader, query: setOf(optTimeout),
		doc:   "Move leadership to another voter.",
		takes: []media{inJSON("TransferTo", `{"to":"n1"}`)}, shape: "LeaderMoved", traits: mayLackBody,
		codes: []fsm.Code{fsm.CodeMemberNotFound, fsm.CodeQuorumAtRisk},
	},
	{
		method: "POST", pattern: "/v1/cluster/drain", handle: (*call).drain, query: setOf(optTimeout),
		doc:   "Let a node serve nobody, so that it can be stopped, or serve again.",
		takes: []media{inJSON("Drain", `{"node":"n1","undo":true}`)}, shape: "Drained", traits: mayLackBody,
		codes: []fsm.Code{fsm.CodeMemberNotFound, fsm.CodeQuorumAtRisk},
	},
	{method: "GET", pattern: "/livez", handle: (*call).livez, query: anyOption, doc: "The process serves.", shape: "Status", traits: readsWeak},
	{
		method: "GET", pattern: "/readyz", handle: (*call).readyz, query: anyOption,
		doc:   "A leader is known and an entry of its term applied.",
		shape: "Status", traits: readsWeak, codes: []fsm.Code{fsm.CodeNoLeader, fsm.CodeLoading, fsm.CodeLeaving},
	},
	{
		method: "GET", pattern: "/startupz", handle: (*call).startupz, query: anyOption,
		doc:   "The log is replayed.",
		shape: "Status", traits: readsWeak, codes: []fsm.Code{fsm.CodeLoading, fsm.CodeLeaving},
	},
	{method: "GET", pattern: "/version", handle: (*call).version, query: anyOption, doc: "What is running.", shape: "Version", traits: readsWeak},
	{method: "GET", pattern: "/metrics", handle: (*call).metrics, query: anyOption, doc: "Prometheus metrics.", page: mediaText, traits: readsWeak},
	{method: "GET", pattern: "/openapi.json", handle: (*call).openapi, query: anyOption, doc: "This document.", shape: "Document", traits: readsWeak},
	{method: "GET", pattern: "/debug/pprof/*", handle: (*call).pprof, query: anyOption, doc: "Go profiles.", page: mediaText, traits: readsWeak},
	{method: "GET", pattern: "/debug/pprof", handle: (*call).pprof, query: anyOption, doc: "Go profiles, listed.", page: "text/html", traits: readsWeak},
}
