package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

const (
	pathSchedules = pathTopic + "/schedules"
	pathSchedule  = pathSchedules + "/{name}"
)

// scheduleRoutes are the routes of recurring schedules. A schedule is a message of a companion
// topic, so the rest of the interface reaches it, too; these routes say what its message means.
func scheduleRoutes() []*route {
	paramName := param{name: "name", in: inPath, text: "The schedule's name within its topic.", required: true, schema: name(schedule.MaxName)}
	ok := []int{http.StatusOK}
	change := func(verb, summary string, extra ...any) *route {
		return &route{
			method: http.MethodPost, path: pathSchedule + "/" + verb, action: access.Admin,
			params: params(append([]any{paramTopic, paramName}, extra...)...), answer: wire.Schedule{}, statuses: ok, errors: []string{"not_found", "changed"},
			id: verb + "Schedule", summary: summary,
		}
	}
	pause := change("pause", "Pause a schedule until it is resumed", param{name: "note", in: inQuery, text: "Why, for those who list schedules."})
	pause.handle = (*call).pauseSchedule
	resume := change("resume", "End the pause of a schedule",
		param{name: "catch_up", in: inQuery, text: "true: the times that came meanwhile count as missed. Default false: they are left out.", values: []string{"true", "false"}})
	resume.handle = (*call).resumeSchedule
	run := change("run", "Store an occurrence for now, beside those of the schedule")
	run.again = "look at the schedule's last times before you send it again"
	run.answer, run.statuses, run.errors, run.handle = wire.PushResult{}, []int{http.StatusCreated}, []string{"not_found", "paused", "no_space"}, (*call).runSchedule
	skip := change("skip", "Leave out the next times", param{name: "n", in: inQuery, text: "How many. Default 1.", schema: count(1, schedule.MaxSkip)})
	skip.again = "look at the schedule's next times before you send it again"
	skip.answer, skip.handle = wire.Occurrences{}, (*call).skipSchedule
	backfill := change("backfill", "Store the occurrences between two instants of the past",
		param{name: "from", in: inQuery, text: "The first instant.", required: true, schema: instant()},
		param{name: "to", in: inQuery, text: "The last instant, at most now.", required: true, schema: instant()},
		param{name: "dry_run", in: inQuery, text: "true: only say which. Default false.", values: []string{"true", "false"}})
	backfill.answer, backfill.errors, backfill.handle = wire.Occurrences{}, []string{"not_found", "too_large"}, (*call).backfillSchedule
	return []*route{
		{
			method: http.MethodPut, path: pathSchedule, action: access.Push, body: bodyJSON, params: params(paramTopic, paramName),
			request: wire.ScheduleItem{}, answer: wire.Schedule{}, statuses: []int{http.StatusCreated, http.StatusOK}, errors: []string{"too_large", "changed"},
			id: "putSchedule", summary: "Store a schedule, or change it; the same again changes nothing",
			detail: "201 says that it is new, 200 with result replaced that it was changed, with duplicate that it was like this already.",
			handle: (*call).putSchedule,
		},
		{
			method: http.MethodGet, path: pathSchedule, action: access.Inspect, params: params(paramTopic, paramName),
			answer: wire.Schedule{}, statuses: ok, errors: []string{"not_found"},
			id: "getSchedule", summary: "Look at a schedule, with its next 10 and last 10 times", handle: (*call).getSchedule,
		},
		{
			method: http.MethodDelete, path: pathSchedule, action: access.Admin, params: params(paramTopic, paramName), statuses: []int{http.StatusNoContent}, errors: []string{"not_found"},
			id: "deleteSchedule", summary: "Remove a schedule; its occurrences stay", handle: (*call).deleteSchedule,
		},
		{
			method: http.MethodGet, path: pathSchedules, action: access.Inspect,
			params: params(
				paramTopic,
				param{name: "next", in: inQuery, text: "How many times ahead of each. Default 1.", schema: count(0, 1000)},
				param{name: "last", in: inQuery, text: "How many of the latest times of each. Default 1.", schema: count(0, 20)},
				param{name: "limit", in: inQuery, text: "How many schedules at most. Default 1000. With so many times ahead of each that the list takes too much memory it is 413 too_large: ask for fewer.", schema: count(1, mostSchedules)},
				paramAfter,
			),
			answer: wire.Schedules{}, statuses: ok, errors: []string{"too_large"},
			id: "listSchedules", summary: "List the schedules of a topic in the order in which they come", handle: (*call).listSchedules,
		},
		pause, resume, run, skip, backfill,
	}
}

// mostSchedules is how many schedules one answer has at most.
const mostSchedules = 10_000

func (c *call) putSchedule() error {
	var item wire.ScheduleItem
	if err := wire.DecodeRequest(c.body, &item); err != nil {
		return err
	}
	if err := c.holdItems(item.Size()); err != nil {
		return err
	}
	c.dropBody()
	s, err := item.Schedule(c.path["topic"], c.path["name"])
	if err != nil {
		return err
	}
	if err := c.mayMake(s.Topic + schedule.Suffix); err != nil {
		return err
	}
	var status punctual.PushStatus
	err = c.changeSchedule("put schedule", "", func(ctx context.Context) (err error) {
		status, err = schedule.Put(ctx, c.server.queue, s)
		return err
	})
	if err != nil {
		return err
	}
	answer, err := c.scheduleOf()
	if err != nil {
		return err
	}
	answer.Result = status.String()
	if status == punctual.PushStored {
		return c.json(http.StatusCreated, answer)
	}
	return c.json(http.StatusOK, answer)
}

// scheduleOf returns the schedule that the path names, as far as the client may see it. Only a
// client that may inspect the topic sees the body, the headers, the latest occurrences, a pause and
// the counts.
func (c *call) scheduleOf() (wire.Schedule, error) {
	return storeCall(c, func(ctx context.Context) (wire.Schedule, error) {
		i, err := schedule.Get(ctx, c.server.queue, c.path["topic"], c.path["name"])
		if !c.principal.Allows(access.Inspect, c.path["topic"]) {
			i.Body, i.Headers, i.Last, i.Paused, i.Counts = nil, nil, nil, nil, punctual.ScheduleCounts{}
		}
		return wire.ScheduleOf(&i), err
	})
}

// changeSchedule makes a change of the schedule that the path names, and records it.
func (c *call) changeSchedule(verb, detail string, change func(ctx context.Context) error) error {
	_, err := c.record(audit.Change{Verb: verb, Topic: c.path["topic"], ID: c.path["name"], Detail: detail}, func() (int64, error) {
		return storeCall(c, func(ctx context.Context) (int64, error) { return 1, change(ctx) })
	})
	return err
}

// changedSchedule calls changeSchedule, and answers with the schedule.
func (c *call) changedSchedule(verb, detail string, change func(ctx context.Context) error) error {
	if err := c.changeSchedule(verb, detail, change); err != nil {
		return err
	}
	return c.getSchedule()
}

func (c *call) getSchedule() error {
	answer, err := c.scheduleOf()
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, answer)
}

func (c *call) pauseSchedule() error {
	note := c.param("note")
	return c.changedSchedule("pause schedule", note, func(ctx context.Context) error {
		return schedule.Pause(ctx, c.server.queue, c.path["topic"], c.path["name"], c.principal.Name, note)
	})
}

func (c *call) resumeSchedule() error {
	catchUp, _, err := c.truth("catch_up")
	if err != nil {
		return err
	}
	return c.changedSchedule("resume schedule", fmt.Sprintf("catch up: %t", catchUp), func(ctx context.Context) error {
		return schedule.Resume(ctx, c.server.queue, c.path["topic"], c.path["name"], catchUp)
	})
}

func (c *call) runSchedule() error {
	var r punctual.PushResult
	err := c.changeSchedule("run schedule", "", func(ctx context.Context) (err error) {
		r, err = schedule.Run(ctx, c.server.queue, c.path["topic"], c.path["name"])
		return err
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusCreated, wire.PushResultOf(r))
}

func (c *call) skipSchedule() error {
	n, err := c.number("n", 1)
	if err != nil {
		return err
	}
	var skipped []schedule.Occurrence
	err = c.changeSchedule("skip schedule", fmt.Sprintf("times: %d", n), func(ctx context.Context) (err error) {
		skipped, err = schedule.Skip(ctx, c.server.queue, c.path["topic"], c.path["name"], n)
		return err
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Occurrences{Occurrences: wire.OccurrencesOf(skipped)})
}

func (c *call) backfillSchedule() error {
	from, to, err := c.span()
	if err != nil {
		return err
	}
	dry, _, err := c.truth("dry_run")
	if err != nil {
		return err
	}
	if err := c.hold(scheduleTime * schedule.MaxBackfill); err != nil { // how many times there are is not known yet
		return err
	}
	var b schedule.BackfillReport
	fill := func(ctx context.Context) (err error) {
		b, err = schedule.Backfill(ctx, c.server.queue, c.path["topic"], c.path["name"], from, to, dry)
		return err
	}
	if dry {
		_, err = storeCall(c, func(ctx context.Context) (bool, error) { return true, fill(ctx) })
	} else {
		err = c.changeSchedule("backfill schedule", fmt.Sprintf("from %s, to %s", c.param("from"), c.param("to")), fill)
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, wire.Occurrences{Occurrences: wire.OccurrencesOf(b.Times), Stored: b.Stored, Kept: b.Kept})
}

func (c *call) deleteSchedule() error {
	err := c.changeSchedule("delete schedule", "", func(ctx context.Context) error {
		return schedule.Delete(ctx, c.server.queue, c.path["topic"], c.path["name"])
	})
	if err != nil {
		return err
	}
	return c.write(http.StatusNoContent, "", nil)
}

func (c *call) listSchedules() error {
	next, err := c.number("next", 1)
	if err != nil {
		return err
	}
	last, err := c.number("last", 1)
	if err != nil {
		return err
	}
	limit, err := c.number("limit", 1000)
	if err != nil {
		return err
	}
	if limit < 1 || limit > mostSchedules || next < 0 || next > 1000 {
		return storekit.Invalidf("a list of %d schedules with %d times each: use 1 to %d, and 0 to 1000", limit, next, mostSchedules)
	}
	answer, err := storeCall(c, func(ctx context.Context) (wire.Schedules, error) {
		out := wire.Schedules{Schedules: []wire.Schedule{}}
		q := schedule.Query{Topic: c.path["topic"], Next: next, Last: last, Limit: limit, After: c.param("after")}
		for s, err := range schedule.List(ctx, c.server.queue, q) {
			if err != nil {
				return out, err
			}
			if err := ctx.Err(); err != nil {
				return out, err // the times are worked out without a call of the store, which would see that the client is gone
			}
			if err := c.holdSchedule(&s); err != nil {
				return out, err
			}
			out.Schedules, out.Next = append(out.Schedules, wire.ScheduleOf(&s)), s.After
		}
		return out, nil
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, answer)
}

// scheduleTime is about how many bytes a time of a schedule takes until the answer is sent: as an
// Occurrence, in the answer, and in its text.
const scheduleTime = 500

// holdSchedule counts the memory of one schedule of a list before the next one is worked out. It
// returns an ErrTooLarge if the list takes more than one request may.
func (c *call) holdSchedule(s *schedule.Info) error {
	n := 2000 + 3*int64(len(s.Body)) + scheduleTime*int64(len(s.Next)+len(s.Last))
	for name, value := range s.Headers {
		n += 200 + 3*int64(len(name)+len(value))
	}
	if most := c.server.limits.mostHeld(); c.held+n > most {
		return fmt.Errorf("the schedules with their times take more than %d bytes: ask for fewer with limit and next: %w", most, punctual.ErrTooLarge)
	}
	return c.hold(n)
}

// scheduleMembers returns what members returns, for the types of schedules.
func scheduleMembers() map[string]object {
	return map[string]object{
		"ScheduleItem.from":         instant(),
		"ScheduleItem.until":        instant(),
		"ScheduleItem.except":       {"maxItems": wire.MaxExcept},
		"ScheduleItem.spread":       length(),
		"ScheduleItem.overlap":      named(schedule.OverlapSkip, schedule.OverlapReplace),
		"ScheduleItem.missed":       named(schedule.MissedLatest, schedule.MissedNone),
		"ScheduleItem.grace":        length(),
		"ScheduleItem.max_dead":     count(0, 10),
		"ScheduleItem.max_attempts": count(0, limits.MaxAttemptsLimit),
		"ScheduleItem.expire":       length(),
		"Schedule.result":           named(punctual.PushStored, punctual.PushReplaced),
	}
}
