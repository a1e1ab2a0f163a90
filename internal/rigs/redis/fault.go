package redisrig

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// kind is what a fault does.
type kind uint8

const (
	lose kind = iota
	hold
	repeat
	refuse
	count
	unreachable
	freeze
)

func (k kind) String() string {
	return [...]string{"the loss of an answer", "the holding of a request", "the repetition of a request", "the refusal of a request", "a count", "the refusal of a connection", "the loss of something on a forgotten connection"}[k]
}

// dialling stands for the words of a connection that is to be made.
const dialling = "dial"

// Fault is something that a proxy does, or has done, to requests.
type Fault struct {
	p      *Proxy
	kind   kind
	which  Which
	text   string // of a refusal
	wanted int    // how often it has to happen
	where  string // in which line of the test it was asked for

	mu      sync.Mutex
	left    int           // guarded by mu: how many requests it may still be done to; 0 for a count and for what Freeze does
	events  []Event       // guarded by mu: what it was done to
	changed chan struct{} // guarded by mu: closed when events grows
	pausing chan struct{} // guarded by mu: what a fault that pauses waits for, or nil
	deliver func() string // guarded by mu: sends the request that is held
	seen    int           // guarded by mu: how many requests were counted
}

// Event is one request to which a fault was done.
type Event struct {
	// Request is its words; empty for an answer that was lost on a forgotten connection.
	Request []string
	// Answer is that of the server, as it came; empty if the server did not get the request.
	Answer string
	// Again is the answer to a second copy.
	Again string
}

// String names a fault for those who read that it did not happen.
func (f *Fault) String() string { return fmt.Sprintf("%v, asked for at %s", f.kind, f.where) }

// pick reserves a fault of some kinds for a request: the first one that wants it. If count is among
// the kinds, pick also has the request counted.
func (p *Proxy) pick(words []string, of ...kind) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(of, count) {
		for _, f := range p.faults {
			f.count(words)
		}
	}
	for _, f := range p.faults {
		if slices.Contains(of, f.kind) && f.reserve(words) {
			return f
		}
	}
	return nil
}

// ask adds a fault.
func (p *Proxy) ask(f *Fault) *Fault {
	_, file, line, _ := runtime.Caller(2) // where the test called the method, such as Lose, that called ask
	f.p, f.where, f.changed = p, fmt.Sprintf("%s:%d", filepath.Base(file), line), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Lose loses the answers to the next n requests that the server carries out, each with its
// connection. An answer that is an error passes: the server has not done what it was asked to.
func (p *Proxy) Lose(n int, which Which) *Fault {
	return p.ask(&Fault{kind: lose, which: which, left: n, wanted: n})
}

// Hold keeps the next request from the server, and breaks the connection on which it came. Release
// sends it.
func (p *Proxy) Hold(which Which) *Fault {
	return p.ask(&Fault{kind: hold, which: which, left: 1, wanted: 1})
}

// Repeat sends the next request that the server carries out a second time as soon as the first copy
// has been answered. The client gets the first answer.
func (p *Proxy) Repeat(which Which) *Fault {
	return p.ask(&Fault{kind: repeat, which: which, left: 1, wanted: 1})
}

// Refuse answers the next request with an error, and the server does not get it.
func (p *Proxy) Refuse(text string, which Which) *Fault {
	return p.ask(&Fault{kind: refuse, which: which, text: text, left: 1, wanted: 1})
}

// Unreachable refuses all connections by Dial, until End.
func (p *Proxy) Unreachable() *Fault {
	everything := func([]string) bool { return true }
	return p.ask(&Fault{kind: unreachable, which: everything, left: 1 << 30, wanted: 1})
}

// Freeze forgets all connections of this moment, as a load balancer does: what is sent on them is
// thrown away, and neither side is told.
func (p *Proxy) Freeze() *Fault {
	f := p.ask(&Fault{kind: freeze, wanted: 1})
	for _, c := range p.all() {
		c.mu.Lock()
		c.frozen = f
		c.mu.Unlock()
	}
	return f
}

// Count counts the requests that come from now on; see Seen.
func (p *Proxy) Count(which Which) *Fault {
	return p.ask(&Fault{kind: count, which: which})
}

// reserve reports whether a fault is to be done to a request.
func (f *Fault) reserve(words []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 || !f.which(words) {
		return false
	}
	f.left--
	return true
}

// count counts a request, if that is what it is for.
func (f *Fault) count(words []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kind == count && f.which(words) {
		f.seen++
	}
}

// giveBack ends a reservation that came to nothing.
func (f *Fault) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left++
}

func (f *Fault) happen(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fault) missing() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted - len(f.events)
}

// Paused has the fault stop, before the client learns that it gets no answer, until Resume.
func (f *Fault) Paused() *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pausing = make(chan struct{})
	return f
}

// Resume lets a paused fault go on, now and from now on.
func (f *Fault) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.pausing)
	f.pausing = nil
}

func (f *Fault) waitForResume() {
	f.mu.Lock()
	pausing := f.pausing
	f.mu.Unlock()
	if pausing == nil {
		return
	}
	select {
	case <-pausing:
	case <-f.p.stopped:
	}
}

// Await returns what the fault was done to once it has happened as often as it was asked for.
func (f *Fault) Await() []Event {
	f.p.t.Helper()
	waitLimit := time.After(startTimeout)
	for {
		f.mu.Lock()
		events, changed := slices.Clone(f.events), f.changed
		f.mu.Unlock()
		if len(events) >= f.wanted {
			return events
		}
		select {
		case <-changed:
		case <-waitLimit:
			f.p.t.Fatalf("waited %v in vain for %v", startTimeout, f)
		}
	}
}

// Happened returns what the fault was done to. It fails the test at once if the fault has not
// happened as often as it was asked for.
func (f *Fault) Happened() []Event {
	f.p.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.events) < f.wanted {
		f.p.t.Fatalf("this test shows nothing: %v happened %d times; %d were asked for", f, len(f.events), f.wanted)
	}
	return slices.Clone(f.events)
}

// End has the fault be done to no further request. A count goes on, and connections that Freeze has
// forgotten stay forgotten.
func (f *Fault) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
}

// Seen is how many requests were counted.
func (f *Fault) Seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func (f *Fault) holds(deliver func() string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliver = deliver
}

// Release sends the request that is held, and returns what the server answers.
func (f *Fault) Release() string {
	f.p.t.Helper()
	f.Await()
	f.mu.Lock()
	deliver := f.deliver
	f.deliver = nil
	f.mu.Unlock()
	if deliver == nil {
		f.p.t.Fatalf("%v: the request was released before", f)
	}
	return deliver()
}
