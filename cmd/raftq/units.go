package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// parseDuration reads a duration with units: what time.ParseDuration reads,
// and days in front of it ("7d", "1d12h"). Negative ones are refused.
func parseDuration(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	rest, days := text, time.Duration(0)
	if n, after, found := strings.Cut(text, "d"); found {
		v, err := strconv.ParseFloat(n, 64)
		if err != nil || v < 0 || math.IsNaN(v) || v > float64(math.MaxInt64/int64(day)) {
			return 0, fmt.Errorf("%q is not a duration like 250ms, 30s, 5m or 7d", s)
		}
		if days, rest = time.Duration(v*float64(day)), after; rest == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	switch {
	case err != nil && isNumber(text):
		return 0, fmt.Errorf("%q has no unit: write 250ms, 30s, 5m or 7d", s)
	case err != nil || days+d < days:
		return 0, fmt.Errorf("%q is not a duration like 250ms, 30s, 5m or 7d", s)
	}
	return days + d, nil
}

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1}, // last: the others end with it
}

// parseSize reads a number of bytes with its unit: 512B, 64KiB, 1.5GiB, 10MB.
// Zero needs no unit.
func parseSize(s string) (int64, error) {
	text := strings.TrimSpace(s)
	if text == "0" {
		return 0, nil
	}
	for _, u := range sizeUnits {
		n, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
		if err != nil || v < 0 || math.IsNaN(v) || v*u.bytes > math.MaxInt64/2 {
			break
		}
		return int64(v * u.bytes), nil
	}
	if isNumber(text) {
		return 0, fmt.Errorf("%q has no unit: write 512B, 64KiB, 64MiB or 2GiB", s)
	}
	return 0, fmt.Errorf("%q is not a size like 512B, 64KiB, 64MiB or 2GiB", s)
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// formatSize writes a number of bytes for people.
func formatSize(n int64) string {
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64), ".0") + " " + u.suffix
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// formatAge writes a length of time for people, in at most two units.
func formatAge(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + formatAge(-d)
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return twoUnits(d, day, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := strconv.FormatInt(int64(d/large), 10) + largeName
	if rest := d % large / small; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + smallName
	}
	return text
}

// formatWhen writes a point in time as people say it: 5m3s ago, in 10s, now.
func formatWhen(t, now time.Time) string {
	switch d := t.Sub(now); {
	case d >= 10*time.Second:
		return "in " + formatAge(d.Round(time.Second)) // what was set to 10m is not 9m59s
	case d >= time.Millisecond:
		return "in " + formatAge(d)
	case d <= -time.Millisecond:
		return formatAge(-d) + " ago"
	}
	return "now"
}
