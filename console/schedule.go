package console

import (
	"cmp"
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/schedule"
)

// schedulePage shows one schedule: its definition, when it comes next, and what became of its last
// times.
type schedulePage struct {
	*frame
	Row scheduleRow
	// Fields are those of scheduleFields, under the names of the fields of the form that changes
	// the schedule.
	Fields facts
	// Attributes are those of its messages.
	Attributes []wire.Attribute
	Body       *bodyView
	// Headers are those headers of the schedule's definition that may be shown, Hidden is how many
	// may not. Those that Punctual adds to each occurrence are in neither.
	Headers []header
	Hidden  int
	// Messages are the paths of the messages of Row.Last, in the same order, "" where there was no
	// message.
	Messages []string
	// Fill is the answer to a dry run of a backfill, nil without one.
	Fill *backfill
}

// backfill is what a backfill would store.
type backfill struct {
	// Times are the first times that would be stored, at most shownTimes.
	Times []schedule.Occurrence
	// More is how many further times would be stored.
	More int
	// From and To are the bounds for the form that makes the backfill.
	From, To string
}

// shownTimes is how many of the times of a backfill a page shows at most.
const shownTimes = 50

func (c *call) showSchedule() error {
	p, err := c.schedulePage()
	if err != nil {
		return err
	}
	return c.show("schedule", p)
}

// schedulePage reads the schedule that the path names, for its page.
func (c *call) schedulePage() (*schedulePage, error) {
	topic, name := c.path["topic"], c.path["name"]
	p := &schedulePage{frame: c.frame("schedule")}
	p.Subject = visible(name)
	s, err := schedule.Get(c.r.Context(), c.console.queue, topic, name)
	if err != nil {
		return nil, fmt.Errorf("look at schedule %s of %s: %w", name, topic, err)
	}
	if p.Now, err = c.now(); err != nil {
		return nil, err
	}
	p.Row = c.scheduleRow(p.frame, &s)
	for i := range s.Last {
		path := ""
		if wasStored(s.Last[i].Status) {
			path = p.MessagePath(topic, s.Last[i].ID)
		}
		p.Messages = append(p.Messages, path)
	}
	p.Fields, p.Attributes = c.scheduleFacts(&s.Schedule), wire.AttributesToShow(s.Schedule.Attributes())
	if p.Headers, p.Hidden = c.headers(s.Headers); !c.console.options.HideBodies {
		p.Body = bodyAs(s.Body, c.get("body"))
	}
	return p, nil
}

// scheduleFacts returns the fields that are set in a schedule, except for its expression, zone,
// body and headers. DropExpired stands with the expiry.
func (c *call) scheduleFacts(s *schedule.Schedule) (f facts) {
	text := c.scheduleTexts(s)
	f.add("overlap", c.look.language.text("overlap."+text["overlap"]))
	f.add("missed", c.look.language.text("missed."+text["missed"]))
	if text["expire"] != "" && s.DropExpired {
		text["expire"] = c.look.language.text("schedule.expire.drop", text["expire"])
	}
	for _, name := range []string{"grace", "spread", "except", "limit", "max_dead", "max_attempts", "expire"} {
		f.add(name, text[name])
	}
	f.addTime("from", s.From, c.look.zone)
	f.addTime("until", s.Until, c.look.zone)
	return f
}

// Status returns the text for what became of an occurrence.
func (f *frame) Status(s schedule.OccurrenceStatus) string {
	return f.call.look.language.text("occurrence." + string(s))
}

// recordSchedule makes a change of the schedule that the path names, by calling do, and enters the
// change into the audit log.
func (c *call) recordSchedule(verb, detail string, do func(ctx context.Context, q *punctual.Queue, topic, name string) error) error {
	topic, name := c.path["topic"], c.path["name"]
	_, err := c.record(audit.Change{Verb: verb + " schedule", Topic: topic, ID: name, Detail: detail}, func(ctx context.Context) (int64, error) {
		return 1, do(ctx, c.console.queue, topic, name)
	})
	return err
}

// changedSchedule is recordSchedule, and then leads back to the page of the schedule with the
// notice for the verb.
func (c *call) changedSchedule(verb, detail string, do func(ctx context.Context, q *punctual.Queue, topic, name string) error) error {
	if err := c.recordSchedule(verb, detail, do); err != nil {
		return err
	}
	topic, name := c.path["topic"], c.path["name"]
	return c.redirect(c.frame("").SchedulePath(topic, name), notice{Key: "notice.schedule." + verb, Args: []string{name}})
}

func (c *call) pauseSchedule() error {
	note := c.get("note")
	return c.changedSchedule("pause", note, func(ctx context.Context, q *punctual.Queue, topic, name string) error {
		return schedule.Pause(ctx, q, topic, name, c.user(), note)
	})
}

func (c *call) resumeSchedule() error {
	catchUp := c.get("catch_up") != ""
	return c.changedSchedule("resume", fmt.Sprintf("catch up: %t", catchUp), func(ctx context.Context, q *punctual.Queue, topic, name string) error {
		return schedule.Resume(ctx, q, topic, name, catchUp)
	})
}

// runSchedule stores an occurrence for now and leads back to the page of the schedule.
func (c *call) runSchedule() error {
	var r punctual.PushResult
	err := c.recordSchedule("run", "", func(ctx context.Context, q *punctual.Queue, topic, name string) (err error) {
		r, err = schedule.Run(ctx, q, topic, name)
		return err
	})
	if err != nil {
		return err
	}
	topic, name := c.path["topic"], c.path["name"]
	return c.redirect(c.frame("").SchedulePath(topic, name), notice{Key: "notice.schedule.run", Args: []string{r.ID}})
}

func (c *call) skipSchedule() error {
	n := cmp.Or(c.number("n"), 1)
	var skipped []schedule.Occurrence
	err := c.recordSchedule("skip", fmt.Sprintf("times: %d", n), func(ctx context.Context, q *punctual.Queue, topic, name string) (err error) {
		skipped, err = schedule.Skip(ctx, q, topic, name, n)
		return err
	})
	if err != nil {
		return err
	}
	note := notice{Key: "notice.schedule.skip.none"}
	if len(skipped) > 0 {
		last := stamp(skipped[len(skipped)-1].Due, c.look.zone)
		note = notice{Key: "notice.schedule.skip", Args: []string{overview.Grouped(int64(len(skipped))), last}}
	}
	return c.redirect(c.frame("").SchedulePath(c.path["topic"], c.path["name"]), note)
}

// backfillSchedule stores the occurrences between two times of the past. With the value "dry" in
// the field "do" it only shows which occurrences these would be.
func (c *call) backfillSchedule() error {
	from, to, err := c.window()
	if err != nil {
		return err
	}
	topic, name := c.path["topic"], c.path["name"]
	if c.get("do") == "dry" {
		r, err := schedule.Backfill(c.r.Context(), c.console.queue, topic, name, from, to, true)
		if err != nil {
			return err
		}
		p, err := c.schedulePage()
		if err != nil {
			return err
		}
		n := min(len(r.Times), shownTimes)
		p.Fill = &backfill{Times: r.Times[:n], More: len(r.Times) - n, From: exact(from), To: exact(to)}
		return c.show("schedule", p)
	}
	var r schedule.BackfillReport
	detail := fmt.Sprintf("from %s, to %s", notation.FormatTime(from), notation.FormatTime(to))
	err = c.recordSchedule("backfill", detail, func(ctx context.Context, q *punctual.Queue, topic, name string) (err error) {
		r, err = schedule.Backfill(ctx, q, topic, name, from, to, false)
		return err
	})
	if err != nil {
		return err
	}
	return c.redirect(c.frame("").SchedulePath(topic, name), notice{Key: "notice.schedule.backfill", Args: []string{overview.Grouped(int64(r.Stored)), overview.Grouped(int64(r.Kept))}})
}

func (c *call) deleteSchedule() error {
	err := c.recordSchedule("delete", "", func(ctx context.Context, q *punctual.Queue, topic, name string) error {
		return schedule.Delete(ctx, q, topic, name)
	})
	if err != nil {
		return err
	}
	return c.redirect(c.frame("").Path("/schedules"), notice{Key: "notice.schedule.delete", Args: []string{c.path["name"]}})
}
