package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
)

// ShiftedClock is a clock that shows the real time plus all that it was shifted by. It is safe for
// concurrent use.
type ShiftedClock struct{ ahead atomic.Int64 }

// Shift moves the clock ahead.
func (c *ShiftedClock) Shift(d time.Duration) { c.ahead.Add(int64(d)) }

// Now implements storekit.Clock.
func (c *ShiftedClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// After implements storekit.Clock.
func (c *ShiftedClock) After(t time.Time) (<-chan time.Time, func()) {
	return storekit.SystemClock{}.After(t.Add(-time.Duration(c.ahead.Load())))
}

// allDue is further ahead than any due time that a workload asks for.
const allDue = 100 * time.Hour

// Audit compares all that a store holds with the history. It reads everything and makes everything
// due by shifting the clock that the store runs on. Then it has all that is not dead delivered and
// acked, or ended, and reads again. An error is for a call that failed; what is wrong with the
// store's content is among the ledger's problems.
func (l *Ledger) Audit(ctx context.Context, s punctual.Store, process int64, clock *ShiftedClock) error {
	rec := NewRecorder(s, process, clock.Now, l.Add)
	if err := l.checkStore(ctx, s); err != nil {
		return err
	}
	if err := rec.Look(ctx); err != nil {
		return err
	}
	topics, err := unpaused(ctx, rec)
	if err != nil {
		return err
	}
	clock.Shift(allDue)
	if err := l.drain(ctx, rec, topics); err != nil {
		return err
	}
	if err := rec.Look(ctx); err != nil {
		return err
	}
	l.check(false)
	l.checkEvents()
	return l.checkStore(ctx, s)
}

// unpaused ends the pauses of deliveries in all topics, and returns the topics.
func unpaused(ctx context.Context, rec *Recorder) (topics []string, err error) {
	all, err := rec.Topics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		topics = append(topics, t.Topic)
		if t.Settings.DeliveryPaused {
			t.Settings.DeliveryPaused = false
			if _, err := rec.Configure(ctx, t.Topic, wholePatch(t.Settings)); err != nil {
				return nil, err
			}
		}
	}
	return topics, nil
}

// drainWait is how long a store may take to end what it does not deliver any more.
const drainWait = time.Minute

// drain claims and acks all messages that are not dead. A store may end those whose attempts are
// used up, or that have expired, a while after the claim that found them. What is due and neither
// delivered nor ended by then never will be. A store that is known to be damaged is not waited for.
func (l *Ledger) drain(ctx context.Context, rec *Recorder, topics []string) error {
	end := time.Now()
	if len(l.problems) == 0 {
		end = end.Add(drainWait)
	}
	for ; ; time.Sleep(time.Millisecond) {
		if err := ackAll(ctx, rec, topics); err != nil {
			return err
		}
		all, err := rec.Topics(ctx)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(t punctual.TopicStats) bool { return t.Live() == 0 })
		if len(all) == 0 {
			return nil
		}
		for _, t := range all { // events of the drain's acks may have created a companion
			if !slices.Contains(topics, t.Topic) {
				topics = append(topics, t.Topic)
			}
		}
		if time.Now().After(end) {
			for _, t := range all {
				l.broken(l.line, "%s: %d messages of topic %s are live after all that is due was delivered", promise.P1, t.Live(), t.Topic)
			}
			return nil
		}
	}
}

// ackAll claims and acks until nothing is found.
func ackAll(ctx context.Context, rec *Recorder, topics []string) error {
	for len(topics) > 0 {
		ds, err := rec.Claim(ctx, punctual.Claim{Topics: topics, Max: 500, Lease: time.Hour})
		if err != nil || len(ds) == 0 {
			return err
		}
		ss := make([]punctual.Settlement, len(ds))
		for i, d := range ds {
			ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
		}
		errs, err := rec.Settle(ctx, ss)
		if err := errors.Join(append(errs, err)...); err != nil {
			return fmt.Errorf("ack of messages just claimed: %w", err)
		}
	}
	return nil
}

// checkStore has the store scan itself for damage, if it is a Checker.
func (l *Ledger) checkStore(ctx context.Context, s punctual.Store) error {
	c, err := punctual.As[storekit.Checker](s)
	if err != nil {
		return nil
	}
	r, err := c.Check(ctx, nil)
	for _, p := range r.Problems {
		l.broken(l.line, "%s: check: %s", promise.P13, p)
	}
	return err
}

// workloadRound is how long a workload runs before the ledger judges its lines.
const workloadRound = time.Second

// RunWorkload runs a Workload with a worker and a queue over a store for as long as lasts says,
// without faults, and has a Ledger judge what they saw. The store must run on the clock given.
//
// With PUNCTUAL_RECOVERY=1 it logs instead how late messages are after a clock that was ahead was
// set right.
//
// claimTopics is Workload.ClaimTopics. With 1 the store is one of those that Ledger.GivesBack
// describes.
func RunWorkload(t *testing.T, open func(*testing.T, storekit.Clock) punctual.Store, lasts time.Duration, claimTopics int) {
	if os.Getenv("PUNCTUAL_RECOVERY") != "" {
		measureRecovery(t, open)
		return
	}
	clock := &ShiftedClock{}
	s := open(t, clock)
	seed := TortureSeed(t)
	l := New(KeepsAll)
	l.Expected, l.Grace = []string{"deadline", "canceled", "indeterminate", "unreachable"}, lateStart
	l.GivesBack = claimTopics == 1
	var lines lineBuffer
	for round := int64(1); time.Duration(round)*workloadRound <= lasts && !t.Failed(); round++ {
		w := Workload{
			Store: s, Process: round, Seed: seed + uint64(round), Emit: lines.add, Clock: clock.Now,
			Pause: Pause(), BigBodies: true, Deadlines: true, Worker: true, HoldClaims: true, PurgeLive: true, ClaimTopics: claimTopics,
		}
		ctx, end := context.WithTimeout(t.Context(), workloadRound)
		w.Run(ctx)
		end()
		lines.tell(l)
		l.end(clock.Now().UnixMilli(), nil)
		l.report(t)
	}
	if err := l.Audit(t.Context(), s, auditProcess, clock); err != nil {
		t.Error(err)
	}
	l.report(t)
	t.Logf("%v: %s", lasts, l)
}

// lateStart is how many ms after the end of its lease a handler may start before the ledger takes
// that for a bug of the worker. Claims that are held back arrive more than twice as late. It is
// assumed that no machine takes that long between a reading of the clock and the first line of a
// handler.
const lateStart = 1000

const auditProcess = 1 << 30

// report fails a test for each promise that was broken.
func (l *Ledger) report(t *testing.T) {
	t.Helper()
	for _, p := range l.Problems() {
		t.Error(p)
	}
}

// lineBuffer gathers the lines of concurrent callers.
type lineBuffer struct {
	mu    sync.Mutex
	lines []Line // guarded by mu
}

func (h *lineBuffer) add(e Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, e)
}

// tell hands the lines that are new to a ledger.
func (h *lineBuffer) tell(l *Ledger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.lines {
		l.Add(e)
	}
	h.lines = h.lines[:0:0]
}
