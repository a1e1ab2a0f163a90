package BeeDelayQueue

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// shared is the server of all tests that do nothing to it; each has topics of its own there.
var shared *redisrig.Server

// runAsConsumer makes the test binary a consumer, for tests that kill one: it holds the address
// of the server.
const runAsConsumer = "BEEDELAYQUEUE_TEST_CONSUMER"

func TestMain(m *testing.M) {
	if addr := os.Getenv(runAsConsumer); addr != "" {
		consumeForEver(addr)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	// A pool that could not dial goes on trying for up to a second after it was closed.
	dialling := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	return redisrig.Run(m, &shared, func() error { return goleak.Find(dialling) })
}

// waitLimit bounds waits that only a fault makes long.
const waitLimit = 30 * time.Second

// open returns a controller on the shared server, closed at the end of the test.
func open(t *testing.T) *DelayQueueController {
	t.Helper()
	return openAt(t, RedisConfig{Addr: shared.Addr, Db: 1})
}

func openAt(t *testing.T, c RedisConfig) *DelayQueueController {
	t.Helper()
	p, err := NewDelayQueueController(c)
	closeAtEnd(t, p)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closeAtEnd(t *testing.T, p *DelayQueueController) {
	p.log = slog.New(slog.NewTextHandler(t.Output(), nil))
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), waitLimit)
		defer end()
		if err := p.Close(ctx); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
}

// newTopicName returns the name of a topic that nobody has used.
func newTopicName() string { return "orderCancel-" + rand.Text() }

// hearing is a listener that passes on what it gets, and does with it what the test wants.
type hearing struct {
	got chan *DelayMsg
	do  func(*DelayMsg)
}

func newHearing(do func(*DelayMsg)) *hearing {
	return &hearing{got: make(chan *DelayMsg, 10_000), do: do}
}

func (h *hearing) OnMassage(msg *DelayMsg) bool {
	h.got <- msg
	if h.do != nil {
		h.do(msg)
	}
	return true
}

// next returns the next message.
func (h *hearing) next(t *testing.T) *DelayMsg {
	t.Helper()
	select {
	case m := <-h.got:
		return m
	case <-time.After(waitLimit):
		t.Fatalf("no message after %v", waitLimit)
		return nil
	}
}

// none fails the test if a message was delivered that next has not returned.
func (h *hearing) none(t *testing.T) {
	t.Helper()
	select {
	case m := <-h.got:
		t.Errorf("a message was delivered that should not be: %+v", m)
	default:
	}
}

func listen(t *testing.T, p *DelayQueueController, topic string, l MassageListener) {
	t.Helper()
	if err := p.AddMassageListener(topic, l); err != nil {
		t.Fatal(err)
	}
}

func push(t *testing.T, p *DelayQueueController, topic string, execTime int64) string {
	t.Helper()
	id, err := p.Push(topic, "body", execTime)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func inspect(t *testing.T, p *DelayQueueController) punctual.Inspector {
	t.Helper()
	c, err := p.connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.inspector
}

func get(t *testing.T, p *DelayQueueController, topic, id string) punctual.Info {
	t.Helper()
	m, err := inspect(t, p).Get(t.Context(), topic, id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// gone fails the test if the message is still there, be it dead.
func gone(t *testing.T, p *DelayQueueController, topic, id string) {
	t.Helper()
	if m, err := inspect(t, p).Get(t.Context(), topic, id); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("the message is still there: %+v, %v", m, err)
	}
}

// awaitDead waits until the message is dead.
func awaitDead(t *testing.T, p *DelayQueueController, topic, id string) punctual.Info {
	t.Helper()
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if m := get(t, p, topic, id); m.State == punctual.StateDead {
			return m
		}
	}
	t.Fatalf("the message is not dead after %v", waitLimit)
	return punctual.Info{}
}
