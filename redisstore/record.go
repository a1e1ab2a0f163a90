package redisstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// The binary forms of a message. Numbers are little-endian; double is an IEEE 754 double that
// holds a whole number below 2^53, because that is what Lua reckons with.
//
// What never changes (hash m); the script of push writes the head, and this program the
// rest:
//
//	version(1)=1 flags(1) maxAttempts(4) created(double) expireAfter(double)
//	uvarint number of headers { uvarint length, name, uvarint length, value }, by name
//	body
//
// What changes (hash s); written by the scripts alone:
//
//	version(1)=1 flags(1) reason(1) failures(1) attempt(4) maxAttempts(4)
//	token(double) due(double) base(double) expireAfter(double)
//	{ attempt(4) at(double) length(2) error }, oldest first
//
// base is the due time from which the expiry counts. docs/format-redis.md has the law of
// changing them.
const (
	recordVersion    = 1
	messageHeadBytes = 22
	stateHeadBytes   = 44
	failureHeadBytes = 14
)

// Flags of both forms.
const (
	flagDrop   = 1
	flagCancel = 2 // of a state
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
	base     int64
	failures []punctual.Failure
}

// encodeRest makes the part of a message's record that this program writes.
func encodeRest(headers map[string]string, body []byte) []byte {
	n := len(body) + binary.MaxVarintLen64
	for k, v := range headers {
		n += len(k) + len(v) + 2*binary.MaxVarintLen32
	}
	b := binary.AppendUvarint(make([]byte, 0, n), uint64(len(headers)))
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		b = appendText(appendText(b, k), headers[k])
	}
	return append(b, body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendDouble(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

// decodeMessage reads a message. state is empty for one that was never claimed; due is then its
// due time. Of a message that waits, due replaces what the state says.
func decodeMessage(id, message, state string, due int64, waits bool) (stored, error) {
	var m stored
	d := decoder{b: []byte(message)}
	version, flags := d.byte(), d.byte()
	m.drop = flags&flagDrop != 0
	m.maxAttempts, m.created, m.expireAfter = int(d.uint32()), d.double(), d.double()
	m.headers = d.headers()
	if m.body = d.b; len(m.body) == 0 {
		m.body = nil
	}
	if d.bad || version != recordVersion {
		return m, unreadable("message", id, version, len(message))
	}
	m.due, m.base = due, due
	if state == "" {
		return m, nil
	}
	if err := m.addState(id, state); err != nil {
		return m, err
	}
	if waits {
		m.due = due
	}
	return m, nil
}

// addState reads what changes of a message.
func (m *stored) addState(id, state string) error {
	d := decoder{b: []byte(state)}
	version, flags, reason, failures := d.byte(), d.byte(), d.byte(), d.byte()
	m.cancel = flags&flagCancel != 0
	m.attempt = int(d.uint32())
	d.uint32() // maxAttempts again, for the scripts
	m.token, m.due, m.base = d.double(), d.double(), d.double()
	d.double() // expireAfter again
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
		Due: punctual.FromMillis(m.due), Attempt: m.attempt, MaxAttempts: m.maxAttempts,
		Created:     punctual.FromMillis(m.created),
		Expires:     punctual.ExpiresAt(punctual.FromMillis(m.base), millis(m.expireAfter)),
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
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) double() int64 {
	if v := d.take(8); v != nil {
		return int64(math.Float64frombits(binary.LittleEndian.Uint64(v)))
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string { return string(d.take(d.uvarint())) }

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
	f := punctual.Failure{Attempt: int(d.uint32()), At: punctual.FromMillis(d.double())}
	if v := d.take(2); v != nil {
		f.Error = string(d.take(uint64(binary.LittleEndian.Uint16(v))))
	}
	return f
}
