package httpapi

import (
	"errors"
	"strconv"

	"raftq/fsm"
)

// errShortResult means a replica that breaks its contract.
var errShortResult = errors.New("the result has not a line for each item")

// settleItem is one line of an ack, nack, release, reject, extend or settle while
// it is read.
type settleItem struct {
	id   fsm.ID
	item fsm.Item
	verb *verb
	bad  bool // no id: answered here, the others go on
}

// verb is what is done with an item.
type verb struct {
	name    string
	options optionSet // of an item, besides receipt and id
	kind    fsm.Verb
	op      func(items []fsm.Item) fsm.Op
	count   func(*stats) *counter
}

var (
	verbAck     = verb{"ack", 0, fsm.VerbAck, func(i []fsm.Item) fsm.Op { return &fsm.Ack{Items: i} }, func(s *stats) *counter { return &s.acked }}
	verbNack    = verb{"nack", setOf(optDelay, optError), fsm.VerbNack, func(i []fsm.Item) fsm.Op { return &fsm.Nack{Items: i} }, func(s *stats) *counter { return &s.nacked }}
	verbRelease = verb{"release", 0, fsm.VerbRelease, func(i []fsm.Item) fsm.Op { return &fsm.Release{Items: i} }, func(s *stats) *counter { return &s.released }}
	verbReject  = verb{"reject", setOf(optError), fsm.VerbReject, func(i []fsm.Item) fsm.Op { return &fsm.Reject{Items: i} }, func(s *stats) *counter { return &s.rejected }}
	verbExtend  = verb{"extend", setOf(optLease), fsm.VerbExtend, func(i []fsm.Item) fsm.Op { return &fsm.Extend{Items: i} }, func(s *stats) *counter { return &s.extended }}

	verbs = []*verb{&verbAck, &verbNack, &verbRelease, &verbReject, &verbExtend}
)

func (c *call) ack() error         { return c.settle(&verbAck) }
func (c *call) nack() error        { return c.settle(&verbNack) }
func (c *call) releaseJobs() error { return c.settle(&verbRelease) }
func (c *call) reject() error      { return c.settle(&verbReject) }
func (c *call) extend() error      { return c.settle(&verbExtend) }
func (c *call) settleMixed() error { return c.settle(nil) }

// settle does v with all items, or with each what it says when v is nil.
func (c *call) settle(v *verb) error {
	if err := c.readItems(v); err != nil {
		return err
	}
	op, n := c.settleOp(v)
	var res fsm.Result
	if n > 0 {
		var err error
		if res, err = c.submit(op, c.timeout(), nil); err != nil {
			return err
		}
		if res.Code != fsm.CodeOK {
			return refuse(res.Code, "none of the items")
		}
		if len(res.Items) != n {
			return asProblem(errShortResult)
		}
	}
	return c.answerItems(res.Items)
}

// settleOp makes an op of the items that name a job, and counts them.
func (c *call) settleOp(v *verb) (op fsm.Op, n int) {
	if v == nil {
		items := make([]fsm.SettleItem, 0, len(c.items))
		for i := range c.items {
			if it := &c.items[i]; !it.bad {
				items = append(items, fsm.SettleItem{Verb: it.verb.kind, Item: it.item})
			}
		}
		return &fsm.Settle{Items: items}, len(items)
	}
	items := make([]fsm.Item, 0, len(c.items))
	for i := range c.items {
		if !c.items[i].bad {
			items = append(items, c.items[i].item)
		}
	}
	return v.op(items), len(items)
}

// answerItems writes a line for each item, in request order.
func (c *call) answerItems(results []fsm.ItemResult) error {
	status, n := c.written(200), 0
	b := append(c.out[:0], `{"results":[`...)
	for i := range c.items {
		if i > 0 {
			b = append(b, ',')
		}
		it := &c.items[i]
		if it.bad {
			status = 207
			b = append(appendItemError(append(b, '{'), fsm.CodeBadJobID, "neither a receipt nor an id of this cluster"), '}')
			continue
		}
		r := &results[n]
		n++
		if r.Code != fsm.CodeOK {
			status = 207
		} else if !c.replay {
			it.verb.count(c.s.stats).Add(1)
		}
		b = appendItem(b, it.id, r, 200)
	}
	c.out = append(c.appendUncommitted(append(b, ']')), "}\n"...)
	return c.answer(status, typeJSON)
}

// appendItem appends an item's line; status is that of its success.
func appendItem(b []byte, id fsm.ID, r *fsm.ItemResult, status int) []byte {
	b = append(b, `{"id":"`...)
	b = id.Append(b)
	b = append(b, `",`...)
	if r.Code != fsm.CodeOK {
		return append(appendItemError(b, r.Code, ""), '}')
	}
	b = append(b, `"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = appendTrue(b, "duplicate", r.Duplicate)
	b = appendTrue(b, "late", r.Late)
	b = appendTrue(b, "already", r.Already)
	b = appendTrue(b, "dead", r.Dead)
	b = appendTrue(b, "cancel", r.Cancel)
	if r.LeaseUntil > 0 {
		b = appendTime(append(b, ','), "lease_until", r.LeaseUntil)
	}
	return append(b, '}')
}

func appendTrue(b []byte, name string, v bool) []byte {
	if !v {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, `":true`...)
}

// appendItemError appends what an item would have answered alone.
func appendItemError(b []byte, code fsm.Code, detail string) []byte {
	k := kindOf(code)
	b = append(b, `"status":`...)
	b = strconv.AppendInt(b, int64(k.status), 10)
	b = append(b, `,"code":"`...)
	b = append(b, k.code...)
	b = append(b, `","detail":`...)
	if detail == "" {
		detail = k.title
	}
	return appendString(b, detail)
}

// readItems reads {"items":[…]}. With v nil each item has an op.
func (c *call) readItems(v *verb) error {
	r := jsonReader{b: c.ctx.Request.Body()}
	err := r.itemList(func(n int) error {
		it := settleItem{item: fsm.Item{DelayMs: -1}, verb: v}
		if v == nil {
			name, err := opOf(r)
			if err != nil {
				return asProblem(err).at("items", n)
			}
			if it.verb = verbOf(name); it.verb == nil {
				return invalid("op", "want ack, nack, release, reject or extend").at("items", n)
			}
		}
		if err := it.read(&r, v == nil); err != nil {
			return asProblem(err).at("items", n)
		}
		c.items = append(c.items, it)
		return nil
	})
	if err != nil {
		return err
	}
	return r.end()
}

// itemList reads {"items":[…]} with at least one element.
func (r *jsonReader) itemList(element func(n int) error) error {
	seen, count := false, 0
	err := r.members(func(name []byte) error {
		if string(name) != "items" || seen {
			return invalid(string(name), "unknown here or given twice; the body is {\"items\":[…]}")
		}
		seen = true
		return r.elements(func(n int) error {
			if count++; n == fsm.BatchItemsMax {
				return invalid("items", "at most %d", fsm.BatchItemsMax)
			}
			return element(n)
		})
	})
	if err == nil && count == 0 {
		err = invalid("items", "name at least one")
	}
	return err
}

// opOf looks ahead for an item's op: what its other members may be depends on it,
// wherever it stands. The reader is a copy.
func opOf(r jsonReader) (name []byte, err error) {
	err = r.members(func(member []byte) error {
		v, err := r.value()
		if err == nil && string(member) == "op" {
			name, err = v.text("op")
		}
		return err
	})
	return name, err
}

func verbOf(name []byte) *verb {
	for _, v := range verbs {
		if v.name == string(name) {
			return v
		}
	}
	return nil
}

// read reads {"receipt"|"id", …}.
func (it *settleItem) read(r *jsonReader, hasOp bool) error {
	var o options
	names, ops := 0, 0
	err := r.members(func(name []byte) error {
		val, err := r.value()
		if err != nil {
			return err
		}
		switch string(name) {
		case "receipt", "id":
			names++
			return it.name(string(name) == "id", val)
		case "op":
			if ops++; hasOp && ops > 1 {
				return invalid("op", "given twice")
			}
			if hasOp {
				return nil
			}
		}
		return o.set(name, val, it.verb.options)
	})
	if err != nil {
		return err
	}
	if names != 1 {
		return invalid("receipt", "an item has either a receipt or an id")
	}
	if o.given.has(optDelay) {
		it.item.DelayMs = o.job.DelayMs
	}
	it.item.LeaseMs, it.item.Error = o.leaseMs, o.errorText
	return nil
}

func (it *settleItem) name(byID bool, val value) error {
	if val.kind != isString {
		return invalid("receipt", "a receipt or an id is a string")
	}
	if byID {
		id, ok := fsm.ParseID(val.b)
		it.id, it.bad = id, !ok
		it.item.Key, it.item.ByID = id.Key, true
		return nil
	}
	rec, ok := fsm.ParseReceipt(val.b)
	it.id, it.bad = rec.ID, !ok
	it.item.Key, it.item.Grant, it.item.Tag = rec.ID.Key, rec.Grant, rec.Tag
	return nil
}
