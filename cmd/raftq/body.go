package main

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable is a text on one line: as it is, or quoted when it would not fit
// there or could play tricks on a terminal.
func printable(body []byte) string {
	text := string(body)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// previewBytes is how much of a binary body a preview shows.
const previewBytes = 16

// preview is the beginning of a body on one line of at most width characters.
func preview(body []byte, width int) string {
	if len(body) == 0 {
		return "(empty)"
	}
	if isBinary(body) {
		head := hex.EncodeToString(body[:min(len(body), previewBytes)])
		if len(body) > previewBytes {
			head += "…"
		}
		return clip(fmt.Sprintf("(%s of binary) %s", formatSize(int64(len(body))), head), width)
	}
	// One character is four bytes at most, and quoting makes none shorter.
	cut := body[:min(len(body), 4*width+utf8.UTFMax)]
	for len(cut) < len(body) && len(cut) > 0 && !utf8.RuneStart(body[len(cut)]) {
		cut = cut[:len(cut)-1]
	}
	text := printable(cut)
	if len(cut) < len(body) {
		text += "…" // and clip puts it in its place
	}
	return clip(text, width)
}

// isBinary tells whether a body is not text.
func isBinary(body []byte) bool {
	return !utf8.Valid(body) || strings.ContainsRune(string(body), 0)
}

// clip cuts a text to width characters; the last one says that more follows.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	n := 0
	for i := range text {
		if n++; n == width {
			return text[:i] + "…"
		}
	}
	return text
}

// readable is a body for a person to read: text in its lines, with what a
// terminal would act on escaped; of anything else a dump of its beginning.
func readable(body []byte) string {
	if isBinary(body) {
		const shown = 256
		dump := hex.Dump(body[:min(len(body), shown)])
		if len(body) > shown {
			dump += fmt.Sprintf("… %s in all; --raw prints them\n", formatSize(int64(len(body))))
		}
		return dump
	}
	var b strings.Builder
	for _, r := range string(body) {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	if text := b.String(); text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return b.String() + "\n"
}
