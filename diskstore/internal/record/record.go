// Package record is what the embedded store keeps of a message: its position in the order of its
// topic, its record, its lease, and its finished record. The package also has the bytes of all of
// these but leases, whose bytes are those of package claimlog. The package knows no files and no
// keys, and has no state.
package record

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Record is a stored message, live or dead. Its bytes are
//
//	version(1)=1 flags(1)                             flags: 1 expires, 2 dropExpired, 4 cancel, 8 dead, 16 firstDue,
//	                                                  32 attributes, 64 sinceCreated, 128 since
//	attempts newest maxAttempts                       uvarint each
//	created due                                       varint each, ms
//	firstDue                 if flags&flagFirstDue    varint, ms; else it is due
//	since                    if flags&flagSince       varint, ms; created if flags&flagSinceCreated, otherwise 0
//	expires expireAfter      if flags&flagExpires     varint, uvarint, ms
//	died len reason          if flags&flagDead        varint, uvarint, bytes
//	len attributes           if flags&flagAttributes  uvarint, bytes: a block of storekit.Attributes
//	len id                                            uvarint, bytes
//	count { len name, len value }                     headers, sorted by name
//	count { attempt, at, len error }                  failures, oldest first; at is a varint in ms, the others uvarint
//	body                                              the rest
//
// The compatibility rules: all flags are in use, so a new field raises the version of the record
// and directory.FormatVersion. What no order depends on is an attribute, and changes neither.
// Blocks of the database carry checksums, so the record has none of its own.
type Record struct {
	// The facts on which the life of the message depends. Token and LeaseUntil are not among the
	// stored bytes, because the claim log has them: they are zero after Decode, until Lease.AddTo
	// sets them.
	lifecycle.Message
	ID      string
	Created int64 // Unix milliseconds
	// Newest is the newest lease token whose effects are in the record. A lease of the claim log
	// whose token is not above Newest is over. Newest never sinks, whereas Token becomes 0 when the
	// message waits again or dies.
	Newest int64
	// Attributes is the block of the message's attributes, nil for none. The attribute Remember is
	// in Message, too, because rules depend on it.
	Attributes []byte
	Headers    map[string]string
	Failures   []punctual.Failure
	Body       []byte
}

// Version begins every record.
const Version = 1

const (
	flagExpires = 1 << iota
	flagDropExpired
	flagCancel
	flagDead
	flagFirstDue
	flagAttributes
	flagSinceCreated
	flagSince
)

// Encode returns the bytes of the record.
func (r *Record) Encode() []byte {
	b := make([]byte, 0, 64+len(r.ID)+len(r.Body)+64*len(r.Headers)+128*len(r.Failures))
	expires, mayExpire := r.Expires()
	dead := r.Reason != ""
	var flags byte
	for _, b := range []struct {
		on   bool
		flag byte
	}{{mayExpire, flagExpires}, {r.DropExpired, flagDropExpired}, {r.CancelRequested, flagCancel}, {dead, flagDead}, {r.FirstDue != r.Due, flagFirstDue}, {len(r.Attributes) > 0, flagAttributes}} {
		if b.on {
			flags |= b.flag
		}
	}
	switch {
	case r.Since == 0 || dead: // a dead message does not wait
	case r.Since == r.Created:
		flags |= flagSinceCreated
	default:
		flags |= flagSince
	}
	b = append(b, Version, flags)
	b = binary.AppendUvarint(b, uint64(r.Attempts))
	b = binary.AppendUvarint(b, uint64(r.Newest))
	b = binary.AppendUvarint(b, uint64(r.MaxAttempts))
	b = binary.AppendVarint(b, r.Created)
	b = binary.AppendVarint(b, r.Due)
	if r.FirstDue != r.Due {
		b = binary.AppendVarint(b, r.FirstDue)
	}
	if flags&flagSince != 0 {
		b = binary.AppendVarint(b, r.Since)
	}
	if mayExpire {
		b = binary.AppendVarint(b, expires)
		b = binary.AppendUvarint(b, uint64(r.ExpireAfter))
	}
	if dead {
		b = binary.AppendVarint(b, r.Died)
		b = appendString(b, string(r.Reason))
	}
	if len(r.Attributes) > 0 {
		b = append(binary.AppendUvarint(b, uint64(len(r.Attributes))), r.Attributes...)
	}
	b = appendString(b, r.ID)
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	if len(r.Headers) > 0 { // sorting none costs two allocations
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			b = appendString(appendString(b, name), r.Headers[name])
		}
	}
	return append(appendFailures(b, r.Failures), r.Body...)
}

func appendFailures(b []byte, fs []punctual.Failure) []byte {
	b = binary.AppendUvarint(b, uint64(len(fs)))
	for _, f := range fs {
		b = binary.AppendUvarint(b, uint64(f.Attempt))
		b = binary.AppendVarint(b, storekit.Millis(f.At))
		b = appendString(b, f.Error)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode reads a record. The body aliases b, or is nil when empty; everything else is copied.
// Decode skips the stored time of expiry, because it follows from FirstDue and ExpireAfter.
func Decode(b []byte) (*Record, error) {
	r := new(Record)
	flags, d, err := r.decodeHead(b)
	if err != nil {
		return nil, err
	}
	if flags&flagExpires != 0 {
		_, r.ExpireAfter = d.Varint(), int64(d.Uvarint())
	}
	if flags&flagDead != 0 {
		if r.Died, r.Reason = d.Varint(), punctual.DeathReason(d.String()); r.Reason == "" && !d.Bad {
			return nil, errkind.Corruptf("message record of %d bytes is that of a dead message without a reason", len(b))
		}
	}
	if flags&flagAttributes != 0 {
		r.Attributes = []byte(d.String())
	}
	if len(r.Attributes) > 0 && !d.Bad {
		a, err := storekit.ReadAttributes(r.Attributes)
		if err != nil {
			return nil, errkind.Corruptf("message record of %d bytes: %v", len(b), err)
		}
		r.Remember = storekit.CeilDuration(a.Remember)
	}
	r.ID = d.String()
	if n := d.Uvarint(); n > 0 {
		r.Headers = make(map[string]string)
		for ; n > 0 && !d.Bad; n-- {
			name := d.String()
			r.Headers[name] = d.String()
		}
	}
	r.Failures = d.failures()
	if len(d.Rest) > 0 {
		r.Body = d.Rest
	}
	if d.Bad {
		return nil, errkind.Corruptf("message record of %d bytes is cut short", len(b))
	}
	return r, nil
}

// Since reads Message.Since of a record and no more.
func Since(b []byte) (int64, error) {
	var r Record
	_, d, err := r.decodeHead(b)
	if err == nil && d.Bad {
		err = errkind.Corruptf("message record of %d bytes is cut short", len(b))
	}
	return r.Since, err
}

// decodeHead reads a record up to Since, and returns its flags and what is left to be read.
func (r *Record) decodeHead(b []byte) (flags byte, d Decoder, err error) {
	if len(b) < 2 {
		return 0, d, errkind.Corruptf("message record of %d bytes is cut short", len(b))
	}
	if b[0] != Version {
		return 0, d, errkind.Corruptf("message record has version %d, this program reads %d", b[0], Version)
	}
	flags, d.Rest = b[1], b[2:]
	r.Attempts, r.Newest, r.MaxAttempts = int(d.Uvarint()), int64(d.Uvarint()), int(d.Uvarint())
	r.Created, r.Due = d.Varint(), d.Varint()
	r.DropExpired, r.CancelRequested = flags&flagDropExpired != 0, flags&flagCancel != 0
	if r.FirstDue = r.Due; flags&flagFirstDue != 0 {
		r.FirstDue = d.Varint()
	}
	switch {
	case flags&flagSinceCreated != 0:
		r.Since = r.Created
	case flags&flagSince != 0:
		r.Since = d.Varint()
	}
	return flags, d, nil
}

// Decoder takes fields off the front of Rest. Bad is set once something did not fit.
type Decoder struct {
	Rest []byte
	Bad  bool
}

// Uvarint takes a number as binary.AppendUvarint writes it.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.Rest)
	if n <= 0 {
		d.Bad, d.Rest = true, nil
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// Uint32 takes a number as Uvarint does. A number that does not fit into 32 bits sets Bad.
func (d *Decoder) Uint32() uint32 {
	v := d.Uvarint()
	if v > math.MaxUint32 {
		d.Bad, d.Rest = true, nil
		return 0
	}
	return uint32(v)
}

// Varint takes a number as binary.AppendVarint writes it.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.Rest)
	if n <= 0 {
		d.Bad, d.Rest = true, nil
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// String takes a length and that many bytes.
func (d *Decoder) String() string {
	n := d.Uvarint()
	if n > uint64(len(d.Rest)) {
		d.Bad, d.Rest = true, nil
		return ""
	}
	s := string(d.Rest[:n])
	d.Rest = d.Rest[n:]
	return s
}

// failures takes what appendFailures has written.
func (d *Decoder) failures() (fs []punctual.Failure) {
	for n := d.Uvarint(); n > 0 && !d.Bad; n-- {
		fs = append(fs, punctual.Failure{Attempt: int(d.Uvarint()), At: storekit.FromMillis(d.Varint()), Error: d.String()})
	}
	return fs
}

// Public is the message as readers see it. It shares body and headers with the record.
func (r *Record) Public(topic string) punctual.Message {
	m := punctual.Message{ID: r.ID, Topic: topic, Body: r.Body, Headers: r.Headers, Created: storekit.FromMillis(r.Created)}
	r.Fill(&m)
	if a, err := storekit.ReadAttributes(r.Attributes); err == nil { // there is no error, because Decode has read the same block
		a.Set(&m)
	}
	return m
}
