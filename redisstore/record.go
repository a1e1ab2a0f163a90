package redisstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// The binary forms of a message. Numbers are little-endian; double is an IEEE 754 double that
// holds a whole number below 2^53, because that is what Lua reckons with.
//
// What never changes (hash m); the script of push writes the first three fields, and this
// program the rest:
//
//	version(4 bits)=1 flags(4 bits) created(double) due(double) maxAttempts(4) [expireAfter(double)]
//	uvarint number of headers { uvarint length, name, uvarint length, value }, by name
//	body
//
// What changes (hash s); written by the scripts alone:
//
//	version(1)=1 flags(1) reason(1) failures(1) attempt(4) token(double)
//	due(double) maxAttempts(4) [firstDue(double)] [expireAfter(double)]
//	{ attempt(4) at(double) length(2) error }, oldest first
//
// firstDue and expireAfter are there if the flags say so; else the first due time is due. docs/format-redis.md has the law of changing them.
const (
	recordVersion    = 1
	messageHeadBytes = 21
)

// Flags of both forms.
const (
	flagDrop    = 1
	flagCancel  = 2 // of a state
	flagExpires = 4
	flagFirst   = 16 // of a state
)

// reasons by their number in a state.
var reasons = [...]punctual.DeathReason{"", punctual.ReasonDiscarded, punctual.ReasonAttemptsUsedUp, punctual.ReasonExpired}

// stored is a message as two records tell it.
type stored struct {
	drop        bool
	maxAttempts int
	created     int64
	expireAfter int64 // 0: never
	headers     map[string]string
	body        []byte

	cancel   bool
	reason   punctual.DeathReason
	attempt  int
	token    int64
	due      int64
	firstDue int64
	failures []punctual.Failure
}

// restBytes is how long appendRest makes a message.
func restBytes(m *punctual.NewMessage) int {
	n := 4 + uvarintBytes(len(m.Headers)) + len(m.Body)
	if m.ExpireAfter > 0 {
		n += 8
	}
	for k, v := range m.Headers {
		n += textBytes(k) + textBytes(v)
	}
	return n
}

func textBytes(s string) int { return uvarintBytes(len(s)) + len(s) }

func uvarintBytes(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

func messageFlags(m *punctual.NewMessage) (flags byte) {
	if m.DropExpired {
		flags |= flagDrop
	}
	if m.ExpireAfter > 0 {
		flags |= flagExpires
	}
	return flags
}

// appendRest appends the part of a message's record that this program writes.
func appendRest(b []byte, m *punctual.NewMessage) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(m.MaxAttempts))
	if m.ExpireAfter > 0 {
		b = appendDouble(b, float64(storekit.CeilDuration(m.ExpireAfter)))
	}
	b = binary.AppendUvarint(b, uint64(len(m.Headers)))
	if len(m.Headers) > 0 {
		for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
			b = appendText(appendText(b, k), m.Headers[k])
		}
	}
	return append(b, m.Body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendDouble(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
}

// decodeMessage reads a message as it was pushed. Nothing of it stays part of record.
func decodeMessage(id, record string) (stored, error) {
	var m stored
	d := decoder{b: record}
	kind := d.byte()
	version, flags := kind>>4, kind&0x0f
	m.drop = flags&flagDrop != 0
	m.created, m.due = d.double(), d.double()
	m.firstDue = m.due
	m.maxAttempts = int(d.uint32())
	if flags&flagExpires != 0 {
		m.expireAfter = d.double()
	}
	m.headers = d.headers()
	if d.b != "" {
		m.body = []byte(d.b)
	}
	if d.bad || version != recordVersion {
		return m, unreadable("message", id, version, len(record))
	}
	return m, nil
}

// addState reads what has changed since.
func (m *stored) addState(id, state string) error {
	d := decoder{b: state}
	version, flags, reason, failures := d.byte(), d.byte(), d.byte(), d.byte()
	m.cancel = flags&flagCancel != 0
	m.attempt = int(d.uint32())
	m.token, m.due = d.double(), d.double()
	d.uint32() // maxAttempts again, for the scripts
	if m.firstDue = m.due; flags&flagFirst != 0 {
		m.firstDue = d.double()
	}
	if flags&flagExpires != 0 {
		d.double() // expireAfter again, for the scripts
	}
	for range failures {
		m.failures = append(m.failures, d.failure())
	}
	if d.bad || version != recordVersion || int(reason) >= len(reasons) {
		return unreadable("state of message", id, version, len(state))
	}
	m.reason = reasons[reason]
	return nil
}

func unreadable(what, id string, version byte, n int) error {
	return fmt.Errorf("%s %s has version %d and %d bytes; this program reads version %d: %w", what, id, version, n, recordVersion, punctual.ErrCorrupt)
}

// message is what is stored as its readers see it.
func (m *stored) message(topic, id string) punctual.Message {
	return punctual.Message{
		ID: id, Topic: topic, Body: m.body, Headers: m.headers,
		Due: storekit.FromMillis(m.due), FirstDue: storekit.FromMillis(m.firstDue), Attempt: m.attempt, MaxAttempts: m.maxAttempts,
		Created:     storekit.FromMillis(m.created),
		Expires:     storekit.ExpiresAt(storekit.FromMillis(m.firstDue), millis(m.expireAfter)),
		DropExpired: m.drop,
	}
}

// millis is a number of milliseconds as a duration. The longest expiry does not fit when
// rounded up to whole milliseconds; it lies beyond MaxDue anyway.
func millis(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// decoder takes fields off the front of b; bad is set once something did not fit.
type decoder struct {
	b   string
	bad bool
}

// take returns a part of b, or nothing if that does not have as many bytes.
func (d *decoder) take(n uint64) string {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, ""
		return ""
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte { return byte(d.littleEndian(1)) }

func (d *decoder) uint32() uint32 { return uint32(d.littleEndian(4)) }

func (d *decoder) double() int64 { return int64(math.Float64frombits(d.littleEndian(8))) }

func (d *decoder) littleEndian(bytes uint64) (n uint64) {
	for i, b := range []byte(d.take(bytes)) {
		n |= uint64(b) << (8 * i)
	}
	return n
}

func (d *decoder) uvarint() (n uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := d.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	d.bad = true
	return 0
}

func (d *decoder) text() string { return strings.Clone(d.take(d.uvarint())) }

func (d *decoder) headers() map[string]string {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	h := make(map[string]string)
	for range n {
		if d.bad {
			return nil
		}
		k := d.text()
		h[k] = d.text()
	}
	return h
}

func (d *decoder) failure() punctual.Failure {
	f := punctual.Failure{Attempt: int(d.uint32()), At: storekit.FromMillis(d.double())}
	f.Error = strings.Clone(d.take(d.littleEndian(2)))
	return f
}
