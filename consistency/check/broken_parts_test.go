package check

import (
	"slices"
	"testing"

	"raftq/fsm"
)

// TestBrokenParts breaks one thing each of topics, transactions, groups, pauses and
// dead letters, and wants the rule that is meant for it to see it.
func TestBrokenParts(t *testing.T) {
	for _, tc := range []struct {
		name, check string
		damage      func(p *parts)
	}{
		// Topics, by the log.
		{"an answered append is not in the log", "witness: lost", func(p *parts) { p.more.Topics[0].Bodies[0] = "elsewhere" }},
		{"an append at another offset than the log's", "witness: result", func(p *parts) { p.more.Topics[0].Offset++ }},
		{"an append in another entry", "witness: index", func(p *parts) { p.more.Index-- }},
		{"an append in two entries", "witness: twice", func(p *parts) {
			p.next(&fsm.Append{Topic: "t", Messages: []fsm.NewMessage{{Body: []byte("m2")}}})
		}},
		{"half an append", "witness: altered", func(p *parts) { p.more.Topics[0].Bodies = []string{"m2", "m3"} }},
		{"an append of nobody", "witness: invented", func(p *parts) {
			p.next(&fsm.Append{Topic: "t", Messages: []fsm.NewMessage{{Body: []byte("ghost")}}})
		}},
		{"a refused append took effect", "witness: failed took effect", func(p *parts) { p.more.Outcome = Failed }},
		{"a lost fast append of a node that lives", "witness: lost", func(p *parts) {
			o := p.append("t", "fast")
			o.Fast = true
			p.log = p.log[:len(p.log)-1]
		}},
		{"an append before one that had ended", "witness: order", func(p *parts) { p.appended.Call, p.appended.Ret = p.more.Ret+1, p.more.Ret+2 }},
		{"a page of other bytes, by the log", "witness: result", func(p *parts) { p.fast.Topics[0].Bodies[1] = "m2" }},
		{"a page without its end, by the log", "witness: result", func(p *parts) { p.page.Topics[0].Next-- }},
		{"an old page", "witness: result", func(p *parts) { p.page.Index = p.appended.Index }},
		{"trimmed, and shown", "witness: result", func(p *parts) { p.trimmed.Topics[0].Trimmed = false }},
		{"there is no such topic", "witness: result", func(p *parts) { p.page.Missing = true }},
		{"a cursor elsewhere than in the log", "witness: result", func(p *parts) { p.position.Topics[0].Offset = 1 }},
		{"another version than the log's", "witness: result", func(p *parts) { p.moved.Topics[0].Version++ }},
		{"a commit that the log refuses", "witness: lost", func(p *parts) { p.refused.Code = "" }},
		{"a commit of nobody", "witness: invented", func(p *parts) { p.next(&fsm.SetCursor{Topic: "t", Cursor: "ghost"}) }},
		{"a commit twice", "witness: twice", func(p *parts) {
			p.next(&fsm.SetCursor{Topic: "t", Cursor: "c", Offset: 1, Create: true})
		}},

		// Topics, by what clients see.
		{"other bytes at an offset", "topic: bytes", func(p *parts) { p.fast.Topics[0].Bodies[1] = "m2" }},
		{"one message at two offsets", "topic: doubled", func(p *parts) { p.more.Topics[0].Offset++ }},
		{"a page with a gap", "topic: gap", func(p *parts) { p.page.Topics[0].At[1]++ }},
		{"a message that nobody sent", "topic: invented", func(p *parts) { p.page.Topics[0].Bodies[1] = "ghost" }},
		{"a message of a refused append", "topic: failed took effect", func(p *parts) { p.more.Outcome = Failed }},
		{"a message of an aborted transaction", "topic: failed took effect", func(p *parts) { p.tail.Topics[0].Bodies[0] = "untold" }},
		{"an append behind one that is sent later", "topic: order", func(p *parts) { p.appended.Call, p.appended.Ret = p.more.Ret+1, p.more.Ret+2 }},
		{"an append with something in between", "topic: whole", func(p *parts) {
			p.appended.Topics[0].Bodies[0], p.appended.Topics[0].Bodies[1] = "m0", "m2"
			p.more.Topics[0].Bodies[0] = "m1"
			p.appended.Outcome = Unknown
		}},
		{"a strong read behind an answer", "topic: back", func(p *parts) { p.page.Topics[0].Next-- }},
		{"a node that goes back", "topic: back", func(p *parts) {
			later := p.read("t", 0, 1)
			later.Fast = true
			later.Topics[0].Next -= 2
		}},
		{"nothing came, though it was there", "topic: false empty", func(p *parts) {
			o := p.read("t", 0, 1)
			o.Topics[0] = TopicPart{Topic: "t", Limit: 1, Empty: true}
		}},
		{"a page that leaves something out", "topic: short", func(p *parts) {
			p.page.Topics[0].Bodies, p.page.Topics[0].At = p.page.Topics[0].Bodies[:1], p.page.Topics[0].At[:1]
		}},
		{"trimmed too early", "topic: retention", func(p *parts) { p.old.Topics[0].First++ }},
		{"trimmed without a rule", "topic: retention", func(p *parts) { p.page.Topics[0].First++ }},
		{"two moves from one version", "cursor: If-Match", func(p *parts) {
			p.refused.Code = ""
			p.refused.Topics[0].Version = p.moved.Topics[0].Version + 1
		}},
		{"a move from an old version", "cursor: If-Match", func(p *parts) {
			p.created.Topics[0].Version--
			p.position.Topics[0].Version++
			o := p.commit("t", "c", 3, p.moved.Topics[0].Version, false)
			o.Topics[0].Version += 5
		}},
		{"a cursor that goes back", "cursor: back", func(p *parts) { p.position.Topics[0].Version = p.created.Topics[0].Version }},
		{"one version, two positions", "cursor: one version", func(p *parts) { p.position.Topics[0].Offset = 1 }},

		// Transactions.
		{"an answered transaction is not in the log", "witness: lost", func(p *parts) { p.tx.Jobs[0].Body = "elsewhere" }},
		{"a transaction in another entry", "witness: index", func(p *parts) { p.tx.Index-- }},
		{"a transaction of nobody", "witness: invented", func(p *parts) {
			p.next(&fsm.Tx{Ops: []fsm.Op{&fsm.Enqueue{First: 70, Jobs: []fsm.NewJob{{Queue: "w", Body: []byte("ghost")}}}}})
		}},
		{"a transaction twice", "witness: twice", func(p *parts) {
			p.next(&fsm.Tx{Ops: []fsm.Op{&fsm.Enqueue{First: 70, Jobs: []fsm.NewJob{{Queue: "w", Body: []byte("next")}}}}})
		}},
		{"a refused transaction took effect", "witness: failed took effect", func(p *parts) { p.tx.Outcome = Failed }},
		{"aborted, says the log", "witness: result", func(p *parts) { p.aborted.Aborted = false }},
		{"done, says the log", "witness: result", func(p *parts) { p.tx.Aborted = true }},
		{"another reason for the abort", "witness: result", func(p *parts) { p.aborted.Items[0].Code = "job_gone" }},
		{"another id than the transaction gave", "witness: result", func(p *parts) { p.tx.Made[0].ID = p.tx.Made[1].ID }},
		{"another offset than the transaction gave", "witness: result", func(p *parts) { p.tx.Topics[0].Offset++ }},
		{"a transaction with a line too few", "witness: whole", func(p *parts) { p.tx.Jobs, p.tx.Made = p.tx.Jobs[:1], p.tx.Made[:1] }},
		{"another message than was sent", "witness: altered", func(p *parts) { p.tx.Topics[0].Bodies[0] = "other" }},
		{"half a transaction", "accounting: half a transaction", func(p *parts) {
			p.tx.Outcome, p.tx.Ret = Unknown, Never
			for _, o := range p.h.Ops {
				if o.Queue == "v" {
					o.Got = nil
				}
			}
		}},
		{"a message alone of a transaction", "accounting: half a transaction", func(p *parts) {
			p.tx.Outcome, p.tx.Ret = Unknown, Never
			p.step.Got = nil
			for _, o := range p.h.Ops {
				if o.Queue == "v" {
					o.Got = nil
				}
			}
		}},
		{"an ack alone of a transaction", "accounting: lost", func(p *parts) {
			p.tx.Outcome, p.tx.Ret = Unknown, Never
			p.step.Got, p.tail.Topics[0].Bodies = nil, nil
			for _, o := range p.h.Ops {
				if o.Queue == "v" {
					o.Got = nil
				}
			}
		}},
		{"jobs of an aborted transaction", "accounting: failed took effect", func(p *parts) { p.tx.Aborted = true }},

		// Groups.
		{"two of a group at once, by the log", "witness: result", func(p *parts) { p.first.Got = append(p.first.Got, p.second.Got...) }},
		{"another group", "witness: result", func(p *parts) { p.first.Got[0].Group = "h" }},
		{"another group, by what was sent", "accounting: altered", func(p *parts) { p.first.Got[0].Group = "h" }},
		{"another group in the log", "witness: altered", func(p *parts) { p.one.Jobs[0].Group = "h" }},
		{"two of a group in one answer", "black box: group", func(p *parts) { p.first.Got = append(p.first.Got, p.second.Got...) }},
		{"two of a group at once", "black box: group", func(p *parts) { p.h.Ops = without(p.h.Ops, p.ack) }},
		{"out of turn", "black box: group order", func(p *parts) {
			third := p.h.Ops[slices.Index(p.h.Ops, p.second)+2]
			p.first.Got, third.Got = third.Got, p.first.Got
		}},

		// Pauses.
		{"handed out while paused", "black box: pause", func(p *parts) { p.nothing.Got = p.got.Got }},
		{"handed out while paused, by the log", "witness: lost", func(p *parts) { p.got.Mark, p.nothing.Mark = p.nothing.Mark, p.got.Mark }},
		{"taken while paused", "black box: pause", func(p *parts) { p.turned.Made[0].Code = "" }},
		{"taken while paused, by the log", "witness: result", func(p *parts) { p.turned.Made[0].Code = "" }},
		{"nothing there, though the pause is over", "witness: false empty", func(p *parts) {
			p.enqueue("p", "there")
			o := p.op(Dequeue, "p")
			o.Mark = "late"
			p.end(o, uint64(len(p.log))+1)
		}},
		{"a pause that is not in the log", "witness: lost", func(p *parts) { p.out.Paused.UntilMs++ }},
		{"a pause of nobody", "witness: invented", func(p *parts) { p.next(&fsm.Pause{Queue: "p", Out: true, UntilMs: nowhere + 7}) }},
		{"a pause twice", "witness: twice", func(p *parts) { p.next(&fsm.Pause{Queue: "p", Out: true, UntilMs: nowhere}) }},
		{"a refused pause took effect", "witness: failed took effect", func(p *parts) { p.out.Outcome = Failed }},

		// Dead letters.
		{"in the dead letter queue too early", "black box: dead letter", func(p *parts) { p.grave.Got[0].Deliveries, p.fail.Items[0].Receipt = 1, "" }},
		{"not in the dead letter queue when it must be", "black box: max failures", func(p *parts) { p.again.Got[0].Failures = 1 }},
		{"back without a redrive", "black box: redrive", func(p *parts) { p.h.Ops = without(p.h.Ops, p.redrive) }},
		{"a redrive that moved another number", "witness: result", func(p *parts) { p.redrive.Moved++ }},
		{"a redrive of nobody", "witness: invented", func(p *parts) { p.next(&fsm.Redrive{Queue: "graves", Max: 77}) }},
		{"another reason", "witness: result", func(p *parts) { p.seen.Facts.Reason = "rejected" }},
		{"another body in the dead letter queue", "accounting: invented", func(p *parts) { p.grave.Got[0].Body = "decay" }},
		{"lost on the way to the dead letter queue", "accounting: lost", func(p *parts) { p.grave.Got, p.again.Got = nil, nil }},
		{"in the dead letter queue of another queue", "accounting: altered", func(p *parts) { p.grave.Got[0].Queue = "tombs" }},

		{"another order of the ready jobs", "witness: result", func(p *parts) { p.peek.IDs[0], p.peek.IDs[1] = p.peek.IDs[1], p.peek.IDs[0] }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newParts(t)
			tc.damage(p)
			wants(t, p.all(), tc.check)
		})
	}
}

// What the rules must let pass.
func TestHarmlessParts(t *testing.T) {
	for name, change := range map[string]func(p *parts){
		"a transaction without an answer that was done": func(p *parts) { p.tx.Outcome, p.tx.Ret = Unknown, Never },
		"an append without an answer":                   func(p *parts) { p.more.Outcome, p.more.Ret = Unknown, Never },
		"a node that goes back after a restart": func(p *parts) {
			from := p.clock
			later := p.read("t", 0, 1)
			p.h.Events = append(p.h.Events, Event{From: from, To: from + 1, Ended: true})
			later.Fast, later.Topics[0].Next, later.Index = true, 3, p.more.Index
			later.Topics[0].Bodies, later.Topics[0].At = []string{"m0"}, []uint64{0}
		},
		"a fast hand-out that did not survive": func(p *parts) {
			o := p.op(Dequeue, "g")
			o.Fast, o.Mark, o.Call, o.Ret, o.Lease = true, "fast", p.first.Ret+1, p.first.Ret+2, second
			o.Got = slices.Clone(p.second.Got)
			o.Got[0].Receipt = p.step.Got[0].Receipt[:40] + ".9.0000000000000009"
		},
		"a pause that nobody knows of": func(p *parts) {
			p.out.Outcome, p.out.Ret = Unknown, Never
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParts(t)
			change(p)
			for _, problem := range p.all() {
				t.Error(problem)
			}
		})
	}
}
