package httpapi

import (
	"crypto/sha256"
	"strconv"

	"raftq/fsm"
)

// An Idempotency-Key makes a write take effect once, however often it comes. The
// machine keeps what the first answered, under the route, its path's parameters and
// the key, and answers the others with that.

// readKey checks the request's Idempotency-Key. An empty one is no key, and of two
// only one could count: the client would think itself safe.
func (c *call) readKey() error {
	keys := c.ctx.Request.Header.PeekAll("Idempotency-Key")
	if len(keys) == 0 {
		return nil
	}
	key := keys[0]
	switch {
	case !c.route.takesKey():
		return invalid("Idempotency-Key", "a dequeue is repeated with attempt_id instead")
	case len(keys) > 1:
		return invalid("Idempotency-Key", "given twice")
	case len(key) == 0:
		return invalid("Idempotency-Key", "must not be empty")
	case len(key) > fsm.KeyMax:
		return invalid("Idempotency-Key", "at most %d bytes, this one has %d", fsm.KeyMax, len(key))
	}
	c.key = key
	return nil
}

// keyed puts op under the request's key. The digest is of the op and of how many
// copies it waits for, which is all that the content of the request comes to: a retry
// may be spelled differently, and have another timeout. One that is content with fewer
// copies is another request: the first may have been withdrawn for want of them, and
// its result says nothing of that. The replica numbers new jobs later.
func (c *call) keyed(op fsm.Op, copies int) *fsm.Keyed {
	scope := make([]byte, 0, len(c.route.method)+len(c.route.pattern)+len(c.params[0])+len(c.params[1])+len(c.key)+5)
	scope = append(append(scope, c.route.method...), ' ')
	scope = append(append(scope, c.route.pattern...), 0)
	scope = append(append(scope, c.params[0]...), 0)
	if c.params[1] != nil {
		scope = append(append(scope, c.params[1]...), 0)
	}
	k := &fsm.Keyed{Key: string(append(scope, c.key...)), Op: op}
	if c.sweep > 0 {
		k.Key += "\x00" + strconv.Itoa(c.sweep)
	}
	content := fsm.AppendOp(nil, op)
	if copies > 1 {
		content = strconv.AppendInt(content, int64(copies), 10)
	}
	sum := sha256.Sum256(content)
	copy(k.Digest[:], sum[:])
	return k
}
