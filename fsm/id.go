package fsm

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Key is a job's identity inside the machine: ids and keys map to each other,
// given the node and the TTL minutes that the id shows as well.
type Key struct {
	Hi uint64 // group (16 bits) and epoch (48 bits: 16 boot counter, 32 random)
	Lo uint64 // counter within the epoch
}

// Less orders keys by (group, epoch, counter).
func (k Key) Less(o Key) bool { return k.Hi < o.Hi || k.Hi == o.Hi && k.Lo < o.Lo }

// Epoch returns the epoch part.
func (k Key) Epoch() uint64 { return k.Hi & (1<<48 - 1) }

// ID is a job's name in Disque's form, 40 bytes as text: "D-", 8 hex digits of
// the node, "-", 24 base62 digits (key: 11 + 11, check: 2), "-", 4 hex digits
// of TTL minutes (even = at most once, odd = at least once).
type ID struct {
	Key     Key
	Node    uint32
	Minutes uint16
}

// IDLen is the length of an id as text.
const IDLen = 40

const (
	base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	hexDigits    = "0123456789abcdef"
)

var base62Values = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i := range base62Digits {
		t[base62Digits[i]] = int8(i)
	}
	return t
}()

// Minutes returns what an id shows of a TTL: whole minutes up to 65535 (none
// counts as the most), with the last bit telling at-least-once from
// at-most-once.
func ttlMinutes(ttlMs int64, atMostOnce bool) uint16 {
	m := ttlMs / 60000
	if ttlMs == 0 || m > 0xffff {
		m = 0xffff
	}
	if atMostOnce {
		return uint16(m) &^ 1
	}
	return uint16(m) | 1
}

// check covers every other part of an id, so that a typing error is a bad id
// and not another job's.
func (id ID) check() byte {
	var b [22]byte
	binary.BigEndian.PutUint64(b[0:], id.Key.Hi)
	binary.BigEndian.PutUint64(b[8:], id.Key.Lo)
	binary.BigEndian.PutUint32(b[16:], id.Node)
	binary.BigEndian.PutUint16(b[20:], id.Minutes)
	return byte(xxhash.Sum64(b[:]))
}

// Append appends the id's 40 bytes.
func (id ID) Append(b []byte) []byte {
	b = append(b, 'D', '-')
	b = appendHex(b, uint64(id.Node), 8)
	b = append(b, '-')
	b = appendBase62(b, id.Key.Hi, 11)
	b = appendBase62(b, id.Key.Lo, 11)
	b = appendBase62(b, uint64(id.check()), 2)
	b = append(b, '-')
	return appendHex(b, uint64(id.Minutes), 4)
}

func (id ID) String() string { return string(id.Append(make([]byte, 0, IDLen))) }

// ParseID reads an id; ok is false for anything that Append did not make.
func ParseID[T string | []byte](s T) (id ID, ok bool) {
	if len(s) != IDLen || s[0] != 'D' || s[1] != '-' || s[10] != '-' || s[35] != '-' {
		return id, false
	}
	node, ok1 := parseHex(s[2:10])
	hi, ok2 := parseBase62(s[11:22])
	lo, ok3 := parseBase62(s[22:33])
	check, ok4 := parseBase62(s[33:35])
	minutes, ok5 := parseHex(s[36:40])
	id = ID{Key{hi, lo}, uint32(node), uint16(minutes)}
	return id, ok1 && ok2 && ok3 && ok4 && ok5 && check == uint64(id.check())
}

// Receipt proves a hand-out: id, grant number and the tag of who asked. Its
// text is "{id}.{grant}.{tag}".
type Receipt struct {
	ID    ID
	Grant uint32
	Tag   uint64
}

// ReceiptLenMax bounds a receipt as text.
const ReceiptLenMax = IDLen + 1 + 10 + 1 + 11

// Append appends the receipt as text.
func (r Receipt) Append(b []byte) []byte {
	b = r.ID.Append(b)
	b = append(b, '.')
	b = appendDecimal(b, r.Grant)
	b = append(b, '.')
	return appendBase62(b, r.Tag, 11)
}

func (r Receipt) String() string { return string(r.Append(make([]byte, 0, ReceiptLenMax))) }

// Item names the receipt's job in an op.
func (r Receipt) Item() Item { return Item{Key: r.ID.Key, Grant: r.Grant, Tag: r.Tag, DelayMs: -1} }

// ParseReceipt reads a receipt.
func ParseReceipt[T string | []byte](s T) (r Receipt, ok bool) {
	if len(s) < IDLen+4 || s[IDLen] != '.' {
		return r, false
	}
	if r.ID, ok = ParseID(s[:IDLen]); !ok {
		return r, false
	}
	rest := s[IDLen+1:]
	var grant uint64
	i := 0
	for ; i < len(rest) && rest[i] != '.'; i++ {
		if rest[i] < '0' || rest[i] > '9' || i == 10 {
			return r, false
		}
		grant = grant*10 + uint64(rest[i]-'0')
	}
	if i == 0 || rest[0] == '0' || i+1 >= len(rest) || grant > 1<<32-1 || len(rest)-i-1 != 11 {
		return r, false
	}
	r.Grant = uint32(grant)
	r.Tag, ok = parseBase62(rest[i+1:])
	return r, ok
}

// requestTag derives a receipt's tag from who asked for the hand-out.
func requestTag(epoch, request uint64) uint64 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[0:], epoch)
	binary.BigEndian.PutUint64(b[8:], request)
	return xxhash.Sum64(b[:])
}

func appendHex(b []byte, v uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		b = append(b, hexDigits[v>>(4*i)&15])
	}
	return b
}

func parseHex[T string | []byte](s T) (v uint64, ok bool) {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint64(c)
	}
	return v, true
}

func appendBase62(b []byte, v uint64, digits int) []byte {
	n := len(b)
	for range digits {
		b = append(b, '0')
	}
	for i := n + digits - 1; v > 0 && i >= n; i-- {
		b[i] = base62Digits[v%62]
		v /= 62
	}
	return b
}

func parseBase62[T string | []byte](s T) (v uint64, ok bool) {
	for i := range len(s) {
		d := base62Values[s[i]]
		if d < 0 || v > (1<<64-1)/62 {
			return 0, false
		}
		next := v*62 + uint64(d)
		if next < v*62 {
			return 0, false
		}
		v = next
	}
	return v, true
}

func appendDecimal(b []byte, v uint32) []byte {
	var t [10]byte
	i := len(t)
	for {
		i--
		t[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			return append(b, t[i:]...)
		}
	}
}

// AtMostOnce tells what kind of job the id names.
func (id ID) AtMostOnce() bool { return id.Minutes&1 == 0 }
