package respapi

import (
	"strconv"

	"github.com/tidwall/redcon"

	"raftq/fsm"
)

// Replies are appended to session.out. Status lines and errors lose their line
// breaks on the way (redcon).

func (c *session) status(s string)    { c.out = redcon.AppendString(c.out, s) }
func (c *session) ok()                { c.out = redcon.AppendOK(c.out) }
func (c *session) integer(n int64)    { c.out = redcon.AppendInt(c.out, n) }
func (c *session) array(n int)        { c.out = redcon.AppendArray(c.out, n) }
func (c *session) bulk(s string)      { c.out = redcon.AppendBulkString(c.out, s) }
func (c *session) bulkBytes(b []byte) { c.out = redcon.AppendBulk(c.out, b) }
func (c *session) nilBulk()           { c.out = append(c.out, "$-1\r\n"...) }
func (c *session) nilArray()          { c.out = append(c.out, "*-1\r\n"...) }

// bulkInt is a number as text, as cursors are.
func (c *session) bulkInt(n int64) {
	var b [20]byte
	c.bulkBytes(strconv.AppendInt(b[:0], n, 10))
}

func (c *session) id(id fsm.ID) {
	c.out = append(c.out, "$40\r\n"...)
	c.out = id.Append(c.out)
	c.out = append(c.out, '\r', '\n')
}

// failDetail is fail for people: with what the replica says of the case.
func (c *session) failDetail(err error) {
	r := asRefusal(err)
	if e, ok := err.(*fsm.Error); ok && e.Detail != "" {
		r = &refusal{r.word, e.Detail}
	}
	c.fail(r)
}

func (c *session) fail(err error) {
	r := asRefusal(err)
	c.out = redcon.AppendError(c.out, r.word+" "+r.text)
	c.s.stats.fail(r.word)
}
