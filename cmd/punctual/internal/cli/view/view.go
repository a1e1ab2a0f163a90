// Package view has what several commands and punctual top show of a store in the same words.
package view

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// Mark returns the character and the colour of a severity. The characters differ, for those who see
// no colours.
func Mark(s storekit.Severity) (string, text.Color) {
	switch s {
	case storekit.SeverityGood:
		return "✓", text.FgGreen
	case storekit.SeverityWarning:
		return "!", text.FgYellow
	}
	return "✗", text.FgRed
}

// PausedWord says what of a topic is paused: "push", "delivery", both, or "-" for nothing.
func PausedWord(s punctual.Settings) string {
	switch {
	case s.PushPaused && s.DeliveryPaused:
		return "push and delivery"
	case s.PushPaused:
		return "push"
	case s.DeliveryPaused:
		return "delivery"
	}
	return "-"
}

// BodyText returns a body for people, or a remark in place of a body that is not text. With --json
// commands print the exact bytes.
func BodyText(body []byte) string {
	if utf8.Valid(body) {
		return string(body)
	}
	return fmt.Sprintf("(%d bytes that are not text: see --json)", len(body))
}

// Rows are lines of a name and a value each.
type Rows [][2]string

// Add adds a line, unless the value is empty.
func (r *Rows) Add(name, value string) {
	if value != "" {
		*r = append(*r, [2]string{name, value})
	}
}

// Number adds a line, unless n is 0.
func (r *Rows) Number(name string, n int64) {
	if n != 0 {
		r.Add(name, strconv.FormatInt(n, 10))
	}
}

// Time adds a line with t as at writes it, unless t is the zero Time.
func (r *Rows) Time(name string, t time.Time, at func(time.Time) string) {
	if !t.IsZero() {
		r.Add(name, at(t))
	}
}

// Headers adds a line for each header.
func (r *Rows) Headers(headers map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		r.Add("header", name+"="+headers[name])
	}
}

// Failures adds a line for each failed attempt.
func (r *Rows) Failures(failures []punctual.Failure, at func(time.Time) string) {
	for _, f := range failures {
		r.Add("failure", fmt.Sprintf("%d at %s: %s", f.Attempt, at(f.At), f.Error))
	}
}

// MessageRows returns all that the store knows about a message, with times as at writes them.
func MessageRows(m *punctual.Info, at func(time.Time) string) (rows Rows) {
	rows.Add("id", m.ID)
	rows.Add("topic", m.Topic)
	rows.Add("state", m.State.String())
	rows.Add("due", at(m.Due))
	if !m.FirstDue.Equal(m.Due) {
		rows.Add("first due", at(m.FirstDue))
	}
	rows.Add("created", at(m.Created))
	rows.Add("attempts", strconv.Itoa(m.Attempt))
	rows.Number("max attempts", int64(m.MaxAttempts))
	rows.Time("expires", m.Expires, at)
	rows.Time("lease until", m.LeaseUntil, at)
	if m.Key != "" {
		rows.Add("key", m.Key+map[bool]string{true: ", for which the message waits"}[m.Waiting])
	}
	if m.CancelRequested {
		rows.Add("cancel", "asked for; no further attempt")
	}
	if m.State == punctual.StateDead {
		rows.Add("died", at(m.Died)+", "+string(m.Reason))
	}
	rows.Failures(m.Failures, at)
	rows.Headers(m.Headers)
	return append(rows, [2]string{"body", BodyText(m.Body)})
}

// Bar draws n as a bar, at a scale at which most fills room columns. A number above 0 has at least
// an eighth of a column.
func Bar(n, most int64, room int) string {
	if n <= 0 {
		return ""
	}
	eighths := int(float64(n) / float64(most) * float64(room) * 8)
	slivers := []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}
	bar := strings.Repeat("█", eighths/8) + slivers[eighths%8]
	if bar == "" {
		return slivers[1]
	}
	return bar
}

// TopicsWith returns the names of those topics that hold a message with the ID.
func TopicsWith(ctx context.Context, i punctual.Inspector, topics []punctual.TopicStats, id string) ([]string, error) {
	var holders []string
	for _, t := range topics {
		_, err := i.Get(ctx, t.Topic, id)
		switch {
		case err == nil:
			holders = append(holders, t.Topic)
		case !errors.Is(err, punctual.ErrNotFound):
			return nil, err
		}
	}
	return holders, nil
}

// Consumers returns who works on a topic, or an ErrUnsupported where the store does not know.
func Consumers(ctx context.Context, s punctual.Store, topic string) (storekit.Consumers, error) {
	r, err := punctual.As[storekit.ConsumerReporter](s)
	var all storekit.Consumers
	if err == nil {
		all, err = r.Consumers(ctx, topic)
	}
	if errors.Is(err, punctual.ErrUnsupported) {
		err = fmt.Errorf("%w; name a server with --store", err)
	}
	return all, err
}

// Refused tells whether err is the answer to a change that was refused because of what the message
// is, which Explain explains: it is not there, it is leased, it is not dead, or it has changed. Any
// other error is a failure.
func Refused(err error) bool {
	return errors.Is(err, punctual.ErrNotFound) || errors.Is(err, punctual.ErrLeased) || errors.Is(err, punctual.ErrNotDead) || errors.Is(err, punctual.ErrChanged)
}

// Explain says what it means that change c of a message was refused with err, and what to do
// instead.
func Explain(err error, c punctual.Change) string {
	switch {
	case errors.Is(err, punctual.ErrLeased):
		if c == punctual.ChangeCancel {
			return "too late: it is being worked on; no further attempt will be made after this one"
		}
		return "too late: it is being worked on; nothing was changed"
	case errors.Is(err, punctual.ErrChanged):
		return "it is due at another time than was asked for: somebody has changed it, and nothing was changed now"
	case errors.Is(err, punctual.ErrNotDead) && c == punctual.ChangeDelete:
		return "it is not dead: nothing was changed; 'punctual cancel' takes back a message that is to be delivered"
	case errors.Is(err, punctual.ErrNotDead):
		return "it is not dead: nothing was changed; 'punctual reschedule' moves a message that is to be delivered"
	}
	return "not found: there is no such message to be " + wire.OutcomeWord(c)
}
