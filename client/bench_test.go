package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What the client and HTTP cost, without a queue behind: a bare server on loopback
// that answers at once.
func BenchmarkEnqueue(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(201)
		_, _ = io.WriteString(w, created.body)
	}))
	defer srv.Close()
	body := make([]byte, 256)
	b.Run("client", func(b *testing.B) {
		c, err := New(srv.URL)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		c.opts.keys = true
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Enqueue(b.Context(), "q", body, Priority(7)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("net/http", func(b *testing.B) {
		c, err := New(srv.URL)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		b.ReportAllocs()
		for b.Loop() {
			req, err := http.NewRequestWithContext(b.Context(), "POST", srv.URL+"/v1/queues/q/enqueue?priority=7", &repeated{body, 0})
			if err != nil {
				b.Fatal(err)
			}
			req.ContentLength = int64(len(body))
			res, err := c.own.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
}

// repeated is a reader of some bytes.
type repeated struct {
	b []byte
	i int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.i == len(r.b) {
		return 0, io.EOF
	}
	n := copy(p, r.b[r.i:])
	r.i += n
	return n, nil
}
