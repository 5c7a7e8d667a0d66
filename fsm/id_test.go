package fsm

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestIDs proves that ids and receipts survive their text form, that any
// changed character of an id makes it a bad one, and that bad text is refused.
func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Receipt{
			ID:    ID{Key{rapid.Uint64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")}, rapid.Uint32().Draw(t, "node"), rapid.Uint16().Draw(t, "minutes")},
			Grant: rapid.Uint32Range(1, 1<<32-1).Draw(t, "grant"), Tag: rapid.Uint64().Draw(t, "tag"),
		}
		text := r.ID.String()
		if id, ok := ParseID(text); !ok || id != r.ID || len(text) != IDLen {
			t.Fatalf("id %q: %v %v", text, id, ok)
		}
		if got, ok := ParseReceipt([]byte(r.String())); !ok || got != r || len(r.String()) > ReceiptLenMax {
			t.Fatalf("receipt %q: %v %v", r, got, ok)
		}
		if it := r.Item(); it.Key != r.ID.Key || it.Grant != r.Grant || it.Tag != r.Tag || it.ByID || it.DelayMs != -1 {
			t.Fatalf("item %+v", it)
		}
		changed := []byte(text)
		changed[rapid.IntRange(0, IDLen-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if id, ok := ParseID(changed); ok && id == r.ID {
			t.Fatalf("%q and %q are one id", text, changed)
		}
	})
	id := ID{Key{1, 2}, 3, 4}.String()
	for _, bad := range []string{"", id[:39], id + "0", strings.Replace(id, "D", "d", 1), id[:11] + "zzzzzzzzzzz" + id[22:], id[:11] + "/" + id[12:], strings.ToUpper(id[:36]) + "000A"} {
		if _, ok := ParseID(bad); ok {
			t.Errorf("id %q is taken", bad)
		}
	}
	receipt := Receipt{ID{Key{1, 2}, 3, 4}, 5, 6}.String()
	for _, bad := range []string{"", id, id + ".", id + "..00000000006", id + ".0.00000000006", id + ".05.00000000006", id + ".5.6", id + ".5", id + ".4294967296.00000000006", receipt + "0", receipt[:len(receipt)-1], id + ".5x.00000000006", id + ".5.0000000000!", "x" + receipt[1:]} {
		if _, ok := ParseReceipt(bad); ok {
			t.Errorf("receipt %q is taken", bad)
		}
	}
}

// TestTTLMinutes proves what an id shows of a TTL.
func TestTTLMinutes(t *testing.T) {
	for _, c := range []struct {
		ttlMs int64
		once  bool
		want  uint16
	}{{0, false, 0xffff}, {0, true, 0xfffe}, {59_999, false, 1}, {59_999, true, 0}, {120_000, false, 3}, {120_000, true, 2}, {86400_000, true, 1440}, {TTLMaxMs, false, 0xffff}} {
		if got := ttlMinutes(c.ttlMs, c.once); got != c.want || (ID{Minutes: got}).AtMostOnce() != c.once {
			t.Errorf("%d ms, at most once %v: %#x, want %#x", c.ttlMs, c.once, got, c.want)
		}
	}
}

// TestCodes proves that every code has a name of its own.
func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Codes() {
		if name := c.String(); name == "" || seen[name] || strings.Contains(name, "(") {
			t.Errorf("code %d: %q", c, name)
		} else {
			seen[name] = true
		}
	}
	if err := Refuse(CodeQueueFull, "queue %q", "a"); err.Error() != `queue_full: queue "a"` || err.Unknown || codeCount.String() != fmt.Sprintf("code(%d)", codeCount) {
		t.Errorf("%v, %v", err, codeCount)
	}
}
