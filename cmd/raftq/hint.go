package main

// hints say what to do about an error of the API, by its code. An empty one
// means that the error's own words say it.
var hints = map[string]string{
	// What was asked for.
	"invalid_request":      "",
	"invalid_option":       "",
	"body_too_large":       "a job carries up to the node's --max-body; put large things into a file store and their address into the job",
	"headers_too_large":    "",
	"bad_job_id":           `ids and receipts are printed by "raftq dequeue" and "raftq peek"; quote them whole`,
	"route_not_found":      "the node may be older than this program: compare \"raftq version\" and \"raftq cluster\"",
	"method_not_allowed":   "the node may be older than this program: compare \"raftq version\" and \"raftq cluster\"",
	"idempotency_mismatch": "the key was used for something else within the last hour: take a new key",
	"etag_mismatch":        `somebody changed it meanwhile: look at it again ("raftq queue show QUEUE"), then decide`,
	"unauthenticated":      "the nodes want to know who you are",
	"forbidden":            "you may not do this: ask who runs the cluster",

	// What there is.
	"queue_not_found":  `"raftq queues" lists them; the first enqueue makes one`,
	"job_not_found":    `"raftq peek QUEUE --state all" lists the jobs of a queue`,
	"job_gone":         "it was acked, deleted, or its time to live was over; there is nothing left to do",
	"topic_not_found":  `"raftq topic list" lists them; the first append makes one`,
	"offset_trimmed":   "older messages were dropped: read from where the topic begins now",
	"cursor_not_found": `"raftq topic cursor TOPIC" lists a topic's; the first commit makes one`,
	"member_exists":    `"raftq member list" shows the members; a dead one's place is taken with --replace`,
	"member_not_found": `"raftq member list" shows the members`,

	// What state it is in.
	"lease_lost":      "the lease was over and the job is somebody else's or free again: what was done may be done twice. Take longer leases, or extend them in time",
	"too_late":        "more than half of the job's time to live is over, so its lease is not extended any more: finish it",
	"at_most_once":    "the job is never handed out twice: ack it, or reject it to keep it as dead",
	"not_unique":      `the job named above has the same unique key and is not done: wait for it ("raftq job wait ID") or delete it`,
	"queue_not_empty": "--force deletes it with its jobs",
	"queue_full":      `take jobs out, or raise the limit ("raftq queue configure QUEUE --max-len N")`,
	"queue_paused":    `"raftq resume QUEUE" opens it`,
	"aborted":         "nothing of it was done, because another part of it could not be",
	"quorum_at_risk":  `bring back the nodes that are down, or add some, first ("raftq member list" shows them)`,
	"feature_level":   `some nodes still run an older version: upgrade them ("raftq cluster" shows which)`,

	// What state the cluster is in.
	"no_leader":           `too few nodes are up or see each other: "raftq cluster" shows who is missing`,
	"not_enough_replicas": `fewer nodes have it than --replicate asks for: "raftq cluster" shows who lags`,
	"leaving":             "the node is being stopped: ask another one (--endpoints)",
	"loading":             "the node has just started: try again soon",
	"overloaded":          "try again, with fewer requests at once",
	"rate_limited":        "try again, slower",
	"not_fresh":           "ask another node, or allow older answers",
	"request_timeout":     "the request took too long to arrive",
	"memory_limit":        `take jobs out or purge some ("raftq stats" shows where they are): acks and dequeues work`,
	"disk_limit":          "a node's disk is nearly full: make room on it; acks and dequeues work",
	"commit_timeout":      "it may have been done or not: look before you do it again, or repeat it with the same --idempotency-key",
	"internal":            "a bug in raftq: the node's log says more",
	"epoch_taken":         "",

	// What became of the request.
	"unreachable": `is a node running there? "raftq serve" starts one; --endpoints or RAFTQ_ENDPOINTS name others`,
	"no_answer":   "it may have been done or not: look before you do it again, or repeat it with the same --idempotency-key",
	"bad_answer":  "give the addresses for clients (--listen-client of serve, usually port 8080)",
}

// hintSilent is for a read without an answer.
const hintSilent = "a node hangs or has just lost its leader, or something else listens there: give the addresses for clients (--listen-client of serve, usually port 8080)"
