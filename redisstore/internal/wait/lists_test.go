package wait

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
)

// counting is a fake that counts how often it is asked for the number of a topic's partitions.
type counting struct {
	*fake
	mu    sync.Mutex
	asked int // guarded by mu
}

func (f *counting) Partitions(string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return 1
}

// manyTopics are numbered topics.
func manyTopics(n int) []string {
	topics := make([]string, n)
	for i := range topics {
		topics[i] = fmt.Sprint("t", i)
	}
	return topics
}

// A claim of topics that were claimed before does not ask about them again. If they were claimed in
// the same order, it uses the same wait list. Of the wait lists in which no claim waits only the
// last few are kept (P10).
func TestClaimOfManyTopicsWalksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2_000
		f := &counting{fake: newFake(t, func(Part) string { return "" })}
		nodes := NewNodes(f, 0)
		w := New(f.clock, f, nodes)
		topics := manyTopics(many)
		n, random := 0, rand.New(rand.NewPCG(seedrig.Of(t), 0))
		claim := func(topics []string) {
			topic := topics[random.IntN(len(topics))]
			n++
			f.push(Part{Topic: topic}, fmt.Sprint(n), -time.Millisecond)
			w.Notice(Part{Topic: topic}, f.clock.Now())
			r := Request{Topics: slices.Clone(topics), Max: 10, Lease: time.Minute, Until: f.clock.Now() + 10_000_000}
			ds, err := w.Claim(t.Context(), r, nil, nil)
			if err != nil || len(ds) != 1 || ds[0].Topic != topic {
				t.Fatalf("a claim brought %v, %v; want the message of %s", ds, err, topic)
			}
			f.handled(ds)
		}
		claim(topics)
		if f.asked != many {
			t.Fatalf("the first claim of %d topics asked about %d", many, f.asked)
		}
		w.mu.Lock()
		known := w.lists.find(topics)
		w.mu.Unlock()
		for range 100 {
			claim(topics)
		}
		w.mu.Lock()
		if w.lists.find(topics) != known || len(w.lists.idle) != 1 {
			t.Errorf("after 100 claims of the same topics there are %d wait lists; want the first", len(w.lists.idle))
		}
		w.mu.Unlock()
		for range 3 * idleLists {
			random.Shuffle(many, func(i, j int) { topics[i], topics[j] = topics[j], topics[i] })
			claim(topics)
		}
		claim(topics[:many/2])
		if f.asked != many {
			t.Errorf("claims of %d topics in another order asked about %d", many, f.asked-many)
		}
		w.mu.Lock()
		if n := len(w.lists.idle); n != idleLists || len(w.topics[topics[0]].members) != idleLists {
			t.Errorf("P10: nobody waits in %d waitLists that are kept, and a topic is in %d; want %d", n, len(w.topics[topics[0]].members), idleLists)
		}
		w.mu.Unlock()
		w.Close()
		nodes.Close()
	})
}

// When the next due times show that each of several topics has one message that is due, a claim
// asks all these topics at a time. It returns the messages in the order of its topics.
func TestClaimAsksTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "" })
		w, nodes := open(f)
		topics := manyTopics(asksAtOnce)
		for _, topic := range topics {
			f.push(Part{Topic: topic}, topic, -time.Second)
		}
		ds, err := w.Claim(t.Context(), Request{Topics: topics, Max: 100, Lease: time.Minute, Until: f.clock.Now() + 1_000_000}, nil, nil)
		if took := time.Duration(f.clock.Now()) * time.Microsecond; took != 3*farAway { // there to read the next due times, there and back for the claims
			t.Errorf("a claim of %d messages in as many topics took %v; want %v, one attempt after the other takes %v", asksAtOnce, took, 3*farAway, (1+2*asksAtOnce)*farAway)
		}
		var got []string
		for _, d := range ds {
			got = append(got, d.Topic)
		}
		if err != nil || !slices.Equal(got, topics) {
			t.Errorf("a claim brought %q, %v; want one of each topic, in their order", got, err)
		}
		f.handled(ds)
		w.Close()
		nodes.Close()
	})
}

// When claims of several lists of topics wait for one topic, a message of that topic goes to the
// claim that has waited longest.
func TestLongestWaitingOfSeveralGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "" })
		w, nodes := open(f)
		var mu sync.Mutex
		var order []int // guarded by mu
		var claims sync.WaitGroup
		lists := [][]string{{"a", "both"}, {"both", "b"}, {"a", "both"}, {"both"}}
		for i, topics := range lists {
			claims.Go(func() {
				ds, err := w.Claim(t.Context(), Request{Topics: topics, Max: 1, Lease: time.Minute, Until: f.clock.Now() + 60_000_000}, nil, nil)
				if err != nil || len(ds) != 1 {
					t.Errorf("claim %d: %v, %v", i, ds, err)
				}
				f.handled(ds)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			time.Sleep(time.Millisecond)
		}
		for i := range lists {
			time.Sleep(2 * time.Second)
			f.push(Part{Topic: "both"}, fmt.Sprint(i), 0)
			w.Notice(Part{Topic: "both"}, f.clock.Now())
		}
		claims.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3}) {
			t.Errorf("claims were served in the order %v; want that in which they came", order)
		}
		w.Close()
		nodes.Close()
	})
}

// P11: a message that becomes due while no claim waits comes with the next claim, within a second.
// While no claim waits the next due times are not read (P10).
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "" })
		w, nodes := open(f)
		topics := manyTopics(100)
		claim := func(wait time.Duration) ([]punctual.Delivery, error) {
			return w.Claim(t.Context(), Request{Topics: topics, Max: 1, Lease: time.Minute, Until: f.clock.Now() + wait.Microseconds()}, nil, nil)
		}
		if ds, err := claim(3 * time.Second); err != nil || len(ds) > 0 {
			t.Fatalf("claim: %v, %v", ds, err)
		}
		time.Sleep(20 * time.Second)
		heads, _ := f.asked()
		time.Sleep(20 * time.Second)
		if then, _ := f.asked(); then != heads {
			t.Errorf("P10: %d heads were read while nobody waited", then-heads)
		}
		f.push(Part{Topic: topics[70]}, "x", 0)
		ds, err := claim(time.Minute)
		if err != nil || len(ds) != 1 || f.handled(ds) > time.Second {
			t.Errorf("P11: a claim brought %v, %v", ds, err)
		}
		w.Close()
		nodes.Close()
	})
}

// When a server is behind with the polls, a claim goes by the last poll of each partition and
// returns in time. Only the first claim has to wait for a poll.
func TestClaimReturnsBesideSlowPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "" })
		f.way = 2 * time.Second
		w, nodes := open(f)
		topics := manyTopics(100)
		for i := range 10 {
			until := f.clock.Now() + 500_000
			ds, err := w.Claim(t.Context(), Request{Topics: topics, Max: 1, Lease: time.Minute, Until: until}, nil, nil)
			late := time.Duration(f.clock.Now()-until) * time.Microsecond
			if err != nil || len(ds) > 0 || (late > time.Second) != (i == 0) {
				t.Errorf("claim %d brought %v, %v, and was %v late; want the first alone to wait for a poll", i, ds, err, late)
			}
		}
		w.Close()
		nodes.Close()
	})
}

func TestIndexSet(t *testing.T) {
	random := rand.New(rand.NewPCG(seedrig.Of(t), 0))
	for _, n := range []int{1, 63, 64, 65, 200} {
		s, want := newIndexSet(n), make([]bool, n)
		for range 500 {
			i := random.IntN(n)
			want[i] = random.IntN(3) == 0
			s.set(i, want[i])
			from := random.IntN(n + 1)
			next := -1
			if from < n {
				next = slices.Index(want[from:], true)
			}
			if next >= 0 {
				next += from
			}
			if got := s.next(from); got != next {
				t.Fatalf("of %d indexes %v, the next from %d on is %d; want %d", n, want, from, got, next)
			}
		}
	}
}

// After a node stood still, all polls that were to come meanwhile come at once. Within 20 s they
// spread over the second again, because a server that reads the next due times of thousands of
// partitions at a time each second keeps everybody else waiting.
func TestPollsPartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 4_000
		f := newFake(t, func(Part) string { return "" })
		w, nodes := open(f)
		ctx, end := context.WithCancel(t.Context())
		var claims sync.WaitGroup
		claims.Go(func() {
			for ctx.Err() == nil {
				r := Request{Topics: manyTopics(many), Max: 1, Lease: time.Minute, Until: f.clock.Now() + 500_000}
				if ds, err := w.Claim(ctx, r, nil, nil); len(ds) > 0 || err != nil && ctx.Err() == nil {
					t.Errorf("a claim brought %v, %v; want nothing", ds, err)
				}
			}
		})
		// crowd returns the greatest number of partitions whose latest polls began at the same
		// time.
		crowd := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			began := make(map[int64]int)
			most := 0
			for _, topic := range w.topics {
				for _, p := range topic.parts {
					began[p.poll.begun]++
					most = max(most, began[p.poll.begun])
				}
			}
			return most
		}
		time.Sleep(20 * time.Second)
		if n := crowd(); n > 2*PartsAtOnce {
			t.Errorf("%d of %d partitions are polled at the same time before the node stood still; want at most %d", n, many, 2*PartsAtOnce)
		}
		goOn := f.stop("")
		time.Sleep(3 * time.Second)
		goOn()
		time.Sleep(500 * time.Millisecond)
		if n := crowd(); n < many/2 {
			t.Errorf("this test shows nothing: when the node went on %d of %d partitions were polled at the same time", n, many)
		}
		time.Sleep(20 * time.Second)
		if n := crowd(); n > 2*PartsAtOnce {
			t.Errorf("%d of %d partitions are polled at the same time 20 s after the node stood still; want at most %d", n, many, 2*PartsAtOnce)
		}
		end()
		claims.Wait()
		w.Close()
		nodes.Close()
	})
}
