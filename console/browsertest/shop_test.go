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
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/console"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// shop is a rig whose store has what a shop has now, for the pictures in the documents: for
// instance messages ahead, dead messages, schedules and groups. The clock of the store is moved
// through nine days, so that messages have a history of days.
type shop struct {
	*rig
	clock *storekit.ManualClock
	now   time.Time
}

// inspected is a store that is no storekit.Examiner, so that the pictures do not say that their
// store is in memory.
type inspected struct {
	punctual.Store
	punctual.Inspector
	punctual.FinishedKeeper
	storekit.AbilityReporter
	storekit.TopicNamer
}

// newShop fills a store as that of the shop, and opens a console over it.
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
	s.rig = newRig(t, inspected{store, store, store, store, store}, &console.Options{Consumers: s.consumers})
	s.settings()
	s.schedules()
	s.deaths()
	s.attempts()
	s.ahead()
	s.runSchedules(s.now, s.now.Add(time.Second))
	if err := schedule.Pause(t.Context(), punctual.NewQueue(s.store, nil), "sync", "prices", "anna", "until the API is back"); err != nil {
		t.Fatal(err)
	}
	s.groups()
	s.audit()
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

// settings sets which events the topic payment.notify tells of, and which groups order.closed has.
func (s *shop) settings() {
	s.t.Helper()
	q := punctual.NewQueue(s.store, nil)
	for topic, change := range map[string]func(*punctual.Settings){
		"payment.notify": func(x *punctual.Settings) {
			x.Emit, x.EmitKeep = punctual.EventDead|punctual.EventRetried, 30*24*time.Hour
		},
		"order.closed": func(x *punctual.Settings) { x.Groups = []string{"billing", "mail", "stock"} },
	} {
		if _, err := q.Configure(s.t.Context(), topic, change); err != nil {
			s.t.Fatal(err)
		}
	}
}

// schedules stores the schedules of the shop.
func (s *shop) schedules() {
	s.t.Helper()
	q := punctual.NewQueue(s.store, nil)
	for _, x := range []schedule.Schedule{
		{Topic: "report", Name: "daily", Spec: "0 9 * * MON-FRI", Zone: "Europe/Berlin", Spread: 5 * time.Minute, Body: []byte(`{"report": "daily"}`), Headers: map[string]string{"tenant": "shop"}},
		{Topic: "report", Name: "month-end", Spec: "0 6 L * *", Zone: "Europe/Berlin", Overlap: schedule.OverlapAllow},
		{Topic: "sync", Name: "stock", Spec: "0 */2 * * *"},
		{Topic: "sync", Name: "prices", Spec: "30 8-18 * * MON-FRI", Zone: "Europe/Berlin"},
		{Topic: "order.cancel", Name: "sweep", Spec: "7 * * * *", Body: []byte("sweep")},
	} {
		if _, err := schedule.Put(s.t.Context(), q, x); err != nil {
			s.t.Fatal(err)
		}
	}
}

// runSchedules moves the clock hour by hour. At each hour it has a scheduler do what is due, as a
// duty does, and acks the occurrences that the schedules have stored.
func (s *shop) runSchedules(from, to time.Time) {
	duty := schedule.NewScheduler(s.store)
	for at := from; at.Before(to); at = at.Add(time.Hour) {
		s.clock.Set(at)
		for _, topic := range []string{"report@cron", "sync@cron", "order.cancel@cron"} {
			for {
				ds, err := s.store.Claim(s.t.Context(), punctual.Claim{Topics: []string{topic}, Max: 100})
				if err != nil {
					s.t.Fatal(err)
				}
				for i := range ds {
					how := punctual.DecisionOf(duty.Handle(s.t.Context(), &ds[i]))
					s.settle(punctual.Settlement{Topic: topic, ID: ds[i].ID, Token: ds[i].Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then})
				}
				if len(ds) == 0 {
					break
				}
			}
		}
		for _, topic := range []string{"sync", "report", "order.cancel"} {
			ds, err := s.store.Claim(s.t.Context(), punctual.Claim{Topics: []string{topic}, Max: 100})
			if err != nil {
				s.t.Fatal(err)
			}
			for _, d := range ds {
				s.settle(punctual.Settlement{Topic: topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
			}
		}
	}
}

func (s *shop) settle(x punctual.Settlement) {
	s.t.Helper()
	errs, err := s.store.Settle(s.t.Context(), []punctual.Settlement{x})
	if err := errors.Join(append(errs, err)...); err != nil {
		s.t.Fatal(err)
	}
}

// groups pushes orders that will be closed, and copies of closed ones to their groups. Two copies
// of the group mail are dead.
func (s *shop) groups() {
	s.t.Helper()
	s.clock.Set(s.now)
	for n := range 40 {
		s.push(punctual.NewMessage{Topic: "order.closed", ID: fmt.Sprint("A-", 100+n), Due: s.now.Add(time.Duration(n+1) * time.Minute), Body: []byte(`{"order": 1}`)})
	}
	for group, n := range map[string]int{"billing": 3, "mail": 5, "stock": 1} {
		for k := range n {
			s.push(punctual.NewMessage{Topic: punctual.GroupTopic("order.closed", group), ID: fmt.Sprint("A-", k), Body: []byte(`{"order": 1}`), Headers: map[string]string{"punctual-after": "payment.notify/payment-71"}})
		}
	}
	s.kill(punctual.GroupTopic("order.closed", "mail"), "the mail server refuses the address", 2)
}

// audit enters changes that people might have made into the audit log.
func (s *shop) audit() {
	s.t.Helper()
	for _, ch := range []audit.Change{
		{Who: "anna", From: "10.0.0.4", Verb: "configure", Topic: "payment.notify", Detail: "lease=2m, max_attempts=7, backoff=2m,10m,10m,1h,2h,6h,15h, dead_retention=30d"},
		{Who: "anna", From: "10.0.0.4", Verb: "pause schedule", Topic: "sync", ID: "prices", Detail: "until the API is back"},
		{Who: "deploy", From: "2001:db8:85a3::8a2e:370:7334", Verb: "bulk shift", Topic: "reminder", Detail: "state scheduled, from 2026-11-21 08:00:00 UTC, to 2026-11-21 11:00:00 UTC, header campaign=autumn, by +1h"},
		{Who: "anna", From: "10.0.0.4", Verb: "cancel", Topic: "order.cancel", ID: "order-1017"},
	} {
		if _, err := s.pages.Record(s.t.Context(), ch, func(context.Context) (int64, error) { return 1, nil }); err != nil {
			s.t.Fatal(err)
		}
	}
}

// deaths makes some messages dead on most of the last nine days.
func (s *shop) deaths() {
	s.t.Helper()
	number := 0
	for day, deaths := range []int{2, 0, 5, 1, 3, 0, 9, 4, 2} {
		at := s.now.Add(time.Duration(day-9)*24*time.Hour + time.Hour)
		s.runSchedules(at.Add(-23*time.Hour), at)
		s.clock.Set(at)
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

// attempts pushes one message, which the bank has refused six times by now.
func (s *shop) attempts() {
	s.t.Helper()
	at := s.now.Add(-9 * time.Hour)
	s.runSchedules(at.Add(-12*time.Hour), at)
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

// ahead pushes the messages that are due from now on, a report of today that may be due already,
// and seven messages that are leased now.
func (s *shop) ahead() {
	s.t.Helper()
	s.clock.Set(s.now.Add(-10 * time.Minute))
	var ms []punctual.NewMessage
	add := func(topic string, n int, due time.Time) {
		m := order(topic, n)
		m.Due = due
		ms = append(ms, m)
	}
	for n := range 420 { // an order is cancelled after an hour unless it is paid, so fewer orders are left of those that are due soon
		add("order.cancel", 100+n, s.now.Add(time.Duration(60*math.Sqrt(float64(n*37%420)/420)*60)*time.Second))
	}
	day := s.now.Truncate(24 * time.Hour)
	for n := range 1500 { // visits are between 8:00 and 18:00, most of them in the next days
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

// consumers reports two programs that claim from order.cancel.
func (s *shop) consumers(_ context.Context, topic string) (storekit.Consumers, error) {
	c := storekit.Consumers{Since: s.now.Add(-counted)}
	if topic == "order.cancel" {
		c.All = []storekit.Consumer{
			{User: "shop", Address: "10.0.0.12", Name: "closer-1", Waiting: 1, Leases: 4, NextEnd: s.now.Add(21 * time.Second), Claimed: 131, Settled: 127, LastSeen: s.now.Add(-time.Second)},
			{User: "shop", Address: "10.0.0.13", Name: "closer-2", Waiting: 1, Leases: 3, NextEnd: s.now.Add(26 * time.Second), Claimed: 118, Settled: 115, LastSeen: s.now.Add(-2 * time.Second)},
		}
	}
	return c, nil
}

// counted is for how long the console of the pictures has counted: for longer than any picture
// shows.
const counted = 26 * time.Hour

// day tells the console's observer of pushes, deliveries and settlements within the duration
// counted before now.
func (s *shop) day() {
	o := s.pages.Observer()
	for minute := -int(counted / time.Minute); minute <= 0; minute++ {
		ctx := overview.At(s.t.Context(), s.now.Add(time.Duration(minute)*time.Minute))
		hour := s.now.Add(time.Duration(minute) * time.Minute).Hour()
		busy := 0.55 - 0.45*math.Cos(2*math.Pi*float64(hour-3)/24) // people sleep at night
		for _, topic := range []struct {
			name       string
			rate       float64
			slow, kept int // how many times as late as others, and of how many messages one is pushed but not delivered
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
					late *= 30 // as while a program is released anew
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

// shopPages returns the paths of the pages of which pictures are taken, by the names of the
// pictures.
func shopPages() map[string]string {
	all := pages()
	all["message"], all["find"], all["topic-dead"] = "/topics/payment.notify/messages/payment-71", "/find?id=order-107&stay=1", all["dead-topic"]
	delete(all, "dead-topic")
	all["lateness-24h"] = "/lateness?span=24h"
	all["settings"], all["consumers"], all["events"] = "/topics/payment.notify/settings", "/topics/order.cancel/consumers", "/topics/payment.notify/events"
	all["schedules"], all["topic-schedules"], all["schedule"] = "/schedules", "/topics/report/schedules", "/topics/report/schedules/daily"
	all["schedule-new"] = "/schedules/new?" + url.Values{"topic": {"report"}, "name": {"weekly"}, "was_spec": {""}, "spec": {"0 9 1 * MON"}, "zone_name": {"Europe/Berlin"}, "was_zone_name": {"UTC"}}.Encode()
	all["schedule-edit"] = "/topics/report/schedules/daily/edit"
	all["groups"], all["group"], all["groups-settings"] = "/topics/order.closed", "/topics/order.closed@g.mail?state=dead", "/topics/order.closed/settings"
	all["bulk"], all["filtered"] = "/topics/reminder/bulk?state=scheduled&prefix=visit-1", "/topics/reminder?state=scheduled&prefix=visit-10"
	all["find-header"] = "/find?topic=reminder&state=scheduled&name=trace&value=0a"
	all["dead-group"] = "/topics/payment.notify?" + url.Values{"state": {"dead"}, "match": {"is"}, "error": {"no such customer"}}.Encode()
	return all
}
