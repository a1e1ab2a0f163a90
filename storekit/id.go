package storekit

import (
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewID returns a new message ID: a ULID of 26 characters that sorts by the given
// time (to the millisecond) and carries 80 random bits. It is safe for concurrent use.
func NewID(now time.Time) string {
	ms := min(max(now.UnixMilli(), 0), int64(ulid.MaxTime()))
	return ulid.MustNew(uint64(ms), rand.Reader).String()
}

// IDOfKey returns the ID of the n-th message of a push with this key, if the store is to make it up. The ID is the
// same for each copy of the push, whichever process carries it out. It is a ULID which, unlike that of NewID, tells
// no time.
func IDOfKey(key string, n int) string {
	sum := sha256.Sum256([]byte("id " + strconv.Itoa(n) + " " + key))
	return ulid.ULID(sum[:16]).String()
}
