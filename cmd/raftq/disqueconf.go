package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// disqueConf is a disque.conf as far as it means something here.
type disqueConf struct {
	// settings are keys of serve. They count where nothing else says them.
	settings map[string]string

	idle       time.Duration
	maxClients int
	slowerThan time.Duration
	slowlogLen int
	rename     map[string]string // command → its new name, "" = none
	ignored    []string          // names, sorted
}

const (
	includesMax   = 16
	disqueConfMax = 1 << 20
)

// readDisqueConf reads a file and those that it includes.
func readDisqueConf(path string) (*disqueConf, error) {
	d := &disqueConf{settings: map[string]string{}, rename: map[string]string{}}
	var bind, port string
	if err := d.read(path, 0, &bind, &port); err != nil {
		return nil, err
	}
	switch {
	case port == "0":
		d.settings["listen-resp"] = "" // only the unix socket
	case port != "" || bind != "":
		if port == "" {
			port = "7711"
		}
		if bind == "" {
			bind = "127.0.0.1" // all addresses only when somebody says so
		}
		d.settings["listen-resp"] = net.JoinHostPort(bind, port)
	}
	slices.Sort(d.ignored)
	d.ignored = slices.Compact(d.ignored)
	return d, nil
}

func (d *disqueConf) read(path string, depth int, bind, port *string) error {
	if depth > includesMax {
		return fmt.Errorf("%s: more than %d files include each other", path, includesMax)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > disqueConfMax {
		return fmt.Errorf("%s: a configuration has at most %d bytes", path, disqueConfMax)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words, err := splitConf(line)
		if err == nil && len(words) > 0 {
			err = d.directive(strings.ToLower(words[0]), words[1:], depth, bind, port)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return nil
}

func (d *disqueConf) directive(name string, args []string, depth int, bind, port *string) error {
	one := func() (string, error) {
		if len(args) != 1 {
			return "", fmt.Errorf("%s takes one value", name)
		}
		return args[0], nil
	}
	number := func(least int64) (int64, error) {
		v, err := one()
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least {
			return 0, fmt.Errorf("%s: %q is not a number of at least %d", name, v, least)
		}
		return n, nil
	}
	switch name {
	case "include":
		file, err := one()
		if err != nil {
			return err
		}
		return d.read(file, depth+1, bind, port)
	case "port":
		n, err := number(0)
		if err != nil || n > 65535 {
			return errors.Join(err, fmt.Errorf("port: not within 0 and 65535"))
		}
		*port = args[0]
	case "bind":
		switch len(args) {
		case 0:
			return errors.New("bind names no address")
		case 1:
			*bind = args[0]
		default:
			// Several addresses: all of them, and then some.
			return fmt.Errorf("bind: %d addresses; give one, or 0.0.0.0", len(args))
		}
	case "unixsocket", "unixsocketperm", "requirepass":
		v, err := one()
		if err != nil {
			return err
		}
		d.settings[map[string]string{"unixsocket": "resp-unixsocket", "unixsocketperm": "resp-unixsocketperm", "requirepass": "resp-password"}[name]] = v
	case "maxmemory":
		v, err := one()
		if err != nil {
			return err
		}
		n, err := confBytes(v)
		if err != nil {
			return fmt.Errorf("maxmemory: %w", err)
		}
		d.settings["max-memory"] = fmt.Sprintf("%dB", n)
	case "loglevel":
		v, err := one()
		if err != nil {
			return err
		}
		level, ok := map[string]string{"debug": "debug", "verbose": "info", "notice": "info", "warning": "warn"}[v]
		if !ok {
			return fmt.Errorf("loglevel: %q is not debug, verbose, notice or warning", v)
		}
		d.settings["log-level"] = level
	case "maxclients":
		n, err := number(1)
		if err != nil {
			return err
		}
		d.maxClients = int(min(n, 1<<20))
	case "timeout":
		n, err := number(0)
		if err != nil {
			return err
		}
		d.idle = time.Duration(min(n, 1<<31)) * time.Second
	case "slowlog-log-slower-than":
		n, err := number(-1)
		if err != nil {
			return err
		}
		if d.slowerThan = time.Duration(min(n, 1<<50)) * time.Microsecond; n < 0 {
			d.slowerThan = -1
		}
	case "slowlog-max-len":
		n, err := number(0)
		if err != nil {
			return err
		}
		d.slowlogLen = int(min(n, 10_000))
	case "rename-command":
		if len(args) != 2 {
			return errors.New("rename-command takes a command and its new name")
		}
		d.rename[strings.ToLower(args[0])] = strings.ToLower(args[1])
	default:
		d.ignored = append(d.ignored, name)
	}
	return nil
}

// confBytes reads a size as Disque does: 1k is 1000 bytes, 1kb is 1024.
func confBytes(s string) (int64, error) {
	digits := strings.TrimRightFunc(s, unicode.IsLetter)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is not a size above 0", s)
	}
	unit, ok := map[string]int64{"": 1, "b": 1, "k": 1e3, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9, "gb": 1 << 30}[strings.ToLower(s[len(digits):])]
	if !ok || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not a size", s)
	}
	return n * unit, nil
}

// splitConf splits a line at blanks, but within quotes.
func splitConf(line string) (words []string, err error) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " \t") {
		switch line[0] {
		case '"':
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, errors.New("quotes that do not end")
			}
			word, err := strconv.Unquote(q)
			if err != nil {
				return nil, errors.New("quotes that do not end")
			}
			words, line = append(words, word), line[len(q):]
		case '\'':
			word, rest, ok := strings.Cut(line[1:], "'")
			if !ok {
				return nil, errors.New("quotes that do not end")
			}
			words, line = append(words, word), rest
		default:
			i := strings.IndexAny(line, " \t")
			if i < 0 {
				i = len(line)
			}
			words, line = append(words, line[:i]), line[i:]
		}
	}
	return words, nil
}
