// Package mutants has stores with one deliberate bug each. They show that a part of the suite can
// fail: it must report the promise that the bug breaks.
package mutants

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Recorder is a storetest.T that keeps what a case reports instead of failing the test. It also has
// the methods that package rapid needs of a test.
type Recorder struct {
	name     string
	mu       sync.Mutex
	failures []string // guarded by mu
	cleanups []func() // guarded by mu
}

func (r *Recorder) Helper()             {}
func (r *Recorder) Name() string        { return r.name }
func (r *Recorder) Logf(string, ...any) {}
func (r *Recorder) Log(...any)          {}
func (r *Recorder) Skipf(string, ...any) {
	runtime.Goexit()
}
func (r *Recorder) Skip(...any)       { runtime.Goexit() }
func (r *Recorder) SkipNow()          { runtime.Goexit() }
func (r *Recorder) FailNow()          { runtime.Goexit() }
func (r *Recorder) Fail()             { r.Errorf("failed") }
func (r *Recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *Recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *Recorder) Failed() bool      { return len(r.reported()) > 0 }

func (r *Recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *Recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *Recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *Recorder) reported() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failures)
}

// Record runs f in a goroutine, which f may end early, as Fatalf and Skipf do. Then it runs the
// cleanups and returns what was reported.
func Record(name string, f func(r *Recorder)) []string {
	r := &Recorder{name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	for _, c := range slices.Backward(r.cleanups) {
		c()
	}
	return r.reported()
}

// Bug has the functions that a mutant calls instead of the methods of memstore. A method whose
// function is nil has no bug, unless late names it. record may change what Finished has returned,
// list stands for ListFinished, and remove for DeleteTopic. late is the name of the method that
// carries calls out although their contexts have ended.
type Bug struct {
	push   func(*mutant, []punctual.NewMessage) ([]punctual.PushResult, error)
	claim  func(*mutant, context.Context, punctual.Claim) ([]punctual.Delivery, error)
	settle func(*mutant, []punctual.Settlement) ([]error, error)
	amend  func(*mutant, []punctual.Amendment) ([]punctual.Amended, error)
	now    func(*mutant) time.Time
	stats  func(*mutant, string) (punctual.TopicStats, error)
	record func(*mutant, *punctual.Finished, error) error
	list   func(*mutant, punctual.FinishedQuery) (punctual.FinishedPage, error)
	remove func(*mutant, string) (int64, error)
	late   string
}

// mutant is memstore with a bug.
type mutant struct {
	*memstore.Store
	Bug
	clock storekit.Clock
	turn  chan struct{} // has room for one claim

	mu     sync.Mutex
	count  int               // the last number that next returned; guarded by mu
	tokens map[string]int64  // by topic and ID, for one of the bugs also by attempt; guarded by mu
	bodies map[string][]byte // by ID; guarded by mu
	told   punctual.Finished // the last finished record that was returned; guarded by mu
}

// context returns the context with which a method of memstore is called.
func (m *mutant) context(ctx context.Context, method string) context.Context {
	if m.late == method && ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (m *mutant) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if ctx = m.context(ctx, "Push"); m.push == nil || ctx.Err() != nil {
		return m.Store.Push(ctx, ms)
	}
	return m.push(m, slices.Clone(ms))
}

func (m *mutant) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if ctx = m.context(ctx, "Claim"); m.claim == nil {
		return m.Store.Claim(ctx, c)
	}
	return m.claim(m, ctx, c)
}

func (m *mutant) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if ctx = m.context(ctx, "Settle"); m.settle == nil || ctx.Err() != nil {
		return m.Store.Settle(ctx, ss)
	}
	return m.settle(m, slices.Clone(ss))
}

func (m *mutant) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if ctx = m.context(ctx, "Amend"); m.amend == nil || ctx.Err() != nil {
		return m.Store.Amend(ctx, as)
	}
	return m.amend(m, slices.Clone(as))
}

func (m *mutant) Now(ctx context.Context) (time.Time, error) {
	if m.now == nil {
		return m.Store.Now(ctx)
	}
	return m.now(m), nil
}

func (m *mutant) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	if m.stats == nil {
		return m.Store.Stats(ctx, topic)
	}
	return m.stats(m, topic)
}

func (m *mutant) Finished(ctx context.Context, topic, id string) (punctual.Finished, error) {
	f, err := m.Store.Finished(ctx, topic, id)
	if m.record != nil {
		err = m.record(m, &f, err)
	}
	return f, err
}

func (m *mutant) ListFinished(ctx context.Context, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
	if m.list == nil {
		return m.Store.ListFinished(ctx, q)
	}
	return m.list(m, q)
}

func (m *mutant) DeleteTopic(ctx context.Context, topic string) (int64, error) {
	if m.remove == nil {
		return m.Store.DeleteTopic(ctx, topic)
	}
	return m.remove(m, topic)
}

// each changes every message, and pushes them to memstore in one call.
func (m *mutant) each(ms []punctual.NewMessage, change func(*punctual.NewMessage)) ([]punctual.PushResult, error) {
	for i := range ms {
		change(&ms[i])
	}
	return m.Store.Push(context.Background(), ms)
}

func (m *mutant) next() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	return m.count
}

// All are the bugs, by what they do wrong.
var All = map[string]struct {
	Promise string
	Groups  []string // the groups of cases of package storetest, of which at least one case must report Promise
	Bug     Bug
	Random  bool // random histories must find it, too
}{
	"rounds due times down": {Promise: promise.P2, Groups: []string{"early"}, Random: true, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) {
				n.Due, n.Delay = n.Due.Truncate(time.Millisecond), n.Delay.Truncate(time.Millisecond)
			})
		},
	}},
	"delivers 1 ms early": {Promise: promise.P2, Groups: []string{"early"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			for _, topic := range c.Topics {
				p, err := m.List(ctx, punctual.ListQuery{Topic: topic, State: punctual.StateScheduled, Limit: 1})
				if err != nil || len(p.Messages) == 0 {
					continue
				}
				if next := p.Messages[0]; next.Due.Sub(m.clock.Now()) <= time.Millisecond {
					_, _ = m.Store.Amend(ctx, []punctual.Amendment{{Topic: topic, ID: next.ID, Change: punctual.ChangeReschedule}})
				}
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"claims more of a topic than PerTopic": {Promise: promise.P14, Groups: []string{"claim"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			c.PerTopic *= 2
			return m.Store.Claim(ctx, c)
		},
	}},
	"sorts the IDs of a claim": {Promise: promise.P12, Groups: []string{"ids"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			c.IDs = slices.Sorted(slices.Values(c.IDs))
			return m.Store.Claim(ctx, c)
		},
	}},
	"takes the earliest in place of those named": {Promise: promise.P12, Groups: []string{"ids"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			if len(c.IDs) > 0 && storekit.CheckClaim(&c) == nil {
				c.Max, c.IDs = cmp.Or(c.Max, len(c.IDs)), nil
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"acks by ID, whatever the token": {Promise: promise.P4, Groups: []string{"settle", "fencing"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, d := range ds {
				m.tokens[d.Topic+" "+d.ID] = d.Token
			}
			return ds, err
		},
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, s := range ss {
				if s.Verb == punctual.SettleAck {
					ss[i].Token = m.tokens[s.Topic+" "+s.ID]
				}
			}
			return m.Store.Settle(context.Background(), ss)
		},
	}},
	"starts tokens anew with each message": {Promise: promise.P4, Groups: []string{"fencing"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, d := range ds {
				m.tokens[fmt.Sprint(d.Topic, " ", d.ID, d.Attempt)] = d.Token
				ds[i].Token = int64(d.Attempt)
			}
			return ds, err
		},
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for i, s := range ss {
				ss[i].Token = m.tokens[fmt.Sprint(s.Topic, " ", s.ID, s.Token)]
			}
			return m.Store.Settle(context.Background(), ss)
		},
	}},
	"says cancelled and does nothing": {Promise: promise.P5, Groups: []string{"amend"}, Random: true, Bug: Bug{
		amend: func(m *mutant, as []punctual.Amendment) ([]punctual.Amended, error) {
			out, err := m.Store.Amend(context.Background(), slices.DeleteFunc(slices.Clone(as), isCancel))
			for i, a := range as {
				if isCancel(a) {
					out = slices.Insert(out, i, punctual.Amended{})
				}
			}
			return out, err
		},
	}},
	"deletes as a cancel does": {Promise: promise.P13, Groups: []string{"amend"}, Random: true, Bug: Bug{
		amend: func(m *mutant, as []punctual.Amendment) ([]punctual.Amended, error) {
			as = slices.Clone(as)
			for i := range as {
				if as[i].Change == punctual.ChangeDelete {
					as[i].Change = punctual.ChangeCancel
				}
			}
			return m.Store.Amend(context.Background(), as)
		},
	}},
	"remembers as the topic asks when that is longer": {Promise: promise.P7, Groups: []string{"duplicate"}, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			for i := range ms {
				if set, err := m.Settings(context.Background(), ms[i].Topic); err == nil && set.DedupeWindow > ms[i].Remember {
					ms[i].Remember = 0
				}
			}
			return m.Store.Push(context.Background(), ms)
		},
	}},
	"remembers as the message asks only where the topic has a window": {Promise: promise.P7, Groups: []string{"duplicate"}, Random: true, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			for i := range ms {
				if set, err := m.Settings(context.Background(), ms[i].Topic); err == nil && set.DedupeWindow == 0 {
					ms[i].Remember = 0
				}
			}
			return m.Store.Push(context.Background(), ms)
		},
	}},
	"forgets a cancel that came too late": {Promise: promise.P5, Groups: []string{"amend"}, Random: true, Bug: Bug{
		amend: func(m *mutant, as []punctual.Amendment) ([]punctual.Amended, error) {
			for i, a := range as {
				if info, err := m.Get(context.Background(), a.Topic, a.ID); err == nil && info.State == punctual.StateLeased && isCancel(a) {
					as[i] = punctual.Amendment{Topic: a.Topic, ID: a.ID, Change: punctual.ChangeReschedule} // changes nothing of a leased message
				}
			}
			return m.Store.Amend(context.Background(), as)
		},
	}},
	"does not count retried attempts": {Promise: promise.P6, Groups: []string{"attempts", "settle"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			for i, s := range ss {
				if s.Verb == punctual.SettleRetry && s.Delay >= 0 {
					ss[i].Verb = punctual.SettleSnooze
				}
			}
			return m.Store.Settle(context.Background(), ss)
		},
	}},
	"loses the dead": {Promise: promise.P6, Groups: []string{"attempts"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			errs, err := m.Store.Settle(context.Background(), ss)
			for _, s := range ss {
				_, _ = m.Purge(context.Background(), punctual.PurgeQuery{Topic: s.Topic, State: punctual.StateDead})
			}
			return errs, err
		},
	}},
	"ignores duplicates": {Promise: promise.P7, Groups: []string{"duplicate"}, Random: true, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			rs, err := m.each(ms, func(n *punctual.NewMessage) { n.IfExists = punctual.IfExistsReplace })
			for i := range rs {
				if rs[i].Status == punctual.PushReplaced {
					rs[i].Status = punctual.PushStored
				}
			}
			return rs, err
		},
	}},
	"does not honour leases": {Promise: promise.P3, Groups: []string{"claim", "early"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			length := c.Lease
			if length == 0 {
				length = 30 * time.Second
			}
			if storekit.CheckClaim(&c) == nil {
				c.Lease = max(limits.MinLease, length-time.Millisecond)
			}
			ds, err := m.Store.Claim(ctx, c)
			for i := range ds {
				ds[i].LeaseUntil = ds[i].Delivered.Add(length)
			}
			return ds, err
		},
	}},
	"holds claims for longer than their leases": {Promise: promise.P3, Groups: []string{"claim"}, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			m.clock.Now() // the clock of claimSlow may jump at this reading; the mutant does not look at the leases again
			return ds, err
		},
	}},
	"has one claim at a time, however long it waits": {Promise: promise.P14, Groups: []string{"isolation"}, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			select {
			case m.turn <- struct{}{}:
				defer func() { <-m.turn }()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"has paused topics stop the others": {Promise: promise.P14, Groups: []string{"isolation"}, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			for _, topic := range c.Topics {
				if set, err := m.Settings(ctx, topic); err == nil && set.DeliveryPaused {
					return nil, nil
				}
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"loses one push in seven": {Promise: promise.P1, Groups: []string{"push", "claim", "amend"}, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			rs, err := m.Store.Push(context.Background(), ms)
			if err == nil && m.next()%7 == 0 && rs[0].Err == nil {
				_, _ = m.Store.Amend(context.Background(), []punctual.Amendment{{Topic: rs[0].Topic, ID: rs[0].ID, Change: punctual.ChangeCancel}})
			}
			return rs, err
		},
	}},
	"claims the latest first": {Promise: promise.P12, Groups: []string{"claim"}, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			slices.Reverse(ds)
			return ds, err
		},
	}},
	"follows its clock backwards": {Promise: promise.P8, Groups: []string{"clock"}, Random: true, Bug: Bug{
		now: func(m *mutant) time.Time { return m.clock.Now().UTC().Truncate(time.Millisecond) },
	}},
	"shortens what is due too far away": {Promise: promise.P9, Groups: []string{"push"}, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) {
				if n.Due.After(limits.MaxDue) {
					n.Due = limits.MaxDue
				}
			})
		},
	}},
	"delivers at once what has a negative delay": {Promise: promise.P13, Groups: []string{"badinput"}, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) { n.Delay = max(n.Delay, 0) })
		},
	}},
	"pushes although the context has ended":  {Promise: promise.P13, Groups: []string{"badinput"}, Bug: Bug{late: "Push"}},
	"claims although the context has ended":  {Promise: promise.P13, Groups: []string{"claim"}, Bug: Bug{late: "Claim"}},
	"settles although the context has ended": {Promise: promise.P13, Groups: []string{"badinput"}, Bug: Bug{late: "Settle"}},
	"amends although the context has ended":  {Promise: promise.P13, Groups: []string{"badinput"}, Bug: Bug{late: "Amend"}},
	"lets one bad item stop the others": {Promise: promise.P13, Groups: []string{"push"}, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			for i := range ms {
				if err := storekit.CheckPush(&ms[i], limits.DefaultMaxBody); err != nil {
					rs := make([]punctual.PushResult, len(ms))
					for j := range rs {
						rs[j].Err = err
					}
					return rs, nil
				}
			}
			return m.Store.Push(context.Background(), ms)
		},
	}},
	"sleeps through wake-ups": {Promise: promise.P11, Groups: []string{"wait"}, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			wait := c.Wait
			c.Wait = 0
			ds, err := m.Store.Claim(ctx, c)
			if err == nil && len(ds) == 0 && wait > 0 {
				<-ctx.Done()
				err = ctx.Err()
			}
			return ds, err
		},
	}},
	"keeps the caller's memory": {Promise: promise.P1, Groups: []string{"ownership"}, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, n := range ms {
				m.bodies[n.ID] = n.Body
			}
			return m.Store.Push(context.Background(), ms)
		},
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			m.mu.Lock()
			defer m.mu.Unlock()
			for i := range ds {
				ds[i].Body = m.bodies[ds[i].ID]
			}
			return ds, err
		},
	}},
	"never expires": {Promise: promise.P2, Groups: []string{"expiry"}, Random: true, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) { n.ExpireAfter = 0 })
		},
	}},
	"counts one too many": {Promise: promise.P13, Groups: []string{"inspect"}, Bug: Bug{
		stats: func(m *mutant, topic string) (punctual.TopicStats, error) {
			st, err := m.Store.Stats(context.Background(), topic)
			st.Ready++
			return st, err
		},
	}},
	"keeps no record of what is cancelled": {Promise: promise.P13, Groups: []string{"finished"}, Random: true, Bug: Bug{
		record: func(_ *mutant, f *punctual.Finished, err error) error {
			if f.Outcome == punctual.OutcomeCancelled {
				return storekit.NoFinishedRecordError(f.Topic, f.ID)
			}
			return err
		},
	}},
	"forgets when a lease began": {Promise: promise.P13, Groups: []string{"finished"}, Random: true, Bug: Bug{
		record: func(_ *mutant, f *punctual.Finished, err error) error {
			f.Delivered = time.Time{}
			return err
		},
	}},
	"tells what was long forgotten": {Promise: promise.P13, Groups: []string{"finished"}, Bug: Bug{
		record: func(m *mutant, f *punctual.Finished, err error) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if err == nil {
				m.told = *f
			} else if m.told.ID != "" {
				*f, err = m.told, nil
			}
			return err
		},
	}},
	"keeps a record only of those that remember IDs": {Promise: promise.P13, Groups: []string{"finished"}, Random: true, Bug: Bug{
		record: func(m *mutant, f *punctual.Finished, err error) error {
			if set, _ := m.Settings(context.Background(), f.Topic); err == nil && set.DedupeWindow == 0 {
				return storekit.NoFinishedRecordError(f.Topic, f.ID)
			}
			return err
		},
	}},
	"lists finished messages of any outcome": {Promise: promise.P13, Groups: []string{"finished"}, Random: true, Bug: Bug{
		list: func(m *mutant, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
			q.Outcome = ""
			return m.Store.ListFinished(context.Background(), q)
		},
	}},
	"loses a finished record between two pages": {Promise: promise.P13, Groups: []string{"finished"}, Random: true, Bug: Bug{
		list: func(m *mutant, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
			p, err := m.Store.ListFinished(context.Background(), q)
			if n := len(p.Records); err == nil && p.Next != "" {
				p.Records = p.Records[:n-1]
			}
			return p, err
		},
	}},
	"lists finished messages from the other end": {Promise: promise.P13, Groups: []string{"finished"}, Random: true, Bug: Bug{
		list: func(m *mutant, q punctual.FinishedQuery) (punctual.FinishedPage, error) {
			q.Descending = !q.Descending
			return m.Store.ListFinished(context.Background(), q)
		},
	}},
	"stores follow-ups although the lease was lost": {Promise: promise.P4, Groups: []string{"then"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			errs, err := m.Store.Settle(context.Background(), ss)
			for i, s := range ss {
				if err == nil && errors.Is(errs[i], punctual.ErrLeaseLost) {
					_, _ = m.Store.Push(context.Background(), s.Then)
				}
			}
			return errs, err
		},
	}},
	"stores the follow-ups that it can": {Promise: promise.P13, Groups: []string{"then"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			errs, err := m.Store.Settle(context.Background(), ss)
			for i, s := range ss {
				if err == nil && errs[i] != nil && !errors.Is(errs[i], punctual.ErrLeaseLost) {
					_, _ = m.Store.Push(context.Background(), s.Then)
				}
			}
			return errs, err
		},
	}},
	"settles although a follow-up is refused": {Promise: promise.P13, Groups: []string{"then"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			errs, err := m.Store.Settle(context.Background(), ss)
			for i, s := range ss {
				if err == nil && errs[i] != nil && len(s.Then) > 0 {
					s.Then = nil
					_, _ = m.Store.Settle(context.Background(), []punctual.Settlement{s})
				}
			}
			return errs, err
		},
	}},
	"stores one follow-up of several": {Promise: promise.P13, Groups: []string{"then"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			return m.settled(ss, func(s *punctual.Settlement) {
				if storekit.CheckThen(s, limits.DefaultMaxBody) == nil && len(s.Then) > 1 {
					s.Then = s.Then[:1]
				}
			})
		},
	}},
	"pushes follow-ups before it settles": {Promise: promise.P13, Groups: []string{"then"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			out := make([]error, len(ss))
			for i, s := range ss {
				if out[i] = storekit.CheckSettlement(&s, limits.DefaultMaxBody); out[i] == nil {
					out[i] = m.pushThenSettle(s)
				}
			}
			return out, nil
		},
	}},
	"takes a follow-up for one that was pushed long before": {Promise: promise.P7, Groups: []string{"then"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			return m.settled(ss, func(s *punctual.Settlement) {
				for i := range s.Then {
					if s.Then[i].IfExists == punctual.IfExistsReplaceDead {
						s.Then[i].IfExists = punctual.IfExistsKeep
					}
				}
			})
		},
	}},
	"does not wake claims for follow-ups": {Promise: promise.P11, Groups: []string{"then"}, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			if len(c.Topics) > 1 && c.Wait > 0 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"ignores the condition of a push": {Promise: promise.P7, Groups: []string{"ifdue"}, Random: true, Bug: Bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) {
				if n.IfExists == punctual.IfExistsReplace {
					n.IfDue = time.Time{}
				}
			})
		},
	}},
	"ignores the condition of an amendment": {Promise: promise.P5, Groups: []string{"ifdue"}, Random: true, Bug: Bug{
		amend: func(m *mutant, as []punctual.Amendment) ([]punctual.Amended, error) {
			as = slices.Clone(as)
			for i := range as {
				as[i].IfDue = time.Time{}
			}
			return m.Store.Amend(context.Background(), as)
		},
	}},
	"compares a condition with the millisecond that it lies in": {Promise: promise.P13, Groups: []string{"ifdue"}, Random: true, Bug: Bug{
		amend: func(m *mutant, as []punctual.Amendment) ([]punctual.Amended, error) {
			as = slices.Clone(as)
			for i := range as {
				as[i].IfDue = as[i].IfDue.Truncate(time.Millisecond)
			}
			return m.Store.Amend(context.Background(), as)
		},
	}},
	"rounds the due time of a settlement down": {Promise: promise.P2, Groups: []string{"settle"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			return m.settled(ss, func(s *punctual.Settlement) {
				if s.Due.Before(limits.MaxDue) {
					s.Due = s.Due.Truncate(time.Millisecond)
				}
			})
		},
	}},
	"tells of each ack twice": {Promise: promise.P13, Groups: []string{"events"}, Random: true, Bug: Bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			before := m.events()
			errs, err := m.Store.Settle(context.Background(), ss)
			for _, id := range m.events() {
				if e, err := m.Get(context.Background(), id[0], id[1]); err == nil && !slices.Contains(before, id) && bytes.Contains(e.Body, []byte(`"acked"`)) {
					_, _ = m.Store.Push(context.Background(), []punctual.NewMessage{{Topic: id[0], ID: id[1] + "x", Body: e.Body}})
				}
			}
			return errs, err
		},
	}},
	"tells of nothing that a claim ends": {Promise: promise.P13, Groups: []string{"events"}, Random: true, Bug: Bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			before := m.events()
			ds, err := m.Store.Claim(ctx, c)
			for _, id := range m.events() {
				if !slices.Contains(before, id) {
					_, _ = m.Store.Amend(context.Background(), []punctual.Amendment{{Topic: id[0], ID: id[1], Change: punctual.ChangeDelete}})
				}
			}
			return ds, err
		},
	}},
	"leaves companions behind": {Promise: promise.P13, Groups: []string{"companions"}, Bug: Bug{
		remove: func(m *mutant, topic string) (int64, error) {
			kept, err := m.companions(topic)
			if err != nil {
				return 0, err
			}
			n, err := m.Store.DeleteTopic(context.Background(), topic)
			_, _ = m.Store.Push(context.Background(), kept)
			return n, err
		},
	}},
}

// settled changes copies of the settlements, and makes them in memstore in one call.
func (m *mutant) settled(ss []punctual.Settlement, change func(*punctual.Settlement)) ([]error, error) {
	ss = slices.Clone(ss)
	for i := range ss {
		ss[i].Then = slices.Clone(ss[i].Then)
		change(&ss[i])
	}
	return m.Store.Settle(context.Background(), ss)
}

// pushThenSettle pushes the follow-ups of a settlement, and settles without them if none of the
// pushes was refused.
func (m *mutant) pushThenSettle(s punctual.Settlement) error {
	rs, err := m.Store.Push(context.Background(), s.Then)
	if err != nil {
		return err
	}
	for i, r := range rs {
		if r.Err != nil {
			return storekit.FollowUpError(i, r.Err)
		}
	}
	s.Then = nil
	errs, err := m.Store.Settle(context.Background(), []punctual.Settlement{s})
	return cmp.Or(err, errs[0])
}

// events returns the topics and IDs of all events that are ready.
func (m *mutant) events() (ids [][2]string) {
	topics, _ := m.TopicNames(context.Background(), storekit.NameQuery{Suffix: "@events"})
	for _, topic := range topics {
		p, _ := m.List(context.Background(), punctual.ListQuery{Topic: topic, State: punctual.StateReady, Limit: 10_000})
		for _, i := range p.Messages {
			ids = append(ids, [2]string{topic, i.ID})
		}
	}
	return ids
}

// companions returns a new message for each companion that a topic has.
func (m *mutant) companions(topic string) (ms []punctual.NewMessage, err error) {
	names, err := m.TopicNames(context.Background(), storekit.NameQuery{Prefix: topic + "@"})
	for _, name := range names {
		ms = append(ms, punctual.NewMessage{Topic: name})
	}
	return ms, err
}

func isCancel(a punctual.Amendment) bool { return a.Change == punctual.ChangeCancel }

// Open returns a new, empty store with the bug, which reads its time from the clock.
func (b Bug) Open(clock storekit.Clock) punctual.Store {
	return &mutant{
		Store: memstore.New(&memstore.Options{Clock: clock}), Bug: b, clock: clock,
		turn: make(chan struct{}, 1), tokens: make(map[string]int64), bodies: make(map[string][]byte),
	}
}
