package browsertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// shop is the store of the pictures: what a shop has behind it and before it, as of now. Its clock is moved, so that messages have a
// story of days.
type shop struct {
	*rig
	clock *storekit.ManualClock
	now   time.Time
}

// inspected is a store that does not say what it stands on: that of the pictures is in memory, and others are not.
type inspected struct {
	punctual.Store
	punctual.Inspector
}

// newShop opens a console over the shop.
func newShop(t *testing.T) *shop {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	clock := storekit.NewManualClock(now.Add(-9 * 24 * time.Hour))
	store := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &shop{clock: clock, now: now}
	s.rig = newRig(t, inspected{store, store}, &console.Options{Consumers: s.consumers})
	s.deaths()
	s.attempts()
	s.ahead()
	s.day()
	return s
}

func order(topic string, n int) punctual.NewMessage {
	return punctual.NewMessage{
		Topic: topic, ID: fmt.Sprintf("%s-%d", map[string]string{"order.cancel": "order", "payment.notify": "payment", "reminder": "visit", "report": "report"}[topic], n),
		Body:    fmt.Appendf(nil, `{"order": %d, "customer": "c-%d", "total": "%d.90 EUR"}`, 40_000+n, 7*n%900, 10+n%80),
		Headers: map[string]string{"trace": fmt.Sprintf("%08x", 7_777_777*(n+1)), "tenant": "shop"},
	}
}

// deaths are some on most days.
func (s *shop) deaths() {
	s.t.Helper()
	number := 0
	for day, deaths := range []int{2, 0, 5, 1, 3, 0, 9, 4, 2} {
		s.clock.Set(s.now.Add(time.Duration(day-9)*24*time.Hour + time.Hour))
		for n := range deaths {
			number++
			s.push(order("payment.notify", number))
			reason := "POST https://bank.example/hook: 503 Service Unavailable"
			if n%3 == 2 {
				reason = "no such customer"
			}
			s.kill("payment.notify", reason, 1)
		}
	}
}

// attempts are those of one message, which the bank has refused five times by now.
func (s *shop) attempts() {
	s.t.Helper()
	at := s.now.Add(-9 * time.Hour)
	s.clock.Set(at)
	s.push(order("payment.notify", 71))
	for _, wait := range []time.Duration{2 * time.Minute, 10 * time.Minute, 10 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour} {
		ds, err := s.store.Claim(s.t.Context(), punctual.Claim{Topics: []string{"payment.notify"}, Max: 1})
		if err != nil || len(ds) != 1 {
			s.t.Fatalf("claim at %v: %d, %v", at, len(ds), err)
		}
		s.clock.Set(at.Add(800 * time.Millisecond))
		errs, err := s.store.Settle(s.t.Context(), []punctual.Settlement{{
			Topic: "payment.notify", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleRetry, Delay: wait, Error: "POST https://bank.example/hook: 503 Service Unavailable",
		}})
		if err := errors.Join(append(errs, err)...); err != nil {
			s.t.Fatal(err)
		}
		at = at.Add(800*time.Millisecond + wait)
		s.clock.Set(at)
	}
}

// ahead is what waits now, and what is worked on.
func (s *shop) ahead() {
	s.t.Helper()
	s.clock.Set(s.now.Add(-10 * time.Minute))
	var ms []punctual.NewMessage
	add := func(topic string, n int, due time.Time) {
		m := order(topic, n)
		m.Due = due
		ms = append(ms, m)
	}
	for n := range 420 { // orders are paid within an hour, fewer of them the longer ago they are
		add("order.cancel", 100+n, s.now.Add(time.Duration(60*math.Sqrt(float64(n*37%420)/420)*60)*time.Second))
	}
	day := s.now.Truncate(24 * time.Hour)
	for n := range 1500 { // visits are by day, most of them soon
		ahead := int(math.Pow(float64(n*101%1500)/1500, 2.2) * 88)
		due := day.Add(time.Duration(ahead)*24*time.Hour + time.Duration(8*60+n*53%600)*time.Minute)
		if weekday := due.Weekday(); due.After(s.now) && weekday != time.Sunday && (weekday != time.Saturday || n%3 == 0) {
			add("reminder", n, due)
		}
	}
	for n := range 12 {
		add("payment.notify", 80+n, s.now.Add(time.Duration(n*n)*17*time.Minute+3*time.Minute))
	}
	for n := range 30 {
		add("report", n, day.Add(time.Duration(n)*24*time.Hour+6*time.Hour))
	}
	for n := range 7 {
		add("order.cancel", 900+n, s.now.Add(-time.Minute))
	}
	s.push(ms...)
	s.clock.Set(s.now)
	if _, err := s.store.Claim(s.t.Context(), punctual.Claim{Topics: []string{"order.cancel"}, Max: 7}); err != nil {
		s.t.Fatal(err)
	}
	paused := true
	if _, err := must(punctual.As[punctual.Inspector](s.store)).Configure(s.t.Context(), "report", punctual.SettingsPatch{DeliveryPaused: &paused}); err != nil {
		s.t.Fatal(err)
	}
}

// consumers are two programs that close orders.
func (s *shop) consumers(_ context.Context, topic string) (punctual.Consumers, error) {
	c := punctual.Consumers{Since: s.now.Add(-counted)}
	if topic == "order.cancel" {
		c.All = []punctual.Consumer{
			{User: "shop", Address: "10.0.0.12", Name: "closer-1", Waiting: 1, Leases: 4, NextEnd: s.now.Add(21 * time.Second), Claimed: 131, Settled: 127, LastSeen: s.now.Add(-time.Second)},
			{User: "shop", Address: "10.0.0.13", Name: "closer-2", Waiting: 1, Leases: 3, NextEnd: s.now.Add(26 * time.Second), Claimed: 118, Settled: 115, LastSeen: s.now.Add(-2 * time.Second)},
		}
	}
	return c, nil
}

// counted is since when the server of the pictures has counted: for longer than any of them looks back.
const counted = 26 * time.Hour

// day is what has passed the server since then.
func (s *shop) day() {
	o := s.pages.Observer()
	for minute := -int(counted / time.Minute); minute <= 0; minute++ {
		ctx := overview.At(s.t.Context(), s.now.Add(time.Duration(minute)*time.Minute))
		hour := s.now.Add(time.Duration(minute) * time.Minute).Hour()
		busy := 0.55 - 0.45*math.Cos(2*math.Pi*float64(hour-3)/24) // people sleep at night
		for _, topic := range []struct {
			name       string
			rate       float64
			slow, kept int // how many times as late as others, and which part is not paid in time
		}{{"order.cancel", 44, 1, 8}, {"reminder", 12, 3, 100}, {"payment.notify", 7, 9, 100}} {
			n := int(topic.rate * busy * (1 + 0.4*math.Sin(float64(minute)/7+topic.rate) + 0.2*math.Sin(float64(minute*minute))))
			for k := range n {
				o.OnPush(ctx, punctual.PushResult{Topic: topic.name, Status: punctual.PushStored}, time.Millisecond)
				if k%topic.kept == 7 {
					continue
				}
				late := 2*time.Millisecond + time.Duration(topic.slow*(k*k%(17+minute*minute%9)))*time.Millisecond
				if k == 20 {
					late *= time.Duration(2 + minute*minute%7)
				}
				if minute > -24 && minute < -19 {
					late *= 30 // a release
				}
				due := s.now.Add(-time.Hour)
				o.OnStart(ctx, &punctual.Delivery{Message: punctual.Message{Topic: topic.name, Due: due, Created: due.Add(-time.Hour)}, Delivered: due.Add(late)})
				verb := punctual.SettleAck
				if topic.name == "payment.notify" && k%5 == 0 {
					verb = punctual.SettleRetry
				}
				o.OnSettle(ctx, punctual.Settlement{Topic: topic.name, Verb: verb}, time.Millisecond, nil)
			}
		}
	}
}

// shopPages are what pictures are taken of.
func shopPages() map[string]string {
	all := pages()
	all["message"], all["find"], all["topic-dead"] = "/topics/payment.notify/messages/payment-71", "/find?id=order-107&stay=1", all["dead-topic"]
	delete(all, "dead-topic")
	all["ahead-90d"], all["lateness-24h"] = "/ahead?span=90d", "/lateness?span=24h"
	all["dead-group"] = "/dead?" + url.Values{"topic": {"payment.notify"}, "match": {"is"}, "error": {"no such customer"}}.Encode()
	return all
}
