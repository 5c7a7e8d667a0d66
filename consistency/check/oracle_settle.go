package check

import (
	"cmp"

	"raftq/fsm"
)

func (o *oracle) settle(kind Kind, items []fsm.Item, do func(*oJob, *fsm.Item) oResult) {
	for i := range items {
		it := &items[i]
		var res oResult
		if j := o.jobs[it.Key]; j != nil {
			res = do(j, it)
		} else if code, ok := o.gone[it.Key]; !ok {
			res.code = fsm.CodeJobNotFound
		} else if res.code = code; code == fsm.CodeOK {
			if res.already = kind == Ack; !res.already {
				res.code = fsm.CodeLeaseLost
			}
		}
		res.key = it.Key
		k := oItem{kind, it.Key, it.Grant, it.Tag}
		o.items[k] = append(o.items[k], oDone{o.index, res})
	}
}

func (j *oJob) holds(it *fsm.Item) bool { return j.held && j.grant == it.Grant && j.tag == it.Tag }

var lostLease = oResult{code: fsm.CodeLeaseLost}

func (o *oracle) ack(j *oJob, it *fsm.Item) oResult {
	if !j.holds(it) {
		return lostLease
	}
	late := j.state != "leased"
	o.end(j, fsm.CodeOK)
	return oResult{late: late}
}

func (o *oracle) end(j *oJob, why fsm.Code) {
	o.drop(j)
	o.gone[j.key] = why
}

// drop removes a job of which nothing is known then.
func (o *oracle) drop(j *oJob) {
	o.freeUnique(j)
	o.move(j, "")
	delete(o.jobs, j.key)
}

// freeUnique: the key of a job that is done, or dead, is free.
func (o *oracle) freeUnique(j *oJob) {
	if k := [2]string{j.queue, j.unique}; o.unique[k] == j {
		delete(o.unique, k)
	}
}

// failed counts a failure and tells whether it was the last one.
func (o *oracle) failed(j *oJob) bool {
	j.failures++
	limit := cmp.Or(j.maxFailures, o.queue(j.queue).maxFailures, fsm.MaxFailuresDefault)
	return limit > 0 && int32(j.failures) >= limit
}

func (o *oracle) nack(j *oJob, it *fsm.Item) oResult {
	if j.state != "leased" || !j.holds(it) {
		return lostLease
	}
	j.held = false
	switch dead := o.failed(j); {
	case j.amo:
		o.bury(j, "at_most_once")
		return oResult{dead: true}
	case dead:
		o.bury(j, "max_failures")
		return oResult{dead: true}
	case it.DelayMs > 0:
		o.move(j, "delayed")
		o.due(j, o.now+it.DelayMs, 1)
	default:
		o.toReady(j)
	}
	return oResult{}
}

func (o *oracle) reject(j *oJob, it *fsm.Item) oResult {
	if j.state != "leased" || !j.holds(it) {
		return lostLease
	}
	j.held = false
	if j.amo {
		o.bury(j, "at_most_once")
	} else {
		o.bury(j, "rejected")
	}
	return oResult{dead: true}
}

func (o *oracle) release(j *oJob, it *fsm.Item) oResult {
	if j.state != "leased" || !j.holds(it) {
		return lostLease
	}
	if j.amo {
		return oResult{code: fsm.CodeAtMostOnce}
	}
	j.held = false
	o.toReady(j)
	return oResult{}
}

func (o *oracle) extend(j *oJob, it *fsm.Item) oResult {
	if j.state != "leased" || !j.holds(it) {
		return lostLease
	}
	if j.expires != 0 && o.now >= j.born+(j.expires-j.born)/2 {
		return oResult{code: fsm.CodeTooLate}
	}
	if it.LeaseMs > 0 {
		j.heldMs = it.LeaseMs
	}
	j.life++
	o.due(j, o.now+j.heldMs, 2)
	return oResult{cancel: j.cancel}
}

// giveBack undoes hand-outs that reached nobody.
func (o *oracle) giveBack(items []fsm.Item) {
	for i := range items {
		it := &items[i]
		j := o.jobs[it.Key]
		if j == nil || !j.holds(it) || j.state != "leased" && j.state != "held" {
			continue
		}
		if o.keptByAnother(j) || j.state == "held" && j.others {
			continue
		}
		for _, d := range o.holders(j) {
			for k := range d.jobs {
				if g := &d.jobs[k]; g.key == it.Key && g.grant == it.Grant {
					g.back, g.backAt = true, o.index
				}
			}
		}
		j.held = false
		j.deliveries--
		o.toReady(j)
	}
}
