package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// Frames are the bytes that docs/rest.md describes, and are cut apart again.
func TestFrames(t *testing.T) {
	b := appendFrame(appendFrame(nil, []byte("ab")), nil)
	want := "\x00\x00\x00\x00\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x00\x00\x00"
	if string(b) != want || len(b) != framesSize(1, 2)+framesSize(1, 0) {
		t.Fatalf("%q, want %q", b, want)
	}
	head, body, rest, err := cutFrame(b)
	if err != nil || len(head) != 0 || string(body) != "ab" || len(rest) != 8 {
		t.Errorf("%q %q %q %v", head, body, rest, err)
	}
	for n := range 10 {
		if _, _, _, err := cutFrame(b[:n]); err == nil {
			t.Errorf("a frame of %d bytes is taken for a whole one", n)
		}
	}
}

// A body carries number and time through the queue; that of another run is not
// taken for one of this.
func TestBody(t *testing.T) {
	b := newBody("0badcafe", 64, rand.New(rand.NewPCG(1, 2)))
	for _, v := range []int64{0, 1, 255, 1 << 40, 1<<63 - 1} {
		stampBody(b, v, v/3)
		if seq, sent, ok := readBody(b, "0badcafe"); !ok || seq != v || sent != v/3 {
			t.Errorf("%d: %d %d %v", v, seq, sent, ok)
		}
	}
	if _, _, ok := readBody(b, "0badcaff"); ok {
		t.Error("another run's body is read")
	}
	b[20] = 'X'
	if _, _, ok := readBody(b, "0badcafe"); ok {
		t.Error("a damaged body is read")
	}
	if strings.ContainsFunc(string(b[bodyHeadSize:]), func(r rune) bool { return r < 'a' || r > 'z' }) {
		t.Error("a body has bytes that JSON would escape")
	}
}

const threeAnswers = "HTTP/1.1 201 Created\r\nDate: x\r\nCONTENT-LENGTH: 5\r\n\r\nhello" +
	"HTTP/1.1 204 No Content\r\nRaftq-Node: n1\r\n\r\n" +
	"HTTP/1.1 200 OK\r\nraftq-receipt: D-1.2.3\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

// Answers to pipelined requests are told apart however they are cut into reads.
func TestReaderCuts(t *testing.T) {
	for size := 1; size <= len(threeAnswers); size++ {
		r := newReader(&chunks{text: threeAnswers, size: size})
		var a response
		if err := r.next(&a); err != nil || a.status != 201 || string(a.body) != "hello" || a.close {
			t.Fatalf("%d: %+v %v", size, a, err)
		}
		if err := r.next(&a); err != nil || a.status != 204 || len(a.body) != 0 {
			t.Fatalf("%d: %+v %v", size, a, err)
		}
		if err := r.next(&a); err != nil || a.status != 200 || string(a.receipt) != "D-1.2.3" || !a.close {
			t.Fatalf("%d: %+v %v", size, a, err)
		}
		if err := r.next(&a); err != io.EOF {
			t.Fatalf("%d: %v", size, err)
		}
	}
}

// A body larger than the buffer moves what was read, and the receipt with it.
func TestReaderGrows(t *testing.T) {
	body := strings.Repeat("x", 100_000)
	text := strings.Repeat("HTTP/1.1 200 OK\r\nRaftq-Receipt: r.1.t\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body, 3)
	r := newReader(iotest.HalfReader(strings.NewReader(text)))
	for range 3 {
		var a response
		if err := r.next(&a); err != nil || string(a.receipt) != "r.1.t" || string(a.body) != body {
			t.Fatalf("%v %q, %d bytes", err, a.receipt, len(a.body))
		}
	}
}

// What is no answer, or is cut short, is an error and no panic.
func TestReaderRefuses(t *testing.T) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nCont", "SSH-2.0-OpenSSH\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 xxx OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n\nx: y\r\n\r\n", "\r\n\r\n", "HTTP/1.1 200\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 2*answerHeadMax),
	} {
		var a response
		err := newReader(strings.NewReader(text)).next(&a)
		if err == nil || err == io.EOF {
			t.Errorf("%.60q: %v", text, err)
		}
	}
	var a response
	if err := newReader(strings.NewReader("")).next(&a); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v", err)
	}
}

// chunks gives out a text in reads of a size.
type chunks struct {
	text string
	size int
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(b, c.text[:min(c.size, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}

// The items of an ack are JSON of the length that the header tells.
func TestItems(t *testing.T) {
	var jobs []held
	for _, receipt := range []string{"D-1.1.a", "D-22.10.bcd"} {
		var h held
		if !h.set([]byte(receipt), 1) {
			t.Fatal(receipt)
		}
		jobs = append(jobs, h)
	}
	for n := 1; n <= len(jobs); n++ {
		for _, option := range []string{"", `,"delay":"0s"`} {
			out := appendItems(nil, "POST /v1/ack HTTP/1.1\r\n", jobs[:n], option)
			head, body, _ := bytes.Cut(out, []byte("\r\n\r\n"))
			if want := "Content-Length: " + strconv.Itoa(len(body)); !bytes.HasSuffix(head, []byte(want)) {
				t.Errorf("%q, want %s", head, want)
			}
			var got struct {
				Items []struct{ Receipt, Delay string }
			}
			if err := json.Unmarshal(body, &got); err != nil || len(got.Items) != n || got.Items[0].Receipt != "D-1.1.a" {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
	if string(jobs[1].id()) != "D-22" {
		t.Errorf("id %q", jobs[1].id())
	}
	var h held
	for _, bad := range []string{"", "a b", `a"b`, "a\\b", "ä", strings.Repeat("x", len(h.receipt)+1)} {
		if h.set([]byte(bad), 1) {
			t.Errorf("receipt %q is taken", bad)
		}
	}
}

// Receipts and codes are found in answers as the server writes them.
func TestFound(t *testing.T) {
	if got := receiptOf([]byte(`{"id":"D-1","receipt":"D-1.2.x","queue":"q"}`)); string(got) != "D-1.2.x" {
		t.Errorf("receipt %q", got)
	}
	for _, bad := range []string{``, `{"id":"x"}`, `{"receipt":"cut`} {
		if got := receiptOf([]byte(bad)); len(got) != 0 {
			t.Errorf("%s: %q", bad, got)
		}
	}
	if got := errorCode(503, []byte(`{"status":503,"code":"no_leader","retryable":true}`)); got != "no_leader" {
		t.Errorf("code %q", got)
	}
	if got := errorCode(502, []byte(`<html>`)); got != "http_502" {
		t.Errorf("code %q", got)
	}
}

// The reader copes with any bytes.
func FuzzReader(f *testing.F) {
	f.Add([]byte(threeAnswers), 7)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		r := newReader(&chunks{text: string(text), size: max(1, size)})
		total := 0
		for {
			var a response
			if r.next(&a) != nil {
				return
			}
			if total += len(a.body); total > len(text) {
				t.Fatal("more bytes than there were")
			}
		}
	})
}
