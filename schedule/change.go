package schedule

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

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/schedule/internal/rule"
	"github.com/punctualmq/punctual/storekit"
)

// The functions on the schedules of a Queue. They need a store that is an Inspector, except for
// Delete, and those that put, pause, resume and skip need one that also has follow-ups
// (Abilities.Follow); with any other store they return ErrUnsupported. QueueConfig.Prepare is
// called for the occurrences that Run and Backfill store, and neither for schedules nor for what a
// duty stores.

const (
	// editTries is how often an edit reads a schedule at most, because somebody else has changed it
	// between its reading and its storing.
	editTries = 20
	// editPause is how long an edit that met another one waits at most before it reads again. The
	// time is random, so that of several edits that began together one cannot lose each time.
	editPause = 5 * time.Millisecond
)

// Put stores a schedule, or gives the one with this topic and name another definition. It returns
// PushStored for a new schedule, PushReplaced for a changed one or one whose message was dead, and
// otherwise PushDuplicate when the schedule was like this already, so that a program may declare
// its schedules whenever it starts.
//
// A new schedule comes for the first time after the store's clock. A changed one keeps its counters
// and its pause. The times of the former definition that have come and are not stored yet still
// count, so that none is lost between a change and a duty.
//
// A definition that is wrong or has no time any more is an ErrInvalid that names the place,
// ErrTooLarge if it is too long; nothing is changed then. ErrOverloaded says that the times of the
// definition were changed four times already while no duty stored what had come.
func Put(ctx context.Context, q *punctual.Queue, s Schedule) (punctual.PushStatus, error) {
	return put(ctx, q, s, func(*rule.Record, int64) {})
}

// PutPaused is Put, except that a new schedule is paused from the start, as by Pause. One that is
// there keeps its pause, or goes on.
func PutPaused(ctx context.Context, q *punctual.Queue, s Schedule, by, note string) (punctual.PushStatus, error) {
	if err := checkNote(s.Topic, s.Name, by, note); err != nil {
		return punctual.PushNone, err
	}
	return put(ctx, q, s, func(r *rule.Record, now int64) { r.Pause(by, note, now) })
}

func put(ctx context.Context, q *punctual.Queue, s Schedule, begin func(r *rule.Record, now int64)) (punctual.PushStatus, error) {
	d, err := s.definition()
	if err != nil {
		return punctual.PushNone, err
	}
	var zones cron.Zones
	if _, err := d.Read(&zones); err != nil {
		return punctual.PushNone, s.wrong(err)
	}
	m := occurrence(s.Topic, s.Name, occurrenceID(s.Name, 0), &d, 0, 0, "")
	err = punctual.CheckCopies(&m, func() (punctual.Settings, error) { return q.Settings(ctx, s.Topic) })
	if err != nil {
		return punctual.PushNone, s.errorf(punctual.ErrTooLarge, "its messages could not be copied to the groups of the topic: %v", err)
	}
	return editSchedule(ctx, q, s.Topic, s.Name, &zones, func(r *rule.Record, now int64) (*rule.Record, error) {
		if r == nil {
			r, err := rule.New(d, now, &zones)
			if err == nil {
				begin(r, now)
			}
			return r, err
		}
		changed, err := r.Redefine(d, now, &zones)
		if !changed || err != nil {
			return nil, err
		}
		return r, nil
	})
}

// Pause pauses a schedule until Resume. Occurrences that are stored already are delivered all the
// same, unless the topic is paused (Settings.DeliveryPaused). by and note say who paused the
// schedule and why, for those who list schedules; both may be empty. A schedule that is paused
// already gets the new by and note. ErrNotFound: there is no such schedule.
func Pause(ctx context.Context, q *punctual.Queue, topic, name, by, note string) error {
	if err := checkNote(topic, name, by, note); err != nil {
		return err
	}
	return changeSchedule(ctx, q, topic, name, func(r *rule.Record, now int64, _ *cron.Zones) (bool, error) {
		if p := r.State.Paused; p != nil && p.By == by && p.Note == note {
			return false, nil
		}
		r.Pause(by, note, now)
		return true, nil
	})
}

func checkNote(topic, name, by, note string) error {
	const most = 1000
	if len(by)+len(note) > most {
		return (&Schedule{Topic: topic, Name: name}).errorf(punctual.ErrTooLarge, "the note has %d bytes: use at most %d", len(by)+len(note), most)
	}
	return nil
}

// Resume ends the pause of a schedule. The times that came meanwhile are left out and count as
// skipped, unless catchUp is true: then they count as missed, and Schedule.Missed says what becomes
// of them. A schedule that is not paused stays as it is.
func Resume(ctx context.Context, q *punctual.Queue, topic, name string, catchUp bool) error {
	return changeSchedule(ctx, q, topic, name, func(r *rule.Record, now int64, _ *cron.Zones) (bool, error) {
		return r.Resume(catchUp, now), nil
	})
}

// Skip leaves out the next n times of a schedule, 1 to MaxSkip, and returns them. They count as
// skipped when they come.
func Skip(ctx context.Context, q *punctual.Queue, topic, name string, n int) ([]Occurrence, error) {
	if n < 1 || n > MaxSkip {
		return nil, (&Schedule{Topic: topic, Name: name}).errorf(punctual.ErrInvalid, "skip %d times: use 1 to %d", n, MaxSkip)
	}
	var skipped []Occurrence
	err := changeSchedule(ctx, q, topic, name, func(r *rule.Record, now int64, zones *cron.Zones) (bool, error) {
		times, err := r.Skip(n, now, zones)
		if err != nil {
			return false, err
		}
		skipped = nil
		delay := rule.Delay(r.Spread, topic, name)
		for _, at := range times {
			skipped = append(skipped, Occurrence{ID: occurrenceID(name, at), At: timeOf(at), Due: timeOf(at + delay), Status: OccurrenceSkipped})
		}
		return len(times) > 0, nil
	})
	return skipped, err
}

// Delete removes a schedule. Its occurrences stay. ErrNotFound: there is no such schedule.
func Delete(ctx context.Context, q *punctual.Queue, topic, name string) error {
	if err := checkScheduleName(topic, name); err != nil {
		return err
	}
	answers, err := q.DeleteMany(ctx, topic+Suffix, []string{name})
	switch {
	case len(answers) == 0:
		return err
	case errors.Is(answers[0].Err, punctual.ErrNotFound):
		return (&Schedule{Topic: topic, Name: name}).errorf(punctual.ErrNotFound, "there is none")
	}
	return answers[0].Err
}

// Run stores an occurrence for now, beside those of the Spec, also while the schedule is paused and
// whatever Overlap says. Its ID has milliseconds, NAME~20261120T080000.417Z, and it has the header
// HeaderManual with "run". The schedule itself does not change.
func Run(ctx context.Context, q *punctual.Queue, topic, name string) (punctual.PushResult, error) {
	_, r, err := readSchedule(ctx, q, topic, name)
	if err != nil {
		return punctual.PushResult{Topic: topic}, err
	}
	now, err := scheduleNow(ctx, q)
	if err != nil {
		return punctual.PushResult{Topic: topic}, err
	}
	rs, err := q.PushMany(ctx, []punctual.NewMessage{occurrence(topic, name, manualID(name, now), &r.Definition, now, now, "run")})
	if len(rs) == 0 {
		return punctual.PushResult{Topic: topic}, err
	}
	return rs[0], rs[0].Err
}

// BackfillReport says what a Backfill did, or would do.
type BackfillReport struct {
	// Times are the times that the Spec has between the two instants, Due without regard to Spread.
	// After a backfill, Status is "stored", or the State of a message that was there already and
	// was kept, or "finished" where the topic only remembers the ID (Settings.DedupeWindow). An
	// occurrence that has finished and whose ID is not remembered is stored again.
	Times []Occurrence
	// Stored is how many were stored, Kept how many were there. Both are 0 after a dry run.
	Stored, Kept int
}

// OccurrenceStored is the Status of an occurrence that a Backfill has stored.
const OccurrenceStored OccurrenceStatus = "stored"

// Backfill stores the occurrences that a schedule has from one instant to another, both included,
// by the definition that it has now and whatever its pause and its policies say. They are due at
// once, and have the header HeaderManual with "backfill". An occurrence whose ID is in use, also by
// a dead message, is kept. to is at most the store's clock, and more than MaxBackfill times are
// ErrTooLarge. With dry nothing is stored. After an error, repeat the call: it stores those that
// are not there.
func Backfill(ctx context.Context, q *punctual.Queue, topic, name string, from, to time.Time, dry bool) (BackfillReport, error) {
	about := Schedule{Topic: topic, Name: name}
	_, r, err := readSchedule(ctx, q, topic, name)
	if err != nil {
		return BackfillReport{}, err
	}
	now, err := scheduleNow(ctx, q)
	if err != nil {
		return BackfillReport{}, err
	}
	switch {
	case from.IsZero() || to.IsZero():
		return BackfillReport{}, about.errorf(punctual.ErrInvalid, "backfill needs the instants from which and to which")
	case to.Before(from):
		return BackfillReport{}, about.errorf(punctual.ErrInvalid, "backfill to %s, which is before %s: exchange them", to.Format(time.RFC3339), from.Format(time.RFC3339))
	case to.UnixMilli() > now:
		return BackfillReport{}, about.errorf(punctual.ErrInvalid, "backfill to %s, which is ahead: now is the latest", to.Format(time.RFC3339))
	}
	var zones cron.Zones
	times, err := r.Between(from.UnixMilli(), to.UnixMilli(), MaxBackfill+1, &zones)
	if err != nil {
		return BackfillReport{}, about.wrong(err)
	}
	if len(times) > MaxBackfill {
		return BackfillReport{}, about.errorf(punctual.ErrTooLarge, "more than %d times, the last of them at %s: choose an earlier end", MaxBackfill, timeOf(times[MaxBackfill-1]).Format(time.RFC3339))
	}
	var b BackfillReport
	ms := make([]punctual.NewMessage, len(times))
	for i, at := range times {
		ms[i] = occurrence(topic, name, occurrenceID(name, at), &r.Definition, at, at, "backfill")
		b.Times = append(b.Times, Occurrence{ID: ms[i].ID, At: ms[i].Due, Due: ms[i].Due})
	}
	if dry || len(ms) == 0 {
		return b, nil
	}
	results, err := q.PushMany(ctx, ms)
	errs := make([]error, len(results))
	for i, p := range results {
		switch dead := errors.Is(p.Err, punctual.ErrDuplicate); {
		case p.Err == nil && p.Status == punctual.PushStored:
			b.Stored++
			b.Times[i].Status = OccurrenceStored
		case p.Err == nil || dead:
			b.Kept++
			b.Times[i].Status = OccurrenceStatus(p.Existing.String())
			if p.Existing == punctual.StateNone {
				b.Times[i].Status = OccurrenceFinished
			}
		default:
			errs[i] = p.Err
		}
	}
	if len(results) == 0 {
		return b, err
	}
	return b, punctual.NewBatchError("push", errs)
}

// Info is a stored schedule with what the store knows of it.
type Info struct {
	Schedule
	Times
	// Last are the last times, the latest first, with what became of them.
	Last   []Occurrence
	Counts punctual.ScheduleCounts
	// Created and Changed are when the schedule was stored first, and when it was changed last.
	Created, Changed time.Time
	// Paused is set while the schedule is paused, and says since when and why.
	Paused *Paused
	// Ended is set when no time comes any more, because of Until, Limit or the years in Spec.
	Ended bool
	// Overdue is the time that has come and is not decided yet; zero when there is none.
	Overdue time.Time
	// LastMissed is the latest of the last times that no duty got to in time and that
	// Schedule.Missed did not make up for. Zero when there is none.
	LastMissed time.Time
	// Ahead is the latest time that is decided, or at which the schedule was changed, while that
	// lies ahead because the store's clock has stepped back since. A duty then has the schedule
	// begin again after the step. Zero otherwise.
	Ahead time.Time
	// Problem says in English why the schedule does not come as its Spec says, and what to do. It
	// is empty when all is well; a pause and an end are no problems. Problems are:
	//
	//   - This program does not know the zone, or a newer program has written the schedule, so that
	//     there are no Words and no Next.
	//   - The message in T@cron is no schedule, or dead, or somebody has moved it. Put mends the
	//     last two.
	//   - Times that lie ahead are decided (Ahead).
	//   - A time has been overdue for ten seconds.
	//   - Times are left out because of an occurrence on which nobody works.
	Problem string
	// ProblemSince is the first time of the schedule that the Problem concerns: the one that is
	// overdue, that of the occurrence on which nobody works, or one that lies ahead. Zero if that
	// is not known.
	ProblemSince time.Time
	// After is set for the last schedule of a list with a Limit, unless the list ends there:
	// Query.After of the next page.
	After string
}

// Paused says since when, by whom and why a schedule is paused.
type Paused struct {
	At       time.Time
	By, Note string
}

// Query selects schedules.
type Query struct {
	// Topic is the topic of the schedules. Empty stands for all topics that have schedules.
	Topic string
	// Next and Last are how many times ahead and how many of the latest times each Info has, 0 to
	// 10,000 and 0 to 20. Each of Last whose occurrence was stored costs a call or two of the
	// store.
	Next, Last int
	// Select, if not nil, says which schedules to yield, by topic and name. It is called for each
	// schedule in the order of the list, before the calls that Last costs, so that a page of a long
	// list costs no more than a page of a short one.
	Select func(topic, name string) bool
	// Limit is how many schedules the list has at most; 0 sets no limit. After is the After of the
	// last schedule of a former list, behind which the list begins; empty begins at the start. Both
	// need a Topic.
	Limit int
	After string
}

// Get returns a schedule with its next 10 and its last 10 times, or ErrNotFound.
func Get(ctx context.Context, q *punctual.Queue, topic, name string) (Info, error) {
	const shown = 10
	info, _, err := readSchedule(ctx, q, topic, name)
	if err != nil && info.ID == "" {
		return Info{}, err
	}
	now, err := scheduleNow(ctx, q)
	if err != nil {
		return Info{}, err
	}
	return scheduleInfo(ctx, q, topic, &info, Query{Next: shown, Last: shown}, &scheduleReading{now: now})
}

// Next returns the next n times of a schedule, 0 to 10,000: fewer when it ends. A pause does not
// change them.
func Next(ctx context.Context, q *punctual.Queue, topic, name string, n int) ([]Occurrence, error) {
	if n < 0 || n > MaxBackfill {
		return nil, storekit.Invalidf("the next %d times: use 0 to %d", n, MaxBackfill)
	}
	_, r, err := readSchedule(ctx, q, topic, name)
	if err != nil {
		return nil, err
	}
	var zones cron.Zones
	t, err := preview(topic, name, r, n, &zones)
	return t.Next, err
}

// List yields the schedules that sq selects, topic by topic, in the order in which they come next;
// those whose message is dead come first, and those that are paused or have ended come last. It
// ends after the first error. A schedule that comes while the loop runs may be yielded as it was or
// as it is then, or not at all.
func List(ctx context.Context, q *punctual.Queue, sq Query) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		topics, now, err := scheduleTopics(ctx, q, sq)
		if err != nil {
			yield(Info{}, err)
			return
		}
		look := scheduleReading{now: now}
		for _, topic := range topics {
			more, err := schedulesOf(ctx, q, topic, sq, &look, yield)
			if err != nil {
				yield(Info{}, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// scheduleStates are the states of the messages of schedules, in the order of a list.
var scheduleStates = [...]punctual.State{punctual.StateDead, punctual.StateReady, punctual.StateLeased, punctual.StateScheduled}

// schedulesOf yields the schedules of one topic and reports whether the list goes on behind them.
// It asks for no more messages than sq.Limit leaves, so that the last schedule of the list is the
// last message of its page.
func schedulesOf(ctx context.Context, q *punctual.Queue, topic string, sq Query, look *scheduleReading, yield func(Info, error) bool) (more bool, err error) {
	i, err := punctual.As[punctual.Inspector](q.Store())
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
		lq := punctual.ListQuery{Topic: topic + Suffix, State: scheduleStates[state], Limit: min(1000, left), After: after}
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
			s, err := scheduleInfo(ctx, q, topic, m, sq, look)
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

// parseSchedulePlace reads a Query.After: the number of a state, and the punctual.ListQuery.After
// within its list.
func parseSchedulePlace(text string) (state int, after string, err error) {
	if text == "" {
		return 0, "", nil
	}
	number, after, ok := strings.Cut(text, ":")
	if state, err = strconv.Atoi(number); err != nil || !ok || state < 0 || state >= len(scheduleStates) {
		return 0, "", storekit.Invalidf("after %q: use that of the page before", text)
	}
	return state, after, nil
}

// scheduleTopics returns sq.Topic, or all topics that have schedules if that is empty, and the
// store's clock.
func scheduleTopics(ctx context.Context, q *punctual.Queue, sq Query) (topics []string, now int64, err error) {
	if sq.Next < 0 || sq.Next > MaxBackfill || sq.Last < 0 || sq.Last > 20 {
		return nil, 0, storekit.Invalidf("schedules with %d times ahead and %d of the latest: use 0 to %d and 0 to 20", sq.Next, sq.Last, MaxBackfill)
	}
	if sq.Limit < 0 || (sq.Limit > 0 || sq.After != "") && sq.Topic == "" {
		return nil, 0, storekit.Invalidf("a page of %d schedules: name a topic, and use 1 or more", sq.Limit)
	}
	if now, err = scheduleNow(ctx, q); err != nil {
		return nil, 0, err
	}
	if sq.Topic != "" {
		return []string{sq.Topic}, now, checkScheduleName(sq.Topic, "any")
	}
	names, err := topicNames(ctx, q, storekit.NameQuery{Suffix: Suffix})
	for _, n := range names {
		topics = append(topics, n[:len(n)-len(Suffix)])
	}
	return topics, now, err
}

// topicNames returns the names of the topics that nq selects, also from a store that is no
// storekit.TopicNamer.
func topicNames(ctx context.Context, q *punctual.Queue, nq storekit.NameQuery) ([]string, error) {
	if namer, err := punctual.As[storekit.TopicNamer](q.Store()); err == nil {
		return namer.TopicNames(ctx, nq)
	}
	i, err := punctual.As[punctual.Inspector](q.Store())
	if err != nil {
		return nil, err
	}
	all, err := i.Topics(ctx)
	var names []string
	for _, t := range all {
		if selects(nq, t.Topic) {
			names = append(names, t.Topic)
		}
	}
	return names, err
}

// scheduleInfo is the Info of a message.
func scheduleInfo(ctx context.Context, q *punctual.Queue, topic string, m *punctual.Info, sq Query, look *scheduleReading) (Info, error) {
	r, err := rule.Decode(m.Body)
	if err != nil {
		return Info{Schedule: Schedule{Topic: topic, Name: m.ID}, Problem: err.Error(), ProblemSince: m.FirstDue}, nil
	}
	st := &r.State
	out := Info{
		Schedule: scheduleOf(topic, m.ID, &r.Definition), Counts: punctual.ScheduleCounts{Stored: st.Stored, Missed: st.Missed, Skipped: st.Skipped},
		Created: timeOf(st.Created), Changed: timeOf(st.Changed), Ended: st.Next.At == 0,
	}
	out.Ahead = timeOf(r.Ahead(look.now))
	for _, l := range st.Left {
		if l.Why == rule.WhyMissed && l.At > out.LastMissed.UnixMilli() {
			out.LastMissed = timeOf(l.At)
		}
	}
	if p := st.Paused; p != nil {
		out.Paused = &Paused{At: timeOf(p.At), By: p.By, Note: p.Note}
	}
	delay := rule.Delay(r.Spread, topic, m.ID)
	want := timeOf(st.Next.At + delay)
	var timesErr error
	if out.Times, timesErr = preview(topic, m.ID, r, sq.Next, &look.zones); timesErr == nil {
		var due int64
		if due, timesErr = r.Due(delay, limits.MaxDue.UnixMilli(), &look.zones); timesErr == nil {
			want = timeOf(due)
		}
	}
	if out.Paused == nil && !out.Ended && want.UnixMilli() <= look.now {
		out.Overdue = want
	}
	if out.Problem, out.ProblemSince, err = problem(ctx, q, topic, m, r, want, timesErr, look); err != nil {
		return Info{}, err
	}
	for _, l := range r.Latest(sq.Last) {
		o := Occurrence{ID: occurrenceID(m.ID, l.At), At: timeOf(l.At), Due: timeOf(l.At + delay), Status: leftOut[l.Why]}
		if l.Why == "" {
			if o.Status, err = occurrenceStatus(ctx, q, topic, o.ID); err != nil {
				return Info{}, err
			}
		}
		out.Last = append(out.Last, o)
	}
	return out, nil
}

// occurrenceStatus says what became of the occurrence with this ID, which was stored.
func occurrenceStatus(ctx context.Context, q *punctual.Queue, topic, id string) (OccurrenceStatus, error) {
	m, err := q.Get(ctx, topic, id)
	if !errors.Is(err, punctual.ErrNotFound) {
		return OccurrenceStatus(m.State.String()), err
	}
	f, err := q.Finished(ctx, topic, id)
	switch {
	case err == nil:
		return OccurrenceStatus(f.Outcome), nil
	case errors.Is(err, punctual.ErrNotFound) || errors.Is(err, punctual.ErrUnsupported):
		return OccurrenceFinished, nil
	}
	return "", err
}

// scheduleNow is the store's clock, in Unix milliseconds.
func scheduleNow(ctx context.Context, q *punctual.Queue) (int64, error) {
	s, err := punctual.As[punctual.Store](q.Store())
	if err != nil {
		return 0, err
	}
	now, err := s.Now(ctx)
	return now.UnixMilli(), err
}

// readSchedule returns the message of a schedule and the record in it. If the message is there and
// its record cannot be read, readSchedule returns the Info, which has an ID, with the error.
func readSchedule(ctx context.Context, q *punctual.Queue, topic, name string) (punctual.Info, *rule.Record, error) {
	if err := checkScheduleName(topic, name); err != nil {
		return punctual.Info{}, nil, err
	}
	about := Schedule{Topic: topic, Name: name}
	m, err := q.Get(ctx, topic+Suffix, name)
	switch {
	case errors.Is(err, punctual.ErrNotFound):
		return punctual.Info{}, nil, about.errorf(punctual.ErrNotFound, "there is none")
	case err != nil:
		return punctual.Info{}, nil, err
	}
	r, err := rule.Decode(m.Body)
	if err != nil {
		return m, nil, about.errorf(punctual.ErrUnsupported, "%v", err)
	}
	return m, r, nil
}

// changeSchedule edits a schedule, and returns an ErrNotFound if there is none. change reports
// whether it has changed anything.
func changeSchedule(ctx context.Context, q *punctual.Queue, topic, name string, change func(*rule.Record, int64, *cron.Zones) (bool, error)) error {
	var zones cron.Zones
	_, err := editSchedule(ctx, q, topic, name, &zones, func(r *rule.Record, now int64) (*rule.Record, error) {
		if r == nil {
			return nil, punctual.ErrNotFound
		}
		changed, err := change(r, now, &zones)
		if !changed || err != nil {
			return nil, err
		}
		return r, nil
	})
	return err
}

// editSchedule reads a schedule, has edit change it, and stores what edit returns in its place,
// unless somebody has changed it meanwhile: then it begins anew. edit gets nil when there is no
// such schedule, and returns nil to leave it as it is; only one whose message is dead or was moved
// is then stored again.
func editSchedule(ctx context.Context, q *punctual.Queue, topic, name string, zones *cron.Zones, edit func(r *rule.Record, now int64) (*rule.Record, error)) (punctual.PushStatus, error) {
	about := Schedule{Topic: topic, Name: name}
	if err := canFollow(ctx, q, &about); err != nil {
		return punctual.PushNone, err
	}
	remembered := false // the companion remembers the ID of a schedule whose message was cancelled
	for range editTries {
		now, err := scheduleNow(ctx, q)
		if err != nil {
			return punctual.PushNone, err
		}
		old, r, err := readSchedule(ctx, q, topic, name)
		if err != nil && !errors.Is(err, punctual.ErrNotFound) {
			return punctual.PushNone, err
		}
		forgotten := r != nil && r.Ahead(now) != 0
		if forgotten {
			if err := forget(ctx, q.Store(), r, now, zones); err != nil {
				return punctual.PushNone, about.wrong(err)
			}
		}
		edited, err := edit(r, now)
		switch {
		case errors.Is(err, punctual.ErrNotFound):
			return punctual.PushNone, about.errorf(punctual.ErrNotFound, "there is none")
		case err != nil:
			return punctual.PushNone, about.wrong(err)
		case edited == nil && !forgotten && old.State != punctual.StateDead && !misplaced(topic, &old, r, zones):
			return punctual.PushDuplicate, nil
		case edited == nil:
			edited = r
		}
		m, err := scheduleMessage(topic, name, edited, zones)
		if err != nil {
			return punctual.PushNone, about.wrong(err)
		}
		switch {
		case r != nil:
			m.IfExists, m.IfDue = punctual.IfExistsReplace, old.Due
		case remembered:
			m.IfExists = punctual.IfExistsReplace
		default:
			m.IfExists = punctual.IfExistsFail
		}
		rs, err := q.Store().Push(ctx, []punctual.NewMessage{m})
		var p punctual.PushResult
		if len(rs) > 0 {
			p, err = rs[0], rs[0].Err
		}
		switch {
		case err == nil:
			return p.Status, nil
		case errors.Is(err, punctual.ErrDuplicate):
			remembered = p.Existing == punctual.StateNone
		case errors.Is(err, punctual.ErrChanged):
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(editPause)):
			}
		default:
			return punctual.PushNone, fmt.Errorf("schedule %s in %s: %w", name, topic, err)
		}
	}
	return punctual.PushNone, about.errorf(punctual.ErrChanged, "it was changed %d times while this change was under way: try again", editTries)
}

// misplaced reports whether somebody has moved the message m of the schedule r to a later time than
// that of the schedule.
func misplaced(topic string, m *punctual.Info, r *rule.Record, zones *cron.Zones) bool {
	due, err := r.Due(rule.Delay(r.Spread, topic, m.ID), limits.MaxDue.UnixMilli(), zones)
	return err == nil && m.State == punctual.StateScheduled && m.FirstDue.After(timeOf(due))
}

// canFollow returns an ErrUnsupported unless the store has follow-ups, without which a schedule
// would never come.
func canFollow(ctx context.Context, q *punctual.Queue, about *Schedule) error {
	if err := checkScheduleName(about.Topic, about.Name); err != nil {
		return err
	}
	reporter, err := punctual.As[storekit.AbilityReporter](q.Store())
	switch {
	case errors.Is(err, punctual.ErrUnsupported):
		return about.errorf(punctual.ErrUnsupported, "this store has no follow-ups, on which schedules rest")
	case err != nil:
		return err
	}
	switch can, err := reporter.Abilities(ctx); {
	case err != nil:
		return fmt.Errorf("schedule %s in %s: %w", about.Name, about.Topic, err)
	case can.Follow == storekit.ReachNone:
		return about.errorf(punctual.ErrUnsupported, "this store has no follow-ups, on which schedules rest")
	}
	return nil
}

// scheduleMessage is the message of a schedule.
func scheduleMessage(topic, name string, r *rule.Record, zones *cron.Zones) (punctual.NewMessage, error) {
	due, err := r.Due(rule.Delay(r.Spread, topic, name), limits.MaxDue.UnixMilli(), zones)
	if err != nil {
		return punctual.NewMessage{}, err
	}
	body, err := r.Encode()
	if err != nil {
		return punctual.NewMessage{}, err
	}
	// MaxAttempts is as high as it can be, because each duty that is killed between its claim and
	// its ack has used an attempt, and a schedule must not become dead by that. The message has the
	// key of the occurrences, so that the schedule makes a topic with keys if there is none, and is
	// refused at its put if the topic has no keys.
	return punctual.NewMessage{Topic: topic + Suffix, ID: name, Key: r.Attributes.Key, Body: body, Due: timeOf(due), MaxAttempts: limits.MaxAttemptsLimit}, nil
}

// selects reports whether q selects a topic.
func selects(q storekit.NameQuery, topic string) bool {
	return len(topic) >= len(q.Prefix)+len(q.Suffix) && topic[:len(q.Prefix)] == q.Prefix && topic[len(topic)-len(q.Suffix):] == q.Suffix
}
