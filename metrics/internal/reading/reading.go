// Package reading looks into a store for metrics: what waits, since when and how far ahead, and how much
// room there is. It bounds what a look costs, and how many topics have a label of their own.
package reading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// Reading is what a store holds at one instant.
type Reading struct {
	// Topics are sorted by label. Those that share the label Other are one.
	Topics []Topic
	// Known is how many topics there are.
	Known int
	// Ahead counts the messages that are not dead by how far ahead they are due, in the order of Spans. It is
	// nil when there are so many that they could not be counted in time.
	Ahead []int64
	// Space is nil where the store does not tell.
	Space *punctual.Space
	// Took is how long the look took.
	Took time.Duration
}

// Topic is what a topic holds, or all topics that share a label.
type Topic struct {
	Label                          string
	Scheduled, Ready, Leased, Dead int64
	// OldestReady is how long ago the first of the ready messages fell due; 0 when none is ready.
	OldestReady time.Duration
	// PushPaused and DeliveryPaused count the topics of this label that are paused.
	PushPaused, DeliveryPaused int
}

// Result is the label of what became of one message: done, or the code of the error.
func Result(err error) string {
	if err == nil {
		return "done"
	}
	return punctual.ErrorCode(err)
}

// PushResult is the label of what became of a pushed message: the name of its status, or the code of the error.
func PushResult(r punctual.PushResult) string {
	if r.Err != nil {
		return punctual.ErrorCode(r.Err)
	}
	return r.Status.String()
}

// Brought is the label of a claim that brought n messages: some, or none.
func Brought(n int) string {
	if n == 0 {
		return "none"
	}
	return "some"
}

// Spans are the names of the counts in Reading.Ahead. Each is of what is due within that time and
// not within the one before; so their sum is all.
func Spans() []string { return []string{"overdue", "1m", "10m", "1h", "6h", "1d", "beyond"} }

// Reader looks into one store. Its methods are safe for concurrent use.
type Reader struct {
	store     punctual.Store
	inspector punctual.Inspector
	topics    *Topics
	timeout   time.Duration

	mu   sync.Mutex
	last Reading       // guarded by mu
	read time.Time     // guarded by mu: when last was made; zero before the first
	err  error         // guarded by mu: of last
	done chan struct{} // guarded by mu: closed when the reading under way ends; nil while there is none
}

// idle is how many times as long as a look took its answer is used again. So a store of many messages spends at most
// a tenth of the time on looks, however often somebody asks.
const idle = 9

// NewReader returns a Reader of s, or ErrUnsupported when s is not a punctual.Inspector. A look that takes
// longer than timeout fails. Its context ends then, and who asked is answered even if the store does not heed the context.
func NewReader(s punctual.Store, topics *Topics, timeout time.Duration) (*Reader, error) {
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return nil, err
	}
	return &Reader{store: s, inspector: i, topics: topics, timeout: timeout}, nil
}

// Read looks into the store, or returns the answer of the last look while it is fresh. It returns within the
// timeout and a tenth, which a look that the context ends needs to say what it has. A look that is under
// way still is waited for, and no second one begins beside it, so a store that does not answer has one call to bear.
func (r *Reader) Read() (Reading, error) {
	began := time.Now()
	timer := time.NewTimer(r.timeout + r.timeout/10)
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
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

// refresh makes one reading. It lasts as long as the store's calls, whose context ends with the timeout.
func (r *Reader) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	began := time.Now()
	last, err := r.tryLook(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.err, r.read = last, err, time.Now()
	r.last.Took = r.read.Sub(began)
	close(r.done)
	r.done = nil
}

// tryLook makes a panic of the store the error of this reading, because it would end the process otherwise.
func (r *Reader) tryLook(ctx context.Context) (_ Reading, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("read the store: it panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return r.look(ctx)
}

func (r *Reader) look(ctx context.Context) (Reading, error) {
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
	if s, err := punctual.As[punctual.SpaceReporter](r.store); err == nil {
		space, err := s.Space(ctx)
		switch {
		case err == nil:
			out.Space = &space
		case !errors.Is(err, punctual.ErrUnsupported):
			return out, fmt.Errorf("read the free space: %w", err)
		}
	}
	out.Ahead, err = r.ahead(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return out, nil
	}
	return out, err
}

// label adds up the topics that share a label.
func (r *Reader) label(stats []punctual.TopicStats, now time.Time) []Topic {
	sums := make(map[string]*Topic)
	for i := range stats {
		s := &stats[i]
		label := r.topics.Admit(s.Topic)
		t := sums[label]
		if t == nil {
			t = &Topic{Label: label}
			sums[label] = t
		}
		t.Scheduled += s.Scheduled
		t.Ready += s.Ready
		t.Leased += s.Leased
		t.Dead += s.Dead
		if s.Ready > 0 {
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

// ahead counts by minutes for the next hour and by hours for the next day. The two looks are not of one
// instant: what is counted in one hour and is due in the next can be missing or twice.
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
