package console

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

// editForm is the form that puts another body and other headers into a scheduled or dead message.
type editForm struct {
	Body, Headers, In string
	// Due is the due time that the message had when the page was made, and Was a hash of its body
	// and headers. The form is refused once they are others, so that it does not overwrite what
	// somebody else has written since.
	Due, Was string
	// KeepHeaders is true if the headers cannot be written in lines. The form then leaves them as
	// they are.
	KeepHeaders bool
	// Open is true if the form was refused. Body, Headers and In are then what was typed.
	Open bool
}

// editForm returns the form for a message, or nil if the message cannot be changed with a form.
// That is so if the message is neither scheduled nor dead, or if its body is hidden, larger than
// shownBody, not text, or has characters that a browser would not send back as they are.
func (c *call) editForm(m *punctual.Info) *editForm {
	if m.State != punctual.StateScheduled && m.State != punctual.StateDead || c.console.options.HideBodies || len(m.Body) > shownBody || !utf8.Valid(m.Body) || strings.ContainsAny(string(m.Body), "\r\x00") {
		return nil
	}
	e := &editForm{Body: string(m.Body), Headers: headerLines(m.Headers), Due: exact(m.Due), Was: contentSum(m.Body, m.Headers)}
	back, err := parseHeaders(e.Headers)
	e.KeepHeaders = err != nil || len(back) != len(m.Headers)
	for name, value := range m.Headers {
		e.KeepHeaders = e.KeepHeaders || back[name] != value
	}
	return e
}

// contentSum returns a hash of the body and the headers of a message.
func contentSum(body []byte, headers map[string]string) string {
	sum := storekit.SumOfPush([]punctual.NewMessage{{Body: body, Headers: headers}})
	return hex.EncodeToString(sum[:])
}

// editMessage puts the body and the headers of the form into a message in one step, unless due
// time, body or headers of the message have changed since the page was made. A dead message is due
// at once afterwards, or after the delay in the form. A scheduled message keeps its due time, so
// the store cannot tell two edits apart: of two forms for one scheduled message that arrive at the
// same instant, both of which find the message as it was, the later one counts.
func (c *call) editMessage() error {
	topic, id := c.path["topic"], c.path["id"]
	due, err := c.instant("due")
	if err != nil {
		return err
	}
	m, err := c.inspector.Get(c.r.Context(), topic, id)
	if err != nil {
		return fmt.Errorf("look at message %s of %s: %w", id, topic, err)
	}
	form := c.editForm(&m)
	switch {
	case form == nil:
		return fmt.Errorf("message %s is %s, or cannot be written as text: its body cannot be changed here: %w", id, m.State, punctual.ErrInvalid)
	case due.IsZero() || !due.Equal(m.Due):
		return fmt.Errorf("message %s is due at %s by now: %w", id, notation.FormatTime(m.Due), punctual.ErrChanged)
	case c.get("was") != form.Was:
		return fmt.Errorf("message %s has another body or other headers by now, see below: %w", id, punctual.ErrChanged)
	}
	next := punctual.NewMessage{
		Topic: topic, ID: id, Body: []byte(c.field("body")), Headers: m.Headers, Due: m.Due, MaxAttempts: m.MaxAttempts, DropExpired: m.DropExpired,
		IfExists: punctual.IfExistsReplace, IfDue: m.Due,
	}
	storekit.AttributesOf(&m.Message).SetNew(&next)
	if !m.Expires.IsZero() {
		next.ExpireAfter = m.Expires.Sub(m.FirstDue)
	}
	if headers := c.field("headers"); !form.KeepHeaders && headers != form.Headers {
		if next.Headers, err = parseHeaders(headers); err != nil {
			return inField("headers", err)
		}
	}
	if m.State == punctual.StateDead {
		next.Due = time.Time{}
		if _, next.Delay, err = c.when(); err != nil {
			return err
		}
	}
	r, err := c.pushRecorded(next, "edited, in place of the "+m.State.String()+" message")
	if err != nil {
		return fmt.Errorf("edit of message %s: %w", id, err)
	}
	return c.redirect(c.frame("").MessagePath(topic, id), notice{Key: "notice.edited", Args: []string{id, stamp(r.Due, c.look.zone)}})
}

// keepTyped puts what was typed into the form that was refused back into it. A form that was
// refused because the message had changed is accepted when it is sent again, because the page shows
// the message as it is now.
func (e *editForm) keepTyped(c *call) {
	if e != nil && c.problem != nil && c.form.Has("was") {
		e.Body, e.Headers, e.In, e.Open = c.field("body"), c.field("headers"), c.get("in"), true
	}
}

// push stores the message of the form on the page of a topic, or on the page Topics, where the form
// names the topic.
func (c *call) push() error {
	m := punctual.NewMessage{Topic: cmp.Or(c.path["topic"], c.get("topic")), ID: c.get("id"), Body: []byte(c.field("body"))}
	err := storekit.CheckTopic(m.Topic)
	if err != nil {
		return inField("topic", err)
	}
	if err := c.may(access.Push, m.Topic); err != nil {
		return err
	}
	if m.ID != "" {
		err = inField("id", storekit.CheckID(m.ID))
	}
	if err != nil {
		return err
	}
	if m.Due, m.Delay, err = c.when(); err != nil {
		return err
	}
	if m.Headers, err = parseHeaders(c.field("headers")); err != nil {
		return inField("headers", err)
	}
	for _, set := range []struct {
		name string
		into func(string) error
	}{{"expire", durationInto(&m.ExpireAfter)}, {"max_attempts", countInto(&m.MaxAttempts)}} {
		if err := set.into(c.get(set.name)); err != nil {
			return inField(set.name, err)
		}
	}
	r, err := c.pushRecorded(m, "")
	if err != nil {
		return fmt.Errorf("push to %s: %w", m.Topic, err)
	}
	to := c.frame("").MessagePath(m.Topic, r.ID)
	if !c.frame("").May("inspect", m.Topic) {
		to = c.frame("").Path("/topics")
	}
	return c.redirect(to, notice{Key: "notice.push." + r.Status.String(), Args: []string{r.ID}})
}

// pushRecorded pushes a message and enters the push into the audit log, with the detail.
func (c *call) pushRecorded(m punctual.NewMessage, detail string) (r punctual.PushResult, err error) {
	_, err = c.record(audit.Change{Verb: "push", Topic: m.Topic, ID: m.ID, Detail: detail}, func(ctx context.Context) (int64, error) {
		rs, err := c.console.store.Push(ctx, []punctual.NewMessage{m})
		if err != nil {
			return 0, err
		}
		r = rs[0]
		return 1, r.Err
	})
	return r, err
}
