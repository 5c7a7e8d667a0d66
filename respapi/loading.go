package respapi

import (
	"net"
	"time"
)

// loadingTimeout is how long a client may take for its first command to a node
// that is loading, and to take the answer.
const loadingTimeout = 2 * time.Second

// AnswerLoading answers a connection's first command on behalf of a node whose
// data is not open yet, and closes the connection: what came behind it was not
// done.
func AnswerLoading(nc net.Conn) {
	defer nc.Close()                                   //nolint:errcheck // nothing was promised
	_ = nc.SetDeadline(time.Now().Add(loadingTimeout)) //nolint:errcheck // the reads fail, then
	first := make([]byte, 4<<10)
	if _, err := nc.Read(first); err != nil {
		return
	}
	if _, err := nc.Write([]byte("-" + errLoading.word + " " + errLoading.text + "\r\n")); err != nil {
		return
	}
	// Closing with bytes unread would reset the connection, and the reply with it.
	if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		for err := error(nil); err == nil; {
			_, err = nc.Read(first)
		}
	}
}
