package BeeDelayQueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// The declarations of the original, in commit ebb1240d: a program that was written for it compiles.
var (
	_ interface {
		CreateDelayQueue(topic string, retryTime int64, retryCount int64)
		DeleteDelayQueue(topic string)
		AddMassageListener(topic string, client MassageListener) error
		Push(topic string, body string, execTime int64) (string, error)
		Ack(msg DelayMsg, tf bool)
		GetTime() (*time.Time, error)
		GetTimeUnix() (int64, error)
	} = (*DelayQueueController)(nil)
	_ func(RedisConfig) (*DelayQueueController, error) = NewDelayQueueController
	_                                                  = RedisConfig{Addr: "", Password: "", Db: int(0)}
	_                                                  = DelayMsg{Id: "", Topic: "", Body: "", ExecTime: int64(0), RetryCount: int64(0), CreateTime: int64(0)}
)

func TestMessageAsListenerGetsIt(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	before, err := p.GetTimeUnix()
	if err != nil {
		t.Fatal(err)
	}
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	p.CreateDelayQueue(topic, 60, 3)
	listen(t, p, topic, h)
	id, err := p.Push(topic, `{"shopId":"s001"}`, before)
	if err != nil {
		t.Fatal(err)
	}
	m := h.next(t)
	now, err := p.GetTime()
	if err != nil {
		t.Fatal(err)
	}
	if m.Token == 0 || m.CreateTime < before || m.CreateTime > now.Unix() {
		t.Errorf("token %d, created %d, between %d and %d expected", m.Token, m.CreateTime, before, now.Unix())
	}
	want := DelayMsg{Id: id, Topic: topic, Body: `{"shopId":"s001"}`, ExecTime: before, RetryCount: 1, CreateTime: m.CreateTime, Token: m.Token}
	if *m != want {
		t.Errorf("got %+v, want %+v", *m, want)
	}
}

// A message is not delivered before its execTime, by Redis's clock (P2), whichever form that has.
func TestNotBeforeItsTime(t *testing.T) {
	t.Parallel()
	for name, absolute := range map[string]bool{"Unix seconds": true, "seconds from now": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, topic := open(t), newTopicName()
			early := make(chan time.Duration, 1)
			now, err := p.GetTime()
			if err != nil {
				t.Fatal(err)
			}
			when, due := int64(1), now.Add(time.Second)
			if absolute {
				when, due = now.Unix()+1, time.Unix(now.Unix()+1, 0)
			}
			h := newHearing(func(m *DelayMsg) {
				at, err := p.GetTime()
				if err != nil {
					t.Error(err)
				} else {
					early <- due.Sub(*at)
				}
				p.Ack(*m, true)
			})
			p.CreateDelayQueue(topic, 60, 3)
			listen(t, p, topic, h)
			push(t, p, topic, when)
			h.next(t)
			if by := <-early; by > 0 {
				t.Errorf("P2: delivered %v early", by)
			}
		})
	}
}

func TestListenerBeforeQueue(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	listen(t, p, topic, h)
	id := push(t, p, topic, 0) // the original stores it for later, too
	h.none(t)
	p.CreateDelayQueue(topic, 60, 3)
	if m := h.next(t); m.Id != id {
		t.Errorf("got %s, want %s", m.Id, id)
	}
}

func TestLaterListenerTakesOver(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	first := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	second := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	p.CreateDelayQueue(topic, 60, 3)
	listen(t, p, topic, first)
	push(t, p, topic, 0)
	first.next(t)
	listen(t, p, topic, second)
	push(t, p, topic, 0)
	second.next(t)
	first.none(t)
}

func TestDeleteDelayQueueLeavesTheMessages(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, true) })
	p.CreateDelayQueue(topic, 60, 3)
	listen(t, p, topic, h)
	push(t, p, topic, 0)
	h.next(t)
	p.DeleteDelayQueue(topic)
	p.DeleteDelayQueue("never-created")
	// The consumer may have sent a claim before DeleteDelayQueue; then it gives the messages of
	// that claim back.
	id := push(t, p, topic, 0)
	if m := get(t, p, topic, id); m.Attempt > 1 {
		t.Errorf("attempt %d", m.Attempt)
	}
	h.none(t)
	p.CreateDelayQueue(topic, 60, 3)
	if m := h.next(t); m.Id != id || m.RetryCount != 1 {
		t.Errorf("got %+v, want %s, first delivery", m, id)
	}
}

func TestPanicIsNoAck(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 1, 1)
	h := newHearing(func(*DelayMsg) { panic("no such order") })
	listen(t, p, topic, h)
	begin, err := p.GetTime()
	if err != nil {
		t.Fatal(err)
	}
	id := push(t, p, topic, 0)
	h.next(t)
	if m := h.next(t); m.Id != id || m.RetryCount != 2 {
		t.Errorf("got %+v, want %s again", m, id)
	}
	again, err := p.GetTime()
	if err != nil {
		t.Fatal(err)
	}
	if took := again.Sub(*begin); took < 900*time.Millisecond {
		t.Errorf("delivered again after %v, want the topic's second", took)
	}
	dead := awaitDead(t, p, topic, id)
	if dead.Reason != punctual.ReasonDiscarded || len(dead.Failures) != 2 || dead.Failures[1].Error != "panic: no such order" {
		t.Errorf("dead: %q, %+v", dead.Reason, dead.Failures)
	}
}

func TestPanicAfterAckChangesNothing(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 60, 3)
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, true); panic("after the fact") })
	listen(t, p, topic, h)
	id := push(t, p, topic, 0)
	h.next(t)
	closeNow(t, p) // waits for the listener
	gone(t, open(t), topic, id)
}

func closeNow(t *testing.T, p *DelayQueueController) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), waitLimit)
	defer end()
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// Two controllers share a topic without a lock: each message goes to one of them (P3).
func TestTwoControllersShareATopic(t *testing.T) {
	t.Parallel()
	const n = 300
	topic := newTopicName()
	var mu sync.Mutex
	deliveries := map[string]int{}
	all := make(chan struct{})
	for range 2 {
		p := open(t)
		p.CreateDelayQueue(topic, 600, 3)
		listen(t, p, topic, newHearing(func(m *DelayMsg) {
			p.Ack(*m, true)
			mu.Lock()
			defer mu.Unlock()
			if deliveries[m.Id]++; len(deliveries) == n {
				select {
				case <-all:
				default:
					close(all)
				}
			}
		}))
	}
	pusher := open(t)
	for range n {
		push(t, pusher, topic, 0)
	}
	select {
	case <-all:
	case <-time.After(waitLimit):
	}
	mu.Lock()
	defer mu.Unlock()
	if len(deliveries) != n {
		t.Errorf("P1: %d of %d messages were delivered", len(deliveries), n)
	}
	for id, times := range deliveries {
		if times != 1 {
			t.Errorf("P3: %s was delivered %d times", id, times)
		}
	}
}

// A slow listener does not keep others from being called.
func TestListenersRunBesideEachOther(t *testing.T) {
	t.Parallel()
	const n = 50
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 600, 3)
	var met sync.WaitGroup
	met.Add(n)
	h := newHearing(func(m *DelayMsg) {
		met.Done()
		met.Wait() // all of them are here at once
		p.Ack(*m, true)
	})
	listen(t, p, topic, h)
	for range n {
		push(t, p, topic, 0)
	}
	for range n {
		h.next(t)
	}
}

// More messages than listeners may run wait in Redis, not in this process (P10).
func TestListenersAreBounded(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	finish := make(chan struct{})
	h := newHearing(func(m *DelayMsg) { <-finish; p.Ack(*m, true) })
	var ms []punctual.NewMessage
	for range maxListening + 1 {
		ms = append(ms, punctual.NewMessage{Topic: topic})
	}
	c, err := p.connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.queue.PushMany(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	p.CreateDelayQueue(topic, 600, 3)
	listen(t, p, topic, h)
	for range maxListening {
		h.next(t)
	}
	s, err := c.inspector.Stats(t.Context(), topic)
	if err != nil || s.Leased != maxListening || s.Ready != 1 {
		t.Errorf("P10: %d leased, %d ready, %v; want %d and 1", s.Leased, s.Ready, err, maxListening)
	}
	close(finish)
	h.next(t)
}

// A message that was claimed but not handed to a listener when the consuming ends is given back,
// and its attempt does not count.
func TestUnstartedIsGivenBack(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 600, 3)
	id := push(t, p, topic, 0)
	var got []punctual.Delivery
	for end := time.Now().Add(waitLimit); len(got) == 0 && time.Now().Before(end); {
		var err error
		if got, err = p.claim(t.Context(), p.created(topic), 1); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	free := make(chan struct{}, 1)
	p.handOut(ended, got, time.Now(), free)
	<-free
	if m := get(t, p, topic, id); m.State != punctual.StateReady || m.Attempt != 0 {
		t.Errorf("%v after %d attempts, want ready after none", m.State, m.Attempt)
	}
}

func TestCloseWaitsForListeners(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 600, 3)
	finish := make(chan struct{})
	h := newHearing(func(m *DelayMsg) { <-finish; p.Ack(*m, true) })
	listen(t, p, topic, h)
	id := push(t, p, topic, 0)
	h.next(t)
	closed := make(chan error, 1)
	go func() { closed <- p.Close(context.Background()) }()
	for end := time.Now().Add(waitLimit); ; {
		if err := p.AddMassageListener(topic, h); errors.Is(err, punctual.ErrClosed) {
			break // Close has begun
		}
		if time.Now().After(end) {
			t.Fatal("Close does not begin")
		}
	}
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	close(finish)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	gone(t, open(t), topic, id) // the Ack of a running listener passed

	if _, err := p.Push(topic, "", 0); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("push after Close: %v", err)
	}
	if err := p.Close(context.Background()); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	p.CreateDelayQueue(topic, 60, 3)
	p.DeleteDelayQueue(topic)
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 600, 3)
	finish := make(chan struct{})
	returned := make(chan error, 1)
	h := newHearing(func(m *DelayMsg) { <-finish; returned <- p.Settle(*m, true) })
	listen(t, p, topic, h)
	push(t, p, topic, 0)
	h.next(t)
	ctx, end := context.WithCancel(context.Background())
	end()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "still run: ") {
		t.Errorf("close: %v", err)
	}
	close(finish)
	if err := <-returned; !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("ack after Close: %v", err)
	}
	<-p.idle
}

// Close does not wait beyond its context for a call that connects. That call gets no connection,
// and closes what it has made.
func TestCloseDoesNotWaitForAConnection(t *testing.T) {
	t.Parallel()
	mem := memstore.New(nil)
	p := newController(slog.New(slog.DiscardHandler))
	connects, goOn := make(chan struct{}), make(chan struct{})
	p.connect = func(context.Context) (*connection, error) {
		close(connects)
		<-goOn
		return connectionOn(mem, true)
	}
	pushed := make(chan error)
	go func() {
		_, err := p.Push("t", "", 0)
		pushed <- err
	}()
	<-connects
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "a call still connects") {
		t.Errorf("close: %v", err)
	}
	close(goOn)
	if err := <-pushed; !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("the push that connected: %v", err)
	}
	if _, err := mem.Now(t.Context()); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("the store that the push connected to, after Close: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	p := open(t)
	for name, c := range map[string]struct {
		topic                 string
		retryTime, retryCount int64
		says                  string
	}{
		"topic":           {"訂單", 10, 3, "is not one of"},
		"no topic":        {"", 10, 3, "topic is empty"},
		"retry time 0":    {newTopicName(), 0, 3, "use 1 to 86400 seconds"},
		"retry time long": {newTopicName(), 86401, 3, "use 1 to 86400 seconds"},
		"negative count":  {newTopicName(), 10, -1, "use 0 to 999999"},
		"large count":     {newTopicName(), 10, 1_000_000, "use 0 to 999999"},
	} {
		p.CreateDelayQueue(c.topic, c.retryTime, c.retryCount)
		_, pushed := p.Push(c.topic, "", 0)
		for _, err := range []error{pushed, p.AddMassageListener(c.topic, newHearing(nil))} {
			if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := p.AddMassageListener("t", nil); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("nil listener: %v", err)
	}
	if _, err := NewDelayQueueControllerOnStore(nil); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("nil store: %v", err)
	}
}

func TestMistakeLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 7, 2)
	p.CreateDelayQueue(topic, 0, 2)
	if _, err := p.Push(topic, "", 60); err != nil {
		t.Error(err)
	}
	s, err := inspect(t, p).Settings(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if s.Lease != 7*time.Second || s.MaxAttempts != 3 {
		t.Errorf("lease %v, attempts %d, want 7s and 3", s.Lease, s.MaxAttempts)
	}
}

func TestCreateDelayQueueChangesTheRules(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, false) })
	p.CreateDelayQueue(topic, 600, 5)
	listen(t, p, topic, h)
	p.CreateDelayQueue(topic, 600, 0)
	id := push(t, p, topic, 0)
	if m := h.next(t); m.RetryCount != 1 {
		t.Errorf("delivery %d", m.RetryCount)
	}
	if dead := awaitDead(t, p, topic, id); dead.Attempt != 1 {
		t.Errorf("dead after %d deliveries, want 1", dead.Attempt)
	}
}
