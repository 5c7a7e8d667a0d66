package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// columnGap stands between two columns of a table.
const columnGap = "  "

// table prints rows in columns under their heads. A head that begins with ">"
// sets its column to the right, as numbers are read. Lines have no spaces at
// their end.
func table(w io.Writer, head []string, rows [][]string) error {
	right := make([]bool, len(head))
	first := make([]string, len(head))
	for i, h := range head {
		first[i], right[i] = strings.CutPrefix(h, ">")
	}
	width := columnWidths(head, rows)
	var b strings.Builder
	line := func(row []string) {
		var l strings.Builder
		for i, cell := range row {
			if i > 0 {
				l.WriteString(columnGap)
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if right[i] {
				l.WriteString(pad + cell)
			} else {
				l.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	line(first)
	for _, row := range rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columnWidths returns how wide each column has to be.
func columnWidths(head []string, rows [][]string) []int {
	width := make([]int, len(head))
	for i, h := range head {
		width[i] = utf8.RuneCountInString(strings.TrimPrefix(h, ">"))
		for _, row := range rows {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	return width
}

// tableWidth is how wide a table is up to its last column.
func tableWidth(head []string, rows [][]string) int {
	width := 0
	for _, w := range columnWidths(head, rows)[:len(head)-1] {
		width += w + len(columnGap)
	}
	return width
}

// facts prints names and values in two columns; what has no value is left out.
func facts(w io.Writer, pairs ...string) error {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			b.WriteString(pairs[i] + strings.Repeat(" ", width-len(pairs[i])) + columnGap + pairs[i+1] + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
