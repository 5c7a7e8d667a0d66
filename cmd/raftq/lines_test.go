package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// allBatches reads until the end and returns the batches as numbers and texts.
func allBatches(t *testing.T, l *lineReader) (batches [][]inputLine, err error) {
	t.Helper()
	for {
		lines, err := l.batch()
		if len(lines) == 0 {
			return batches, err
		}
		if err != nil {
			t.Fatalf("lines and %v", err)
		}
		batches = append(batches, lines)
	}
}

// Every line comes once, in order, with its number, whatever the input looks like.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10) // longer than the reader's buffer
	for _, c := range []struct {
		name, in string
		want     []inputLine
	}{
		{"none", "", nil},
		{"newline at the end", "a\nb\n", []inputLine{{1, []byte("a")}, {2, []byte("b")}}},
		{"no newline at the end", "a\nb", []inputLine{{1, []byte("a")}, {2, []byte("b")}}},
		{"empty lines are skipped and counted", "\na\n\n\nb\n\n", []inputLine{{2, []byte("a")}, {5, []byte("b")}}},
		{"bytes are kept", "\xff\x00\r\n a \n", []inputLine{{1, []byte("\xff\x00\r")}, {2, []byte(" a ")}}},
		{"long", long + "\n" + long, []inputLine{{1, []byte(long)}, {2, []byte(long)}}},
	} {
		batches, err := allBatches(t, newLineReader(strings.NewReader(c.in), 1<<20, true))
		var got []inputLine
		for _, b := range batches {
			got = append(got, b...)
		}
		if !errors.Is(err, io.EOF) || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %.100s, %v; want %.100s", c.name, fmt.Sprint(got), err, fmt.Sprint(c.want))
		}
	}
}

// Batches are cut by number and by bytes, and a long line stands alone.
func TestLineBatches(t *testing.T) {
	sizes := func(in string) (sizes []int) {
		batches, err := allBatches(t, newLineReader(strings.NewReader(in), 16<<20, true))
		if !errors.Is(err, io.EOF) {
			t.Errorf("error = %v", err)
		}
		for _, b := range batches {
			sizes = append(sizes, len(b))
		}
		return sizes
	}
	if got := sizes(strings.Repeat("a\n", 1201)); fmt.Sprint(got) != "[500 500 201]" {
		t.Errorf("by number: %v", got)
	}
	half := strings.Repeat("x", bytesPerRequest/2) + "\n"
	large := strings.Repeat("y", 3*bytesPerRequest) + "\n"
	if got := sizes(half + half + half + large + "z\n"); fmt.Sprint(got) != "[2 1 1 1]" {
		t.Errorf("by bytes: %v", got)
	}
}

// An input that pauses does not hold back what has come; whole waits.
func TestLinesLinger(t *testing.T) {
	r, w := io.Pipe()
	l := newLineReader(r, 100, false)
	go func() { _, _ = io.WriteString(w, "a\nb\n") }() // a pipe that is read
	got := 0
	for got < 2 {
		lines, err := l.batch()
		if err != nil || len(lines) == 0 {
			t.Fatalf("batch = %v, %v", lines, err)
		}
		got += len(lines)
	}
	w.Close()
	if lines, err := l.batch(); len(lines) != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, %v", lines, err)
	}

	r, w = io.Pipe()
	l = newLineReader(r, 100, true)
	go func() {
		for i := range 3 {
			_, _ = fmt.Fprintln(w, i) // a pipe that is read
			time.Sleep(2 * linesLinger)
		}
		w.Close()
	}()
	if lines, err := l.batch(); len(lines) != 3 || err != nil {
		t.Errorf("whole: %v, %v; want 3 lines", lines, err)
	}
}

// What breaks is told with its line, after what came before it.
func TestLinesBreak(t *testing.T) {
	batches, err := allBatches(t, newLineReader(strings.NewReader("a\n"+strings.Repeat("b", 101)+"\nc\n"), 100, true))
	if len(batches) != 1 || len(batches[0]) != 1 || err == nil || !strings.Contains(err.Error(), "line 2: is longer than 100 B") {
		t.Errorf("%v, %v", batches, err)
	}
	broken := io.MultiReader(strings.NewReader("a\nb"), iotestErr{})
	if _, err = allBatches(t, newLineReader(broken, 100, true)); err == nil || !strings.Contains(err.Error(), "line 2: the disk is on fire") {
		t.Errorf("error = %v", err)
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, errors.New("the disk is on fire") }
