package httpapi

import (
	"errors"
	"strconv"

	"raftq/fsm"
)

// errShortResult means a replica that breaks its contract.
var errShortResult = errors.New("the result has not a line for each item")

// settleItem is one line of an ack, nack, release or extend while it is read.
type settleItem struct {
	id   fsm.ID
	item fsm.Item
	bad  bool // no id: answered here, the others go on
}

// verb is what is done with the items.
type verb struct {
	options optionSet // of an item, besides receipt and id
	op      func(items []fsm.Item) fsm.Op
	count   func(*stats) *counter
}

var (
	verbAck     = verb{0, func(i []fsm.Item) fsm.Op { return &fsm.Ack{Items: i} }, func(s *stats) *counter { return &s.acked }}
	verbNack    = verb{setOf(optDelay, optError), func(i []fsm.Item) fsm.Op { return &fsm.Nack{Items: i} }, func(s *stats) *counter { return &s.nacked }}
	verbRelease = verb{0, func(i []fsm.Item) fsm.Op { return &fsm.Release{Items: i} }, func(s *stats) *counter { return &s.released }}
	verbExtend  = verb{setOf(optLease), func(i []fsm.Item) fsm.Op { return &fsm.Extend{Items: i} }, func(s *stats) *counter { return &s.extended }}
)

func (c *call) ack() error         { return c.settle(&verbAck) }
func (c *call) nack() error        { return c.settle(&verbNack) }
func (c *call) releaseJobs() error { return c.settle(&verbRelease) }
func (c *call) extend() error      { return c.settle(&verbExtend) }

func (c *call) settle(v *verb) error {
	if err := c.readItems(v); err != nil {
		return err
	}
	items := make([]fsm.Item, 0, len(c.items))
	for i := range c.items {
		if !c.items[i].bad {
			items = append(items, c.items[i].item)
		}
	}
	var res fsm.Result
	if len(items) > 0 {
		var err error
		if res, err = c.submit(v.op(items), c.timeout(), nil); err != nil {
			return err
		}
		if res.Code != fsm.CodeOK {
			return refuse(res.Code, "none of the items")
		}
		if len(res.Items) != len(items) {
			return asProblem(errShortResult)
		}
	}
	return c.answerItems(v, res.Items)
}

// answerItems writes a line for each item, in request order.
func (c *call) answerItems(v *verb, results []fsm.ItemResult) error {
	status, done, n := c.written(200), uint64(0), 0
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
		b = append(b, `{"id":"`...)
		b = it.id.Append(b)
		b = append(b, `",`...)
		if r.Code != fsm.CodeOK {
			status = 207
			b = append(appendItemError(b, r.Code, ""), '}')
			continue
		}
		done++
		b = append(b, `"status":200`...)
		b = appendTrue(b, "late", r.Late)
		b = appendTrue(b, "already", r.Already)
		b = appendTrue(b, "dead", r.Dead)
		if r.LeaseUntil > 0 {
			b = appendTime(append(b, ','), "lease_until", r.LeaseUntil)
		}
		b = append(b, '}')
	}
	v.count(c.s.stats).Add(done)
	c.out = append(c.appendUncommitted(append(b, ']')), "}\n"...)
	return c.answer(status, typeJSON)
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

// readItems reads {"items":[…]}.
func (c *call) readItems(v *verb) error {
	r := jsonReader{b: c.ctx.Request.Body()}
	seen := false
	err := r.members(func(name []byte) error {
		if string(name) != "items" || seen {
			return invalid(string(name), "unknown here or given twice; the body is {\"items\":[…]}")
		}
		seen = true
		return r.elements(func(n int) error {
			if n == fsm.BatchItemsMax {
				return invalid("items", "at most %d", fsm.BatchItemsMax)
			}
			it := settleItem{item: fsm.Item{DelayMs: -1}}
			if err := it.read(&r, v); err != nil {
				return asProblem(err).at("items", n)
			}
			c.items = append(c.items, it)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if len(c.items) == 0 {
		return invalid("items", "name at least one")
	}
	return r.end()
}

// read reads {"receipt"|"id", …}.
func (it *settleItem) read(r *jsonReader, v *verb) error {
	var o options
	names := 0
	err := r.members(func(name []byte) error {
		val, err := r.value()
		if err != nil {
			return err
		}
		switch string(name) {
		case "receipt", "id":
			names++
			return it.name(string(name) == "id", val)
		}
		return o.set(name, val, v.options)
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
