package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/punctualmq/punctual"
)

// What is read from disk may be anything. The decoders must not panic, must not allocate
// more than a small multiple of what they were given, and must read back what was written.

func someRecords() []*record {
	at := punctual.FromMillis(1_700_000_000_000)
	return []*record{
		{id: "a", due: 1, body: []byte("x")},
		{
			id: "b", attempts: 3, token: 1 << 40, maxAttempts: 9, created: -5, due: punctual.Millis(punctual.MaxDue),
			expires: 7, expireAfter: 6, dropExpired: true, cancel: true, headers: map[string]string{"k": "v", "": ""},
			failures: []punctual.Failure{{Attempt: 1, At: at, Error: "no"}, {Attempt: 2, At: at, Error: ""}}, body: []byte{},
		},
		{id: "c", dead: true, died: 12, reason: punctual.ReasonDiscarded, body: bytes.Repeat([]byte{0xff}, 300)},
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range someRecords() {
		b := r.encode()
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte{recordVersion, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}) // 2^64-1 headers
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			if !errors.Is(err, punctual.ErrCorrupt) {
				t.Errorf("error without its kind: %v", err)
			}
			return
		}
		if len(r.failures)+len(r.headers)+len(r.body)+len(r.id) > len(b) {
			t.Errorf("%d bytes became %d failures, %d headers, %d bytes", len(b), len(r.failures), len(r.headers), len(r.body)+len(r.id))
		}
		again, err := decodeRecord(r.encode())
		if err != nil {
			t.Fatalf("what was decoded does not survive: %v", err)
		}
		if !reflect.DeepEqual(normal(r), normal(again)) {
			t.Errorf("round trip: %+v became %+v", r, again)
		}
	})
}

// normal is a record without what has no meaning: nothing is stored of an expiry of 0.
func normal(r *record) record {
	n := *r
	if n.expireAfter <= 0 {
		n.expires, n.expireAfter = 0, 0
	}
	if len(n.headers) == 0 {
		n.headers = nil
	}
	n.body = append([]byte{}, n.body...)
	return n
}

// frameOf is a frame of the claim log around a payload.
func frameOf(payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

func FuzzClaimSegment(f *testing.F) {
	at := punctual.FromMillis(1_700_000_000_000)
	leases := leasePayload([]lease{
		{topic: 1, key: pos{-7, 1}, token: 5, attempt: 1, until: 99},
		{topic: 2, key: pos{7, 1 << 60}, token: 1 << 50, attempt: 2, until: 1 << 60, lapses: []punctual.Failure{{Attempt: 1, At: at, Error: punctual.ErrLeaseRanOut}}},
	})
	settled := settledPayload([]*entry{{key: pos{1, 2}, token: 3}})
	two := append(frameOf(leases), frameOf(settled)...)
	for _, b := range [][]byte{two, two[:len(two)-3], frameOf([]byte{9}), append(frameOf(settled), 0, 0, 0, 0, 0, 0, 0, 0, 0), {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1}} {
		f.Add(b, true)
		f.Add(b, false)
	}
	// A payload that checks, and claims to hold 2^64-1 lapses.
	f.Add([]byte{claimLease, 1, 1, 2, 1, 0, 1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, true)
	f.Fuzz(func(t *testing.T, b []byte, framed bool) {
		data := b
		if framed { // the checksum would keep the fuzzer out
			data = append(frameOf(leases), frameOf(b)...)
		}
		table := &claimTable{leases: make(map[uint64]lease)}
		rest, err := table.readSegment(data)
		if err != nil && !errors.Is(err, punctual.ErrCorrupt) {
			t.Errorf("error without its kind: %v", err)
		}
		if rest < 0 || rest > len(data) {
			t.Errorf("%d of %d bytes are left", rest, len(data))
		}
		if len(table.leases)+len(table.acked) > len(data) {
			t.Errorf("%d bytes became %d leases and %d acks", len(data), len(table.leases), len(table.acked))
		}
		for _, l := range table.leases {
			again := &claimTable{leases: make(map[uint64]lease)}
			if err := again.read(leasePayload([]lease{l})); err != nil || !reflect.DeepEqual(again.leases[l.key.seq], l) {
				t.Errorf("round trip: %+v became %+v, %v", l, again.leases[l.key.seq], err)
			}
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	p := pos{-1, 1<<64 - 1}
	for _, b := range [][]byte{posKey(keyLive, 7, p), forgetKey(5, 6, "id"), p.append(nil), place{keyDead, p}.append(nil), {}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if topic, p, err := parsePosKey(b); err == nil && !bytes.Equal(posKey(b[0], topic, p), b) {
			t.Errorf("key %x became %d %v", b, topic, p)
		}
		if until, topic, id, err := parseForgetKey(b); err == nil && !bytes.Equal(forgetKey(until, topic, id)[1:], b[1:]) {
			t.Errorf("key %x became %d %d %q", b, until, topic, id)
		}
		if p, err := parsePos(b); err == nil && !bytes.Equal(p.append(nil), b) {
			t.Errorf("position %x became %v", b, p)
		}
		if p, err := parsePlace(b); err == nil && !bytes.Equal(p.append(nil), b) {
			t.Errorf("place %x became %v", b, p)
		}
	})
}
