package consumers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

var ann, bob = Caller{"ann", "10.0.0.1", "w1"}, Caller{"bob", "10.0.0.2", "w2"}

// deliveries returns n claimed messages with tokens from first on, leased for a minute.
func deliveries(topic string, first, n int) []punctual.Delivery {
	var out []punctual.Delivery
	for i := range n {
		now := time.Now()
		out = append(out, punctual.Delivery{
			Message: punctual.Message{Topic: topic, ID: fmt.Sprint("m", first+i)}, Token: int64(first + i), Delivered: now, LeaseUntil: now.Add(time.Minute),
		})
	}
	return out
}

func settlement(d punctual.Delivery, v punctual.Verb) *punctual.Settlement {
	return &punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v}
}

// of returns what the tracker knows of a topic.
func of(t *testing.T, tr *Tracker, topic string) storekit.Consumers {
	t.Helper()
	c, err := tr.Consumers(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// held lists the consumers, each with its leases and its claims under way: "ann:5+0 " for ann with
// five leases and no claim.
func held(c storekit.Consumers) (out string) {
	for _, r := range c.All {
		out += fmt.Sprintf("%s:%d+%d ", r.User, r.Leases, r.Waiting)
	}
	return out
}

// A consumer has the leases that were given to it, until they are settled, lost, given back, or run
// out.
func TestWhoHoldsWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New()
		first, second := deliveries("t", 1, 5), deliveries("t", 10, 3)
		tr.Claimed(ann, first)
		tr.Claimed(ann, first) // the answer is sent again
		tr.Claimed(bob, second)
		tr.Claimed(bob, deliveries("u", 20, 1))
		if got := held(of(t, tr, "t")); got != "ann:5+0 bob:3+0 " {
			t.Fatalf("after the claims: %s", got)
		}
		tr.Settled(settlement(first[0], punctual.SettleAck), nil)
		tr.Settled(settlement(first[1], punctual.SettleAck), errors.New("the network failed"))
		tr.Settled(settlement(first[2], punctual.SettleAck), punctual.ErrLeaseLost)
		tr.Settled(settlement(first[2], punctual.SettleAck), nil)
		tr.Settled(settlement(first[3], punctual.SettleExtend), punctual.ErrCancelled) // the lease stays
		tr.Returned(second[:1])
		if c := of(t, tr, "t"); held(c) != "ann:3+0 bob:2+0 " || c.All[0].Claimed != 5 || c.All[0].Settled != 1 {
			t.Fatalf("after the settlements: %+v", c)
		}
		time.Sleep(50 * time.Second)
		tr.Settled(settlement(first[3], punctual.SettleExtend), nil)
		time.Sleep(10 * time.Second)
		c := of(t, tr, "t")
		if held(c) != "ann:1+0 " || !c.All[0].NextEnd.Equal(time.Now().Add(50*time.Second)) {
			t.Fatalf("when the leases have run out that nobody extended: %+v", c)
		}
		time.Sleep(50 * time.Second)
		if c := of(t, tr, "t"); len(c.All) != 0 || len(tr.leases) != 0 || len(tr.rows) != 0 {
			t.Fatalf("when all leases have run out: %+v", c)
		}
	})
}

// A claim that is under way counts for as long as it waits. When it has ended, its consumer is
// still shown for keptFor.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New()
		done := tr.Waits(ann, []string{"t", "u"})
		again := tr.Waits(ann, []string{"t"})
		time.Sleep(time.Hour)
		if got := held(of(t, tr, "t")) + held(of(t, tr, "u")); got != "ann:0+2 ann:0+1 " {
			t.Fatalf("while they wait: %s", got)
		}
		done()
		again()
		if got := held(of(t, tr, "t")); got != "ann:0+0 " {
			t.Fatalf("just after: %s", got)
		}
		time.Sleep(keptFor)
		if got := held(of(t, tr, "t")) + held(of(t, tr, "u")); got != "" {
			t.Fatalf("a while after: %s", got)
		}
	})
}

// Rates count the last five minutes.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New()
		defer tr.Waits(ann, []string{"t"})()
		for n := range 10 {
			d := deliveries("t", n, 1)
			tr.Claimed(ann, d)
			tr.Settled(settlement(d[0], punctual.SettleAck), nil)
			if n < 9 {
				time.Sleep(time.Minute)
			}
		}
		if c := of(t, tr, "t").All[0]; c.Claimed != RateMinutes || c.Settled != RateMinutes {
			t.Errorf("%+v", c)
		}
	})
}

// However many consumers there are, memory is bounded: those without a row of their own are counted
// together, and those that have gone make room for others.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New()
		for n := range mostRows + 50 {
			tr.Claimed(Caller{User: fmt.Sprint("u", n)}, deliveries("t", n, 2))
		}
		c := of(t, tr, "t")
		if len(c.All) != mostRows || c.Others.Leases == 0 || c.Others.User != "" {
			t.Fatalf("%d told apart, the others %+v", len(c.All), c.Others)
		}
		tr.mostLeases = 5000
		for n := range 5 {
			tr.Claimed(ann, deliveries("t", 10_000+1000*n, 1000))
		}
		if len(tr.leases) != tr.mostLeases {
			t.Errorf("%d leases are followed; want the most", len(tr.leases))
		}
		time.Sleep(time.Minute)
		tr.Claimed(bob, deliveries("t", 100_000, 1))
		if got := held(of(t, tr, "t")); len(tr.rows) > 2 || len(tr.leases) != 1 || got != "bob:1+0 " {
			t.Errorf("when all others have gone: %d rows, %s", len(tr.rows), got)
		}
	})
}

// A user that invents names for its consumers leaves rows for the consumers of others.
func TestInventedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New()
		for n := range mostRows + 100 {
			tr.Waits(Caller{"mallory", "10.0.0.9", fmt.Sprint("w", n)}, []string{"t"})
		}
		if c := of(t, tr, "t"); len(c.All) != mostRows/2 || c.Others.Waiting != mostRows/2+100 {
			t.Fatalf("%d names of one user are told apart and %d are not", len(c.All), c.Others.Waiting)
		}
		defer tr.Waits(ann, []string{"t"})()
		if got := held(of(t, tr, "t")); !strings.Contains(got, "ann:0+1 ") {
			t.Error("another user's consumer has no row of its own")
		}
	})
}

// The workers of a program are one consumer, whose leases are those that their handlers hold.
func TestObserver(t *testing.T) {
	tr := New()
	o := tr.Observer("this program")
	ds := deliveries("t", 1, 3)
	for i := range ds {
		o.OnStart(context.Background(), &ds[i])
	}
	o.OnSettle(context.Background(), *settlement(ds[0], punctual.SettleAck), 0, nil)
	o.OnLeaseLost(context.Background(), &ds[1], punctual.ErrLeaseLost)
	if c := of(t, tr, "t"); len(c.All) != 1 || c.All[0].Leases != 1 || c.All[0].Name != "this program" {
		t.Errorf("%+v", c)
	}
}

// BenchmarkConsumers asks who works on a topic while as many leases are followed as can be.
func BenchmarkConsumers(b *testing.B) {
	for _, topics := range []int{1, 100} {
		b.Run(fmt.Sprint(topics, " topics"), func(b *testing.B) {
			tr := New()
			for n := range topics {
				for c := range 10 {
					ds := deliveries(fmt.Sprint("t", n), c*mostLeases/topics/10, mostLeases/topics/10)
					for i := range ds {
						ds[i].LeaseUntil = ds[i].Delivered.Add(time.Hour)
					}
					tr.Claimed(Caller{User: fmt.Sprint(c)}, ds)
				}
			}
			if len(tr.leases) != mostLeases {
				b.Fatalf("%d leases are followed", len(tr.leases))
			}
			for b.Loop() {
				if c, err := tr.Consumers(b.Context(), "t0"); err != nil || len(c.All) != 10 {
					b.Fatalf("%+v, %v", c, err)
				}
			}
		})
	}
}

// Claims of many topics make the tracker keep a bounded number of rows. What each of them makes it
// allocate is bounded, too, because every other call waits for the lock meanwhile.
func TestClaimsOfManyTopics(t *testing.T) {
	tr := New()
	topics := make([]string, limits.MaxClaimTopics)
	var done []func()
	for claim := range 20 {
		for i := range topics {
			topics[i] = fmt.Sprintf("topic-%d-%d", claim, i)
		}
		done = append(done, tr.Waits(bob, topics))
	}
	if len(tr.rows) > mostRows || len(tr.others) > mostTopics {
		t.Errorf("%d consumers and %d topics are kept; want at most %d and %d", len(tr.rows), len(tr.others), mostRows, mostTopics)
	}
	if n := testing.AllocsPerRun(10, func() { tr.Waits(bob, topics)() }); n > 10 {
		t.Errorf("a claim of %d topics, for which there is no room, made %v allocations", len(topics), n)
	}
	for _, end := range done {
		end()
	}
	for k, r := range tr.rows {
		if r.waiting != 0 {
			t.Errorf("%v: %d claims are under way; want none", k, r.waiting)
		}
	}
}
