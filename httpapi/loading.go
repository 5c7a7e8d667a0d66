package httpapi

import (
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"raftq/fsm"
)

// loadingTimeout is how long a client may take for its request to a node that
// only says that it is loading, and to take the answer.
const loadingTimeout = 2 * time.Second

// Loading answers for a node whose data is not open yet: it reads the log, or waits to
// be taken into a cluster. It says so to everybody, 503 and not applied, so that
// clients go on to another node at once; /livez is fine, as a restart would not
// help.
type Loading struct {
	http      fasthttp.Server
	nameField []byte
}

// NewLoading takes the node's name and what Options.MaxBody is.
func NewLoading(name string, maxBody int, log *zap.Logger) *Loading {
	if maxBody == 0 {
		maxBody = maxBodyDefault
	}
	l := &Loading{nameField: appendField(nil, name)}
	l.http = fasthttp.Server{
		Handler:                      l.answer,
		Logger:                       zapLogger{log},
		ReadBufferSize:               headBytesMax,
		ReadTimeout:                  loadingTimeout,
		WriteTimeout:                 loadingTimeout,
		MaxRequestBodySize:           requestBytesMax(maxBody),
		DisablePreParseMultipartForm: true,
		DisableKeepalive:             true, // the next request may find the node open
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
	}
	return l
}

// Answer answers one request of the connection and closes it.
func (l *Loading) Answer(nc net.Conn) {
	_ = l.http.ServeConn(nc) //nolint:errcheck // of a client that has left, or said no HTTP
	_ = nc.Close()           //nolint:errcheck // nothing was promised
}

func (l *Loading) answer(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.SetCanonical(fieldNode, l.nameField)
	if string(ctx.Path()) == "/livez" {
		h.SetContentTypeBytes(typeJSON)
		ctx.SetBodyString(statusOK)
		return
	}
	p := refuse(fsm.CodeLoading, "the node has not opened its data yet, or is not part of a cluster yet; ask another node")
	h.SetContentTypeBytes(typeProblem)
	h.SetCanonical(fieldRetryAfter, strconv.AppendInt(nil, int64(p.kind.retryAfter()), 10))
	ctx.SetStatusCode(p.kind.status)
	ctx.SetBody(appendProblem(nil, p, ctx.URI().PathOriginal()))
}
