package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/settings"
)

// topicPage shows one topic: its counts, the list of one state, what falls due, its settings.
type topicPage struct {
	*frame
	Stats  topicRow
	States []stateTab
	List   *messageList
	Ahead  *chart
	// Chosen is the span of the picture Ahead, one of Spans. Ahead is nil while the store counts.
	Chosen string
	Spans  []string
	Fields []settingField
	// NoFinished is true if the store keeps no finished records.
	NoFinished bool
	Backoff    string
	Workers    *workers
}

// stateTab is the tab of one state, with its count and the path of its list.
type stateTab struct {
	State  string
	Count  int64
	Path   string
	Chosen bool
}

func (c *call) showTopic() error {
	_, err := c.inspector()
	if err != nil {
		return err
	}
	topic := c.path["topic"]
	p := &topicPage{frame: c.frame("topic"), Spans: spanNames()}
	p.Subject = topic
	if p.Now, err = c.now(); err != nil {
		return err
	}
	c.renew()
	stats, counts, err := c.console.reader.Stats(c.r.Context(), topic)
	if err != nil {
		return fmt.Errorf("count topic %s: %w", topic, err)
	}
	if !counts.AsOf.IsZero() {
		p.noteCounts(counts.AsOf, counts.Counted, counts.Partial)
	}
	p.Stats = rowOf(stats, p.Now)
	state := c.chosenState(stats)
	for _, s := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		p.States = append(p.States, stateTab{
			State: s.String(), Count: countOf(stats, s), Path: p.TopicPath(topic) + "?state=" + s.String(), Chosen: s == state,
		})
	}
	if p.List, err = c.list(p.frame, topic, state, stats.Settings); err != nil {
		return err
	}
	p.Fields, p.NoFinished = c.settingFields(stats.Settings), c.keeper() == nil
	p.Chosen = spanCalled(c.get("span")).name
	if stats.Scheduled > 0 || p.Partial {
		p.Ahead, err = c.topicAhead(p.frame, topic)
	}
	if err != nil {
		return err
	}
	if p.Workers, err = c.workersOf(topic); err != nil {
		return err
	}
	return c.show("topic", p)
}

// chosenState returns the state that the query names, otherwise the first state in which the topic has messages.
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

// settingField is one setting in the form of a topic.
type settingField struct {
	// Name is the name of the form's field and part of the catalogue's keys. Value is written as people write it, such as 30s.
	Name, Value string
	// Fixed settings are shown and cannot be changed.
	Fixed bool
}

// settingFields returns the fields of the settings form. It leaves out the pauses, which have buttons, and the settings that the store
// cannot have: those of finished records where it keeps none, and those of events where it tells of none.
func (c *call) settingFields(s punctual.Settings) (fields []settingField) {
	for _, row := range settings.Table {
		if !row.Pause && c.canHave(row) {
			fields = append(fields, settingField{row.Name, row.Text(&s), row.Fixed})
		}
	}
	return fields
}

// canHave reports whether the store can have another value of the setting than its default.
func (c *call) canHave(row *settings.Setting) bool {
	switch row.Needs {
	case settings.FinishedRecords:
		return c.keeper() != nil
	case settings.EventMessages:
		if c.console.abilities == nil {
			return false
		}
		can, err := c.console.abilities.Abilities(c.r.Context())
		return err == nil && can.Emit
	}
	return true
}

// configureTopic changes those settings of the form that differ from what the page showed.
func (c *call) configureTopic() error {
	topic := c.path["topic"]
	var p punctual.SettingsPatch
	changed, err := c.readSettings(&p)
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		return c.redirect(c.frame("").TopicPath(topic), notice{Key: "notice.unchanged", Args: []string{topic}})
	}
	return c.configure(topic, p, strings.Join(changed, ", "), notice{Key: "notice.configured", Args: []string{topic}})
}

// configure changes the settings of a topic, records that in the audit log, and redirects to the topic's page.
func (c *call) configure(topic string, p punctual.SettingsPatch, detail string, n notice) error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	_, err = c.record(audit.Change{Verb: "configure", Topic: topic, Detail: detail}, func(ctx context.Context) (int64, error) {
		_, err := inspector.Configure(ctx, topic, p)
		return 1, err
	})
	if err != nil {
		return fmt.Errorf("change the settings of %s: %w", topic, err)
	}
	return c.redirect(c.frame("").TopicPath(topic), n)
}

// readSettings fills the patch with the fields that differ from what the page showed, and returns them as name=value. A setting that somebody
// changed elsewhere since then is so not set back. A field that was emptied is refused, so that it is not taken for 0.
func (c *call) readSettings(p *punctual.SettingsPatch) (changed []string, err error) {
	for _, row := range settings.Table {
		text := c.get(row.Name)
		if row.Pause || row.Fixed || !c.form.Has(row.Name) || text == c.get("was_"+row.Name) {
			continue
		}
		if err := row.Parse(p, text); err != nil {
			return nil, err
		}
		changed = append(changed, row.Name+"="+text)
	}
	return changed, nil
}

// pauseTopic pauses or resumes pushes to the topic, or deliveries from it, as the form's fields say.
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
	return c.configure(topic, p, fmt.Sprintf("%s paused: %t", what, on), notice{Key: key, Args: []string{topic}})
}

// checkTyped refuses a form that removes messages unless the topic's name was typed into it.
func (c *call) checkTyped(topic string) error {
	if c.get("typed") == topic {
		return nil
	}
	return fmt.Errorf("the name typed is not that of the topic: type %s: %w", topic, punctual.ErrInvalid)
}

// purgeTopic removes the messages of one state, or all messages that are not dead.
func (c *call) purgeTopic() error {
	topic := c.path["topic"]
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	if err := c.checkTyped(topic); err != nil {
		return err
	}
	q := punctual.PurgeQuery{Topic: topic}
	if word := c.get("state"); word != "live" {
		if q.State, err = punctual.ParseState(word); err != nil {
			return err
		}
	}
	n, err := c.record(audit.Change{Verb: "purge", Topic: topic, Detail: c.get("state")}, func(ctx context.Context) (int64, error) { return inspector.Purge(ctx, q) })
	if err != nil {
		return fmt.Errorf("purge %s: %w", topic, err)
	}
	return c.redirect(c.frame("").TopicPath(topic), notice{Key: "notice.purged", Args: []string{thousands(n)}})
}

// deleteTopic removes a topic with its messages and settings.
func (c *call) deleteTopic() error {
	topic := c.path["topic"]
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	if err := c.checkTyped(topic); err != nil {
		return err
	}
	n, err := c.record(audit.Change{Verb: "delete topic", Topic: topic}, func(ctx context.Context) (int64, error) { return inspector.DeleteTopic(ctx, topic) })
	if err != nil {
		return fmt.Errorf("delete %s: %w", topic, err)
	}
	return c.redirect(c.frame("").Path("/topics"), notice{Key: "notice.deleted", Args: []string{topic, thousands(n)}})
}

// amendMany cancels, reschedules or requeues the messages ticked in the list. Messages that are leased, gone, or not dead any more are counted
// in the notice and are no error, because they may have moved on since the page was made.
func (c *call) amendMany() error {
	topic, ids := c.path["topic"], c.form["id"]
	if len(ids) == 0 {
		return fmt.Errorf("no message is ticked: tick some first: %w", punctual.ErrInvalid)
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
	n, err := c.record(audit.Change{Verb: change.Change.String(), Topic: topic, Detail: detail}, func(ctx context.Context) (int64, error) {
		rs, err := c.console.store.Amend(ctx, as)
		if err != nil {
			return 0, err
		}
		var done int64
		for _, r := range rs {
			switch {
			case r.Err == nil:
				done++
			case errors.Is(r.Err, punctual.ErrLeased), errors.Is(r.Err, punctual.ErrNotFound), errors.Is(r.Err, punctual.ErrNotDead):
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
	return c.redirect(back, notice{Key: "notice.many." + change.Change.String(), Args: []string{thousands(n), thousands(others)}})
}

// readChange reads from the form which change to make and for when. detail says the same for the audit log.
func (c *call) readChange() (a punctual.Amendment, detail string, err error) {
	switch do := c.get("do"); do {
	case "cancel":
		a.Change = punctual.ChangeCancel
		return a, "", nil
	case "reschedule", "now":
		a.Change = punctual.ChangeReschedule
	case "requeue":
		a.Change = punctual.ChangeRequeue
	default:
		return a, "", fmt.Errorf("change %q: use cancel, reschedule, now or requeue: %w", do, punctual.ErrInvalid)
	}
	if c.get("do") == "now" {
		return a, "due now", nil
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
