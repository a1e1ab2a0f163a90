package database

import (
	"bytes"
	"testing"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Damage may put any bytes on the disk. So the decoders must not panic on any bytes, and what they
// have read must be written as the same bytes again.

func FuzzParseKeys(f *testing.F) {
	p := record.Position{Ms: -1, Seq: 1<<64 - 1}
	for _, b := range [][]byte{posKey(Live, 7, p), forgetKey(keyForget, 5, 6, "id"), p.Append(nil), p.Append([]byte{keyDead}), append(p.Append([]byte{keyLive}), 1), {}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parsePosKey(b); err == nil && !bytes.Equal(posKey(Order(b[0]), uint32(beUint(b[1:5])), p), b) {
			t.Errorf("key %x became %v", b, p)
		}
		if until, topic, id, err := parseForgetKey(b); err == nil && !bytes.Equal(forgetKey(keyForget, until, topic, id)[1:], b[1:]) {
			t.Errorf("key %x became %d %d %q", b, until, topic, id)
		}
		if p, err := record.ParsePosition(b); err == nil && !bytes.Equal(p.Append(nil), b) {
			t.Errorf("position %x became %v", b, p)
		}
		if p, err := parsePlace(b); err == nil && !bytes.Equal(p.value(), b) {
			t.Errorf("place %x became %v", b, p)
		}
	})
}
