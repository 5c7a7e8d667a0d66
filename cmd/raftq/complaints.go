package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// complaints writes what the client library logs as the other words of a command
// to standard error are written: a line for people.
type complaints struct {
	w     *shared
	level slog.Level
}

func newComplaints(w *shared, quiet bool) *slog.Logger {
	c := complaints{w: w, level: slog.LevelInfo}
	if quiet {
		c.level = slog.LevelError
	}
	return slog.New(c)
}

func (c complaints) Enabled(_ context.Context, level slog.Level) bool { return level >= c.level }

// Handle writes the message, and of what stands beside it what a person can use.
func (c complaints) Handle(_ context.Context, r slog.Record) error {
	text := "raftq: " + r.Message
	node := ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			text += ": " + strings.TrimPrefix(strings.TrimPrefix(a.Value.String(), "raftq: "), node+": ")
		case "node":
			node = a.Value.String()
			text += " (" + node + ")"
		case "job":
			text += " (job " + a.Value.String() + ")"
		}
		return true
	})
	_, err := fmt.Fprintln(c.w, text)
	return err
}

func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c complaints) WithGroup(string) slog.Handler      { return c }
