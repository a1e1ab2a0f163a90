package BeeDelayQueue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// MassageListener is called with each message of a topic when it is due. The name is the
// original's spelling of message.
type MassageListener interface {
	// OnMassage handles a message and calls Ack, before or after it returns. It is called in a
	// goroutine of its own, of which there are at most a thousand for each topic and controller;
	// those that still run when the topic is created anew do not count. As in the original its
	// result means nothing: only Ack counts. A message that is not acknowledged within the topic's
	// retry time is delivered again while it has retries left, even if OnMassage still runs. A
	// panic is logged, and the message is delivered again when that time is over, or discarded at
	// once when its retries are used up.
	OnMassage(msg *DelayMsg) bool
}

// AddMassageListener sets the listener of a topic in this controller. A second call replaces the
// listener for the messages to come. The listener gets messages once the topic was created, which
// may be before this call or after it. The error is nil unless client is nil, no topic can have
// that name, the arguments of CreateDelayQueue were wrong or the controller is closed. The original
// always returns an error.
func (p *DelayQueueController) AddMassageListener(topic string, client MassageListener) error {
	if client == nil {
		return fmt.Errorf("listener of topic %q is nil: %w", topic, punctual.ErrInvalid)
	}
	if err := storekit.CheckTopic(topic); err != nil {
		return fmt.Errorf("add listener: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return errClosed()
	}
	p.listeners[topic] = client
	t := p.topics[topic]
	if t == nil {
		return nil
	}
	p.consumeIfWanted(t)
	return t.mistake
}

func (p *DelayQueueController) listener(topic string) MassageListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listeners[topic]
}

const (
	// maxListening bounds the listeners of one topic that run at a time. The original has no
	// bound, and fetches at most 50 messages a second.
	maxListening = 1000
	// maxClaim bounds the messages of one claim.
	maxClaim = 100
	// claimWait is how long one claim waits for a message.
	claimWait = 30 * time.Second
	// firstRetry and lastRetry bound the growing time until a failed claim is tried again.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
)

// consumeIfWanted begins to consume a topic that has a listener. The caller holds mu.
func (p *DelayQueueController) consumeIfWanted(t *topic) {
	if p.closing || t.mistake != nil || t.end != nil || p.listeners[t.name] == nil {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	t.end = end
	p.goWork(func() {
		defer end()
		p.consume(ctx, t)
	})
}

// consume claims messages and has the listener called, until ctx ends or a claim fails with an
// error that stays (isOver), for instance because Redis has lost its data. Each topic with a
// listener has a goroutine for it, for which DelayQueueController.Close waits.
func (p *DelayQueueController) consume(ctx context.Context, t *topic) {
	free := make(chan struct{}, maxListening)
	for range maxListening {
		free <- struct{}{}
	}
	for wait := firstRetry; ctx.Err() == nil; {
		n := take(ctx, free)
		if n == 0 {
			return
		}
		sent := time.Now()
		got, err := p.claim(ctx, t, n)
		for range n - len(got) {
			free <- struct{}{}
		}
		p.handOut(ctx, got, sent, free)
		switch {
		case err == nil:
			wait = firstRetry
		case ctx.Err() != nil:
			return
		case isOver(err):
			p.log.Error("the topic is not consumed any more", "topic", t.name, "err", err)
			return
		default:
			p.log.Warn("claim failed; trying again until it succeeds", "topic", t.name, "err", err)
			pause(ctx, wait)
			wait = min(2*wait, lastRetry)
		}
	}
}

// take waits until a listener may run and reserves up to maxClaim of the free places. It returns 0
// when ctx ends.
func take(ctx context.Context, free chan struct{}) int {
	select {
	case <-free:
	case <-ctx.Done():
		return 0
	}
	for n := 1; n < maxClaim; n++ {
		select {
		case <-free:
		default:
			return n
		}
	}
	return maxClaim
}

// isOver reports whether an error stays however often the claim is repeated.
func isOver(err error) bool {
	return errors.Is(err, punctual.ErrClosed) || errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) || errors.Is(err, punctual.ErrInvalid)
}

func (p *DelayQueueController) claim(ctx context.Context, t *topic, n int) ([]punctual.Delivery, error) {
	c, err := p.ready(ctx, t)
	if err != nil {
		return nil, err
	}
	return c.store.Claim(ctx, punctual.Claim{Topics: []string{t.name}, Max: n, Wait: claimWait})
}

// handOut starts a listener for each message of a claim that was sent at that time. If the
// consuming or the message's lease has ended meanwhile, it gives the message back unstarted.
func (p *DelayQueueController) handOut(ctx context.Context, got []punctual.Delivery, sent time.Time, free chan struct{}) {
	claimed := time.Now()
	for i := range got {
		d := &got[i]
		p.mu.Lock()
		p.goWork(func() {
			defer func() { free <- struct{}{} }()
			if ctx.Err() != nil || !p.holds(d, sent) {
				p.giveBackUnstarted(d)
				return
			}
			p.hear(d, claimed)
		})
		p.mu.Unlock()
	}
}

// holds reports whether the lease of d surely still holds (P3). The lease began after the claim was
// sent. If the claim was sent longer ago than the lease lasts, because it waited or its answer was
// held up, the store's clock decides.
func (p *DelayQueueController) holds(d *punctual.Delivery, sent time.Time) bool {
	if passed(sent) < d.LeaseUntil.Sub(d.Delivered)-time.Millisecond { // the store tells its time in whole milliseconds
		return true
	}
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	asked := time.Now()
	c, err := p.connection(ctx)
	if err == nil {
		var now time.Time
		if now, err = c.store.Now(ctx); err == nil && now.Add(passed(asked)+time.Millisecond).Before(d.LeaseUntil) {
			return true
		}
	}
	p.log.Warn("a message came too late to be listened to; it is delivered again", "topic", d.Topic, "id", d.ID, "delivery", d.Attempt, "err", err)
	return false
}

// passed returns how long ago from was, including the time for which the machine was suspended.
func passed(from time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

func (p *DelayQueueController) giveBackUnstarted(d *punctual.Delivery) {
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	err := p.settle(ctx, *messageOf(d), punctual.SettleRelease, 0, "")
	if err != nil && !errors.Is(err, punctual.ErrCancelled) && !errors.Is(err, punctual.ErrLeaseLost) {
		p.log.Warn("a message could not be given back unstarted; it is delivered again when its time until a retry is over", "topic", d.Topic, "id", d.ID, "err", err)
	}
}

// hear calls the listener. When it panics, the message is given back for when its lease would end,
// or discarded when it has had its retries. So a panic is much like no Ack, but stands in the
// message's history. Each message in work has a goroutine for it, for which
// DelayQueueController.Close waits.
func (p *DelayQueueController) hear(d *punctual.Delivery, claimed time.Time) {
	msg := messageOf(d)
	kept := *msg // a copy, because the listener may change its message
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("listener panicked", "topic", d.Topic, "id", d.ID, "delivery", d.Attempt, "panic", r, "stack", string(debug.Stack()))
			rest := d.LeaseUntil.Sub(d.Delivered) - time.Since(claimed)
			p.giveBackPanicked(kept, max(rest, 0), fmt.Sprintf("panic: %v", r))
		}
	}()
	p.listener(d.Topic).OnMassage(msg)
}

func (p *DelayQueueController) giveBackPanicked(msg DelayMsg, delay time.Duration, why string) {
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	err := p.giveBack(ctx, msg, delay, why)
	if err != nil && !errors.Is(err, punctual.ErrLeaseLost) { // it may have been acknowledged before the panic
		p.log.Warn("a message whose listener panicked could not be given back; it is delivered again when its time until a retry is over", "topic", msg.Topic, "id", msg.Id, "err", err)
	}
}
