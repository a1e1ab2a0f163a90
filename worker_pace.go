package punctual

import (
	"context"
	"math/rand/v2"
	"time"
)

// pacing spaces the tries of something that keeps failing: 50 ms, doubling up to 5 s, each
// up to half shorter at random so that workers that failed together do not try together.
// The zero value is at its start. It is not safe for concurrent use.
type pacing struct{ tries int }

const (
	shortestPace = 50 * time.Millisecond
	longestPace  = 5 * time.Second
)

// next returns how long to wait before the next try.
func (p *pacing) next() time.Duration {
	d := longestPace
	if p.tries < 7 { // 50 ms << 7 is beyond 5 s
		d = min(shortestPace<<p.tries, longestPace)
	}
	p.tries++
	return d - rand.N(d/2)
}

// reset starts anew after a success and tells whether there had been failures.
func (p *pacing) reset() bool {
	failed := p.tries > 0
	p.tries = 0
	return failed
}

// pause waits for d and reports whether it did: false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
