package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/storekit"
)

// tryPage has a form that pushes a message, and shows what became of the message.
type tryPage struct {
	*frame
	Topic string
	// Typed has the values of the form's fields: those of the form that was refused, or those that a link has given.
	Typed url.Values
	// Pushed is the message that was pushed, in its present state, nil before a push. Gone is true if the store no longer has the message.
	Pushed *messageRow
	Gone   bool
	// Due is when Pushed is or was due, zero if that is not known.
	Due    time.Time
	Topics []string
	// MayPush is true if the reader may push to all topics, to Topic, or to one of Topics.
	MayPush bool
}

func (c *call) showTry() error {
	p := &tryPage{frame: c.frame("try"), Topic: cmp.Or(c.get("topic"), tryTopic), Typed: maps.Clone(c.form)}
	for name, value := range map[string]string{"topic": tryTopic, "in": "10s", "body": `{"hello": "world"}`} {
		if c.problem == nil && c.get(name) == "" {
			p.Typed.Set(name, value)
		}
	}
	topics, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	p.MayPush = p.May("push", "") || p.May("push", p.Topic)
	for _, t := range topics {
		p.MayPush = p.MayPush || p.May("push", t.Topic)
		p.Topics = append(p.Topics, t.Topic)
	}
	if pushed := c.get("pushed"); pushed != "" {
		if err := c.showArrival(p, pushed); err != nil {
			return err
		}
	}
	return c.show("try", p)
}

// showArrival reads the message that was pushed and sets Pushed, Gone and Due.
func (c *call) showArrival(p *tryPage, id string) error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	if err := c.may(access.Inspect, p.Topic); err != nil {
		return err
	}
	if p.Due, err = c.instant("due"); err != nil {
		return err
	}
	if p.Now, err = c.now(); err != nil {
		return err
	}
	m, err := inspector.Get(c.r.Context(), p.Topic, id)
	switch {
	case errors.Is(err, punctual.ErrNotFound):
		p.Pushed, p.Gone = &messageRow{Topic: p.Topic, ID: id, State: "done"}, true
		return nil
	case err != nil:
		return fmt.Errorf("look at message %s: %w", id, err)
	}
	row := c.row(&m, p.Now, punctual.DefaultSettings())
	p.Pushed = &row
	p.Due = m.Due
	return nil
}

// push stores the message of the form and leads back to the page, which then follows the message. A new message of tryTopic is cancelled
// later if nobody claims it.
func (c *call) push() error {
	m := punctual.NewMessage{Topic: c.get("topic"), ID: c.get("id"), Body: []byte(c.form.Get("body"))}
	if err := storekit.CheckTopic(m.Topic); err != nil {
		return inField("topic", err)
	}
	if err := c.may(access.Push, m.Topic); err != nil {
		return err
	}
	err := checkTypedID(m.ID)
	if err != nil {
		return err
	}
	if m.Due, m.Delay, err = c.when(); err != nil {
		return err
	}
	if m.Due.IsZero() && c.get("in") == "" {
		return inField("in", errNoTime)
	}
	if name := c.get("header"); name != "" {
		m.Headers = map[string]string{name: c.get("header_value")}
	}
	if m.Topic == tryTopic {
		m.ExpireAfter, m.DropExpired = tryExpiry, true
	}
	now, err := c.now()
	if err != nil {
		return err
	}
	r, err := c.pushRecorded(m, "")
	if err != nil {
		return fmt.Errorf("push to %s: %w", m.Topic, err)
	}
	if m.Topic == tryTopic && r.Status == punctual.PushStored {
		ch := audit.Change{Verb: "cancel", Topic: r.Topic, ID: r.ID, Detail: "nobody has claimed this message of the page Try it"}
		c.console.leftovers.watch(r, r.Due.Sub(now), c.recorder(ch))
	}
	to := c.frame("").Path("/try") + "?" + url.Values{"topic": {m.Topic}, "pushed": {r.ID}, "due": {r.Due.UTC().Format(time.RFC3339Nano)}, "in": {cmp.Or(c.get("in"), "10s")}}.Encode()
	return c.redirect(to, notice{Key: "notice.push." + r.Status.String(), Args: []string{r.ID}})
}
