package BeeDelayQueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// Ack says what became of a message that a listener got. With true the message is finished. With
// false it is delivered again at once; when its retries are used up it is discarded, so that it is
// dead with punctual.ReasonDiscarded.
//
// Ack may be called until the message is delivered again or given up, also after the listener has
// returned, and by another controller or process. As in the original it has no result, so errors
// are logged; Settle returns them.
func (p *DelayQueueController) Ack(msg DelayMsg, tf bool) {
	if err := p.Settle(msg, tf); err != nil {
		p.log.Error("a message could not be acknowledged", "topic", msg.Topic, "id", msg.Id, "delivery", msg.RetryCount, "ok", tf, "err", err)
	}
}

// Settle is Ack with a result. The error wraps ErrLeaseLost when the message was acknowledged
// already, was delivered again because its time was over, or is gone; nothing is changed then. When
// Redis did not answer, the error wraps ErrIndeterminate or ErrUnreachable; the message may then be
// delivered again.
func (p *DelayQueueController) Settle(msg DelayMsg, tf bool) error {
	if msg.Token == 0 {
		return fmt.Errorf("ack of %s: the message has no Token: hand over the one that the listener got: %w", msg.Id, punctual.ErrInvalid)
	}
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	if tf {
		return p.settle(ctx, msg, punctual.SettleAck, 0, "")
	}
	return p.giveBack(ctx, msg, 0, "Ack(msg, false)")
}

// giveBack has msg delivered again after delay, or discards it when it has had its retries.
func (p *DelayQueueController) giveBack(ctx context.Context, msg DelayMsg, delay time.Duration, why string) error {
	c, err := p.connection(ctx)
	if err != nil {
		return fmt.Errorf("ack of %s: %w", msg.Id, err)
	}
	rules, err := c.inspector.Settings(ctx, msg.Topic)
	if err != nil {
		return fmt.Errorf("ack of %s: %w", msg.Id, err)
	}
	if msg.RetryCount >= int64(rules.MaxAttempts) {
		return p.settle(ctx, msg, punctual.SettleDiscard, 0, why)
	}
	err = p.settle(ctx, msg, punctual.SettleRetry, delay, why)
	if errors.Is(err, punctual.ErrCancelled) {
		return nil // it was removed meanwhile, and is gone now
	}
	return err
}

// settle sends the settlement again until the store has answered or ctx ends.
func (p *DelayQueueController) settle(ctx context.Context, msg DelayMsg, verb punctual.Verb, delay time.Duration, why string) error {
	s := []punctual.Settlement{{Topic: msg.Topic, ID: msg.Id, Token: msg.Token, Verb: verb, Delay: delay, Error: why}}
	for unsure := false; ; {
		err := p.settleOnce(ctx, s)
		switch {
		case err == nil:
			return nil
		case unsure && errors.Is(err, punctual.ErrLeaseLost):
			return nil // an earlier try did it, but its answer was lost
		case mayPass(err) && pause(ctx, settlePause):
			unsure = unsure || !punctual.Definite(err)
		case unsure && punctual.Definite(err):
			return fmt.Errorf("ack of %s: %s: an earlier try may have taken effect: %w (then %v)", msg.Id, verb, punctual.ErrIndeterminate, err)
		default:
			return fmt.Errorf("ack of %s: %s: %w", msg.Id, verb, err)
		}
	}
}

// settlePause is the time between two tries to settle.
const settlePause = 200 * time.Millisecond

func (p *DelayQueueController) settleOnce(ctx context.Context, s []punctual.Settlement) error {
	c, err := p.connection(ctx)
	if err != nil {
		return err
	}
	answers, err := c.store.Settle(ctx, s)
	if err != nil {
		return err
	}
	return answers[0]
}

// mayPass reports whether an error goes away when Redis is back.
func mayPass(err error) bool {
	return errors.Is(err, punctual.ErrOverloaded) || errors.Is(err, punctual.ErrUnreachable) || errors.Is(err, punctual.ErrIndeterminate)
}

// pause waits for d and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
