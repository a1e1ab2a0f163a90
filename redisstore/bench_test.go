package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// Quick rounds, for those who change something here; the figures of the documentation come
// from bench/. The server syncs its append-only file every second. Give a number of messages,
// so that each benchmark runs once:
//
//	go test ./redisstore -run '^$' -bench . -benchtime 300000x

// benchBody is a body that cannot be compressed.
var benchBody = func() []byte {
	b := make([]byte, 200)
	_, _ = rand.Read(b) // never fails
	return b
}()

// bench is a server, a store on it, and what the server had done when the clock was started.
type bench struct {
	*testing.B
	server *redis.Client
	store  *Store
	before map[string]float64
	cpu    time.Duration // of this process, when the clock was started
}

func newBench(b *testing.B) *bench {
	b.Helper()
	c := connect(b, redisrig.Start(b))
	s, err := Open(context.Background(), c, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	closeAtEnd(b, s.Close)
	return &bench{B: b, server: c, store: s}
}

// counters returns what INFO says of the server's work: processor time in µs, scripts that were
// run and the time in them in µs, bytes of memory.
func (b *bench) counters() map[string]float64 {
	b.Helper()
	text, err := b.server.Info(context.Background(), "cpu", "commandstats", "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	out := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread":
			out["cpu"] += n * 1e6
		case name == "used_memory" && err == nil:
			out["memory"] = n
		case name == "cmdstat_evalsha" || name == "cmdstat_eval":
			calls, usec := 0.0, 0.0
			if _, err := fmt.Sscanf(value, "calls=%f,usec=%f", &calls, &usec); err != nil {
				b.Fatal(err)
			}
			out["scripts"] += calls
			out["script-us"] += usec
		case strings.HasPrefix(name, "cmdstat_") && name != "cmdstat_info":
			calls := 0.0
			if _, err := fmt.Sscanf(value, "calls=%f,", &calls); err != nil {
				b.Fatal(err)
			}
			out["commands"] += calls
		}
	}
	return out
}

// ownCPU is the processor time that this process has used.
func (b *bench) ownCPU() time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// begin starts the clock, after what the benchmark needs was made.
func (b *bench) begin() {
	b.before, b.cpu = b.counters(), b.ownCPU()
	b.ReportAllocs()
	b.ResetTimer()
}

// end stops the clock and reports what each of n messages cost.
func (b *bench) end(n int) {
	b.StopTimer()
	cpu, after := b.ownCPU()-b.cpu, b.counters()
	per := func(what, unit string) {
		b.ReportMetric((after[what]-b.before[what])/float64(n), unit)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(cpu)/1e3/float64(n), "go-µs/message")
	per("cpu", "redis-µs/message")
	per("script-us", "script-µs/message")
	per("scripts", "scripts/message")
}

// fill pushes n messages that are due at a time.
func (b *bench) fill(n int, due time.Time) { b.fillKeys(n, due, 0) }

// fillKeys is fill with messages of so many keys.
func (b *bench) fillKeys(n int, due time.Time, keys int) {
	b.Helper()
	for left := n; left > 0; left -= 1000 {
		ms := benchMessages(min(left, 1000))
		for i := range ms {
			ms[i].Delay, ms[i].Due = 0, due
			if keys > 0 {
				ms[i].Key = fmt.Sprint("customer-", (left-i)%keys)
			}
		}
		if _, err := b.store.Push(context.Background(), ms); err != nil {
			b.Fatal(err)
		}
	}
}

func benchMessages(n int) []punctual.NewMessage {
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", Body: benchBody, Delay: time.Hour}
	}
	return ms
}

// share runs callers at the same time, which together do n things.
func share(n, callers int, do func(context.Context) error) error {
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	failed := make(chan error, callers)
	for range callers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(context.Background()); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkQueuePush pushes one by one from several callers.
func BenchmarkQueuePush(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			bb := newBench(b)
			bb.fill(1, time.Unix(1<<33, 0))
			q := punctual.NewQueue(bb.store, nil)
			bb.begin()
			bb.must(share(b.N, callers, func(ctx context.Context) error {
				_, err := q.Push(ctx, "orders", benchBody, punctual.In(time.Hour))
				return err
			}))
			bb.end(b.N)
		})
	}
}

// BenchmarkPushMany pushes in batches from two callers, and so the next batch is made while
// the server has one.
func BenchmarkPushMany(b *testing.B) {
	for _, size := range []int{64, 500} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			bb := newBench(b)
			q := punctual.NewQueue(bb.store, nil)
			bb.begin()
			batches := (b.N + size - 1) / size
			bb.must(share(batches, 2, func(ctx context.Context) error {
				_, err := q.PushMany(ctx, benchMessages(size))
				return err
			}))
			bb.end(batches * size)
		})
	}
}

// BenchmarkRawPush is what the same server does with the same bytes and no promises: a
// pipeline of ZADD and HSET.
func BenchmarkRawPush(b *testing.B) {
	for _, size := range []int{64, 500} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			bb := newBench(b)
			record := append(make([]byte, record.HeadBytes+1), benchBody...)
			bb.begin()
			batches := (b.N + size - 1) / size
			bb.must(share(batches, 2, func(ctx context.Context) error {
				_, err := bb.server.Pipelined(ctx, func(p redis.Pipeliner) error {
					for range size {
						id := storekit.NewID(time.Now())
						p.ZAdd(ctx, "t", redis.Z{Score: float64(time.Now().UnixMilli()), Member: id})
						p.HSet(ctx, "m", id, record)
					}
					return nil
				})
				return err
			}))
			bb.end(batches * size)
		})
	}
}

// BenchmarkDrain claims and acks in batches, through the Store.
func BenchmarkDrain(b *testing.B) { benchDrain(b, 0, 0) }

// BenchmarkDrainWithFinished is the same in a topic that keeps finished records.
func BenchmarkDrainWithFinished(b *testing.B) { benchDrain(b, time.Hour, 0) }

// BenchmarkDrainWithKeys is the same in a topic with 200 keys, each of which has one lease at a
// time.
func BenchmarkDrainWithKeys(b *testing.B) { benchDrain(b, 0, 200) }

func benchDrain(b *testing.B, retention time.Duration, keys int) {
	for _, size := range []int{64, 500} {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			bb := newBench(b)
			if keys > 0 {
				_, err := bb.store.Configure(context.Background(), "orders", punctual.SettingsPatch{Keyed: new(true), MaxKeyLeases: new(1)})
				bb.must(err)
			}
			keepFinished(b, bb.store, retention)
			bb.fillKeys(b.N, time.Unix(1, 0), keys)
			bb.begin()
			var left atomic.Int64
			left.Store(int64(b.N))
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() { drain(bb, &left, size) })
			}
			clients.Wait()
			bb.end(b.N)
		})
	}
}

// BenchmarkAck acks what was claimed before, 64 in a call, in a topic that keeps no finished
// records and in one that does.
func BenchmarkAck(b *testing.B) {
	for _, retention := range []time.Duration{0, time.Hour} {
		b.Run(fmt.Sprint("finished=", retention > 0), func(b *testing.B) {
			bb := newBench(b)
			keepFinished(b, bb.store, retention)
			bb.fill(b.N, time.Unix(1, 0))
			var held []punctual.Delivery
			for len(held) < b.N {
				ds, err := bb.store.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 200, Lease: time.Hour})
				bb.must(err)
				held = append(held, ds...)
			}
			bb.begin()
			for some := range slices.Chunk(held, 64) {
				settled(b, bb.store, acks(some))
			}
			bb.end(b.N)
		})
	}
}

// BenchmarkFollow acks what was claimed before, 100 in a call, with a follow-up each in a companion
// of the topic: in one step, and by a push and an ack apart.
func BenchmarkFollow(b *testing.B) {
	for _, together := range []bool{false, true} {
		b.Run(fmt.Sprint("together=", together), func(b *testing.B) {
			bb := newBench(b)
			bb.fill(b.N, time.Unix(1, 0))
			var held []punctual.Delivery
			for len(held) < b.N {
				ds, err := bb.store.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: 200, Lease: time.Hour})
				bb.must(err)
				held = append(held, ds...)
			}
			bb.begin()
			for some := range slices.Chunk(held, 100) {
				ss, ms := acks(some), make([]punctual.NewMessage, len(some))
				for i := range some {
					ms[i] = punctual.NewMessage{Topic: "orders@next", ID: some[i].ID + "~next", Body: benchBody, Delay: time.Hour}
					if together {
						ss[i].Then = ms[i : i+1]
					}
				}
				if !together {
					rs, err := bb.store.Push(context.Background(), ms)
					bb.must(err)
					for _, r := range rs {
						bb.must(r.Err)
					}
				}
				settled(b, bb.store, ss)
			}
			bb.end(b.N)
		})
	}
}

func drain(b *bench, left *atomic.Int64, size int) {
	for left.Load() > 0 {
		ds, err := b.store.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: size})
		if err != nil {
			b.Error(err)
			return
		}
		ss := make([]punctual.Settlement, len(ds))
		for i, d := range ds {
			ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
		}
		if _, err := b.store.Settle(context.Background(), ss); err != nil {
			b.Error(err)
			return
		}
		left.Add(int64(-len(ds)))
	}
}

// BenchmarkWorkerDrain has workers handle messages that are due, in this process.
func BenchmarkWorkerDrain(b *testing.B) {
	for _, shape := range []struct{ workers, slots int }{{1, 16}, {1, 64}, {1, 256}, {8, 64}} {
		b.Run(fmt.Sprintf("workers=%d/slots=%d", shape.workers, shape.slots), func(b *testing.B) {
			bb := newBench(b)
			bb.fill(b.N, time.Unix(1, 0))
			var left atomic.Int64
			left.Store(int64(b.N))
			done := make(chan struct{})
			handler := punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
				if left.Add(-1) == 0 {
					close(done)
				}
				return nil
			})
			bb.begin()
			var ws []*worker.Worker
			for range shape.workers {
				w := worker.New(bb.store, &worker.Config{Concurrency: shape.slots, Logger: slog.New(slog.DiscardHandler)})
				w.Handle("orders", handler)
				bb.must(w.Start(context.Background()))
				ws = append(ws, w)
			}
			<-done
			for _, w := range ws {
				bb.must(w.Stop(context.Background()))
			}
			bb.end(b.N)
		})
	}
}

// BenchmarkKeys pushes, claims and acks messages, 64 in a call, in a topic without keys and in
// topics with 200 of them, or with one for each message. It reports what the server does in the
// scripts for a message, in µs and in commands, for each of the three calls.
func BenchmarkKeys(b *testing.B) {
	const size = 64
	one, inOrder, fast := 1, true, limits.Rate{N: 1_000_000, Per: time.Second, Burst: 1000}
	for _, shape := range []struct {
		name string
		keys int
		set  punctual.SettingsPatch
	}{
		{"none", 0, punctual.SettingsPatch{}},
		{"200", 200, punctual.SettingsPatch{Keyed: new(true)}},
		{"200/leases=1", 200, punctual.SettingsPatch{Keyed: new(true), MaxKeyLeases: &one}},
		{"200/in-order", 200, punctual.SettingsPatch{Keyed: new(true), InOrder: &inOrder}},
		{"200/rate", 200, punctual.SettingsPatch{Keyed: new(true), MaxKeyRate: &fast}},
		{"each/leases=1", 1 << 30, punctual.SettingsPatch{Keyed: new(true), MaxKeyLeases: &one}},
		{"in-a-keyed-topic-without-one", 0, punctual.SettingsPatch{Keyed: new(true)}},
	} {
		b.Run(shape.name, func(b *testing.B) {
			bb := newBench(b)
			_, err := bb.store.Configure(context.Background(), "orders", shape.set)
			bb.must(err)
			took := map[string]float64{}
			measured := func(name string, do func()) {
				before := bb.counters()
				do()
				after := bb.counters()
				for _, what := range []string{"script-us", "cpu", "commands"} {
					took[name+" "+what] += after[what] - before[what]
				}
			}
			bb.begin()
			measured("push", func() {
				for n := 0; n < b.N; n += size {
					ms := benchMessages(min(size, b.N-n))
					for i := range ms {
						ms[i].Delay, ms[i].Due = 0, time.UnixMilli(int64(1+n+i))
						if shape.keys > 0 {
							ms[i].Key = fmt.Sprint("customer-", (n+i)%shape.keys)
						}
					}
					_, err := bb.store.Push(context.Background(), ms)
					bb.must(err)
				}
			})
			for left := b.N; left > 0; {
				var ds []punctual.Delivery
				measured("claim", func() {
					var err error
					ds, err = bb.store.Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, Max: size})
					bb.must(err)
				})
				if len(ds) == 0 {
					b.Fatalf("claims found nothing while %d messages are left", left)
				}
				measured("ack", func() { settled(b, bb.store, acks(ds)) })
				left -= len(ds)
			}
			b.StopTimer()
			for _, call := range []string{"push", "claim", "ack"} {
				for _, what := range []string{"script-us", "commands"} {
					b.ReportMetric(took[call+" "+what]/float64(b.N), call+"-"+what)
				}
			}
			b.ReportMetric((took["claim script-us"]+took["ack script-us"])/float64(b.N), "drain-script-us")
			b.ReportMetric((took["claim cpu"]+took["ack cpu"])/float64(b.N), "drain-cpu-us")
		})
	}
}

// BenchmarkMemory reports the server's memory for each message that waits.
func BenchmarkMemory(b *testing.B) {
	bb := newBench(b)
	bb.begin()
	bb.fill(b.N, time.Unix(1<<33, 0))
	bb.end(b.N)
	b.ReportMetric((bb.counters()["memory"]-bb.before["memory"])/float64(b.N), "redis-B/message")
}
