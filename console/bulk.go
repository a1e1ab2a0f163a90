package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
)

// bulkPage has the form of a bulk change: one change of all messages of the topic that match.
type bulkPage struct {
	*topicView
	// States, Changes and Reasons are the choices of the form.
	States, Changes, Reasons []choice
	From, To, In, At         string
	By, Rate, Spread         string
	Filter                   messageFilter
	MayDelete                bool
}

// bulkJobPage shows how far a bulk change is, or what it would change.
type bulkJobPage struct {
	*topicView
	Job bulkView
	// Facts are those of bulkFacts. The key of the label of a fact is "bulk." with its name.
	Facts facts
	// Share is for how many of the messages that were counted the change was tried, in percent, ""
	// if none were counted.
	Share string
	// MayGoOn is true if the reader may carry the change out, stop it or continue it.
	MayGoOn bool
}

// bulkChange is a bulk change of the console.
type bulkChange struct {
	bulk.Job
	// Due is the instant of Bulk.When, which pages and the audit log show; zero unless the change
	// is a requeue or a reschedule.
	Due time.Time
	// Errors are the errors of the messages to change.
	Errors deathFilter
}

// bulkWait is how long the answer to a form waits for the end of the change, so that the page of a
// short change shows its result at once.
const bulkWait = 2 * time.Second

func (c *call) showBulk() error {
	v, err := c.topicView("bulk", "messages")
	if err != nil {
		return err
	}
	p := &bulkPage{topicView: v, Spread: c.get("spread"), In: c.get("in"), At: c.get("at"), By: cmp.Or(c.get("by"), "1h"), Rate: c.get("rate"), Filter: c.typedFilter()}
	p.MayDelete = p.May("admin", v.Stats.Topic)
	text := c.look.language.text
	state := c.get("state")
	p.States = append(p.States, choice{Text: text("bulk.states.usual"), Chosen: state == ""})
	p.States = append(p.States, c.stateChoices(state)...)
	p.Changes = c.choices("bulk.do.", []string{"cancel", "reschedule", "shift", "requeue"}, c.get("change"))
	if p.MayDelete {
		p.Changes = append(p.Changes, c.choices("bulk.do.", []string{"delete"}, c.get("change"))...)
	}
	p.Reasons = c.deathReasons()
	for name, into := range map[string]*string{"from": &p.From, "to": &p.To} {
		at, err := c.instant(name)
		if err != nil && c.problem == nil {
			return err
		}
		*into = p.Input(at)
	}
	return c.show("bulk", p)
}

// deathReasons returns the choices of the field for the reason of death.
func (c *call) deathReasons() (all []choice) {
	for _, r := range []punctual.DeathReason{punctual.ReasonAttemptsUsedUp, punctual.ReasonDiscarded, punctual.ReasonExpired} {
		all = append(all, choice{Value: string(r), Text: string(r), Chosen: c.get("reason") == string(r)})
	}
	return all
}

// readBulk reads a bulk change from the form. A delay becomes the instant that it means now, so
// that a change which is stopped and continued later still gives all messages the same due time.
func (c *call) readBulk(topic string) (b bulkChange, err error) {
	b.Select = bulk.Selection{Topic: topic, Reason: punctual.DeathReason(c.get("reason")), IDPrefix: c.get("prefix"), Key: c.get("key")}
	if b.Do, err = bulk.ParseChange(c.get("change")); err != nil {
		return b, err
	}
	if state := c.get("state"); state != "" {
		if b.Select.State, err = punctual.ParseState(state); err != nil {
			return b, err
		}
	}
	if b.Select.From, b.Select.To, err = c.window(); err != nil {
		return b, err
	}
	filter, err := c.messageFilter(punctual.StateDead)
	if err != nil {
		return b, err
	}
	if b.Errors = filter.Errors; b.Errors.Whole {
		b.Select.Only = b.Errors.keeps
	} else {
		b.Select.Error = b.Errors.Text
	}
	if filter.Header != "" {
		b.Select.Headers = map[string]string{filter.Header: filter.Value}
	}
	if b.Rate, err = rateOf(c.get("rate")); err != nil {
		return b, err
	}
	switch b.Do {
	case bulk.Shift:
		b.By, err = wire.ParseShift("by", c.get("by"))
	case bulk.Requeue, bulk.Reschedule:
		b.Due, err = c.bulkDue(b.Do)
		b.When = punctual.At(b.Due)
	}
	if err == nil {
		err = inField("spread", durationInto(&b.Spread)(c.get("spread")))
	}
	return b, err
}

func rateOf(text string) (int, error) {
	n, err := parseCount(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q changes in a second: use a number, or leave it empty for no bound: %w", text, punctual.ErrInvalid)
	}
	return int(n), nil
}

// bulkDue reads the new due time of a requeue or reschedule. A requeue without one is due now.
func (c *call) bulkDue(do bulk.Change) (time.Time, error) {
	due, delay, err := c.when()
	switch {
	case err != nil || !due.IsZero():
		return due, err
	case delay == 0 && do == bulk.Reschedule && c.get("in") == "":
		return due, errNoTime
	}
	now, err := c.now()
	return now.Add(delay), err
}

// mayBulk returns an ErrForbidden unless the reader may make a bulk change: a delete needs
// access.Admin as a purge does, every other change access.Amend.
func (c *call) mayBulk(b *bulkChange) error {
	if b.Do == bulk.Delete {
		return c.may(access.Admin, b.Select.Topic)
	}
	return c.may(access.Amend, b.Select.Topic)
}

// countBulk counts the messages that the bulk change of the form would change, and leads to the
// page that shows the count and can carry the change out.
func (c *call) countBulk() error {
	b, err := c.readBulk(c.path["topic"])
	if err != nil {
		return err
	}
	if err := c.mayBulk(&b); err != nil {
		return err
	}
	b.DryRun = c.get("run") == ""
	return c.startBulk(b, nil)
}

// runBulk carries out a change that was counted, or continues one that was stopped or has failed.
// Either happens once: whoever sends the form again is led to the page of the change that the first
// form has started.
func (c *call) runBulk() error {
	job, err := c.bulkJob()
	if err != nil {
		return err
	}
	b := job.Bulk
	if err := c.mayBulk(&b); err != nil {
		return err
	}
	b.DryRun = false
	return c.startBulk(b, job)
}

// startBulk starts a bulk change, waits at most bulkWait for its end, and leads to its page. before
// is the job whose page has the form, or nil for a count.
func (c *call) startBulk(b bulkChange, before *bulkJob) error {
	topic := b.Select.Topic
	job, err := c.console.bulks.start(b, before, c.recordBulk(&b))
	if err != nil {
		return err
	}
	wait := time.NewTimer(bulkWait)
	defer wait.Stop()
	select {
	case <-job.ended:
	case <-wait.C:
	case <-c.r.Context().Done():
	}
	return c.redirect(c.frame("").TopicPath(topic, "bulk", job.ID), notice{})
}

// recordBulk returns the recorder of a bulk change. A dry run is not entered into the audit log.
func (c *call) recordBulk(b *bulkChange) recorder {
	if b.DryRun {
		return func(ctx context.Context, do func(ctx context.Context) (int64, error)) (int64, error) { return do(ctx) }
	}
	return c.recorder(audit.Change{Verb: "bulk " + b.Do.String(), Topic: b.Select.Topic, Detail: describe(b)})
}

// describe returns the facts of a bulk change in one line, for the audit log.
func describe(b *bulkChange) string {
	var parts []string
	for _, f := range bulkFacts(b, time.UTC) {
		parts = append(parts, f.Name+" "+f.Value)
	}
	return strings.Join(parts, ", ")
}

// bulkFacts returns what a bulk change selects, by how much it moves due times or which new one it
// gives, and how many changes it makes in a second. The kind of the change is not among them.
func bulkFacts(b *bulkChange, zone *time.Location) (f facts) {
	s := &b.Select
	f.add("state", s.State.String())
	f.addTime("from", s.From, zone)
	f.addTime("to", s.To, zone)
	f.add("reason", string(s.Reason))
	if b.Errors.Whole {
		f.add("error.is", cmp.Or(b.Errors.Text, "-"))
	} else {
		f.add("error", b.Errors.Text)
	}
	f.add("prefix", s.IDPrefix)
	f.add("key", s.Key)
	for name, value := range s.Headers { // the form has at most one
		f.add("header", name+"="+value)
	}
	switch {
	case b.By > 0:
		f.add("by", "+"+notation.FormatDuration(b.By))
	case b.By < 0:
		f.add("by", "-"+notation.FormatDuration(-b.By))
	}
	f.addTime("due", b.Due, zone)
	if b.Spread > 0 {
		f.add("spread", notation.FormatDuration(b.Spread))
	}
	if b.Rate > 0 {
		f.add("rate", overview.Grouped(int64(b.Rate)))
	}
	return f
}

// bulkJob returns the job that the path names. A job of another topic than that of the path is an
// ErrNotFound, because rights were checked on the topic of the path.
func (c *call) bulkJob() (*bulkJob, error) {
	job := c.console.bulks.find(c.path["job"])
	if job == nil || job.Bulk.Select.Topic != c.path["topic"] {
		return nil, fmt.Errorf("this console does not know the bulk change %s: it was restarted, or it is another process; count again: %w", visible(c.path["job"]), punctual.ErrNotFound)
	}
	return job, nil
}

func (c *call) showBulkJob() error {
	job, err := c.bulkJob()
	if err != nil {
		return err
	}
	v, err := c.topicView("bulk-job", "messages")
	if err != nil {
		return err
	}
	p := &bulkJobPage{topicView: v, Job: c.console.bulks.view(job)}
	p.Facts = bulkFacts(&job.Bulk, c.look.zone)
	p.MayGoOn = c.mayBulk(&job.Bulk) == nil
	if of := p.Job.Counted; of > 0 {
		r := p.Job.Report
		p.Share = number(min(100, 100*float64(r.Done+r.Leased+r.Changed+r.Gone+r.Failed)/float64(of)))
	}
	p.Still = p.Job.State != "running"
	return c.show("bulk-job", p)
}

func (c *call) stopBulk() error {
	job, err := c.bulkJob()
	if err != nil {
		return err
	}
	if err := c.mayBulk(&job.Bulk); err != nil {
		return err
	}
	c.console.bulks.stop(job)
	return c.redirect(c.frame("").TopicPath(c.path["topic"], "bulk", job.ID), notice{Key: "notice.bulk.stopped"})
}

// BulkPath returns the path of the form of a bulk change that selects what the list of the page
// shows.
func (p *topicPage) BulkPath() string { return p.pathOfList("bulk") }

// Export returns the path at which the dead messages of the list can be downloaded as lines of
// JSON.
func (p *topicPage) Export() string { return p.pathOfList("dead.ndjson") }

func (p *topicPage) pathOfList(end string) string {
	l := p.List
	q := url.Values{"state": {l.State}}
	for name, value := range map[string]string{"from": l.Since, "to": l.Until, "reason": l.Reason} {
		if value != "" {
			q.Set(name, value)
		}
	}
	l.Filter.addTo(q)
	return p.TopicPath(p.Stats.Topic, end) + "?" + q.Encode()
}

// errStopped is the cause with which the context of a bulk change ends when somebody stops the
// change or the console is closed.
var errStopped = errors.New("stopped")
