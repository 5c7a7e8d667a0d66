package raftnode

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.uber.org/zap"
)

// A stream on which nothing comes ends by itself.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	tr := &rafthttp.Transport{Logger: zap.NewNop(), DialTimeout: time.Second}
	if err := errors.Join(tr.Start(), timeStreams(tr)); err != nil {
		t.Fatal(err)
	}
	defer tr.Stop()
	rt, err := streamsOf(tr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*rafthttp.ConnReadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+silent.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rt.RoundTrip(req)
	var timeout net.Error
	if ctx.Err() != nil || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a stream that brings nothing: %v", err)
	}
}
