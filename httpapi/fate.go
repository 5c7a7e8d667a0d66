package httpapi

import (
	"strconv"
	"strings"

	"raftq/fsm"
)

// A batch in the Raftq-Batch field: node in hex, epoch, number.
func appendBatch(b []byte, r fsm.BatchRef) []byte {
	b = strconv.AppendUint(b, r.Node, 16)
	b = append(b, '.')
	b = strconv.AppendUint(b, r.Epoch, 10)
	b = append(b, '.')
	return strconv.AppendUint(b, r.Number, 10)
}

func parseBatch(s string) (r fsm.BatchRef, ok bool) {
	part := strings.Split(s, ".")
	if len(part) != 3 {
		return r, false
	}
	var err [3]error
	r.Node, err[0] = strconv.ParseUint(part[0], 16, 64)
	r.Epoch, err[1] = strconv.ParseUint(part[1], 10, 64)
	r.Number, err[2] = strconv.ParseUint(part[2], 10, 64)
	return r, err == [3]error{} && r.Number > 0
}

// fate says what became of the batch of a fast answer. The machine remembers the
// last number of each epoch that had effect, and numbers take effect in order:
// up to it a batch is committed; above it, it is lost once the node has begun
// another epoch, and until then the node still proposes it.
func (c *call) fate() error {
	if !c.opts.given.has(optBatch) {
		return invalid("batch", "name the batch: the Raftq-Batch field of a fast answer")
	}
	ref := c.opts.batch
	var last uint64
	var known, current bool
	if err := c.read(func(m *fsm.Machine) {
		last, known = m.Fate(ref.Node, ref.Epoch)
		s, ok := m.Session(ref.Node)
		current = ok && s.Epoch == ref.Epoch
	}); err != nil {
		return err
	}
	fate := "lost"
	switch {
	case !known:
		return refuse(fsm.CodeInvalidRequest, "no such batch is known: the last %d starts of a node are kept", fsm.EpochsKept)
	case seeded == "fate-lost-while-pending" && ref.Number > last:
	case ref.Number <= last:
		fate = "committed"
	case current:
		fate = "pending"
	}
	b := append(c.out[:0], `{"batch":"`...)
	b = appendBatch(b, ref)
	b = append(b, `","fate":"`...)
	b = append(b, fate...)
	c.out = append(b, `"}`+"\n"...)
	return c.answer(200, typeJSON)
}
