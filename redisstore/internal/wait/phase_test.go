package wait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
)

// holds returns where the phase of a partition does not agree with what depends on it, such as the
// partition's place in Waiter.times, the counts of ready partitions and the bits in wait lists.
func (w *Waiter) holds() (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	allReady, inTimes := 0, 0
	for _, t := range w.topics {
		readyOfTopic := 0
		for _, p := range t.parts {
			switch {
			case (p.phase == scheduled) != (p.place >= 0) || p.place >= 0 && w.times[p.place] != p:
				wrong = append(wrong, fmt.Sprintf("%v is in phase %d and has place %d", p.Part, p.phase, p.place))
			case (p.phase == asking) != (p.asked != nil):
				wrong = append(wrong, fmt.Sprintf("%v is in phase %d and asked %v", p.Part, p.phase, p.asked))
			case p.phase != polling && p.reading != nil:
				wrong = append(wrong, fmt.Sprintf("%v is in phase %d and is read", p.Part, p.phase))
			case p.phase == resting && t.waited():
				wrong = append(wrong, fmt.Sprintf("%v rests, though somebody waits for it", p.Part))
			}
			if p.phase == ready {
				readyOfTopic++
			}
			if p.phase == scheduled {
				inTimes++
			}
		}
		for _, m := range t.members {
			if marked := m.list.ready.next(m.index) == m.index; marked != (readyOfTopic > 0) {
				wrong = append(wrong, fmt.Sprintf("%d partitions of %s are ready, and its wait list says %t", readyOfTopic, t.name, marked))
			}
		}
		if t.ready != readyOfTopic {
			wrong = append(wrong, fmt.Sprintf("%d partitions of %s are ready, and %d are counted", readyOfTopic, t.name, t.ready))
		}
		allReady += readyOfTopic
	}
	if w.ready != allReady || len(w.times) != inTimes {
		wrong = append(wrong, fmt.Sprintf("%d are ready and %d scheduled; counted are %d and %d", allReady, inTimes, w.ready, len(w.times)))
	}
	return wrong
}

// What depends on the phases of the partitions agrees with them, whatever happens at the same time:
// claims that end at random, nodes that stop and go on, notifications, and topics that get more
// partitions or are failed.
func TestPhases(t *testing.T) {
	seed := seedrig.Of(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(p Part) string { return "node" + p.Topic[len(p.Topic)-1:] })
		f.processes = 2
		w, nodes := open(f)
		topics := make([]string, 30)
		for i := range topics {
			topics[i] = fmt.Sprint("t", i, "-", i%3)
		}
		quiet, closing := make(chan struct{}), make(chan struct{}) // quiet ends all goroutines but those that claim, closing these
		var others sync.WaitGroup
		generators := uint64(0)
		generator := func() *rand.Rand { // each goroutine has a generator of its own
			generators++
			return rand.New(rand.NewPCG(seed, generators))
		}
		within := func(random *rand.Rand, most time.Duration) time.Duration {
			return time.Duration(random.Int64N(int64(most)))
		}
		repeat := func(most time.Duration, until chan struct{}, f func(random *rand.Rand, n int)) {
			random := generator()
			others.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-until:
						return
					case <-time.After(within(random, most)):
						f(random, n)
					}
				}
			})
		}
		for range 6 {
			repeat(time.Millisecond, closing, func(random *rand.Rand, _ int) {
				first := random.IntN(len(topics))
				r := Request{Topics: topics[first : first+1+random.IntN(len(topics)-first)], Max: 1 + random.IntN(10), PerTopic: random.IntN(3), Lease: time.Hour}
				r.Until, r.Alone = f.clock.Now()+random.Int64N(2_000_000), random.IntN(10) == 0
				ctx, end := context.WithTimeout(t.Context(), within(random, 3*time.Second))
				defer end()
				ds, err := w.Claim(ctx, r, closing, punctual.ErrClosed)
				if err != nil && !errors.Is(err, punctual.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, punctual.ErrUnreachable) {
					t.Errorf("claim: %v", err)
				}
				f.handled(ds)
			})
		}
		repeat(20*time.Millisecond, quiet, func(random *rand.Rand, n int) {
			p := Part{Topic: topics[random.IntN(len(topics))]}
			delay := within(random, 2*time.Second) - time.Second
			f.push(p, fmt.Sprint(n), delay)
			if random.IntN(2) == 0 {
				w.Notice(p, f.clock.Now()+delay.Microseconds())
			}
		})
		repeat(time.Second, quiet, func(random *rand.Rand, _ int) {
			w.Resize(topics[random.IntN(len(topics))], 1+random.IntN(3), random.IntN(2) == 0)
			w.Notice(Part{Topic: topics[random.IntN(len(topics))]}, -Never)
		})
		repeat(3*time.Second, quiet, func(random *rand.Rand, _ int) {
			w.Fail(topics[random.IntN(len(topics))], punctual.ErrUnreachable)
		})
		repeat(5*time.Second, quiet, func(random *rand.Rand, n int) {
			goOn := f.stop("node" + fmt.Sprint(n%3))
			time.Sleep(within(random, 4*time.Second))
			goOn()
		})
		random := generator()
		checked := 0
		seen := make(map[phase]int)
		for begun := time.Now(); time.Since(begun) < 2*time.Minute; time.Sleep(within(random, 50*time.Millisecond)) {
			if wrong := w.holds(); len(wrong) > 0 {
				t.Errorf("after %v: %q", time.Since(begun), wrong)
				break
			}
			checked++
			w.mu.Lock()
			for _, topic := range w.topics {
				for _, p := range topic.parts {
					seen[p.phase]++
				}
			}
			w.mu.Unlock()
		}
		if hung, _ := f.counts(); hung == 0 || seen[ready] == 0 || seen[polling] == 0 || seen[asking] == 0 || seen[scheduled] == 0 {
			t.Errorf("this test shows nothing: %d checks saw the phases %v, and %d questions met a stopped node", checked, seen, hung)
		}
		close(quiet)
		// A node is stopped for less than 4 s, and the last message is due within 1 s.
		for begun := time.Now(); time.Since(begun) < 15*time.Second; {
			ds, err := w.Claim(t.Context(), Request{Topics: topics, Max: 10, Lease: time.Hour, Until: f.clock.Now() + 1_000_000}, nil, nil)
			if err != nil && !errors.Is(err, punctual.ErrUnreachable) {
				t.Errorf("claim: %v", err)
			}
			f.handled(ds)
		}
		if due, leased := f.left(); due > 0 || leased > 0 {
			t.Errorf("P1: once all is quiet %d messages are there and %d are leased", due, leased)
		}
		close(closing)
		others.Wait()
		w.Close()
		nodes.Close()
	})
}
