package diskstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
)

// workload calls a store from several goroutines and writes down each call before and after
// it is made.
type workload struct {
	store punctual.Store
	// emit takes one event. It is called concurrently.
	emit func(event)
	// prefix begins all IDs.
	prefix string
	seed   uint64

	calls, ids atomic.Int64

	mu   sync.Mutex
	pool []string // guarded by mu: IDs to cancel or reschedule
}

const topicCount = 3

// topicOf is the topic in which a message of the workload lies.
func topicOf(id string) string {
	return fmt.Sprintf("t%d", crc32.ChecksumIEEE([]byte(id))%topicCount)
}

func allTopicNames() (names []string) {
	for i := range topicCount {
		names = append(names, fmt.Sprintf("t%d", i))
	}
	return names
}

// bodyOf is the body of a message of the workload: mostly small, sometimes larger than a block.
func bodyOf(id string) []byte {
	sum := crc32.ChecksumIEEE([]byte("body of " + id))
	size := 1 + int(sum%200)
	if sum%29 == 0 {
		size = 5000
	}
	return []byte(strings.Repeat(id+" ", size/len(id)+1)[:size])
}

// run calls the store until ctx ends, or until the store fails.
func (w *workload) run(ctx context.Context) {
	var all sync.WaitGroup
	for i, work := range []func(context.Context, *rand.Rand) error{w.push, w.push, w.amend, w.claim, w.claim} {
		r := rand.New(rand.NewPCG(w.seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				if err := work(ctx, r); err != nil {
					return
				}
			}
		})
	}
	all.Wait()
}

// do makes one call and writes it down before and after.
func (w *workload) do(kind string, asked []fact, f func() ([]fact, error)) error {
	n := w.calls.Add(1)
	w.emit(event{Kind: kind, N: n, Items: asked})
	got, err := f()
	e := event{Kind: kind, N: n, Done: true, Items: got}
	if err != nil {
		e.Err, e.Definite = err.Error(), punctual.Definite(err)
	}
	w.emit(e)
	return err
}

func (w *workload) push(_ context.Context, r *rand.Rand) error { return w.pushMany(r, 1+r.IntN(4)) }

// pushMuch pushes more than the database's first buffer holds, so that it begins a new log
// and writes a table.
func (w *workload) pushMuch(_ context.Context, r *rand.Rand) error { return w.pushMany(r, 800) }

func (w *workload) pushMany(r *rand.Rand, n int) error {
	now := time.Now().UnixMilli()
	asked := make([]fact, n)
	ms := make([]punctual.NewMessage, len(asked))
	for i := range asked {
		id := fmt.Sprintf("%s-%d", w.prefix, w.ids.Add(1))
		asked[i] = fact{ID: id, Due: now + someDelay(r), Max: plenty}
		if r.IntN(10) == 0 {
			asked[i].Max = 3
		}
		ms[i] = punctual.NewMessage{
			Topic: topicOf(id), ID: id, Body: bodyOf(id), Due: punctual.FromMillis(asked[i].Due), MaxAttempts: asked[i].Max,
		}
	}
	return w.do("push", asked, func() ([]fact, error) {
		rs, err := w.store.Push(context.Background(), ms)
		got := make([]fact, len(rs))
		for i, p := range rs {
			got[i] = fact{ID: p.ID, Status: word(p.Status.String(), p.Err)}
			w.keep(p.ID)
		}
		return got, err
	})
}

// someDelay is due at once, soon, or far ahead, in ms.
func someDelay(r *rand.Rand) int64 {
	switch r.IntN(10) {
	case 0, 1:
		return 0
	case 2:
		return 3_600_000
	}
	return int64(r.IntN(30))
}

// word is the outcome of one item in one word.
func word(status string, err error) string {
	if err != nil {
		return punctual.ErrorCode(err)
	}
	return status
}

const poolSize = 256

func (w *workload) keep(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pool) < poolSize {
		w.pool = append(w.pool, id)
		return
	}
	w.pool[int(w.ids.Load())%poolSize] = id
}

// some returns up to n different IDs that were pushed.
func (w *workload) some(r *rand.Rand, n int) (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range min(n, len(w.pool)) {
		i := r.IntN(len(w.pool))
		ids = append(ids, w.pool[i])
		w.pool[i] = w.pool[len(w.pool)-1]
		w.pool = w.pool[:len(w.pool)-1]
	}
	return ids
}

func (w *workload) amend(ctx context.Context, r *rand.Rand) error {
	ids := w.some(r, 1+r.IntN(3))
	if len(ids) == 0 {
		return w.push(ctx, r)
	}
	kind, change := "cancel", punctual.ChangeCancel
	if r.IntN(2) == 0 {
		kind, change = "reschedule", punctual.ChangeReschedule
	}
	now := time.Now().UnixMilli()
	asked := make([]fact, len(ids))
	as := make([]punctual.Amendment, len(ids))
	for i, id := range ids {
		asked[i] = fact{ID: id}
		as[i] = punctual.Amendment{Change: change, Topic: topicOf(id), ID: id}
		if change == punctual.ChangeReschedule {
			asked[i].Due = now + someDelay(r)
			as[i].Due = punctual.FromMillis(asked[i].Due)
		}
	}
	return w.do(kind, asked, func() ([]fact, error) {
		os, err := w.store.Amend(context.Background(), as)
		got := make([]fact, len(os))
		for i, o := range os {
			got[i] = fact{ID: ids[i], Status: word(o.Status.String(), o.Err)}
			if o.Status == punctual.Rescheduled {
				w.keep(ids[i])
			}
		}
		return got, err
	})
}

func (w *workload) claim(_ context.Context, r *rand.Rand) error {
	c := punctual.Claim{
		Topics: allTopicNames(), Max: 1 + r.IntN(8), Wait: 5 * time.Millisecond,
		Lease: time.Duration(20+r.IntN(200)) * time.Millisecond,
	}
	r.Shuffle(len(c.Topics), func(i, j int) { c.Topics[i], c.Topics[j] = c.Topics[j], c.Topics[i] })
	var ds []punctual.Delivery
	err := w.do("claim", nil, func() (got []fact, err error) {
		ds, err = w.store.Claim(context.Background(), c)
		for _, d := range ds {
			got = append(got, deliveryFact(d))
		}
		return got, err
	})
	if err != nil || len(ds) == 0 {
		return err
	}
	return w.settle(ds, r)
}

func deliveryFact(d punctual.Delivery) fact {
	return fact{
		ID: d.ID, Due: d.Due.UnixMilli(), At: d.Delivered.UnixMilli(), Until: d.LeaseUntil.UnixMilli(), Token: d.Token,
		Attempt: d.Attempt, Broken: string(d.Body) != string(bodyOf(d.ID)) || d.Topic != topicOf(d.ID),
	}
}

// settle answers most of some deliveries and forgets the rest.
func (w *workload) settle(ds []punctual.Delivery, r *rand.Rand) error {
	now := time.Now()
	var asked []fact
	var ss []punctual.Settlement
	for _, d := range ds {
		st := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: someVerb(r)}
		if st.Verb == 0 {
			continue
		}
		f := fact{ID: d.ID, Token: d.Token, Attempt: d.Attempt, Verb: st.Verb}
		switch st.Verb {
		case punctual.SettleRetry, punctual.SettleSnooze:
			st.Delay = time.Duration(r.IntN(30)) * time.Millisecond
			f.Due = now.Add(st.Delay).UnixMilli()
		case punctual.SettleExtend:
			st.Delay = 300 * time.Millisecond
			f.Until = now.Add(st.Delay).UnixMilli()
		}
		asked, ss = append(asked, f), append(ss, st)
	}
	if len(ss) == 0 {
		return nil
	}
	return w.do("settle", asked, func() ([]fact, error) {
		errs, err := w.store.Settle(context.Background(), ss)
		got := make([]fact, len(errs))
		for i, e := range errs {
			got[i] = fact{ID: ss[i].ID, Status: word("ok", e)}
		}
		return got, err
	})
}

// someVerb is mostly an ack, and sometimes 0: the holder never answers.
func someVerb(r *rand.Rand) punctual.Verb {
	switch r.IntN(20) {
	case 0, 1:
		return punctual.SettleRetry
	case 2:
		return punctual.SettleSnooze
	case 3:
		return punctual.SettleRelease
	case 4:
		return punctual.SettleExtend
	case 5:
		return punctual.SettleDiscard
	case 6:
		return 0
	}
	return punctual.SettleAck
}

// later is a clock ahead of the real one: to it every message of a workload is due and
// every lease has run out.
type later struct{ punctual.SystemClock }

func (later) Now() time.Time { return time.Now().Add(100 * time.Hour) }

func (later) After(t time.Time) (<-chan time.Time, func()) {
	return punctual.SystemClock{}.After(t.Add(-100 * time.Hour))
}

// judge opens a store that a workload left behind, to a clock that makes everything due,
// and lets the ledger compare what is in it. It returns an error if the store cannot be
// opened or read; what is wrong with its content is among the ledger's problems.
func (l *ledger) judge(dir string, o Options) (err error) {
	o.Clock = later{}
	s, err := Open(dir, &o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := s.Check(context.Background(), nil)
	if err != nil {
		return err
	}
	for _, p := range r.Problems {
		l.broken("check: %s", p)
	}
	drained, err := l.drain(s)
	if err != nil {
		return err
	}
	dead, err := deadIn(s)
	if err != nil {
		return err
	}
	l.close(drained, dead)
	if r, err = s.Check(context.Background(), nil); err != nil {
		return err
	}
	for _, p := range r.Problems {
		l.broken("check after the drain: %s", p)
	}
	if r.Live != 0 {
		l.broken("P1 no loss: %d messages are live after everything due was delivered", r.Live)
	}
	return nil
}

// drain claims and acks all messages.
func (l *ledger) drain(s *Store) (map[string]bool, error) {
	drained := make(map[string]bool)
	w := workload{store: s, emit: l.add}
	w.calls.Store(1 << 40) // numbers that no run has used
	for {
		var ds []punctual.Delivery
		err := w.do("claim", nil, func() (got []fact, err error) {
			ds, err = s.Claim(context.Background(), punctual.Claim{Topics: allTopicNames(), Max: 500, Lease: time.Hour})
			for _, d := range ds {
				drained[d.ID] = true
				got = append(got, deliveryFact(d))
			}
			return got, err
		})
		if err != nil || len(ds) == 0 {
			return drained, err
		}
		ss := make([]punctual.Settlement, len(ds))
		for i, d := range ds {
			ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
		}
		errs, err := s.Settle(context.Background(), ss)
		if err != nil {
			return drained, fmt.Errorf("ack of drained messages: %w", err)
		}
		for i, err := range errs {
			if err != nil {
				l.broken("ack of %s, which was just claimed: %v", ss[i].ID, err)
			}
		}
	}
}

func deadIn(s *Store) (map[string]bool, error) {
	dead := make(map[string]bool)
	for _, topic := range allTopicNames() {
		for after := ""; ; {
			p, err := s.List(context.Background(), punctual.ListQuery{Topic: topic, State: punctual.StateDead, Limit: 1000, After: after})
			if err != nil && !errors.Is(err, punctual.ErrNotFound) {
				return nil, err
			}
			for _, i := range p.Messages {
				dead[i.ID] = true
			}
			if after = p.Next; after == "" {
				break
			}
		}
	}
	return dead, nil
}
