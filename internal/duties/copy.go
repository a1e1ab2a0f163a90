package duties

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// A topic with groups keeps one message until it is due. Then this duty claims it and acks it with
// one copy for each group, as follow-ups, in one atomic step. So a message that is cancelled or
// moved before is so for all groups at once, a process that dies meanwhile leaves no copy or all of
// them, and no group gets a copy twice.

// copying is the duty of the topics with groups. They are found by the topics of the groups, which
// Configure makes.
func copying() Duty {
	return Duty{
		Name: "copy",
		Topic: func(name string) string {
			if parent, companion := storekit.Companion(name); storekit.IsGroup(companion) {
				return parent
			}
			return ""
		},
		// The settings are read, because the topic of a group that was removed stays, with its
		// copies.
		Needed: func(ctx context.Context, t *Tools, topic string) (bool, error) {
			set, err := t.Settings(ctx, topic)
			return len(set.Groups) > 0, err
		},
		New: func(t *Tools) Handler { return copier{t} },
	}
}

// groupless is how long a message waits that was claimed although its topic has no groups any more.
const groupless = time.Second

type copier struct{ *Tools }

// Handle returns the ack with the copies.
func (c copier) Handle(ctx context.Context, d *punctual.Delivery) error {
	// The settings are read now, so that a group which was added before the message fell due gets
	// its copy.
	set, err := c.Settings(ctx, d.Topic)
	if err != nil { // a snooze uses up no attempt, because the message may have only one
		c.Logger.Log(ctx, LevelOf(err), "a message waits to be copied", "topic", d.Topic, "id", d.ID, "err", err)
		return punctual.Snooze(Postponed(d, c.Backoff(ctx, d.Topic)))
	}
	if len(set.Groups) == 0 {
		c.Look() // the topic does not need this duty any more, and its messages are for a handler of its own
		return punctual.Snooze(groupless)
	}
	return newCopies(d, set.Groups, 1)
}

// copies is the error with which a message is acked with its copies.
type copies struct {
	d      *punctual.Delivery
	groups []string
	// life counts the IDs that were tried: 1 is that of the message itself.
	life int
	// decision is the ack.
	decision error
}

// mostLives is how many IDs are tried before the token is the number, which no copy had before.
const mostLives = 8

func newCopies(d *punctual.Delivery, groups []string, life int) *copies {
	c := &copies{d: d, groups: groups, life: life}
	id := copyID(d, life)
	attributes := storekit.AttributesOf(&d.Message)
	attributes.Remember = 0 // the ID of the message is remembered, so no second push makes copies
	ms := make([]punctual.NewMessage, len(groups))
	for i, g := range groups {
		ms[i] = punctual.NewMessage{
			Topic: punctual.GroupTopic(d.Topic, g), ID: id, Body: d.Body, Headers: d.Headers,
			// Due may have moved, by a snooze of this duty. FirstDue is what the push asked for, or
			// the last reschedule or requeue.
			Due: d.FirstDue, MaxAttempts: d.MaxAttempts, DropExpired: d.DropExpired,
			// An earlier message may have had the same ID. Its copy must not be taken for the one
			// of this message.
			IfExists: punctual.IfExistsFail,
		}
		attributes.SetNew(&ms[i])
		if !d.Expires.IsZero() {
			ms[i].ExpireAfter = d.Expires.Sub(d.FirstDue)
		}
	}
	c.decision = punctual.Follow(nil, ms...)
	return c
}

// copyID returns the ID of the copies, all of which have the same: in the first life that of the
// message, then that with "~" and a number after it, so that the copies lie in the partition of the
// message. When that ID would be too long, copyID returns "".
func copyID(d *punctual.Delivery, life int) string {
	if life == 1 {
		return d.ID
	}
	number := strconv.Itoa(life)
	if life > mostLives {
		number = strconv.FormatInt(d.Token, 10)
	}
	id := d.ID + "~" + number
	if len(id) > limits.MaxIDBytes {
		return "" // the store makes IDs, one for each group
	}
	return id
}

func (c *copies) Error() string { return fmt.Sprintf("copied to %d groups", len(c.groups)) }

func (c *copies) Unwrap() error { return c.decision }

// Refused returns the ack with copies under the next ID if a group still has or remembers one with
// this ID: a copy of an earlier message with the ID, which may be dead. Where the reason passes by
// itself the worker decides, and otherwise the message is retried.
func (c *copies) Refused(cause error) error {
	switch {
	case errors.Is(cause, punctual.ErrDuplicate) && c.life <= mostLives:
		return newCopies(c.d, c.groups, c.life+1)
	case Passes(cause):
		return nil
	}
	return fmt.Errorf("not copied: %w", cause)
}

// Passes reports whether a refusal passes by itself, so that a message is put off without counting
// an attempt.
func Passes(err error) bool {
	return errors.Is(err, punctual.ErrPaused) || errors.Is(err, punctual.ErrNoSpace) || errors.Is(err, punctual.ErrOverloaded)
}
