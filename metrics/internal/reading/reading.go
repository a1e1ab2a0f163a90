// Package reading reads from a store what its metrics show: how many messages wait, how long the
// oldest ready one has waited, how far ahead the others are due, and how much space is left. It
// bounds the cost of a reading and the number of topics that have a label of their own.
package reading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// Reading is what a store held at about one time. Its parts are read one after the other, so they
// may be of slightly different times.
type Reading struct {
	// Topics are sorted by label. All topics with the label Other are added up in one element.
	Topics []Topic
	// Known is the number of topics in the store, with and without a label of their own.
	Known int
	// Ahead counts the messages that are not dead by how far ahead they are due, in the order of
	// Spans. It is nil when the store could not count them before the timeout, for example because
	// there are very many.
	Ahead []int64
	// SchedulesRead is true if Topic.ScheduleProblems was counted before the timeout.
	SchedulesRead bool
	// Space is nil when the store does not report its free space.
	Space *storekit.Space
	// Clock is nil when the store does not tell how its clock stands.
	Clock *storekit.ClockState
	// Took is the time that the reading took.
	Took time.Duration
}

// Topic has the figures of one topic, or of all topics that share a label: the sums of their
// counts, and of their times the longest.
type Topic struct {
	Label                          string
	Scheduled, Ready, Leased, Dead int64
	// Waiting are the ready messages that wait for their keys. Keyed is true if one of the topics
	// has keys.
	Waiting int64
	Keyed   bool
	// OldestReady is for how long the oldest ready message has been due; 0 when no message is
	// ready.
	OldestReady time.Duration
	// PushPaused and DeliveryPaused count the topics of this label that are paused.
	PushPaused, DeliveryPaused int
	// Schedules counts the schedules of the topics, and ScheduleProblems those of them with a
	// problem (schedule.Info).
	Schedules, ScheduleProblems int64
	// ScheduleOverdue is for how long a time of a schedule has waited for a duty to decide about
	// it, or a schedule has had a problem, whichever is longest; 0 when there is neither.
	ScheduleOverdue time.Duration
}

// Result returns the label for the outcome of an operation on one message: "done", or the code of
// the error.
func Result(err error) string {
	if err == nil {
		return "done"
	}
	return storekit.ErrorCode(err)
}

// PushResult returns the label for the outcome of a push: the name of its status, or the code of
// the error.
func PushResult(r punctual.PushResult) string {
	if r.Err != nil {
		return storekit.ErrorCode(r.Err)
	}
	return r.Status.String()
}

// Brought returns the label of a claim that returned n messages: "some", or "none" when n is 0.
func Brought(n int) string {
	if n == 0 {
		return "none"
	}
	return "some"
}

// Spans returns the names of the counts in Reading.Ahead. Each span begins where the one before
// ends: "overdue" counts the ready and leased messages, "10m" those due in less than 10 minutes
// that "1m" does not count already, and so on.
func Spans() []string { return []string{"overdue", "1m", "10m", "1h", "6h", "1d", "beyond"} }

// Reader reads one store, with at most one reading at a time. Its methods are safe for concurrent
// use. Close it before the store.
type Reader struct {
	store     punctual.Store
	inspector punctual.Inspector
	topics    *Topics
	timeout   time.Duration
	schedules *stalled.Watch     // used by the reading under way
	ctx       context.Context    // of every reading; Close ends it
	stop      context.CancelFunc // ends ctx

	mu     sync.Mutex
	last   Reading       // guarded by mu
	read   time.Time     // guarded by mu: when last was made; zero before the first reading
	err    error         // guarded by mu: of last
	done   chan struct{} // guarded by mu: closed when the reading under way ends; nil while there is none
	closed bool          // guarded by mu: no reading begins any more
}

// idle bounds the load on the store: a reading that took 1 s is used again for the next 9 s. So a
// store with many messages spends at most a tenth of the time on readings, however often it is
// scraped.
const idle = 9

// NewReader returns a Reader of s, or ErrUnsupported when s is not a punctual.Inspector. After
// timeout the context of a reading ends, and the reading fails unless only Ahead and the problems
// of schedules are still to be counted. Read then returns even if the store ignores the end of the
// context.
func NewReader(s punctual.Store, topics *Topics, timeout time.Duration) (*Reader, error) {
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return nil, err
	}
	r := &Reader{store: s, inspector: i, topics: topics, timeout: timeout, schedules: stalled.New(s)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// Close ends the reading under way and waits for it, so that no call reaches the store afterwards.
// A Read that begins later returns ErrClosed. Close waits for at most the timeout of a reading,
// because a store that ignores the end of its context must not keep the process from exiting; it
// then returns an error, and one call is still under way in the store. Close may be called more
// than once.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	done := r.done
	r.mu.Unlock()
	r.stop()
	if done == nil {
		return nil
	}
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("end the reading of the store: its call goes on %v after its context has ended: %w", r.timeout, context.DeadlineExceeded)
	}
}

// Read reads the store, or returns the last reading while that is fresh. When a reading is under
// way already, Read waits for that one and begins no second one, so that a store that does not
// answer has only one call to bear. Read returns at the latest after the timeout and a tenth of it:
// the tenth is for a reading whose context has just ended and which returns what it has counted so
// far.
func (r *Reader) Read() (Reading, error) {
	began := time.Now()
	timer := time.NewTimer(r.timeout + r.timeout/10)
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Reading{}, fmt.Errorf("read the store: %w", punctual.ErrClosed)
	}
	if r.done == nil {
		if !r.read.IsZero() && time.Since(r.read) < idle*r.last.Took {
			return r.last, r.err
		}
		r.done = make(chan struct{})
		go r.refresh()
	}
	done := r.done
	r.mu.Unlock()
	answered := true
	select {
	case <-done:
	case <-timer.C:
		answered = false
	}
	r.mu.Lock()
	if !answered && r.done == done {
		return Reading{Took: time.Since(began)}, fmt.Errorf("read the store: no answer within %v: %w", r.timeout, context.DeadlineExceeded)
	}
	return r.last, r.err
}

// refresh makes one reading and closes r.done, which Read and Close wait for. It ends when the
// store's calls return; their context ends after the timeout, or with Close.
func (r *Reader) refresh() {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
	defer cancel()
	began := time.Now()
	last, err := r.tryCount(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.err, r.read = last, err, time.Now()
	r.last.Took = r.read.Sub(began)
	close(r.done)
	r.done = nil
}

// tryCount calls count. It turns a panic of the store into the error of this reading, because the
// panic would end the process.
func (r *Reader) tryCount(ctx context.Context) (_ Reading, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("read the store: it panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return r.count(ctx)
}

// count reads everything that a Reading has but the time that it took. A store that runs out of
// time while it counts how far ahead the messages are due, or reads the schedules, has answered the
// cheaper questions already, so count returns their answers without an error.
func (r *Reader) count(ctx context.Context) (Reading, error) {
	var out Reading
	now, err := r.store.Now(ctx)
	if err != nil {
		return out, fmt.Errorf("read the store's clock: %w", err)
	}
	stats, err := r.inspector.Topics(ctx)
	if err != nil {
		return out, fmt.Errorf("read the statistics of the topics: %w", err)
	}
	out.Known, out.Topics = len(stats), r.label(stats, now)
	if s, err := punctual.As[storekit.SpaceReporter](r.store); err == nil {
		space, err := s.Space(ctx)
		switch {
		case err == nil:
			out.Space = &space
		case !errors.Is(err, punctual.ErrUnsupported):
			return out, fmt.Errorf("read the free space: %w", err)
		}
	}
	if k, err := punctual.As[storekit.ClockKeeper](r.store); err == nil {
		state, err := k.Clock(ctx)
		switch {
		case err == nil:
			out.Clock = &state
		case !errors.Is(err, punctual.ErrUnsupported):
			return out, fmt.Errorf("read how the store's clock stands: %w", err)
		}
	}
	if out.Ahead, err = r.ahead(ctx); err == nil {
		err = r.addProblems(ctx, &out, stats, now)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return out, nil
	}
	return out, err
}

// addProblems adds the schedules with a problem to the topics that they push to.
func (r *Reader) addProblems(ctx context.Context, out *Reading, stats []punctual.TopicStats, now time.Time) error {
	names := make([]string, len(stats))
	for i := range stats {
		names[i] = stats[i].Topic
	}
	found, err := r.schedules.Look(ctx, stalled.Topics(names))
	if err != nil {
		return err
	}
	out.SchedulesRead = true
	for _, s := range found {
		label := r.topics.Admit(s.Topic)
		i, _ := slices.BinarySearchFunc(out.Topics, label, func(t Topic, label string) int { return cmp.Compare(t.Label, label) })
		t := &out.Topics[i] // label has an element for the topic of each companion with schedules
		t.ScheduleProblems++
		if !s.Since.IsZero() {
			t.ScheduleOverdue = max(t.ScheduleOverdue, now.Sub(s.Since))
		}
	}
	return nil
}

// label gives every topic its label and adds up the topics with the same label.
func (r *Reader) label(stats []punctual.TopicStats, now time.Time) []Topic {
	sums := make(map[string]*Topic)
	of := func(topic string) *Topic {
		label := r.topics.Admit(topic)
		t := sums[label]
		if t == nil {
			t = &Topic{Label: label}
			sums[label] = t
		}
		return t
	}
	for i := range stats {
		s := &stats[i]
		if parent, ok := strings.CutSuffix(s.Topic, schedule.Suffix); ok { // each message is a schedule of the parent
			p := of(parent)
			p.Schedules += s.Live() + s.Dead
			if s.Ready > 0 && !s.NextDue.IsZero() {
				p.ScheduleOverdue = max(p.ScheduleOverdue, now.Sub(s.NextDue))
			}
		}
		t := of(s.Topic)
		t.Scheduled += s.Scheduled
		t.Ready += s.Ready
		t.Leased += s.Leased
		t.Dead += s.Dead
		t.Waiting += s.Waiting
		t.Keyed = t.Keyed || s.Settings.Keyed
		if s.Ready > 0 && !s.NextDue.IsZero() {
			t.OldestReady = max(t.OldestReady, now.Sub(s.NextDue))
		}
		if s.Settings.PushPaused {
			t.PushPaused++
		}
		if s.Settings.DeliveryPaused {
			t.DeliveryPaused++
		}
	}
	out := make([]Topic, 0, len(sums))
	for _, t := range sums {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Topic) int { return cmp.Compare(a.Label, b.Label) })
	return out
}

// ahead counts the messages by due time: the next hour from a forecast in minutes, the rest of the
// day from a forecast in hours. The store makes the two forecasts one after the other. A message at
// the border of the first hour can therefore be counted twice or not at all.
func (r *Reader) ahead(ctx context.Context) ([]int64, error) {
	hour, err := r.inspector.Forecast(ctx, punctual.ForecastQuery{Step: time.Minute, Buckets: 60})
	if err != nil {
		return nil, fmt.Errorf("read the forecast of the hour: %w", err)
	}
	day, err := r.inspector.Forecast(ctx, punctual.ForecastQuery{Step: time.Hour, Buckets: 24})
	if err != nil {
		return nil, fmt.Errorf("read the forecast of the day: %w", err)
	}
	return []int64{
		hour.Overdue, sum(hour.Counts[:1]), sum(hour.Counts[1:10]), sum(hour.Counts[10:]),
		sum(day.Counts[1:6]), sum(day.Counts[6:]), day.Beyond,
	}, nil
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}
