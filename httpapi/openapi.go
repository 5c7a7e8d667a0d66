package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"raftq/fsm"
)

// openapi answers the description of this very surface.
func (c *call) openapi() error {
	doc, err := c.s.document()
	if err != nil {
		return err
	}
	c.out = append(c.out[:0], doc...)
	return c.answer(200, typeJSON)
}

// documentOf makes the description when it is first asked for.
func documentOf(table []route) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		b, err := json.Marshal(describe(table))
		return append(b, '\n'), err
	})
}

// describe is the whole document, OpenAPI 3.1.
func describe(table []route) node {
	var paths node
	for i := range table {
		r := &table[i]
		at := slices.IndexFunc(paths, func(m member) bool { return m.key == r.path() })
		if at < 0 {
			at = len(paths)
			paths = append(paths, member{r.path(), node(nil)})
		}
		paths[at].val = append(paths[at].val.(node), member{strings.ToLower(r.method), r.operation()})
	}
	return node{
		{"openapi", "3.1.1"},
		{"info", node{{"title", "raftq"}, {"version", "v1"}, {"description", "A replicated job queue. Any node serves every route."},
			{"license", node{{"name", "see LICENSE"}}}}},
		{"servers", []node{{{"url", "/"}}}},
		{"paths", paths},
		{"components", node{{"schemas", schemas()}, {"headers", answerHeaders()}}},
	}
}

// path is the pattern as OpenAPI writes it.
func (r *route) path() string { return strings.Replace(r.pattern, "*", "{rest}", 1) }

func (r *route) operation() node {
	op := node{{"operationId", r.id()}, {"summary", r.doc}}
	if params := r.parameters(); len(params) > 0 {
		op = append(op, member{"parameters", params})
	}
	if len(r.takes) > 0 {
		op = append(op, member{"requestBody", r.requestBody()})
	}
	return append(op, member{"responses", r.responses()})
}

// id is a name for generated clients.
func (r *route) id() string {
	words := strings.FieldsFunc(r.pattern, func(c rune) bool { return strings.ContainsRune("/{}*._-", c) })
	id := strings.ToLower(r.method)
	for _, w := range words {
		if w != "v1" {
			id += strings.ToUpper(w[:1]) + w[1:]
		}
	}
	if strings.HasSuffix(r.pattern, "*") {
		id += "Rest"
	}
	return id
}

// pathFacts are the parameters in patterns.
var pathFacts = map[string]struct{ doc, example string }{
	"q":      {"A queue's name: 1 to 255 bytes, percent-decoded once; $ at the start is reserved.", "mail"},
	"id":     {"A job's id.", sampleID},
	"c":      {"A consumer's name, as it was given to its dequeues.", "w1"},
	"member": {"A member's name, or its id.", "n1"},
	"t":      {"A topic's name: 1 to 255 bytes, percent-decoded once; $ at the start is reserved.", "news"},
	"cursor": {"A cursor's name: 1 to 128 bytes.", "w1"},
	"rest":   {"Which profile.", "cmdline"},
}

func (r *route) parameters() (params []node) {
	for part := range strings.SplitSeq(r.path(), "/") {
		name, ok := strings.CutPrefix(part, "{")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "}")
		f, ok := pathFacts[name]
		if !ok {
			panic("BUG: nothing is known of the path parameter " + name)
		}
		params = append(params, node{{"name", name}, {"in", "path"}, {"required", true}, {"description", f.doc}, {"schema", node{{"type", "string"}}}, {"example", f.example}})
	}
	if r.query == anyOption {
		return params
	}
	for o := optNone + 1; o < optionCount; o++ {
		if r.query.has(o) {
			params = append(params, optionFacts[o].parameter(r.must.has(o)))
		}
	}
	return append(params, r.fields()...)
}

// fields are the header fields that the route reads.
func (r *route) fields() (all []node) {
	field := func(name, doc, example string) {
		all = append(all, node{{"name", name}, {"in", "header"}, {"description", doc}, {"schema", node{{"type", "string"}}}, {"example", example}})
	}
	if r.query.has(optConsistency) {
		field("Raftq-Consistency", "As the option consistency.", "strong")
	}
	if r.takesKey() {
		field("Idempotency-Key", "The request takes effect once, however often it comes with this key within an hour; a repeated answer has Idempotent-Replay.", "7f3c")
	}
	if r.traits.has(hasVersions) {
		field("If-Match", "Only when this is the ETag still.", `"0"`)
		field("If-None-Match", "*: only when there is none yet.", "*")
	}
	return all
}

// takesKey tells whether an Idempotency-Key has a meaning.
func (r *route) takesKey() bool {
	return r.query.has(optConsistency) && !r.reads() && !r.traits.has(givesJobs)
}

func (f *optionFact) parameter(must bool) node {
	p := node{{"name", f.name}, {"in", "query"}}
	if must {
		p = append(p, member{"required", true})
	}
	p = append(p, member{"description", f.doc})
	if f.form == wantHeaders {
		// Exploded, an object's members are options of their own: header.NAME=value.
		schema := node{{"type", "object"}, {"patternProperties", node{{`^header\..+$`, node{{"type", "string"}}}}}, {"additionalProperties", false}}
		return append(p, member{"style", "form"}, member{"explode", true}, member{"schema", schema}, member{"example", node{{"header.tenant", f.example}}})
	}
	var example any = f.example
	switch f.form {
	case wantWhole:
		example = json.Number(f.example)
	case wantBool:
		example = f.example == "true"
	}
	return append(p, member{"schema", f.schema()}, member{"example", example})
}

func (r *route) requestBody() node {
	var content node
	for i := range r.takes {
		m := &r.takes[i]
		at := slices.IndexFunc(content, func(c member) bool { return c.key == m.typ })
		if at < 0 {
			at = len(content)
			schema := node{}
			if m.shape != "" {
				schema = ref(m.shape)
			}
			content = append(content, member{m.typ, node{{"schema", schema}, {"examples", node(nil)}}})
		}
		var value any = m.example
		if m.typ == mediaJSON {
			value = json.RawMessage(m.example)
		}
		entry := content[at].val.(node)
		examples := entry[1].val.(node)
		entry[1].val = append(examples, member{"example" + strconv.Itoa(len(examples)+1), node{{"value", value}}})
	}
	return node{{"required", !r.traits.has(mayLackBody)}, {"content", content}}
}

// responses lists each status that the route answers with.
func (r *route) responses() node {
	all := map[int]node{}
	success := r.status
	if success == 0 {
		success = 200
	}
	all[success] = r.success("Done.")
	if r.traits.has(mayBeFast) {
		all[202] = r.success("Done at the leader's append, not committed yet: Raftq-Batch tells which batch to ask for.")
	}
	if r.traits.has(mayBeEmpty) {
		all[204] = node{{"description", "Nothing came."}, {"headers", r.headers()}}
	}
	if r.traits.has(mayBePart) {
		all[207] = node{{"description", "Some items failed: " + codeNames(r.items) + "."}, {"headers", r.headers()},
			{"content", node{{mediaJSON, node{{"schema", ref("Results")}}}}}}
	}
	if r.traits.has(plainRefusals) {
		all[400] = node{{"description", "Malformed, or of an unknown topic: one line says why."}, {"headers", r.headers()}, {"content", node{{mediaText, node{{"schema", node{{"type", "string"}}}}}}}}
	}
	byStatus := map[int][]string{}
	for _, k := range r.refusals() {
		byStatus[k.status] = append(byStatus[k.status], k.code)
	}
	for status, codes := range byStatus {
		schema := node{{"allOf", []node{ref("Problem"), {{"properties", node{{"code", node{{"enum", codes}}}}}}}}}
		headers := r.headers()
		if (&kind{status: status, retryMs: 1}).retryAfter() > 0 {
			headers = append(headers, member{"Retry-After", headerRef("Retry-After")})
		}
		all[status] = node{{"description", strings.Join(codes, ", ")}, {"headers", headers}, {"content", node{{"application/problem+json", node{{"schema", schema}}}}}}
	}
	var out node
	for _, status := range slices.Sorted(maps.Keys(all)) {
		out = append(out, member{strconv.Itoa(status), all[status]})
	}
	return out
}

// success is an answer with the route's shape, in each form that it has.
func (r *route) success(doc string) node {
	res := node{{"description", doc}, {"headers", r.headers()}}
	switch {
	case r.page != "":
		return append(res, member{"content", node{{r.page, node{{"schema", node{{"type", "string"}}}}}}})
	case r.traits.has(givesList), r.traits.has(givesMessages):
		return append(res, member{"content", node{{mediaJSON, node{{"schema", ref(r.shape)}}}, {mediaNDJSON, node{}}, {mediaFrames, node{}}}})
	case r.traits.has(givesJobs):
		return append(res, member{"content", node{{mediaJSON, node{{"schema", ref(r.shape)}}}, {mediaNDJSON, node{}}, {mediaFrames, node{}}, {mediaBytes, node{}}}})
	}
	return append(res, member{"content", node{{mediaJSON, node{{"schema", ref(r.shape)}}}}})
}

// headers are the fields of a success.
func (r *route) headers() node {
	h := node{{"Raftq-Node", headerRef("Raftq-Node")}, {"Raftq-Leader", headerRef("Raftq-Leader")}}
	if r.traits.has(readsWeak) {
		return h
	}
	h = append(h, member{"Raftq-Index", headerRef("Raftq-Index")}, member{"Raftq-Term", headerRef("Raftq-Term")}, member{"Raftq-Time", headerRef("Raftq-Time")})
	switch {
	case r.reads():
		h = append(h, member{"Raftq-Stale-Ms", headerRef("Raftq-Stale-Ms")})
	case r.traits.has(mayBeFast):
		h = append(h, member{"Raftq-Batch", headerRef("Raftq-Batch")})
	}
	if r.takesKey() {
		h = append(h, member{"Idempotent-Replay", headerRef("Idempotent-Replay")})
	}
	if r.traits.has(givesMessages) {
		h = append(h, member{"Raftq-Next-Offset", headerRef("Raftq-Next-Offset")})
	}
	if r.traits.has(hasVersions) || r.shape == "Queue" || r.shape == "Topic" || r.shape == "Cursor" {
		h = append(h, member{"ETag", headerRef("ETag")})
	}
	if r.traits.has(givesList) {
		h = append(h, member{"Raftq-Next-Cursor", headerRef("Raftq-Next-Cursor")})
	}
	return h
}

func headerRef(name string) node { return node{{"$ref", "#/components/headers/" + name}} }

func answerHeaders() node {
	field := func(typ, doc string) node {
		return node{{"description", doc}, {"schema", node{{"type", typ}}}}
	}
	return node{
		{"Raftq-Index", field("integer", "The log index that the answer reflects.")},
		{"Raftq-Term", field("integer", "Its term.")},
		{"Raftq-Time", field("integer", "Its log time, in ms.")},
		{"Raftq-Node", field("string", "Who answered.")},
		{"Raftq-Leader", field("string", "Who leads, as far as that node knows; absent when nobody is known.")},
		{"Raftq-Stale-Ms", field("integer", "Of a fast read: it shows all that was committed so long ago.")},
		{"Raftq-Batch", field("string", "Of a fast answer: the batch to ask /v1/log/fate for.")},
		{"Idempotent-Replay", field("string", "true: the answer of an earlier request with the same Idempotency-Key.")},
		{"ETag", field("string", "The version of a configuration or position.")},
		{"Raftq-Next-Cursor", field("string", "As next_cursor, where the answer is not one JSON object.")},
		{"Raftq-Next-Offset", field("integer", "The offset to go on with.")},
		{"Retry-After", field("integer", "Seconds.")},
	}
}

// refusals are the lines of the table of errors that the route can answer with.
func (r *route) refusals() (all []*kind) {
	add := func(k *kind) {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	for _, c := range r.codes {
		add(kindOf(c))
	}
	for _, k := range r.genericKinds() {
		add(k)
	}
	return all
}

// genericKinds are the errors that a route has because of what it is, not of what
// it does.
func (r *route) genericKinds() (all []*kind) {
	of := func(codes ...fsm.Code) {
		for _, c := range codes {
			all = append(all, kindOf(c))
		}
	}
	if r.query != anyOption {
		of(fsm.CodeInvalidRequest, fsm.CodeInvalidOption)
	}
	if len(r.takes) > 0 {
		of(fsm.CodeBodyTooLarge)
	}
	switch {
	case r.traits.has(readsWeak):
	case r.reads():
		of(fsm.CodeNoLeader, fsm.CodeNotFresh, fsm.CodeLeaving)
	default:
		of(fsm.CodeNoLeader, fsm.CodeOverloaded, fsm.CodeLeaving, fsm.CodeCommitTimeout, fsm.CodeFeatureLevel)
	}
	if r.traits.has(addsJobs) {
		of(fsm.CodeMemoryLimit, fsm.CodeDiskLimit)
	}
	if r.takesKey() {
		of(fsm.CodeIdempotencyMismatch)
	}
	all = append(all, kindHeaders, kindTimeout)
	if !r.traits.has(readsWeak) {
		all = append(all, kindInternal)
	}
	return all
}

func codeNames(codes []fsm.Code) string {
	var names []string
	for _, c := range codes {
		names = append(names, fmt.Sprint(c))
	}
	return strings.Join(names, ", ")
}
