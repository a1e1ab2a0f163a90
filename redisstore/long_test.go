package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// longCall is a call that takes three scripts.
type longCall struct {
	name    string
	script  *script.Script
	per     int // how many items one script takes
	prepare func(t *testing.T, s *Store) []punctual.Delivery
	// call returns the errors of its items.
	call func(ctx context.Context, s *Store, ds []punctual.Delivery) (items []error, err error)
	// done returns how many items have been done, by the statistics of the store.
	done func(st punctual.TopicStats) int64
}

// items returns how many items the call has: two and a half times as many as one script takes.
func (c *longCall) items() int { return longItems(c.per) }

func longItems(per int) int { return 5 * per / 2 }

func manyMessages(per int, delay time.Duration) []punctual.NewMessage {
	var ms []punctual.NewMessage
	for i := range longItems(per) {
		ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(i), Delay: delay})
	}
	return ms
}

func longCalls() []longCall {
	const amends = script.Bytes / script.StateBytes // rounded down
	pushed := func(per int, delay time.Duration) func(t *testing.T, s *Store) []punctual.Delivery {
		return func(t *testing.T, s *Store) []punctual.Delivery {
			push(t, s, manyMessages(per, delay)...)
			return nil
		}
	}
	return []longCall{
		{
			"push", script.Push, script.Items,
			func(t *testing.T, s *Store) []punctual.Delivery {
				divide(t, s, "orders", s.opt.Partitions) // so that the topic exists
				return nil
			},
			func(ctx context.Context, s *Store, _ []punctual.Delivery) (items []error, err error) {
				rs, err := s.Push(ctx, manyMessages(script.Items, time.Hour))
				for _, r := range rs {
					if items = append(items, r.Err); (r.Err == nil) != (r.Status == punctual.PushStored) {
						return nil, fmt.Errorf("a result that is neither: %+v", r)
					}
				}
				return items, err
			},
			func(st punctual.TopicStats) int64 { return st.Scheduled },
		},
		{
			"cancel", script.Amend, amends, pushed(amends, time.Hour),
			func(ctx context.Context, s *Store, _ []punctual.Delivery) (items []error, err error) {
				var as []punctual.Amendment
				for i := range longItems(amends) {
					as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "orders", ID: fmt.Sprint(i)})
				}
				out, err := s.Amend(ctx, as)
				for _, o := range out {
					items = append(items, o.Err)
				}
				return items, err
			},
			func(st punctual.TopicStats) int64 { return int64(longItems(amends)) - st.Scheduled },
		},
		{
			"ack", script.Settle, script.Items,
			func(t *testing.T, s *Store) []punctual.Delivery {
				t.Helper()
				ms := manyMessages(script.Items, 0)
				for i := range ms {
					ms[i].Due = time.Unix(1, 0) // a message without a due time is due at the clock rounded up, so not in the same ms
				}
				push(t, s, ms...)
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: longItems(script.Items)})
				if err != nil || len(ds) != longItems(script.Items) {
					t.Fatalf("claimed %d, %v; want %d", len(ds), err, longItems(script.Items))
				}
				return ds
			},
			func(ctx context.Context, s *Store, ds []punctual.Delivery) (items []error, err error) {
				var ss []punctual.Settlement
				for _, d := range ds {
					ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
				}
				return s.Settle(ctx, ss)
			},
			func(st punctual.TopicStats) int64 { return int64(longItems(script.Items)) - st.Leased },
		},
	}
}

// wantSome fails the test unless so many items of a call were done, by their results and by the
// statistics of the store. All others must be definitely not done, for want of memory.
func wantSome(t *testing.T, what string, s *Store, c longCall, items []error, done int64) {
	t.Helper()
	var n int64
	for _, err := range items {
		if err == nil {
			n++
		} else if !punctual.Definite(err) || !errors.Is(err, punctual.ErrNoSpace) {
			t.Fatalf("P13: %s: an item has %v; want ErrNoSpace", what, err)
		}
	}
	st, err := s.Stats(t.Context(), "orders")
	if err != nil || len(items) != c.items() || n != done || c.done(st) != done {
		t.Errorf("P13: %s answered %d of %d items as done, and did %d, %v; want %d", what, n, len(items), c.done(st), err, done)
	}
}

// P13: when the n-th script of a call is refused, the items of the scripts before it have their
// results, and all other items have the error of the refusal. No script behind it is sent. When the
// first script is refused, the whole call has the error.
func TestRefusedInTheMiddle(t *testing.T) {
	server := redisrig.Start(t)
	for _, c := range longCalls() {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(c.name, " ", n), func(t *testing.T) {
				s, p := openBehind(t, server, &Options{Prefix: fresh(), Partitions: 1})
				ds := c.prepare(t, s)
				sent := p.Count(runs(c.script))
				if n == 4 { // there is no such script: the call passes
					if items, err := c.call(t.Context(), s, ds); err != nil || sent.Seen() != 3 {
						t.Fatalf("%s = %v by %d scripts; want three", c.name, err, sent.Seen())
					} else {
						wantSome(t, c.name, s, c, items, int64(c.items()))
					}
					return
				}
				refused := refuseNth(p, n, c.script)
				items, err := c.call(t.Context(), s, ds)
				refused.Happened()
				what := fmt.Sprintf("%s of which script %d was refused", c.name, n)
				if sent.Seen() != n {
					t.Errorf("%s sent %d scripts; want none behind the one that was refused", what, sent.Seen())
				}
				if n == 1 {
					wantDefinite(t, what, err, punctual.ErrNoSpace)
					return
				}
				if err != nil {
					t.Fatalf("P13: %s = %v; want an error for each item that was not done", what, err)
				}
				wantSome(t, what, s, c, items, int64((n-1)*c.per))
			})
		}
	}
}

// P13: when the script for one partition of a call is refused, the items of that partition have its
// error, and the others are done. When all are refused, the whole call has the error.
func TestRefusedInOnePartition(t *testing.T) {
	const partitions = 3
	server := redisrig.Start(t)
	for _, c := range longCalls() {
		for refusedIn := range partitions + 1 {
			t.Run(fmt.Sprint(c.name, " ", refusedIn), func(t *testing.T) {
				s, p := openBehind(t, server, &Options{Prefix: fresh(), Partitions: partitions})
				ds := c.prepare(t, s)
				what := fmt.Sprintf("%s of which partition %d was refused", c.name, refusedIn)
				var faults []*redisrig.Fault
				for n := range partitions {
					if n == refusedIn || refusedIn == partitions { // the last one: everywhere
						key := s.names.Partition("orders", n).Keys()[0]
						faults = append(faults, p.Refuse("OOM command not allowed", func(words []string) bool {
							return runs(c.script)(words) && slices.Contains(words, key)
						}))
					}
				}
				items, err := c.call(t.Context(), s, ds)
				for _, f := range faults {
					f.Happened()
				}
				if len(faults) == partitions {
					wantDefinite(t, what, err, punctual.ErrNoSpace)
					return
				}
				if err != nil {
					t.Fatalf("P13: %s = %v; want an error for each item that was not done", what, err)
				}
				want := int64(c.items())
				for i := range c.items() {
					if keys.Home(fmt.Sprint(i), partitions) == refusedIn {
						want--
					}
				}
				wantSome(t, what, s, c, items, want)
			})
		}
	}
}

// P13: items that were refused before anything was sent do not make a call look half done.
func TestRefusedBesideInvalid(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, nil)
	held := situations(t, s)
	invalid := string(make([]byte, limits.MaxIDBytes+1))
	for name, c := range map[string]struct {
		script *script.Script
		call   func() error
	}{
		"push": {script.Push, func() error {
			_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: invalid}, {Topic: "orders"}})
			return err
		}},
		"cancel": {script.Amend, func() error {
			_, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: invalid}, {Change: punctual.ChangeCancel, Topic: "orders", ID: "ready"}})
			return err
		}},
		"ack": {script.Settle, func() error {
			_, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: invalid, Verb: punctual.SettleAck}, {Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleAck}})
			return err
		}},
	} {
		refused := refuseNth(p, 1, c.script)
		wantDefinite(t, name+" that was refused beside an invalid item", c.call(), punctual.ErrNoSpace)
		refused.Happened()
	}
	ack(t, s, held)
}
