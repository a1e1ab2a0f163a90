package wait

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
)

// bubbleClock is the clock of a synctest bubble, in µs since it was made.
type bubbleClock struct{ begun time.Time }

func (c bubbleClock) Now() int64 { return time.Since(c.begun).Microseconds() }

func (c bubbleClock) After(at int64) (<-chan time.Time, func()) {
	timer := time.NewTimer(time.Duration(min(at-c.Now(), time.Hour.Microseconds())) * time.Microsecond)
	return timer.C, func() { timer.Stop() }
}

// farAway is how long the way to a fake node takes, and for a claim the way back.
const farAway = 200 * time.Microsecond

// fake is a store of nodes in memory. A question to a node that is stopped is carried out and
// answered when the node goes on.
type fake struct {
	t     *testing.T
	clock bubbleClock
	lease time.Duration
	way   time.Duration // how long the way to a node takes, and for a claim the way back
	node  func(p Part) string

	processes int

	mu       sync.Mutex
	stopped  map[string]chan struct{} // guarded by mu: closed when the node goes on
	waiting  map[Part]*dues           // guarded by mu: the messages that wait, by due time
	leased   map[string]int64         // guarded by mu: end of the lease of each message
	due      map[string]int64         // guarded by mu: when each message that is not acked was due at first
	released int                      // guarded by mu: messages that were given back
	heads    int                      // guarded by mu: how often the next due times of a partition were read
	claims   int                      // guarded by mu: attempts
	hung     int                      // guarded by mu: questions that met a stopped node
}

// message is a message that waits.
type message struct {
	id string
	at int64
}

type dues []message

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at < d[j].at }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(message)) }
func (d *dues) Pop() any {
	x := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return x
}

func newFake(t *testing.T, node func(p Part) string) *fake {
	return &fake{
		t: t, clock: bubbleClock{time.Now()}, lease: 30 * time.Second, way: farAway, node: node, stopped: make(map[string]chan struct{}),
		waiting: make(map[Part]*dues), leased: make(map[string]int64), due: make(map[string]int64),
	}
}

func (f *fake) Node(p Part) string    { return f.node(p) }
func (f *fake) Partitions(string) int { return 1 }
func (f *fake) Processes(Part) int    { return f.processes }
func (f *fake) Subscribe(Part)        {}
func (f *fake) Unsubscribe(Part)      {}
func (f *fake) Reload()               {}
func (f *fake) LeaseEnded(d *punctual.Delivery) bool {
	return f.clock.Now() >= d.LeaseUntil.UnixMicro()
}

// travel takes the way to a node, and waits there while the node is stopped.
func (f *fake) travel(node string) {
	time.Sleep(f.way)
	f.mu.Lock()
	goesOn := f.stopped[node]
	if goesOn != nil {
		f.hung++
	}
	f.mu.Unlock()
	if goesOn != nil {
		<-goesOn
	}
}

func (f *fake) Probe(p Part) error {
	f.travel(f.node(p))
	return nil
}

func (f *fake) next(p Part) int64 {
	if d := f.waiting[p]; d != nil && len(*d) > 0 {
		return (*d)[0].at
	}
	return Never
}

// second returns when the second message of a partition is due. Called with mu held.
func (f *fake) second(p Part) int64 {
	d := f.waiting[p]
	if d == nil || len(*d) < 2 {
		return Never
	}
	first := heap.Pop(d).(message)
	defer heap.Push(d, first)
	return (*d)[0].at
}

func (f *fake) NextDue(node string, ps []Part) []NextDue {
	f.travel(node)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heads += len(ps)
	out := make([]NextDue, len(ps))
	for i, p := range ps {
		if f.node(p) != node {
			f.t.Errorf("%v was asked of %s", p, node)
		}
		out[i].At, out[i].Then = f.next(p), f.second(p)
	}
	return out
}

func (f *fake) Claim(_ context.Context, p Part, n int, lease time.Duration, _ bool) Answer {
	f.travel(f.node(p))
	f.mu.Lock()
	now := f.clock.Now()
	f.claims++
	var ds []punctual.Delivery
	for len(ds) < n && f.next(p) <= now {
		m := heap.Pop(f.waiting[p]).(message)
		until := now + lease.Microseconds()
		f.leased[m.id] = until
		ds = append(ds, punctual.Delivery{Message: punctual.Message{Topic: p.Topic, ID: m.id, Due: time.UnixMicro(m.at)}, LeaseUntil: time.UnixMicro(until)})
	}
	a := Answer{Deliveries: ds, At: f.next(p), Now: now / 1000}
	f.mu.Unlock()
	time.Sleep(f.way)
	return a
}

func (f *fake) Release(_ context.Context, ds []punctual.Delivery) {
	for _, d := range ds {
		f.travel(f.node(Part{Topic: d.Topic}))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range ds {
		f.released++
		delete(f.leased, d.ID)
		f.put(Part{Topic: d.Topic}, message{d.ID, f.clock.Now()})
	}
}

// counts returns how many questions met a stopped node, and how many messages were given back.
func (f *fake) counts() (hung, released int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hung, f.released
}

// asked returns how often the next due times of a partition were read, and how many attempts of
// claims there were.
func (f *fake) asked() (heads, claims int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heads, f.claims
}

// put adds a message that waits. Called with mu held.
func (f *fake) put(p Part, m message) {
	if f.waiting[p] == nil {
		f.waiting[p] = new(dues)
	}
	heap.Push(f.waiting[p], m)
}

func (f *fake) push(p Part, id string, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.clock.Now() + delay.Microseconds()
	f.due[id] = at
	f.put(p, message{id, at})
}

// stop stops a node, and returns a function that lets it go on.
func (f *fake) stop(node string) (goOn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stopped := make(chan struct{})
	f.stopped[node] = stopped
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.stopped, node)
		close(stopped)
	}
}

// handled checks the leases of what a claim has returned, and acks the messages. It returns by how
// much the latest of them was late.
func (f *fake) handled(ds []punctual.Delivery) (late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	for _, d := range ds {
		if until, leased := f.leased[d.ID]; !leased || until <= now {
			f.t.Errorf("P3: %s is handled at %d; its lease: %v, until %d", d.ID, now, leased, until)
		}
		delete(f.leased, d.ID)
		late = max(late, time.Duration(now-f.due[d.ID])*time.Microsecond)
		delete(f.due, d.ID)
	}
	return late
}

func (f *fake) left() (due, leased int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.due), len(f.leased)
}

// beside is how late messages of other nodes may be while one node is stopped: a second because
// there are no notifications (P11), another one because all claims may have asked the stopped node
// (P14), and some time for the ways.
const beside = 2*time.Second + 100*time.Millisecond

// P11, P14, P3: of three nodes one is stopped for 20 s, there are 10,000 topics and no
// notifications, and the contexts of claims end at random. Messages of the other nodes come in
// time, no handler starts under a lease that has ended, and in the end no message is left and none
// is leased without a holder.
func TestSlowStoppedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, messages = 10_000, 3000
		f := newFake(t, func(p Part) string { return "node" + p.Topic[len(p.Topic)-1:] })
		w, nodes := open(f)
		topics := make([]string, many)
		for i := range topics {
			topics[i] = fmt.Sprint("t", i, "-", i%3)
		}
		closing := make(chan struct{})
		var claims sync.WaitGroup
		var mu sync.Mutex
		late := make(map[string]time.Duration) // guarded by mu: the most, by node
		seed := seedrig.Of(t)
		for number := range 4 {
			claims.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(number)))
				for {
					ctx, end := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(2*time.Second))))
					r := Request{Topics: topics, Max: 1 + random.IntN(10), Lease: 5 * time.Second, Until: f.clock.Now() + 500_000}
					ds, err := w.Claim(ctx, r, closing, punctual.ErrClosed)
					end()
					if errors.Is(err, punctual.ErrClosed) {
						return
					}
					if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, punctual.ErrUnreachable) {
						t.Errorf("claim: %v", err)
					}
					for _, d := range ds {
						took := f.handled([]punctual.Delivery{d})
						mu.Lock()
						node := f.node(Part{Topic: d.Topic})
						late[node] = max(late[node], took)
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		random := rand.New(rand.NewPCG(seed, 4))
		for i := range messages {
			f.push(Part{Topic: topics[random.IntN(many)]}, fmt.Sprint(i), time.Duration(random.Int64N(int64(40*time.Second))))
		}
		time.Sleep(10 * time.Second)
		goOn := f.stop("node1")
		time.Sleep(20 * time.Second)
		f.mu.Lock()
		if f.hung == 0 {
			t.Error("this test shows nothing: nobody has asked the node that was stopped")
		}
		if f.hung > 100 {
			t.Errorf("P14: %d questions were sent to a node that does not answer", f.hung)
		}
		f.mu.Unlock()
		goOn()
		time.Sleep(30 * time.Second)
		if due, leased := f.left(); due > 0 || leased > 0 {
			t.Errorf("P1: once all is quiet %d of %d messages are there and %d are leased", due, messages, leased)
		}
		mu.Lock()
		if late["node0"] > beside || late["node2"] > beside {
			t.Errorf("P14: beside a node that was stopped messages were %v late", late)
		}
		if late["node1"] < 15*time.Second {
			t.Errorf("this test shows nothing: on the node that was stopped messages were %v late", late["node1"])
		}
		heads, claimed := f.asked()
		t.Logf("late by node: %v; %d heads and %d claims in a minute", late, heads, claimed)
		mu.Unlock()
		close(closing)
		claims.Wait()
		w.Close()
		nodes.Close()
	})
}

// P11: a server is slow, and there are far more idle topics than can be tidied in a second. A
// message that becomes due in the last of them does not wait until the others have been tidied.
func TestTidyingKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "node" })
		f.way = 10 * time.Millisecond
		w, nodes := open(f)
		topics := make([]string, 2000)
		for i := range topics {
			topics[i] = fmt.Sprint("t", i)
		}
		f.push(Part{Topic: topics[len(topics)-1]}, "x", 2*time.Minute)
		r := Request{Topics: topics, Max: 1, Lease: 30 * time.Second, Until: f.clock.Now() + 4*time.Minute.Microseconds()}
		ds, err := w.Claim(t.Context(), r, nil, nil)
		if err != nil || len(ds) != 1 {
			t.Fatalf("P11: a claim of %d topics got %v, %v within four minutes; want what was due after two", len(topics), ds, err)
		}
		if late := f.handled(ds); late > time.Second {
			t.Errorf("P11: in %d idle topics a message was %v late", len(topics), late)
		}
		if _, sent := f.asked(); sent < 1000 {
			t.Errorf("this test shows nothing: there were %d scripts, so hardly anything was tidied", sent)
		}
		w.Close()
		nodes.Close()
	})
}

func open(f *fake) (*Waiter, *Nodes) {
	nodes := NewNodes(f, 0)
	return New(f.clock, f, nodes), nodes
}

// A message that is leased for a claim which has returned goes to another claim that waits for the
// topic with a lease of the same length. If there is none, the message is given back.
func TestLateAnswers(t *testing.T) {
	for _, other := range []time.Duration{0, time.Hour, 2 * time.Hour} { // the lease of the other claim; 0: there is none
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, func(Part) string { return "node" })
			w, nodes := open(f)
			p := Part{Topic: "orders"}
			f.push(p, "first", -time.Second)
			closing := make(chan struct{})
			claim := func(lease time.Duration) ([]punctual.Delivery, error) {
				r := Request{Topics: []string{"orders"}, Max: 1, Lease: lease, Until: f.clock.Now() + time.Minute.Microseconds()}
				ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
				defer end()
				return w.Claim(ctx, r, closing, punctual.ErrClosed)
			}
			if ds, err := claim(time.Hour); err != nil || f.handled(ds) == 0 {
				t.Fatalf("claim: %v, %v", ds, err)
			}
			f.push(p, "late", 0)
			w.Notice(p, f.clock.Now())
			goOn := f.stop("node")
			begun := time.Now()
			if ds, err := claim(time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Second {
				t.Errorf("a claim whose node hangs returned %v, %v after %v; want nothing when its context ends", ds, err, time.Since(begun))
			}
			if hung, _ := f.counts(); hung == 0 {
				t.Fatal("this test shows nothing: the node was not asked")
			}
			got := make(chan []punctual.Delivery, 1)
			if other > 0 {
				go func() {
					ds, err := claim(other)
					if err != nil {
						t.Error(err)
					}
					got <- ds
				}()
			}
			synctest.Wait()
			goOn()
			if other > 0 {
				if ds := <-got; len(ds) != 1 || f.handled(ds) < 5*time.Second {
					t.Errorf("another claim returned %v", ds)
				}
			} else {
				time.Sleep(time.Second)
			}
			if _, released := f.counts(); (released > 0) != (other != time.Hour) {
				t.Errorf("with another claim under a lease of %v, %d were given back", other, released)
			}
			if _, leased := f.left(); leased > 0 {
				t.Error("a message is leased that nobody holds")
			}
			w.Close()
			nodes.Close()
		})
	}
}

// A claim returns what is due in several partitions, up to the most that it may have in all and of
// each topic. A claim that is Alone returns the messages of one partition.
func TestClaimGathers(t *testing.T) {
	for name, c := range map[string]struct {
		max, perTopic int
		alone         bool
		want          map[string]int
	}{
		"all":               {max: 10, want: map[string]int{"a": 3, "b": 3, "c": 3}},
		"as many as it may": {max: 5, want: map[string]int{"a": 3, "b": 2}},
		"of each topic":     {max: 10, perTopic: 2, want: map[string]int{"a": 2, "b": 2, "c": 2}},
		"alone":             {max: 10, alone: true, want: map[string]int{"a": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, func(Part) string { return "node" })
				w, nodes := open(f)
				topics := []string{"a", "b", "c"}
				for _, topic := range topics {
					for i := range 3 {
						f.push(Part{Topic: topic}, fmt.Sprint(topic, i), -time.Second)
					}
				}
				r := Request{Topics: topics, Max: c.max, PerTopic: c.perTopic, Alone: c.alone, Lease: time.Hour, Until: f.clock.Now() + time.Minute.Microseconds()}
				ds, err := w.Claim(t.Context(), r, nil, nil)
				f.handled(ds)
				got := make(map[string]int)
				for _, d := range ds {
					got[d.Topic]++
				}
				if err != nil || !maps.Equal(got, c.want) {
					t.Errorf("a claim brought %v, %v; want %v", got, err, c.want)
				}
				if _, leased := f.left(); leased > 0 {
					t.Errorf("%d messages are leased that nobody holds", leased)
				}
				w.Close()
				nodes.Close()
			})
		})
	}
}

// P3: a claim that has found something waits for another node no longer than LateAfter. What that
// node leases later is given back.
func TestNodeKeepsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(p Part) string { return "node of " + p.Topic })
		w, nodes := open(f)
		topics := []string{"quick", "slow"}
		f.push(Part{Topic: "quick"}, "quick", 800*time.Microsecond)
		f.push(Part{Topic: "slow"}, "slow", time.Millisecond)
		claim := func() ([]punctual.Delivery, error) {
			return w.Claim(t.Context(), Request{Topics: topics, Max: 10, Lease: time.Hour, Until: f.clock.Now() + time.Minute.Microseconds()}, nil, nil)
		}
		var goOn func()
		var stopping sync.WaitGroup
		stopping.Go(func() {
			time.Sleep(500 * time.Microsecond) // by then both nodes have answered when something is due
			goOn = f.stop("node of slow")
		})
		ds, err := claim()
		stopping.Wait()
		if hung, _ := f.counts(); hung == 0 {
			t.Fatal("this test shows nothing: the slow node was not asked")
		}
		if late := f.handled(ds); err != nil || len(ds) != 1 || ds[0].ID != "quick" || late > LateAfter+20*time.Millisecond {
			t.Errorf("beside a slow node a claim brought %v, %v, %v late", ds, err, late)
		}
		goOn()
		time.Sleep(time.Second)
		if _, released := f.counts(); released != 1 {
			t.Errorf("%d messages were given back; want that of the slow node", released)
		}
		if ds, err = claim(); err != nil || len(ds) != 1 || ds[0].ID != "slow" {
			t.Errorf("afterwards a claim brought %v, %v", ds, err)
		}
		f.handled(ds)
		w.Close()
		nodes.Close()
	})
}

// lossy is a fake in which the answer of the first attempt is lost, and which no later attempt
// reaches.
type lossy struct {
	*fake
	asked atomic.Int64
}

func (f *lossy) Claim(context.Context, Part, int, time.Duration, bool) Answer {
	if f.asked.Add(1) == 1 {
		return Answer{Err: fmt.Errorf("the answer was lost: %w", punctual.ErrIndeterminate)}
	}
	return Answer{Err: fmt.Errorf("nobody is there: %w", punctual.ErrUnreachable)}
}

// P13: the error of a claim is not definite if the answer of one of its attempts was lost, because
// nobody knows what that attempt has leased.
func TestLostAnswerIsNotDefinite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(p Part) string { return "node of " + p.Topic })
		nodes := NewNodes(f, 0)
		w := New(f.clock, &lossy{fake: f}, nodes)
		topics := []string{"a", "b"}
		for _, topic := range topics {
			f.push(Part{Topic: topic}, topic, -time.Second)
		}
		r := Request{Topics: topics, Max: 1, Lease: time.Hour, Until: f.clock.Now() + time.Minute.Microseconds()}
		ds, err := w.Claim(t.Context(), r, make(chan struct{}), punctual.ErrClosed)
		if !errors.Is(err, punctual.ErrUnreachable) || !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
			t.Errorf("claim: %v, %v, definite: %t; want both reasons, and not definite", ds, err, punctual.Definite(err))
		}
		w.Close()
		nodes.Close()
	})
}

// refusing is a fake of which the first read of next due times fails.
type refusing struct {
	*fake
	why   error
	reads atomic.Int64
}

func (f *refusing) NextDue(node string, ps []Part) []NextDue {
	got := f.fake.NextDue(node, ps)
	if f.reads.Add(1) == 1 {
		for i := range got {
			got[i] = NextDue{At: Never, Then: Never, Err: f.why}
		}
	}
	return got
}

// A claim that joins after a failed poll does not wait for the time of the next poll: the partition
// is polled at once.
func TestClaimAfterAFailedPoll(t *testing.T) {
	for _, why := range []error{punctual.ErrUnreachable, punctual.ErrCorrupt} { // of the node, and of the partition
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, func(Part) string { return "node" })
			nodes := NewNodes(f, 0)
			w := New(f.clock, &refusing{fake: f, why: why}, nodes)
			claim := func() ([]punctual.Delivery, error) {
				return w.Claim(t.Context(), Request{Topics: []string{"orders"}, Max: 1, Lease: time.Hour, Until: f.clock.Now() + time.Minute.Microseconds()}, nil, nil)
			}
			if ds, err := claim(); !errors.Is(err, why) {
				t.Fatalf("this test shows nothing: a claim whose poll failed got %v, %v; want %v", ds, err, why)
			}
			f.push(Part{Topic: "orders"}, "x", 0)
			ds, err := claim()
			if late := f.handled(ds); err != nil || len(ds) != 1 || late != 3*f.way { // a read, and an attempt with its answer
				t.Errorf("P11: after a poll that failed with %v a claim brought %v, %v, %v late; want one message, %v late", why, ds, err, late, 3*f.way)
			}
			w.Close()
			nodes.Close()
		})
	}
}

// P10: while nothing is due a partition costs one read of its next due times each second, or
// instead of every 16th read a script, however many claims wait.
func TestIdlePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "" })
		w, nodes := open(f)
		var claims sync.WaitGroup
		for range 50 {
			claims.Go(func() {
				r := Request{Topics: []string{"orders"}, Max: 1, Until: 64_000_000}
				if ds, err := w.Claim(t.Context(), r, nil, nil); err != nil || len(ds) > 0 {
					t.Errorf("claim: %v, %v", ds, err)
				}
			})
		}
		claims.Wait()
		if heads, sent := f.asked(); heads > 64 || sent > 4 || heads+sent < 64 {
			t.Errorf("in 64 s %d heads were read and %d claims were sent; want one each second, a claim each 16 s", heads, sent)
		}
		w.Close()
		nodes.Close()
	})
}

// A topic that no claim waits for is forgotten after a while.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, func(Part) string { return "" })
		w, nodes := open(f)
		claim := func(topic string) {
			r := Request{Topics: []string{topic}, Max: 1, Until: f.clock.Now() + 1_500_000}
			if ds, err := w.Claim(t.Context(), r, nil, nil); err != nil || len(ds) > 0 {
				t.Errorf("claim: %v, %v", ds, err)
			}
		}
		claim("old")
		for range 120 {
			claim("new")
		}
		if len(w.topics) != 1 || w.topics["new"] == nil {
			t.Errorf("%d topics are remembered; want the one that is waited for", len(w.topics))
		}
		w.Close()
		nodes.Close()
	})
}
