package BeeDelayQueue

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// idMaker makes IDs of the form that the original's readme gives, as in
// 20210826-042-1629936000123456-0001. The parts are the date, three digits of the process's number,
// a timestamp and four digits that count. The timestamp is in microseconds here.
//
// One idMaker never makes an ID twice, since its timestamps grow from one to the next, also
// when the clock is set back. Two of them may make the same one: in containers most processes
// have the same number. So Push stores a message only if its ID is free in its topic, and
// makes another ID when it is not.
type idMaker struct {
	process int // the last three digits of the process's number
	now     func() time.Time

	mu     sync.Mutex
	micros int64 // guarded by mu: the newest timestamp, Unix microseconds
	count  int   // guarded by mu: 0 to 9999
}

// newIDMaker begins to count at a random number, so that two processes with the same number
// hardly ever make the same ID.
func newIDMaker() *idMaker {
	return &idMaker{process: os.Getpid() % 1000, now: time.Now, count: rand.IntN(10_000)}
}

// next returns a new ID. Its date is that of the local time zone, as the original's.
func (m *idMaker) next() string {
	now := m.now()
	m.mu.Lock()
	m.micros = max(m.micros+1, now.UnixMicro())
	m.count = (m.count + 1) % 10_000
	micros, count := m.micros, m.count
	m.mu.Unlock()
	date := time.UnixMicro(micros).In(now.Location()).Format("20060102")
	return fmt.Sprintf("%s-%03d-%d-%04d", date, m.process, micros, count)
}
