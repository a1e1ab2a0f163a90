package wait

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
)

// A process whose attempts find nothing delays the next ones by a random time of up to maxJitter
// ms. When its attempts find something again, it delays them no longer.
func TestJitter(t *testing.T) {
	p := &contention{}
	if at := p.withJitter(1000); at != 1000 {
		t.Errorf("put off to %d at first; want not at all", at)
	}
	for range 10 {
		p.adapt(0)
	}
	late := map[int64]bool{}
	for range 1000 {
		late[(p.withJitter(1000)-1000)/1000] = true
	}
	if len(late) != maxJitter+1 || !late[0] || !late[maxJitter] {
		t.Errorf("put off by %v ms; want 0 to %d", slices.Sorted(maps.Keys(late)), maxJitter)
	}
	if at := p.withJitter(Never); at != Never {
		t.Errorf("never was put off to %d", at)
	}
	for range 4 {
		p.adapt(1)
	}
	if at := p.withJitter(1000); at != 1000 {
		t.Errorf("put off to %d after finding something; want not at all", at)
	}
}

// P11: many processes that wait for the same messages make at most two attempts for each message,
// and no message is more than a second late. Half of the processes leave on the way, each time the
// one that has claimed most.
func TestContention(t *testing.T) {
	for _, processes := range []int{2, 8, 32} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { contend(t, processes, 4000) })
		})
	}
}

// contend has processes claim messages of which one becomes due each ms. Half of the processes
// leave on the way, each time the one that has claimed most.
func contend(t *testing.T, processes, messages int) {
	f := newFake(t, func(Part) string { return "" })
	f.processes = processes
	closing := make(chan struct{})
	var claims sync.WaitGroup
	var mu sync.Mutex
	var late []time.Duration        // guarded by mu
	took := make([]int, processes)  // guarded by mu
	gone := make([]bool, processes) // guarded by mu
	for i := range processes {
		w, nodes := open(f)
		claims.Go(func() {
			defer nodes.Close()
			defer w.Close()
			for left := false; !left; {
				r := Request{Topics: []string{"orders"}, Max: 64, Lease: time.Minute, Until: f.clock.Now() + time.Minute.Microseconds()}
				ds, err := w.Claim(t.Context(), r, closing, punctual.ErrClosed)
				mu.Lock()
				for _, d := range ds {
					late = append(late, f.handled([]punctual.Delivery{d}))
				}
				took[i] += len(ds)
				left = err != nil || gone[i]
				mu.Unlock()
			}
		})
	}
	time.Sleep(2 * time.Second)
	const ahead = 2 * time.Second
	for i := range messages {
		f.push(Part{Topic: "orders"}, fmt.Sprint(i), ahead+time.Duration(i)*time.Millisecond)
	}
	time.Sleep(ahead)
	for range processes / 2 { // the process that has claimed most finishes the claim under way, and leaves
		time.Sleep(time.Duration(messages/processes) * time.Millisecond)
		mu.Lock()
		most := slices.Index(took, slices.Max(took))
		gone[most], took[most] = true, 0
		mu.Unlock()
	}
	time.Sleep(time.Duration(messages) * time.Millisecond)
	close(closing)
	claims.Wait()
	if len(late) != messages {
		t.Fatalf("P1: %d of %d messages came", len(late), messages)
	}
	slices.Sort(late)
	_, sent := f.asked()
	t.Logf("%d claims for %d messages, late by %v (median), %v (p99), %v at most", sent, messages, late[messages/2], late[messages*99/100], late[messages-1])
	if sent > 2*messages {
		t.Errorf("%d claims for %d messages; want hardly more than one each", sent, messages)
	}
	if most := late[messages-1]; most > time.Second || late[messages*99/100] > 250*time.Millisecond {
		t.Errorf("P11: %v late at most, %v (p99)", most, late[messages*99/100])
	}
}
