package punctual

import (
	"crypto/rand"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewID returns a new message ID: a ULID of 26 characters that sorts by the given
// time (to the millisecond) and carries 80 random bits. It is safe for concurrent use.
func NewID(now time.Time) string {
	ms := min(max(now.UnixMilli(), 0), int64(ulid.MaxTime()))
	return ulid.MustNew(uint64(ms), rand.Reader).String()
}
