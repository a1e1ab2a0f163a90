package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/worker"
)

// aheadLoad is bursts of messages, each due all at once, for workers that share them.
type aheadLoad struct {
	name    string
	handler func(n int) time.Duration // how long the handler of the n-th message takes
	burst   int                       // messages each 100 ms
	ahead   bool                      // some are claimed ahead
}

const (
	aheadWorkers = 4
	aheadSlots   = 8
	aheadBursts  = 16
)

func aheadLoads() []aheadLoad {
	always := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	return []aheadLoad{
		{"0 ms", always(0), 2000, true},
		{"1 ms", always(time.Millisecond), 2500, true},
		{"5 ms", always(5 * time.Millisecond), 500, false},
		{"50 ms", always(50 * time.Millisecond), 50, false},
		{"0 ms, some 2 s", func(n int) time.Duration {
			if n%1000 == 0 {
				return 2 * time.Second
			}
			return 0
		}, 1000, true},
		{"0 ms or 2 s", func(n int) time.Duration { return time.Duration(n%2) * 2 * time.Second }, 4, false},
	}
}

// lateness handles a load and returns by how much each message was late, sorted, and how many
// claims asked for more than there are slots.
func (l aheadLoad) lateness(t *testing.T, ahead bool) (late []time.Duration, claimsAhead int) {
	r := newRig(t)
	var mu sync.Mutex
	r.store.spoil(func(c punctual.Claim) error {
		if c.Max > aheadSlots {
			mu.Lock()
			claimsAhead++
			mu.Unlock()
		}
		return nil
	}, nil)
	lease := time.Second
	r.configure("t", punctual.SettingsPatch{Lease: &lease})
	handle := func(_ context.Context, d *punctual.Delivery) error {
		now := time.Now()
		if i := r.get("t", d.ID); i.State != punctual.StateLeased || i.Attempt != 1 || d.Attempt != 1 {
			t.Errorf("%s: a handler starts in attempt %d while the message is %s, in attempt %d", l.name, d.Attempt, i.State, i.Attempt)
		}
		mu.Lock()
		late = append(late, now.Sub(d.Due))
		mu.Unlock()
		n, _ := strconv.Atoi(d.ID)
		time.Sleep(l.handler(n))
		return nil
	}
	var ws []*worker.Worker
	for range aheadWorkers {
		w := r.worker(worker.Config{Concurrency: aheadSlots})
		w.Handle("t", punctual.HandlerFunc(handle))
		if !ahead {
			w.NeverAhead()
		}
		r.runs(w)
		ws = append(ws, w)
	}
	for b := range aheadBursts {
		ms := make([]punctual.NewMessage, l.burst)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(b*l.burst + i), Delay: 100 * time.Millisecond}
		}
		if _, err := r.q.PushMany(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	if s, err := r.q.Stats(t.Context(), "t"); err != nil || s.Live()+s.Dead != 0 || len(late) != aheadBursts*l.burst {
		t.Errorf("%s: %d of %d messages were handled; left are %+v, %v", l.name, len(late), aheadBursts*l.burst, s, err)
	}
	for _, w := range ws {
		r.stops(w)
	}
	slices.Sort(late)
	return late, claimsAhead
}

// TestSlowAheadDelaysNobody: claiming ahead adds at most 5 ms to the lateness that half of the
// messages, nine in ten and 99 in a hundred do not exceed. The latest message may be 55 ms later,
// because a message that was claimed ahead is given back after 50 ms.
func TestSlowAheadDelaysNobody(t *testing.T) {
	for _, l := range aheadLoads() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			var with, without []time.Duration
			var claims, none int
			synctest.Test(t, func(t *testing.T) { without, none = l.lateness(t, false) })
			synctest.Test(t, func(t *testing.T) { with, claims = l.lateness(t, true) })
			if none > 0 || (claims > 0) != l.ahead {
				t.Errorf("%d claims asked for messages ahead where there should be none, and %d where there should be: %t", none, claims, l.ahead)
			}
			n := len(with)
			t.Logf("p50 %v and %v, p99 %v and %v, max %v and %v, %d claims ahead", with[n/2], without[n/2], with[n*99/100], without[n*99/100], with[n-1], without[n-1], claims)
			for _, at := range []int{n / 2, n * 9 / 10, n * 99 / 100} {
				if with[at] > without[at]+5*time.Millisecond {
					t.Errorf("of %d messages, number %d by lateness is %v late, %v without claims ahead", n, at, with[at], without[at])
				}
			}
			if most := without[n-1] + 55*time.Millisecond; with[n-1] > most {
				t.Errorf("the latest message is %v late, want at most %v", with[n-1], most)
			}
		})
	}
}

// busy is a worker that claims ahead until its handlers hang.
type busy struct {
	*rig
	w    *worker.Worker
	hang chan struct{} // closed when the handlers are to go on
	mu   sync.Mutex
	left int // how many handlers run before they hang; guarded by mu
	most int // what the largest claim asked for; guarded by mu
}

func newBusy(t *testing.T) *busy {
	b := &busy{rig: newRig(t), hang: make(chan struct{}), left: 1000}
	b.store.spoil(func(c punctual.Claim) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.most = max(b.most, c.Max)
		return nil
	}, nil)
	b.w = b.worker(worker.Config{Concurrency: 4})
	b.w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		b.mu.Lock()
		b.left--
		hangs := b.left < 0
		b.mu.Unlock()
		if hangs {
			<-b.hang
		}
		time.Sleep(time.Millisecond)
		return nil
	}))
	ms := make([]punctual.NewMessage, 3000)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "t"}
	}
	if _, err := b.q.PushMany(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	b.runs(b.w)
	time.Sleep(251 * time.Millisecond) // four slots need 250 ms for a thousand
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most <= 4 || b.left >= 0 {
		t.Fatalf("this test shows nothing: no claim asked for more than %d, %d handlers are to run before they hang", b.most, b.left)
	}
	b.most = 0
	return b
}

// leased returns how many messages are leased. The ready ones must count no attempt.
func (b *busy) leased() int {
	s, err := b.q.Stats(b.t.Context(), "t")
	if err != nil {
		b.t.Fatal(err)
	}
	for m, err := range b.q.List(b.t.Context(), punctual.ListQuery{Topic: "t", State: punctual.StateReady, Limit: 1000}) {
		if err != nil || m.Attempt != 0 {
			b.t.Fatalf("message %s that was given back counts %d attempts, %v", m.ID, m.Attempt, err)
		}
	}
	return int(s.Leased)
}

// What was claimed ahead is given back when the slots do not take it, and nothing more is claimed
// ahead in the 800 ms after that, because aheadRest is a second.
func TestAheadIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy(t)
		if n := b.leased(); n <= 4 || n > 4+4*8 {
			t.Errorf("%d messages are leased when the handlers begin to hang; want the 4 in slots and 1 to 32 ahead of them", n)
		}
		time.Sleep(60 * time.Millisecond)
		if n := b.leased(); n != 4 {
			t.Errorf("%d messages are leased 60 ms later; want those in the 4 slots", n)
		}
		b.mu.Lock()
		b.left = 1 << 30
		b.mu.Unlock()
		close(b.hang)
		time.Sleep(800 * time.Millisecond)
		b.mu.Lock()
		if b.most > 4 {
			t.Errorf("within a second a claim asked for %d messages for 4 slots", b.most)
		}
		b.mu.Unlock()
		b.stops(b.w)
		if n := b.leased(); n != 0 {
			t.Errorf("%d messages are leased after Stop", n)
		}
	})
}

// Stop gives back at once what was claimed ahead.
func TestStopGivesBackAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy(t)
		before := b.leased()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			b.stops(b.w)
		}()
		synctest.Wait()
		if n := b.leased(); before <= 4 || n != 4 {
			t.Errorf("%d messages were leased, %d when the worker began to stop; want more than 4, then those in the 4 slots", before, n)
		}
		close(b.hang)
		<-stopped
		if n := b.leased(); n != 0 {
			t.Errorf("%d messages are leased after Stop", n)
		}
	})
}

// Stop counts the handlers that run and no messages that were claimed ahead, which are not given
// back yet because a claim hangs.
func TestStopCountsNothingAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		goOn, claimHangs := make(chan struct{}), make(chan struct{})
		var handled, running atomic.Int64
		var hangs atomic.Bool
		r.store.spoil(func(c punctual.Claim) error {
			if c.Max > 4 && handled.Load() > 500 && hangs.CompareAndSwap(false, true) {
				close(claimHangs)
			}
			if hangs.Load() {
				<-goOn
			}
			return nil
		}, nil)
		w := r.worker(worker.Config{Concurrency: 4})
		w.Handle("t", handlerFunc(func(context.Context, *punctual.Delivery) error {
			if handled.Add(1); hangs.Load() {
				running.Add(1)
				<-goOn
			}
			time.Sleep(time.Millisecond)
			return nil
		}))
		for i := range 2000 {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		<-claimHangs
		time.Sleep(5 * time.Millisecond) // the handlers under way return, and those of the next messages hang
		s, err := r.q.Stats(t.Context(), "t")
		if err != nil || running.Load() != 4 || s.Leased <= 4 {
			t.Fatalf("this test shows nothing: %d handlers run, %d messages are leased, %v", running.Load(), s.Leased, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err = w.Stop(ctx)
		if s, serr := r.q.Stats(t.Context(), "t"); serr != nil || err == nil || !strings.Contains(err.Error(), "running when its time was up: 4, not returned since: 4") {
			t.Errorf("%v; want 4 handlers; %+v, %v", err, s, serr)
		}
		close(goOn)
		r.stops(w)
	})
}

// A handler that ends its goroutine leaves its slot to a message that was claimed ahead.
func TestAheadAfterGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var n, ended atomic.Int64
		var ahead atomic.Bool
		r.store.spoil(func(c punctual.Claim) error {
			ahead.Store(ahead.Load() || c.Max > 4)
			return nil
		}, nil)
		w := r.worker(worker.Config{Concurrency: 4})
		w.Handle("t", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			time.Sleep(time.Millisecond)
			if n.Add(1) > 1000 && d.Attempt == 1 {
				ended.Add(1)
				runtime.Goexit()
			}
			return nil
		}))
		for i := range 2000 {
			r.push("t", fmt.Sprint(i))
		}
		r.runs(w)
		time.Sleep(time.Minute)
		if s, err := r.q.Stats(t.Context(), "t"); err != nil || s.Live()+s.Dead > 0 || ended.Load() != 1000 || !ahead.Load() {
			t.Errorf("%d handlers ended their goroutines, claimed ahead %t; left are %+v, %v", ended.Load(), ahead.Load(), s, err)
		}
		r.stops(w)
	})
}

// slowStore is a worker with 4 slots and quick handlers on a store whose calls take 4 ms.
type slowStore struct {
	*rig
	w *worker.Worker

	mu                         sync.Mutex
	claims, settles            int // calls; guarded by mu
	running, most              int // handlers under way, now and at most; guarded by mu
	begun, settled, mostBeside int // messages; mostBeside are the most that waited to be settled; guarded by mu
	hang                       chan struct{}
	hangs                      bool // settling does not return before hang is closed; guarded by mu
}

func newSlowStore(t *testing.T, n int) *slowStore {
	b := &slowStore{rig: newRig(t), hang: make(chan struct{})}
	b.store.spoil(func(punctual.Claim) error {
		b.mu.Lock()
		b.claims++
		b.mu.Unlock()
		time.Sleep(4 * time.Millisecond)
		return nil
	}, func(ss []punctual.Settlement) error {
		time.Sleep(4 * time.Millisecond)
		b.mu.Lock()
		b.settles++
		hangs := b.hangs
		b.mu.Unlock()
		if hangs {
			<-b.hang
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.settled += len(ss)
		return nil
	})
	b.w = b.worker(worker.Config{Concurrency: 4})
	b.w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		b.mu.Lock()
		b.begun++
		b.running++
		b.most = max(b.most, b.running)
		b.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.running--
		b.mostBeside = max(b.mostBeside, b.begun-b.running-b.settled)
		return nil
	}))
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "t"}
	}
	if _, err := b.q.PushMany(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	b.runs(b.w)
	return b
}

// When each call of the store takes 4 ms, a claim brings more messages than there are slots, and a
// call settles more.
func TestSlowStoreIsAskedForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSlowStore(t, 10_000)
		time.Sleep(time.Second)
		b.mu.Lock()
		settles, claims, settled, most := b.settles, b.claims, b.settled, b.most
		b.mu.Unlock()
		b.stops(b.w)
		t.Logf("%d messages a second in %d claims and %d calls that settle", settled, claims, settles)
		// Without anything ahead each 4 messages take a claim and a settlement of 4 ms.
		if settled < 1500 || settled/claims < 8 || settled/settles < 6 {
			t.Errorf("%d messages a second in %d claims and %d calls that settle; want at least 1500, 8 a claim and 6 a call", settled, claims, settles)
		}
		if most > 4 {
			t.Errorf("%d handlers ran at the same time in 4 slots", most)
		}
	})
}

// However long a store takes to settle, only some messages for each slot wait for it beside the
// slots. Stop waits for them.
func TestSettledBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSlowStore(t, 10_000)
		time.Sleep(time.Second)
		b.mu.Lock()
		beside := b.mostBeside
		b.hangs = true
		b.mu.Unlock()
		if beside <= 4 {
			t.Fatalf("this test shows nothing: %d messages waited to be settled, no more than there are slots", beside)
		}
		time.Sleep(100 * time.Millisecond)
		b.mu.Lock()
		begun := b.begun
		if b.mostBeside > 4*5 {
			t.Errorf("%d messages waited to be settled, want no more than 5 for each slot", b.mostBeside)
		}
		b.mu.Unlock()
		time.Sleep(time.Second)
		b.mu.Lock()
		if b.begun != begun {
			t.Errorf("%d handlers began while nothing was settled", b.begun-begun)
		}
		b.mu.Unlock()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			b.stops(b.w)
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Stop returned before the messages were settled")
		default:
		}
		close(b.hang)
		<-stopped
		s, err := b.q.Stats(t.Context(), "t")
		if err != nil || s.Leased != 0 || int(s.Ready) != 10_000-b.begun {
			t.Errorf("after Stop and %d handlers: %+v, %v", b.begun, s, err)
		}
	})
}

// A worker of many slots claims ahead for no more messages than a claim may ask for.
func TestAheadOfManySlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const slots, messages = 6000, 100_000
		var ahead atomic.Int64 // how many claims were ahead of free slots
		r.store.spoil(func(c punctual.Claim) error {
			if c.Wait == 0 {
				ahead.Add(1)
			}
			if c.Max > limits.MaxClaim {
				t.Errorf("a claim for %d messages", c.Max)
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		}, nil)
		var n atomic.Int64
		w := r.worker(worker.Config{Concurrency: slots})
		w.Handle("t", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
			time.Sleep(time.Millisecond)
			n.Add(1)
			return nil
		}))
		for i := range messages / limits.MaxBatch {
			ms := make([]punctual.NewMessage, limits.MaxBatch)
			for j := range ms {
				ms[j] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(i*limits.MaxBatch + j)}
			}
			if _, err := r.mem.Push(t.Context(), ms); err != nil {
				t.Fatal(err)
			}
		}
		r.runs(w)
		time.Sleep(time.Minute)
		if n.Load() != messages || ahead.Load() == 0 {
			t.Errorf("%d messages were handled and %d claims were ahead of free slots; want %d and some", n.Load(), ahead.Load(), messages)
		}
		r.stops(w)
	})
}
