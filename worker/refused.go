package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/duties"
)

// A message whose follow-ups are refused is neither acked without them nor lost. The handler's
// error may say what becomes of the message (duties.Refusable). Otherwise, where the reason passes
// by itself, as a pause does, the message is put off and keeps its attempts, and else it is
// retried, and its history says why.

// refusals are the errors by which a store refuses follow-ups.
var refusals = [...]error{
	punctual.ErrInvalid, punctual.ErrTooLarge, punctual.ErrUnsupported, punctual.ErrDuplicate, punctual.ErrChanged,
	punctual.ErrPaused, punctual.ErrNoSpace, punctual.ErrOverloaded, punctual.ErrForbidden,
}

// isRefusal reports whether err can be that of a store which refuses the follow-ups of a
// settlement. alone tells that err is the error of that settlement and not of the whole call. An
// error of the whole call that passes by itself, such as an overload, says nothing about the
// follow-ups.
func isRefusal(err error, alone bool) bool {
	if !punctual.Definite(err) || !alone && duties.Passes(err) {
		return false
	}
	for _, kind := range refusals {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// backoffTime bounds the call that asks for the backoff of a topic.
const backoffTime = time.Second

// afterRefusal returns what becomes of m instead of o, whose follow-ups the store has refused.
func (w *Worker) afterRefusal(m *message, o outcome, cause error) outcome {
	if r := duties.Refusable(nil); errors.As(o.Err, &r) {
		if err := r.Refused(cause); err != nil {
			return decided(err)
		}
	}
	if !duties.Passes(cause) {
		return decided(fmt.Errorf("the follow-ups were not stored: %w", cause))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), backoffTime)
	defer cancel()
	by := duties.Postponed(m.delivery, w.runner.Backoff(ctx, m.lease.Topic))
	w.log(m, slog.LevelWarn, "message put off, because its follow-ups could not be stored", "by", by.String(), "err", cause)
	return outcome{Decision: punctual.Decision{Verb: punctual.SettleSnooze, Delay: by, Err: cause}}
}

// forwarded logs that follow-ups of x were put into envelopes, and makes the runner of duties look
// for the topic of these.
func (w *Worker) forwarded(x *punctual.Settlement, envelopes int) {
	w.runner.Look() // the topic of the envelopes may be new
	w.cfg.Logger.Debug("follow-ups are forwarded", "topic", x.Topic, "id", x.ID, "forwarded", envelopes)
}
