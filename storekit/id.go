package storekit

import (
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewID returns a new message ID: a ULID of 26 characters, which sorts by the given time, to the
// millisecond, and has 80 random bits.
func NewID(now time.Time) string {
	ms := min(max(now.UnixMilli(), 0), int64(ulid.MaxTime()))
	return ulid.MustNew(uint64(ms), rand.Reader).String()
}

// IDOfKey returns an ID for the n-th message, from 0, of a push whose Request has this key. A store
// that makes its IDs so gives every copy of the push the same ID, whichever process carries it out.
// The ID is a ULID that, unlike one of NewID, does not tell the time.
func IDOfKey(key string, n int) string {
	sum := sha256.Sum256([]byte("id " + strconv.Itoa(n) + " " + key))
	return ulid.ULID(sum[:16]).String()
}
