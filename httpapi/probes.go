package httpapi

import (
	"encoding/json"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"github.com/valyala/fasthttp/pprofhandler"

	"raftq/fsm"
)

// pages are handlers of others.
type pages struct{ metrics, pprof fasthttp.RequestHandler }

func newPages(reg prometheus.Registerer) pages {
	gather, ok := reg.(prometheus.Gatherer)
	if !ok {
		gather = prometheus.DefaultGatherer
	}
	return pages{
		metrics: fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(gather, promhttp.HandlerOpts{})),
		pprof:   pprofhandler.PprofHandler,
	}
}

// cluster shows the cluster as this node sees it.
func (c *call) cluster() error { return c.answerValue(c.s.replica.Cluster()) }

// livez never fails while the process serves: a lost leader or a full disk is
// no reason to restart a node.
func (c *call) livez() error { return c.answerOK() }

func (c *call) readyz() error { return c.probe(c.s.replica.Ready(), fsm.CodeNoLeader) }

func (c *call) startupz() error { return c.probe(c.s.replica.Started(), fsm.CodeLoading) }

func (c *call) probe(err error, otherwise fsm.Code) error {
	if c.s.leaving.Load() {
		return refuse(fsm.CodeLeaving, "the node is shutting down")
	}
	if err == nil {
		return c.answerOK()
	}
	if e, ok := err.(*fsm.Error); ok {
		return refuse(e.Code, "%s", e.Detail)
	}
	return refuse(otherwise, "%v", err)
}

const statusOK = `{"status":"ok"}` + "\n"

func (c *call) answerOK() error {
	c.out = append(c.out[:0], statusOK...)
	return c.answer(200, typeJSON)
}

func (c *call) version() error {
	return c.answerValue(struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Go      string `json:"go"`
	}{"raftq", c.s.opts.Version, runtime.Version()})
}

func (c *call) answerValue(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.out = append(append(c.out[:0], b...), '\n')
	return c.answer(200, typeJSON)
}

func (c *call) metrics() error {
	c.s.pages.metrics(c.ctx)
	return nil
}

func (c *call) pprof() error {
	c.s.pages.pprof(c.ctx)
	return nil
}
