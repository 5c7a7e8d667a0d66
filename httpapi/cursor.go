package httpapi

import (
	"encoding/base64"
	"encoding/binary"

	"raftq/fsm"
)

// A cursor is opaque to clients: base64 of what list it is of and of the place in
// it. A place is the order of the last job shown, or the name of the last queue or topic: it
// stays where it is, whatever comes and goes around it.

const (
	listOfQueues byte = 'q'
	listOfJobs   byte = 'j' // states, order, place
	listOfTopics byte = 't'
	listHeld     byte = 'c' // of a consumer: place
)

func cursorText(list byte, place []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(nil, append([]byte{list}, place...))
}

func appendNext(b, cursor []byte) []byte {
	b = append(append(b, `,"next_cursor":"`...), cursor...)
	return append(b, '"')
}

// place returns what a cursor of this list says, "" when the request has none.
func (o *options) place(list byte) (string, error) {
	switch {
	case o.cursor == "" && !o.given.has(optCursor):
		return "", nil
	case o.cursor == "" || o.cursor[0] != list:
		return "", invalid("cursor", "not a next_cursor of this list")
	}
	return o.cursor[1:], nil
}

func (v value) cursor(f *optionFact) (string, error) {
	b, err := v.text(f.name)
	if err != nil {
		return "", err
	}
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, b)
	if err != nil || len(raw) > 1+fsm.NameMax {
		return "", invalid(f.name, "not a next_cursor of an earlier answer")
	}
	return string(raw), nil
}

// jobPlace is a place in a list of jobs of these states and order.
func jobPlace(states fsm.StateSet, desc bool, at fsm.JobCursor) []byte {
	b := []byte{byte(states), 0}
	if desc {
		b[1] = 1
	}
	return binary.BigEndian.AppendUint64(b, at.Order)
}

// jobCursor reads what jobPlace wrote, for the same states and order.
func (o *options) jobCursor(states fsm.StateSet) (at fsm.JobCursor, err error) {
	place, err := o.place(listOfJobs)
	if place == "" || err != nil {
		return at, err
	}
	if len(place) != 10 || fsm.StateSet(place[0]) != states || place[1] == 1 != o.desc {
		return at, invalid("cursor", "of a list with another state or order")
	}
	return fsm.JobCursor{Order: binary.BigEndian.Uint64([]byte(place[2:])), Some: true}, nil
}

func (o *options) heldCursor() (at fsm.JobCursor, err error) {
	place, err := o.place(listHeld)
	if place == "" || err != nil {
		return at, err
	}
	if len(place) != 8 {
		return at, invalid("cursor", "not a next_cursor of this list")
	}
	return fsm.JobCursor{Order: binary.BigEndian.Uint64([]byte(place)), Some: true}, nil
}

func (o *options) pageLimit() int {
	if o.limit == 0 {
		return listDefault
	}
	return o.limit
}
