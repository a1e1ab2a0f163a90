package BeeDelayQueue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// delivering has a message on its way to a listener that only notes what it hears.
func delivering(t *testing.T, retryTime, retries int64) (p *DelayQueueController, topic string, h *hearing, id string) {
	t.Helper()
	p, topic, h = open(t), newTopicName(), newHearing(nil)
	p.CreateDelayQueue(topic, retryTime, retries)
	listen(t, p, topic, h)
	return p, topic, h, push(t, p, topic, 0)
}

func TestAckFinishes(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	done := make(chan error, 1)
	h := newHearing(func(m *DelayMsg) { done <- p.Settle(*m, true) })
	p.CreateDelayQueue(topic, 60, 3)
	listen(t, p, topic, h)
	id := push(t, p, topic, 0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	gone(t, p, topic, id)
}

// Ack with false gives back at once, up to retryCount times, and then discards.
func TestAckFalse(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	h := newHearing(func(m *DelayMsg) { p.Ack(*m, false) })
	p.CreateDelayQueue(topic, 3600, 2) // so long that only "at once" can be what brings it back
	listen(t, p, topic, h)
	id := push(t, p, topic, 0)
	for delivery := int64(1); delivery <= 3; delivery++ {
		if m := h.next(t); m.Id != id || m.RetryCount != delivery {
			t.Errorf("got %s, delivery %d; want %s, delivery %d", m.Id, m.RetryCount, id, delivery)
		}
	}
	dead := awaitDead(t, p, topic, id)
	if dead.Reason != punctual.ReasonDiscarded || dead.Attempt != 3 || len(dead.Failures) != 3 {
		t.Errorf("P6: dead as %q after %d deliveries, history %+v", dead.Reason, dead.Attempt, dead.Failures)
	}
	h.none(t)
}

// Without an Ack within retryTime the message comes again, up to retryCount times.
func TestNoAck(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	h := newHearing(nil) // returns true, which is no Ack
	p.CreateDelayQueue(topic, 1, 1)
	listen(t, p, topic, h)
	id := push(t, p, topic, 0)
	for delivery := int64(1); delivery <= 2; delivery++ {
		if m := h.next(t); m.Id != id || m.RetryCount != delivery {
			t.Errorf("got %s, delivery %d; want %s, delivery %d", m.Id, m.RetryCount, id, delivery)
		}
	}
	dead := awaitDead(t, p, topic, id)
	if dead.Reason != punctual.ReasonAttemptsUsedUp || dead.Attempt != 2 {
		t.Errorf("P6: dead as %q after %d deliveries", dead.Reason, dead.Attempt)
	}
	h.none(t)
}

func TestAckTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second bool }{
		"true, true": {true, true}, "true, false": {true, false},
		"false, true": {false, true}, "false, false": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, topic, h, id := delivering(t, 3600, 3)
			m := h.next(t)
			if err := p.Settle(*m, c.first); err != nil {
				t.Fatal(err)
			}
			if err := p.Settle(*m, c.second); !errors.Is(err, punctual.ErrLeaseLost) {
				t.Errorf("P4: the second Ack: %v", err)
			}
			if c.first {
				gone(t, p, topic, id)
				return
			}
			again := h.next(t) // the first Ack counts, once
			if info := get(t, p, topic, id); again.RetryCount != 2 || info.Attempt != 2 || len(info.Failures) != 1 {
				t.Errorf("delivery %d, attempt %d, history %+v", again.RetryCount, info.Attempt, info.Failures)
			}
		})
	}
}

// An Ack that comes too late counts if nobody else got the message meanwhile.
func TestLateAck(t *testing.T) {
	t.Parallel()
	p, topic, h, id := delivering(t, 1, 3)
	m := h.next(t)
	p.DeleteDelayQueue(topic) // so that it is not delivered again
	for end := time.Now().Add(waitLimit); get(t, p, topic, id).State != punctual.StateReady; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the lease does not end")
		}
	}
	if err := p.Settle(*m, true); err != nil {
		t.Error(err)
	}
	gone(t, p, topic, id)
}

// An Ack that comes after the message was delivered again changes nothing.
func TestAckAfterNextDelivery(t *testing.T) {
	t.Parallel()
	p, topic, h, id := delivering(t, 1, 5)
	first := h.next(t)
	second := h.next(t)
	for _, ok := range []bool{true, false} {
		if err := p.Settle(*first, ok); !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("P4: Ack(%v) of the first delivery: %v", ok, err)
		}
	}
	for { // this machine may be so slow that there is a third
		err := p.Settle(*second, true)
		if err == nil {
			break
		}
		if !errors.Is(err, punctual.ErrLeaseLost) {
			t.Fatal(err)
		}
		second = h.next(t)
	}
	gone(t, p, topic, id)
}

// An Ack may come from anywhere, of a copy that went through JSON.
func TestAckByAnotherController(t *testing.T) {
	t.Parallel()
	p, topic, h, id := delivering(t, 3600, 3)
	text, err := json.Marshal(h.next(t))
	if err != nil {
		t.Fatal(err)
	}
	var m DelayMsg
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if err := open(t).Settle(m, true); err != nil {
		t.Error(err)
	}
	gone(t, p, topic, id)

	m.Token = 0
	if err := p.Settle(m, true); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "no Token") {
		t.Errorf("ack without a token: %v", err)
	}
}

func TestListenerMayChangeItsMessage(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 3600, 3)
	done := make(chan error, 1)
	listen(t, p, topic, newHearing(func(m *DelayMsg) { m.Body = "changed"; done <- p.Settle(*m, true) }))
	id := push(t, p, topic, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	gone(t, p, topic, id)
}
