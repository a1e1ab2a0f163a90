package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// handsOff is how long a run leaves an uncertain entry alone, because the run that took the entry
// may still be alive and push it. No batch takes that long.
const handsOff = 2 * batchTime

// resume continues with the entries that earlier runs left in the staging of a set.
func (m *mover) resume(ctx context.Context, s *source, r *SetReport) error {
	return m.im.from.staged(ctx, s, func(pairs []string) error { return m.resumePage(ctx, s, r, pairs) })
}

// resumePage handles staged entries: pairs has member, record, member, record and so on.
func (m *mover) resumePage(ctx context.Context, s *source, r *SetReport, pairs []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
	defer cancel()
	now, err := m.im.from.now(ctx)
	if err != nil {
		return err
	}
	var readable []*entry
	for i := 0; i+1 < len(pairs); i += 2 {
		e, err := parseStaged(pairs[i], pairs[i+1])
		if err == nil {
			readable = append(readable, e)
		} else if err := m.im.reject(s, r, e, problemf(Uncertain, "in staging: %v", err)); err != nil {
			return err
		}
	}
	if err := m.im.from.readKept(ctx, s, readable); err != nil {
		return err
	}
	certain, open, young, err := m.sort(ctx, s, readable, now)
	if err != nil {
		return err
	}
	if err := m.leave(s, r, young); err != nil {
		return err
	}
	if err := m.pushAdopted(ctx, s, r, certain); err != nil {
		return err
	}
	return m.decide(ctx, s, r, open)
}

// sort makes the messages of staged entries and divides them into three: certain entries, which may
// be pushed again, open ones, about which people must decide, and young ones, which are in doubt as
// well but are left alone until handsOff has passed.
func (m *mover) sort(ctx context.Context, s *source, es []*entry, now time.Time) (certain, open, young []*entry, err error) {
	for _, e := range es {
		s.restore(e)
		if e.problem != nil {
			e.problem = problemf(Uncertain, "in staging: %s", e.problem.text)
		} else if e.problem, err = m.doubt(ctx, e, now); err != nil {
			return nil, nil, nil, err
		}
		switch {
		case e.problem == nil:
			certain = append(certain, e)
		case now.Sub(storekit.FromMillis(e.record.Taken)) < handsOff:
			young = append(young, e)
		default:
			open = append(open, e)
		}
	}
	return certain, open, young, nil
}

// restore makes the message of a staged entry from its record, as the run that took the entry would
// have pushed it.
func (s *source) restore(e *entry) {
	if e.message, e.problem = s.read(e); e.problem != nil {
		e.message = punctual.NewMessage{} // part of a message must not be pushed
		return
	}
	e.message.Topic = e.record.Topic
	s.call(e, e.record.ID)
	e.dueAt(storekit.FromMillis(e.record.Due))
	if err := storekit.CheckPush(&e.message, limits.DefaultMaxBody); err != nil {
		e.problem = problemf(Uncertain, "%s", withoutKind(err))
	}
}

// doubt returns why a second push of a staged entry might do harm, or nil when it certainly does
// not. An earlier run may have pushed the message, and the message may have been delivered and have
// finished meanwhile. As long as the topic remembers its ID, a second push is recognized as a
// duplicate.
func (m *mover) doubt(ctx context.Context, e *entry, now time.Time) (*problem, error) {
	if e.record.Target != m.im.opt.Target {
		return problemf(Uncertain, "in staging: a run took it for another store; go on with that one, or decide with --uncertain"), nil
	}
	remembered, err := m.remembers(ctx, e.record.Topic)
	if err != nil {
		return nil, err
	}
	taken := storekit.FromMillis(e.record.Taken)
	if now.Sub(taken) >= remembered {
		return problemf(Uncertain, "in staging since %s, but topic %s remembers finished IDs for %v only: it may have been delivered; decide with --uncertain",
			taken.Format(time.RFC3339), e.record.Topic, remembered), nil
	}
	return nil, nil
}

// pushAdopted adopts staged entries, pushes and finishes them.
func (m *mover) pushAdopted(ctx context.Context, s *source, r *SetReport, es []*entry) error {
	es, err := m.adopt(ctx, s, es)
	if err != nil || len(es) == 0 {
		return err
	}
	if err := m.prepareTopics(ctx, es); err != nil {
		return err
	}
	_, err = m.deliver(ctx, s, r, es, adopted)
	return err
}

// adopt writes this run's name into the records of staged entries, and returns the entries for
// which that succeeded.
func (m *mover) adopt(ctx context.Context, s *source, es []*entry) ([]*entry, error) {
	if len(es) == 0 {
		return nil, nil
	}
	answers, err := m.im.adopt(ctx, s, es)
	if err != nil {
		return nil, err
	}
	var ours []*entry
	for i, e := range es {
		if answers[i] == itemDone {
			ours = append(ours, e)
		}
	}
	return ours, nil
}

// adopt writes this run's name into the records of staged entries. Its answer is itemDone for each
// entry for which that succeeded.
func (im *Importer) adopt(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	old := make([]string, len(es))
	for i, e := range es {
		old[i] = e.text
		e.record.Run = im.run
		e.text = e.record.String()
	}
	return im.from.adopt(ctx, s, es, old)
}

// decide does with uncertain entries what Options.Uncertain says.
func (m *mover) decide(ctx context.Context, s *source, r *SetReport, es []*entry) error {
	if m.im.opt.Uncertain == LeaveUncertain {
		return m.leave(s, r, es)
	}
	var pushable, others []*entry
	for _, e := range es {
		if m.im.opt.Uncertain == PushUncertain && e.message.ID == "" {
			others = append(others, e) // its message cannot be read, so there is nothing to push
		} else {
			pushable = append(pushable, e)
		}
	}
	if err := m.leave(s, r, others); err != nil {
		return err
	}
	if m.im.opt.Uncertain == PushUncertain {
		return m.pushAdopted(ctx, s, r, pushable)
	}
	ours, err := m.adopt(ctx, s, pushable)
	if err != nil || len(ours) == 0 {
		return err
	}
	if m.im.opt.Uncertain == ReturnUncertain {
		_, err := m.giveBack(ctx, s, r, ours)
		return err
	}
	r.Dropped += int64(len(ours))
	return m.im.from.finish(ctx, s, ours)
}

func (m *mover) leave(s *source, r *SetReport, es []*entry) error {
	for _, e := range es {
		if err := m.im.reject(s, r, e, e.problem); err != nil {
			return err
		}
	}
	return nil
}

// record is the value of a staged message. It has what the run which took the message decided about
// it, except the codec with which its body is read. So another run with the same codec stores
// exactly the same message. Staging also keeps the member, for asynq the hash of the task and for
// PostgreSQL the row, as they were.
type record struct {
	// Version is 1.
	Version int `json:"v"`
	// Run names the run that took the message or was the last to adopt it.
	Run string `json:"run"`
	// Taken is when the message was taken, by the source's clock, in Unix ms.
	Taken int64 `json:"taken"`
	// Score is the score that the member had, in a text from which exactly the same number is read.
	Score string `json:"score"`
	// Due is the due time of the message, in Unix ms.
	Due int64 `json:"due"`
	// Topic and ID say under which topic and ID the message is pushed. Target names the store into
	// which the run that took the message was to push it. A run for another store leaves the
	// message alone unless Options.Uncertain decides about it; with PushUncertain it pushes the
	// message into its own store, and Target stays as it was.
	Topic  string `json:"topic"`
	ID     string `json:"id"`
	Target string `json:"target"`
}

func (r record) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic("importer: a record of strings and numbers cannot be written: " + err.Error())
	}
	return string(text)
}

// parseStaged makes an entry from a member and its record in staging.
func parseStaged(member, text string) (*entry, error) {
	e := &entry{member: member, text: text}
	if err := json.Unmarshal([]byte(text), &e.record); err != nil {
		return e, fmt.Errorf("its record cannot be read: %w", err)
	}
	if e.record.Version != 1 {
		return e, fmt.Errorf("its record is of version %d, which a newer Punctual wrote", e.record.Version)
	}
	var err error
	if e.score, err = strconv.ParseFloat(e.record.Score, 64); err != nil {
		return e, fmt.Errorf("its score %q is not a number", e.record.Score)
	}
	return e, nil
}

// stage fills in the record of an entry that is to be taken.
func (m *mover) stage(e *entry, now time.Time) {
	if m.im.opt.Spread > 0 && e.message.Due.Before(now) {
		if due := now.Add(spreadOf(e.message.ID, m.im.opt.Spread)); e.deadline.IsZero() || due.Before(e.deadline) {
			e.message.Due = due
		}
	}
	e.dueAt(storekit.FromMillis(storekit.CeilMillis(e.message.Due)))
	e.record = record{
		Version: 1, Run: m.im.run, Taken: now.UnixMilli(), Score: formatScore(e.score), Due: storekit.Millis(e.message.Due),
		Topic: e.message.Topic, ID: e.message.ID, Target: m.im.opt.Target,
	}
	e.text = e.record.String()
}
