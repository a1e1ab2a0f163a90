package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
)

// messageRow is one message in a list.
type messageRow struct {
	Topic, ID string
	State     string
	// Time is that by which the list is ordered.
	Time time.Time
	// Late is how long a ready message has waited, if that is long.
	Late              time.Duration
	Attempt, Attempts int
	Cancelled         bool
	Reason, Error     string
	// Body is the beginning of the body, on one line; Bytes is how long all of it is.
	Body   string
	Binary bool
	Bytes  int64
}

// bodyBeginning is how much of a body a list shows, in bytes.
const bodyBeginning = 120

// row is a message in a list. settings are those of its topic.
func (c *call) row(m *punctual.Info, now time.Time, settings punctual.Settings) messageRow {
	r := messageRow{
		Topic: m.Topic, ID: m.ID, State: m.State.String(), Time: orderTime(m), Attempt: m.Attempt, Attempts: cmp.Or(m.MaxAttempts, settings.MaxAttempts),
		Cancelled: m.CancelRequested, Reason: string(m.Reason), Bytes: int64(len(m.Body)),
	}
	if late := now.Sub(m.Due); m.State == punctual.StateReady && late >= tooLate {
		r.Late = late
	}
	if n := len(m.Failures); n > 0 {
		r.Error = visible(m.Failures[n-1].Error)
	}
	if !c.console.options.HideBodies {
		r.Body, r.Binary = beginning(m.Body)
	}
	return r
}

// orderTime is the time by which a list has the message in its place.
func orderTime(m *punctual.Info) time.Time {
	switch m.State {
	case punctual.StateLeased:
		return m.LeaseUntil
	case punctual.StateDead:
		return m.Died
	}
	return m.Due
}

// beginning is the first part of a body that is text, on one line.
func beginning(body []byte) (text string, binary bool) {
	if len(body) > bodyBeginning {
		body = body[:bodyBeginning]
		for n := 0; n < utf8.UTFMax && !utf8.Valid(body) && len(body) > 0; n++ {
			body = body[:len(body)-1] // a character that was cut
		}
	}
	if !utf8.Valid(body) {
		return "", true
	}
	return visible(strings.Join(strings.Fields(string(body)), " ")), false
}

// messageList is one page of a topic's messages in one state.
type messageList struct {
	State    string
	Messages []messageRow
	// From and To are the bounds as the form has them; Window tells that there are any.
	From, To string
	Window   bool
	// Reason is that of dead messages.
	Reason string
	// First and Next are where the list begins and goes on, if not "".
	First, Next string
}

// list reads one page of messages as the query says.
func (c *call) list(f *frame, topic string, state punctual.State, settings punctual.Settings) (*messageList, error) {
	inspector, err := c.inspector()
	if err != nil {
		return nil, err
	}
	q := punctual.ListQuery{Topic: topic, State: state, Limit: pageRows, After: c.get("after")}
	if state == punctual.StateDead {
		q.Reason = punctual.DeathReason(c.get("reason"))
	}
	if q.From, err = c.instant("from"); err != nil {
		return nil, err
	}
	if q.To, err = c.instant("to"); err != nil {
		return nil, err
	}
	page, err := inspector.List(c.r.Context(), q)
	if err != nil {
		return nil, fmt.Errorf("list the %s messages of %s: %w", state, topic, err)
	}
	l := &messageList{State: state.String(), From: f.Input(q.From), To: f.Input(q.To), Window: !q.From.IsZero() || !q.To.IsZero(), Reason: string(q.Reason)}
	for i := range page.Messages {
		l.Messages = append(l.Messages, c.row(&page.Messages[i], f.Now, settings))
	}
	if page.Next != "" {
		l.Next = c.withQuery("after", page.Next)
	}
	if q.After != "" {
		l.First = c.withQuery("after", "")
	}
	return l, nil
}
