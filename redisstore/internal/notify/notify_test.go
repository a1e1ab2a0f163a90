package notify

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

var shared *redisrig.Server

func TestMain(m *testing.M) {
	// A connection pool of go-redis that could not dial goes on trying for up to a second after it
	// was closed.
	dialling := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	os.Exit(redisrig.Run(m, &shared, func() error { return goleak.Find(dialling) }))
}

// logged keeps what was logged, at every level.
type logged struct {
	mu    sync.Mutex
	lines []string // guarded by mu: level and text
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

func (l *logged) count(prefix string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// received is a Receiver that keeps what a Listener has passed on. A call of Missed is an event at
// the time missed.
type received struct {
	mu  sync.Mutex
	all []event // guarded by mu
}

type event struct {
	part wait.Part
	at   int64
}

const missed = -1

func (r *received) Notified(p wait.Part, at int64) { r.add(event{p, at}) }
func (r *received) Missed(p wait.Part)             { r.add(event{p, missed}) }

func (r *received) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *received) count(e event) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		if x == e {
			n++
		}
	}
	return n
}

// listen starts a Listener, which ends with the test.
func listen(t *testing.T, s *redisrig.Server) (*Listener, *received, *logged) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	r, log := &received{}, &logged{}
	l := New(client, Options{Receiver: r, Logger: slog.New(log), Sender: "me", PingEvery: PingEvery})
	l.Start()
	t.Cleanup(func() {
		l.Close()
		if err := client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return l, r, log
}

// waitUntil waits for what other goroutines or a server do.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for a minute: %s", what)
		}
	}
}

func do(t *testing.T, s *redisrig.Server, words ...string) string {
	t.Helper()
	answer, err := s.Do(words...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return answer
}

// P11: a Listener passes on what others publish, and once it has subscribed also that something may
// have been missed before. It does not pass on what its own store has published. A notification
// without a readable time counts as missed.
func TestWhatIsPassedOn(t *testing.T) {
	l, r, _ := listen(t, shared)
	p := wait.Part{Topic: "orders"}
	l.Subscribe("passed-on", p)
	waitUntil(t, "subscribed", func() bool { return r.count(event{p, missed}) == 1 })
	do(t, shared, "PUBLISH", "passed-on", "me 5")
	do(t, shared, "PUBLISH", "passed-on", "other 7")
	do(t, shared, "PUBLISH", "passed-on", "other soon")
	waitUntil(t, "all has come", func() bool { return r.count(event{p, missed}) == 2 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := []event{{p, missed}, {p, 7}, {p, missed}}; !slices.Equal(r.all, want) {
		t.Errorf("P11: passed on %v; want %v", r.all, want)
	}
}

// A channel that was unsubscribed from has one subscriber less; one that was then subscribed to
// again is still passed on.
func TestUnsubscribe(t *testing.T) {
	l, r, _ := listen(t, shared)
	for _, name := range []string{"stays", "goes"} {
		l.Subscribe(name, wait.Part{Topic: name})
	}
	subscribers := func(channel string) string { return do(t, shared, "PUBSUB", "NUMSUB", channel) }
	one := subscribers("nobody")
	waitUntil(t, "both are subscribed to", func() bool {
		return r.count(event{wait.Part{Topic: "stays"}, missed}) == 1 && r.count(event{wait.Part{Topic: "goes"}, missed}) == 1
	})
	l.Unsubscribe("goes")
	l.Unsubscribe("stays")
	l.Subscribe("stays", wait.Part{Topic: "stays"})
	waitUntil(t, "one is left", func() bool {
		return strings.TrimPrefix(subscribers("goes"), "goes") == strings.TrimPrefix(one, "nobody")
	})
	do(t, shared, "PUBLISH", "stays", "other 7")
	waitUntil(t, "the other one is not", func() bool { return r.count(event{wait.Part{Topic: "stays"}, 7}) == 1 })
}

// An outage is no warning of the Listener, because those who call the server tell of the outage.
// After the outage the Listener subscribes again.
func TestAnOutageIsNotToldHere(t *testing.T) {
	server := redisrig.Start(t)
	l, r, log := listen(t, server)
	p := wait.Part{Topic: "orders"}
	l.Subscribe("outage", p)
	waitUntil(t, "the listener is subscribed", func() bool { return r.count(event{p, missed}) == 1 })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the listener has tried three times", func() bool { return log.count("DEBUG no notifications") >= 3 })
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the listener is subscribed again", func() bool { return r.count(event{p, missed}) == 2 })
	if n := log.count("WARN"); n != 0 {
		t.Errorf("the listener warns of an outage %d times, want never", n)
	}
}

// A server that answers but gives no notifications is one warning, however often the Listener
// tries.
func TestRefusedNotificationsAreToldOnce(t *testing.T) {
	server := redisrig.Start(t)
	do(t, server, "ACL", "SETUSER", "default", "resetchannels")
	l, r, log := listen(t, server)
	p := wait.Part{Topic: "orders"}
	l.Subscribe("refused", p)
	waitUntil(t, "the listener has tried four times", func() bool { return log.count("WARN")+log.count("DEBUG no notifications") >= 4 })
	if n := log.count("WARN no notifications for now"); n != 1 {
		t.Errorf("the listener warns %d times, want once", n)
	}
	do(t, server, "ACL", "SETUSER", "default", "allchannels")
	waitUntil(t, "the listener is subscribed", func() bool { return r.count(event{p, missed}) == 1 })
}
