package check

// Parts is what operations say that are not on the jobs of a queue alone.
type Parts struct {
	// Topics: Append, Read, Commit and Position have one; a Tx may append to one
	// and commit a cursor, one after the other.
	Topics []TopicPart
	// Aborted: a Tx of which the log says that nothing was done, or something that
	// it refuses: Code says why. Such an operation has an answer, and no effect.
	Aborted bool
	Code    string
	Paused  *PausePart
	Config  *ConfigPart // Configure
	Moved   int         // Redrive and Purge: jobs; a Redrive's Max is unlike that of any other
	Facts   *Facts      // Show; Mark is the job's id
	Did     string      // Hold, Requeue, Cancel: "already", "cancel"; "" = the job is held, ready, deleted
}

// TopicPart is what is asked of a topic, and answered.
type TopicPart struct {
	Topic  string
	Bodies []string // Append: unique in the history; Read: what came
	At     []uint64 // Read: their offsets
	Offset uint64   // Append: of the first, as answered; Read: where from; Commit, Position: the position
	Limit  int      // Read: at most so many
	// First and Next are the topic's, as a Read answers them.
	First, Next uint64
	Trimmed     bool // Read: Offset is below the oldest, First
	Empty       bool // Read: nothing came while it waited; First and Next are not said

	Cursor  string // Commit, Position
	IfMatch uint64 // Commit: the version must be it; 0 = any
	Create  bool   // Commit: only when there is none
	Version uint64 // answered; 0 = there is none
}

// PausePart is what a Pause sets.
type PausePart struct {
	In, Out bool
	UntilMs int64 // log time, unlike that of any other pause; 0 = without end
}

// ends tells whether it is the end of a pause.
func (p *PausePart) ends() bool { return !p.In && !p.Out }

// ConfigPart is what a queue, or a topic, is told.
type ConfigPart struct {
	Topic       string // "" = the operation's queue
	MaxFailures int
	DeadLetter  string
	MaxCount    int64 // of a topic
}

// Facts are what a Show says of a job. State is "gone" when it is done, "none"
// when nothing is known of it.
type Facts struct {
	State, Queue, Source, Reason, Body, Group string
	Deliveries, Failures, Redriven            int
}

// configs are what the queues and topics of a history were told.
func (h *History) configs() map[string]ConfigPart {
	all := map[string]ConfigPart{}
	for _, op := range h.Ops {
		if op.Kind != Configure || op.Outcome == Failed {
			continue
		}
		name := op.Queue
		if op.Config.Topic != "" {
			name = "topic " + op.Config.Topic
		}
		all[name] = *op.Config
	}
	return all
}
