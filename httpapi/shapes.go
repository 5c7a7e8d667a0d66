package httpapi

import (
	"strings"

	"raftq/fsm"
)

// shape is a JSON object of answers, field by field: "name:type", "name?:type"
// when it is not always there. A type is one of shapeTypes, a shape's name, or
// either in brackets for a list. A time also has its name_ms.
type shape struct{ name, doc, fields string }

// answerShapes are what answers are made of. Fields may be added, never renamed.
var answerShapes = []shape{
	{"Enqueued", "One job that was put in.", "id:id queue:string committed:bool duplicate:bool"},
	{"Result", "What became of one item, as its answer would have been alone.",
		"id?:id offset?:int version?:int status:int code?:string detail?:string duplicate?:bool late?:bool already?:bool dead?:bool cancel?:bool lease_until?:time"},
	{"Results", "A line for each item, in the order of the request.", "results:[Result] committed?:bool"},
	{"Delivered", "A job that was handed out.",
		"id:id receipt:receipt queue:string headers?:headers priority:int group?:string deliveries:int failures:int enqueued_at:time lease_until:time expires_at?:time fence:int last_error?:string body?:string body_base64?:base64"},
	{"Jobs", "Jobs that were handed out.", "jobs:[Delivered] committed?:bool"},
	{"Job", "A job.",
		"id:id state:state queue:string headers?:headers priority:int group?:string deliveries:int failures:int nacks:int enqueued_at:time deliver_at?:time lease_until?:time expires_at?:time fence?:int " +
			"last_error?:string at_most_once?:bool unique_key?:string dedup_id?:string consumer?:string cancel?:bool dead_reason?:string dead_at?:time source_queue?:string redriven?:int " +
			"body?:string body_base64?:base64"},
	{"JobList", "A page of jobs.", "jobs:[Job] next_cursor?:string"},
	{"Ended", "How a job ended.", "id:id state:end dead_reason?:string last_error?:string"},
	{"Queue", "A queue's counts and configuration.",
		"queue:string ready:int delayed:int leased:int held:int dead:int bytes:int waiters:int oldest_ready_age_ms:int enqueued_total:int delivered_total:int acked_total:int failed_total:int expired_total:int dead_total:int " +
			"paused:Pausing configured:bool version:int config:Settings"},
	{"Pausing", "Whether a queue takes jobs and hands them out.", "in:bool out:bool until?:time"},
	{"Settings", "A queue's configuration as it holds, defaults included. It may be sent back.",
		"lease:duration ttl:maybe delay:maybe max_failures:int dead_letter:maybe dead_ttl:duration backoff:backoff max_len:int max_bytes:int overflow:string aging:maybe group_limit:int fair:bool consistency:maybe"},
	{"Configured", "The version of the configuration, which is its ETag too.", "queue:string version:int"},
	{"Paused", "What holds now.", "queue:string paused:Pausing"},
	{"Purged", "How many jobs were dropped; more when time ran out before all were.", "queue:string purged:int more?:bool"},
	{"Redriven", "How many jobs were moved; more when time ran out before all were.", "queue:string redriven:int more?:bool"},
	{"Released", "How many jobs were given back; more when time ran out before all were.", "consumer:string released:int more?:bool"},
	{"Queues", "A page of queues.", "queues:[Queue] next_cursor?:string"},
	{"Deleted", "A queue that is gone, and how many jobs with it.", "queue:string deleted:int"},
	{"Appended", "Messages that were appended: the offset of the first, which a fast answer does not know, and how many.", "topic:string offset?:int count:int committed:bool"},
	{"Message", "A message of a topic.", "offset:int time:time headers?:headers body?:string body_base64?:base64"},
	{"Messages", "A page of messages; next is the offset to go on with, next_offset that of the message to come.",
		"messages:[Message] next:int first_offset:int next_offset:int"},
	{"Topic", "A topic: what it holds and keeps.", "topic:string first_offset:int next_offset:int bytes:int last_at?:time cursors:int configured:bool version:int config:Keeping"},
	{"Keeping", "What a topic keeps, defaults included. It may be sent back.", "max_count:int max_bytes:int max_age:maybe consistency:maybe"},
	{"Topics", "A page of topics.", "topics:[Topic] next_cursor?:string"},
	{"TopicConfigured", "The version of the configuration, which is its ETag too.", "topic:string version:int"},
	{"TopicDeleted", "A topic that is gone, and how many messages with it.", "topic:string deleted:int"},
	{"TopicPurged", "How many messages were dropped.", "topic:string purged:int"},
	{"Cursor", "A consumer's position in a topic; the version is its ETag too.", "topic:string cursor:string offset:int version:int"},
	{"CursorDeleted", "A position that is not there now.", "topic:string cursor:string"},
	{"Cursors", "The cursors of a topic.", "cursors:[Cursor]"},
	{"LignumPosted", "A message that was appended.", "status:string data:string"},
	{"LignumMessage", "A message.", "Id:int Data:string"},
	{"LignumMessages", "The messages there are of a range.", "messages:[LignumMessage] count:int"},
	{"LignumTopic", "A topic, and the offset of the message to come.", "name:string message_count:int"},
	{"Fate", "What became of a batch.", "batch:string fate:fate"},
	{"Chain", "A node's running hash at an index.", "index:int hash:string"},
	{"Node", "A member, as the asked node knows it.",
		"name:string id:string role:role leader:bool client:string peer:string match_index:int applied_index:int chain:Chain version:string alive:bool standby:bool draining:bool"},
	{"Cluster", "The cluster, as the asked node knows it.", "cluster_id:string leader:string term:int commit_index:int feature_level:int nodes:[Node]"},
	{"Member", "A line of the member table.", "id:string name:string role:role peer:string"},
	{"MembersChanged", "What became of a change of the members, and who they are now.",
		"member:Member already:bool index:int cluster_id:string members:[Member]"},
	{"LeaderMoved", "Who leads now.", "leader:string"},
	{"Drained", "Whether a node serves.", "node:string draining:bool"},
	{"Status", "All is well.", "status:string"},
	{"Version", "What is running.", "name:string version:string go:string"},
	{"Problem", "RFC 9457. code is stable; applied says whether the request may have taken effect.",
		"type:string title:string status:int detail:string instance:string code:string retryable:bool applied:applied retry_after_ms?:int first_offset?:int results?:[Result]"},
}

// shapeTypes are the types of fields.
var shapeTypes = map[string]node{
	"string":   {{"type", "string"}},
	"int":      {{"type", "integer"}},
	"bool":     {{"type", "boolean"}},
	"time":     {{"type", "string"}, {"format", "date-time"}},
	"id":       {{"type", "string"}, {"pattern", `^D-[0-9a-f]{8}-[0-9A-Za-z]{24}-[0-9a-f]{4}$`}},
	"receipt":  {{"type", "string"}, {"description", "Opaque: the proof of a hand-out."}},
	"base64":   {{"type", "string"}, {"contentEncoding", "base64"}},
	"headers":  {{"type", "object"}, {"additionalProperties", node{{"type", "string"}}}},
	"state":    {{"type", "string"}, {"enum", []string{"delayed", "ready", "leased", "held", "dead"}}},
	"fate":     {{"type", "string"}, {"enum", []string{"committed", "pending", "lost"}}},
	"role":     {{"type", "string"}, {"enum", []string{"voter", "learner"}}},
	"applied":  {{"type", "string"}, {"enum", []string{"no", "unknown"}}},
	"end":      {{"type", "string"}, {"enum", []string{"done", "expired", "dead"}}},
	"maybe":    {{"type", []string{"string", "null"}}},
	"backoff":  {{"type", []string{"object", "null"}}, {"properties", node{{"min", node{{"type", "string"}}}, {"max", node{{"type", "string"}}}}}},
	"duration": {{"type", "string"}, {"pattern", durationPattern}},
}

// schemas are the document's components: answers, then requests.
func schemas() node {
	var all node
	for _, s := range answerShapes {
		all = append(all, member{s.name, s.schema()})
	}
	job := node{{"receipt", shapeTypes["receipt"]}, {"id", shapeTypes["id"]}}
	item := func(v *verb, op node) node {
		return append(closed(withFields(append(op, job...), v.options)), member{"oneOf", oneRequired("receipt", "id")})
	}
	list := func(item node) node {
		return append(closed(node{{"items", listOf(item)}}), member{"required", []string{"items"}})
	}
	op := func(name string) node { return node{{"op", node{{"const", name}}}} }
	var mixed []node
	for _, v := range verbs {
		mixed = append(mixed, append(item(v, op(v.name)), member{"required", []string{"op"}}))
	}
	envelope := withFields(node{{"body", shapeTypes["string"]}, {"body_base64", shapeTypes["base64"]}, {"json", true}}, jobOptions)
	message := withFields(node{{"body", shapeTypes["string"]}, {"body_base64", shapeTypes["base64"]}, {"json", true}}, messageOptions)
	return append(all,
		member{"EnqueuedOrResults", node{{"oneOf", []node{ref("Enqueued"), ref("Results")}}}},
		member{"LignumTopics", node{{"type", "array"}, {"items", ref("LignumTopic")}}},
		member{"LignumPost", append(closed(node{{"topic", shapeTypes["string"]}, {"message", shapeTypes["string"]}}), member{"required", []string{"topic"}})},
		member{"LignumGet", append(closed(node{{"topic", shapeTypes["string"]}, {"from", shapeTypes["int"]}, {"to", shapeTypes["int"]}}), member{"required", []string{"topic", "to"}})},
		member{"Document", node{{"type", "object"}}},
		member{"Envelope", append(closed(envelope), member{"oneOf", oneRequired("body", "body_base64", "json")})},
		member{"TxEnqueue", append(closed(append(append(op("enqueue"), member{"queue", optionFacts[optTo].schema()}), envelope...)),
			member{"required", []string{"op", "queue"}}, member{"oneOf", oneRequired("body", "body_base64", "json")})},
		member{"Envelopes", node{{"oneOf", []node{ref("Envelope"), {{"type", "array"}, {"items", ref("Envelope")}, {"minItems", 1}, {"maxItems", 1000}}}}}},
		member{"MessageEnvelope", append(closed(message), member{"oneOf", oneRequired("body", "body_base64", "json")})},
		member{"MessageEnvelopes", node{{"oneOf", []node{ref("MessageEnvelope"), {{"type", "array"}, {"items", ref("MessageEnvelope")}, {"minItems", 1}, {"maxItems", 1000}}}}}},
		member{"TxAppend", append(closed(append(append(op("append"), member{"topic", optionFacts[optTopic].schema()}), message...)),
			member{"required", []string{"op", "topic"}}, member{"oneOf", oneRequired("body", "body_base64", "json")})},
		member{"TxCursor", append(closed(withFields(op("cursor"), commitOptions)), member{"required", []string{"op", "topic", "cursor", "offset"}})},
		member{"TopicConfig", closed(nullable(withFields(nil, topicOptions)))},
		member{"Position", append(closed(withFields(nil, setOf(optOffset))), member{"required", []string{"offset"}})},
		member{"DequeueOptions", closed(withFields(nil, jobsOptions))},
		member{"DequeueMany", closed(withFields(nil, jobsOptions|setOf(optQueues)))},
		member{"AckItems", list(item(&verbAck, nil))},
		member{"NackItems", list(item(&verbNack, nil))},
		member{"RejectItems", list(item(&verbReject, nil))},
		member{"ExtendItems", list(item(&verbExtend, nil))},
		member{"SettleItems", list(node{{"oneOf", mixed}})},
		member{"TxItems", list(node{{"oneOf", append(mixed[:len(mixed):len(mixed)], ref("TxEnqueue"), ref("TxAppend"), ref("TxCursor"))}})},
		member{"Config", closed(nullable(withFields(nil, configOptions)))},
		member{"Pause", closed(withFields(nil, pauseOptions))},
		member{"RedriveOptions", closed(withFields(nil, redriveOptions))},
		member{"NewMember", append(closed(node{
			{"name", described(node{{"type", "string"}}, "Unique among the members.")},
			{"peer", described(node{{"type", "string"}}, "URL by which the other nodes reach it.")},
			{"role", described(node{{"type", "string"}, {"enum", []string{"voter", "learner"}}}, "voter (default): as soon as it has caught up; learner: until it is promoted.")},
			{"replace", described(shapeTypes["bool"], "A dead member of that name is removed first.")},
			{"join", described(node{{"type", "string"}}, "From the node itself: up to 16 hexadecimal digits that it has drawn. Asked again with them, the answer is the same.")},
			{"cluster_token", described(node{{"type", "string"}}, "From the node itself: must be the cluster's.")},
			{"feature_level", described(shapeTypes["int"], "From the node itself: of its build.")},
		}), member{"required", []string{"name", "peer"}})},
		member{"TransferTo", closed(node{{"to", described(node{{"type", "string"}}, "A voter's name; without it the one whose log is longest.")}})},
		member{"Drain", closed(node{
			{"node", described(node{{"type", "string"}}, "A member's name; without it the node that is asked.")},
			{"undo", described(shapeTypes["bool"], "Let it serve again.")},
		})},
	)
}

func (s *shape) schema() node {
	var props node
	var must []string
	for field := range strings.FieldsSeq(s.fields) {
		name, typ, ok := strings.Cut(field, ":")
		if !ok {
			panic("BUG: shape " + s.name + ": field " + field)
		}
		name, maybe := strings.CutSuffix(name, "?")
		add := func(name string, schema node) {
			props = append(props, member{name, schema})
			if !maybe {
				must = append(must, name)
			}
		}
		add(name, typeSchema(typ))
		if typ == "time" {
			add(name+"_ms", shapeTypes["int"])
		}
	}
	return node{{"type", "object"}, {"description", s.doc}, {"properties", props}, {"required", must}}
}

func typeSchema(typ string) node {
	if in, ok := strings.CutPrefix(typ, "["); ok {
		return node{{"type", "array"}, {"items", typeSchema(strings.TrimSuffix(in, "]"))}}
	}
	if t, ok := shapeTypes[typ]; ok {
		return t
	}
	return ref(typ)
}

// withFields adds a property for each option.
func withFields(props node, opts optionSet) node {
	for o := optNone + 1; o < optionCount; o++ {
		if f := &optionFacts[o]; opts.has(o) {
			props = append(props, member{f.name, described(f.schema(), f.doc)})
		}
	}
	return props
}

// nullable lets each property be null.
func nullable(props node) node {
	for i, p := range props {
		props[i].val = node{{"anyOf", []node{p.val.(node), {{"type", "null"}}}}}
	}
	return props
}

// described adds to what a schema says of itself.
func described(schema node, doc string) node {
	for i, m := range schema {
		if m.key == "description" {
			schema[i].val = doc + " " + m.val.(string)
			return schema
		}
	}
	return append(schema, member{"description", doc})
}

// closed is an object that has no other members.
func closed(props node) node {
	return node{{"type", "object"}, {"properties", props}, {"additionalProperties", false}}
}

// oneRequired is for oneOf: exactly one of these members.
func oneRequired(names ...string) (all []node) {
	for _, n := range names {
		all = append(all, node{{"required", []string{n}}})
	}
	return all
}

// listOf is a batch.
func listOf(item node) node {
	return node{{"type", "array"}, {"items", item}, {"minItems", 1}, {"maxItems", fsm.BatchItemsMax}}
}

func ref(name string) node {
	return node{{"$ref", "#/components/schemas/" + name}}
}
