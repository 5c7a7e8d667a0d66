package fsm

// savepoint is what a transaction goes back to when something of it fails.
type savepoint struct {
	machine  *Machine // the state before
	ended    int      // length of Applied.Ended
	touched  int
	failures int
}

// save begins something that can be undone. A copy of the machine costs no
// more than the trees' nodes that change until the next one.
func (m *Machine) save() savepoint {
	r := &m.run
	return savepoint{m.Copy(), len(r.applied.Ended), len(r.touched), r.failures}
}

// failed tells whether anything failed since the savepoint.
func (m *Machine) failed(s savepoint) bool { return m.run.failures > s.failures }

// undo makes the machine what it was. What the chain was told of the attempt
// stays in it: it is the same on all nodes. What was swept counts as swept, because
// an entry does not do more for being in vain.
func (m *Machine) undo(s savepoint) {
	r := m.run
	*m = *s.machine
	r.applied.Ended = r.applied.Ended[:s.ended]
	r.touched = r.touched[:s.touched]
	m.run = r
}

// tx applies ops all or none.
func (m *Machine) tx(h BatchHeader, op *Tx) Code {
	r := &m.run
	whole := r.result
	if whole != nil {
		whole.Parts = make([]Result, len(op.Ops))
	}
	sure := m.sure(h, op.Ops)
	before := savepoint{failures: r.failures}
	if !sure {
		before = m.save()
	}
	for i, part := range op.Ops {
		if whole != nil {
			r.result = &whole.Parts[i]
			r.result.Position = m.Position()
		}
		code := m.applyOp(h, part)
		m.noteOp(code)
		if code != CodeOK {
			r.failures++
		}
		if r.result != nil {
			r.result.Code = code
		}
	}
	r.result = whole
	switch {
	case !m.failed(before):
		return CodeOK
	case sure:
		panic("BUG: a transaction failed that could not")
	}
	if seeded == "tx-half-applied" {
		return CodeAborted
	}
	m.undo(before)
	if whole != nil {
		for i := range whole.Parts {
			whole.Parts[i].abort()
		}
	}
	return CodeAborted
}

// abort makes the result of something that was undone say so: what failed by
// itself keeps its code.
func (r *Result) abort() {
	code := CodeAborted
	if r.Code != CodeOK {
		code = r.Code
	}
	*r = Result{Position: r.Position, Code: code, Items: r.Items}
	for i := range r.Items {
		if it := &r.Items[i]; it.Code == CodeOK {
			*it = ItemResult{Code: CodeAborted, ID: ID{Key: it.ID.Key}}
		}
	}
}
