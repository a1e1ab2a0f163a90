package BeeDelayQueue

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

func TestServerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	locked := redisrig.Start(t)
	if _, err := locked.Do("CONFIG", "SET", "requirepass", "secret-word"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config RedisConfig
		says   []string
		kind   error
	}{
		"nobody listens":    {RedisConfig{Addr: deadAddr(t)}, []string{"cannot be reached", "connection refused"}, punctual.ErrUnreachable},
		"no password":       {RedisConfig{Addr: locked.Addr}, []string{"the server asks for a password"}, punctual.ErrUnsupported},
		"wrong password":    {RedisConfig{Addr: locked.Addr, Password: "guessed"}, []string{"does not accept this user and password"}, punctual.ErrUnsupported},
		"no such database":  {RedisConfig{Addr: shared.Addr, Db: 99}, []string{"database 99", "out of range"}, nil},
		"database below 0":  {RedisConfig{Addr: shared.Addr, Db: -1}, []string{"use 0 or more"}, punctual.ErrInvalid},
		"not even a server": {RedisConfig{Addr: "no colon"}, []string{"redis at no colon"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := NewDelayQueueController(c.config)
			closeAtEnd(t, p)
			_, pushed := p.Push("t", "", 0)
			removed := p.Remove("t", "id")
			_, told := p.GetTimeUnix()
			for what, err := range map[string]error{"new": err, "push": pushed, "remove": removed, "time": told} {
				if err == nil {
					t.Errorf("%s: no error", what)
					continue
				}
				if c.kind != nil && !errors.Is(err, c.kind) {
					t.Errorf("%s: %v; want %v", what, err, c.kind)
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: %v; want %q in it", what, err, text)
					}
				}
				if strings.Contains(err.Error(), "secret-word") || strings.Contains(err.Error(), "guessed") {
					t.Errorf("%s tells the password: %v", what, err)
				}
			}
		})
	}
	p := openAt(t, RedisConfig{Addr: locked.Addr, Password: "secret-word"})
	if _, err := p.Push("t", "", 0); err != nil {
		t.Error(err)
	}
}

// deadAddr returns an address on which nobody listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// As with the original, a program may start before Redis does.
func TestRedisThatComesLater(t *testing.T) {
	t.Parallel()
	server := redisrig.Start(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	p, err := NewDelayQueueController(RedisConfig{Addr: server.Addr})
	closeAtEnd(t, p)
	if err == nil {
		t.Error("no error while nobody listens")
	}
	topic := newTopicName()
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	p.CreateDelayQueue(topic, 600, 3)
	listen(t, p, topic, h)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	id := push(t, p, topic, 0)
	if m := h.next(t); m.Id != id {
		t.Errorf("got %s, want %s", m.Id, id)
	}
	s, err := inspect(t, p).Settings(t.Context(), topic)
	if err != nil || s.Lease != 10*time.Minute || s.MaxAttempts != 4 {
		t.Errorf("lease %v, attempts %d, %v", s.Lease, s.MaxAttempts, err)
	}
}

// When Redis is away for a moment an Ack is tried again, and the consuming goes on by itself.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	server := redisrig.Start(t, "--appendfsync", "always")
	p, topic := openAt(t, RedisConfig{Addr: server.Addr}), newTopicName()
	h := newHearing(nil)
	p.CreateDelayQueue(topic, 3600, 3)
	listen(t, p, topic, h)
	id := push(t, p, topic, 0)
	m := h.next(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Settle(*m, true) }()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	gone(t, p, topic, id)
	id = push(t, p, topic, 0)
	if m := h.next(t); m.Id != id || m.RetryCount != 1 {
		t.Errorf("got %+v, want the first delivery of %s", m, id)
	}
}

// After the data set was wiped calls fail with ErrStoreFailed. They do not go on as if nothing had
// been stored.
func TestWipedRedis(t *testing.T) {
	t.Parallel()
	server := redisrig.Start(t)
	p, topic := openAt(t, RedisConfig{Addr: server.Addr}), newTopicName()
	p.CreateDelayQueue(topic, 60, 3)
	push(t, p, topic, 3600)
	if _, err := server.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.GetTime(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("time: %v", err)
	}
	if _, err := p.Push(topic, "", 0); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("push: %v", err)
	}
}

// A Redis that does not answer makes no call hang: each returns an error that says so (P10, P13).
func TestRedisThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redisrig.Start(t)
	p, topic := openAt(t, RedisConfig{Addr: server.Addr}), newTopicName()
	h := newHearing(nil)
	p.CreateDelayQueue(topic, 3600, 3)
	listen(t, p, topic, h)
	push(t, p, topic, 0)
	m := h.next(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"push":   func() error { _, err := p.Push(topic, "", 0); return err },
		"remove": func() error { return p.Remove(topic, m.Id) },
		"settle": func() error { return p.Settle(*m, true) },
		"time":   func() error { _, err := p.GetTimeUnix(); return err },
	} {
		calls.Go(func() {
			err := call()
			if !errors.Is(err, punctual.ErrIndeterminate) && !errors.Is(err, punctual.ErrUnreachable) {
				t.Errorf("P13: %s: %v; want an error that says what is known", name, err)
			}
		})
	}
	calls.Wait() // a call that hangs runs into the timeout of go test
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
}

const (
	killTopic   = "orderCancel.kill"
	killRetries = 3
)

// consumeForEver is a process that gets messages and never acknowledges one.
func consumeForEver(addr string) {
	p, err := NewDelayQueueController(RedisConfig{Addr: addr})
	if err != nil {
		slog.Error("consumer", "err", err)
		os.Exit(1)
	}
	p.CreateDelayQueue(killTopic, 1, killRetries)
	h := newHearing(nil)
	if err := p.AddMassageListener(killTopic, h); err != nil {
		slog.Error("consumer", "err", err)
		os.Exit(1)
	}
	for m := range h.got {
		fmt.Println(m.Id)
	}
}

// Messages that a process had when it was killed with -9 are delivered to another one (P1).
func TestKilledConsumer(t *testing.T) {
	t.Parallel()
	const n = 5
	server := redisrig.Start(t)
	p := openAt(t, RedisConfig{Addr: server.Addr})
	p.CreateDelayQueue(killTopic, 1, killRetries)
	want := map[string]bool{}
	for range n {
		want[push(t, p, killTopic, 0)] = true
	}
	for id := range consumeAndDie(t, server.Addr, n) {
		if !want[id] {
			t.Errorf("the consumer got %s, which was not pushed", id)
		}
	}
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	listen(t, p, killTopic, h)
	for len(want) > 0 {
		m := h.next(t)
		if m.RetryCount < 2 {
			t.Errorf("%s: delivery %d after the one to the killed process (P6)", m.Id, m.RetryCount)
		}
		delete(want, m.Id)
	}
}

// consumeAndDie runs a consumer until it has got n messages, kills it and returns their IDs.
func consumeAndDie(t *testing.T, addr string, n int) map[string]bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), runAsConsumer+"="+addr)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	got := map[string]bool{}
	for lines := bufio.NewScanner(out); len(got) < n && lines.Scan(); {
		got[lines.Text()] = true
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // an error says only that the signal ended the command
	if len(got) < n {
		t.Fatalf("the consumer got %d of %d messages", len(got), n)
	}
	return got
}
