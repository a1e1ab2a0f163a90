package punctual

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
)

// Compose builds a message from options, for PushMany. The order of options of different kinds does
// not matter. Of two options of the same kind the later one counts, so that a caller can override
// defaults: Header options of different names add up, and of two with one name the later one
// counts. Compose returns ErrInvalid for a nil option, for one that cannot be meant, such as an
// empty ID or the zero Time, and for In together with At or AtLocal. The push,
// not Compose, refuses what every store checks, such as a negative delay.
func Compose(topic string, body []byte, opts ...PushOption) (NewMessage, error) {
	m := NewMessage{Topic: topic, Body: body}
	var spread spreadOption
	var delay, instant bool
	for i, o := range opts {
		switch o := o.(type) {
		case nil:
			return NewMessage{}, invalidf("push option %d is nil", i+1)
		case spreadOption:
			spread = o // applied last, because In or At may follow it
		case When:
			if err := o.applyPush(&m); err != nil {
				return NewMessage{}, err
			}
			delay, instant = delay || o.due.IsZero(), instant || !o.due.IsZero()
			if delay && instant {
				return NewMessage{}, invalidf("both the delay In and the instant At or AtLocal are given: use one")
			}
		default:
			if err := o.applyPush(&m); err != nil {
				return NewMessage{}, err
			}
		}
	}
	if err := spread.applyPush(&m); err != nil {
		return NewMessage{}, err
	}
	return m, nil
}

// A PushOption sets a field of a message that is to be pushed. The options are In, At, AtLocal,
// Spread, ID, Replace, ReplaceIfDue, ReplaceDead, FailIfExists, Remember, Timeout, Header, Headers,
// MaxAttempts, Expire and DropExpired.
type PushOption interface {
	applyPush(m *NewMessage) error
}

// When is the due time of a message, made by In, At or AtLocal. The zero When is now. A When is
// also a PushOption; a message pushed without one is due now.
type When struct {
	due   time.Time
	delay time.Duration
	err   error
}

// From returns the instant that w means when the store's clock is now, rounded up to whole
// milliseconds. It is ErrInvalid if w cannot be a due time.
func (w When) From(now time.Time) (time.Time, error) {
	due := w.due
	if due.IsZero() {
		due = now.Add(w.delay)
	}
	switch {
	case w.err != nil:
		return time.Time{}, w.err
	case w.delay < 0 || due.After(limits.MaxDue):
		return time.Time{}, invalidf("the due time is negative or lies after %s", limits.MaxDue.Format(time.RFC3339))
	}
	if ms := due.Truncate(time.Millisecond); ms.Before(due) {
		due = ms.Add(time.Millisecond)
	}
	return due, nil
}

// In returns the due time that is d after the store's clock at the moment of storing (P8), rounded
// up to whole milliseconds. A negative d is ErrInvalid.
func In(d time.Duration) When { return When{delay: d} }

// At returns the due time t, rounded up to whole milliseconds. A message whose due time lies in the
// past is due at once. The zero Time is ErrInvalid, because most often it is a field that somebody
// forgot to set; a time after limits.MaxDue is ErrInvalid, too (P9).
func At(t time.Time) When {
	if t.IsZero() {
		return When{err: invalidf("the due time is the zero Time: set it, or use In(0) for now")}
	}
	return When{due: t}
}

// AtLocal returns the due time at which the clocks of a zone first show a date and time, say for a
// reminder at nine in the morning where the customer lives:
//
//	punctual.AtLocal("2026-11-20 09:00", "Europe/Berlin")
//
// The text may have seconds, and T in the place of the space. The zone is a name of the IANA time
// zone database, which Go reads from the machine or from the package time/tzdata; "" is ErrInvalid,
// and so is a zone that this program does not know. If the clocks are set back over the time, so
// that they show it twice, the due time is the first of the two. If they are set forward over it,
// so that they never show it, it is the first instant after the gap. The instant is settled now: a
// message that is stored keeps it when a government changes the clocks afterwards.
func AtLocal(wall, zone string) When {
	t, err := cron.LocalTime(wall, zone)
	if err != nil {
		return When{err: invalidf("%v", err)}
	}
	return At(t.UTC())
}

func (w When) applyPush(m *NewMessage) error {
	m.Due, m.Delay = w.due, w.delay
	return w.err
}

// Spread makes the message due later by a random time from 0 to d, each equally likely, so that
// messages made for the same instant do not all fall due at once. For example, At(nine) with
// Spread(10*time.Minute) is due between 9:00 and 9:10. A negative d is ErrInvalid; 0 spreads
// nothing.
func Spread(d time.Duration) PushOption { return spreadOption(d) }

type spreadOption time.Duration

func (o spreadOption) applyPush(m *NewMessage) error {
	d := time.Duration(o)
	switch {
	case d < 0:
		return invalidf("spread %v is negative", d)
	case d == 0 || m.Delay < 0: // a negative delay stays, so that the store refuses it
		return nil
	case !m.Due.IsZero():
		m.Due = m.Due.Add(rand.N(d))
	case m.Delay > math.MaxInt64-d:
		return invalidf("delay %v and spread %v are too long together", m.Delay, d)
	default:
		m.Delay += rand.N(d)
	}
	return nil
}

// ID names the message, with 1 to 128 printable ASCII bytes, instead of a generated ID. It makes
// the push idempotent (P7): while the topic holds a message with this ID, a further push keeps that
// message, unless Replace, ReplaceIfDue or FailIfExists is given. If the stored message is dead, so
// that it would not be delivered, the further push fails with ErrDuplicate unless Replace,
// ReplaceIfDue or ReplaceDead is given. Once the message has finished, a further push stores a new
// one, unless the ID is still remembered because of Remember or Settings.DedupeWindow.
func ID(s string) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.ID = s
		if s == "" {
			return invalidf("ID is empty: give 1 to %d printable ASCII bytes, or leave the option out for a generated ID", limits.MaxIDBytes)
		}
		return nil
	})
}

// Replace puts the message in the place of a stored one with the same ID, in one atomic step; see
// IfExistsReplace. Pushed again and again with In(5*time.Second), a message is delivered 5 s after
// the last push, which makes a debounce.
func Replace() PushOption { return ifExists(IfExistsReplace) }

// ReplaceIfDue is Replace for a stored message that is due at t, as it was when the program read
// it. If somebody has moved, replaced or removed the message since, the push fails with ErrChanged
// and stores nothing (NewMessage.IfDue). t is rounded up to whole milliseconds; the zero Time is
// ErrInvalid.
func ReplaceIfDue(t time.Time) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.IfExists, m.IfDue = IfExistsReplace, t
		if t.IsZero() {
			return invalidf("the due time of the message to replace is the zero Time: set it, or use Replace")
		}
		return nil
	})
}

// ReplaceDead puts the message in the place of a dead one with the same ID. It keeps a message in
// any other state, as a push without the option does.
func ReplaceDead() PushOption { return ifExists(IfExistsReplaceDead) }

// FailIfExists refuses the message with ErrDuplicate if its ID is already in use.
func FailIfExists() PushOption { return ifExists(IfExistsFail) }

func ifExists(v IfExists) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.IfExists, m.IfDue = v, time.Time{}
		return nil
	})
}

// Remember keeps the ID of this message in use for d after the message has finished (acked,
// cancelled, dropped), so that a push that is repeated in that time is a duplicate. It takes the
// place of Settings.DedupeWindow. d is rounded up to whole milliseconds and at most
// limits.MaxFinishedRetention; 0, the default, follows the topic's setting. A dead message keeps
// its ID in use as long as it is stored.
func Remember(d time.Duration) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.Remember = d
		return nil
	})
}

// Timeout is how long a handler may work on this message, counted from its claim: a Worker ends the
// handler's context with context.DeadlineExceeded then, whatever its Config.Timeout and the option
// worker.Timeout say. d is rounded up to whole milliseconds and at most limits.MaxTimeout; 0, the
// default, leaves the time to the Worker.
func Timeout(d time.Duration) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.Timeout = d
		return nil
	})
}

// Key says which messages the bounds of the topic count together, such as those of one customer
// (NewMessage.Key). An empty key is ErrInvalid.
func Key(key string) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.Key = key
		if key == "" {
			return invalidf("key is empty: give 1 to %d printable ASCII bytes, or leave the option out for a message without a key", limits.MaxKeyBytes)
		}
		return nil
	})
}

// Header adds one header. The names and values of all headers are at most limits.MaxHeaderBytes
// together.
func Header(name, value string) PushOption {
	return pushOption(func(m *NewMessage) error {
		addHeader(m, name, value)
		return nil
	})
}

// Headers adds the headers in h. Push and Compose copy them and change nothing in h, which the
// caller must not change before that.
func Headers(h map[string]string) PushOption {
	return pushOption(func(m *NewMessage) error {
		for name, value := range h {
			addHeader(m, name, value)
		}
		return nil
	})
}

func addHeader(m *NewMessage, name, value string) {
	if m.Headers == nil {
		m.Headers = make(map[string]string)
	}
	m.Headers[name] = value
}

// MaxAttempts sets the most attempts that this message gets (P6), 1 to limits.MaxAttemptsLimit. 0,
// the default, follows Settings.MaxAttempts of the topic.
func MaxAttempts(n int) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.MaxAttempts = n
		return nil
	})
}

// Expire sets how long after its due time the message may still be delivered. After that it becomes
// dead with ReasonExpired, or is dropped if DropExpired is given. 0, the default, sets no end; a
// negative d is ErrInvalid.
func Expire(d time.Duration) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.ExpireAfter = d
		return nil
	})
}

// DropExpired has the message dropped when it expires, instead of becoming dead. It needs Expire to
// have an effect.
func DropExpired() PushOption {
	return pushOption(func(m *NewMessage) error {
		m.DropExpired = true
		return nil
	})
}

type pushOption func(m *NewMessage) error

func (o pushOption) applyPush(m *NewMessage) error { return o(m) }
