package remotestore_test

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

// BenchmarkHundred measures what a message costs in batches of 100, client and server together: CPU
// time in cpu-ns/msg. "library" is the embedded store without a server. Run all ways with -bench
// 'Hundred/push/' -count 1, several times, because the speed of a machine changes.
func BenchmarkHundred(b *testing.B) {
	ways := []string{"library", "http1-json", "json", "http1-compact", "compact"}
	for _, way := range ways {
		b.Run("push/"+way, func(b *testing.B) {
			s := hundredStore(b, way)
			measure(b, func() { pushHundred(b, s, time.Hour) })
		})
	}
	for _, way := range ways {
		b.Run("work/"+way, func(b *testing.B) {
			s := hundredStore(b, way)
			for range b.N {
				pushHundred(b, s, 0)
			}
			measure(b, func() { workHundred(b, s) })
		})
	}
}

func hundredStore(b *testing.B, way string) punctual.Store {
	below, err := diskstore.Open(b.TempDir(), nil)
	below = closing(b, below, err)
	if way == "library" {
		return below
	}
	s := connect(b, nil, serve(b, below, "").url)
	if strings.HasSuffix(way, "json") {
		s.SpeakJSON()
	}
	if strings.HasPrefix(way, "http1") {
		s.SpeakHTTP1()
	}
	return s
}

// hundredBody is a body of 200 bytes such as applications have.
var hundredBody = bytes.Repeat([]byte(`{"order":"A-17","amount":1250,"customer":"c-831"} `), 4)

func pushHundred(b *testing.B, s punctual.Store, delay time.Duration) {
	ms := make([]punctual.NewMessage, 100)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "orders", Body: hundredBody, Delay: delay}
	}
	rs, err := s.Push(b.Context(), ms)
	if err != nil {
		b.Error(err)
		return
	}
	for _, r := range rs {
		if r.Err != nil {
			b.Error(r.Err)
		}
	}
}

func workHundred(b *testing.B, s punctual.Store) {
	ds, err := s.Claim(b.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100})
	if err != nil || len(ds) == 0 {
		b.Errorf("claimed %d, %v", len(ds), err)
	}
	ss := make([]punctual.Settlement, len(ds))
	for i := range ds {
		ss[i] = ackOf(ds[i])[0]
	}
	errs, err := s.Settle(b.Context(), ss)
	if err != nil {
		b.Error(err)
	}
	for _, err := range errs {
		if err != nil {
			b.Error(err)
		}
	}
}

// measure has 8 goroutines run f, which handles 100 messages, b.N times together. The CPU time that
// the store needs later in the background is counted as well.
func measure(b *testing.B, f func()) {
	b.ReportAllocs()
	began := rest(b)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	b.ReportMetric(float64((rest(b)-began).Nanoseconds())/float64(b.N)/100, "cpu-ns/msg")
}

// rest waits until the process hardly needs CPU time any more, and returns the CPU time that it has
// used.
func rest(b *testing.B) time.Duration {
	last := cpuTime(b)
	for quiet := 0; quiet < 3; {
		time.Sleep(20 * time.Millisecond)
		now := cpuTime(b)
		quiet++
		if now-last > 500*time.Microsecond {
			quiet = 0
		}
		last = now
	}
	return last
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
