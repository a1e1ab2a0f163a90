package storekit

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// DuplicateError returns the ErrDuplicate of a push that met an ID which is taken. died is when its holder
// died, or zero: a dead one is delivered no more, so the text says what to do about it.
func DuplicateError(topic, id string, died time.Time) error {
	if died.IsZero() {
		return fmt.Errorf("%s in %s: %w", id, topic, punctual.ErrDuplicate)
	}
	return fmt.Errorf("%s in %s: %w by a message that is dead since %s: requeue it, or push with ReplaceDead()",
		id, topic, punctual.ErrDuplicate, died.UTC().Format(time.RFC3339))
}

// SettleError returns the error of a settlement that met kind: ErrLeaseLost, ErrCancelled, or a delay that ends too far
// ahead.
func SettleError(x *punctual.Settlement, kind error) error {
	return fmt.Errorf("%s of %s in %s: %w", x.Verb, x.ID, x.Topic, kind)
}

// AmendError returns the error of an amendment that met kind: ErrLeased, ErrNotFound or ErrNotDead. Its text
// names the message and says what follows.
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

// AmendDeadError returns the ErrNotFound of a cancel or reschedule that met a dead message. Its text says so, since such a
// message is neither finished nor unknown, and what may be done with it.
func AmendDeadError(a *punctual.Amendment) error {
	return fmt.Errorf("%s in %s: %w", a.ID, a.Topic, deadMessage{})
}

// deadMessage is an ErrNotFound with a remedy of its own, which servers give in place of that of the kind.
type deadMessage struct{}

func (deadMessage) Error() string {
	return punctual.ErrNotFound.Error() + " among those to be delivered: it is dead; requeue it, or delete it"
}

func (deadMessage) Unwrap() error { return punctual.ErrNotFound }

func (deadMessage) Remedy() string {
	return "It is dead: POST /v1/topics/TOPIC/messages/ID/requeue delivers it again, POST …/delete removes it."
}

// NoStoryError returns the ErrNotFound of punctual.FinishedKeeper for an ID of which no story is kept.
func NoStoryError(topic, id string) error {
	return fmt.Errorf("story of a finished message %s in %s: %w", id, topic, punctual.ErrNotFound)
}
