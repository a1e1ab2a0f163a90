package remotestore

import (
	"strings"
	"sync"
)

// answered has the keys of requests whose answers have arrived. They are sent with the next
// requests, so that the server need not keep those answers any longer.
type answered struct {
	mu   sync.Mutex
	keys []string // guarded by mu
}

// answeredAtOnce is how many keys are sent with one request. When four times as many wait already,
// further keys are dropped: the server forgets their answers after a while anyway.
const answeredAtOnce = 64

func (a *answered) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) < 4*answeredAtOnce {
		a.keys = append(a.keys, key)
	}
}

func (a *answered) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.keys), answeredAtOnce)
	out := strings.Join(a.keys[:n], ",")
	a.keys = append(a.keys[:0], a.keys[n:]...)
	return out
}
