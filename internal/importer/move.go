package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

const (
	// passes bounds how often moveSet reads a set from its beginning. A pass does not see what is
	// added behind the place that it has reached, so another pass follows. The bound is for a set
	// that is added to all the time, which has no end.
	passes = 3
	// batchTime bounds how long one batch may take from its take to its finish. A run that is
	// interrupted ends the batch under way first.
	batchTime = time.Minute
	// pushTries bounds how often a batch is pushed while the outcome is unknown, or the store is
	// overloaded or cannot be reached.
	pushTries = 5
	pushPause = 100 * time.Millisecond
	// followPause is how long Follow waits before it reads the source again. With the reading, a
	// message that is due when it is added is late by less than a second.
	followPause = time.Second / 2
	// lockTries times lockPause is longer than the 3 s after which BeeDelayQueue's lock ends.
	lockTries = 500
	lockPause = 10 * time.Millisecond
)

// errLimit ends a run that has taken as many messages as it should.
var errLimit = errors.New("limit reached")

// mover is one run of Move.
type mover struct {
	im     *Importer
	store  punctual.Store
	topics punctual.Inspector
	report *Report
	// remember is the duplicate window that each topic had when this run first asked, and prepared
	// has the topics whose window this run has found long enough or has lengthened.
	remember map[string]time.Duration
	prepared map[string]bool
	left     int64 // of the limit
}

// Move imports into store: first what earlier runs left in staging, then what is in the sources.
// When ctx ends, Move finishes the batch under way and returns ctx's error; with Options.Follow the
// end of ctx is no error once the sources are counted. The report is returned in any case, and says
// what was done until then.
//
// A message that cannot be read, or that the store refuses as invalid or too large, does not end
// the run; see Options.Rejected.
func (im *Importer) Move(ctx context.Context, store punctual.Store) (*Report, error) {
	m, err := im.mover(store)
	if err != nil {
		return m.report, err
	}
	if im.opt.Kind == ZSet && im.opt.Unit == 0 {
		return m.report, storekit.Invalidf("say whether the scores count seconds or milliseconds: a survey shows what they look like")
	}
	sources, err := im.sources(ctx)
	if err != nil {
		return m.report, err
	}
	for _, s := range sources {
		r := newSetReport(s)
		r.Moved.ran = true
		m.report.Sets = append(m.report.Sets, r)
		if err := im.from.count(ctx, s, &r.Found, &r.Staged); err != nil {
			return m.report, err
		}
	}
	im.opt.Started(m.report.Add(func(s *SetReport) int64 { return s.Found + s.Staged }))
	err = m.moveAll(ctx, sources)
	if errors.Is(err, errLimit) {
		err = nil
	}
	return m.report, errors.Join(err, m.countAgain(ctx, sources))
}

// mover returns the state of a run. It has a report also beside an error.
func (im *Importer) mover(store punctual.Store) (m *mover, err error) {
	m = &mover{
		im: im, store: store, report: im.newReport(), left: im.opt.Limit,
		remember: map[string]time.Duration{}, prepared: map[string]bool{},
	}
	m.topics, err = punctual.As[punctual.Inspector](store)
	return m, err
}

func (m *mover) moveAll(ctx context.Context, sources []*source) error {
	for {
		err := m.moveOnce(ctx, sources)
		if m.im.opt.Follow && err == nil {
			err = pause(ctx, followPause)
		} else if err == nil {
			return nil
		}
		if m.im.opt.Follow && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // Follow ends when ctx does, and that is no failure
		}
		if err != nil {
			return err
		}
	}
}

func (m *mover) moveOnce(ctx context.Context, sources []*source) error {
	for i, s := range sources {
		if err := m.resume(ctx, s, m.report.Sets[i]); err != nil {
			return err
		}
	}
	for i, s := range sources {
		if err := m.moveSet(ctx, s, m.report.Sets[i]); err != nil {
			return err
		}
	}
	return nil
}

// countAgain notes how many messages are left in the sources and in staging, also after an
// interrupt.
func (m *mover) countAgain(ctx context.Context, sources []*source) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
	defer cancel()
	for i, s := range sources {
		if i == len(m.report.Sets) {
			return nil
		}
		r := m.report.Sets[i]
		if err := m.im.from.count(ctx, s, &r.Remaining, &r.StillStaged); err != nil {
			return err
		}
	}
	return nil
}

// moveSet moves a set in passes, until one finds nothing to take or there were as many as passes
// allows.
func (m *mover) moveSet(ctx context.Context, s *source, r *SetReport) error {
	for range passes {
		before := r.Stored + r.Duplicates + r.Gone
		visit := func(ctx context.Context, es []*entry) ([]bool, error) { return m.visit(ctx, s, r, es) }
		for _, walk := range m.im.from.walks(s) {
			r.Left, r.Held = 0, 0 // the last walk comes to all of them
			if err := walk(ctx, s, visit); err != nil {
				return err
			}
		}
		if r.Stored+r.Duplicates+r.Gone == before {
			return nil
		}
	}
	return nil
}

// visit moves the entries of a page that can be moved, and reports the others.
func (m *mover) visit(ctx context.Context, s *source, r *SetReport, es []*entry) (stay []bool, err error) {
	now, err := m.im.from.now(ctx)
	if err != nil {
		return nil, err
	}
	stay = make([]bool, len(es))
	var all []*entry
	var at []int // where in es
	for i, e := range es {
		movable, err := m.movable(s, r, e, now)
		if err != nil {
			return nil, err
		}
		if stay[i] = !movable; movable {
			all, at = append(all, e), append(at, i)
		}
	}
	limited := m.im.opt.Limit > 0
	for batch := range m.batches(all) {
		stays, err := m.moveBatch(ctx, s, r, batch)
		if err != nil {
			return nil, err
		}
		if limited && m.left == 0 {
			return nil, errLimit
		}
		for i := range batch {
			stay[at[i]] = stays[i]
		}
		at = at[len(batch):]
	}
	return stay, nil
}

// batches divides entries into batches. With a limit no batch is larger than what is left of the
// limit when the batch is taken, and another batch may follow, because some of a batch may have
// gone before they could be taken.
func (m *mover) batches(es []*entry) iter.Seq[[]*entry] {
	return func(yield func([]*entry) bool) {
		for len(es) > 0 {
			n := len(es)
			if m.im.opt.Limit > 0 {
				n = int(min(int64(n), m.left))
			}
			if !yield(es[:n]) {
				return
			}
			es = es[n:]
		}
	}
}

// movable makes the message of an entry, and reports whether the entry is to be taken now.
func (m *mover) movable(s *source, r *SetReport, e *entry, now time.Time) (bool, error) {
	s.decode(e, now)
	if e.problem != nil {
		return false, m.im.reject(s, r, e, e.problem)
	}
	if m.im.seen[s.identity(e)] {
		return false, nil // it was reported already, for instance because the store refused it
	}
	if m.im.opt.Leave > 0 && e.message.Due.Before(now.Add(m.im.opt.Leave)) {
		r.Left++
		return false, nil
	}
	m.stage(e, now)
	return true, nil
}

// moveBatch takes, pushes and finishes. It is not interrupted when ctx ends.
func (m *mover) moveBatch(ctx context.Context, s *source, r *SetReport, es []*entry) (stay []bool, err error) {
	stay = make([]bool, len(es))
	if len(es) == 0 {
		return stay, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
	defer cancel()
	if err := m.prepareTopics(ctx, es); err != nil {
		return nil, err
	}
	answers, err := m.takeUnlocked(ctx, s, es)
	if err != nil {
		return nil, err
	}
	var taken []*entry
	for i, e := range es {
		switch answers[i] {
		case itemDone:
			taken = append(taken, e)
		case itemGone:
			r.Gone++
		case itemHeld:
			stay[i] = true
			r.Held++
		}
	}
	m.left -= int64(len(taken))
	returned, err := m.deliver(ctx, s, r, taken, fresh)
	for i, e := range es {
		stay[i] = stay[i] || returned[e]
	}
	return stay, err
}

// takeUnlocked takes a batch. It waits while a consumer of BeeDelayQueue holds the lock, because
// such a consumer hands out what it has read without checking that it was still there when it
// removed it.
func (m *mover) takeUnlocked(ctx context.Context, s *source, es []*entry) ([]int64, error) {
	for range lockTries {
		answers, err := m.im.from.take(ctx, s, es)
		if err != nil || len(answers) == len(es) && answers[0] != lockHeld {
			return answers, err
		}
		if err := pause(ctx, lockPause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the lock %s is always held: does a program hold it that has hung? %w", s.lock, punctual.ErrOverloaded)
}

// How a batch came to be in staging.
const (
	fresh   = true  // this run has just taken it, and has not pushed it before
	adopted = false // it was in staging already: the run that took it may have pushed it
)

// deliver pushes a batch that is in staging and finishes it. It returns the entries that were put
// back into the source.
func (m *mover) deliver(ctx context.Context, s *source, r *SetReport, es []*entry, isFresh bool) (returned map[*entry]bool, err error) {
	if len(es) == 0 {
		return nil, nil
	}
	results, sure, err := m.push(ctx, es)
	if err != nil {
		return m.deliverFailed(ctx, s, r, es, isFresh && sure, err)
	}
	var done, refused, clashed []*entry
	var failure error
	for i, e := range es {
		if res := &results[i]; errors.Is(res.Err, punctual.ErrDuplicate) && res.Existing == punctual.StateDead {
			res.Status, res.Err = punctual.PushDuplicate, nil // a message with this ID was stored before, and has died since
		}
		p, err := m.classify(ctx, e, results[i], isFresh && sure)
		if err == nil && p == nil {
			done = append(done, e)
			count(r, results[i].Status)
			r.rename(e)
			r.change(e)
			continue
		}
		if p != nil && p.reason == Conflict && e.message.ID == e.own && (s.renames || !isFresh || !sure) {
			clashed = append(clashed, e)
			continue
		}
		if err == nil || punctual.Definite(err) {
			refused = append(refused, e)
		}
		if p != nil {
			err = m.im.reject(s, r, e, p)
		}
		failure = errors.Join(failure, err)
	}
	if err := m.im.from.finish(ctx, s, done); err != nil {
		return nil, err
	}
	m.im.progress(int64(len(done)))
	if isFresh && sure {
		returned, err = m.giveBack(ctx, s, r, refused)
		failure = errors.Join(failure, err)
	}
	more, err := m.deliverRenamed(ctx, s, r, clashed, isFresh && sure)
	if returned == nil {
		returned = map[*entry]bool{}
	}
	maps.Copy(returned, more)
	return returned, errors.Join(failure, err)
}

// deliverRenamed delivers entries whose own IDs other messages have, under their spare IDs. The
// record says so before the push, so that another run does not try the own ID again.
func (m *mover) deliverRenamed(ctx context.Context, s *source, r *SetReport, es []*entry, never bool) (map[*entry]bool, error) {
	for _, e := range es {
		s.call(e, e.spare)
		e.record.ID = e.spare
	}
	ours, err := m.adopt(ctx, s, es)
	if err != nil {
		m.report.Unfinished += int64(len(es))
		return nil, err
	}
	return m.deliver(ctx, s, r, ours, never)
}

func count(r *SetReport, s punctual.PushStatus) {
	if s == punctual.PushDuplicate {
		r.Duplicates++
	} else {
		r.Stored++
	}
}

// deliverFailed handles a push that failed or whose outcome is unknown. Only messages that
// certainly no push of this run or an earlier one has stored may go back to the source.
func (m *mover) deliverFailed(ctx context.Context, s *source, r *SetReport, es []*entry, never bool, cause error) (map[*entry]bool, error) {
	if !never {
		m.report.Unfinished += int64(len(es))
		return nil, fmt.Errorf("push into the store: %d messages stay in staging at the source until the next run: %w", len(es), cause)
	}
	returned, err := m.giveBack(ctx, s, r, es)
	return returned, errors.Join(fmt.Errorf("push into the store: %w", cause), err)
}

// classify decides what a push result means. Without problem and error the store has the message,
// or has had it. A problem leaves this one message in the source or in staging, and an error ends
// the run.
func (m *mover) classify(ctx context.Context, e *entry, res punctual.PushResult, sure bool) (*problem, error) {
	if errors.Is(res.Err, punctual.ErrInvalid) || errors.Is(res.Err, punctual.ErrTooLarge) {
		return problemf(Refused, "the store refused it: %v", res.Err), nil
	}
	if res.Err != nil {
		return nil, fmt.Errorf("push into topic %s: %w", e.message.Topic, res.Err)
	}
	own := e.message.ID == e.own
	if res.Status == punctual.PushDuplicate && sure && res.Existing == punctual.StateNone && own {
		// A program may use an ID again.
		return problemf(Conflict, "topic %s remembers a finished message with the ID %s: it is another one, or the source was set back", e.message.Topic, e.message.ID), nil
	}
	if res.Status != punctual.PushDuplicate || !sure && !own || res.Existing == punctual.StateNone {
		return nil, nil
	}
	// Unless an earlier push has stored it, the stored message is either the same one, for instance
	// because the source was set back, or another one.
	there, err := m.topics.Get(ctx, e.message.Topic, e.message.ID)
	if errors.Is(err, punctual.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !sameMessage(&there, &e.message, sure) {
		return problemf(Conflict, "topic %s has another message with the ID %s", e.message.Topic, e.message.ID), nil
	}
	return nil, nil
}

// sameMessage reports whether a stored message is the one that is imported. A different message may
// have the same ID if a program chose the ID, or if it was made of too little, as those of
// BeeDelayQueue, of which two can be equal. The due times count, if dues is set, until an attempt
// may have changed the one that is stored.
func sameMessage(there *punctual.Info, m *punctual.NewMessage, dues bool) bool {
	return bytes.Equal(there.Body, m.Body) && maps.Equal(there.Headers, m.Headers) && (!dues || there.Attempt > 0 || there.Due.Equal(m.Due))
}

// giveBack returns staged entries to the source, and returns those that are there again.
func (m *mover) giveBack(ctx context.Context, s *source, r *SetReport, es []*entry) (map[*entry]bool, error) {
	if len(es) == 0 {
		return nil, nil
	}
	answers, err := m.im.from.putBack(ctx, s, es)
	if err != nil {
		m.report.Unfinished += int64(len(es))
		return nil, fmt.Errorf("%d messages stay in staging at the source until the next run: %w", len(es), err)
	}
	returned := map[*entry]bool{}
	for i, e := range es {
		switch answers[i] {
		case itemDone:
			returned[e] = true
			r.Returned++
		case itemChanged:
			m.report.Unfinished++
			m.im.opt.Logger.Warn("it cannot go back, because a new one has its place or the source has no way: it stays in staging", "set", s.set, "id", e.member)
		}
	}
	return returned, nil
}

// push pushes a batch. When the outcome is unknown it pushes the batch again, which does no harm
// because the IDs are the same. sure tells that no earlier try can have stored any of them, because
// each one that failed certainly did nothing.
func (m *mover) push(ctx context.Context, es []*entry) (results []punctual.PushResult, sure bool, err error) {
	ms := make([]punctual.NewMessage, len(es))
	for i, e := range es {
		ms[i] = e.message
	}
	sure = true
	for try := 1; ; try++ {
		results, err = m.store.Push(ctx, ms)
		if err == nil {
			return results, sure, nil
		}
		definite := punctual.Definite(err)
		sure = sure && definite
		if try == pushTries || definite && !errors.Is(err, punctual.ErrOverloaded) && !errors.Is(err, punctual.ErrUnreachable) {
			return nil, sure, err
		}
		if waiting := pause(ctx, pushPause<<try); waiting != nil {
			return nil, sure, errors.Join(err, waiting)
		}
	}
}

// prepareTopics lengthens the duplicate windows of the topics where they are too short, before the
// messages are taken, or are pushed from staging.
func (m *mover) prepareTopics(ctx context.Context, es []*entry) error {
	for _, e := range es {
		if m.prepared[e.message.Topic] {
			continue
		}
		was, err := m.remembers(ctx, e.message.Topic)
		if err != nil {
			return err
		}
		if was >= m.im.opt.DedupeWindow {
			m.prepared[e.message.Topic] = true
			continue
		}
		want := m.im.opt.DedupeWindow
		if _, err := m.topics.Configure(ctx, e.message.Topic, punctual.SettingsPatch{DedupeWindow: &want}); err != nil {
			return fmt.Errorf("make topic %s remember finished IDs: %w", e.message.Topic, err)
		}
		m.prepared[e.message.Topic] = true
		m.report.Remembered = append(m.report.Remembered, Remembered{e.message.Topic, notation.FormatDuration(was), notation.FormatDuration(want)})
	}
	return nil
}

// remembers returns the duplicate window that a topic had when this run first asked for it.
func (m *mover) remembers(ctx context.Context, topic string) (time.Duration, error) {
	if d, known := m.remember[topic]; known {
		return d, nil
	}
	settings, err := m.topics.Settings(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("read the settings of topic %s: %w", topic, err)
	}
	m.remember[topic] = settings.DedupeWindow
	return settings.DedupeWindow, nil
}

// spreadOf returns a part of a span. The part depends on the ID alone, so that a second try spreads
// a message alike.
func spreadOf(id string, span time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(id))
	return time.Duration(float64(h.Sum64()) / math.MaxUint64 * float64(span))
}

// pause sleeps in real time.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
