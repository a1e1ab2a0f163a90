package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// rig is a store in memory with a queue and a way to make workers. Inside a synctest bubble
// its time is virtual, and the bubble itself fails when a goroutine is left behind.
type rig struct {
	t     *testing.T
	mem   *memstore.Store
	store *spyStore
	q     *punctual.Queue
	logs  *lockedBuffer
	start time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, nil)
}

func newRigOn(t *testing.T, clock storekit.Clock) *rig {
	t.Helper()
	mem := memstore.New(&memstore.Options{Clock: clock})
	spy := &spyStore{Store: mem}
	r := &rig{t: t, mem: mem, store: spy, q: punctual.NewQueue(mem, nil), logs: &lockedBuffer{}, start: time.Now()}
	t.Cleanup(func() { _ = mem.Close() }) // some tests close it themselves
	return r
}

// config fills in what every worker of the rig has.
func (r *rig) config(c worker.Config) *worker.Config {
	c.Logger = slog.New(slog.NewTextHandler(r.logs, nil))
	return &c
}

func (r *rig) worker(c worker.Config) *worker.Worker {
	return worker.New(r.store, r.config(c))
}

// runs starts w, which the test has to stop.
func (r *rig) runs(w *worker.Worker) {
	r.t.Helper()
	if err := w.Start(r.t.Context()); err != nil {
		r.t.Fatalf("start: %v", err)
	}
}

// stops ends w and wants a clean end.
func (r *rig) stops(w *worker.Worker) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		r.t.Errorf("stop: %v", err)
	}
}

func (r *rig) push(topic, id string, opts ...punctual.PushOption) {
	r.t.Helper()
	opts = append(opts, punctual.ID(id))
	if _, err := r.q.Push(r.t.Context(), topic, []byte("body of "+id), opts...); err != nil {
		r.t.Fatalf("push %s: %v", id, err)
	}
}

func (r *rig) configure(topic string, p punctual.SettingsPatch) {
	r.t.Helper()
	if _, err := r.mem.Configure(r.t.Context(), topic, p); err != nil {
		r.t.Fatalf("configure: %v", err)
	}
}

func (r *rig) get(topic, id string) punctual.Info {
	r.t.Helper()
	i, err := r.mem.Get(r.t.Context(), topic, id)
	if err != nil {
		r.t.Fatalf("get %s: %v", id, err)
	}
	return i
}

// wantGone checks that the store does not have the message any more.
func (r *rig) wantGone(topic, id string) {
	r.t.Helper()
	if i, err := r.mem.Get(r.t.Context(), topic, id); !errors.Is(err, punctual.ErrNotFound) {
		r.t.Errorf("message %s is still there: %+v, %v", id, i, err)
	}
}

// since is the virtual time since the rig was made.
func (r *rig) since() time.Duration { return time.Since(r.start) }

// about is since rounded to 100 ms, because a worker takes a lease for over some milliseconds
// early, to be on the safe side.
func (r *rig) about() time.Duration { return r.since().Round(100 * time.Millisecond) }

// wantLog checks that text was logged n times.
func (r *rig) wantLog(text string, n int) {
	r.t.Helper()
	if got := strings.Count(r.logs.String(), text); got != n {
		r.t.Errorf("logged %q %d times, want %d; log:\n%s", text, got, n, r.logs)
	}
}

// spyStore lets a test see and spoil the calls of a worker.
type spyStore struct {
	punctual.Store

	mu sync.Mutex
	// onClaim and onSettle, if not nil, are called before the store; an error is the answer.
	// Guarded by mu.
	onClaim  func(c punctual.Claim) error
	onSettle func(ss []punctual.Settlement) error
	// gate, if not nil, is called before each claim. Guarded by mu.
	gate func()
	// afterClaim and afterSettle, if not nil, are called when the store has answered. Guarded by
	// mu.
	afterClaim  func(ds []punctual.Delivery)
	afterSettle func(ctx context.Context, ss []punctual.Settlement) error
	openClaims  int        // guarded by mu
	claims      int        // guarded by mu
	extends     [][]string // IDs of each call whose first settlement was an extension; guarded by mu
}

func (s *spyStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.mu.Lock()
	s.openClaims++
	s.claims++
	before, after, gate := s.onClaim, s.afterClaim, s.gate
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.openClaims--
	}()
	if gate != nil {
		gate()
	}
	if before != nil {
		if err := before(c); err != nil {
			return nil, err
		}
	}
	ds, err := s.Store.Claim(ctx, c)
	if after != nil {
		after(ds)
	}
	return ds, err
}

func (s *spyStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.mu.Lock()
	if ss[0].Verb == punctual.SettleExtend {
		var ids []string
		for _, x := range ss {
			ids = append(ids, x.ID)
		}
		slices.Sort(ids)
		s.extends = append(s.extends, ids)
	}
	before, after := s.onSettle, s.afterSettle
	s.mu.Unlock()
	if before != nil {
		if err := before(ss); err != nil {
			return nil, err
		}
	}
	errs, err := s.Store.Settle(ctx, ss)
	if after != nil {
		if err := after(ctx, ss); err != nil {
			return nil, err
		}
	}
	return errs, err
}

func (s *spyStore) counts() (open, claims, extends int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openClaims, s.claims, len(s.extends)
}

// spoil sets what is called before the store; nil for nothing.
func (s *spyStore) spoil(claim func(punctual.Claim) error, settle func([]punctual.Settlement) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onClaim, s.onSettle = claim, settle
}

// failing returns a function that returns err the first n times.
func failing(n int, err error) func() error {
	var mu sync.Mutex
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			return nil
		}
		n--
		return err
	}
}

// record collects lines, from any goroutine.
type record struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (r *record) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *record) want(t *testing.T, want ...string) {
	t.Helper()
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var errBroken = errors.New("connection broke")

func handlerFunc(f func(ctx context.Context, d *punctual.Delivery) error) punctual.Handler {
	return punctual.HandlerFunc(f)
}

// acks finishes every message and records its ID.
func acks(seen *record) punctual.Handler {
	return handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		seen.add("%s", d.ID)
		return nil
	})
}
