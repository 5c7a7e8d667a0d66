package fsm

// A transaction that cannot fail needs no copy of the machine to go back to, which
// is what makes one dear. It cannot when each of its items names a live lease of its
// own that the verb is allowed for, and nothing refuses its new jobs: what comes
// earlier in it changes none of that. Most transactions are so; of the others, and
// of long ones, save and undo take care.

// sureItemsMax is how many items are looked at: each is compared with all others.
const sureItemsMax = 16

// sureOf gathers what is looked at.
type sureOf struct {
	m     *Machine
	keys  [sureItemsMax]Key
	n     int
	first Key // the lowest key that the next enqueue may use
}

// sure tells whether none of ops can fail.
func (m *Machine) sure(h BatchHeader, ops []Op) bool {
	s := sureOf{m: m}
	for _, op := range ops {
		ok := false
		switch op := op.(type) {
		case *Enqueue:
			ok = s.enqueue(h, op)
		case *Ack:
			ok = s.items(VerbAck, op.Items)
		case *Nack:
			ok = s.items(VerbNack, op.Items)
		case *Release:
			ok = s.items(VerbRelease, op.Items)
		case *Reject:
			ok = s.items(VerbReject, op.Items)
		case *Extend:
			ok = s.items(VerbExtend, op.Items)
		case *Settle:
			ok = true
			for i := range op.Items {
				ok = ok && s.item(op.Items[i].Verb, &op.Items[i].Item)
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

func (s *sureOf) items(v Verb, items []Item) bool {
	for i := range items {
		if !s.item(v, &items[i]) {
			return false
		}
	}
	return true
}

func (s *sureOf) item(v Verb, item *Item) bool {
	it, q := s.m.find(item.Key)
	if q == nil || it.state != stateLeased || !item.ByID && !it.holds(item) || s.n == sureItemsMax {
		return false
	}
	for _, k := range s.keys[:s.n] {
		if k == item.Key {
			return false
		}
	}
	s.keys[s.n] = item.Key
	s.n++
	switch v {
	case VerbRelease:
		return it.flags&flagAtMostOnce == 0
	case VerbExtend:
		return !s.m.pastHalf(it.job)
	}
	return true
}

func (s *sureOf) enqueue(h BatchHeader, op *Enqueue) bool {
	for i := range op.Jobs {
		k := Key{h.Epoch, op.First + uint64(i)}
		if k.Less(s.first) || s.m.keyUsed(k) {
			return false
		}
	}
	s.first = Key{h.Epoch, op.First + uint64(len(op.Jobs))}
	return s.m.admitsAll(op)
}
