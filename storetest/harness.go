package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// noon is where the clock of every case starts: whole milliseconds, far from any edge.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// The topic that most cases use, and a second one.
const (
	orders = "orders"
	mails  = "mails"
)

// harness is the store under test in one case, with the clock that the case moves. Its helpers name
// the promise of the case when they fail it, except where they see that another promise is broken,
// such as P2 by a delivery before its due time.
type harness struct {
	T
	promise string
	opener  opener
	ctx     context.Context
	clock   *storekit.ManualClock
	store   punctual.Store
	closed  bool // the case has closed the store
	// remember is the NewMessage.Remember of each message that the helpers push without one of its
	// own.
	remember time.Duration
}

func newHarness(t T, promise string, o opener) *harness {
	if o.waitLimit == 0 {
		o.waitLimit = defaultWaitLimit
	}
	s := &harness{T: t, promise: promise, opener: o, ctx: context.Background()}
	s.clock = storekit.NewManualClock(noon)
	s.store = o.open(s.clock)
	return s
}

// fail ends the case; the text says what was seen and what should have been.
func (s *harness) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s: %s", s.promise, fmt.Sprintf(format, args...))
}

// under runs f, whose failures name the given promise instead of the case's own.
func (s *harness) under(promise string, f func()) {
	s.Helper()
	old := s.promise
	s.promise = promise
	f()
	s.promise = old
}

// inspector returns the store's Inspector. It skips the case when the store has none.
func (s *harness) inspector() punctual.Inspector {
	s.Helper()
	i, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs an Inspector: %v", err)
	}
	return i
}

func (s *harness) hasInspector() bool {
	_, err := punctual.As[punctual.Inspector](s.store)
	return err == nil
}

// abilities returns the abilities of the store: none for a store that is no
// storekit.AbilityReporter.
func (s *harness) abilities() storekit.Abilities {
	s.Helper()
	a, err := punctual.As[storekit.AbilityReporter](s.store)
	if err != nil {
		return storekit.Abilities{}
	}
	can, err := a.Abilities(s.ctx)
	if err != nil {
		s.fail("Abilities: unexpected error: %v", err)
	}
	return can
}

func (s *harness) advance(d time.Duration) { s.clock.Advance(d) }

// now returns the time of the store's clock.
func (s *harness) now() time.Time {
	s.Helper()
	t, err := s.store.Now(s.ctx)
	if err != nil {
		s.fail("Now: unexpected error: %v", err)
	}
	return t
}

// reopen ends the store and opens its data again (Reopen), or skips the case.
func (s *harness) reopen() {
	s.Helper()
	if s.opener.reopen == nil {
		s.Skipf("skipped: the case needs storetest.WithReopen")
	}
	s.store = s.opener.reopen(s.store, s.clock)
}

// CheckSound runs the store's own scan, if it has one, and fails the test when the scan finds
// damage, or counts other topics or messages than the statistics of the Inspector. Nobody else may
// use the store meanwhile.
func CheckSound(t T, store punctual.Store) {
	t.Helper()
	s := &harness{T: t, promise: p1, ctx: context.Background(), store: store}
	s.checkSound()
}

// checkSound is CheckSound for the store of a case.
func (s *harness) checkSound() {
	s.Helper()
	c, err := punctual.As[storekit.Checker](s.store)
	if err != nil {
		return
	}
	r, err := c.Check(s.ctx, nil)
	if err != nil {
		s.fail("Check after the case: %v", err)
	}
	if len(r.Problems) > 0 {
		s.fail("the store is damaged after the case: %q", r.Problems)
	}
	s.checkCounts(r)
}

// checkCounts compares the counts of a scan with the statistics, where the store has an Inspector.
func (s *harness) checkCounts(r storekit.CheckReport) {
	s.Helper()
	i, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return
	}
	all, err := i.Topics(s.ctx)
	if err != nil {
		s.fail("Topics after the case: %v", err)
	}
	var live, dead int64
	for _, t := range all {
		live, dead = live+t.Live(), dead+t.Dead
	}
	if live != r.Live || dead != r.Dead || int64(len(all)) != r.Topics {
		s.fail("after the case a scan found %d topics, %d live and %d dead messages; the statistics say %d, %d and %d",
			r.Topics, r.Live, r.Dead, len(all), live, dead)
	}
}

// pushAll pushes a batch and returns a result per item.
func (s *harness) pushAll(ms ...punctual.NewMessage) []punctual.PushResult {
	s.Helper()
	for i := range ms {
		ms[i].Remember = cmp.Or(ms[i].Remember, s.remember)
	}
	rs, err := s.store.Push(s.ctx, ms)
	if err != nil {
		s.fail("push of %d messages: unexpected error of the call: %v", len(ms), err)
	}
	if len(rs) != len(ms) {
		s.fail("push of %d messages returned %d results", len(ms), len(rs))
	}
	return rs
}

// try pushes one message that may be refused.
func (s *harness) try(m punctual.NewMessage) punctual.PushResult {
	s.Helper()
	return s.pushAll(m)[0]
}

// push pushes one message that must be stored.
func (s *harness) push(m punctual.NewMessage) punctual.PushResult {
	s.Helper()
	r := s.try(m)
	if r.Err != nil || r.Status != punctual.PushStored {
		s.fail("push of %s/%s: status %q, error %v; want stored", m.Topic, m.ID, r.Status, r.Err)
	}
	return r
}

// order returns a message of topic orders, due after delay.
func order(id string, delay time.Duration) punctual.NewMessage {
	return punctual.NewMessage{Topic: orders, ID: id, Body: []byte("body of " + id), Delay: delay}
}

// claim claims in the goroutine of the case, must succeed, and checks what holds for every
// delivery.
func (s *harness) claim(c punctual.Claim) []punctual.Delivery {
	s.Helper()
	ds, err := s.store.Claim(s.ctx, c)
	s.noneWith(err, ds)
	if err != nil {
		s.fail("claim from %v: unexpected error: %v", c.Topics, err)
	}
	s.checkDeliveries(c, ds)
	return ds
}

// noneWith: a claim returns deliveries or an error, never both.
func (s *harness) noneWith(err error, ds []punctual.Delivery) {
	s.Helper()
	if err != nil && len(ds) > 0 {
		s.fail("a claim returned %v together with the error %v", ids(ds), err)
	}
}

// checkDeliveries checks what must hold of everything that a claim returns.
func (s *harness) checkDeliveries(c punctual.Claim, ds []punctual.Delivery) {
	s.Helper()
	if most := cmp.Or(c.Max, len(c.IDs)); len(ds) > most {
		s.fail("a claim of at most %d messages returned %d", most, len(ds))
	}
	seen := make(map[[2]string]bool, len(ds))
	for _, d := range ds {
		name := [2]string{d.Topic, d.ID}
		if seen[name] {
			s.Fatalf("%s: one claim returned %s/%s twice", p3, d.Topic, d.ID)
		}
		seen[name] = true
		if d.Delivered.Before(d.Due) {
			s.Fatalf("%s: %s/%s was delivered at %v, %v before it was due", p2, d.Topic, d.ID, d.Delivered, d.Due.Sub(d.Delivered))
		}
		if !d.LeaseUntil.After(d.Delivered) {
			s.Fatalf("%s: the lease of %s/%s ends at %v, not after its begin %v", p3, d.Topic, d.ID, d.LeaseUntil, d.Delivered)
		}
		if d.Attempt < 1 {
			s.Fatalf("%s: %s/%s was delivered as attempt %d", p6, d.Topic, d.ID, d.Attempt)
		}
		s.checkTimes(d)
	}
}

// checkTimes: all times are whole milliseconds in UTC.
func (s *harness) checkTimes(d punctual.Delivery) {
	s.Helper()
	for name, t := range map[string]time.Time{
		"Due": d.Due, "FirstDue": d.FirstDue, "Created": d.Created, "Expires": d.Expires, "Delivered": d.Delivered, "LeaseUntil": d.LeaseUntil,
	} {
		if t.Nanosecond()%1e6 != 0 || t.Location() != time.UTC {
			s.fail("%s of %s/%s is %v: want whole milliseconds in UTC", name, d.Topic, d.ID, t)
		}
	}
}

// take claims up to n messages of a topic.
func (s *harness) take(topic string, n int) []punctual.Delivery {
	s.Helper()
	return s.claim(punctual.Claim{Topics: []string{topic}, Max: n})
}

// one claims exactly one message although more are asked for.
func (s *harness) one(topic string) punctual.Delivery {
	s.Helper()
	ds := s.take(topic, 10)
	if len(ds) != 1 {
		s.fail("a claim from %s returned %d messages %v; want exactly one", topic, len(ds), ids(ds))
	}
	return ds[0]
}

// none claims from a topic and fails the case if anything comes; when says in which situation.
func (s *harness) none(topic, when string) {
	s.Helper()
	if ds := s.take(topic, 10); len(ds) != 0 {
		s.fail("%s, a claim from %s returned %v; want nothing", when, topic, ids(ds))
	}
}

// settle settles one lease.
func (s *harness) settle(d punctual.Delivery, v punctual.Verb, delay time.Duration) error {
	s.Helper()
	return s.settleAs(punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v, Delay: delay})
}

func (s *harness) settleAs(x punctual.Settlement) error {
	s.Helper()
	errs, err := s.store.Settle(s.ctx, []punctual.Settlement{x})
	if err != nil {
		s.fail("%s of %s/%s: unexpected error of the call: %v", x.Verb, x.Topic, x.ID, err)
	}
	if len(errs) != 1 {
		s.fail("%s of one message returned %d results", x.Verb, len(errs))
	}
	return errs[0]
}

// done settles a lease and must succeed.
func (s *harness) done(d punctual.Delivery, v punctual.Verb, delay time.Duration) {
	s.Helper()
	if err := s.settle(d, v, delay); err != nil {
		s.fail("%s of %s/%s with its current token: unexpected error: %v", v, d.Topic, d.ID, err)
	}
}

func (s *harness) ack(d punctual.Delivery) {
	s.Helper()
	s.done(d, punctual.SettleAck, 0)
}

// wantErr compares an error with the sentinel that it must wrap.
func (s *harness) wantErr(got, want error, what string, args ...any) {
	s.Helper()
	if !errors.Is(got, want) {
		s.fail("%s: got error %v; want %v", fmt.Sprintf(what, args...), got, want)
	}
}

// amend amends one message, whatever the answer.
func (s *harness) amend(a punctual.Amendment) punctual.Amended {
	s.Helper()
	os, err := s.store.Amend(s.ctx, []punctual.Amendment{a})
	if err != nil {
		s.fail("%s of %s/%s: unexpected error of the call: %v", a.Change, a.Topic, a.ID, err)
	}
	if len(os) != 1 {
		s.fail("%s of one message returned %d answers", a.Change, len(os))
	}
	return os[0]
}

// outcome amends one message. If want is nil the amendment must be made, else its answer must wrap
// want.
func (s *harness) outcome(a punctual.Amendment, want error, when string) punctual.Amended {
	s.Helper()
	o := s.amend(a)
	if !errors.Is(o.Err, want) {
		s.fail("%s of a message that is %s: got %v; want %v", a.Change, when, o.Err, want)
	}
	if o.Err != nil && !o.Due.IsZero() {
		s.fail("%s of a message that is %s was not made, %v, and reports due %v", a.Change, when, o.Err, o.Due)
	}
	return o
}

func cancel(topic, id string) punctual.Amendment {
	return punctual.Amendment{Change: punctual.ChangeCancel, Topic: topic, ID: id}
}

func reschedule(topic, id string, delay time.Duration) punctual.Amendment {
	return punctual.Amendment{Change: punctual.ChangeReschedule, Topic: topic, ID: id, Delay: delay}
}

func requeue(topic, id string, delay time.Duration) punctual.Amendment {
	return punctual.Amendment{Change: punctual.ChangeRequeue, Topic: topic, ID: id, Delay: delay}
}

func remove(topic, id string) punctual.Amendment {
	return punctual.Amendment{Change: punctual.ChangeDelete, Topic: topic, ID: id}
}

// configure changes the settings of a topic. It skips the case when the store has no Inspector.
func (s *harness) configure(topic string, p punctual.SettingsPatch) punctual.Settings {
	s.Helper()
	got, err := s.inspector().Configure(s.ctx, topic, p)
	if err != nil {
		s.fail("Configure of %s: unexpected error: %v", topic, err)
	}
	return got
}

// get returns a message that must be there. It skips the case when the store has no Inspector.
func (s *harness) get(topic, id string) punctual.Info {
	s.Helper()
	info, err := s.inspector().Get(s.ctx, topic, id)
	if err != nil {
		s.fail("Get of %s/%s: unexpected error: %v", topic, id, err)
	}
	return info
}

// wantState checks the state of a message, where the store has an Inspector. With StateNone no
// message with the ID may be stored.
func (s *harness) wantState(topic, id string, want punctual.State) {
	s.Helper()
	i, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return
	}
	info, err := i.Get(s.ctx, topic, id)
	switch {
	case errors.Is(err, punctual.ErrNotFound):
		if want != punctual.StateNone {
			s.fail("%s/%s is gone; want it %s", topic, id, want)
		}
	case err != nil:
		s.fail("Get of %s/%s: unexpected error: %v", topic, id, err)
	case want == punctual.StateNone:
		s.fail("%s/%s is still there, %s; want it gone", topic, id, info.State)
	case info.State != want:
		s.fail("%s/%s is %s; want %s", topic, id, info.State, want)
	}
}

// wantDead checks that a message is dead for the given reason, where the store has an Inspector.
func (s *harness) wantDead(topic, id string, why punctual.DeathReason) {
	s.Helper()
	s.wantState(topic, id, punctual.StateDead)
	if !s.hasInspector() {
		return
	}
	if info := s.get(topic, id); info.Reason != why {
		s.fail("%s/%s is dead with reason %q; want %q", topic, id, info.Reason, why)
	}
}

func ids(ds []punctual.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.ID
	}
	return out
}

// wantOrder compares the order of claimed messages, as far as it is promised (P12).
func (s *harness) wantOrder(ds []punctual.Delivery, want ...string) {
	s.Helper()
	of := s.opener.partition
	if of == nil {
		of = func(string) int { return 0 }
	}
	inOrder := func(ids []string) []string {
		ids = slices.Clone(ids)
		slices.SortStableFunc(ids, func(a, b string) int { return of(a) - of(b) })
		return ids
	}
	if !slices.Equal(inOrder(ids(ds)), inOrder(want)) {
		s.fail("messages were claimed in the order %v; want %v, by due time or end of lease, within each partition", ids(ds), want)
	}
}

func ptr[V any](v V) *V { return &v }

// waiter is a Claim that runs in a goroutine, which the case's cleanup waits for.
type waiter struct {
	s    *harness
	c    punctual.Claim
	done chan struct{}
	ds   []punctual.Delivery // to be read only once done is closed
	err  error               // to be read only once done is closed
}

// wait starts a claim in a goroutine. The claim ends with ctx, or at the latest with the case.
func (s *harness) wait(ctx context.Context, c punctual.Claim) *waiter {
	ctx, stop := context.WithCancel(ctx)
	w := &waiter{s: s, c: c, done: make(chan struct{})}
	store := s.store
	go func() {
		defer close(w.done)
		w.ds, w.err = store.Claim(ctx, c)
	}()
	s.Cleanup(func() {
		stop()
		w.over()
	})
	return w
}

// over reports whether the claim returned within the waitLimit of the case.
func (w *waiter) over() bool { return w.s.ends(w.done) }

// ends reports whether done is closed within the waitLimit of the case.
func (s *harness) ends(done <-chan struct{}) bool {
	timer := time.NewTimer(s.opener.waitLimit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// result returns what the claim returned. The case fails when the claim does not return within its
// waitLimit.
func (w *waiter) result(after string) ([]punctual.Delivery, error) {
	w.s.Helper()
	if !w.over() {
		w.s.Fatalf("%s: a claim waiting on %v still sleeps after %s", p11, w.c.Topics, after)
	}
	w.s.noneWith(w.err, w.ds)
	if w.err == nil {
		w.s.checkDeliveries(w.c, w.ds)
	}
	return w.ds, w.err
}

// wakes expects exactly one delivery with the given ID.
func (w *waiter) wakes(id, after string) punctual.Delivery {
	w.s.Helper()
	ds, err := w.result(after)
	if err != nil || len(ds) != 1 || ds[0].ID != id {
		w.s.fail("a waiting claim returned %v, %v after %s; want %s", ids(ds), err, after, id)
	}
	return ds[0]
}
