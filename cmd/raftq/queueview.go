package main

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"raftq/client"
)

// queueView is a queue as the API shows it.
type queueView struct {
	client.QueueInfo
	Configured bool            `json:"configured"`
	Version    uint64          `json:"version"` // of its configuration
	Paused     queuePaused     `json:"paused"`
	Config     json.RawMessage `json:"config"`
}

type queuePaused struct {
	In    bool      `json:"in"`
	Out   bool      `json:"out"`
	Until time.Time `json:"until,omitzero"`
}

// text says which ways are closed and for how long; "" when none is.
func (p *queuePaused) text(now time.Time) string {
	text := ""
	switch {
	case p.In && p.Out:
		text = "in and out"
	case p.In:
		text = "in"
	case p.Out:
		text = "out"
	default:
		return ""
	}
	if !p.Until.IsZero() {
		text += " for " + formatAge(max(p.Until.Sub(now), 0).Round(time.Second))
	}
	return text
}

// totals are what a queue has counted since it was made.
type totals struct{ enqueued, delivered, acked, failed uint64 }

func (q *queueView) totals() totals {
	return totals{q.EnqueuedTotal, q.DeliveredTotal, q.AckedTotal, q.FailedTotal}
}

// oldest says how long the oldest ready job has waited.
func (q *queueView) oldest() string {
	if q.Ready == 0 {
		return "-"
	}
	return formatAge(time.Duration(q.OldestReadyMs) * time.Millisecond)
}

// queues reads the queues that are named, else all whose names begin with a
// prefix. It returns them as the API wrote them, too.
func (s *session) queues(names []string, prefix string) (queues []queueView, items []json.RawMessage, ans *client.Answer, err error) {
	if len(names) == 0 {
		query := url.Values{}
		if prefix != "" {
			query.Set("prefix", prefix)
		}
		if items, ans, _, err = s.pages("/v1/queues", "queues", query, 0); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, name := range names {
		var item json.RawMessage
		if ans, err = s.fetch(s.read(queuePath(name, ""), nil), &item); err != nil {
			return nil, nil, nil, err
		}
		items = append(items, item)
	}
	queues, err = decodeAll[queueView](items)
	return queues, items, ans, err
}

func count(n int) string { return strconv.Itoa(n) }

func total(n uint64) string { return strconv.FormatUint(n, 10) }
