package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// The homes of an ID are part of the format.
func TestHome(t *testing.T) {
	for id, want := range map[string][3]int{"": {2, 1, 193}, "a": {1, 0, 192}, "order-1001": {2, 6, 30}, "01JD4Z3V9Q8XKJ6T7W5R2M1N0P": {0, 7, 175}} {
		if got := [3]int{home(id, 3), home(id, 8), home(id, 256)}; got != want {
			t.Errorf("homes of %q among 3, 8 and 256 are %v; want %v", id, got, want)
		}
	}
	var count [8]int
	for i := range 8000 {
		count[home(fmt.Sprint("order-", i), 8)]++
	}
	if slices.Min(count[:]) < 800 || slices.Max(count[:]) > 1200 {
		t.Errorf("8000 IDs among 8 partitions: %v; want about 1000 each", count)
	}
}

// interrupt calls f in front of script number n, or behind it, that a store sends from now on.
// f may return an error, which the store gets in place of an answer.
type interrupt struct {
	n      int
	behind bool
	f      func() error

	mu   sync.Mutex
	seen int
	done bool // f was called
}

func (*interrupt) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*interrupt) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (x *interrupt) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" || !x.now() {
			return next(ctx, cmd)
		}
		if x.behind {
			if err := next(ctx, cmd); err != nil {
				return err
			}
			return x.f()
		}
		if err := x.f(); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// now counts a script and reports whether it is the one.
func (x *interrupt) now() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.f == nil {
		return false
	}
	x.seen++
	if x.seen != x.n {
		return false
	}
	x.done = true
	return true
}

func (x *interrupt) arm(n int, behind bool, f func() error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n, x.behind, x.f, x.seen, x.done = n, behind, f, 0, false
}

// called reports whether f was called since arm, and disarms.
func (x *interrupt) called() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.f = nil
	return x.done
}

// process is a store with a client of its own that can be interrupted.
type process struct {
	*Store
	interrupt interrupt
}

func openProcess(t testing.TB, prefix string) *process {
	t.Helper()
	p := &process{}
	c := connect(t, shared)
	c.AddHook(&p.interrupt)
	p.Store = openStore(t, c, &Options{Prefix: prefix})
	return p
}

func grow(t testing.TB, s *Store, topic string, n int) {
	t.Helper()
	if _, err := s.Configure(t.Context(), topic, punctual.SettingsPatch{Partitions: &n}); err != nil {
		t.Fatalf("growth to %d partitions: %v", n, err)
	}
}

// wanderer is an ID with another home for each of the sizes 1, 4 and 8.
func wanderer() string {
	for i := 0; ; i++ {
		id := fmt.Sprint("w", i)
		if home(id, 4) != 0 && home(id, 8) >= 4 {
			return id
		}
	}
}

// processes are three stores on the same data.
type processes struct {
	stale *process // knows one partition
	fresh *process // knows four
	other *Store   // does what happens in between
}

func openProcesses(t testing.TB) *processes {
	prefix := fresh()
	return &processes{openProcess(t, prefix), openProcess(t, prefix), openStore(t, connect(t, shared), &Options{Prefix: prefix})}
}

// world is a topic that has grown from 1 to 4 partitions, and a message with other homes now.
type world struct {
	*processes
	t      *testing.T
	topic  string
	id     string
	live   int     // how often the message was stored, less how often it was finished
	tokens []int64 // of its deliveries
	size   int
	// remembers: the topic remembers finished IDs for long, and has seen this one.
	remembers bool
}

func newWorld(t *testing.T, ps *processes, before string) *world {
	t.Helper()
	w := &world{processes: ps, t: t, topic: rand.Text(), id: wanderer(), size: 1}
	w.act(before, w.stale.Store)
	w.act("cancel", w.stale.Store)
	w.act(before, w.stale.Store)
	w.act("grow", w.other)
	for range 5 { // so that the old home's tokens are ahead
		w.release(w.other)
	}
	if _, err := w.fresh.Stats(t.Context(), w.topic); err != nil {
		t.Fatal(err)
	}
	return w
}

// act does one thing and counts what became of the message.
func (w *world) act(what string, s *Store) {
	w.t.Helper()
	switch what {
	case "push", "replace", "push and finish":
		on := punctual.KeepFirst
		if what == "replace" {
			on = punctual.ReplaceFirst
		}
		w.push(s, on)
		if what == "push and finish" {
			w.finish(s)
		}
	case "finish":
		w.finish(s)
	case "cancel":
		w.cancel(s)
	case "remembered":
		keep := time.Hour
		if _, err := s.Configure(w.t.Context(), w.topic, punctual.SettingsPatch{Remember: &keep}); err != nil {
			w.t.Fatal(err)
		}
		w.push(s, punctual.KeepFirst)
		w.finish(s)
		w.remembers = true
	case "grow":
		w.size *= 4
		if w.size > 4 {
			w.size = 8
		}
		grow(w.t, s, w.topic, w.size)
	default:
		w.t.Fatalf("no such action: %s", what)
	}
}

func (w *world) push(s *Store, on punctual.OnDuplicate) {
	w.t.Helper()
	rs, err := s.Push(w.t.Context(), []punctual.NewMessage{{Topic: w.topic, ID: w.id, Due: time.Unix(1, 0), OnDuplicate: on}})
	if err != nil || rs[0].Err != nil {
		w.t.Fatalf("push: %v, %v", rs, err)
	}
	if rs[0].Status != punctual.PushStored {
		return
	}
	if w.live++; w.remembers && on == punctual.KeepFirst {
		w.t.Errorf("P7: an ID that is remembered was stored again")
	}
}

// release claims the message, if it can be claimed, and gives it back.
func (w *world) release(s *Store) {
	w.t.Helper()
	for _, d := range w.claim(s) {
		if errs, err := s.Settle(w.t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}}); err != nil || errs[0] != nil {
			w.t.Fatalf("release: %v, %v", err, errs)
		}
	}
}

func (w *world) claim(s *Store) []punctual.Delivery {
	w.t.Helper()
	ds, err := s.Claim(w.t.Context(), punctual.Claim{Topics: []string{w.topic}, Max: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range ds {
		if len(w.tokens) > 0 && d.Token <= slices.Max(w.tokens) {
			w.t.Errorf("P4: %s was delivered with token %d after %v", d.ID, d.Token, w.tokens)
		}
		w.tokens = append(w.tokens, d.Token)
	}
	return ds
}

func (w *world) finish(s *Store) {
	w.t.Helper()
	for _, d := range w.claim(s) {
		errs, err := s.Settle(w.t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
		switch {
		case err != nil:
			w.t.Fatalf("ack: %v", err)
		case errs[0] == nil:
			w.live--
		case !errors.Is(errs[0], punctual.ErrLeaseLost): // replaced meanwhile
			w.t.Fatalf("ack: %v", errs[0])
		}
	}
}

func (w *world) cancel(s *Store) {
	w.t.Helper()
	os, err := s.Amend(w.t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: w.topic, ID: w.id}})
	if err != nil || os[0].Err != nil {
		w.t.Fatalf("cancel: %v, %v", os, err)
	}
	if os[0].Status == punctual.Cancelled {
		w.live--
	}
}

// check compares what the calls said with what is there, and what everybody finds.
func (w *world) check() {
	w.t.Helper()
	var found []int
	for n := range w.size {
		is, err := w.other.client.HExists(w.t.Context(), w.other.names.partition(w.topic, n).keys()[4], w.id).Result()
		if err != nil {
			w.t.Fatal(err)
		}
		if is {
			found = append(found, n)
		}
	}
	if len(found) != w.live || w.live > 1 {
		w.t.Fatalf("P7: the calls say that there are %d messages with the ID; there are some in partitions %v", w.live, found)
	}
	for name, s := range map[string]*Store{"stale": w.stale.Store, "fresh": w.fresh.Store, "other": w.other} {
		if _, err := s.Get(w.t.Context(), w.topic, w.id); errors.Is(err, punctual.ErrNotFound) != (w.live == 0) {
			w.t.Errorf("P1: Get by the %s process = %v; there are %d", name, err, w.live)
		}
	}
	was := w.live
	w.act("push", w.stale.Store)
	if was == 1 && w.live != 1 {
		w.t.Errorf("P7: after it all a push made of 1 message %d", w.live)
	}
	w.finish(w.fresh.Store)
	if w.live != 0 {
		w.t.Errorf("P1: %d messages could not be claimed", w.live)
	}
}

// P7, P5, P4: whatever another process does between two scripts of a call, while all of them
// know different sizes of the topic, an ID is stored once, is found, and its tokens grow.
func TestGrowthBetweenScripts(t *testing.T) {
	ps := openProcesses(t)
	between := []string{"push", "replace", "cancel", "push and finish", "grow"}
	for _, before := range []string{"push", "push and finish", "remembered"} {
		for _, what := range []string{"push", "replace", "cancel", "grow", "finish"} {
			for _, then := range between {
				t.Run(before+"/"+what+"/"+then, func(t *testing.T) {
					for _, stale := range []bool{true, false} {
						for n, called := 1, true; called; n++ {
							called = interleave(t, ps, before, what, then, n, stale)
						}
					}
				})
			}
		}
	}
}

// interleave lets something happen in front of the n-th script of an action, and reports
// whether there was such a script.
func interleave(t *testing.T, ps *processes, before, what, then string, n int, stale bool) bool {
	t.Helper()
	w := newWorld(t, ps, before)
	p, third := w.fresh, w.stale.Store
	if stale {
		p, third = w.stale, w.fresh.Store
	}
	p.interrupt.arm(n, false, func() error {
		w.act(then, w.other)
		if then == "grow" {
			w.act("push", w.other)
		}
		w.act("push", third)
		return nil
	})
	w.act(what, p.Store)
	called := p.interrupt.called()
	w.check()
	if t.Failed() {
		t.Logf("in front of script %d of %s by the process that knew more: %v", n, what, !stale)
	}
	return called && !t.Failed()
}

// P4: tokens of an ID grow also when its topic is deleted and comes again with fewer partitions,
// or more.
func TestTokensGrowAcrossDeletions(t *testing.T) {
	prefix := fresh()
	w := &world{t: t, topic: "orders", id: wanderer()}
	for _, size := range []int{8, 1, 4, 1} {
		s := openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: size})
		w.push(s, punctual.KeepFirst)
		for range 3 {
			w.release(s)
		}
		if n, err := s.DeleteTopic(t.Context(), "orders"); err != nil || n != 1 {
			t.Fatalf("DeleteTopic: %d, %v", n, err)
		}
	}
}

// A claim that waits, in a process that knows of one partition, gets messages of all of them
// when the topic has grown; with the clock standing still only a hint can wake it.
func TestWaitingClaimSeesGrowth(t *testing.T) {
	o := &Options{Prefix: fresh(), clock: punctual.NewManualClock(time.Unix(1e9, 0))}
	consumer, producer := openStore(t, connect(t, shared), o), openStore(t, connect(t, shared), o)
	push(t, producer, punctual.NewMessage{ID: "far", Delay: time.Hour})
	for size := 2; size <= 32; size *= 2 {
		got := make(chan []punctual.Delivery, 1)
		go func() {
			ds, err := consumer.Claim(context.Background(), punctual.Claim{Topics: []string{"other", "orders"}, Max: 1, Wait: time.Minute})
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			got <- ds
		}()
		for consumer.waiters("orders") == 0 {
			time.Sleep(time.Millisecond)
		}
		grow(t, producer, "orders", size)
		id := fmt.Sprint(size)
		for i := 0; home(id, size) < size/2; i++ {
			id = fmt.Sprint(size, "-", i)
		}
		push(t, producer, punctual.NewMessage{ID: id})
		if ds := <-got; len(ds) != 1 || ds[0].ID != id {
			t.Fatalf("P11: a waiting claim returned %v; want %s, pushed after the topic had grown to %d partitions", ds, id, size)
		}
	}
}

// A topic may grow while nobody waits for it any more; who waits next waits everywhere.
func TestGrowthBetweenWaits(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh()})
	for _, size := range []int{2, 8} {
		if ds, err := s.Claim(t.Context(), orders(time.Millisecond)); err != nil || len(ds) != 0 {
			t.Fatalf("claim: %v, %v", ds, err)
		}
		grow(t, s, "orders", size)
		for i := range 16 {
			push(t, s, punctual.NewMessage{ID: fmt.Sprint(size, "-", i), Due: time.Unix(1, 0)})
			ack(t, s, claimOne(t, s, time.Minute))
		}
	}
}

// P1, P13: a partition that has lost its settings, as in a failover, gets them again from the
// first push; when partition 0 has lost a version, the newest that is left goes on.
func TestLostVersions(t *testing.T) {
	prefix := fresh()
	open := func() *Store { return openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 4}) }
	s := open()
	settings := func(n int) string { return s.names.partition("orders", n).keys()[6] }
	pushEverywhere := func(name string) {
		t.Helper()
		for i := range 32 {
			push(t, s, punctual.NewMessage{ID: fmt.Sprint(name, i), Due: time.Unix(1, 0)})
		}
	}
	pushEverywhere("a")
	do(t, shared, "DEL", settings(2))
	pushEverywhere("b")
	before := do(t, shared, "DUMP", settings(0))
	grow(t, s, "orders", 8)
	pushEverywhere("c")
	do(t, shared, "RESTORE", settings(0), "0", before, "REPLACE")
	if got := do(t, shared, "HGET", settings(0), "sizes"); got != "4" {
		t.Fatalf("partition 0 has %q; the test is to have it lose the 8", got)
	}
	s = open()
	pushEverywhere("d")
	if set, err := s.Settings(t.Context(), "orders"); err != nil || set.Partitions != 8 {
		t.Errorf("after partition 0 has lost a version there are %d partitions, %v; want 8", set.Partitions, err)
	}
	if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 500}); err != nil || len(ds) != 4*32 {
		t.Errorf("P1: %d messages are delivered, %v; want %d", len(ds), err, 4*32)
	}
}

// However many claims wait, an idle topic costs a look each second for each partition.
func TestIdleCostOfPartitions(t *testing.T) {
	const waiters = 20
	looks, seconds := idle(t, &Options{Partitions: 4}, waiters)
	// Each claim looks everywhere once before it gives up; each subscription causes one more look.
	if looks -= 4*waiters + 4; float64(looks) > 4*(seconds+1) {
		t.Errorf("%d claims that waited %.1f s ran %d scripts beside the last looks of each; want four a second", waiters, seconds, looks)
	}
}

// crowd is several processes that push each ID twice, claim and cancel, while the topic grows.
type crowd struct {
	t      *testing.T
	stores []*Store

	mu        sync.Mutex
	stored    map[string]int  // guarded by mu: how often a push said so
	cancelled map[string]bool // guarded by mu: by a call that said so
	acked     map[string]int  // guarded by mu
	over      bool            // guarded by mu: all pushes are done
}

// P1, P5, P7: while a topic grows from 1 to 4 to 8 partitions under load, each ID is stored
// once, nothing is lost, and what was cancelled is not delivered.
func TestGrowthUnderLoad(t *testing.T) {
	const perProcess = 400
	prefix := fresh()
	c := crowd{t: t, stored: make(map[string]int), cancelled: make(map[string]bool), acked: make(map[string]int)}
	for range 3 {
		c.stores = append(c.stores, openStore(t, connect(t, shared), &Options{Prefix: prefix}))
	}
	keep := time.Hour
	if _, err := c.stores[0].Configure(t.Context(), "orders", punctual.SettingsPatch{Remember: &keep}); err != nil {
		t.Fatal(err)
	}
	var pushing, claiming sync.WaitGroup
	for n := range c.stores {
		pushing.Go(func() { c.push(n, perProcess) })
		claiming.Go(func() { c.claim(c.stores[n]) })
	}
	for _, size := range []int{4, 8} {
		c.await(func() bool { return len(c.stored) > size*perProcess/8 })
		grow(t, c.stores[size/8], "orders", size)
	}
	pushing.Wait()
	c.locked(func() { c.over = true })
	claiming.Wait()
	for id, n := range c.stored {
		if n != 1 {
			t.Errorf("P7: %s was stored %d times", id, n)
		}
		if c.acked[id] > 1 || c.acked[id] == 1 && c.cancelled[id] {
			t.Errorf("P5: %s was acked %d times, and cancelled: %v", id, c.acked[id], c.cancelled[id])
		}
		if c.acked[id] == 0 && !c.cancelled[id] {
			t.Errorf("P1: %s is gone", id)
		}
	}
	if n := len(c.stores) * perProcess; len(c.stored) != n {
		t.Errorf("P1: %d of %d IDs were stored", len(c.stored), n)
	}
}

func (c *crowd) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *crowd) await(done func() bool) {
	for ready := false; !ready && !c.t.Failed(); time.Sleep(time.Millisecond) {
		c.locked(func() { ready = done() })
	}
}

// push pushes IDs of one process by two of them, one after the other, and cancels every fifth.
func (c *crowd) push(n, count int) {
	first, second := c.stores[n], c.stores[(n+1)%len(c.stores)]
	for i := 0; i < count && !c.t.Failed(); i++ {
		id := fmt.Sprint(n, "-", i)
		for _, s := range []*Store{first, second} {
			rs, err := s.Push(c.t.Context(), []punctual.NewMessage{{Topic: "orders", ID: id, Delay: time.Duration(i%7) * time.Millisecond}})
			if err != nil || rs[0].Err != nil {
				c.t.Errorf("push of %s: %v, %v", id, rs, err)
				return
			}
			if rs[0].Status == punctual.PushStored {
				c.locked(func() { c.stored[id]++ })
			}
		}
		if i%5 > 0 {
			continue
		}
		os, err := second.Amend(c.t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: id}})
		if err != nil {
			c.t.Errorf("cancel of %s: %v", id, err)
			return
		}
		if os[0].Status == punctual.Cancelled {
			c.locked(func() { c.cancelled[id] = true })
		}
	}
}

// claim claims and acks until all is done.
func (c *crowd) claim(s *Store) {
	for !c.t.Failed() {
		ds, err := s.Claim(c.t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 10, Wait: 50 * time.Millisecond})
		if err != nil {
			c.t.Errorf("claim: %v", err)
			return
		}
		for _, d := range ds {
			errs, err := s.Settle(c.t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
			if err != nil || errs[0] != nil {
				c.t.Errorf("ack of %s: %v, %v", d.ID, errs, err)
				return
			}
			c.locked(func() { c.acked[d.ID]++ })
		}
		over := false
		c.locked(func() { over = c.over })
		if len(ds) == 0 && over {
			return
		}
	}
}
