// Package consumers records which programs claim messages and hold leases, as far as their calls
// pass this process. The records are only in memory, and their number is bounded.
package consumers

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit"
)

const (
	// mostRows is the most consumers that have a row of their own. A consumer of two topics has two
	// rows. Further consumers share one row for each topic. The consumers of one user may have as
	// many rows as they leave free, so at most half: a user that invents names for its consumers
	// does not push those of others out of their rows (P14). Consumers without a user may have all
	// rows.
	mostRows = 1000
	// mostTopics is the most topics that have such a shared row. The consumers of further topics
	// are counted together and not shown.
	mostTopics = 1000
	// mostLeases is the most leases that are followed.
	mostLeases = 200_000
	// keptFor is how long after its last call a consumer is still shown that neither waits in a
	// claim nor holds a lease.
	keptFor = 10 * time.Second
	// RateMinutes is how many minutes Claimed and Settled of a storekit.Consumer count.
	RateMinutes = 5
)

// Caller identifies the program that makes a call.
type Caller struct{ User, Address, Name string }

// Tracker records which consumers work on which topic. Its methods are safe for concurrent use.
//
// The number of leases that it shows may be too high, because a lease that ended outside of this
// process, for instance by a purge, counts until it would have run out. It is too low while more
// than mostLeases leases are held, because the Tracker follows no more.
type Tracker struct {
	since      time.Time
	seed       maphash.Seed
	mostLeases int // the constant mostLeases, less in tests

	mu     sync.Mutex
	rows   map[key]*row     // guarded by mu
	users  map[string]int   // guarded by mu: how many of rows each user has
	rest   row              // guarded by mu: the consumers of topics for which others has no room
	others map[string]*row  // guarded by mu: by topic, the consumers for which rows has no room
	leases map[lease]*ended // guarded by mu
	swept  time.Time        // guarded by mu: when makeRoom last removed leases that had run out
}

type key struct {
	topic  string
	caller Caller
}

// lease identifies a lease. It has hashes of topic and ID, because an ID may be long.
type lease struct {
	topic, id uint64
	token     int64
}

// ended says when a lease ends unless it is extended, and which consumer holds it.
type ended struct {
	lease
	place  int // the index in row.leases
	row    *row
	until  time.Time
	length time.Duration
}

// byEnd orders the leases of a row by their ends.
var byEnd = heap.Order[*ended]{
	Before: func(a, b *ended) bool { return a.until.Before(b.until) },
	Place:  func(e *ended) *int { return &e.place },
}

// row is one consumer of one topic, or all those that share a row.
type row struct {
	key
	waiting int
	leases  []*ended // a queue of byEnd
	seen    time.Time
	minutes [RateMinutes]minute
}

// minute has the counts of one minute, which is numbered from 1970 on.
type minute struct {
	number           int64
	claimed, settled int64
}

// New returns a Tracker that has seen nothing.
func New() *Tracker {
	return &Tracker{
		since: time.Now(), seed: maphash.MakeSeed(), mostLeases: mostLeases,
		rows: make(map[key]*row), users: make(map[string]int), others: make(map[string]*row), leases: make(map[lease]*ended),
	}
}

// Waits notes that a claim is under way until the function that it returns is called. It keeps 8
// bytes for each topic, of which a claim has at most limits.MaxClaimTopics.
func (t *Tracker) Waits(c Caller, topics []string) (done func()) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]*row, 0, len(topics))
	for _, topic := range topics {
		r := t.admit(key{topic, c}, now)
		r.waiting, r.seen = r.waiting+1, now
		rows = append(rows, r)
	}
	return func() {
		now := time.Now()
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, r := range rows {
			r.waiting, r.seen = r.waiting-1, now
		}
	}
}

// Claimed notes that a consumer got messages. A delivery that is noted already, because a claim was
// answered twice, is not noted again.
func (t *Tracker) Claimed(c Caller, ds []punctual.Delivery) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range ds {
		d := &ds[i]
		l := t.leaseOf(d.Topic, d.ID, d.Token)
		if t.leases[l] != nil {
			continue
		}
		r := t.admit(key{d.Topic, c}, now)
		r.seen = now
		r.at(now).claimed++
		if t.hasRoom(now) {
			length := d.LeaseUntil.Sub(d.Delivered)
			e := &ended{lease: l, row: r, until: now.Add(length), length: length}
			t.leases[l] = e
			byEnd.Push(&r.leases, e)
		}
	}
}

// Settled notes a settlement that was sent to the store; err is the store's answer. It takes an
// extension without a Delay to be as long as the lease was when it was claimed. A caller that knows
// the setting of the topic sets the Delay.
func (t *Tracker) Settled(s *punctual.Settlement, err error) {
	if err != nil && !errors.Is(err, punctual.ErrLeaseLost) && !errors.Is(err, punctual.ErrCancelled) {
		return // the lease is still held, as far as is known
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.leaseOf(s.Topic, s.ID, s.Token)
	e := t.leases[l]
	if e == nil {
		return
	}
	e.row.seen = now
	switch {
	case s.Verb == punctual.SettleExtend && err == nil:
		e.until = now.Add(cmp.Or(s.Delay, e.length))
		byEnd.Fix(e.row.leases, e)
		return
	case s.Verb == punctual.SettleExtend && errors.Is(err, punctual.ErrCancelled):
		return // the lease stays until its handler settles the message, or until it runs out
	}
	t.forget(e)
	if err == nil && s.Verb != punctual.SettleRelease {
		e.row.at(now).settled++
	}
}

// Returned notes that the leases of messages are over without a settlement, for instance because
// the messages did not reach the consumer that claimed them.
func (t *Tracker) Returned(ds []punctual.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range ds {
		l := t.leaseOf(ds[i].Topic, ds[i].ID, ds[i].Token)
		if e := t.leases[l]; e != nil {
			t.forget(e)
		}
	}
}

// Consumers implements storekit.ConsumerReporter. It never fails.
func (t *Tracker) Consumers(_ context.Context, topic string) (storekit.Consumers, error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	out := storekit.Consumers{Since: t.since}
	for k, r := range t.rows {
		if k.topic == topic {
			out.All = append(out.All, r.consumer(now))
		}
	}
	if r := t.others[topic]; r != nil {
		out.Others = r.consumer(now)
	}
	slices.SortFunc(out.All, func(a, b storekit.Consumer) int {
		return cmp.Or(cmp.Compare(b.Leases, a.Leases), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.User, b.User),
			cmp.Compare(a.Address, b.Address), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// Observer returns an Observer that feeds the Tracker in a program whose workers are the only
// consumer. That consumer has the name and neither user nor address.
func (t *Tracker) Observer(name string) *punctual.Observer {
	c := Caller{Name: name}
	return &punctual.Observer{
		OnStart:  func(_ context.Context, d *punctual.Delivery) { t.Claimed(c, []punctual.Delivery{*d}) },
		OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, err error) { t.Settled(&s, err) },
		OnLeaseLost: func(_ context.Context, d *punctual.Delivery, _ error) {
			t.Returned([]punctual.Delivery{*d})
		},
	}
}

// leaseOf returns what identifies a lease. The caller holds mu.
func (t *Tracker) leaseOf(topic, id string, token int64) lease {
	return lease{maphash.String(t.seed, topic), maphash.String(t.seed, id), token}
}

// admit returns the row of a consumer. When there is no room for a further row, that is the shared
// row of its topic, or rest. The caller holds mu.
func (t *Tracker) admit(k key, now time.Time) *row {
	if r := t.rows[k]; r != nil {
		return r
	}
	mayHave := func() bool {
		free := mostRows - len(t.rows)
		return free > 0 && (k.caller.User == "" || t.users[k.caller.User] < free)
	}
	if !mayHave() {
		t.makeRoom(now)
	}
	if mayHave() {
		r := &row{key: key{strings.Clone(k.topic), Caller{strings.Clone(k.caller.User), strings.Clone(k.caller.Address), strings.Clone(k.caller.Name)}}}
		t.rows[r.key] = r
		t.users[r.caller.User]++
		return r
	}
	if others := t.others[k.topic]; others != nil {
		return others
	}
	if len(t.others) >= mostTopics {
		return &t.rest
	}
	r := &row{key: key{topic: strings.Clone(k.topic)}}
	t.others[r.topic] = r
	return r
}

// hasRoom reports whether one more lease can be followed. The caller holds mu.
func (t *Tracker) hasRoom(now time.Time) bool {
	if len(t.leases) >= t.mostLeases {
		t.makeRoom(now)
	}
	return len(t.leases) < t.mostLeases
}

// makeRoom removes leases that have run out and consumers that have gone, at most once a second.
// The caller holds mu.
func (t *Tracker) makeRoom(now time.Time) {
	if now.Sub(t.swept) >= time.Second {
		t.swept = now
		t.sweep(now)
	}
}

// sweep removes leases that have run out, and consumers that neither wait nor hold a lease and have
// made no call for keptFor. The caller holds mu.
func (t *Tracker) sweep(now time.Time) {
	gone := func(r *row) bool {
		for len(r.leases) > 0 && !r.leases[0].until.After(now) {
			t.forget(r.leases[0])
		}
		return r.waiting == 0 && len(r.leases) == 0 && now.Sub(r.seen) >= keptFor
	}
	gone(&t.rest)
	for k, r := range t.rows {
		if gone(r) {
			delete(t.rows, k)
			if t.users[k.caller.User]--; t.users[k.caller.User] == 0 {
				delete(t.users, k.caller.User)
			}
		}
	}
	for topic, r := range t.others {
		if gone(r) {
			delete(t.others, topic)
		}
	}
}

// forget removes a lease. The caller holds mu.
func (t *Tracker) forget(e *ended) {
	delete(t.leases, e.lease)
	byEnd.Remove(&e.row.leases, e)
}

// at returns the counts of the present minute.
func (r *row) at(now time.Time) *minute {
	number := now.Unix() / 60
	m := &r.minutes[number%RateMinutes]
	if m.number != number {
		*m = minute{number: number}
	}
	return m
}

// consumer returns the row as storekit.ConsumerReporter shows it.
func (r *row) consumer(now time.Time) storekit.Consumer {
	out := storekit.Consumer{
		User: r.caller.User, Address: r.caller.Address, Name: r.caller.Name,
		Waiting: r.waiting, Leases: len(r.leases), LastSeen: r.seen,
	}
	if len(r.leases) > 0 {
		out.NextEnd = r.leases[0].until
	}
	for _, m := range r.minutes {
		if now.Unix()/60-m.number < RateMinutes {
			out.Claimed, out.Settled = out.Claimed+m.claimed, out.Settled+m.settled
		}
	}
	return out
}
