package console

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// messagePage shows one stored message with its history.
type messagePage struct {
	*frame
	Row      messageRow
	Info     punctual.Info
	Settings punctual.Settings
	History  []happening
	Axis     *axis
	Body     *bodyView
	Headers  []header
	Hidden   int // headers that are hidden
	Curl     string
	// Earlier is the finished record of an earlier message with this ID, or nil if there is none.
	Earlier *finishedRecord
	// Edit is the form that changes body and headers, nil if they cannot be changed.
	Edit      *editForm
	Relations *relations
	// Waits says why a ready message is not delivered, as far as the console knows.
	Waits string
}

// Attributes returns the attributes of the message that are set. The key of the label of an
// attribute is "attribute." with its name.
func (p *messagePage) Attributes() []wire.Attribute {
	return wire.AttributesToShow(storekit.AttributesOf(&p.Info.Message))
}

// happening is one entry in the history of a message.
type happening struct {
	At time.Time
	// Kind is the end of the key of the event's text: pushed, due, again, delivered, failed, lease,
	// died, expires or now, or the outcome of a finished message.
	Kind string
	// Attempt, Error and Reason are set for some kinds only.
	Attempt       int
	Error, Reason string
	// Gap is the time since the one before this one.
	Gap time.Duration
	// Ahead is true for one that lies in the future, or behind the end of a finished message.
	Ahead bool
}

// header is a header of a message or of a schedule, in the form that visible gives it.
type header struct{ Name, Value string }

func (c *call) showMessage() (err error) {
	topic, id := c.path["topic"], c.path["id"]
	p := &messagePage{frame: c.frame("message")}
	p.Subject = visible(id)
	if p.Now, err = c.now(); err != nil {
		return err
	}
	p.Info, err = c.inspector.Get(c.r.Context(), topic, id)
	if errors.Is(err, punctual.ErrNotFound) {
		return c.showFinished(topic, id)
	}
	if err != nil {
		return fmt.Errorf("look at message %s of %s: %w", id, topic, err)
	}
	if p.Settings, err = c.inspector.Settings(c.r.Context(), topic); err != nil {
		return fmt.Errorf("read the settings of %s: %w", topic, err)
	}
	p.Row = c.row(&p.Info, p.Now, p.Settings)
	if p.Info.State == punctual.StateReady {
		leased, err := c.leasedOf(topic, &p.Settings)
		if err != nil {
			return err
		}
		if p.Waits, err = c.whyItWaits(topic, &p.Settings, leased); err != nil {
			return err
		}
		if p.Waits == "" && p.Info.Waiting {
			p.Waits = c.look.language.text("waits.key", p.Info.Key)
		}
	}
	p.History = history(&p.Info, p.Now)
	p.Axis = axisOf(p.frame, p.History)
	if p.Earlier, err = c.finishedRecord(p.frame, topic, id); err != nil {
		return err
	}
	p.Headers, p.Hidden = c.headers(p.Info.Headers)
	if !c.console.options.HideBodies {
		p.Body = bodyAs(p.Info.Body, c.get("body"))
	}
	p.Curl = c.curl(&p.Info)
	p.Edit = c.editForm(&p.Info)
	p.Edit.keepTyped(c)
	if p.Relations, err = c.relationsOf(p.frame, topic, id, p.Info.Headers, p.Info.Created); err != nil {
		return err
	}
	p.Still = c.get("followed") != ""
	return c.show("message", p)
}

// history returns the events of a stored message in order of time: what has happened, now, and what
// will happen.
func history(m *punctual.Info, now time.Time) []happening {
	all := []happening{{At: m.Created, Kind: "pushed"}}
	all = append(all, happening{At: m.FirstDue, Kind: "due"})
	for _, f := range m.Failures {
		all = append(all, happening{At: f.At, Kind: "failed", Attempt: f.Attempt, Error: visible(f.Error)})
	}
	switch m.State {
	case punctual.StateLeased:
		all = append(all, happening{At: m.LeaseUntil, Kind: "lease", Attempt: m.Attempt})
	case punctual.StateDead:
		all = append(all, happening{At: m.Died, Kind: "died", Reason: string(m.Reason)})
	default:
		if !m.Due.Equal(m.FirstDue) {
			all = append(all, happening{At: m.Due, Kind: "again", Attempt: m.Attempt + 1})
		}
	}
	if !m.Expires.IsZero() && m.State != punctual.StateDead {
		all = append(all, happening{At: m.Expires, Kind: "expires"})
	}
	all = append(all, happening{At: now, Kind: "now"})
	slices.SortStableFunc(all, func(a, b happening) int { return a.At.Compare(b.At) })
	withGaps(all, now)
	return all
}

// withGaps sets Gap and Ahead of events that are in order of time.
func withGaps(all []happening, now time.Time) {
	for i := range all {
		all[i].Ahead = all[i].At.After(now)
		if i > 0 {
			all[i].Gap = all[i].At.Sub(all[i-1].At)
		}
	}
}

// headers returns the headers that a page may show, ordered by name, and how many
// Options.HideBodies hides.
func (c *call) headers(all map[string]string) (shown []header, hidden int) {
	o := &c.console.options
	for name, value := range all {
		if o.HideBodies && !slices.ContainsFunc(o.ShowHeaders, func(s string) bool { return strings.EqualFold(s, name) }) {
			hidden++
			continue
		}
		shown = append(shown, header{visible(name), visible(value)})
	}
	slices.SortFunc(shown, func(a, b header) int { return strings.Compare(a.Name, b.Name) })
	return shown, hidden
}

// amendMessage cancels, reschedules or requeues one message, as the form says.
func (c *call) amendMessage() error {
	topic, id := c.path["topic"], c.path["id"]
	a, detail, err := c.readChange()
	if err != nil {
		return err
	}
	a.Topic, a.ID = topic, id
	if c.get("do") == "later" {
		as, err := c.anHourLater([]punctual.Amendment{a})
		switch {
		case err != nil:
			return err
		case len(as) == 0:
			return fmt.Errorf("message %s is neither scheduled nor ready: %w", id, punctual.ErrChanged)
		}
		a = as[0]
	}
	var due time.Time
	_, err = c.record(audit.Change{Verb: a.Change.String(), Topic: topic, ID: id, Detail: detail}, func(ctx context.Context) (int64, error) {
		rs, err := c.console.store.Amend(ctx, []punctual.Amendment{a})
		if err != nil {
			return 0, err
		}
		due = rs[0].Due
		return 1, rs[0].Err
	})
	if err != nil {
		return fmt.Errorf("%s of message %s: %w", a.Change, id, err)
	}
	n := notice{Key: "notice.one." + a.Change.String(), Args: []string{id}}
	if a.Change == punctual.ChangeCancel {
		return c.redirect(c.frame("").TopicPath(topic), n)
	}
	n.Args = append(n.Args, stamp(due, c.look.zone))
	return c.redirect(c.frame("").MessagePath(topic, id), n)
}

// deleteMessage removes a dead message, of which the store then keeps no record. It reads the state
// of the message first and refuses one that is not dead with ErrNotDead, because somebody may have
// requeued the message since the page was made. A message that is requeued between the read and the
// delete is due at another time, so that IfDue keeps it.
func (c *call) deleteMessage() error {
	topic, id := c.path["topic"], c.path["id"]
	_, err := c.record(audit.Change{Verb: punctual.ChangeDelete.String(), Topic: topic, ID: id}, func(ctx context.Context) (int64, error) {
		m, err := c.inspector.Get(ctx, topic, id)
		if err != nil {
			return 0, err
		}
		if m.State != punctual.StateDead {
			return 0, fmt.Errorf("%s in %s is %s: %w", id, topic, m.State, punctual.ErrNotDead)
		}
		rs, err := c.console.store.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeDelete, Topic: topic, ID: id, IfDue: m.Due}})
		if err != nil {
			return 0, err
		}
		return 1, rs[0].Err
	})
	if err != nil {
		return fmt.Errorf("delete of message %s: %w", id, err)
	}
	return c.redirect(c.frame("").TopicPath(topic)+"?state=dead", notice{Key: "notice.one.delete", Args: []string{id}})
}

// sendBody answers with the body of a message as a download, unless Options.HideBodies hides it.
func (c *call) sendBody() error {
	if c.console.options.HideBodies {
		return fmt.Errorf("bodies are hidden by the console's configuration: %w", punctual.ErrForbidden)
	}
	m, err := c.inspector.Get(c.r.Context(), c.path["topic"], c.path["id"])
	if err != nil {
		return fmt.Errorf("look at message %s: %w", c.path["id"], err)
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": m.ID + ".bin"}))
	h.Set("Content-Security-Policy", contentSecurity+"; sandbox")
	c.begun = true
	_, err = c.w.Write(m.Body)
	return err
}

// curl returns the command line that pushes a message with the same body and the headers that may
// be shown, or "" if Options.API names no HTTP interface. A body that is hidden, long or not plain
// text on one line is left to a file named body.
func (c *call) curl(m *punctual.Info) string {
	base := c.api()
	if base == "" {
		return ""
	}
	line := []string{"curl", "-X", "POST", quoted(base + wire.TopicPath(m.Topic, "messages") + "?in=0s")}
	shown, _ := c.headers(m.Headers)
	for _, h := range shown {
		line = append(line, "-H", quoted(wire.HeaderPrefix+h.Name+": "+h.Value))
	}
	option, body := "--data-binary", "@body"
	if text, binary := beginning(m.Body); !c.console.options.HideBodies && !binary && text == string(m.Body) {
		option, body = "--data-raw", string(m.Body) // the body may begin with @, which --data-binary reads as the name of a file
	}
	return strings.Join(append(line, option, quoted(body)), " ")
}

// api returns the base URL of the HTTP interface, or "" if Options.API names none. For the value
// "/" it is the host of the request.
func (c *call) api() string {
	switch api := strings.TrimSuffix(c.console.options.API, "/"); {
	case api != "" || c.console.options.API == "":
		return api
	case c.r.TLS != nil:
		return "https://" + c.r.Host
	default:
		return "http://" + c.r.Host
	}
}

// CurlLine returns a command line that pushes a first message, for the page of an empty store. It
// is "" if Options.API names no HTTP interface.
func (f *frame) CurlLine() string {
	base := f.call.api()
	if base == "" {
		return ""
	}
	return "curl -d 'hello' " + quoted(base+wire.TopicPath("try.it", "messages")+"?in=30s")
}

// quoted returns s, in the form that visible gives it, as one word of a shell's command line.
func quoted(s string) string { return "'" + strings.ReplaceAll(visible(s), "'", `'\''`) + "'" }
