package diskstore

import (
	"encoding/binary"
	"slices"

	"github.com/punctualmq/punctual"
)

// record is a stored message: the value of an 'm' or 'd' key. Its bytes are
//
//	version(1)=1 flags(1)
//	attempts token maxAttempts                        uvarint each
//	created due                                       varint each, ms
//	expires expireAfter      if flags&flagExpires     varint, uvarint, ms
//	died len reason          if flags&flagDead        varint, uvarint, bytes
//	len id                                            uvarint, bytes
//	count { len name, len value }                     headers, sorted by name
//	count { attempt, at, len error }                  failures, oldest first
//	body                                              the rest
//
// The law of change: a new field takes a new flag and stands before the ID; the version
// rises only when an older program would misread the rest. Blocks of the database carry
// checksums, so the record has none of its own.
type record struct {
	id          string
	attempts    int
	token       int64
	maxAttempts int
	created     int64
	due         int64
	expires     int64 // valid if expireAfter > 0
	expireAfter int64 // 0: never
	dropExpired bool
	cancel      bool // no further attempt after the one under way (P5)
	dead        bool
	died        int64
	reason      punctual.DeathReason
	headers     map[string]string
	failures    []punctual.Failure
	body        []byte
}

const recordVersion = 1

const (
	flagExpires = 1 << iota
	flagDropExpired
	flagCancel
	flagDead
)

func (r *record) flags() byte {
	var f byte
	for _, b := range []struct {
		on   bool
		flag byte
	}{{r.expireAfter > 0, flagExpires}, {r.dropExpired, flagDropExpired}, {r.cancel, flagCancel}, {r.dead, flagDead}} {
		if b.on {
			f |= b.flag
		}
	}
	return f
}

func (r *record) encode() []byte {
	b := make([]byte, 0, 64+len(r.id)+len(r.body)+64*len(r.headers)+128*len(r.failures))
	b = append(b, recordVersion, r.flags())
	b = binary.AppendUvarint(b, uint64(r.attempts))
	b = binary.AppendUvarint(b, uint64(r.token))
	b = binary.AppendUvarint(b, uint64(r.maxAttempts))
	b = binary.AppendVarint(b, r.created)
	b = binary.AppendVarint(b, r.due)
	if r.expireAfter > 0 {
		b = binary.AppendVarint(b, r.expires)
		b = binary.AppendUvarint(b, uint64(r.expireAfter))
	}
	if r.dead {
		b = binary.AppendVarint(b, r.died)
		b = appendString(b, string(r.reason))
	}
	b = appendString(b, r.id)
	b = appendHeaders(b, r.headers)
	b = binary.AppendUvarint(b, uint64(len(r.failures)))
	for _, f := range r.failures {
		b = binary.AppendUvarint(b, uint64(f.Attempt))
		b = binary.AppendVarint(b, punctual.Millis(f.At))
		b = appendString(b, f.Error)
	}
	return append(b, r.body...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendHeaders(b []byte, h map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	if len(h) == 0 {
		return b
	}
	names := make([]string, 0, len(h))
	for k := range h {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		b = appendString(appendString(b, k), h[k])
	}
	return b
}

// decodeRecord reads a record. The body aliases b; everything else is copied.
func decodeRecord(b []byte) (*record, error) {
	d := decoder{b: b}
	version, flags := d.byte(), d.byte()
	if version != recordVersion {
		return nil, corruptf("message record has version %d, this program reads %d", version, recordVersion)
	}
	r := &record{
		attempts: int(d.uvarint()), token: int64(d.uvarint()), maxAttempts: int(d.uvarint()),
		created: d.varint(), due: d.varint(),
		dropExpired: flags&flagDropExpired != 0, cancel: flags&flagCancel != 0, dead: flags&flagDead != 0,
	}
	if flags&flagExpires != 0 {
		r.expires, r.expireAfter = d.varint(), int64(d.uvarint())
	}
	if r.dead {
		r.died, r.reason = d.varint(), punctual.DeathReason(d.string())
	}
	r.id = d.string()
	r.headers = d.headers()
	r.failures = d.failures()
	r.body = d.b
	if d.bad {
		return nil, corruptf("message record of %d bytes is cut short", len(b))
	}
	return r, nil
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
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
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

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.take(d.uvarint())) }

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
		k := d.string()
		h[k] = d.string()
	}
	return h
}

func (d *decoder) failures() []punctual.Failure {
	var fs []punctual.Failure
	for range d.uvarint() {
		if d.bad {
			return nil
		}
		fs = append(fs, punctual.Failure{
			Attempt: int(d.uvarint()), At: punctual.FromMillis(d.varint()), Error: d.string(),
		})
	}
	return fs
}

// message is the record as its readers see it. attempt and due may be newer than stored.
func (r *record) message(topic string) punctual.Message {
	m := punctual.Message{
		ID: r.id, Topic: topic, Body: r.body, Headers: r.headers,
		Due: punctual.FromMillis(r.due), Attempt: r.attempts, MaxAttempts: r.maxAttempts,
		Created: punctual.FromMillis(r.created), DropExpired: r.dropExpired,
	}
	if r.expireAfter > 0 {
		m.Expires = punctual.FromMillis(r.expires)
	}
	return m
}

// expired tells whether the message may not be delivered at now any more.
func (r *record) expired(now int64) bool { return r.expireAfter > 0 && now >= r.expires }

// moveTo gives the message a new first due time, and its expiry with it.
func (r *record) moveTo(due int64) {
	r.due = due
	if r.expireAfter > 0 {
		r.expires = expiryOf(due, r.expireAfter)
	}
}

// expiryOf is punctual.ExpiresAt in milliseconds.
func expiryOf(due, after int64) int64 {
	return min(due+after, punctual.Millis(punctual.MaxDue)+1)
}
