package worker

import (
	"math/rand/v2"
	"time"
)

// backoff spaces the tries of something that keeps failing. Waits begin at 50 ms and double up to 5 s. Each is up to
// half shorter at random, so that workers that failed together do not try together. The zero value is at its start.
// It is not safe for concurrent use.
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

// reset starts anew after a success and tells whether there had been failures.
func (p *backoff) reset() bool {
	failed := p.tries > 0
	p.tries = 0
	return failed
}
