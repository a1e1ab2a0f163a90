package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
)

const (
	// mostBulks is how many bulk changes may be under way at once, because each reads lists to
	// their end.
	mostBulks = 4
	// keptBulks is how many bulk changes a console remembers.
	keptBulks = 100
)

// bulks are the bulk changes that people have asked for. Each change runs in a goroutine of its
// own, because it may take longer than a browser waits; close ends the changes. The methods are
// safe for concurrent use.
type bulks struct {
	queue *punctual.Queue
	log   *slog.Logger
	ctx   context.Context // ends with close
	end   context.CancelCauseFunc
	under sync.WaitGroup

	mu      sync.Mutex
	all     []*bulkJob // guarded by mu: the last keptBulks jobs, in the order in which they began
	running int        // guarded by mu: how many jobs are under way
	closed  bool       // guarded by mu
}

// bulkJob is one bulk change, or the count before one.
type bulkJob struct {
	ID   string
	Bulk bulkChange
	// Counted is how many messages the count before the change has found, 0 for a count itself.
	Counted int64
	ended   chan struct{} // closed when the change has ended
	stop    context.CancelCauseFunc

	// The fields from here on are guarded by bulks.mu.
	Report    bulk.Report
	began, at time.Time // when the job began, and when it ended, by the clock of this process
	err       error
	done      bool
	next      *bulkJob // the job that carries this count out, or continues this change
}

// bulkView is a copy of the state of a job.
type bulkView struct {
	bulkJob
	// State is "running", "done", "stopped" or "failed".
	State string
	Error string
	Took  time.Duration
	// Next is the ID of the job that goes on with this one, or "".
	Next string
}

func newBulks(q *punctual.Queue, log *slog.Logger) *bulks {
	b := &bulks{queue: q, log: log}
	b.ctx, b.end = context.WithCancelCause(context.Background())
	return b
}

// close stops all changes that are under way and waits for their ends. No change can be started
// afterwards.
func (b *bulks) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end(errStopped)
	b.under.Wait()
}

// start begins a bulk change, which record makes and enters into the audit log. before is the count
// that is carried out or the change that is continued, or nil. If two people do that at the same
// time, the second gets the job of the first. While before itself is under way, start returns
// before.
func (b *bulks) start(change bulkChange, before *bulkJob, record recorder) (*bulkJob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case before != nil && !before.done:
		return before, nil
	case before != nil && before.next != nil:
		return before.next, nil
	case b.closed:
		return nil, fmt.Errorf("start a bulk change: the console is closing: %w", punctual.ErrClosed)
	case b.running >= mostBulks:
		return nil, fmt.Errorf("%d bulk changes are under way already: wait for one of them: %w", mostBulks, punctual.ErrOverloaded)
	}
	job := &bulkJob{ID: rand.Text()[:12], Bulk: change, ended: make(chan struct{}), began: time.Now()}
	if before != nil {
		before.next = job
		if job.Counted = before.Counted; before.Bulk.DryRun {
			job.Counted = before.Report.Matched
		}
	}
	ctx, stop := context.WithCancelCause(b.ctx)
	job.stop = stop
	b.all = append(b.all, job)
	if len(b.all) > keptBulks {
		b.all = b.all[1:]
	}
	b.running++
	change.Progress = func(r bulk.Report) {
		b.mu.Lock()
		defer b.mu.Unlock()
		job.Report = r
	}
	b.under.Go(func() {
		defer stop(nil)
		var report bulk.Report
		_, err := record(ctx, func(ctx context.Context) (n int64, err error) {
			report, err = b.make(ctx, change.Job)
			if ctx.Err() != nil && err != nil {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return report.Done, err
		})
		b.finish(job, report, err)
	})
	return job, nil
}

// make carries out the change. A panic of the store becomes an error, so that it does not end the
// program.
func (b *bulks) make(ctx context.Context, job bulk.Job) (r bulk.Report, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			b.log.Error("a bulk change made the store panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = errors.New("the console failed on this change")
		}
	}()
	return bulk.Run(ctx, b.queue, job)
}

func (b *bulks) finish(job *bulkJob, r bulk.Report, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	job.Report, job.err, job.at, job.done = r, err, time.Now(), true
	b.running--
	close(job.ended)
}

// stop ends a job that is under way. The messages that it has changed stay changed.
func (b *bulks) stop(job *bulkJob) { job.stop(errStopped) }

// find returns the job with this ID, or nil.
func (b *bulks) find(id string) *bulkJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, job := range b.all {
		if job.ID == id {
			return job
		}
	}
	return nil
}

// view returns a copy of the state of a job.
func (b *bulks) view(job *bulkJob) bulkView {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := bulkView{bulkJob: *job, State: "running", Took: time.Since(job.began)}
	if job.done {
		v.State, v.Took = "done", job.at.Sub(job.began)
	}
	if job.next != nil {
		v.Next = job.next.ID
	}
	switch {
	case job.err == nil:
	case errors.Is(job.err, errStopped):
		v.State = "stopped"
	default:
		v.State, v.Error = "failed", visible(job.err.Error())
	}
	v.Counted = cmp.Or(v.Counted, v.Report.Matched)
	return v
}
