package BeeDelayQueue

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// topic is one that was created in this controller.
type topic struct {
	name     string
	settings punctual.SettingsPatch
	// mistake is what is wrong with the arguments of CreateDelayQueue, or nil. It does not
	// change.
	mistake error
	// configured is set once the store has the settings. Guarded by DelayQueueController.mu.
	configured bool
	// end ends the goroutine that consumes; nil before there is one, and after stop. Guarded by
	// DelayQueueController.mu.
	end context.CancelFunc
}

// stop ends the goroutine that consumes, if there is one. The caller holds the controller's mu.
func (t *topic) stop() {
	if t.end != nil {
		t.end()
		t.end = nil
	}
}

// CreateDelayQueue makes a topic with its rules, or changes them. A message that nobody has
// acknowledged within retryTime seconds, 1 to 86400, is delivered again. It is delivered again up
// to retryCount times, 0 to 999999, so with 3 it is delivered 4 times at most. The rules are kept
// in Redis and are those of all processes; of several different calls the last one counts.
//
// Topics are named by 1 to 128 of A-Z a-z 0-9 . _ : / -.
//
// There is no result, as in the original, so what goes wrong is logged. What is wrong with the
// arguments is also returned by each Push and AddMassageListener of the topic, unless it was
// created before: then nothing changes. If Redis cannot be reached, the rules are written before
// the next push or claim.
func (p *DelayQueueController) CreateDelayQueue(topicName string, retryTime int64, retryCount int64) {
	t := newTopic(topicName, retryTime, retryCount)
	p.putTopic(t)
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	if _, err := p.ready(ctx, t); err != nil {
		p.log.Error("the queue could not be created", "topic", topicName, "err", err)
	}
}

// putTopic makes t the topic of its name, unless t has a mistake and there is one already.
func (p *DelayQueueController) putTopic(t *topic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.topics[t.name]
	if old != nil && t.mistake != nil {
		return
	}
	if old != nil {
		old.stop()
	}
	p.topics[t.name] = t
	p.consumeIfWanted(t)
}

const (
	maxRetryTime  = int64(limits.MaxLease / time.Second)
	maxRetryCount = limits.MaxAttemptsLimit - 1
)

func newTopic(name string, retryTime, retryCount int64) *topic {
	t := &topic{name: name, mistake: storekit.CheckTopic(name)}
	switch {
	case t.mistake != nil:
	case retryTime < 1 || retryTime > maxRetryTime:
		t.mistake = fmt.Errorf("time until a retry %d: use 1 to %d seconds: %w", retryTime, maxRetryTime, punctual.ErrInvalid)
	case retryCount < 0 || retryCount > maxRetryCount:
		t.mistake = fmt.Errorf("number of retries %d: use 0 to %d: %w", retryCount, maxRetryCount, punctual.ErrInvalid)
	}
	if t.mistake != nil {
		t.mistake = fmt.Errorf("create delay queue %q: %w", name, t.mistake)
		return t
	}
	lease, attempts := time.Duration(retryTime)*time.Second, int(1+retryCount)
	t.settings = punctual.SettingsPatch{Lease: &lease, MaxAttempts: &attempts}
	return t
}

// ready returns the connection once the store has the settings of t; t may be nil, for a topic
// that was not created here.
func (p *DelayQueueController) ready(ctx context.Context, t *topic) (*connection, error) {
	if t != nil && t.mistake != nil {
		return nil, t.mistake
	}
	c, err := p.connection(ctx)
	if err != nil || t == nil {
		return c, err
	}
	p.mu.Lock()
	configured := t.configured
	p.mu.Unlock()
	if configured {
		return c, nil
	}
	if _, err := c.inspector.Configure(ctx, t.name, t.settings); err != nil {
		return nil, fmt.Errorf("create delay queue %q: %w", t.name, err)
	}
	p.mu.Lock()
	t.configured = true
	p.mu.Unlock()
	return c, nil
}

// created returns the topic of this name, nil if it was not created here.
func (p *DelayQueueController) created(name string) *topic {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.topics[name]
}

// DeleteDelayQueue ends the consuming of a topic in this controller; it may be created again,
// and its listener is then served on. Nothing is removed from Redis, as in the original:
// messages wait there for another controller ("punctual topic delete" removes a topic with all
// its messages). Listeners that run are not waited for.
func (p *DelayQueueController) DeleteDelayQueue(topicName string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.topics[topicName]; t != nil {
		t.stop()
		delete(p.topics, topicName)
	}
}
