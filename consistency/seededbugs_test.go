package consistency

var (
	untilFound     = []string{"-rapid.checks=3000", "-rapid.shrinktime=0s", "-rapid.nofailfile"}
	blockMachine   = &seededBlock{pkg: "./fsm", run: "TestRandomEntries", title: "random logs against the model, `fsm`", args: untilFound}
	blockTopics    = &seededBlock{pkg: "./fsm", run: "TestTopic", title: "random logs of topics against the model, `fsm`", args: untilFound}
	blockFutures   = &seededBlock{pkg: "./fsm", run: "TestTopicTwoFutures", title: "two copies that go on apart, `fsm`"}
	blockScripts   = &seededBlock{pkg: "./fsm", run: "TestScripts", title: "scripts, `fsm`"}
	blockSimulator = &seededBlock{pkg: "./raftnode", run: "TestSim$", title: "simulator", seeds: 600}
	blockStories   = &seededBlock{pkg: "./raftnode", run: "Leader|Voter|ReadIndex|ReadBeside|Waiters|Remov|Outage|RefusedProposal|BootCounter|AppendsWritten", title: "stories in the simulator's world"}
	blockNodes     = &seededBlock{pkg: "./raftnode", run: "TestCopies|TestWipedFirstMember", title: "nodes with sockets, `raftnode`"}
	blockFiles     = &seededBlock{pkg: "./raftnode", run: "TestDataDirectoryIsDurable|TestUnreadableFiles", title: "files that fail, `raftnode`"}
	blockLog       = &seededBlock{pkg: "./wal", run: ".", title: "damaged files, `wal`"}
	blockSnapshot  = &seededBlock{pkg: "./snapshot", run: ".", title: "damaged files, `snapshot`"}
	blockDurable   = &seededBlock{pkg: "./snapshot", run: "TestDurable", title: "what a power cut leaves, `snapshot`"}
	blockHTTP      = &seededBlock{pkg: "./httpapi", run: "TestBodiesAreCopied|TestFastAppend|TestUnknownOutcome|TestForwardWithoutAnswer|TestFate", title: "requests, `httpapi`"}
	blockHangups   = &seededBlock{pkg: "./hangup", run: ".", title: "clients that hang up, `hangup`"}
	blockClient    = &seededBlock{pkg: "./client", run: "TestRetryRules|TestKeys|TestDoMakesKeys", title: "a scripted node, `client`"}
	blockFaults    = &seededBlock{pkg: "./consistency", run: "TestFaults$", title: "`TestFaults`", process: true}
	blockPowerCuts = &seededBlock{pkg: "./consistency", run: "TestCoordinatedPowerCut", title: "`TestCoordinatedPowerCut`, one power cut", process: true}
	blockDamage    = &seededBlock{pkg: "./consistency", run: "TestDamagedFilesOnAMinority", title: "`TestDamagedFilesOnAMinority`", process: true}
)

// suiteBlocks are the parts of the suite that a bug could be found by as well.
var suiteBlocks = []*seededBlock{blockFaults, blockPowerCuts, blockDamage}

var seededBugs = []seededBug{
	// The rules of the machine.
	{"receipt-not-checked", "an old receipt acks a job that somebody else holds", blockMachine},
	{"late-ack-forgotten", "an ack after the end of its lease is answered, and the job comes again", blockMachine},
	{"extend-resurrects", "an extend takes a job back whose lease is over", blockMachine},
	{"nack-to-tail", "a job that comes back goes behind the others", blockMachine},
	{"at-most-once-after-nack", "an at-most-once job is handed out again after a nack", blockMachine},
	{"at-most-once-after-lease", "an at-most-once job is handed out again when its lease is over", blockMachine},
	{"give-back-counted", "a hand-out that was given back counts as a delivery", blockMachine},
	{"priority-ignored", "jobs are handed out in the order in which they came, whatever their priority", blockMachine},
	{"group-overtaken-by-retry", "a job that waits for its retry is overtaken by others of its group", blockScripts},
	{"youngest-waiter-first", "the consumer that waits for the shortest time is served first", blockMachine},
	{"pause-ignored", "a paused queue hands out jobs", blockMachine},
	{"ttl-cut-to-seconds", "a TTL ends up to a second early", blockMachine},
	{"timers-in-map-order", "timers of one millisecond fire in another order on each node", blockMachine},
	{"max-len-off-by-one", "a queue takes one job more than its limit", blockMachine},
	{"dead-letter-dropped", "a dead job is gone when the dead letter queue is full", blockMachine},
	{"unique-key-not-freed", "a unique key stays taken when its job is done", blockMachine},
	{"key-of-another-request", "another request under the same idempotency key gets its answer", blockMachine},
	{"tx-half-applied", "a transaction that fails leaves what came before the failure", blockMachine},
	{"batch-applied-twice", "a batch that comes a second time is applied again", blockMachine},
	{"given-back-by-one-of-two", "an at-most-once job that two requests were answered with is given back by one of them, after its lease", blockScripts},
	{"changed-under-a-copy", "a job is changed in place while a snapshot or a copy shares it", blockMachine},
	{"messages-overwritten", "two copies of a topic append to the same memory", blockFutures},

	// What a restart or an installed snapshot forgets.
	{"dedup-not-in-snapshot", "a restart forgets dedup ids", blockMachine},
	{"idempotency-not-in-snapshot", "a restart forgets idempotency keys with their results", blockMachine},
	{"batch-number-not-in-snapshot", "a restart forgets how far a node's batches are applied", blockMachine},
	{"fate-not-in-snapshot", "a restart forgets what became of the batches of a node's earlier starts", blockMachine},
	{"away-not-in-snapshot", "a restart forgets that a node's waiters are passed over", blockMachine},
	{"attempt-not-in-snapshot", "a restart forgets what a dequeue was given that may come again", blockMachine},
	{"waiters-not-in-snapshot", "a restart forgets consumers that wait", blockMachine},
	{"acked-ids-not-in-snapshot", "a restart forgets which jobs were acked", blockMachine},
	{"failures-not-in-snapshot", "a restart forgets how often a job failed", blockMachine},
	{"delay-lost-by-restart", "a restart forgets when a delayed job is ready", blockMachine},
	{"cursor-not-in-snapshot", "a restart forgets a topic's cursors", blockTopics},
	{"offsets-used-again", "a restart forgets where the offsets of a purged topic go on", blockTopics},

	// The replica: what is answered, and when.
	{"strong-answered-at-append", "a strong request is answered when the leader has appended it", blockSimulator},
	{"answers-by-place-alone", "answers go to the wrong requests when the node's own ops lead a batch", blockSimulator},
	{"unknown-is-refused", "a request without an answer is said to have done nothing", blockSimulator},
	{"fast-on-uncommitted-ground", "a fast answer hands out a job that may be lost", blockSimulator},
	{"at-most-once-answered-fast", "an at-most-once job is handed out before its lease is committed", blockSimulator},
	{"answered-ops-not-marked", "what was answered as fast is proposed again as if it were new", blockSimulator},
	{"change-answered-when-proposed", "a change of the members is answered before it is made", blockSimulator},
	{"removed-before-all-know", "a removal is answered while somebody may still need the removed node's vote", blockStories},
	{"removed-member-still-votes", "a removed member goes on to count in raft", blockSimulator},
	{"copies-not-awaited", "replicate is answered without the copies", blockNodes},

	// Reads.
	{"read-without-proof", "a strong read of a leader that was deposed", blockStories},
	{"read-proved-by-older-entry", "a read proved by an entry that was appended before it came", blockStories},
	{"read-proved-to-an-earlier-life", "a read proved by an answer to the node's earlier process", blockStories},
	{"read-before-commit", "a read of what may be lost", blockSimulator},
	{"uncommitted-state-shown", "reads of a node's own state see what may be lost", blockSimulator},
	{"own-term-not-awaited", "a new leader reads before the first entry of its term", blockStories},
	{"lone-voter-reads-at-once", "the same of a voter that is alone", blockStories},

	// Leaders and batches.
	{"no-rollback", "a deposed leader keeps what it has applied and nobody committed", blockSimulator},
	{"batches-before-own-term", "a new leader takes batches before it knows what is in its log", blockSimulator},
	{"batch-logged-twice", "a leader takes a batch again that it has taken", blockSimulator},
	{"batch-sent-once", "a batch that got lost is not sent again", blockSimulator},
	{"install-forgets-requests", "a node that installs a snapshot forgets its requests", blockSimulator},
	{"hand-out-not-given-back", "what is handed to a client that is gone stays with it", blockSimulator},
	{"wait-not-withdrawn", "a consumer whose wait is over goes on waiting in the machine", blockSimulator},
	{"away-not-noticed", "jobs go to consumers that wait on a dead node", blockStories},
	{"timers-wait-for-writes", "leases and delays end only when somebody writes", blockSimulator},
	{"timers-end-with-a-refusal", "the same, once raft has refused a leader's entry", blockStories},

	// Log time.
	{"log-time-is-wall-time", "leases and delays follow the leader's wall clock", blockSimulator},
	{"log-time-of-origin", "they follow the clock of the node that was asked", blockSimulator},
	{"log-time-stops-at-failover", "they stand still while nobody leads", blockStories},

	// The disk.
	{"entries-confirmed-before-fsync", "a follower confirms entries before they are on its disk", blockSimulator},
	{"vote-not-written", "a vote is given before it is on the disk", blockSimulator},
	{"hard-state-before-entries", "a commit index is written before its entries", blockSimulator},
	{"appends-as-one-slice", "appends that were written together go into raft's storage as one", blockStories},
	{"snapshot-of-what-may-be-lost", "a leader's snapshot holds what is not committed", blockSimulator},
	{"snapshot-index-off-by-one", "a snapshot says that it is one entry older than it is", blockSimulator},
	{"log-let-go-too-early", "the log reaches back to the newest snapshot alone", blockSimulator},
	{"copied-directory-serves", "a copied or old data directory is served", blockStories},
	{"wiped-node-votes", "a node whose disk was wiped begins again under its old id", blockNodes},
	{"data-directory-not-synced", "a power cut takes a new data directory with all that was synced in it", blockFiles},
	{"unread-note-is-none", "a note that cannot be read is taken for none", blockFiles},
	{"unread-snapshot-is-lost", "snapshots that cannot be read for the moment are taken for lost", blockFiles},
	{"note-not-read", "a log that lost promised entries is opened", blockLog},
	{"log-goes-on-after-failed-fsync", "the log is written on after an error", blockLog},
	{"commit-before-received-snapshot", "the commit index of a received snapshot is written before the snapshot's marker", blockLog},
	{"checksum-not-checked", "flipped bits in the log are taken for entries", blockLog},
	{"snapshot-not-verified", "flipped bits in a snapshot are taken for state", blockSnapshot},
	{"snapshot-not-synced", "a snapshot counts before it is on the disk", blockDurable},
	{"snapshot-name-not-synced", "a snapshot counts before its directory is on the disk", blockDurable},
	{"no-fsync", "answers before anything is on the disk", blockPowerCuts},

	// Clients.
	{"body-of-the-connection", "a job's body is the memory that the connection's next request is read into", blockHTTP},
	{"unknown-is-503", "503, which says that nothing was done, for what may be done", blockHTTP},
	{"forwarded-again", "a fast request that the leader may have done is done here as well", blockHTTP},
	{"fate-lost-while-pending", "a batch that may still commit is said to be lost", blockHTTP},
	{"offset-before-commit", "a fast append says an offset that it may not get", blockHTTP},
	{"written-to-nobody", "an answer to a client that has hung up counts as delivered", blockHangups},
	{"retry-without-key", "a client sends again what may be done twice", blockClient},
	{"lost-answer-is-not-applied", "a client takes no answer for \"nothing was done\"", blockClient},
}
