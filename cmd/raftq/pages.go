package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"raftq/client"
)

// pageMax is how many items the API gives at once.
const pageMax = 1000

// pages reads a list page by page until it has so many items, all of them when
// limit is 0. The items are as the API wrote them; more tells that others follow.
func (s *session) pages(path, member string, query url.Values, limit int) (items []json.RawMessage, last *client.Answer, more bool, err error) {
	for {
		n := pageMax
		if limit > 0 {
			n = min(n, limit-len(items))
		}
		query.Set("limit", strconv.Itoa(n))
		var page map[string]json.RawMessage
		ans, err := s.fetch(s.read(path, query), &page)
		if err != nil {
			return nil, nil, false, err
		}
		var got []json.RawMessage
		if err := json.Unmarshal(page[member], &got); err != nil {
			return nil, nil, false, fmt.Errorf("the answer of %s is not understood: %s: %w", ans.Node, member, err)
		}
		items, last = append(items, got...), ans
		var cursor string
		if text := page["next_cursor"]; text != nil {
			if err := json.Unmarshal(text, &cursor); err != nil {
				return nil, nil, false, fmt.Errorf("the answer of %s is not understood: next_cursor: %w", ans.Node, err)
			}
		}
		if cursor == "" || limit > 0 && len(items) >= limit {
			return items, last, cursor != "", nil
		}
		query.Set("cursor", cursor)
	}
}

// printList prints a list that pages read as one answer of the API would be.
func (s *session) printList(member string, items []json.RawMessage) error {
	if items == nil {
		items = []json.RawMessage{}
	}
	return json.NewEncoder(s.out()).Encode(map[string][]json.RawMessage{member: items})
}

// decodeAll decodes items of a list.
func decodeAll[T any](items []json.RawMessage) ([]T, error) {
	all := make([]T, len(items))
	for i, item := range items {
		if err := json.Unmarshal(item, &all[i]); err != nil {
			return nil, fmt.Errorf("the answer is not understood: %w", err)
		}
	}
	return all, nil
}
