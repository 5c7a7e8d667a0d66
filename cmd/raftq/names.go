package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"
)

// namesOf goes through the arguments, or the first words of the lines of standard
// input when the only argument is "-": what dequeue and enqueue print can be piped
// here.
func namesOf(cmd *cobra.Command, args []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if len(args) != 1 || args[0] != "-" {
			for _, a := range args {
				if !yield(a, nil) {
					return
				}
			}
			return
		}
		in := bufio.NewReader(cmd.InOrStdin())
		for {
			line, err := in.ReadString('\n')
			if f := strings.Fields(line); len(f) > 0 && !yield(f[0], nil) {
				return
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield("", fmt.Errorf("read standard input: %w", err))
				}
				return
			}
		}
	}
}

// batches calls do with at most n names at a time.
func batches(names iter.Seq2[string, error], n int, do func([]string) error) error {
	var batch []string
	for name, err := range names {
		if err != nil {
			return err
		}
		if batch = append(batch, name); len(batch) == n {
			if err := do(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return do(batch)
}
