package fsm

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestKeptResults proves that every field of a result and of its items survives
// being kept, but for those which are each answer's own; and that a request of
// many jobs takes little.
func TestKeptResults(t *testing.T) {
	own := []string{"Position", "Batch", "Fast", "Parked", "Replay", "Depends", "Jobs", "Parts"}
	var r Result
	fill(t, reflect.ValueOf(&r).Elem(), own)
	r.Parts = []Result{{Code: CodeAborted, Items: slices.Clone(r.Items)}, {Count: 7}}
	r.Items = append(r.Items, ItemResult{}, ItemResult{ID: ID{Key{1, 2}, 3, 4}}, ItemResult{ID: ID{Key{1, 3}, 3, 4}}, ItemResult{Code: CodeLeaseLost, ID: ID{Key: Key{9, 9}}})
	if got := unkept(t, appendResult(nil, &r)); !reflect.DeepEqual(got, r) {
		t.Errorf("got\n%+v\nwant\n%+v", got, r)
	}
	many := Result{}
	for i := range uint64(BatchItemsMax) {
		many.Items = append(many.Items, ItemResult{ID: ID{Key{1<<32 | 7, 1<<40 + i}, 1, 0xffff}})
	}
	if data := appendResult(nil, &many); len(data) > BatchItemsMax+40 {
		t.Errorf("%d bytes for the results of %d new jobs", len(data), BatchItemsMax)
	} else if !reflect.DeepEqual(unkept(t, data), many) {
		t.Error("many items did not survive")
	}
}

func unkept(t *testing.T, data []byte) (r Result) {
	f := fields{data: data}
	if f.result(&r, true); !f.ok() {
		t.Fatalf("%x cannot be read", data)
	}
	return r
}

// fill sets every field of v that is not in except to something else than zero.
func fill(t *testing.T, v reflect.Value, except []string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !slices.Contains(except, v.Type().Field(i).Name) {
				fill(t, v.Field(i), nil)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), nil)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(77)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(13)
	case reflect.String:
		v.SetString("text")
	default:
		t.Fatalf("a field of kind %v: keep it, and say here how to fill it", v.Kind())
	}
}

// TestKeptIsRead proves that a kept result which cannot be read is refused when
// a state is read, and not found out by a replay.
func TestKeptIsRead(t *testing.T) {
	for _, bad := range []string{"", "\x01", "\x01\xff", "\x40\x05", "\x80\x01\x80\x01\x00", "\x00\x00", "\x40\x01\x80", strings.Repeat("\x80\x01", 100_000)} {
		f := fields{data: []byte(bad)}
		if f.result(&Result{}, true); f.ok() {
			t.Errorf("%.20q is a result", bad)
		}
	}
}
