package check

import (
	"fmt"

	"raftq/fsm"
)

// What is done to jobs by id, whoever holds them. The workload names one at a time.

func (o *oracle) byID(kind Kind, keys []fsm.Key, do func(*oJob) (did string, code fsm.Code)) {
	for _, k := range keys {
		var t oTold
		if j := o.jobs[k]; j == nil || j.state == "dead" {
			t.code = fsm.CodeJobGone
			if _, gone := o.gone[k]; j == nil && !gone {
				t.code = fsm.CodeJobNotFound
			}
		} else {
			t.did, t.code = do(j)
		}
		if t.code == fsm.CodeOK && t.did != "already" {
			what := kind.String()
			if t.did != "" { // the job's holder is asked to stop
				what += " of a lease"
			}
			o.did[what]++
		}
		o.tell(jobKey(kind, k), t)
	}
}

func jobKey(kind Kind, k fsm.Key) string { return fmt.Sprintf("%v of job %x.%d", kind, k.Hi, k.Lo) }

func (o *oracle) hold(op *fsm.Hold) error {
	if op.From != 0 || op.ForMs != 0 {
		return fmt.Errorf("the oracle knows no hold like %+v", op)
	}
	o.byID(Hold, op.Keys, func(j *oJob) (string, fsm.Code) {
		if j.state == "held" {
			return "already", fsm.CodeOK
		}
		j.held = false
		o.move(j, "held")
		return "", fsm.CodeOK
	})
	return nil
}

func (o *oracle) requeue(op *fsm.Requeue) (err error) {
	if op.From != 0 || op.Nack {
		return fmt.Errorf("the oracle knows no requeue like %+v", op)
	}
	o.byID(Requeue, op.Keys, func(j *oJob) (string, fsm.Code) {
		switch {
		case j.amo || o.queue(j.queue).in:
			err = fmt.Errorf("the oracle requeues no job that is at most once, or of a paused queue: %+v", op)
		case j.state == "ready":
			return "already", fsm.CodeOK
		}
		j.held = false
		o.toReady(j)
		return "", fsm.CodeOK
	})
	return err
}

func (o *oracle) cancel(op *fsm.Cancel) error {
	o.byID(Cancel, op.Keys, func(j *oJob) (string, fsm.Code) {
		if j.state == "leased" {
			j.cancel = true
			return "cancel", fsm.CodeOK
		}
		o.end(j, fsm.CodeOK)
		return "", fsm.CodeOK
	})
	return nil
}
