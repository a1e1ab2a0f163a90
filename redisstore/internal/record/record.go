// Package record has the binary forms of a message in Redis, and of the lists that scripts are
// given. It has no state.
package record

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
// What never changes (hash m). Of a pushed message the scripts write the fields up to due, and this
// program the rest; the message of an event is written by the scripts as a whole (lua/events.lua):
//
//	version(4 bits) flags(4 bits) created(double) due(double) maxAttempts(4)
//	[expireAfter(double)] [remember(double)] [uvarint length, block of attributes (storekit.Attributes)]
//	uvarint number of headers { uvarint length, name, uvarint length, value }, by name
//	body
//
// What changes (hash s); written by the scripts alone:
//
//	version(1) flags(1) reason(1) failures(1) attempt(4) token(double)
//	due(double) maxAttempts(4) [created(double) began(double) [remember(double)]]
//	[since(double) began(double)] [firstDue(double)] [expireAfter(double)]
//	{ attempt(4) at(double) length(2) error }, oldest first
//
// A message of version 2 has the field remember, for how long its ID is remembered, at a place
// where scripts find it; the block of attributes says the same to this program. From its push on
// such a message has a state of version 3, which repeats remember. A state of version 2 or 3 says
// when the message was created and when its lease began. A state whose version has flagLeaseTimes
// added has since, when the lease was given or last extended, and began. firstDue and expireAfter
// are there if the flags say so; without firstDue the first due time is due. docs/format-redis.md
// has the rules for changing these forms.
const (
	formatVersion = 1
	// timedVersion is the version of a state with the times created and began, which finished
	// records and events need.
	timedVersion = 2
	// rememberVersion is the version of a state with these times and remember.
	rememberVersion = 3
	// HeadBytes is the length of a message from version to maxAttempts, which is all that comes
	// before the optional fields.
	HeadBytes = 21
)

// Flags of messages and states, as far as this program reads or writes them.
const (
	flagDrop       = 1
	flagCancel     = 2 // of a state
	flagExpires    = 4
	flagFirst      = 16 // of a state
	flagAttributes = 8  // of a message: a block of attributes is there
	// flagRemember is added to the first byte of a message and makes version 2 of version 1 there,
	// so that it needs no bit of its own.
	flagRemember = 16
	// flagLeaseTimes is added to the version of a state that has the fields since and began.
	flagLeaseTimes = 16
)

// reasons by their number in a state.
var reasons = [...]punctual.DeathReason{"", punctual.ReasonDiscarded, punctual.ReasonAttemptsUsedUp, punctual.ReasonExpired}

// Message is a message as decoded from its two records. Times are in ms.
type Message struct {
	drop        bool
	maxAttempts int
	created     int64
	expireAfter int64 // 0: never
	attributes  storekit.Attributes
	headers     map[string]string
	body        []byte

	Attempt  int // how many attempts there were
	Due      int64
	FirstDue int64 // from which the expiry counts
	Cancel   bool  // the message is not to be delivered again
	Reason   punctual.DeathReason
	Failures []punctual.Failure
}

// Read reads the two records of a message. state is empty for a message without a state: it waits
// as it was pushed, or is under a compact lease, whose token is in the score. The Message refers to
// no memory of the records.
func Read(id, message, state string) (Message, error) {
	m, err := readMessage(id, message)
	if err == nil && state != "" {
		err = m.addState(id, state)
	}
	return m, err
}

// ReasonNumber returns the number of a reason in a state.
func ReasonNumber(r punctual.DeathReason) int { return slices.Index(reasons[:], r) }

// RestBytes returns how many bytes AppendRest appends for a message.
func RestBytes(m *punctual.NewMessage) int {
	n := 4 + uvarintBytes(len(m.Headers)) + len(m.Body)
	if block := storekit.NewAttributes(m).Block(); block != nil {
		n += uvarintBytes(len(block)) + len(block)
	}
	if m.ExpireAfter > 0 {
		n += 8
	}
	if m.Remember > 0 {
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

// Flags returns the flags of a message that is pushed, with flagRemember.
func Flags(m *punctual.NewMessage) (flags byte) {
	if m.DropExpired {
		flags |= flagDrop
	}
	if m.ExpireAfter > 0 {
		flags |= flagExpires
	}
	if m.Remember > 0 {
		flags |= flagRemember
	}
	if storekit.NewAttributes(m) != (storekit.Attributes{}) {
		flags |= flagAttributes
	}
	return flags
}

// AppendRest appends the part of a message's record that this program writes, which is all behind
// due.
func AppendRest(b []byte, m *punctual.NewMessage) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(m.MaxAttempts))
	if m.ExpireAfter > 0 {
		b = AppendDouble(b, float64(storekit.CeilDuration(m.ExpireAfter)))
	}
	if m.Remember > 0 {
		b = AppendDouble(b, float64(storekit.CeilDuration(m.Remember)))
	}
	if block := storekit.NewAttributes(m).Block(); block != nil {
		b = append(binary.AppendUvarint(b, uint64(len(block))), block...)
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

// AppendDouble appends a number in the form in which Lua has its numbers.
func AppendDouble(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
}

// readMessage reads the record of the hash m: a message as it was pushed.
func readMessage(id, record string) (Message, error) {
	var m Message
	d := decoder{b: record}
	kind := d.byte()
	version, flags := kind>>4, kind&0x0f
	m.drop = flags&flagDrop != 0
	m.created, m.Due = d.double(), d.double()
	m.FirstDue = m.Due
	m.maxAttempts = int(d.uint32())
	if flags&flagExpires != 0 {
		m.expireAfter = d.double()
	}
	if version == formatVersion+1 {
		m.attributes.Remember = Millis(d.double()) // a message from before there were blocks of attributes has remember here alone
	}
	if flags&flagAttributes != 0 {
		var err error
		if m.attributes, err = storekit.ReadAttributes([]byte(d.take(d.uvarint()))); err != nil {
			return m, fmt.Errorf("message %s: %w: %w", id, err, punctual.ErrCorrupt)
		}
	}
	m.headers = d.headers()
	if d.b != "" {
		m.body = []byte(d.b)
	}
	if d.bad || version != formatVersion && version != formatVersion+1 {
		return m, unreadable("message", id, version, formatVersion+1, len(record))
	}
	return m, nil
}

// addState reads the record of the hash s: what has changed since the push.
func (m *Message) addState(id, state string) error {
	d := decoder{b: state}
	version, flags, reason, failures := d.byte(), d.byte(), d.byte(), d.byte()
	m.Cancel = flags&flagCancel != 0
	m.Attempt = int(d.uint32())
	d.double() // token
	m.Due = d.double()
	d.uint32() // maxAttempts again, for the scripts
	leaseTimes := version > flagLeaseTimes
	if leaseTimes {
		version -= flagLeaseTimes
	}
	if version >= timedVersion {
		d.double() // when it was created, again
		d.double() // when its lease began
	}
	if version == rememberVersion {
		d.double() // remember again, for the scripts
	}
	if leaseTimes {
		d.double() // when the lease was given or last extended
		d.double() // when it began
	}
	if m.FirstDue = m.Due; flags&flagFirst != 0 {
		m.FirstDue = d.double()
	}
	if flags&flagExpires != 0 {
		d.double() // expireAfter again, for the scripts
	}
	for range failures {
		m.Failures = append(m.Failures, d.failure())
	}
	if d.bad || version < formatVersion || version > rememberVersion || int(reason) >= len(reasons) {
		return unreadable("state of message", id, version, rememberVersion, len(state))
	}
	m.Reason = reasons[reason]
	return nil
}

func unreadable(what, id string, version, newest byte, n int) error {
	return fmt.Errorf("%s %s has version %d and %d bytes; this program reads versions 1 to %d: %w", what, id, version, n, newest, punctual.ErrCorrupt)
}

// In returns the message as readers of its topic see it.
func (m *Message) In(topic, id string) punctual.Message {
	out := punctual.Message{
		ID: id, Topic: topic, Body: m.body, Headers: m.headers,
		Due: storekit.FromMillis(m.Due), FirstDue: storekit.FromMillis(m.FirstDue), Attempt: m.Attempt, MaxAttempts: m.maxAttempts,
		Created:     storekit.FromMillis(m.created),
		Expires:     storekit.ExpiresAt(storekit.FromMillis(m.FirstDue), Millis(m.expireAfter)),
		DropExpired: m.drop,
	}
	m.attributes.Set(&out)
	return out
}

// Millis returns a number of milliseconds as a duration. The longest ExpireAfter, of 292 years, was
// rounded up to whole milliseconds and does not fit any more. For it Millis returns the longest
// Duration, which storekit.CeilDuration rounds up to that number again.
func Millis(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// decoder takes fields off the front of b. bad is set once b was too short for a field.
type decoder struct {
	b   string
	bad bool
}

// take returns the next n bytes of b, or nothing if b has fewer.
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
