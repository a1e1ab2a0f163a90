package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/schedule"
)

// topicPage shows the messages of one topic in one state, and what falls due.
type topicPage struct {
	*topicView
	States []stateTab
	List   *messageList
	Ahead  *chart
	// Drawn is true if there is something to draw. Chosen is the span of the picture Ahead, one of
	// Spans. Ahead is nil while the store counts, and if Drawn is false.
	Drawn   bool
	Chosen  string
	Spans   []string
	Reasons []choice
	// MayPushHere is false for companions that Punctual itself fills.
	MayPushHere bool
	// Deaths are the newest dead messages of the topic, nil unless the list is that of dead
	// messages.
	Deaths *deaths
	// Waits says why the ready messages of the topic are not delivered, as far as the console
	// knows.
	Waits string
}

// stateTab is the tab of one state, with its count and the path of its list.
type stateTab struct {
	State  string
	Count  int64
	Path   string
	Chosen bool
}

func (c *call) showTopic() error {
	v, err := c.topicView("topic", "messages")
	if err != nil {
		return err
	}
	topic := c.path["topic"]
	p := &topicPage{topicView: v, Spans: spanNames(), Reasons: c.deathReasons(), MayPushHere: v.Parent == "" || v.Groups != nil}
	state := c.chosenState(v.Stats.TopicStats)
	p.States = c.stateTabs(v.frame, v.Stats.TopicStats, state)
	if p.List, err = c.list(p.frame, topic, state, v.settings); err != nil {
		return err
	}
	if v.Stats.Ready > 0 {
		if p.Waits, err = c.whyItWaits(topic, &v.settings, v.Stats.Leased); err != nil {
			return err
		}
		if p.Waits == "" && v.Stats.Waiting > 0 {
			p.Waits = c.look.language.text("waits.keys", v.Stats.Waiting)
		}
	}
	if state == punctual.StateDead && (v.Stats.Dead > 0 || v.Partial) {
		if p.Deaths, err = c.deaths(p.frame, topic); err != nil {
			return err
		}
		return c.show("topic", p)
	}
	p.Chosen = spanCalled(c.get("span")).name
	scheduled := v.has(schedule.Suffix)
	if p.Drawn = v.Stats.Scheduled > 0 || scheduled || p.Partial; p.Drawn {
		p.Ahead, err = c.topicAhead(p.frame, topic, scheduled)
	}
	if err != nil {
		return err
	}
	return c.show("topic", p)
}

// chosenState returns the state that the field "state" names, otherwise the first state in which
// the topic has messages, and scheduled for an empty topic.
func (c *call) chosenState(stats punctual.TopicStats) punctual.State {
	if s, err := punctual.ParseState(c.get("state")); err == nil {
		return s
	}
	for _, s := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		if countOf(stats, s) > 0 {
			return s
		}
	}
	return punctual.StateScheduled
}

func countOf(s punctual.TopicStats, state punctual.State) int64 {
	switch state {
	case punctual.StateScheduled:
		return s.Scheduled
	case punctual.StateReady:
		return s.Ready
	case punctual.StateLeased:
		return s.Leased
	}
	return s.Dead
}

// pauseTopic pauses or resumes pushes to the topic, or deliveries from it, as the form's fields
// say.
func (c *call) pauseTopic() error {
	var p punctual.SettingsPatch
	on, err := strconv.ParseBool(c.get("pause"))
	if err != nil {
		return fmt.Errorf("pause is %q: use true or false: %w", c.get("pause"), punctual.ErrInvalid)
	}
	what := c.get("what")
	switch what {
	case "push":
		p.PushPaused = &on
	case "delivery":
		p.DeliveryPaused = &on
	default:
		return fmt.Errorf("pause of %q: use push or delivery: %w", what, punctual.ErrInvalid)
	}
	key := "notice." + what + ".resumed"
	if on {
		key = "notice." + what + ".paused"
	}
	topic := c.path["topic"]
	return c.configure(topic, p, fmt.Sprintf("%s paused: %t", what, on), c.frame("").TopicPath(topic), notice{Key: key, Args: []string{topic}})
}

// checkTyped refuses a form that removes messages unless the topic's name was typed into the form.
func (c *call) checkTyped(topic string) error {
	if c.get("typed") == topic {
		return nil
	}
	return fmt.Errorf("the name typed is not that of the topic: type %s: %w", topic, punctual.ErrInvalid)
}

// purgeTopic removes the messages of the state that the form names, or for "live" all messages that
// are not dead.
func (c *call) purgeTopic() (err error) {
	topic := c.path["topic"]
	if err := c.checkTyped(topic); err != nil {
		return err
	}
	q := punctual.PurgeQuery{Topic: topic}
	if word := c.get("state"); word != "live" {
		if q.State, err = punctual.ParseState(word); err != nil {
			return err
		}
	}
	n, err := c.record(audit.Change{Verb: "purge", Topic: topic, Detail: c.get("state")}, func(ctx context.Context) (int64, error) { return c.inspector.Purge(ctx, q) })
	if err != nil {
		return fmt.Errorf("purge %s: %w", topic, err)
	}
	return c.redirect(c.frame("").TopicPath(topic), notice{Key: "notice.purged", Args: []string{overview.Grouped(n)}})
}

// deleteTopic removes a topic with its messages and settings.
func (c *call) deleteTopic() error {
	topic := c.path["topic"]
	if err := c.checkTyped(topic); err != nil {
		return err
	}
	n, err := c.record(audit.Change{Verb: "delete topic", Topic: topic}, func(ctx context.Context) (int64, error) { return c.inspector.DeleteTopic(ctx, topic) })
	if err != nil {
		return fmt.Errorf("delete %s: %w", topic, err)
	}
	return c.redirect(c.frame("").Path("/topics"), notice{Key: "notice.deleted", Args: []string{topic, overview.Grouped(n)}})
}

// amendMany cancels, reschedules or requeues the messages ticked in the list. Messages that are
// leased, gone, moved, or not dead any more are counted in the notice and are no error, because
// they may have changed since the page was made.
func (c *call) amendMany() error {
	topic, ids := c.path["topic"], c.form["id"]
	if len(ids) == 0 {
		return fmt.Errorf("no message is ticked: tick some first: %w", punctual.ErrInvalid)
	}
	if len(ids) > mostTicked {
		return fmt.Errorf("%d messages are ticked: use at most %d, or change all that match: %w", len(ids), mostTicked, punctual.ErrInvalid)
	}
	change, detail, err := c.readChange()
	if err != nil {
		return err
	}
	as := make([]punctual.Amendment, len(ids))
	for i, id := range ids {
		as[i] = change
		as[i].Topic, as[i].ID = topic, id
	}
	var others int64
	if c.get("do") == "later" {
		if as, err = c.anHourLater(as); err != nil {
			return err
		}
		others = int64(len(ids) - len(as))
	}
	var changed []string
	ch := audit.Change{Verb: change.Change.String(), Topic: topic, Detail: detail, IDs: func() []string { return changed }}
	n, err := c.record(ch, func(ctx context.Context) (int64, error) {
		rs, err := c.console.store.Amend(ctx, as)
		if err != nil {
			return 0, err
		}
		var done int64
		for i, r := range rs {
			switch {
			case r.Err == nil:
				done++
				changed = append(changed, as[i].ID)
			case errors.Is(r.Err, punctual.ErrLeased), errors.Is(r.Err, punctual.ErrNotFound), errors.Is(r.Err, punctual.ErrNotDead), errors.Is(r.Err, punctual.ErrChanged):
				others++
			default:
				err = r.Err
			}
		}
		return done, err
	})
	if err != nil {
		return fmt.Errorf("%s of messages of %s: %w", change.Change, topic, err)
	}
	back := c.frame("").TopicPath(topic) + "?state=" + url.QueryEscape(c.get("state"))
	return c.redirect(back, notice{Key: "notice.many." + change.Change.String(), Args: []string{overview.Grouped(n), overview.Grouped(others)}})
}

// mostTicked is how many messages a form changes at most.
const mostTicked = 1000

// later is how far the button "+1 h" moves a message.
const later = time.Hour

// anHourLater gives each reschedule a due time that is an hour after the message's own. It leaves
// out messages that are neither scheduled nor ready. A message that somebody moves meanwhile stays
// where it is, because each amendment has an IfDue.
func (c *call) anHourLater(as []punctual.Amendment) ([]punctual.Amendment, error) {
	err := eachInParallel(c.r.Context(), len(as), func(ctx context.Context, i int) error {
		m, err := c.inspector.Get(ctx, as[i].Topic, as[i].ID)
		switch {
		case errors.Is(err, punctual.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		if m.State == punctual.StateScheduled || m.State == punctual.StateReady {
			as[i].Due, as[i].IfDue = m.Due.Add(later), m.Due
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look when the messages are due: %w", err)
	}
	return slices.DeleteFunc(as, func(a punctual.Amendment) bool { return a.IfDue.IsZero() }), nil
}

// readChange reads from the form which change to make, and the new due time. detail says the new
// due time for the audit log. For "later" the caller still has to set the due times with
// anHourLater.
func (c *call) readChange() (a punctual.Amendment, detail string, err error) {
	switch do := c.get("do"); do {
	case "cancel":
		a.Change = punctual.ChangeCancel
		return a, "", nil
	case "reschedule", "now", "later":
		a.Change = punctual.ChangeReschedule
	case "requeue":
		a.Change = punctual.ChangeRequeue
	default:
		return a, "", fmt.Errorf("change %q: use cancel, reschedule, now, later or requeue: %w", do, punctual.ErrInvalid)
	}
	switch c.get("do") {
	case "now":
		return a, "due now", nil
	case "later":
		return a, "due " + notation.FormatDuration(later) + " later", nil
	}
	if a.Due, a.Delay, err = c.when(); err != nil {
		return a, "", err
	}
	switch {
	case a.Delay > 0:
		detail = "due in " + notation.FormatDuration(a.Delay)
	case !a.Due.IsZero():
		detail = "due " + notation.FormatTime(a.Due)
	case a.Change == punctual.ChangeReschedule && c.get("in") == "":
		return a, "", errNoTime
	default:
		detail = "due now"
	}
	return a, detail, nil
}
