package httpapi

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"raftq/fsm"
)

// TestSettleItems proves that receipts, ids and each verb's options reach the
// op, and the shape of the results.
func TestSettleItems(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	d := sample()
	rec, id := d.Receipt().String(), d.ID.String()
	byReceipt := fsm.Item{Key: d.ID.Key, Grant: 2, Tag: 99, DelayMs: -1}
	byID := fsm.Item{Key: d.ID.Key, ByID: true, DelayMs: -1}
	with := func(i fsm.Item, change func(*fsm.Item)) fsm.Item { change(&i); return i }
	for _, tc := range []struct {
		path, body string
		want       fsm.Op
	}{
		{"/v1/ack", `{"items":[{"receipt":"` + rec + `"}]}`, &fsm.Ack{Items: []fsm.Item{byReceipt}}},
		{"/v1/ack", "{ \"items\" : [ { \"id\" : \"" + id + "\" } ,\n{\"receipt\":\"" + rec + `"}]}`, &fsm.Ack{Items: []fsm.Item{byID, byReceipt}}},
		{"/v1/ack?consistency=fast&timeout=1s", `{"items":[{"receipt":"` + rec + `"}]}`, &fsm.Ack{Items: []fsm.Item{byReceipt}}},
		{"/v1/nack", `{"items":[{"receipt":"` + rec + `"},{"receipt":"` + rec + `","delay":"0s"},{"id":"` + id + `","error":"e\n","delay":"5m"}]}`, &fsm.Nack{Items: []fsm.Item{
			byReceipt, with(byReceipt, func(i *fsm.Item) { i.DelayMs = 0 }), with(byID, func(i *fsm.Item) { i.DelayMs, i.Error = 300_000, "e\n" }),
		}}},
		{"/v1/release", `{"items":[{"receipt":"` + rec + `"}]}`, &fsm.Release{Items: []fsm.Item{byReceipt}}},
		{"/v1/extend", `{"items":[{"receipt":"` + rec + `","lease":"2m"}]}`, &fsm.Extend{Items: []fsm.Item{with(byReceipt, func(i *fsm.Item) { i.LeaseMs = 120_000 })}}},
	} {
		a := ask(t, s, "POST", tc.path, tc.body)
		if a.status != 200 || !strings.HasPrefix(a.body, `{"results":[{"id":"`+id+`","status":200`) {
			t.Fatalf("%s: %d %s", tc.path, a.status, a.body)
		}
		if got := f.lastOp(t); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.path, got, tc.want)
		}
	}
}

// TestSettleResults proves that each item is answered in its place, with 207
// when one failed, also when one is no receipt at all.
func TestSettleResults(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	id := sample().ID.String()
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		if n := len(op.(*fsm.Ack).Items); n != 4 {
			t.Errorf("%d items reached the replica", n)
		}
		return fsm.Result{Position: f.position(), Items: []fsm.ItemResult{{Late: true}, {Code: fsm.CodeLeaseLost}, {Already: true}, {}}}, nil
	}
	one := `{"id":"` + id + `"}`
	a := ask(t, s, "POST", "/v1/ack", `{"items":[`+one+`,`+one+`,{"receipt":"D-1"},`+one+`,`+one+`]}`)
	want := `{"results":[{"id":"` + id + `","status":200,"late":true},` +
		`{"id":"` + id + `","status":409,"code":"lease_lost","detail":"The lease is lost"},` +
		`{"status":400,"code":"bad_job_id","detail":"neither a receipt nor an id of this cluster"},` +
		`{"id":"` + id + `","status":200,"already":true},{"id":"` + id + `","status":200}]}` + "\n"
	if a.status != 207 || a.body != want {
		t.Errorf("%d\n got %s\nwant %s", a.status, a.body, want)
	}
	if s.stats.acked.Load() != 3 {
		t.Errorf("%d counted", s.stats.acked.Load())
	}
	before := f.opCount()
	if a := ask(t, s, "POST", "/v1/ack", `{"items":[{"receipt":""}]}`); a.status != 207 || f.opCount() != before {
		t.Errorf("nothing valid: %d %s", a.status, a.body)
	}
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		return fsm.Result{Items: []fsm.ItemResult{{LeaseUntil: 1_700_000_060_000}}}, nil
	}
	wantContains(t, ask(t, s, "POST", "/v1/extend", `{"items":[`+one+`]}`).body, `"lease_until":"2023-11-14T22:14:20.000Z","lease_until_ms":1700000060000`)
	f.answer = func(op fsm.Op) (fsm.Result, error) { return fsm.Result{Items: []fsm.ItemResult{{Dead: true}}}, nil }
	wantContains(t, ask(t, s, "POST", "/v1/nack", `{"items":[`+one+`]}`).body, `"status":200,"dead":true`)
	// A replica that breaks its contract is no success.
	f.answer = func(op fsm.Op) (fsm.Result, error) { return fsm.Result{}, nil }
	wantProblem(t, ask(t, s, "POST", "/v1/ack", `{"items":[`+one+`]}`), 500, "internal")
}

// TestErrorText proves that a long error text is cut at a character and does
// not fail the nack.
func TestErrorText(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	ask(t, s, "POST", "/v1/nack", `{"items":[{"id":"`+sample().ID.String()+`","error":"x`+strings.Repeat("é", 2000)+`"}]}`)
	got := f.lastOp(t).(*fsm.Nack).Items[0].Error
	if len(got) != fsm.ErrorTextMax-1 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}
