package raftnode

import (
	"errors"
	"net/http"
	"reflect"
	"unsafe"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// timeStreams lets a stream end that brings nothing for rafthttp.ConnReadTimeout, as
// rafthttp means it to: whoever sends tells at least that it is alive. Then it is
// dialed again.
//
// Since etcd 3.7 the dialer that watches the time is not asked: it is Transport.Dial,
// and a DialContext is set now, which comes first. Without it what was sent into a
// partition is sent again after longer and longer breaks, so that a member was heard
// of again only after up to as much time as it had been away. rafthttp gives no way to
// its round tripper but this one.
func timeStreams(t *rafthttp.Transport) error {
	rt, err := streamsOf(t)
	if err != nil {
		return err
	}
	rt.DialContext = nil
	return nil
}

// streamsOf is what a transport reads its streams by.
func streamsOf(t *rafthttp.Transport) (*http.Transport, error) {
	f := reflect.ValueOf(t).Elem().FieldByName("streamRt")
	if f.IsValid() && f.Type() == reflect.TypeFor[http.RoundTripper]() {
		if rt, ok := (*(*http.RoundTripper)(unsafe.Pointer(f.UnsafeAddr()))).(*http.Transport); ok {
			return rt, nil
		}
	}
	return nil, errors.New("BUG: rafthttp has another round tripper for its streams")
}
