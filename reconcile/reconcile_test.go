package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/reconcile"
)

// lossyStore loses a part of the pushes to a topic and says that they are stored, as a server of
// class Volatile may.
type lossyStore struct {
	*memstore.Store
	topic string

	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	part   float64    // guarded by mu: which part of the pushes is lost, 0 to 1
	lost   []string   // guarded by mu: the IDs of the lost messages
}

func (s *lossyStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	s.mu.Lock()
	var kept []punctual.NewMessage
	lost := map[int]bool{}
	for i, m := range ms {
		if m.Topic == s.topic && s.random.Float64() < s.part {
			lost[i] = true
			s.lost = append(s.lost, m.ID)
			continue
		}
		kept = append(kept, m)
	}
	s.mu.Unlock()
	var rs []punctual.PushResult
	var err error
	if len(kept) > 0 {
		if rs, err = s.Store.Push(ctx, kept); err != nil {
			return nil, err
		}
	}
	for i := range ms {
		if lost[i] {
			rs = slices.Insert(rs, i, punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Due: ms[i].Due, Status: punctual.PushStored})
		}
	}
	return rs, nil
}

func (s *lossyStore) lostIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

// table is a program's own table of orders.
type table struct {
	mu     sync.Mutex
	orders map[string]*tableRow // guarded by mu
}

type tableRow struct {
	closeAt     time.Time
	paid        bool
	closed      time.Time // zero while it is open
	closedTimes int
}

func newTable() *table { return &table{orders: map[string]*tableRow{}} }

func (t *table) place(id string, closeAt time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orders[id] = &tableRow{closeAt: closeAt}
}

func (t *table) pay(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orders[id].paid = true
}

func (t *table) close(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orders[id].closed = at
	t.orders[id].closedTimes++
}

// unpaid lists open orders, in pages of 7.
func (t *table) unpaid(_ context.Context, after string) (page []punctual.NewMessage, next string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, o := range t.orders {
		if id > after && !o.paid && o.closed.IsZero() {
			page = append(page, punctual.NewMessage{ID: id, Due: o.closeAt, Body: []byte(id)})
		}
	}
	slices.SortFunc(page, func(a, b punctual.NewMessage) int { return strings.Compare(a.ID, b.ID) })
	if len(page) > 7 {
		page = page[:7]
		next = page[6].ID
	}
	return page, next, nil
}

func (t *table) paid(_ context.Context, ids []string) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		o := t.orders[id]
		return o == nil || !o.paid
	}), nil
}

const orderTopic = "order.close"

// deliverAll claims and closes what is due now.
func deliverAll(t *testing.T, s punctual.Store, orders *table) {
	t.Helper()
	for {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{orderTopic}, Max: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) == 0 {
			return
		}
		for _, d := range ds {
			orders.close(d.ID, d.Delivered)
			if errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}
	}
}

// About 30 % of all pushes are lost, those of Reconcile as well. Every order is closed all the
// same: once, not early, and at most a second after its time.
func TestSlowReconcileWhenPushesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossyStore{Store: memstore.New(nil), topic: orderTopic, random: rand.New(rand.NewPCG(1, 2)), part: 0.3}
		q := punctual.NewQueue(s, nil)
		orders := newTable()
		const placed = 1000
		for i := range placed {
			id, delay := fmt.Sprintf("order-%04d", i), 30*time.Minute+time.Duration(i)*time.Second
			orders.place(id, time.Now().Add(delay))
			if _, err := q.Push(t.Context(), orderTopic, []byte(id), punctual.ID(id), punctual.In(delay)); err != nil {
				t.Fatal(err)
			}
		}
		lost := len(s.lostIDs())
		if lost < placed/5 || lost > placed/2 {
			t.Fatalf("%d of %d pushes were lost: this test shows nothing", lost, placed)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var pushed int64
		var running sync.WaitGroup
		running.Go(func() {
			err := reconcile.Run(ctx, q, &reconcile.Config{
				Topic: orderTopic, List: orders.unpaid, Every: time.Minute,
				Report: func(r reconcile.Report, err error) {
					if err != nil || r.Refused > 0 || r.Listed != r.Present+r.Finished+r.Dead+r.Pushed {
						t.Errorf("%+v, %v", r, err)
					}
					pushed += r.Pushed
				},
			})
			if err != nil {
				t.Error(err)
			}
		})
		for range 60 * 60 {
			time.Sleep(time.Second)
			deliverAll(t, s, orders)
		}
		cancel()
		running.Wait()

		if again := len(s.lostIDs()) - lost; again == 0 || pushed != int64(lost+again) {
			t.Errorf("%d were lost at first, %d of the repairs as well, and %d were pushed; want one push for each loss", lost, again, pushed)
		}
		for id, o := range orders.orders {
			if o.closedTimes != 1 || o.closed.Before(o.closeAt) || o.closed.Sub(o.closeAt) > time.Second {
				t.Errorf("%s was closed %d times, %v after its time", id, o.closedTimes, o.closed.Sub(o.closeAt))
			}
		}
	})
}

// A pass pushes a listed message only where none is stored or remembered, or where a dead one is to
// be replaced. A dry run counts the same, except that it cannot see remembered IDs, and pushes
// nothing.
func TestReconcileMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		q := punctual.NewQueue(s, nil)
		if _, err := q.Configure(t.Context(), orderTopic, func(s *punctual.Settings) { s.DedupeWindow = time.Hour }); err != nil {
			t.Fatal(err)
		}
		due := time.Now().Add(time.Hour)
		push := func(id string, w punctual.When) {
			t.Helper()
			if _, err := q.Push(t.Context(), orderTopic, nil, punctual.ID(id), w); err != nil {
				t.Fatal(err)
			}
		}
		settle := func(id string, v punctual.Verb) {
			t.Helper()
			push(id, punctual.In(0))
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{orderTopic}, Max: 1})
			if err != nil || len(ds) != 1 || ds[0].ID != id {
				t.Fatal(ds, err)
			}
			if v == 0 {
				return
			}
			if errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: orderTopic, ID: id, Token: ds[0].Token, Verb: v}}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}
		settle("acked", punctual.SettleAck)
		settle("dead", punctual.SettleDiscard)
		settle("dead-again", punctual.SettleDiscard)
		settle("leased", 0)
		push("cancelled", punctual.At(due))
		if err := q.Cancel(t.Context(), orderTopic, "cancelled"); err != nil {
			t.Fatal(err)
		}
		push("scheduled", punctual.At(due))
		push("ready", punctual.In(0))

		list := func(context.Context, string) ([]punctual.NewMessage, string, error) {
			var page []punctual.NewMessage
			for _, id := range []string{"acked", "dead", "dead-again", "leased", "cancelled", "scheduled", "ready", "missing"} {
				page = append(page, punctual.NewMessage{ID: id, Due: due})
			}
			page[2].IfExists = punctual.IfExistsReplaceDead
			return page, "", nil
		}
		r := &reconcile.Config{Topic: orderTopic, List: list, DryRun: true}
		dry, err := reconcile.Once(t.Context(), q, r)
		if err != nil || dry.Present != 3 || dry.Dead != 1 || dry.Pushed != 4 {
			t.Errorf("dry run: %+v, %v", dry, err)
		}
		if _, err := q.Get(t.Context(), orderTopic, "missing"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("after a dry run: %v", err)
		}
		r.DryRun = false
		got, err := reconcile.Once(t.Context(), q, r)
		if err != nil || got.Listed != 8 || got.Present != 3 || got.Finished != 2 || got.Dead != 1 || got.Raised != nil ||
			!slices.Equal(got.PushedIDs, []string{"dead-again", "missing"}) {
			t.Errorf("%+v, %v", got, err)
		}
		if i, err := q.Get(t.Context(), orderTopic, "missing"); err != nil || !i.Due.Equal(due) {
			t.Errorf("the one that was missing: %+v, %v", i, err)
		}
	})
}

// A message that is finished between its listing and its push is not delivered again, because the
// topic remembers it.
func TestReconcileFinishedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		q := punctual.NewQueue(s, nil)
		orders := newTable()
		orders.place("order-1", time.Now())
		if _, err := q.Push(t.Context(), orderTopic, nil, punctual.ID("order-1")); err != nil {
			t.Fatal(err)
		}
		r := &reconcile.Config{Topic: orderTopic, Window: time.Minute}
		r.List = func(ctx context.Context, after string) ([]punctual.NewMessage, string, error) {
			page, next, err := orders.unpaid(ctx, after)
			if len(page) != 1 {
				t.Errorf("listed %d orders, want one that is open", len(page))
			}
			deliverAll(t, s, orders)
			if orders.orders["order-1"].closedTimes != 1 {
				t.Error("the order was not closed meanwhile, so this test shows nothing")
			}
			time.Sleep(29 * time.Second)
			return page, next, err
		}
		got, err := reconcile.Once(t.Context(), q, r)
		if err != nil || got.Finished != 1 || got.Pushed != 0 || got.Raised == nil || *got.Raised != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		deliverAll(t, s, orders)
		if n := orders.orders["order-1"].closedTimes; n != 1 {
			t.Errorf("the order was closed %d times", n)
		}

		// A page that takes longer than half of Window is refused.
		orders.place("order-1", time.Now())
		r.List = func(ctx context.Context, after string) ([]punctual.NewMessage, string, error) {
			page, next, err := orders.unpaid(ctx, after)
			time.Sleep(31 * time.Second)
			return page, next, err
		}
		got, err = reconcile.Once(t.Context(), q, r)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Window") || got.Pushed != 0 || got.Refused != 1 {
			t.Errorf("a slow page: %+v, %v", got, err)
		}
	})
}

// Messages that should not be pending are cancelled. Messages that the table does not know stay.
func TestReconcileCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		q := punctual.NewQueue(s, nil)
		orders := newTable()
		for i := range 2500 {
			id := fmt.Sprintf("order-%04d", i)
			orders.place(id, time.Now().Add(time.Hour))
			if i%2 == 0 {
				orders.pay(id)
			}
			if _, err := q.Push(t.Context(), orderTopic, nil, punctual.ID(id), punctual.In(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"uncommitted", "leased"} {
			if _, err := q.Push(t.Context(), orderTopic, nil, punctual.ID(id)); err != nil {
				t.Fatal(err)
			}
		}
		orders.place("leased", time.Now())
		orders.pay("leased")
		r := &reconcile.Config{Topic: orderTopic, List: orders.unpaid, DryRun: true}
		r.Unwanted = func(ctx context.Context, ids []string) ([]string, error) {
			if len(ids) > 1000 {
				t.Errorf("asked about %d at once", len(ids))
			}
			if !r.DryRun && slices.Contains(ids, "leased") { // somebody claims it meanwhile
				if ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{orderTopic}, Max: 2}); err != nil || len(ds) != 2 {
					t.Error(ds, err)
				}
			}
			return orders.paid(ctx, ids)
		}
		dry, err := reconcile.Once(t.Context(), q, r)
		if err != nil || dry.Unwanted != 1251 || dry.Cancelled != 0 || len(dry.CancelledIDs) != 100 {
			t.Errorf("dry run: %d unwanted, %d cancelled, %d IDs, %v", dry.Unwanted, dry.Cancelled, len(dry.CancelledIDs), err)
		}
		r.DryRun = false
		got, err := reconcile.Once(t.Context(), q, r)
		if err != nil || got.Examined != 2502 || got.Unwanted != 1251 || got.Cancelled != 1250 || got.Leased != 1 || got.Present != 1250 {
			t.Errorf("%+v, %v", got, err)
		}
		stats, err := s.Stats(t.Context(), orderTopic)
		if err != nil || stats.Live() != 1252 {
			t.Errorf("%d messages are left, want 1252: %v", stats.Live(), err)
		}
	})
}

// Of several processes one makes the pass; when it dies another one goes on.
func TestReconcileByOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		var mu sync.Mutex
		inside, most := 0, 0
		passes := make([]int, 4)
		dies := false // the next process that makes a pass dies in it
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for process := range passes {
			running.Go(func() {
				own := &mortalStore{Store: s}
				list := func(ctx context.Context, _ string) ([]punctual.NewMessage, string, error) {
					mu.Lock()
					inside++
					most = max(most, inside)
					passes[process]++
					dying := dies
					dies = false
					mu.Unlock()
					if dying {
						own.dead.Store(true)
						<-ctx.Done()
					} else {
						time.Sleep(45 * time.Second) // longer than a lease
					}
					mu.Lock()
					defer mu.Unlock()
					inside--
					return nil, "", ctx.Err()
				}
				q := punctual.NewQueue(own, nil)
				if err := reconcile.Run(ctx, q, &reconcile.Config{Topic: orderTopic, List: list, Every: time.Minute}); err != nil {
					t.Error(err)
				}
			})
		}
		total := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, p := range passes {
				n += p
			}
			return n
		}
		time.Sleep(time.Hour)
		if n := total(); most != 1 || n < 30 || n > 36 {
			t.Errorf("%d passes in an hour, up to %d at once; want one each 105 s", n, most)
		}

		mu.Lock()
		dies = true
		mu.Unlock()
		before := total()
		time.Sleep(10 * time.Minute)
		mu.Lock()
		if dies {
			t.Error("no process died, so this test shows nothing")
		}
		mu.Unlock()
		if n := total() - before; n < 4 {
			t.Errorf("%d passes in the ten minutes after a process died", n)
		}
		cancel()
		running.Wait()
	})
}

// mortalStore is the store as one process reaches it. Once the process is dead its pushes and
// settlements do not arrive.
type mortalStore struct {
	*memstore.Store
	dead atomic.Bool
}

func (s *mortalStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if s.dead.Load() {
		return nil, punctual.ErrUnreachable
	}
	return s.Store.Push(ctx, ms)
}

func (s *mortalStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if s.dead.Load() {
		return nil, punctual.ErrUnreachable
	}
	return s.Store.Settle(ctx, ss)
}

// A shorter interval counts at once, and a Queue or a store that was closed ends Reconcile.
func TestReconcileTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		q := punctual.NewQueue(s, nil)
		passes := 0
		r := &reconcile.Config{Topic: orderTopic, Every: 24 * time.Hour}
		r.List = func(context.Context, string) ([]punctual.NewMessage, string, error) {
			passes++
			return nil, "", nil
		}
		first, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := reconcile.Run(first, q, r); err != nil || passes != 1 {
			t.Fatalf("%d passes, %v", passes, err)
		}
		r.Every = time.Minute
		second, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		if err := reconcile.Run(second, q, r); err != nil || passes != 3 {
			t.Errorf("%d passes, %v; want two more in 150 s", passes, err)
		}
		missing := func(context.Context, string) ([]punctual.NewMessage, string, error) {
			return []punctual.NewMessage{{ID: "a", Due: time.Now()}}, "", q.Close(t.Context())
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		closed := *r
		closed.List = missing
		if err := reconcile.Run(ended, q, &closed); !errors.Is(err, punctual.ErrClosed) || ended.Err() != nil {
			t.Errorf("with a Queue that is closed in a pass: %v after %v; want ErrClosed before the context ends", err, ended.Err())
		}
		q = punctual.NewQueue(s, nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		var told error
		r.Report = func(_ reconcile.Report, err error) { told = err }
		if err := reconcile.Run(t.Context(), q, r); !errors.Is(err, punctual.ErrClosed) || told == nil {
			t.Errorf("on a closed store: %v, reported %v", err, told)
		}
	})
}

// A pass that fails is reported, and made again after a minute.
func TestReconcileFailingList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := punctual.NewQueue(memstore.New(nil), nil)
		broken := errors.New("no connection")
		var times []time.Duration
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer cancel()
		err := reconcile.Run(ctx, q, &reconcile.Config{
			Topic: orderTopic, Every: time.Hour,
			List: func(context.Context, string) ([]punctual.NewMessage, string, error) { return nil, "", broken },
			Report: func(_ reconcile.Report, err error) {
				if !errors.Is(err, broken) {
					t.Errorf("reported %v", err)
				}
				times = append(times, time.Since(start))
			},
		})
		if want := []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute}; err != nil || !slices.Equal(times, want) {
			t.Errorf("passes at %v, %v; want %v", times, err, want)
		}
	})
}

// A reconciliation with fields that are not valid is refused, and so is one whose List returns what
// cannot be reconciled.
func TestReconcileRefuses(t *testing.T) {
	q := punctual.NewQueue(memstore.New(nil), nil)
	due := time.Now()
	list := func(m punctual.NewMessage, next string) func(context.Context, string) ([]punctual.NewMessage, string, error) {
		return func(context.Context, string) ([]punctual.NewMessage, string, error) {
			return []punctual.NewMessage{m}, next, nil
		}
	}
	good := list(punctual.NewMessage{ID: "a", Due: due}, "")
	for name, r := range map[string]*reconcile.Config{
		"nil":               nil,
		"no list":           {Topic: "t"},
		"no topic":          {List: good},
		"interval":          {Topic: "t", List: good, Every: time.Millisecond},
		"window":            {Topic: "t", List: good, Window: time.Millisecond},
		"lease topic":       {Topic: "t", List: good, LeaseTopic: "t"},
		"no ID":             {Topic: "t", List: list(punctual.NewMessage{Due: due}, "")},
		"a delay":           {Topic: "t", List: list(punctual.NewMessage{ID: "a", Delay: time.Hour}, "")},
		"another topic":     {Topic: "t", List: list(punctual.NewMessage{ID: "a", Topic: "u", Due: due}, "")},
		"replaces":          {Topic: "t", List: list(punctual.NewMessage{ID: "a", Due: due, IfExists: punctual.IfExistsReplace}, "")},
		"same page forever": {Topic: "t", List: list(punctual.NewMessage{ID: "a", Due: due}, "x")},
		"bad ID":            {Topic: "t", List: list(punctual.NewMessage{ID: "\n", Due: due}, "")},
	} {
		if got, err := reconcile.Once(t.Context(), q, r); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%s: %+v, %v; want ErrInvalid", name, got, err)
		}
	}
	if err := reconcile.Run(t.Context(), q, nil); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("Reconcile with nil: %v", err)
	}
}
