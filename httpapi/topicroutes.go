package httpapi

import "raftq/fsm"

var noTopicCode = []fsm.Code{fsm.CodeTopicNotFound}

// topicRoutes are those of topics.
var topicRoutes = []route{
	{
		method: "GET", pattern: "/v1/topics", handle: (*call).listTopics, query: readOptions | pageOptions | setOf(optPrefix),
		doc:   "List topics by name.",
		shape: "Topics",
	},
	{
		method: "GET", pattern: "/v1/topics/{t}", handle: (*call).getTopic, query: readOptions,
		doc:   "Show a topic.",
		shape: "Topic", codes: noTopicCode,
	},
	{
		method: "PUT", pattern: "/v1/topics/{t}", handle: (*call).putTopic, query: writeOptions,
		doc:   "Say what a topic keeps, which makes it; what is not named is its default.",
		takes: []media{inJSON("TopicConfig", `{"max_count":1000000,"max_bytes":268435456,"max_age":"7d"}`), inJSON("TopicConfig", `{}`)},
		shape: "TopicConfigured", traits: hasVersions, codes: []fsm.Code{fsm.CodeETagMismatch},
	},
	{
		method: "DELETE", pattern: "/v1/topics/{t}", handle: (*call).deleteTopic, query: writeOptions,
		doc:   "Delete a topic with its messages and cursors. If it is made again, its offsets begin at 0.",
		shape: "TopicDeleted", codes: noTopicCode,
	},
	{
		method: "POST", pattern: "/v1/topics/{t}", handle: (*call).appendRaw, query: messageOptions | writeOptions,
		doc:   "Append the request body as one message.",
		takes: anyBytes, status: 201, shape: "Appended", traits: mayBeFast | mayLackBody | addsJobs,
	},
	{
		method: "POST", pattern: "/v1/topics/{t}/messages", handle: (*call).appendMessages, query: writeOptions,
		doc: "Append an envelope, an array or NDJSON of them, or frames: all or none, one after the other.",
		takes: []media{
			inJSON("MessageEnvelopes", `{"json":{"temp":21.5},"headers":{"sensor":"7"}}`),
			inJSON("MessageEnvelopes", `[{"body":"one"},{"body_base64":"AP8="}]`),
			{mediaNDJSON, "", "{\"body\":\"one\"}\n{\"body\":\"two\"}\n"},
			{mediaFrames, "", "\x00\x00\x00\x02{}\x00\x00\x00\x03one"},
		},
		status: 201, shape: "Appended", traits: mayBeFast | addsJobs,
	},
	{
		method: "GET", pattern: "/v1/topics/{t}/messages", handle: (*call).listMessages, query: readOptions | setOf(optFrom, optBelow, optSince, optLimit, optWait, optEncoding),
		doc:   "Read messages by offset or time. With wait: for the first that comes; as NDJSON it goes on, until nothing came for so long.",
		shape: "Messages", traits: givesMessages | mayBeEmpty, codes: []fsm.Code{fsm.CodeTopicNotFound, fsm.CodeOffsetTrimmed, fsm.CodeOverloaded},
	},
	{
		method: "DELETE", pattern: "/v1/topics/{t}/messages", handle: (*call).purgeTopic, query: writeOptions | setOf(optBefore), must: setOf(optBefore),
		doc:   "Drop the messages before an offset. Offsets go on.",
		shape: "TopicPurged", codes: noTopicCode,
	},
	{
		method: "GET", pattern: "/v1/topics/{t}/cursors", handle: (*call).listCursors, query: readOptions,
		doc:   "List a topic's cursors by name.",
		shape: "Cursors", codes: noTopicCode,
	},
	{
		method: "GET", pattern: "/v1/topics/{t}/cursors/{cursor}", handle: (*call).getCursor, query: readOptions,
		doc:   "Show a consumer's committed position.",
		shape: "Cursor", codes: []fsm.Code{fsm.CodeTopicNotFound, fsm.CodeCursorNotFound},
	},
	{
		method: "PUT", pattern: "/v1/topics/{t}/cursors/{cursor}", handle: (*call).putCursor, query: writeOptions,
		doc:   "Commit a consumer's position: the offset that it reads next.",
		takes: []media{inJSON("Position", `{"offset":0}`)},
		shape: "Cursor", traits: hasVersions, codes: []fsm.Code{fsm.CodeTopicNotFound, fsm.CodeETagMismatch},
	},
	{
		method: "DELETE", pattern: "/v1/topics/{t}/cursors/{cursor}", handle: (*call).deleteCursor, query: writeOptions,
		doc:   "Forget a consumer's position; one that there is not is fine.",
		shape: "CursorDeleted", traits: hasVersions, codes: []fsm.Code{fsm.CodeTopicNotFound, fsm.CodeETagMismatch},
	},
}
