package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

// maxPrinted bounds what CMD may print with --then. The longest JSON text of a byte of a body has six bytes, as in \u0000, and
// each message may have 1 KiB around its body.
const maxPrinted = 6*punctual.MaxThenBytes + punctual.MaxThen<<10

// printedMessages keeps what CMD prints with --then. One goroutine at a time may use it.
type printedMessages struct {
	text    []byte
	tooLong bool
}

// Write keeps text, up to maxPrinted bytes in all. It never fails, so that CMD goes on to its end and its exit code counts.
func (p *printedMessages) Write(text []byte) (int, error) {
	if p.tooLong = p.tooLong || len(p.text)+len(text) > maxPrinted; !p.tooLong {
		p.text = append(p.text, text...)
	}
	return len(text), nil
}

// messages reads the lines as messages that follow d, and checks them as a store with the default limits does, so that what is wrong
// with them is said before the message is settled.
func (p *printedMessages) messages(d *punctual.Delivery) ([]punctual.NewMessage, error) {
	if p.tooLong {
		return nil, fmt.Errorf("the command printed more than %d bytes: %w", maxPrinted, punctual.ErrTooLarge)
	}
	var ms []punctual.NewMessage
	number := 0
	for line := range bytes.Lines(p.text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		m, err := parseLine(line, "", nil)
		if err != nil {
			return nil, fmt.Errorf("line %d of what the command printed: %w", number, err)
		}
		ms = append(ms, m)
	}
	x := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck, Then: ms}
	if err := storekit.CheckSettlement(&x, punctual.DefaultMaxBody); err != nil {
		return nil, fmt.Errorf("what the command printed: %w", err)
	}
	return ms, nil
}

// settled is the OnSettle of the worker's Observer. For a message that was acked with follow-ups it prints which follow-ups these are.
// With --json it prints nothing, because standard output then has a line for each message. It prints nothing either of the messages of
// duties, which the worker settles as well: a copy for a group is a follow-up, too.
func (c *consumer) settled(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
	if err != nil || len(s.Then) == 0 || c.json || !slices.Contains(c.topics, s.Topic) {
		return
	}
	var then []string
	for i := range s.Then {
		m := &s.Then[i]
		then = append(then, fmt.Sprintf("%s/%s %s", m.Topic, cmp.Or(m.ID, "a new ID"), dueWords(m)))
	}
	c.printf("✓ %s acked, then %s\n", s.ID, strings.Join(then, ", "))
	c.fail(c.out.failed())
}

// dueWords says when a message that is to be pushed is due.
func dueWords(m *punctual.NewMessage) string {
	switch {
	case !m.Due.IsZero():
		return "due at " + stamp(m.Due).String()
	case m.Delay != 0:
		return "due in " + notation.FormatDuration(m.Delay)
	}
	return "due now"
}
