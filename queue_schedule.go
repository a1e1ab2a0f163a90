package punctual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/schedule"
)

// The methods of Queue for recurring schedules. They need a store that is an Inspector, except for DeleteSchedule, and those that
// put, pause, resume and skip need one that also has follow-ups (Abilities.Follow); with any other store they return
// ErrUnsupported. QueueConfig.Prepare is not called for schedules and their occurrences, whether a duty stores them or RunSchedule
// and Backfill do.

const (
	// editTries is how often an edit reads a schedule at most, because somebody else has changed it between its reading and its storing.
	editTries = 20
	// editPause is how long an edit that met another one waits at most before it reads again. The time is random, so that of several
	// edits that began together one cannot lose each time.
	editPause = 5 * time.Millisecond
)

// PutSchedule stores a schedule, or gives the one with this topic and name another definition. It returns PushStored for a new
// schedule, PushReplaced for a changed one or one whose message was dead, and otherwise PushDuplicate when the schedule was like
// this already, so that a program may declare its schedules whenever it starts.
//
// A new schedule comes for the first time after the store's clock. A changed one keeps its counters and its pause. The times of
// the former definition that have come and are not stored yet still count, so that none is lost between a change and a duty.
//
// A definition that is wrong or has no time any more is an ErrInvalid that names the place, ErrTooLarge if it is too long;
// nothing is changed then. ErrOverloaded says that the times of the definition were changed four times already while no duty
// stored what had come.
func (q *Queue) PutSchedule(ctx context.Context, s Schedule) (PushStatus, error) {
	d, err := s.definition()
	if err != nil {
		return PushNone, err
	}
	var zones cron.Zones
	if _, err := d.Read(&zones); err != nil {
		return PushNone, s.wrong(err)
	}
	if m := occurrence(s.Topic, s.Name, occurrenceID(s.Name, 0), &d, 0, 0, ""); q.refused() == nil {
		if err := q.copiesFit(ctx, &m); err != nil {
			return PushNone, s.errorf(ErrTooLarge, "its messages could not be copied to the groups of the topic: %v", err)
		}
	}
	return q.editSchedule(ctx, s.Topic, s.Name, &zones, func(r *schedule.Record, now int64) (*schedule.Record, error) {
		if r == nil {
			return schedule.New(d, now, &zones)
		}
		changed, err := r.Redefine(d, now, &zones)
		if !changed || err != nil {
			return nil, err
		}
		return r, nil
	})
}

// PauseSchedule pauses a schedule until ResumeSchedule. Occurrences that are stored already are delivered all the same, unless the
// topic is paused (Settings.DeliveryPaused). by and note say who paused the schedule and why, for those who list schedules; both
// may be empty. A schedule that is paused already gets the new by and note. ErrNotFound: there is no such schedule.
func (q *Queue) PauseSchedule(ctx context.Context, topic, name, by, note string) error {
	const most = 1000
	if len(by)+len(note) > most {
		return (&Schedule{Topic: topic, Name: name}).errorf(ErrTooLarge, "the note has %d bytes: use at most %d", len(by)+len(note), most)
	}
	return q.changeSchedule(ctx, topic, name, func(r *schedule.Record, now int64, _ *cron.Zones) (bool, error) {
		if p := r.State.Paused; p != nil && p.By == by && p.Note == note {
			return false, nil
		}
		r.Pause(by, note, now)
		return true, nil
	})
}

// ResumeSchedule ends the pause of a schedule. The times that came meanwhile are left out and count as skipped, unless catchUp is
// true: then they count as missed, and Schedule.Missed says what becomes of them. A schedule that is not paused stays as it is.
func (q *Queue) ResumeSchedule(ctx context.Context, topic, name string, catchUp bool) error {
	return q.changeSchedule(ctx, topic, name, func(r *schedule.Record, now int64, _ *cron.Zones) (bool, error) {
		return r.Resume(catchUp, now), nil
	})
}

// SkipSchedule leaves out the next n times of a schedule, 1 to MaxSkip, and returns them. They count as skipped when they come.
func (q *Queue) SkipSchedule(ctx context.Context, topic, name string, n int) ([]Occurrence, error) {
	if n < 1 || n > MaxSkip {
		return nil, (&Schedule{Topic: topic, Name: name}).errorf(ErrInvalid, "skip %d times: use 1 to %d", n, MaxSkip)
	}
	var skipped []Occurrence
	err := q.changeSchedule(ctx, topic, name, func(r *schedule.Record, now int64, zones *cron.Zones) (bool, error) {
		times, err := r.Skip(n, now, zones)
		if err != nil {
			return false, err
		}
		skipped = nil
		delay := schedule.Delay(r.Spread, topic, name)
		for _, at := range times {
			skipped = append(skipped, Occurrence{ID: occurrenceID(name, at), At: timeOf(at), Due: timeOf(at + delay), Status: OccurrenceSkipped})
		}
		return len(times) > 0, nil
	})
	return skipped, err
}

// DeleteSchedule removes a schedule. Its occurrences stay. ErrNotFound: there is no such schedule.
func (q *Queue) DeleteSchedule(ctx context.Context, topic, name string) error {
	if err := checkScheduleName(topic, name); err != nil {
		return err
	}
	answers, err := q.DeleteMany(ctx, topic+ScheduleSuffix, []string{name})
	switch {
	case len(answers) == 0:
		return err
	case errors.Is(answers[0].Err, ErrNotFound):
		return (&Schedule{Topic: topic, Name: name}).errorf(ErrNotFound, "there is none")
	}
	return answers[0].Err
}

// RunSchedule stores an occurrence for now, beside those of the Spec, also while the schedule is paused and whatever Overlap
// says. Its ID has milliseconds, NAME~20261120T080000.417Z, and it has the header HeaderManual with "run". The schedule itself
// does not change.
func (q *Queue) RunSchedule(ctx context.Context, topic, name string) (PushResult, error) {
	_, r, err := q.readSchedule(ctx, topic, name)
	if err != nil {
		return PushResult{Topic: topic}, err
	}
	now, err := q.scheduleNow(ctx)
	if err != nil {
		return PushResult{Topic: topic}, err
	}
	return q.pushPrepared(ctx, occurrence(topic, name, manualID(name, now), &r.Definition, now, now, "run"))
}

// BackfillReport says what a Backfill did, or would do.
type BackfillReport struct {
	// Times are the times that the Spec has between the two instants, Due without regard to Spread. After a backfill, Status
	// is "stored", or the State of a message that was there already and was kept, or "finished" where the topic only remembers
	// the ID (Settings.DedupeWindow). An occurrence that has finished and whose ID is not remembered is stored again.
	Times []Occurrence
	// Stored is how many were stored, Kept how many were there. Both are 0 after a dry run.
	Stored, Kept int
}

// OccurrenceStored is the Status of an occurrence that a Backfill has stored.
const OccurrenceStored OccurrenceStatus = "stored"

// Backfill stores the occurrences that a schedule has from one instant to another, both included, by the definition that it has
// now and whatever its pause and its policies say. They are due at once, and have the header HeaderManual with "backfill". An
// occurrence whose ID is in use, also by a dead message, is kept. to is at most the store's clock, and more than MaxBackfill
// times are ErrTooLarge. With dry nothing is stored. After an error, repeat the call: it stores those that are not there.
func (q *Queue) Backfill(ctx context.Context, topic, name string, from, to time.Time, dry bool) (BackfillReport, error) {
	about := Schedule{Topic: topic, Name: name}
	_, r, err := q.readSchedule(ctx, topic, name)
	if err != nil {
		return BackfillReport{}, err
	}
	now, err := q.scheduleNow(ctx)
	if err != nil {
		return BackfillReport{}, err
	}
	switch {
	case from.IsZero() || to.IsZero():
		return BackfillReport{}, about.errorf(ErrInvalid, "backfill needs the instants from which and to which")
	case to.Before(from):
		return BackfillReport{}, about.errorf(ErrInvalid, "backfill to %s, which is before %s: exchange them", to.Format(time.RFC3339), from.Format(time.RFC3339))
	case to.UnixMilli() > now:
		return BackfillReport{}, about.errorf(ErrInvalid, "backfill to %s, which is ahead: now is the latest", to.Format(time.RFC3339))
	}
	var zones cron.Zones
	times, err := r.Between(from.UnixMilli(), to.UnixMilli(), MaxBackfill+1, &zones)
	if err != nil {
		return BackfillReport{}, about.wrong(err)
	}
	if len(times) > MaxBackfill {
		return BackfillReport{}, about.errorf(ErrTooLarge, "more than %d times, the last of them at %s: choose an earlier end", MaxBackfill, timeOf(times[MaxBackfill-1]).Format(time.RFC3339))
	}
	var b BackfillReport
	ms := make([]NewMessage, len(times))
	for i, at := range times {
		ms[i] = occurrence(topic, name, occurrenceID(name, at), &r.Definition, at, at, "backfill")
		b.Times = append(b.Times, Occurrence{ID: ms[i].ID, At: ms[i].Due, Due: ms[i].Due})
	}
	if dry || len(ms) == 0 {
		return b, nil
	}
	results, err := inParts(ctx, "push", q.pushes, ms, notPushed, func(r PushResult) error { return r.Err })
	errs := make([]error, len(results))
	for i, p := range results {
		q.observer.pushed(ctx, p, 0)
		switch dead := errors.Is(p.Err, ErrDuplicate); {
		case p.Err == nil && p.Status == PushStored:
			b.Stored++
			b.Times[i].Status = OccurrenceStored
		case p.Err == nil || dead:
			b.Kept++
			b.Times[i].Status = OccurrenceStatus(p.Existing.String())
			if p.Existing == StateNone {
				b.Times[i].Status = OccurrenceFinished
			}
		default:
			errs[i] = p.Err
		}
	}
	if len(results) == 0 {
		return b, err
	}
	return b, NewBatchError("push", errs)
}

// ScheduleInfo is a stored schedule with what the store knows of it.
type ScheduleInfo struct {
	Schedule
	ScheduleTimes
	// Last are the last times, the latest first, with what became of them.
	Last   []Occurrence
	Counts ScheduleCounts
	// Created and Changed are when the schedule was stored first, and when it was changed last.
	Created, Changed time.Time
	// Paused is set while the schedule is paused, and says since when and why.
	Paused *SchedulePause
	// Ended is set when no time comes any more, because of Until, Limit or the years in Spec.
	Ended bool
	// Overdue is the time that has come and is not decided yet; zero when there is none.
	Overdue time.Time
	// LastMissed is the latest of the last times that no duty got to in time and that Schedule.Missed did not make up for. Zero when there
	// is none.
	LastMissed time.Time
	// Ahead is the latest time that is decided, or at which the schedule was changed, while that lies ahead because the store's clock has
	// stepped back since. A duty then has the schedule begin again after the step. Zero otherwise.
	Ahead time.Time
	// Problem says in English why the schedule does not come as its Spec says, and what to do. It is empty when all is well; a pause
	// and an end are no problems. The problems: this program does not know the zone, or a newer program has written the schedule, so
	// that there are no Words and no Next; the message in T@cron is no schedule, or dead, or somebody has moved it (PutSchedule mends
	// the last two); times that lie ahead are decided (Ahead); a time has been overdue for ten seconds; or times are left out because of
	// an occurrence on which nobody works.
	Problem string
	// ProblemSince is the first time of the schedule that the Problem concerns: the one that is overdue, that of the occurrence on which
	// nobody works, or one that lies ahead. Zero if that is not known.
	ProblemSince time.Time
	// After is set for the last schedule of a list with a Limit, unless the list ends there: ScheduleQuery.After of the next page.
	After string
}

// ScheduleCounts say how many times of a schedule were decided how.
type ScheduleCounts struct {
	// Stored are those whose occurrence was stored.
	Stored int64
	// Missed are those that no duty got to in time, and that Schedule.Missed did not make up for.
	Missed int64
	// Skipped are those that were left out on purpose: by Overlap, a pause or SkipSchedule.
	Skipped int64
}

// SchedulePause says since when, by whom and why a schedule is paused.
type SchedulePause struct {
	At       time.Time
	By, Note string
}

// ScheduleQuery selects schedules.
type ScheduleQuery struct {
	// Topic is the topic of the schedules. Empty stands for all topics that have schedules.
	Topic string
	// Next and Last are how many times ahead and how many of the latest times each ScheduleInfo has, 0 to 10,000 and 0 to 20.
	// Each of Last whose occurrence was stored costs a call or two of the store.
	Next, Last int
	// Select, if not nil, says which schedules to yield, by topic and name. It is called for each schedule in the order of the
	// list, before the calls that Last costs, so that a page of a long list costs no more than a page of a short one.
	Select func(topic, name string) bool
	// Limit is how many schedules the list has at most; 0 sets no limit. After is the After of the last schedule of a
	// former list, behind which the list begins; empty begins at the start. Both need a Topic.
	Limit int
	After string
}

// GetSchedule returns a schedule with its next 10 and its last 10 times, or ErrNotFound.
func (q *Queue) GetSchedule(ctx context.Context, topic, name string) (ScheduleInfo, error) {
	const shown = 10
	info, _, err := q.readSchedule(ctx, topic, name)
	if err != nil && info.ID == "" {
		return ScheduleInfo{}, err
	}
	now, err := q.scheduleNow(ctx)
	if err != nil {
		return ScheduleInfo{}, err
	}
	return q.scheduleInfo(ctx, topic, &info, ScheduleQuery{Next: shown, Last: shown}, &scheduleReading{now: now})
}

// NextOccurrences returns the next n times of a schedule, 0 to 10,000: fewer when it ends. A pause does not change them.
func (q *Queue) NextOccurrences(ctx context.Context, topic, name string, n int) ([]Occurrence, error) {
	if n < 0 || n > MaxBackfill {
		return nil, invalidf("the next %d times: use 0 to %d", n, MaxBackfill)
	}
	_, r, err := q.readSchedule(ctx, topic, name)
	if err != nil {
		return nil, err
	}
	var zones cron.Zones
	t, err := preview(topic, name, r, n, &zones)
	return t.Next, err
}

// Schedules yields the schedules that sq selects, topic by topic, in the order in which they come next; those whose message is
// dead come first, and those that are paused or have ended come last. It ends after the first error. A schedule that comes while
// the loop runs may be yielded as it was or as it is then, or not at all.
func (q *Queue) Schedules(ctx context.Context, sq ScheduleQuery) iter.Seq2[ScheduleInfo, error] {
	return func(yield func(ScheduleInfo, error) bool) {
		topics, now, err := q.scheduleTopics(ctx, sq)
		if err != nil {
			yield(ScheduleInfo{}, err)
			return
		}
		look := scheduleReading{now: now}
		for _, topic := range topics {
			more, err := q.schedulesOf(ctx, topic, sq, &look, yield)
			if err != nil {
				yield(ScheduleInfo{}, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// scheduleStates are the states of the messages of schedules, in the order of a list.
var scheduleStates = [...]State{StateDead, StateReady, StateLeased, StateScheduled}

// schedulesOf yields the schedules of one topic and reports whether the list goes on behind them. It asks for no more messages than sq.Limit
// leaves, so that the last schedule of the list is the last message of its page.
func (q *Queue) schedulesOf(ctx context.Context, topic string, sq ScheduleQuery, look *scheduleReading, yield func(ScheduleInfo, error) bool) (more bool, err error) {
	i, err := q.inspector()
	if err != nil {
		return false, err
	}
	state, after, err := parseSchedulePlace(sq.After)
	if err != nil {
		return false, err
	}
	left := cmp.Or(sq.Limit, math.MaxInt)
	seen := make(map[string]bool)
	for state < len(scheduleStates) {
		lq := ListQuery{Topic: topic + ScheduleSuffix, State: scheduleStates[state], Limit: min(1000, left), After: after}
		page, err := i.List(ctx, lq)
		if err != nil {
			return false, err
		}
		if after = page.Next; after == "" {
			state++
		}
		for k := range page.Messages {
			m := &page.Messages[k]
			if seen[m.ID] {
				continue
			}
			seen[m.ID] = true
			if sq.Select != nil && !sq.Select(topic, m.ID) {
				continue
			}
			s, err := q.scheduleInfo(ctx, topic, m, sq, look)
			if err != nil {
				return false, err
			}
			if left--; left == 0 && state < len(scheduleStates) {
				s.After = fmt.Sprintf("%d:%s", state, after)
			}
			if !yield(s, nil) || left == 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// parseSchedulePlace reads a ScheduleQuery.After: the number of a state, and the ListQuery.After within its list.
func parseSchedulePlace(text string) (state int, after string, err error) {
	if text == "" {
		return 0, "", nil
	}
	number, after, ok := strings.Cut(text, ":")
	if state, err = strconv.Atoi(number); err != nil || !ok || state < 0 || state >= len(scheduleStates) {
		return 0, "", invalidf("after %q: use that of the page before", text)
	}
	return state, after, nil
}

// scheduleTopics returns sq.Topic, or all topics that have schedules if that is empty, and the store's clock.
func (q *Queue) scheduleTopics(ctx context.Context, sq ScheduleQuery) (topics []string, now int64, err error) {
	if sq.Next < 0 || sq.Next > MaxBackfill || sq.Last < 0 || sq.Last > 20 {
		return nil, 0, invalidf("schedules with %d times ahead and %d of the latest: use 0 to %d and 0 to 20", sq.Next, sq.Last, MaxBackfill)
	}
	if sq.Limit < 0 || (sq.Limit > 0 || sq.After != "") && sq.Topic == "" {
		return nil, 0, invalidf("a page of %d schedules: name a topic, and use 1 or more", sq.Limit)
	}
	if now, err = q.scheduleNow(ctx); err != nil {
		return nil, 0, err
	}
	if sq.Topic != "" {
		return []string{sq.Topic}, now, checkScheduleName(sq.Topic, "any")
	}
	names, err := q.topicNames(ctx, NameQuery{Suffix: ScheduleSuffix})
	for _, n := range names {
		topics = append(topics, n[:len(n)-len(ScheduleSuffix)])
	}
	return topics, now, err
}

// topicNames returns the names of the topics that nq selects, also from a store that is no TopicNamer.
func (q *Queue) topicNames(ctx context.Context, nq NameQuery) ([]string, error) {
	if namer, err := As[TopicNamer](q.store); err == nil {
		return namer.TopicNames(ctx, nq)
	}
	i, err := q.inspector()
	if err != nil {
		return nil, err
	}
	all, err := i.Topics(ctx)
	var names []string
	for _, t := range all {
		if nq.selects(t.Topic) {
			names = append(names, t.Topic)
		}
	}
	return names, err
}

// scheduleInfo is the ScheduleInfo of a message.
func (q *Queue) scheduleInfo(ctx context.Context, topic string, m *Info, sq ScheduleQuery, look *scheduleReading) (ScheduleInfo, error) {
	r, err := schedule.Decode(m.Body)
	if err != nil {
		return ScheduleInfo{Schedule: Schedule{Topic: topic, Name: m.ID}, Problem: err.Error(), ProblemSince: m.FirstDue}, nil
	}
	st := &r.State
	out := ScheduleInfo{
		Schedule: scheduleOf(topic, m.ID, &r.Definition), Counts: ScheduleCounts{st.Stored, st.Missed, st.Skipped},
		Created: timeOf(st.Created), Changed: timeOf(st.Changed), Ended: st.Next.At == 0,
	}
	out.Ahead = timeOf(r.Ahead(look.now))
	for _, l := range st.Left {
		if l.Why == schedule.WhyMissed && l.At > out.LastMissed.UnixMilli() {
			out.LastMissed = timeOf(l.At)
		}
	}
	if p := st.Paused; p != nil {
		out.Paused = &SchedulePause{At: timeOf(p.At), By: p.By, Note: p.Note}
	}
	delay := schedule.Delay(r.Spread, topic, m.ID)
	want := timeOf(st.Next.At + delay)
	var timesErr error
	if out.ScheduleTimes, timesErr = preview(topic, m.ID, r, sq.Next, &look.zones); timesErr == nil {
		var due int64
		if due, timesErr = r.Due(delay, MaxDue.UnixMilli(), &look.zones); timesErr == nil {
			want = timeOf(due)
		}
	}
	if out.Paused == nil && !out.Ended && want.UnixMilli() <= look.now {
		out.Overdue = want
	}
	if out.Problem, out.ProblemSince, err = q.problem(ctx, topic, m, r, want, timesErr, look); err != nil {
		return ScheduleInfo{}, err
	}
	for _, l := range r.Latest(sq.Last) {
		o := Occurrence{ID: occurrenceID(m.ID, l.At), At: timeOf(l.At), Due: timeOf(l.At + delay), Status: leftOut[l.Why]}
		if l.Why == "" {
			if o.Status, err = q.occurrenceStatus(ctx, topic, o.ID); err != nil {
				return ScheduleInfo{}, err
			}
		}
		out.Last = append(out.Last, o)
	}
	return out, nil
}

// occurrenceStatus says what became of the occurrence with this ID, which was stored.
func (q *Queue) occurrenceStatus(ctx context.Context, topic, id string) (OccurrenceStatus, error) {
	m, err := q.Get(ctx, topic, id)
	if !errors.Is(err, ErrNotFound) {
		return OccurrenceStatus(m.State.String()), err
	}
	f, err := q.Finished(ctx, topic, id)
	switch {
	case err == nil:
		return OccurrenceStatus(f.Outcome), nil
	case errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnsupported):
		return OccurrenceFinished, nil
	}
	return "", err
}

// scheduleNow is the store's clock, in Unix milliseconds.
func (q *Queue) scheduleNow(ctx context.Context) (int64, error) {
	if err := q.refused(); err != nil {
		return 0, err
	}
	now, err := q.store.Now(ctx)
	return now.UnixMilli(), err
}

// readSchedule returns the message of a schedule and the record in it. If the message is there and its record cannot be read,
// readSchedule returns the Info, which has an ID, with the error.
func (q *Queue) readSchedule(ctx context.Context, topic, name string) (Info, *schedule.Record, error) {
	if err := checkScheduleName(topic, name); err != nil {
		return Info{}, nil, err
	}
	about := Schedule{Topic: topic, Name: name}
	m, err := q.Get(ctx, topic+ScheduleSuffix, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return Info{}, nil, about.errorf(ErrNotFound, "there is none")
	case err != nil:
		return Info{}, nil, err
	}
	r, err := schedule.Decode(m.Body)
	if err != nil {
		return m, nil, about.errorf(ErrUnsupported, "%v", err)
	}
	return m, r, nil
}

// changeSchedule edits a schedule, and returns an ErrNotFound if there is none. change reports whether it has changed anything.
func (q *Queue) changeSchedule(ctx context.Context, topic, name string, change func(*schedule.Record, int64, *cron.Zones) (bool, error)) error {
	var zones cron.Zones
	_, err := q.editSchedule(ctx, topic, name, &zones, func(r *schedule.Record, now int64) (*schedule.Record, error) {
		if r == nil {
			return nil, ErrNotFound
		}
		changed, err := change(r, now, &zones)
		if !changed || err != nil {
			return nil, err
		}
		return r, nil
	})
	return err
}

// editSchedule reads a schedule, has edit change it, and stores what edit returns in its place, unless somebody has changed it
// meanwhile: then it begins anew. edit gets nil when there is no such schedule, and returns nil to leave it as it is; only one whose
// message is dead or was moved is then stored again.
func (q *Queue) editSchedule(ctx context.Context, topic, name string, zones *cron.Zones, edit func(r *schedule.Record, now int64) (*schedule.Record, error)) (PushStatus, error) {
	about := Schedule{Topic: topic, Name: name}
	if err := q.canFollow(ctx, &about); err != nil {
		return PushNone, err
	}
	remembered := false // the companion remembers the ID of a schedule whose message was cancelled
	for range editTries {
		now, err := q.scheduleNow(ctx)
		if err != nil {
			return PushNone, err
		}
		old, r, err := q.readSchedule(ctx, topic, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return PushNone, err
		}
		forgotten := r != nil && r.Ahead(now) != 0
		if forgotten {
			if err := forget(ctx, q.store, r, now, zones); err != nil {
				return PushNone, about.wrong(err)
			}
		}
		edited, err := edit(r, now)
		switch {
		case errors.Is(err, ErrNotFound):
			return PushNone, about.errorf(ErrNotFound, "there is none")
		case err != nil:
			return PushNone, about.wrong(err)
		case edited == nil && !forgotten && old.State != StateDead && !misplaced(topic, &old, r, zones):
			return PushDuplicate, nil
		case edited == nil:
			edited = r
		}
		m, err := scheduleMessage(topic, name, edited, zones)
		if err != nil {
			return PushNone, about.wrong(err)
		}
		switch {
		case r != nil:
			m.IfExists, m.IfDue = IfExistsReplace, old.Due
		case remembered:
			m.IfExists = IfExistsReplace
		default:
			m.IfExists = IfExistsFail
		}
		p, err := q.pushPrepared(ctx, m)
		switch {
		case err == nil:
			return p.Status, nil
		case errors.Is(err, ErrDuplicate):
			remembered = p.Existing == StateNone
		case errors.Is(err, ErrChanged):
			pause(ctx, rand.N(editPause))
		default:
			return PushNone, fmt.Errorf("schedule %s in %s: %w", name, topic, err)
		}
	}
	return PushNone, about.errorf(ErrChanged, "it was changed %d times while this change was under way: try again", editTries)
}

// misplaced reports whether somebody has moved the message m of the schedule r to a later time than that of the schedule.
func misplaced(topic string, m *Info, r *schedule.Record, zones *cron.Zones) bool {
	due, err := r.Due(schedule.Delay(r.Spread, topic, m.ID), MaxDue.UnixMilli(), zones)
	return err == nil && m.State == StateScheduled && m.FirstDue.After(timeOf(due))
}

// canFollow returns an ErrUnsupported unless the store has follow-ups, without which a schedule would never come.
func (q *Queue) canFollow(ctx context.Context, about *Schedule) error {
	if err := checkScheduleName(about.Topic, about.Name); err != nil {
		return err
	}
	if err := q.refused(); err != nil {
		return err
	}
	reporter, err := As[AbilityReporter](q.store)
	if err != nil {
		return about.errorf(ErrUnsupported, "this store has no follow-ups, on which schedules rest")
	}
	switch can, err := reporter.Abilities(ctx); {
	case err != nil:
		return fmt.Errorf("schedule %s in %s: %w", about.Name, about.Topic, err)
	case can.Follow == ReachNone:
		return about.errorf(ErrUnsupported, "this store has no follow-ups, on which schedules rest")
	}
	return nil
}

// scheduleMessage is the message of a schedule.
func scheduleMessage(topic, name string, r *schedule.Record, zones *cron.Zones) (NewMessage, error) {
	due, err := r.Due(schedule.Delay(r.Spread, topic, name), MaxDue.UnixMilli(), zones)
	if err != nil {
		return NewMessage{}, err
	}
	body, err := r.Encode()
	if err != nil {
		return NewMessage{}, err
	}
	// MaxAttempts is as high as it can be, because each duty that is killed between its claim and its ack has used an attempt, and
	// a schedule must not become dead by that.
	return NewMessage{Topic: topic + ScheduleSuffix, ID: name, Body: body, Due: timeOf(due), MaxAttempts: MaxAttemptsLimit}, nil
}

// pushPrepared is pushOne without QueueConfig.Prepare and without a batch, because schedules change seldom. It calls the store on the
// caller's goroutine.
func (q *Queue) pushPrepared(ctx context.Context, m NewMessage) (PushResult, error) {
	start := time.Now()
	rs, err := inParts(ctx, "push", q.pushes, []NewMessage{m}, notPushed, func(r PushResult) error { return r.Err })
	if len(rs) == 0 {
		rs = []PushResult{notPushed(m, err)}
	}
	r := rs[0]
	q.observer.pushed(ctx, r, time.Since(start))
	if r.Err != nil {
		return r, operation("push", r.Err)
	}
	return r, nil
}

// selects reports whether q selects a topic.
func (q NameQuery) selects(topic string) bool {
	return len(topic) >= len(q.Prefix)+len(q.Suffix) && topic[:len(q.Prefix)] == q.Prefix && topic[len(topic)-len(q.Suffix):] == q.Suffix
}
