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
		"id?:id status:int code?:string detail?:string late?:bool already?:bool dead?:bool lease_until?:time"},
	{"Results", "A line for each item, in the order of the request.", "results:[Result] committed?:bool"},
	{"Delivered", "A job that was handed out.",
		"id:id receipt:receipt queue:string headers?:headers priority:int deliveries:int failures:int enqueued_at:time lease_until:time expires_at?:time fence:int last_error?:string body?:string body_base64?:base64"},
	{"Jobs", "Jobs that were handed out.", "jobs:[Delivered] committed?:bool"},
	{"Job", "A job.",
		"id:id state:state queue:string headers?:headers priority:int deliveries:int failures:int enqueued_at:time deliver_at?:time lease_until?:time expires_at?:time fence?:int " +
			"last_error?:string at_most_once?:bool consumer?:string dead_reason?:string body?:string body_base64?:base64"},
	{"Queue", "A queue's counts.",
		"queue:string ready:int delayed:int leased:int held:int dead:int bytes:int waiters:int oldest_ready_age_ms:int enqueued_total:int delivered_total:int acked_total:int failed_total:int expired_total:int dead_total:int"},
	{"Queues", "A page of queues.", "queues:[Queue] next_cursor?:string"},
	{"Deleted", "A queue that is gone, and how many jobs with it.", "queue:string deleted:int"},
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
		"type:string title:string status:int detail:string instance:string code:string retryable:bool applied:applied retry_after_ms?:int"},
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
	"duration": {{"type", "string"}, {"pattern", durationPattern}},
}

// schemas are the document's components: answers, then requests.
func schemas() node {
	var all node
	for _, s := range answerShapes {
		all = append(all, member{s.name, s.schema()})
	}
	list := func(v *verb) node {
		item := closed(withFields(node{{"receipt", shapeTypes["receipt"]}, {"id", shapeTypes["id"]}}, v.options))
		item = append(item, member{"oneOf", oneRequired("receipt", "id")})
		return append(closed(node{{"items", listOf(item)}}), member{"required", []string{"items"}})
	}
	envelope := withFields(node{{"body", shapeTypes["string"]}, {"body_base64", shapeTypes["base64"]}, {"json", true}}, jobOptions)
	return append(all,
		member{"EnqueuedOrResults", node{{"oneOf", []node{ref("Enqueued"), ref("Results")}}}},
		member{"Document", node{{"type", "object"}}},
		member{"Envelope", append(closed(envelope), member{"oneOf", oneRequired("body", "body_base64", "json")})},
		member{"Envelopes", node{{"oneOf", []node{ref("Envelope"), {{"type", "array"}, {"items", ref("Envelope")}, {"minItems", 1}, {"maxItems", 1000}}}}}},
		member{"DequeueOptions", closed(withFields(nil, jobsOptions))},
		member{"DequeueMany", closed(withFields(nil, jobsOptions|setOf(optQueues)))},
		member{"AckItems", list(&verbAck)},
		member{"NackItems", list(&verbNack)},
		member{"ExtendItems", list(&verbExtend)},
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
		if f := &optionFacts[o]; opts.has(o) && !notYet.has(o) {
			props = append(props, member{f.name, described(f.schema(), f.doc)})
		}
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
