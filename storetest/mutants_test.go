package storetest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// This file shows that the suite can fail. Each mutant is memstore with one deliberate bug, and the
// suite must report the promise that the bug breaks.

// recorder is a T that keeps what a case reports instead of failing the test. It is
// also what package rapid wants of a test.
type recorder struct {
	name     string
	mu       sync.Mutex
	failures []string // guarded by mu
	cleanups []func() // guarded by mu
}

func (r *recorder) Helper()             {}
func (r *recorder) Name() string        { return r.name }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Log(...any)          {}
func (r *recorder) Skipf(string, ...any) {
	runtime.Goexit()
}
func (r *recorder) Skip(...any)       { runtime.Goexit() }
func (r *recorder) SkipNow()          { runtime.Goexit() }
func (r *recorder) FailNow()          { runtime.Goexit() }
func (r *recorder) Fail()             { r.Errorf("failed") }
func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) Failed() bool      { return len(r.reported()) > 0 }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) reported() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failures)
}

// record runs f, which may end early, and returns what it reported.
func record(name string, f func(r *recorder)) []string {
	r := &recorder{name: name}
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

// bug is what a mutant does wrong; the methods that it leaves nil are right.
type bug struct {
	push   func(*mutant, []punctual.NewMessage) ([]punctual.PushResult, error)
	claim  func(*mutant, context.Context, punctual.Claim) ([]punctual.Delivery, error)
	settle func(*mutant, []punctual.Settlement) ([]error, error)
	amend  func(*mutant, []punctual.Amendment) ([]punctual.Amended, error)
	now    func(*mutant) time.Time
	stats  func(*mutant, string) (punctual.TopicStats, error)
	story  func(*mutant, *punctual.Finished, error) error
}

// mutant is memstore with a bug.
type mutant struct {
	*memstore.Store
	bug
	clock storekit.Clock
	turn  chan struct{} // has room for one who claims

	mu     sync.Mutex
	count  int               // guarded by mu
	tokens map[string]int64  // by ID; guarded by mu
	bodies map[string][]byte // by ID; guarded by mu
	told   punctual.Finished // the last story; guarded by mu
}

func (m *mutant) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if m.push == nil {
		return m.Store.Push(ctx, ms)
	}
	return m.push(m, slices.Clone(ms))
}

func (m *mutant) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if m.claim == nil {
		return m.Store.Claim(ctx, c)
	}
	return m.claim(m, ctx, c)
}

func (m *mutant) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if m.settle == nil {
		return m.Store.Settle(ctx, ss)
	}
	return m.settle(m, slices.Clone(ss))
}

func (m *mutant) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if m.amend == nil {
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
	if m.story != nil {
		err = m.story(m, &f, err)
	}
	return f, err
}

// each calls the right store once per message, with a changed message.
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

// mutants are the bugs, by what they do wrong.
var mutants = map[string]struct {
	promise string
	groups  []string // the groups of cases to run
	bug     bug
	random  bool // RunRandom must catch it too
}{
	"rounds due times down": {promise: p2, groups: []string{"early"}, random: true, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) {
				n.Due, n.Delay = n.Due.Truncate(time.Millisecond), n.Delay.Truncate(time.Millisecond)
			})
		},
	}},
	"delivers 1 ms early": {promise: p2, groups: []string{"early"}, random: true, bug: bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			for _, topic := range c.Topics {
				p, err := m.List(ctx, punctual.ListQuery{Topic: topic, State: punctual.StateScheduled, Limit: 1})
				if err != nil || len(p.Messages) == 0 {
					continue
				}
				if next := p.Messages[0]; next.Due.Sub(m.clock.Now()) <= time.Millisecond {
					_, _ = m.Store.Amend(ctx, []punctual.Amendment{reschedule(topic, next.ID, 0)})
				}
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"claims more of a topic than PerTopic": {promise: p14, groups: []string{"claim"}, random: true, bug: bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			c.PerTopic *= 2
			return m.Store.Claim(ctx, c)
		},
	}},
	"acks by ID, whatever the token": {promise: p4, groups: []string{"settle", "fencing"}, random: true, bug: bug{
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
	"starts tokens anew with each message": {promise: p4, groups: []string{"fencing"}, random: true, bug: bug{
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
	"says cancelled and does nothing": {promise: p5, groups: []string{"amend"}, random: true, bug: bug{
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
	"deletes as a cancel does": {promise: p13, groups: []string{"amend"}, random: true, bug: bug{
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
	"remembers as the topic asks when that is longer": {promise: p7, groups: []string{"duplicate"}, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			for i := range ms {
				if set, err := m.Settings(context.Background(), ms[i].Topic); err == nil && set.DedupeWindow > ms[i].Remember {
					ms[i].Remember = 0
				}
			}
			return m.Store.Push(context.Background(), ms)
		},
	}},
	"remembers as the message asks only where the topic has a window": {promise: p7, groups: []string{"duplicate"}, random: true, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			for i := range ms {
				if set, err := m.Settings(context.Background(), ms[i].Topic); err == nil && set.DedupeWindow == 0 {
					ms[i].Remember = 0
				}
			}
			return m.Store.Push(context.Background(), ms)
		},
	}},
	"forgets a cancel that came too late": {promise: p5, groups: []string{"amend"}, random: true, bug: bug{
		amend: func(m *mutant, as []punctual.Amendment) ([]punctual.Amended, error) {
			for i, a := range as {
				if info, err := m.Get(context.Background(), a.Topic, a.ID); err == nil && info.State == punctual.StateLeased && isCancel(a) {
					as[i] = reschedule(a.Topic, a.ID, 0) // has no effect on a lease
				}
			}
			return m.Store.Amend(context.Background(), as)
		},
	}},
	"does not count retried attempts": {promise: p6, groups: []string{"attempts", "settle"}, random: true, bug: bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			for i, s := range ss {
				if s.Verb == punctual.SettleRetry && s.Delay >= 0 {
					ss[i].Verb = punctual.SettleSnooze
				}
			}
			return m.Store.Settle(context.Background(), ss)
		},
	}},
	"loses the dead": {promise: p6, groups: []string{"attempts"}, random: true, bug: bug{
		settle: func(m *mutant, ss []punctual.Settlement) ([]error, error) {
			errs, err := m.Store.Settle(context.Background(), ss)
			for _, s := range ss {
				_, _ = m.Purge(context.Background(), punctual.PurgeQuery{Topic: s.Topic, State: punctual.StateDead})
			}
			return errs, err
		},
	}},
	"ignores duplicates": {promise: p7, groups: []string{"duplicate"}, random: true, bug: bug{
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
	"does not honour leases": {promise: p3, groups: []string{"claim", "early"}, random: true, bug: bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			length := c.Lease
			if length == 0 {
				length = 30 * time.Second
			}
			if storekit.CheckClaim(&c) == nil {
				c.Lease = max(punctual.MinLease, length-time.Millisecond)
			}
			ds, err := m.Store.Claim(ctx, c)
			for i := range ds {
				ds[i].LeaseUntil = ds[i].Delivered.Add(length)
			}
			return ds, err
		},
	}},
	"holds claims for longer than their leases": {promise: p3, groups: []string{"claim"}, bug: bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			m.clock.Now() // what it waits for then, it does not care
			return ds, err
		},
	}},
	"has one claim at a time, however long it waits": {promise: p14, groups: []string{"isolation"}, bug: bug{
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
	"has paused topics stop the others": {promise: p14, groups: []string{"isolation"}, bug: bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			for _, topic := range c.Topics {
				if set, err := m.Settings(ctx, topic); err == nil && set.DeliveryPaused {
					return nil, nil
				}
			}
			return m.Store.Claim(ctx, c)
		},
	}},
	"loses one push in seven": {promise: p1, groups: []string{"push", "claim", "amend"}, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			rs, err := m.Store.Push(context.Background(), ms)
			if err == nil && m.next()%7 == 0 && rs[0].Err == nil {
				_, _ = m.Store.Amend(context.Background(), []punctual.Amendment{cancel(rs[0].Topic, rs[0].ID)})
			}
			return rs, err
		},
	}},
	"claims the latest first": {promise: p12, groups: []string{"claim"}, bug: bug{
		claim: func(m *mutant, ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
			ds, err := m.Store.Claim(ctx, c)
			slices.Reverse(ds)
			return ds, err
		},
	}},
	"follows its clock backwards": {promise: p8, groups: []string{"clock"}, random: true, bug: bug{
		now: func(m *mutant) time.Time { return m.clock.Now().UTC().Truncate(time.Millisecond) },
	}},
	"shortens what is due too far away": {promise: p9, groups: []string{"push"}, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) {
				if n.Due.After(punctual.MaxDue) {
					n.Due = punctual.MaxDue
				}
			})
		},
	}},
	"delivers at once what has a negative delay": {promise: p13, groups: []string{"badinput"}, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) { n.Delay = max(n.Delay, 0) })
		},
	}},
	"lets one bad item stop the others": {promise: p13, groups: []string{"push"}, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			for i := range ms {
				if err := storekit.CheckPush(&ms[i], punctual.DefaultMaxBody); err != nil {
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
	"sleeps through wake-ups": {promise: p11, groups: []string{"wait"}, bug: bug{
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
	"keeps the caller's memory": {promise: p1, groups: []string{"ownership"}, bug: bug{
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
	"never expires": {promise: p2, groups: []string{"expiry"}, random: true, bug: bug{
		push: func(m *mutant, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
			return m.each(ms, func(n *punctual.NewMessage) { n.ExpireAfter = 0 })
		},
	}},
	"counts one too many": {promise: p13, groups: []string{"inspect"}, bug: bug{
		stats: func(m *mutant, topic string) (punctual.TopicStats, error) {
			st, err := m.Store.Stats(context.Background(), topic)
			st.Ready++
			return st, err
		},
	}},
	"keeps no story of what is cancelled": {promise: p13, groups: []string{"finished"}, random: true, bug: bug{
		story: func(_ *mutant, f *punctual.Finished, err error) error {
			if f.Outcome == punctual.OutcomeCancelled {
				return storekit.NoStoryError(f.Topic, f.ID)
			}
			return err
		},
	}},
	"forgets when a lease began": {promise: p13, groups: []string{"finished"}, random: true, bug: bug{
		story: func(_ *mutant, f *punctual.Finished, err error) error {
			f.Delivered = time.Time{}
			return err
		},
	}},
	"tells what was long forgotten": {promise: p13, groups: []string{"finished"}, bug: bug{
		story: func(m *mutant, f *punctual.Finished, err error) error {
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
	"keeps a story only of those that remember IDs": {promise: p13, groups: []string{"finished"}, random: true, bug: bug{
		story: func(m *mutant, f *punctual.Finished, err error) error {
			if set, _ := m.Settings(context.Background(), f.Topic); err == nil && set.DedupeWindow == 0 {
				return storekit.NoStoryError(f.Topic, f.ID)
			}
			return err
		},
	}},
}

func isCancel(a punctual.Amendment) bool { return a.Change == punctual.ChangeCancel }

// opener opens fresh stores with the bug.
func (b bug) opener() opener {
	return opener{
		waitLimit: 100 * time.Millisecond,
		open: func(clock storekit.Clock) punctual.Store {
			return &mutant{
				Store: memstore.New(&memstore.Options{Clock: clock}), bug: b, clock: clock,
				turn: make(chan struct{}, 1), tokens: make(map[string]int64), bodies: make(map[string][]byte),
			}
		},
	}
}

// beginsWithPromise is what every failure of the suite must match.
var beginsWithPromise = regexp.MustCompile(`^P([1-9]|1[0-4]) [a-z]`)

func TestSlowSuiteKillsMutants(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		mut := mutants[name]
		t.Run(name, func(t *testing.T) {
			killers := make(map[string]int)
			// A bug that shows only when calls meet may need another try on a busy machine.
			for try := 0; try < 20 && killers[mut.promise] == 0; try++ {
				for _, g := range groups() {
					if !slices.Contains(mut.groups, g.name) {
						continue
					}
					for _, c := range g.cases {
						for _, f := range record(c.name, func(r *recorder) { runCase(r, c, mut.bug.opener()) }) {
							if !beginsWithPromise.MatchString(f) {
								t.Errorf("case %q reported %q; want it to begin with a promise", c.name, f)
							}
							killers[strings.SplitN(f, ":", 2)[0]]++
						}
					}
				}
			}
			if killers[mut.promise] == 0 {
				t.Errorf("the store %s, and the suite reported %v; want %s broken", name, killers, mut.promise)
			}
		})
	}
}

// plain is memstore without its optional interface FinishedKeeper, and lossy lets it be set all the same.
type plain struct {
	punctual.Store
	punctual.Inspector
	lossy bool
}

func (p plain) Configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	set, err := p.Settings(ctx, topic)
	if err != nil {
		return set, err
	}
	if _, err := storekit.ApplySettings(set, patch, storekit.Abilities{Partitions: 1, KeepsFinished: p.lossy}); err != nil {
		return set, err
	}
	return p.Inspector.Configure(ctx, topic, patch)
}

// TestStoreWithoutStories: a store that keeps no finished messages passes, unless it takes the setting and forgets it.
func TestStoreWithoutStories(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		failed := 0
		for _, g := range groups() {
			if g.name != "finished" && g.name != "topics" && g.name != "close" {
				continue
			}
			for _, c := range g.cases {
				f := record(c.name, func(r *recorder) {
					runCase(r, c, opener{open: func(clock storekit.Clock) punctual.Store {
						s := memstore.New(&memstore.Options{Clock: clock})
						return plain{s, s, lossy}
					}})
				})
				if failed += len(f); !lossy && len(f) > 0 {
					t.Errorf("%s/%s: %v", g.name, c.name, f)
				}
			}
		}
		if lossy && failed == 0 {
			t.Error("a store that keeps no stories took the setting, and the suite did not show it")
		}
	}
}

// TestRecorderPassesTheRightStore shows that a mutant dies of its bug, not of the way in
// which the cases are run here.
func TestRecorderPassesTheRightStore(t *testing.T) {
	var right bug
	for _, g := range groups() {
		for _, c := range g.cases {
			o := right.opener()
			o.waitLimit = 0
			if f := record(c.name, func(r *recorder) { runCase(r, c, o) }); len(f) > 0 {
				t.Errorf("%s/%s: the right store failed: %v", g.name, c.name, f)
			}
		}
	}
}
