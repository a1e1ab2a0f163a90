//go:build unix

package diskstore

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// BenchmarkIDs measures calls that have to find a message by its ID, in a store with many pending
// messages: pushes with IDs that the pusher has chosen, pushes without to compare with, cancels and
// reschedules. They come in batches of 1000 from one caller, and one by one from 64 callers through
// a Queue. The IDs are spread over all that are pending, so hardly any of them is in a cache.
//
//	PUNCTUAL_BENCH_PENDING=3000000 go test -run '^$' -bench IDs -benchtime 200000x -timeout 0 ./diskstore
//
// b.N counts messages. PUNCTUAL_BENCH_DIR is a folder on the disk to measure.
func BenchmarkIDs(b *testing.B) {
	dir, err := os.MkdirTemp(os.Getenv("PUNCTUAL_BENCH_DIR"), "ids")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f := &idFill{dir: dir, pending: 1_000_000}
	if v := os.Getenv("PUNCTUAL_BENCH_PENDING"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			b.Fatal(err)
		}
		f.pending = int64(n)
	}
	for _, c := range []struct {
		name string
		do   func(b *testing.B, f *idFill)
	}{
		{"push/no ID/batches of 1000", func(b *testing.B, f *idFill) {
			f.batches(b, func(n int) { f.push(b, n, func() string { return "" }) })
		}},
		{"push/ID/batches of 1000", func(b *testing.B, f *idFill) { f.batches(b, func(n int) { f.push(b, n, f.newID) }) }},
		{"cancel/batches of 1000", func(b *testing.B, f *idFill) {
			f.batches(b, func(n int) { f.amend(b, n, punctual.ChangeCancel) })
		}},
		{"reschedule/batches of 1000", func(b *testing.B, f *idFill) {
			f.batches(b, func(n int) { f.amend(b, n, punctual.ChangeReschedule) })
		}},
		{"push/no ID/64 callers", func(b *testing.B, f *idFill) {
			f.callers(b, func(ctx context.Context, q *punctual.Queue) error {
				_, err := q.Push(ctx, "o", benchBody(f.delays.Load()), punctual.In(f.delay()))
				return err
			})
		}},
		{"push/ID/64 callers", func(b *testing.B, f *idFill) {
			f.callers(b, func(ctx context.Context, q *punctual.Queue) error {
				_, err := q.Push(ctx, "o", benchBody(f.delays.Load()), punctual.In(f.delay()), punctual.ID(f.newID()))
				return err
			})
		}},
		{"cancel/64 callers", func(b *testing.B, f *idFill) {
			f.callers(b, func(ctx context.Context, q *punctual.Queue) error { return q.Cancel(ctx, "o", f.oldID()) })
		}},
		{"reschedule/64 callers", func(b *testing.B, f *idFill) {
			f.callers(b, func(ctx context.Context, q *punctual.Queue) error {
				_, err := q.Reschedule(ctx, "o", f.oldID(), punctual.In(f.delay()))
				return err
			})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			f.open(b)
			c.do(b, f)
		})
	}
	if f.s != nil {
		if err := f.s.Close(); err != nil {
			b.Error(err)
		}
	}
}

// idFill is a store with many pending messages, which the parts of BenchmarkIDs share.
type idFill struct {
	dir     string
	pending int64
	s       *Store
	next    atomic.Int64 // the number of the next new ID
	used    atomic.Int64 // the number of the next ID to be cancelled or rescheduled
	delays  atomic.Uint64
}

// spread turns consecutive numbers into numbers that are spread over all 64 bits, as splitmix64
// does.
func spread(n uint64) uint64 {
	n = (n + 1) * 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

func idOf(n int64) string { return fmt.Sprintf("order-%016x", spread(uint64(n))) }

func (f *idFill) newID() string { return idOf(f.next.Add(1) - 1) }

// oldID returns the ID of a pending message. A part of the benchmark that asks for more IDs than
// there are fails, because no message has the ID then.
func (f *idFill) oldID() string { return idOf(f.used.Add(1) - 1) }

// delay returns 1 to 25 hours.
func (f *idFill) delay() time.Duration {
	return time.Hour + time.Duration(spread(f.delays.Add(1))%uint64(24*time.Hour))
}

// open fills the store when the first part begins. Before every part it waits until the database
// neither flushes nor compacts, so that no part measures the work that the one before has left.
func (f *idFill) open(b *testing.B) {
	if f.s == nil {
		s, err := Open(f.dir, &Options{Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		f.s = s
		ms := make([]punctual.NewMessage, 0, 1000)
		for n := int64(0); n < f.pending; n += int64(len(ms)) {
			for ms = ms[:0]; len(ms) < cap(ms); {
				ms = append(ms, punctual.NewMessage{Topic: "o", ID: f.newID(), Delay: f.delay(), Body: benchBody(f.delays.Load())})
			}
			sweepPush(b, f.s, ms)
		}
	}
	if err := f.s.db.Flush(); err != nil {
		b.Fatal(err)
	}
	for quiet := 0; quiet < 20; quiet++ { // 20 times in a row, because between two compactions there is a moment without one
		if m := f.s.db.Stats(); m.Compacting+m.Flushing > 0 {
			quiet = 0
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// benchBody returns a body of 200 bytes that does not compress.
func benchBody(n uint64) []byte {
	body := make([]byte, 0, 200)
	for i := uint64(0); len(body) < cap(body); i++ {
		v := spread(n<<8 + i)
		for range 8 {
			body = append(body, byte(v))
			v >>= 8
		}
	}
	return body
}

// measured reports at which rate do handles b.N messages, and how much CPU time each takes.
func measured(b *testing.B, do func()) {
	before := cpuTime(b)
	b.ResetTimer()
	do()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/1000, "cpu-µs/message")
}

// batches calls do for batches of 1000, b.N messages in all.
func (f *idFill) batches(b *testing.B, do func(n int)) {
	measured(b, func() {
		for n := 0; n < b.N; n += 1000 {
			do(min(1000, b.N-n))
		}
	})
}

// callers makes b.N calls from 64 goroutines through one Queue.
func (f *idFill) callers(b *testing.B, call func(ctx context.Context, q *punctual.Queue) error) {
	q := punctual.NewQueue(f.s, nil)
	measured(b, func() {
		var n atomic.Int64
		var callers sync.WaitGroup
		for range benchCallers {
			callers.Go(func() {
				for n.Add(1) <= int64(b.N) {
					if err := call(context.Background(), q); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		callers.Wait()
	})
}

func (f *idFill) push(b *testing.B, n int, id func() string) {
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "o", ID: id(), Delay: f.delay(), Body: benchBody(f.delays.Load())}
	}
	rs, err := f.s.Push(b.Context(), ms)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil || r.Status != punctual.PushStored {
			b.Fatalf("pushed: %+v; want it stored", r)
		}
	}
}

func (f *idFill) amend(b *testing.B, n int, change punctual.Change) {
	as := make([]punctual.Amendment, n)
	for i := range as {
		as[i] = punctual.Amendment{Change: change, Topic: "o", ID: f.oldID()}
		if change == punctual.ChangeReschedule {
			as[i].Delay = f.delay()
		}
	}
	rs, err := f.s.Amend(b.Context(), as)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range rs {
		if r.Err != nil {
			b.Fatalf("amended: %+v; want it done", r)
		}
	}
}
