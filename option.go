package punctual

import (
	"math"
	"math/rand/v2"
	"time"
)

// Compose builds a message from options, for PushMany. An option that cannot be gives
// ErrInvalid. The order of the options does not matter. Of two of the same kind the
// latter counts, so that defaults can be overridden. A delay (In, Level) together with an
// instant (At) is ErrInvalid.
func Compose(topic string, body []byte, opts ...PushOption) (NewMessage, error) {
	m := NewMessage{Topic: topic, Body: body}
	var spread spreadOption
	var delay, instant bool
	for i, o := range opts {
		switch o := o.(type) {
		case nil:
			return NewMessage{}, invalidf("push option %d is nil", i+1)
		case spreadOption:
			spread = o // comes on top of a time that may follow
		case When:
			if err := o.applyPush(&m); err != nil {
				return NewMessage{}, err
			}
			delay, instant = delay || o.due.IsZero(), instant || !o.due.IsZero()
			if delay && instant {
				return NewMessage{}, invalidf("both a delay (In or Level) and an instant (At) are given: use one")
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

// A PushOption says how a message is pushed. The options are In, At, Level, Spread, ID,
// Replace, ReplaceDead, FailIfExists, Remember, Header, Headers, MaxAttempts, Expire and DropExpired.
type PushOption interface {
	applyPush(m *NewMessage) error
}

// When is a point in time at which a message is to be delivered, made by In, At or Level.
// The zero When is now. It is a PushOption, too; a push without one is due now.
type When struct {
	due   time.Time
	delay time.Duration
	err   error
}

// In is d after the store's clock at the moment of storing (P8), rounded up to whole
// milliseconds. A negative d gives ErrInvalid.
func In(d time.Duration) When { return When{delay: d} }

// At is the instant t, rounded up to whole milliseconds. A time in the past delivers at
// once. The zero Time, which is most often one that was forgotten, and times after
// MaxDue give ErrInvalid (P9).
func At(t time.Time) When {
	if t.IsZero() {
		return When{err: invalidf("the due time is the zero Time: set it, or use In(0) for now")}
	}
	return When{due: t}
}

// Level is one of the 18 delay levels of RocketMQ (its default messageDelayLevel), for those who
// come from there. For n from 1 to 18 they are
//
//	1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
//
// Any other n gives ErrInvalid.
func Level(n int) When {
	if n < 1 || n > len(levels) {
		return When{err: invalidf("delay level %d: use 1 to %d", n, len(levels))}
	}
	return In(levels[n-1])
}

var levels = [...]time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	1 * time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute,
	6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

func (w When) applyPush(m *NewMessage) error {
	m.Due, m.Delay = w.due, w.delay
	return w.err
}

// Spread moves the due time later by a random part of d, each part equally likely. So
// messages made for the same instant do not fall due all at once. A negative d gives
// ErrInvalid; 0 spreads nothing.
func Spread(d time.Duration) PushOption { return spreadOption(d) }

type spreadOption time.Duration

func (o spreadOption) applyPush(m *NewMessage) error {
	d := time.Duration(o)
	switch {
	case d < 0:
		return invalidf("spread %v is negative", d)
	case d == 0 || m.Delay < 0: // the store refuses the delay; it must not be hidden
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

// ID names the message, 1 to 128 printable ASCII bytes, in place of a generated ID. It makes the push idempotent
// (P7). As long as the topic holds a message with this ID, a further push keeps the first, unless Replace or
// FailIfExists is given. If that one is dead, so that it would not be delivered, the push is ErrDuplicate unless
// ReplaceDead is given. Once that message has finished, a further push stores a new one, unless Remember or
// Settings.DedupeWindow holds the ID.
func ID(s string) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.ID = s
		if s == "" {
			return invalidf("ID is empty: give 1 to %d printable ASCII bytes, or leave the option out for a generated ID", MaxIDBytes)
		}
		return nil
	})
}

// Replace puts the message in the place of one with the same ID, due time and body in one
// step: see IfExistsReplace. Repeated, it postpones: that is a debounce.
func Replace() PushOption { return ifExists(IfExistsReplace) }

// ReplaceDead puts the message in the place of a dead one with the same ID; any other is kept,
// as without the option.
func ReplaceDead() PushOption { return ifExists(IfExistsReplaceDead) }

// FailIfExists refuses the message with ErrDuplicate if its ID is taken.
func FailIfExists() PushOption { return ifExists(IfExistsFail) }

func ifExists(v IfExists) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.IfExists = v
		return nil
	})
}

// Remember has the ID taken as a duplicate for d after this message finished (acked, cancelled, dropped), in the place of the
// topic's Settings.DedupeWindow. With it a push that is repeated later is done once. At most MaxFinishedRetention, rounded
// up to whole milliseconds; 0, the default, follows the topic. A message that became dead holds its ID as long as it is kept.
func Remember(d time.Duration) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.Remember = d
		return nil
	})
}

// Header adds one header; all of them together are at most MaxHeaderBytes.
func Header(name, value string) PushOption {
	return pushOption(func(m *NewMessage) error {
		addHeader(m, name, value)
		return nil
	})
}

// Headers adds those of h, which stays the caller's but must not change before the push.
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

// MaxAttempts bounds the deliveries of this message (P6): 1 to MaxAttemptsLimit, 0 to
// follow the topic's setting, which is the default.
func MaxAttempts(n int) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.MaxAttempts = n
		return nil
	})
}

// Expire ends the wish to deliver d after the due time; then the message is dead with
// ReasonExpired, or gone if DropExpired is given. 0, the default, is never; a negative d
// gives ErrInvalid.
func Expire(d time.Duration) PushOption {
	return pushOption(func(m *NewMessage) error {
		m.ExpireAfter = d
		return nil
	})
}

// DropExpired lets the message vanish when it expires, instead of becoming dead.
func DropExpired() PushOption {
	return pushOption(func(m *NewMessage) error {
		m.DropExpired = true
		return nil
	})
}

type pushOption func(m *NewMessage) error

func (o pushOption) applyPush(m *NewMessage) error { return o(m) }
