package diskstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// Messages that are due soon are pushed while others are loaded, claimed, cancelled and
// rescheduled. Memory is so small that the window of the timeline is cut all the time. Every
// message must be delivered exactly once, or be cancelled, and never before its time.
func TestPushMeetsLoad(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { pushMeetsLoad(t, seed) })
	}
}

func pushMeetsLoad(t *testing.T, seed uint64) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, MemoryBytes: 100 * memory.MessageBytes})
	c := &courier{t: t, s: s, gone: map[string]string{}}
	const pushers, each = 4, 1500
	var pushing, working sync.WaitGroup
	stop := make(chan struct{})
	for p := range pushers {
		pushing.Go(func() { c.pushSome(rand.New(rand.NewPCG(seed, uint64(p))), p, each) })
	}
	for i := range 3 {
		working.Go(func() { c.claimUntil(stop, rand.New(rand.NewPCG(seed, 100+uint64(i)))) })
	}
	working.Go(func() { moveClock(clock, stop, rand.New(rand.NewPCG(seed, 200))) })
	pushing.Wait()
	clock.Advance(time.Minute) // now all are due
	for giveUp := time.Now().Add(time.Minute); !c.complete(pushers*each) && !t.Failed(); {
		c.claimOnce(100)
		if time.Now().After(giveUp) {
			c.reportMissing(pushers, each)
		}
	}
	close(stop)
	working.Wait()
	if r := mustBeSound(t, s); r.Live != 0 {
		t.Errorf("%d messages are left", r.Live)
	}
	cuts := s.topics.Get("o").Memory.Stats().Evicted
	t.Logf("the timeline was cut %d times, and %d messages were claimed by ID", cuts, c.byID.Load())
	if c.byID.Load() < 10 {
		t.Error("hardly a message was claimed by ID")
	}
	if cuts < 10 {
		t.Error("the timeline was hardly cut: memory was not too small")
	}
}

func moveClock(clock *storekit.ManualClock, stop chan struct{}, rng *rand.Rand) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
			clock.Advance(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
	}
}

// courier pushes, changes and claims messages, and knows what became of them.
type courier struct {
	t *testing.T
	s *Store

	mu   sync.Mutex
	gone map[string]string // what became of each message, by ID; guarded by mu

	byID atomic.Int64 // how many were claimed by ID
}

func (c *courier) note(id, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.gone[id]; was != "" {
		c.t.Errorf("P3 one holder, P5 cancel is definite: %s was %s and then %s", id, was, what)
	}
	c.gone[id] = what
}

func (c *courier) complete(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.gone) == n
}

func (c *courier) pushSome(rng *rand.Rand, pusher, n int) {
	for i := 0; i < n; {
		var ms []punctual.NewMessage
		for range min(1+rng.IntN(40), n-i) {
			ms = append(ms, punctual.NewMessage{
				Topic: "o", ID: fmt.Sprintf("%d-%d", pusher, i), Delay: time.Duration(rng.IntN(15_000)) * time.Millisecond,
			})
			i++
		}
		rs, err := c.s.Push(c.t.Context(), ms)
		if err != nil {
			c.t.Errorf("push: %v", err)
			return
		}
		if rng.IntN(3) == 0 {
			c.change(rng, rs[rng.IntN(len(rs))].ID)
		}
		if rng.IntN(2) == 0 {
			c.claim(punctual.Claim{IDs: c.some(rng, pusher, i)})
		}
	}
}

// some returns the IDs of up to 100 of the first n messages of a pusher. Most of them are on disk
// alone, because memory is small.
func (c *courier) some(rng *rand.Rand, pusher, n int) (ids []string) {
	for range 100 {
		ids = append(ids, fmt.Sprintf("%d-%d", pusher, rng.IntN(n)))
	}
	return ids
}

// change cancels a message, or reschedules it to a time up to 3 s from now.
func (c *courier) change(rng *rand.Rand, id string) {
	a := punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: id}
	if rng.IntN(2) == 0 {
		a.Change, a.Delay = punctual.ChangeReschedule, time.Duration(rng.IntN(3000))*time.Millisecond
	}
	out, err := c.s.Amend(c.t.Context(), []punctual.Amendment{a})
	if err != nil {
		c.t.Errorf("amend: %v", err)
		return
	}
	if a.Change == punctual.ChangeCancel && out[0].Err == nil {
		c.note(id, "cancelled")
	}
}

func (c *courier) claimUntil(stop chan struct{}, rng *rand.Rand) {
	for {
		select {
		case <-stop:
			return
		default:
			c.claimOnce(1 + rng.IntN(200))
		}
	}
}

func (c *courier) claimOnce(n int) { c.claim(punctual.Claim{Max: n}) }

func (c *courier) claim(q punctual.Claim) {
	q.Topics, q.Lease = []string{"o"}, limits.MaxLease
	ds, err := c.s.Claim(c.t.Context(), q)
	if err != nil {
		c.t.Errorf("claim: %v", err)
	}
	var ss []punctual.Settlement
	for _, d := range ds {
		if d.Delivered.Before(d.Due) {
			c.t.Errorf("P2 never early: %s due %v came at %v", d.ID, d.Due, d.Delivered)
		}
		c.note(d.ID, "delivered")
		if len(q.IDs) > 0 {
			c.byID.Add(1)
		}
		ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
	}
	errs, err := c.s.Settle(c.t.Context(), ss)
	for _, e := range append(errs, err) {
		if e != nil {
			c.t.Errorf("ack: %v", e)
		}
	}
}

// reportMissing fails the test with what the store knows of the messages that do not come.
func (c *courier) reportMissing(pushers, each int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range pushers {
		for i := range each {
			id := fmt.Sprintf("%d-%d", p, i)
			if c.gone[id] != "" {
				continue
			}
			info, err := c.s.Get(c.t.Context(), "o", id)
			c.t.Errorf("P1 no loss: %s does not come: %s due %v, %v; its topic in memory: %+v", id, info.State, info.Due, err, c.s.topics.Get("o").Memory.Stats())
		}
	}
}

// TestLoadBehindAWholeMillisecond: when a timeline is loaded up to the end of a millisecond, the
// next load begins after it, however many leased messages of that millisecond are still on disk.
func TestLoadBehindAWholeMillisecond(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{Clock: clock, fs: vfs.NewMem()})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "first", Delay: time.Minute})
	clock.Advance(time.Minute)
	err := s.load(t.Context(), s.topics.Get("o").Memory, func(l memory.Load, read []record.Stored, next record.Position) {
		s.index.Merge(l, read, next, 0, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded := s.topics.Get("o").Memory.Stats().Loaded
	if loaded.Seq != 1<<64-1 {
		t.Fatalf("the timeline is loaded up to %v, not to the end of a millisecond", loaded)
	}
	for range 2 {
		ms := make([]punctual.NewMessage, loadMessages)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "o", Due: storekit.FromMillis(loaded.Ms)}
		}
		push(t, s, ms...)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "last", Delay: time.Minute})
	clock.Advance(2 * time.Second)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"o"}, Max: limits.MaxClaim, Lease: time.Hour})
	if err != nil || len(ds) != 1+2*loadMessages {
		t.Fatalf("claimed %d messages, %v", len(ds), err)
	}
	clock.Set(testStart.Add(3 * time.Minute))
	within(t, "a claim behind many leases of one millisecond", func() {
		ctx, stop := context.WithTimeout(t.Context(), waitLimit/2)
		defer stop()
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"o"}, Max: 1, Lease: time.Hour})
		if err != nil || len(ds) != 1 {
			t.Errorf("P1: claimed %d messages, %v; want the last one", len(ds), err)
		}
	})
}

// TestLoadMeetsWhatIsNotDurable: a load reads a message whose push waits for its fsync. The message
// must not be claimed before the fsync, and is delivered once after it.
func TestLoadMeetsWhatIsNotDurable(t *testing.T) {
	k := newKillRig(t)
	push(t, k, punctual.NewMessage{Topic: "o", ID: "durable", Delay: time.Hour})
	release := make(chan struct{})
	k.faults.hang(func(op fsOp) chan struct{} {
		if op.kind == "sync" && isLog(op) {
			return release
		}
		return nil
	})
	pushed := make(chan struct{})
	go func() {
		defer close(pushed)
		push(t, k, punctual.NewMessage{Topic: "o", ID: "early", Delay: time.Hour - time.Minute})
	}()
	pending := func() bool {
		return k.index.Stats().Pending == 1
	}
	waitUntil(t, "the push is applied", pending)
	k.clock.Advance(2 * time.Hour)
	ds := claim(t, k, "o", 10)
	if !pending() {
		t.Fatal("the push did not wait for its fsync")
	}
	if len(ds) != 1 || ds[0].ID != "durable" {
		t.Errorf("P1 no loss: %d messages were claimed, among them one that a power cut takes away: %+v", len(ds), ds)
	}
	if next := k.topics.Get("o").Memory.Stats().DiskNext; next != record.MaxPosition {
		t.Errorf("the loader has not read all: the next on disk is %v", next)
	}
	close(release)
	<-pushed
	if ds := claim(t, k, "o", 10); len(ds) != 1 || ds[0].ID != "early" || ds[0].Attempt != 1 {
		t.Errorf("P1 no loss: after its fsync got %+v, want the first attempt of early", ds)
	}
	mustBeAccounted(t, k.Store, 1000)
}

// TestLoadMeetsWhatIsInHand: a load reads a message again that is leased, or was acked and is not
// deleted yet, because an earlier message was pushed meanwhile.
func TestLoadMeetsWhatIsInHand(t *testing.T) {
	for _, acked := range []bool{false, true} {
		t.Run(fmt.Sprint("acked ", acked), func(t *testing.T) {
			clock := storekit.NewManualClock(testStart)
			s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock, MemoryBytes: 1}) // nothing stays in memory
			for met := false; !met; {
				push(t, s, punctual.NewMessage{Topic: "o", ID: "first"})
				first := claim(t, s, "o", 10)
				if len(first) != 1 {
					t.Fatalf("got %+v, want one", first)
				}
				if acked {
					if err := settle(t, s, first[0], punctual.SettleAck); err != nil {
						t.Fatal(err)
					}
				}
				push(t, s, punctual.NewMessage{Topic: "o", ID: "second", Due: testStart.Add(-time.Hour)})
				ds := claim(t, s, "o", 10)
				if len(ds) != 1 || ds[0].ID != "second" {
					t.Fatalf("P3 one holder: got %+v, want only the second: the first is in hand or finished", ds)
				}
				met = s.index.Stats().Acked == 1 || !acked // else maintenance has deleted the acked message before
				if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestSlowLoadPassesDeletedMessagesWithoutTheLock: 30,000 messages were cancelled before the first
// of two that are to be loaded, and 30,000 between the two. No read with the write lock held passes
// many of them.
func TestSlowLoadPassesDeletedMessagesWithoutTheLock(t *testing.T) {
	const cancelled, most = 30_000, 10_000
	clock := storekit.NewManualClock(testStart)
	var passed atomic.Int64
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock, byHand: true, swept: func(_ database.Order, keys int) {
		passed.Store(max(passed.Load(), int64(keys)))
	}})
	due := testStart.Add(time.Hour)
	for from := 0; from < 2*cancelled; from += 1000 {
		var ms []punctual.NewMessage
		var as []punctual.Amendment
		for i := from; i < from+1000; i++ {
			if i == cancelled {
				ms = append(ms, punctual.NewMessage{Topic: "o", ID: "second", Due: due.Add(time.Duration(i) * time.Millisecond / 100)})
			}
			id := fmt.Sprint("gone-", i)
			ms = append(ms, punctual.NewMessage{Topic: "o", ID: id, Due: due.Add(time.Duration(i) * time.Millisecond / 100)})
			as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: id})
		}
		push(t, s, ms...)
		if out, err := s.Amend(t.Context(), as); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "third", Due: due.Add(time.Second)})
	clock.Advance(2 * time.Hour)
	for _, want := range []string{"second", "third"} {
		if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].ID != want {
			t.Fatalf("claimed %+v, want %s", ds, want)
		}
	}
	if passed.Load() == 0 {
		t.Fatal("nothing was read with the write lock held")
	}
	if passed.Load() > most {
		t.Errorf("P14 isolation: a load passed %d deleted messages with the write lock held, want at most %d", passed.Load(), most)
	}
}

// TestClaimReadsOneLargeBody: of five messages of 5 MiB each that wait in tables, a claim of one
// reads no more than it needs: its own body twice, without the write lock and with it.
func TestClaimReadsOneLargeBody(t *testing.T) {
	const waiting, body = 5, 5 << 20
	fs := &countingReads{FS: vfs.NewMem()}
	opt := Options{fs: fs, Clock: storekit.NewManualClock(testStart), byHand: true, MaxBody: body}
	s, err := Open("store", &opt)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{})
	for i := range waiting {
		b := make([]byte, body)
		if _, err := random.Read(b); err != nil {
			t.Fatal(err)
		}
		push(t, s, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Body: b, Due: testStart})
	}
	closeStore(t, s)
	s = openAt(t, "store", &opt)
	if n := s.db.Stats().TableBytes; n < waiting*body {
		t.Fatalf("%d bytes are in tables, want all bodies there, so that a claim has to read them", n)
	}
	for i := range waiting {
		before := fs.read.Load()
		if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].ID != fmt.Sprint(i) {
			t.Fatalf("claimed %d messages, want message %d alone", len(ds), i)
		}
		read := fs.read.Load() - before
		if read > 2*body+body/2 {
			t.Errorf("P14 isolation: claim %d read %.1f bodies from the tables, want two at most", i, float64(read)/body)
		}
	}
	if n := fs.read.Load(); n < (waiting-1)*body {
		t.Errorf("%d bytes of tables were read for all claims, want all bodies but perhaps one", n)
	}
}

// countingReads counts the bytes that are read from tables.
type countingReads struct {
	vfs.FS
	read atomic.Int64
}

func (f *countingReads) Unwrap() vfs.FS { return f.FS }

func (f *countingReads) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return countedFile{file, f}, nil
}

type countedFile struct {
	vfs.File
	fs *countingReads
}

func (f countedFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.read.Add(int64(len(b)))
	return f.File.ReadAt(b, off)
}
