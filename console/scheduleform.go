package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// scheduleFormPage has the form of a new schedule, or of one that is changed.
type scheduleFormPage struct {
	*frame
	// New is true for a schedule that is not stored yet. Topic and Name are then fields that people
	// fill in, otherwise those of the path.
	New         bool
	Topic, Name string
	// Fields are the values of the form's fields by their names. Was are the values that the fields
	// had when the page was made for the first time.
	Fields, Was map[string]string
	// BodyHidden is true if the form leaves body and headers as they are, because they are hidden
	// or the body is no text.
	BodyHidden bool
	Overlaps   []choice
	Missed     []choice
	Topics     []string
	Attributes []string
	// Preview says when the schedule comes, Wrong what is wrong with the fields. At most one of
	// them is set; without an expression and with sound fields neither is.
	Preview *schedule.Times
	Wrong   string
	// Able is false if the store can have no schedules.
	Able bool
}

// previewTimes is how many times ahead a preview shows.
const previewTimes = 10

// scheduleField is a field of the form of a schedule: its text, and how a text that was typed is
// read into the schedule.
type scheduleField struct {
	name, text string
	set        func(text string) error
}

// scheduleFields returns the fields that the form has for a schedule, except its body. Instants are
// in the reader's time zone.
func (c *call) scheduleFields(s *schedule.Schedule) []scheduleField {
	text := func(name string, v *string) scheduleField {
		return scheduleField{name, *v, func(typed string) error { *v = typed; return nil }}
	}
	duration := func(name string, d *time.Duration) scheduleField {
		f := scheduleField{name, "", durationInto(d)}
		if *d != 0 {
			f.text = notation.FormatDuration(*d)
		}
		return f
	}
	count := func(name string, n *int) scheduleField { return scheduleField{name, numberOf(*n), countInto(n)} }
	instant := func(name string, t *time.Time) scheduleField {
		return scheduleField{name, c.frame("").Input(*t), func(string) (err error) { *t, err = c.instant(name); return err }}
	}
	fields := []scheduleField{
		text("spec", &s.Spec), text("zone_name", &s.Zone),
		{"overlap", s.Overlap.String(), func(v string) (err error) { s.Overlap, err = schedule.ParseOverlap(v); return err }},
		{"missed", s.Missed.String(), func(v string) (err error) { s.Missed, err = schedule.ParseMissed(v); return err }},
		duration("grace", &s.Grace), duration("spread", &s.Spread), instant("from", &s.From), instant("until", &s.Until),
		{"except", strings.Join(s.Except, ", "), func(v string) error {
			s.Except = strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(", \n\t", r) })
			return nil
		}},
		{"limit", numberOf(int(s.Limit)), func(v string) (err error) { s.Limit, err = parseCount(v); return err }},
		count("max_dead", &s.MaxDead), count("max_attempts", &s.MaxAttempts), duration("expire", &s.ExpireAfter),
		{"drop", map[bool]string{true: "true"}[s.DropExpired], func(v string) error { s.DropExpired = v != ""; return nil }},
		{"headers", headerLines(s.Headers), func(v string) (err error) { s.Headers, err = parseHeaders(v); return err }},
	}
	attributes := s.Attributes()
	for _, a := range &wire.AttributeFields {
		fields = append(fields, scheduleField{a.Name, a.Text(&attributes), func(typed string) error {
			err := a.Set(&attributes, typed)
			s.SetAttributes(attributes)
			return err
		}})
	}
	return fields
}

// scheduleTexts returns the texts of all fields of the form, by name.
func (c *call) scheduleTexts(s *schedule.Schedule) map[string]string {
	texts := map[string]string{"body": string(s.Body)}
	for _, f := range c.scheduleFields(s) {
		texts[f.name] = f.text
	}
	return texts
}

// field returns a field of the form with line feeds in place of the line ends that browsers send.
func (c *call) field(name string) string {
	return strings.ReplaceAll(c.form.Get(name), "\r\n", "\n")
}

// changeSchedule changes those fields of a schedule that differ in the form from what the page
// showed, so that a field which somebody has changed elsewhere since then is not set back. An error
// names the field.
func (c *call) changeSchedule(s *schedule.Schedule) (err error) {
	for _, f := range c.scheduleFields(s) {
		text := strings.TrimSpace(c.field(f.name))
		if !c.form.Has("was_"+f.name) || text == strings.TrimSpace(c.field("was_"+f.name)) {
			continue
		}
		if err := f.set(text); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if body := c.field("body"); c.form.Has("was_body") && body != c.field("was_body") {
		s.Body = []byte(body)
	}
	return nil
}

// durationInto returns a function that reads a duration into d; an empty text is 0.
func durationInto(d *time.Duration) func(string) error {
	return func(text string) (err error) {
		*d, err = notation.ParseDuration(cmp.Or(text, "0"))
		return err
	}
}

// countInto returns a function that reads a number into n; an empty text is 0.
func countInto(n *int) func(string) error {
	return func(text string) error {
		v, err := parseCount(text)
		*n = int(v)
		return err
	}
}

func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no number: %w", text, punctual.ErrInvalid)
	}
	return n, nil
}

// headerLines writes headers in the form that parseHeaders reads, sorted by name.
func headerLines(headers map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+": "+headers[name])
	}
	return strings.Join(lines, "\n")
}

// parseHeaders reads headers, one in each line, as NAME: VALUE.
func parseHeaders(text string) (map[string]string, error) {
	headers := make(map[string]string)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("header %q: write one in each line, like tenant: shop-1: %w", line, punctual.ErrInvalid)
		}
		headers[name] = strings.TrimSpace(value)
	}
	if len(headers) == 0 {
		return nil, nil
	}
	return headers, nil
}

// storedSchedule returns the schedule that the path names.
func (c *call) storedSchedule() (schedule.Schedule, error) {
	topic, name := c.path["topic"], c.path["name"]
	s, err := schedule.Get(c.r.Context(), c.console.queue, topic, name)
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("look at schedule %s of %s: %w", name, topic, err)
	}
	return s.Schedule, nil
}

// showScheduleForm shows the form of a new schedule. If the fields of the form were sent, in the
// query or in a form that was refused or asks for a preview, and have an expression, the page also
// says when the schedule comes.
func (c *call) showScheduleForm() error {
	p := &scheduleFormPage{frame: c.frame("schedule-form"), New: true, Topic: c.get("topic"), Name: c.get("name")}
	p.Was = c.scheduleTexts(&schedule.Schedule{Zone: "UTC"})
	able, err := c.canSchedule()
	if err != nil {
		return err
	}
	if p.Able = able; able {
		all, err := c.counted()
		if err != nil {
			return err
		}
		for _, t := range all.Topics {
			if _, companion := storekit.Companion(t.Topic); companion == "" && c.may(access.Push, t.Topic) == nil {
				p.Topics = append(p.Topics, t.Topic)
			}
		}
	}
	return c.showFormOf(p, schedule.Schedule{Topic: p.Topic, Name: p.Name, Zone: "UTC"})
}

// showScheduleEdit shows the form that changes a schedule.
func (c *call) showScheduleEdit() error {
	s, err := c.storedSchedule()
	if err != nil {
		return err
	}
	p := &scheduleFormPage{frame: c.frame("schedule-form"), Topic: s.Topic, Name: s.Name, Able: true}
	p.Was = c.scheduleTexts(&s)
	p.BodyHidden = c.console.options.HideBodies || !utf8.Valid(s.Body)
	return c.showFormOf(p, s)
}

// showFormOf fills in the values and the preview of a form for a schedule, and shows it.
func (c *call) showFormOf(p *scheduleFormPage, s schedule.Schedule) error {
	p.Subject, p.Still, p.Fields = visible(p.Name), true, maps.Clone(p.Was)
	var err error
	if p.Now, err = c.now(); err != nil {
		return err
	}
	for name := range p.Was {
		if c.form.Has(name) || c.form.Has("was_"+name) {
			p.Fields[name] = c.field(name)
		}
		if c.form.Has("was_" + name) {
			p.Was[name] = c.field("was_" + name)
		}
	}
	p.Attributes = wire.AttributeNames()
	p.Overlaps = c.choices("overlap.", []string{"skip", "allow", "replace"}, p.Fields["overlap"])
	p.Missed = c.choices("missed.", []string{"latest", "all", "none"}, p.Fields["missed"])
	if c.form.Has("was_spec") { // the fields of the form were sent
		if err := c.changeSchedule(&s); err != nil {
			p.Wrong = visible(err.Error())
			return c.show("schedule-form", p)
		}
	}
	if s.Spec != "" {
		c.preview(p, s)
	}
	return c.show("schedule-form", p)
}

// preview sets p.Preview, or p.Wrong if the definition of the schedule would be refused. It also
// previews a schedule that has no topic or no name yet.
func (c *call) preview(p *scheduleFormPage, s schedule.Schedule) {
	if s.Topic == "" || s.Name == "" {
		s.Topic, s.Name = "", ""
	}
	times, err := s.Preview(p.Now, previewTimes)
	if err != nil {
		p.Wrong = visible(err.Error())
		return
	}
	p.Preview = &times
}

// newSchedule stores the schedule of the form, unless the topic has one with this name. A form that
// asks for a preview is shown again with it.
func (c *call) newSchedule() error {
	if c.get("do") == "preview" {
		return c.showScheduleForm()
	}
	s := schedule.Schedule{Topic: c.get("topic"), Name: c.get("name"), Zone: "UTC"}
	if err := storekit.CheckTopic(s.Topic); err != nil {
		return err
	}
	if err := c.may(access.Push, s.Topic); err != nil {
		return err
	}
	if err := c.changeSchedule(&s); err != nil {
		return err
	}
	_, err := schedule.Next(c.r.Context(), c.console.queue, s.Topic, s.Name, 0)
	if err == nil {
		return fmt.Errorf("schedule %s of %s is there already: change it on its page, or choose another name: %w", s.Name, s.Topic, punctual.ErrDuplicate)
	}
	if !errors.Is(err, punctual.ErrNotFound) {
		return err
	}
	return c.putSchedule(s)
}

// editSchedule changes a schedule as its form says. A form that asks for a preview is shown again
// with it.
func (c *call) editSchedule() error {
	if c.get("do") == "preview" {
		return c.showScheduleEdit()
	}
	s, err := c.storedSchedule()
	if err != nil {
		return err
	}
	if err := c.changeSchedule(&s); err != nil {
		return err
	}
	return c.putSchedule(s)
}

// putSchedule stores a schedule and leads to its page, or to the form of a new schedule if the
// reader may not inspect the topic.
func (c *call) putSchedule(s schedule.Schedule) error {
	var status punctual.PushStatus
	detail := fmt.Sprintf("%s (%s)", s.Spec, s.Zone)
	_, err := c.record(audit.Change{Verb: "put schedule", Topic: s.Topic, ID: s.Name, Detail: detail}, func(ctx context.Context) (n int64, err error) {
		if status, err = schedule.Put(ctx, c.console.queue, s); err != nil {
			return 0, err
		}
		return 1, nil
	})
	if err != nil {
		return err
	}
	to := c.frame("").SchedulePath(s.Topic, s.Name)
	if c.may(access.Inspect, s.Topic) != nil {
		to = c.frame("").Path("/schedules/new")
	}
	return c.redirect(to, notice{Key: "notice.schedule.put." + status.String(), Args: []string{s.Name}})
}
