package redisstore

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/redistest"
)

// told keeps what was logged, at every level.
type told struct {
	mu    sync.Mutex
	lines []string // guarded by mu: level and text
}

func (l *told) Enabled(context.Context, slog.Level) bool { return true }
func (l *told) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *told) WithGroup(string) slog.Handler            { return l }

func (l *told) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

func (l *told) count(prefix string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// waitUntil waits for what other goroutines or a server do.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for a minute: %s", what)
		}
	}
}

// An outage is told once, however often the listener tries, and notifications come again after it.
func TestAnOutageIsToldOnce(t *testing.T) {
	server := redistest.Start(t)
	var log told
	s := openStore(t, connect(t, server), &Options{Logger: slog.New(&log)})
	if _, err := s.Claim(t.Context(), orders(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	listening := func() bool {
		answer, err := server.Do("PUBSUB", "CHANNELS")
		return err == nil && strings.Contains(answer, "punctual:{orders#0}:notify")
	}
	waitUntil(t, "the store listens", listening)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the listener has tried three times", func() bool { return log.count("DEBUG still no notifications") >= 2 })
	if n := log.count("WARN no notifications for now"); n != 1 {
		t.Errorf("an outage was told %d times, want once", n)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the store listens again", listening)
}
