package respapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Config is what CONFIG SET changes. Zero values mean the default.
type Config struct {
	Password   string        // "" = none is asked for
	Idle       time.Duration // a connection without commands for so long is closed; 0 = never
	MaxClients int           // 10,000
	SlowerThan time.Duration // commands for SLOWLOG: 10 ms; -1 = none
	SlowlogLen int           // 128
	// Level is the log's; nil = it cannot be changed.
	Level *zap.AtomicLevel

	enqueueOnce bool
}

func (c Config) withDefaults() Config {
	if c.MaxClients == 0 {
		c.MaxClients = connsDefault
	}
	if c.SlowerThan == 0 {
		c.SlowerThan = 10 * time.Millisecond
	}
	if c.SlowlogLen == 0 {
		c.SlowlogLen = 128
	}
	return c
}

// live is the Config in use.
type live struct {
	p       atomic.Pointer[Config]
	writing sync.Mutex
	changed map[string]string // by CONFIG SET, for REWRITE
}

func (l *live) get() *Config        { return l.p.Load() }
func (l *live) set(c Config)        { l.p.Store(&c) }
func (l *live) password() string    { return l.p.Load().Password }
func (l *live) idle() time.Duration { return l.p.Load().Idle }

// setting is a parameter of CONFIG.
type setting struct {
	name string
	get  func(*Config) string
	set  func(*Config, string) bool // false: not such a value
}

var settings = []setting{
	{"requirepass", func(c *Config) string { return c.Password }, func(c *Config, v string) bool {
		c.Password = v
		return len(v) <= passwordMax
	}},
	{"timeout", func(c *Config) string { return strconv.FormatInt(int64(c.Idle/time.Second), 10) }, func(c *Config, v string) bool {
		n, ok := integer([]byte(v))
		c.Idle = time.Duration(n) * time.Second
		return ok && n >= 0 && n <= int64(timeoutMax/time.Second)
	}},
	{"maxclients", func(c *Config) string { return strconv.Itoa(c.MaxClients) }, func(c *Config, v string) bool {
		n, ok := integer([]byte(v))
		c.MaxClients = int(n)
		return ok && n >= 1 && n <= connsMax
	}},
	{"slowlog-log-slower-than", func(c *Config) string { return strconv.FormatInt(microseconds(c.SlowerThan), 10) }, func(c *Config, v string) bool {
		n, ok := integer([]byte(v))
		if c.SlowerThan = time.Duration(n) * time.Microsecond; n < 0 {
			c.SlowerThan = -1
		}
		return ok && n <= timeoutMax.Microseconds()
	}},
	{"slowlog-max-len", func(c *Config) string { return strconv.Itoa(c.SlowlogLen) }, func(c *Config, v string) bool {
		n, ok := integer([]byte(v))
		c.SlowlogLen = int(n)
		return ok && n >= 0 && n <= slowlogMax
	}},
	{"loglevel", func(c *Config) string {
		if c.Level == nil {
			return ""
		}
		return levelName(c.Level.Level())
	}, func(c *Config, v string) bool {
		level, ok := logLevels[strings.ToLower(v)]
		if !ok || c.Level == nil {
			return false
		}
		c.Level.SetLevel(level)
		return true
	}},
	// What Disque's way of a restart sets: here a restart keeps everything anyway.
	{"aof-enqueue-jobs-once", func(c *Config) string { return yesNo(c.enqueueOnce) }, func(c *Config, v string) bool {
		c.enqueueOnce = strings.EqualFold(v, "yes")
		return c.enqueueOnce || strings.EqualFold(v, "no")
	}},
	// The log is always on, and always synced.
	{"appendonly", func(*Config) string { return "yes" }, func(_ *Config, v string) bool { return strings.EqualFold(v, "yes") }},
	{"appendfsync", func(*Config) string { return "always" }, func(_ *Config, v string) bool { return strings.EqualFold(v, "always") }},
	{"maxmemory-policy", func(*Config) string { return "noeviction" }, func(_ *Config, v string) bool { return strings.EqualFold(v, "noeviction") }},
}

func microseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Microseconds()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// logLevels are Disque's words for ours.
var logLevels = map[string]zapcore.Level{"debug": zap.DebugLevel, "verbose": zap.InfoLevel, "notice": zap.InfoLevel, "warning": zap.WarnLevel}

func levelName(l zapcore.Level) string {
	switch {
	case l <= zap.DebugLevel:
		return "debug"
	case l == zap.InfoLevel:
		return "notice"
	}
	return "warning"
}

// config is CONFIG GET pattern, SET name value, RESETSTAT and REWRITE.
func config(c *session, args [][]byte) {
	switch sub, n := args[1], len(args); {
	case is(sub, "get") && n == 3:
		c.configGet(string(args[2]))
	case is(sub, "set") && n == 4:
		if err := c.s.configSet(strings.ToLower(string(args[2])), string(args[3])); err != nil {
			c.fail(err)
			return
		}
		c.ok()
	case is(sub, "resetstat") && n == 2:
		c.s.stats.reset()
		c.ok()
	case is(sub, "rewrite") && n == 2:
		if err := c.s.configRewrite(); err != nil {
			c.fail(err)
			return
		}
		c.ok()
	default:
		c.fail(refuse("ERR", "CONFIG takes GET pattern, SET name value, RESETSTAT or REWRITE"))
	}
}

func (c *session) configGet(pattern string) {
	var found []string
	match := func(name, value string) {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			found = append(found, name, value)
		}
	}
	cfg := c.s.live.get()
	for i := range settings {
		match(settings[i].name, settings[i].get(cfg))
	}
	for _, name := range c.s.factNames() {
		match(name, c.s.opts.Facts[name])
	}
	c.array(len(found))
	for _, v := range found {
		c.bulk(v)
	}
}

func (s *Server) factNames() []string {
	names := make([]string, 0, len(s.opts.Facts))
	for name := range s.opts.Facts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Server) configSet(name, value string) error {
	for i := range settings {
		if settings[i].name != name {
			continue
		}
		s.live.writing.Lock()
		defer s.live.writing.Unlock()
		cfg := *s.live.get()
		if !settings[i].set(&cfg, value) {
			return refuse("ERR", "'%s' is no value that %s takes", shown([]byte(value)), name)
		}
		s.live.set(cfg)
		if s.live.changed == nil {
			s.live.changed = map[string]string{}
		}
		s.live.changed[name] = value
		return nil
	}
	if _, ok := s.opts.Facts[name]; ok {
		return refuse("ERR", "%s cannot be changed while the node runs", name)
	}
	return refuse("ERR", "there is no parameter '%s'", shown([]byte(name)))
}

// configRewrite writes what CONFIG SET changed into the file that the node was
// started with: lines of the same names are replaced, others stay.
func (s *Server) configRewrite() error {
	if s.opts.ConfigFile == "" {
		return refuse("ERR", "the node was started without --disque-conf, there is no file to rewrite")
	}
	s.live.writing.Lock()
	defer s.live.writing.Unlock()
	old, err := os.ReadFile(s.opts.ConfigFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refuse("ERR", "rewrite the configuration: %v", err)
	}
	if err := replaceFile(s.opts.ConfigFile, rewritten(string(old), s.live.changed)); err != nil {
		return refuse("ERR", "rewrite the configuration: %v", err)
	}
	return nil
}

func rewritten(old string, changed map[string]string) string {
	done := map[string]bool{}
	var out []string
	for line := range strings.Lines(old) {
		line = strings.TrimRight(line, "\r\n")
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.ToLower(name)
		value, ok := changed[name]
		if ok && done[name] {
			continue
		}
		if ok {
			line = name + " " + quoted(value)
			done[name] = true
		}
		out = append(out, line)
	}
	names := make([]string, 0, len(changed))
	for name := range changed {
		if !done[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, name+" "+quoted(changed[name]))
	}
	return strings.Join(out, "\n") + "\n"
}

// quoted is a value as a line of the file holds it.
func quoted(v string) string {
	if v != "" && !strings.ContainsAny(v, " \t\"'\\#") && strconv.CanBackquote(v) {
		return v
	}
	return strconv.Quote(v)
}

// replaceFile writes a file whole or not at all, with the mode it had.
func replaceFile(name, text string) (err error) {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it may be gone
		}
	}()
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("put it in place: %w", err)
	}
	return nil
}
