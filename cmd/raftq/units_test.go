package main

import (
	"testing"
	"time"
)

// Durations need units, days are understood, nonsense is refused.
func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "5m": 5 * time.Minute, "7d": 7 * day,
		"1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "1h30m": 90 * time.Minute, "0": 0, "0s": 0, " 1s ": time.Second,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "10", "1.5", "d", "-1d", "-5s", "1d-2h", "1d2", "5 minutes", "1w", "NaNd", "1e300d", "1d1d", "Infd"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("parseDuration(%q) = %v, want an error", in, got)
		}
	}
}

// Sizes need units, binary and decimal ones.
func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"64MiB": 64 << 20, "1KiB": 1024, "1.5GiB": 3 << 29, "2TiB": 2 << 40, "512B": 512, "10MB": 10e6, "1 MiB": 1 << 20, "0": 0, "0B": 0,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "64", "MiB", "-1B", "64mib", "64M", "1e300B", "9999999999TiB", "InfB", "NaNB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %v, want an error", in, got)
		}
	}
}

// Times for people have at most two units and never round up.
func TestFormatAge(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "850ms": 850*time.Millisecond + 999*time.Microsecond, "1s": time.Second, "1.5s": 1590 * time.Millisecond, "9.9s": 9999 * time.Millisecond,
		"10s": 10900 * time.Millisecond, "59s": 59999 * time.Millisecond, "1m": time.Minute, "5m3s": 5*time.Minute + 3*time.Second,
		"59m59s": time.Hour - 1, "2h": 2*time.Hour + 59*time.Second, "2h10m": 2*time.Hour + 10*time.Minute, "1d": day, "5d3h": 5*day + 3*time.Hour + 59*time.Minute,
		"-5s": -5 * time.Second, "400d": 400 * day,
	} {
		if got := formatAge(d); got != want {
			t.Errorf("formatAge(%v) = %s, want %s", d, got, want)
		}
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, at := range map[string]time.Time{"now": now, "in 5m": now.Add(5 * time.Minute), "3s ago": now.Add(-3 * time.Second)} {
		if got := formatWhen(at, now); got != want {
			t.Errorf("formatWhen(%v) = %s, want %s", at, got, want)
		}
	}
}
