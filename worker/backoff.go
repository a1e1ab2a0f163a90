package worker

import (
	"math/rand/v2"
	"time"
)

// backoff gives the waits between the tries of a call that keeps failing. Waits begin at 50 ms and
// double up to 5 s. Each is shortened at random by up to half, so that workers whose calls failed
// together do not try again together. The zero value is ready to use. It is not safe for concurrent
// use.
type backoff struct{ tries int }

const (
	shortestBackoff = 50 * time.Millisecond
	longestBackoff  = 5 * time.Second
)

// next returns how long to wait before the next try.
func (p *backoff) next() time.Duration {
	d := longestBackoff
	if p.tries < 7 { // 50 ms << 7 is beyond 5 s
		d = min(shortestBackoff<<p.tries, longestBackoff)
	}
	p.tries++
	return d - rand.N(d/2)
}
