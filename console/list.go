package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

// messageRow is one message in a list.
type messageRow struct {
	Topic, ID string
	State     string
	// Time is the time by which lists of the message's state are ordered (orderTime).
	Time time.Time
	// Late is how long a ready message has waited, if that is at least tooLate; otherwise 0.
	Late              time.Duration
	Attempt, Attempts int
	Cancelled         bool
	Reason, Error     string
	// Body is the beginning of the body on one line, "" for a hidden one and for one whose
	// beginning is not UTF-8 (Binary). Bytes is the length of the whole body, 0 for a message that
	// was read without it.
	Body   string
	Binary bool
	Bytes  int64
	// Header is the value of the header that the page Find has searched for, "" in other lists.
	Header string
}

// bodyBeginning is how many bytes of a body a list shows.
const bodyBeginning = 120

// row returns a message as a list shows it. settings have the greatest number of attempts for a
// message that does not set its own. Lists that show no attempts pass the default settings.
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

// orderTime returns the time by which the store's list of the message's state is ordered.
func orderTime(m *punctual.Info) time.Time {
	switch m.State {
	case punctual.StateLeased:
		return m.LeaseUntil
	case punctual.StateDead:
		return m.Died
	}
	return m.Due
}

// beginning returns the first bodyBeginning bytes of a body as text on one line. If they are not
// UTF-8, it returns no text and binary is true.
func beginning(body []byte) (text string, binary bool) {
	if len(body) > bodyBeginning {
		body = body[:bodyBeginning]
		for n := 0; n < utf8.UTFMax && !utf8.Valid(body) && len(body) > 0; n++ {
			body = body[:len(body)-1] // drops a character that was cut in the middle
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
	listPart
	// Reason filters a list of dead messages in the store. Filter filters a list of any state in
	// the console.
	Reason string
	Filter messageFilter
}

// listPart is one page of a list that a form may filter.
type listPart struct {
	// From and To are the bounds in the format of the form's fields. Window is true if there is a
	// bound.
	From, To string
	Window   bool
	// Since and Until are the same bounds in RFC 3339, to the millisecond, for links and hidden
	// fields.
	Since, Until string
	// Scanned is true if the console has filtered the list: it read Looked messages, of which the
	// last one has the time Last.
	Scanned bool
	Looked  int
	Last    time.Time
	// First is the path of the list's first page, "" on that page; Next is the path of the next
	// page, "" on the last one.
	First, Next string
}

// listPart reads the fields of the form that say which bounds a list has, and where this page of it
// begins.
func (c *call) listPart(f *frame) (p listPart, from, to time.Time, err error) {
	if from, to, err = c.window(); err != nil {
		return p, from, to, err
	}
	p.Since, p.Until = exact(from), exact(to)
	p.From, p.To, p.Window = f.Input(from), f.Input(to), !from.IsZero() || !to.IsZero()
	if c.get("after") != "" {
		p.First = c.withQuery("after", "")
	}
	return p, from, to, nil
}

// read reads one page of the list that q selects, without the messages that do not fit. Unless fits
// is nil the list is read with scan, and the page is not renewed, because each renewal would read
// many messages.
func (c *call) read(f *frame, q punctual.ListQuery, fits func(*punctual.Info) bool) (p listPart, found []punctual.Info, err error) {
	if p, q.From, q.To, err = c.listPart(f); err != nil {
		return p, nil, err
	}
	q.Limit, q.After = pageRows, c.get("after")
	var s scanned
	if fits == nil {
		var page punctual.Page
		page, err = c.inspector.List(c.r.Context(), q)
		s.found, s.next = page.Messages, page.Next
	} else {
		s, err = c.scan(q, fits)
		p.Scanned, p.Looked, p.Last, f.Still = true, s.looked, s.last, true
	}
	if err == nil && s.next != "" {
		p.Next = c.withQuery("after", s.next)
	}
	if err != nil {
		err = fmt.Errorf("list the %s messages of %s: %w", q.State, q.Topic, err)
	}
	return p, s.found, err
}

// list reads one page of a topic's messages in a state. The fields of the form say which bounds and
// filters it has, and where it begins.
func (c *call) list(f *frame, topic string, state punctual.State, settings punctual.Settings) (list *messageList, err error) {
	l := &messageList{State: state.String()}
	q := punctual.ListQuery{Topic: topic, State: state}
	if state == punctual.StateDead {
		q.Reason = punctual.DeathReason(c.get("reason"))
	}
	if l.Filter, err = c.messageFilter(state); err != nil {
		return nil, err
	}
	var fits func(*punctual.Info) bool
	if !l.Filter.KeepsAll() {
		fits = l.Filter.keeps
	}
	var messages []punctual.Info
	if l.listPart, messages, err = c.read(f, q, fits); err != nil {
		return nil, err
	}
	l.Reason = string(q.Reason)
	for i := range messages {
		l.Messages = append(l.Messages, c.row(&messages[i], f.Now, settings))
	}
	return l, nil
}

// exact writes a time in RFC 3339 for a hidden field or a link, "" for the zero time.
func exact(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return notation.FormatTime(t)
}
