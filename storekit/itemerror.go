package storekit

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// PausedError returns the ErrPaused of a push to a topic whose pushes are paused.
func PausedError(topic string) error { return fmt.Errorf("push to %s: %w", topic, punctual.ErrPaused) }

// ChangedError returns the ErrChanged of a push or an amendment with an IfDue. due is the due time
// of the stored message, or zero when no message has the ID.
func ChangedError(topic, id string, due time.Time) error {
	if due.IsZero() {
		return fmt.Errorf("%s in %s: %w: it is not stored any more", id, topic, punctual.ErrChanged)
	}
	return fmt.Errorf("%s in %s: %w: it is due at %s now", id, topic, punctual.ErrChanged, due.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// DuplicateError returns the ErrDuplicate of a push whose ID is already in use. died is when the
// stored message died, or zero when it is not dead. A dead message would not be delivered, so the
// text then says what to do.
func DuplicateError(topic, id string, died time.Time) error {
	if died.IsZero() {
		return fmt.Errorf("%s in %s: %w", id, topic, punctual.ErrDuplicate)
	}
	return fmt.Errorf("%s in %s: %w by a message that is dead since %s: requeue it, or push with ReplaceDead()",
		id, topic, punctual.ErrDuplicate, died.UTC().Format(time.RFC3339))
}

// SettleError returns the error of a settlement that fails with kind: ErrLeaseLost, ErrCancelled,
// or the ErrInvalid of DueAt for a due time out of range. The text names the verb and the message.
func SettleError(x *punctual.Settlement, kind error) error {
	return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, kind)
}

// AmendError returns the error of an amendment that fails with kind: ErrLeased, ErrNotFound or
// ErrNotDead. The text names the message and, beside ErrLeased and ErrNotDead, says what the error
// means for the change asked for.
func AmendError(a *punctual.Amendment, kind error) error {
	var note string
	switch {
	case kind == punctual.ErrLeased && a.Change == punctual.ChangeCancel:
		note = ": no further attempt follows the one under way"
	case kind == punctual.ErrLeased:
		note = ": nothing was changed"
	case kind == punctual.ErrNotDead:
		note = ": a reschedule moves a message that is to be delivered"
	}
	return fmt.Errorf("%s in %s: %w%s", a.ID, a.Topic, kind, note)
}

// AmendDeadError returns the ErrNotFound of a cancel or reschedule of a dead message. The text says
// that the message is dead, because it is stored all the same, and what can be done with it.
func AmendDeadError(a *punctual.Amendment) error {
	return fmt.Errorf("%s in %s: %w", a.ID, a.Topic, deadMessage{})
}

// deadMessage is an ErrNotFound with a remedy of its own. A server answers with this remedy instead
// of the one of ErrNotFound.
type deadMessage struct{}

func (deadMessage) Error() string {
	return punctual.ErrNotFound.Error() + " among those to be delivered: it is dead; requeue it, or delete it"
}

func (deadMessage) Unwrap() error { return punctual.ErrNotFound }

func (deadMessage) Remedy() string {
	return "It is dead: POST /v1/topics/TOPIC/messages/ID/requeue delivers it again, POST …/delete removes it."
}

// NoFinishedRecordError returns the ErrNotFound of FinishedKeeper.Finished for an ID without a
// finished record.
func NoFinishedRecordError(topic, id string) error {
	return fmt.Errorf("finished record of %s in %s: %w", id, topic, punctual.ErrNotFound)
}
