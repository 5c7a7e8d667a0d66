package respapi

import (
	"math"
	"strconv"
	"sync"

	"raftq/fsm"
)

// cursors are the places of scans that go on, on this node. Disque's cursors are
// numbers, so a place is kept under one; the oldest is forgotten for the newest.
type cursors struct {
	mu    sync.Mutex
	last  uint64
	slots [cursorsMax]scanPlace
}

// scanPlace is where a scan goes on.
type scanPlace struct {
	number uint64        // its cursor; 0 = unused
	queue  string        // QSCAN: the last name
	key    fsm.Key       // JSCAN: the last job
	place  fsm.JobCursor // JSCAN QUEUE: the last job
}

func (c *cursors) put(p scanPlace) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	p.number = c.last
	c.slots[c.last%cursorsMax] = p
	return c.last
}

func (c *cursors) get(number uint64) (p scanPlace, ok bool) {
	if number == 0 {
		return p, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.slots[number%cursorsMax]
	return p, p.number == number
}

// scanOptions are what QSCAN and JSCAN have in common.
type scanOptions struct {
	place    scanPlace
	some     bool // a cursor was given
	count    int
	busyloop bool
}

// cursor reads an argument that is no option.
func (o *scanOptions) cursor(c *session, arg []byte) error {
	if o.some {
		return errSyntax
	}
	n, err := strconv.ParseUint(string(arg), 10, 64)
	if err != nil {
		return refuse("ERR", "invalid cursor")
	}
	o.some = true
	var ok bool
	if o.place, ok = c.s.cursors.get(n); !ok {
		return refuse("ERR", "invalid cursor: it is not of this node, or too many other scans began since; begin again with 0")
	}
	return nil
}

// parse reads what both have; taken is 0 when it is none of it.
func (o *scanOptions) parse(args [][]byte) (taken int, err error) {
	switch {
	case is(args[0], "count") && len(args) > 1:
		n, ok := integer(args[1])
		if !ok {
			return 0, errNotInt
		}
		o.count = int(min(max(n, 1), pageMax))
		return 2, nil
	case is(args[0], "busyloop"):
		o.busyloop = true
		return 1, nil
	}
	return 0, nil
}

// qscan is QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n]
// [IMPORTRATE n].
func qscan(c *session, args [][]byte) {
	o := scanOptions{count: scanDefault}
	filter := fsm.QueueFilter{MinLen: -1, MaxLen: -1}
	importRate := int64(-1)
	for i := 1; i < len(args); {
		n, err := o.parse(args[i:])
		last := i+1 == len(args)
		var into *int64
		switch {
		case n > 0 || err != nil:
		case is(args[i], "minlen") && !last:
			into = &filter.MinLen
		case is(args[i], "maxlen") && !last:
			into = &filter.MaxLen
		case is(args[i], "importrate") && !last:
			into = &importRate
		default:
			n, err = 1, o.cursor(c, args[i])
		}
		if into != nil {
			var ok bool
			if *into, ok = integer(args[i+1]); !ok {
				err = errNotInt
			}
			n = 2
		}
		if err != nil {
			c.fail(err)
			return
		}
		i += n
	}
	if filter.MaxLen < -1 {
		filter.MinLen = math.MaxInt64 // none is so short
	}
	var names []string
	at, bytes := o.place.queue, 0
	for more := true; more && bytes < replyBytes && (o.busyloop || len(names) < o.count); {
		limit := pageMax
		if !o.busyloop {
			limit = o.count - len(names)
		}
		var page []fsm.QueueInfo
		var next string
		if _, err := c.read(func(m *fsm.Machine) { page, next = m.Queues(filter, at, limit) }); err != nil {
			c.fail(err)
			return
		}
		for i := range page {
			if importRate >= 0 {
				if _, rate := c.s.imports.of(page[i].Queue); rate < importRate {
					continue
				}
			}
			names = append(names, page[i].Queue)
			bytes += len(page[i].Queue) + 16
		}
		at, more = next, next != ""
		if !o.busyloop && importRate >= 0 {
			break // a page a call, however few are left of it
		}
	}
	c.cursor(at != "", scanPlace{queue: at})
	c.array(len(names))
	for _, n := range names {
		c.bulk(n)
	}
}

// cursor appends the head of a scan's answer.
func (c *session) cursor(more bool, p scanPlace) {
	n := uint64(0)
	if more {
		n = c.s.cursors.put(p)
	}
	c.array(2)
	c.bulkInt(int64(n))
}

// jscan is JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state]...
// [REPLY all|id].
func jscan(c *session, args [][]byte) {
	o := scanOptions{count: scanDefault}
	var states fsm.StateSet
	queue, some, all := "", false, false
	for i := 1; i < len(args); {
		n, err := o.parse(args[i:])
		last := i+1 == len(args)
		switch {
		case n > 0 || err != nil:
		case is(args[i], "queue") && !last:
			queue, err = queueName(args[i+1])
			n = 2
		case is(args[i], "state") && !last:
			set, ok := parseState(args[i+1])
			if !ok {
				err = refuse("ERR", "there is no job state of that name")
			}
			states |= set
			some, n = true, 2
		case is(args[i], "reply") && !last:
			switch all = is(args[i+1], "all"); {
			case all, is(args[i+1], "id"):
			default:
				err = refuse("ERR", "REPLY takes id or all")
			}
			n = 2
		default:
			n, err = 1, o.cursor(c, args[i])
		}
		if err != nil {
			c.fail(err)
			return
		}
		i += n
	}
	if !some {
		states = fsm.StateAll
	}
	var ids []fsm.ID
	var found []fsm.JobInfo // all of them
	p, bytes, n := o.place, 0, 0
	var seen fsm.Seen
	more := states != 0
	for more && bytes < replyBytes && (o.busyloop || n < o.count) {
		limit := pageMax
		if !o.busyloop {
			limit = o.count - n
		}
		var page []fsm.JobInfo
		next := p
		var err error
		seen, err = c.read(func(m *fsm.Machine) {
			if queue != "" {
				page, next.place, more, _ = m.QueueJobs(queue, states, false, p.place, limit)
			} else {
				page, next.key, more = m.AllJobs(states, p.key, limit)
			}
		})
		if err != nil {
			c.fail(err)
			return
		}
		p = next
		n += len(page)
		if all {
			found = append(found, page...)
		}
		for i := range page {
			if all {
				bytes += len(page[i].Body) + jobBytes
			} else {
				ids = append(ids, page[i].ID)
				bytes += fsm.IDLen + 8
			}
		}
	}
	c.cursor(more, p)
	c.array(n)
	for i := range found {
		c.job(&found[i], seen.NowMs)
	}
	for _, id := range ids {
		c.out = append(id.Append(append(c.out, '+')), '\r', '\n')
	}
}
