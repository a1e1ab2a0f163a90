package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	attributesrig "github.com/punctualmq/punctual/internal/rigs/attributes"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// cronRig is a store whose clock the test moves, and a duty that runs when the test says so.
type cronRig struct {
	*testing.T
	clock *storekit.ManualClock
	store *memstore.Store
	queue *punctual.Queue
	duty  *schedule.Scheduler
}

// friday is where the clock of a cronRig begins.
var friday = time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)

func newCronRig(t *testing.T) *cronRig {
	clock := storekit.NewManualClock(friday)
	store := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() { store.Close() })
	return &cronRig{T: t, clock: clock, store: store, queue: punctual.NewQueue(store, nil), duty: schedule.NewScheduler(store)}
}

func (r *cronRig) put(s schedule.Schedule) {
	r.Helper()
	if _, err := schedule.Put(r.Context(), r.queue, s); err != nil {
		r.Fatal(err)
	}
}

func (r *cronRig) get(topic, name string) schedule.Info {
	r.Helper()
	s, err := schedule.Get(r.Context(), r.queue, topic, name)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// claim takes the schedules of a topic that are due.
func (r *cronRig) claim(topic string) []punctual.Delivery {
	r.Helper()
	ds, err := r.store.Claim(r.Context(), punctual.Claim{Topics: []string{topic + "@cron"}, Max: 1000, Lease: 5 * time.Second})
	if err != nil {
		r.Fatal(err)
	}
	return ds
}

// settle has the duty decide about a schedule, settles the schedule's message as the duty says, and
// returns the error of the settlement.
func (r *cronRig) settle(d *punctual.Delivery) error {
	r.Helper()
	how := punctual.DecisionOf(r.duty.Handle(r.Context(), d))
	errs, err := r.store.Settle(r.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: how.Verb, Delay: how.Delay, Then: how.Then}})
	if err != nil {
		r.Fatal(err)
	}
	return errs[0]
}

// tick runs the duty until no schedule of the topic is due.
func (r *cronRig) tick(topic string) {
	r.Helper()
	for ds := r.claim(topic); len(ds) > 0; ds = r.claim(topic) {
		for i := range ds {
			if err := r.settle(&ds[i]); err != nil {
				r.Fatalf("%s: %v", ds[i].ID, err)
			}
		}
	}
}

// at sets the clock to a time of the day that is so many days after friday, and runs the duty.
func (r *cronRig) at(topic string, day int, clock string) {
	r.Helper()
	c, err := time.Parse("15:04:05", clock)
	if err != nil {
		r.Fatal(err)
	}
	y, m, d := friday.Date()
	r.clock.Set(time.Date(y, m, d+day, c.Hour(), c.Minute(), c.Second(), 0, time.UTC))
	r.tick(topic)
}

// stored are the IDs of the occurrences in a topic that are scheduled or ready.
func (r *cronRig) stored(topic string) (ids []string) {
	r.Helper()
	for _, state := range []punctual.State{punctual.StateReady, punctual.StateScheduled} {
		for m, err := range r.queue.List(r.Context(), punctual.ListQuery{Topic: topic, State: state}) {
			if err != nil {
				r.Fatal(err)
			}
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (r *cronRig) wantStored(topic string, want ...string) {
	r.Helper()
	if got := r.stored(topic); !slices.Equal(got, want) {
		r.Fatalf("stored %q, want %q", got, want)
	}
}

// handle claims the messages of a topic and settles each of them.
func (r *cronRig) handle(topic string, verb punctual.Verb) {
	r.Helper()
	ds, err := r.store.Claim(r.Context(), punctual.Claim{Topics: []string{topic}, Max: 1000})
	if err != nil {
		r.Fatal(err)
	}
	for _, d := range ds {
		if errs, err := r.store.Settle(r.Context(), []punctual.Settlement{{Topic: topic, ID: d.ID, Token: d.Token, Verb: verb}}); err != nil || errs[0] != nil {
			r.Fatal(err, errs)
		}
	}
}

func TestScheduleStoresItsOccurrences(t *testing.T) {
	r := newCronRig(t)
	r.put(schedule.Schedule{
		Topic: "reports", Name: "daily", Spec: "0 9 * * MON-FRI", Zone: "Europe/Berlin", Spread: 5 * time.Minute, Body: []byte("make it"), Headers: map[string]string{"tenant": "acme"},
		MaxAttempts: 3, ExpireAfter: time.Hour, DropExpired: true, Remember: time.Minute, Timeout: 90 * time.Second,
	})
	due := r.get("reports", "daily").Next[0].Due
	if nine := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC); due.Before(nine) || !due.Before(nine.Add(5*time.Minute)) {
		t.Fatalf("due at %v", due)
	}
	r.clock.Set(due.Add(-time.Millisecond))
	r.tick("reports")
	r.wantStored("reports")
	r.clock.Set(due)
	r.tick("reports")
	r.wantStored("reports", "daily~20261123T080000Z")
	m, err := r.queue.Get(t.Context(), "reports", "daily~20261123T080000Z")
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Body) != "make it" || m.Headers["tenant"] != "acme" || m.Headers[schedule.HeaderSchedule] != "daily" || m.Headers[schedule.HeaderOccurrence] != "2026-11-23T08:00:00Z" || m.Headers[schedule.HeaderManual] != "" {
		t.Errorf("%q %v", m.Body, m.Headers)
	}
	if !m.Due.Equal(due) || m.MaxAttempts != 3 || !m.Expires.Equal(due.Add(time.Hour)) || !m.DropExpired || m.Remember != time.Minute || m.Timeout != 90*time.Second {
		t.Errorf("%+v", m)
	}
	r.handle("reports", punctual.SettleAck)
	info := r.get("reports", "daily")
	if next := info.Next[0]; next.ID != "daily~20261124T080000Z" || !next.Due.Equal(due.AddDate(0, 0, 1)) || len(info.Next) != 10 {
		t.Errorf("next %+v", info.Next)
	}
	if info.Counts.Stored != 1 || info.Counts.Missed != 0 || info.Counts.Skipped != 0 || len(info.Last) != 1 || info.Last[0].Status != schedule.OccurrenceFinished || !strings.HasPrefix(info.Words, "at 09:0") {
		t.Errorf("%+v", info)
	}
}

func TestPutScheduleAgain(t *testing.T) {
	r := newCronRig(t)
	s := schedule.Schedule{Topic: "reports", Name: "daily", Spec: "0 9 * * *", Body: []byte("a")}
	for i, want := range []punctual.PushStatus{punctual.PushStored, punctual.PushDuplicate, punctual.PushReplaced, punctual.PushDuplicate} {
		if i == 2 {
			s.Body = []byte("b")
		}
		before, _ := r.queue.Get(t.Context(), "reports@cron", "daily")
		got, err := schedule.Put(t.Context(), r.queue, s)
		if err != nil || got != want {
			t.Errorf("put %d: %v, %v; want %v", i+1, got, err, want)
		}
		if after, _ := r.queue.Get(t.Context(), "reports@cron", "daily"); want == punctual.PushDuplicate && string(after.Body) != string(before.Body) {
			t.Errorf("put %d changed %s to %s", i+1, before.Body, after.Body)
		}
	}
	r.at("reports", 0, "09:00:00")
	info := r.get("reports", "daily")
	back := info.Schedule
	if got, err := schedule.Put(t.Context(), r.queue, back); err != nil || got != punctual.PushDuplicate {
		t.Errorf("what GetSchedule returned: %v, %v", got, err)
	}
	// A schedule that was cancelled as a message, in a companion that remembers IDs, can be put
	// again.
	window := punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)}
	if _, err := r.store.Configure(t.Context(), "reports@cron", window); err != nil {
		t.Fatal(err)
	}
	if err := r.queue.Cancel(t.Context(), "reports@cron", "daily"); err != nil {
		t.Fatal(err)
	}
	if got, err := schedule.Put(t.Context(), r.queue, s); err != nil || got != punctual.PushStored {
		t.Errorf("after a cancel: %v, %v", got, err)
	}
	r.at("reports", 1, "09:00:00")
	r.at("reports", 2, "09:00:00")
	if info := r.get("reports", "daily"); info.Counts.Stored != 1 || info.Counts.Skipped != 1 {
		t.Errorf("in a companion that remembers IDs: %+v", info)
	}
}

func ptr[T any](v T) *T { return &v }

// Bad input is refused with an error that names the place, and nothing is stored.
func TestBadSchedules(t *testing.T) {
	r := newCronRig(t)
	good := schedule.Schedule{Topic: "reports", Name: "daily", Spec: "0 9 * * *"}
	for text, change := range map[string]func(s *schedule.Schedule){
		`schedule daily in reports: schedule "0 9 * *": it has 4 fields`:                            func(s *schedule.Schedule) { s.Spec = "0 9 * *" },
		`schedule daily in reports: schedule "0 25 * * *": hour, at character 3`:                    func(s *schedule.Schedule) { s.Spec = "0 25 * * *" },
		`schedule daily in reports: schedule "0 0 31 2 *": no time ever matches`:                    func(s *schedule.Schedule) { s.Spec = "0 0 31 2 *" },
		`schedule daily in reports: no time is left: it never comes`:                                func(s *schedule.Schedule) { s.Spec = "0 0 9 * * * 2020" },
		`schedule daily in reports: no time is left until 2026-11-20T08:59:00Z`:                     func(s *schedule.Schedule) { s.Until = friday.Add(29 * time.Minute) },
		`schedule daily in reports: every time falls on a day that is excepted`:                     func(s *schedule.Schedule) { s.Spec, s.Except = "0 9 25 12 *", []string{"12-25"} },
		`schedule daily in reports: zone "Mars/Base" is not known here`:                             func(s *schedule.Schedule) { s.Zone = "Mars/Base" },
		`schedule daily in reports: until 2026-11-20T08:30:00Z is before from 2026-11-20T09:30:00Z`: func(s *schedule.Schedule) { s.Until, s.From = friday, friday.Add(time.Hour) },
		`schedule daily in reports: exception 1, "Monday", is no day`:                               func(s *schedule.Schedule) { s.Except = []string{"Monday"} },
		`schedule daily in reports: body has 262145 bytes: use at most 262144`:                      func(s *schedule.Schedule) { s.Body = make([]byte, schedule.MaxBody+1) },
		`schedule daily in reports: headers have 20003 bytes: use at most 15360`:                    func(s *schedule.Schedule) { s.Headers = map[string]string{"big": strings.Repeat("x", 20_000)} },
		`schedule daily in reports: header "punctual-schedule": names that begin with punctual-`:    func(s *schedule.Schedule) { s.Headers = map[string]string{"punctual-schedule": "x"} },
		`schedule daily in reports: header "a" is not UTF-8`:                                        func(s *schedule.Schedule) { s.Headers = map[string]string{"a": "\xff"} },
		`schedule daily in reports: grace -1s: use 1s to`:                                           func(s *schedule.Schedule) { s.Grace = -time.Second },
		`schedule daily in reports: spread 25h0m0s: use 0 to 24h0m0s`:                               func(s *schedule.Schedule) { s.Spread = 25 * time.Hour },
		`schedule daily in reports: limit -1 is negative`:                                           func(s *schedule.Schedule) { s.Limit = -1 },
		`schedule daily in reports: pause after 11 dead occurrences: use 1 to 10`:                   func(s *schedule.Schedule) { s.MaxDead = 11 },
		`schedule daily in reports: timeout -1s: use at most 720h0m0s`:                              func(s *schedule.Schedule) { s.Timeout = -time.Second },
		`schedule daily in reports: timeout 720h0m1s: use at most`:                                  func(s *schedule.Schedule) { s.Timeout = limits.MaxTimeout + time.Second },
		`schedule daily in reports: overlap 7`:                                                      func(s *schedule.Schedule) { s.Overlap = 7 },
		`schedule daily in reports: missed 7`:                                                       func(s *schedule.Schedule) { s.Missed = 7 },
		`schedule da~ly in reports: byte 3 of the name is not one of`:                               func(s *schedule.Schedule) { s.Name = "da~ly" },
		`the name has 101 bytes: use at most 100`:                                                   func(s *schedule.Schedule) { s.Name = strings.Repeat("x", 101) },
		`a schedule in reports has no name`:                                                         func(s *schedule.Schedule) { s.Name = "" },
		`schedule "daily" has no topic`:                                                             func(s *schedule.Schedule) { s.Topic = "" },
		`schedule "daily" in reports@x: a companion has no schedules; use the topic reports`:        func(s *schedule.Schedule) { s.Topic = "reports@x" },
		`topic "reports!@cron": byte 8 is not one of`:                                               func(s *schedule.Schedule) { s.Topic = "reports!" },
	} {
		s := good
		change(&s)
		_, err := schedule.Put(t.Context(), r.queue, s)
		if err == nil || !strings.Contains(err.Error(), text) || !errors.Is(err, punctual.ErrInvalid) && !errors.Is(err, punctual.ErrTooLarge) || !punctual.Definite(err) {
			t.Errorf("%v, want %q", err, text)
		}
		if _, again := s.Preview(friday, 1); (again == nil) != strings.Contains(text, "topic \"reports!") {
			t.Errorf("%s: Preview says %v", text, again)
		}
	}
	if topics, err := r.store.Topics(t.Context()); err != nil || len(topics) != 0 {
		t.Errorf("topics %v, %v", topics, err)
	}
	r.put(good)
	bad := good
	bad.Spec = "0 25 * * *"
	if _, err := schedule.Put(t.Context(), r.queue, bad); err == nil || r.get("reports", "daily").Spec != good.Spec {
		t.Errorf("a bad change: %v, %+v", err, r.get("reports", "daily"))
	}
}

func TestSchedulesThatAreNot(t *testing.T) {
	r := newCronRig(t)
	ctx := t.Context()
	for name, err := range map[string]error{
		"get":      second(schedule.Get(ctx, r.queue, "reports", "daily")),
		"pause":    schedule.Pause(ctx, r.queue, "reports", "daily", "", ""),
		"resume":   schedule.Resume(ctx, r.queue, "reports", "daily", false),
		"skip":     second(schedule.Skip(ctx, r.queue, "reports", "daily", 1)),
		"run":      second(schedule.Run(ctx, r.queue, "reports", "daily")),
		"delete":   schedule.Delete(ctx, r.queue, "reports", "daily"),
		"backfill": second(schedule.Backfill(ctx, r.queue, "reports", "daily", friday, friday, true)),
	} {
		if !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if topics, err := r.store.Topics(ctx); err != nil || len(topics) != 0 {
		t.Errorf("topics %v, %v", topics, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPauseResumeSkipRunDelete(t *testing.T) {
	r := newCronRig(t)
	ctx := t.Context()
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *", Overlap: schedule.OverlapAllow})
	if err := schedule.Pause(ctx, r.queue, "sync", "hourly", "anna", "until the API is back"); err != nil {
		t.Fatal(err)
	}
	r.at("sync", 0, "10:30:00")
	r.wantStored("sync")
	if p := r.get("sync", "hourly").Paused; p == nil || p.By != "anna" || p.Note != "until the API is back" || !p.At.Equal(friday) {
		t.Errorf("paused %+v", p)
	}
	run, err := schedule.Run(ctx, r.queue, "sync", "hourly")
	if err != nil || run.ID != "hourly~20261120T103000.000Z" {
		t.Fatalf("%+v, %v", run, err)
	}
	if m, err := r.queue.Get(ctx, "sync", run.ID); err != nil || m.Headers[schedule.HeaderManual] != "run" {
		t.Errorf("%+v, %v", m, err)
	}
	if err := schedule.Resume(ctx, r.queue, "sync", "hourly", false); err != nil {
		t.Fatal(err)
	}
	if err := schedule.Resume(ctx, r.queue, "sync", "hourly", true); err != nil {
		t.Errorf("resume of what is not paused: %v", err)
	}
	r.tick("sync")
	r.wantStored("sync", run.ID)
	skipped, err := schedule.Skip(ctx, r.queue, "sync", "hourly", 1)
	if err != nil || len(skipped) != 1 || skipped[0].ID != "hourly~20261120T110000Z" {
		t.Fatalf("%+v, %v", skipped, err)
	}
	r.at("sync", 0, "11:00:00")
	r.at("sync", 0, "12:00:00")
	r.wantStored("sync", run.ID, "hourly~20261120T120000Z")
	info := r.get("sync", "hourly")
	var last []string
	for _, o := range info.Last {
		last = append(last, o.At.Format("15:04 ")+string(o.Status))
	}
	if want := []string{"12:00 ready", "11:00 skipped", "10:00 paused", "09:00 paused"}; !slices.Equal(last, want) || info.Counts.Skipped != 3 || info.Counts.Stored != 1 {
		t.Errorf("last %q, want %q; %+v", last, want, info)
	}
	if err := schedule.Delete(ctx, r.queue, "sync", "hourly"); err != nil {
		t.Fatal(err)
	}
	r.at("sync", 1, "12:00:00")
	r.wantStored("sync", run.ID, "hourly~20261120T120000Z")
}

// A schedule that is new is paused from the start, so that no time of it comes; one that is there
// stays paused or goes on, also with another definition.
func TestPutPaused(t *testing.T) {
	r := newCronRig(t)
	put := func(spec, note string) punctual.PushStatus {
		t.Helper()
		status, err := schedule.PutPaused(t.Context(), r.queue, schedule.Schedule{Topic: "sync", Name: "often", Spec: spec, Overlap: schedule.OverlapAllow}, "anna", note)
		if err != nil && !errors.Is(err, punctual.ErrTooLarge) {
			t.Fatal(err)
		}
		return status
	}
	if status := put("@every 1s", strings.Repeat("x", 1000)); status != punctual.PushNone {
		t.Errorf("with a note that is too long: %v", status)
	}
	if _, err := schedule.Get(t.Context(), r.queue, "sync", "often"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("with a note that is too long it was put: %v", err)
	}
	if status := put("@every 1s", "as there"); status != punctual.PushStored {
		t.Errorf("put: %v", status)
	}
	r.at("sync", 0, "10:30:00")
	r.wantStored("sync")
	if p := r.get("sync", "often").Paused; p == nil || p.By != "anna" || p.Note != "as there" || !p.At.Equal(friday) {
		t.Errorf("paused %+v", p)
	}
	if status := put("@every 1h", "as there"); status != punctual.PushReplaced || r.get("sync", "often").Paused == nil {
		t.Errorf("with another definition: %v, %+v", status, r.get("sync", "often"))
	}
	if err := schedule.Resume(t.Context(), r.queue, "sync", "often", false); err != nil {
		t.Fatal(err)
	}
	if status := put("@every 1h", "as there"); status != punctual.PushDuplicate || r.get("sync", "often").Paused != nil {
		t.Errorf("after a resume: %v, %+v", status, r.get("sync", "often"))
	}
	r.at("sync", 0, "11:00:00")
	r.wantStored("sync", "often~20261120T110000Z")
}

func TestPauseWithCatchUp(t *testing.T) {
	r := newCronRig(t)
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
	if err := schedule.Pause(t.Context(), r.queue, "sync", "hourly", "", ""); err != nil {
		t.Fatal(err)
	}
	r.at("sync", 0, "12:30:00")
	if err := schedule.Resume(t.Context(), r.queue, "sync", "hourly", true); err != nil {
		t.Fatal(err)
	}
	r.tick("sync")
	r.wantStored("sync", "hourly~20261120T120000Z")
	if info := r.get("sync", "hourly"); info.Counts.Missed != 3 || info.Counts.Skipped != 0 {
		t.Errorf("%+v", info)
	}
}

func TestBackfill(t *testing.T) {
	r := newCronRig(t)
	ctx := t.Context()
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *", Except: []string{"11-19"}})
	r.at("sync", 0, "09:00:00")
	r.handle("sync", punctual.SettleDiscard) // so that the occurrence of 9:00 is dead
	from, to := friday.AddDate(0, 0, -2).Add(12*time.Hour), friday.Add(30*time.Minute)
	b, err := schedule.Backfill(ctx, r.queue, "sync", "hourly", from, to, true)
	if err != nil || len(b.Times) != 3+10 || b.Stored+b.Kept != 0 || b.Times[0].ID != "hourly~20261118T210000Z" || b.Times[3].ID != "hourly~20261120T000000Z" {
		t.Fatalf("%+v, %v", b, err)
	}
	r.wantStored("sync")
	if b, err = schedule.Backfill(ctx, r.queue, "sync", "hourly", from, to, false); err != nil || b.Stored != 12 || b.Kept != 1 || b.Times[12].Status != "dead" || b.Times[0].Status != schedule.OccurrenceStored {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err = schedule.Backfill(ctx, r.queue, "sync", "hourly", from, to, false); err != nil || b.Stored != 0 || b.Kept != 13 || b.Times[0].Status != "ready" {
		t.Errorf("again: %+v, %v", b, err)
	}
	if m, err := r.queue.Get(ctx, "sync", "hourly~20261120T000000Z"); err != nil || m.Headers[schedule.HeaderManual] != "backfill" {
		t.Errorf("%+v, %v", m, err)
	}
	for text, between := range map[string][2]time.Time{
		"is ahead":          {from, friday.Add(time.Hour)},
		"exchange them":     {to, from},
		"needs the instant": {{}, to},
		"more than 10000":   {friday.AddDate(-2, 0, 0), to},
	} {
		if _, err := schedule.Backfill(ctx, r.queue, "sync", "hourly", between[0], between[1], false); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// dropsNine stores each pushed message, and answers for the one of nine o'clock that there is no
// space.
type dropsNine struct {
	*memstore.Store
}

func (s *dropsNine) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	rs, err := s.Store.Push(ctx, ms)
	for i := range rs {
		if rs[i].ID == "hourly~20261120T090000Z" {
			rs[i].Err = fmt.Errorf("%s: %w", rs[i].ID, punctual.ErrNoSpace)
		}
	}
	return rs, err
}

// P13: the error of a Backfill of which one occurrence failed says so, and is not definite, because
// the others were stored.
func TestBackfillOfWhichOneFails(t *testing.T) {
	r := newCronRig(t)
	r.clock.Set(friday.Add(2 * time.Hour))
	q := punctual.NewQueue(&dropsNine{r.store}, nil)
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
	b, err := schedule.Backfill(t.Context(), q, "sync", "hourly", friday, friday.Add(2*time.Hour), false)
	if !errors.Is(err, punctual.ErrNoSpace) || punctual.Definite(err) || !strings.Contains(err.Error(), "1 of 2 failed") || b.Stored != 1 {
		t.Errorf("%+v, %v (definite %v); want 1 of 2 stored and an error that is not definite", b, err, punctual.Definite(err))
	}
}

// Schedules yields the schedules of all topics, of one topic, or those that Select selects, topic
// by topic in the order in which they come.
func TestListSchedules(t *testing.T) {
	r := newCronRig(t)
	r.put(schedule.Schedule{Topic: "b", Name: "late", Spec: "0 11 * * *"})
	r.put(schedule.Schedule{Topic: "b", Name: "soon", Spec: "0 9 * * *"})
	r.put(schedule.Schedule{Topic: "a", Name: "rest", Spec: "0 9 * * *"})
	r.put(schedule.Schedule{Topic: "a", Name: "work", Spec: "0 10 * * *"})
	if err := schedule.Pause(t.Context(), r.queue, "a", "rest", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.queue.Push(t.Context(), "c@cron", []byte("hello"), punctual.ID("strange")); err != nil {
		t.Fatal(err)
	}
	list := func(q schedule.Query) (names []string) {
		for s, err := range schedule.List(t.Context(), r.queue, q) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, s.Topic+"/"+s.Name)
			if len(s.Next) > q.Next || s.Problem == "" && len(s.Next) < q.Next {
				t.Errorf("%d times ahead", len(s.Next))
			}
			if (s.Problem != "") != (s.Name == "strange") {
				t.Errorf("%s: %s", s.Name, s.Problem)
			}
		}
		return names
	}
	if got, want := list(schedule.Query{Next: 3}), []string{"a/work", "a/rest", "b/soon", "b/late", "c/strange"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := list(schedule.Query{Topic: "b"}), []string{"b/soon", "b/late"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	odd := schedule.Query{Select: func(topic, name string) bool { return topic == "b" || name == "rest" }}
	if got, want := list(odd), []string{"a/rest", "b/soon", "b/late"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := list(schedule.Query{Topic: "nowhere"}); got != nil {
		t.Errorf("got %q", got)
	}
	var refusals []error
	for _, err := range schedule.List(t.Context(), r.queue, schedule.Query{Last: 21}) {
		refusals = append(refusals, err)
	}
	if len(refusals) != 1 || !errors.Is(refusals[0], punctual.ErrInvalid) {
		t.Errorf("21 of the latest: %v; want ErrInvalid alone", refusals)
	}
}

// TestOneOfTwoDuties: a duty whose lease has ended stores nothing any more, and neither does one
// whose schedule was edited or deleted while it decided.
func TestOneOfTwoDuties(t *testing.T) {
	for name, meanwhile := range map[string]func(r *cronRig){
		"another duty": func(r *cronRig) {
			r.clock.Advance(5 * time.Second)
			r.tick("sync")
		},
		"a change": func(r *cronRig) {
			r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *", Body: []byte("new")})
			r.tick("sync")
		},
		"other times": func(r *cronRig) {
			r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "30 * * * *"})
			r.tick("sync")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newCronRig(t)
			r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
			r.clock.Set(friday.Add(30 * time.Minute))
			slow := r.claim("sync")
			if len(slow) != 1 {
				t.Fatalf("claimed %d", len(slow))
			}
			meanwhile(r)
			r.wantStored("sync", "hourly~20261120T090000Z")
			if err := r.settle(&slow[0]); !errors.Is(err, punctual.ErrLeaseLost) {
				t.Errorf("the slow duty: %v", err)
			}
			r.wantStored("sync", "hourly~20261120T090000Z")
			if info := r.get("sync", "hourly"); info.Counts.Stored != 1 {
				t.Errorf("%+v", info)
			}
		})
	}
	r := newCronRig(t)
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
	r.clock.Set(friday.Add(30 * time.Minute))
	slow := r.claim("sync")
	if err := schedule.Delete(t.Context(), r.queue, "sync", "hourly"); err != nil {
		t.Fatal(err)
	}
	if err := r.settle(&slow[0]); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("deleted: %v", err)
	}
	r.wantStored("sync")
}

// An edit that meets another one is made again on the schedule that the other one has stored, so
// that none is lost.
func TestEditsAtOnce(t *testing.T) {
	r := newCronRig(t)
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
	if err := schedule.Pause(t.Context(), r.queue, "sync", "hourly", "anna", "first"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 5 {
				if _, err := schedule.Skip(t.Context(), r.queue, "sync", "hourly", 1); err != nil {
					t.Errorf("editor %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if next := r.get("sync", "hourly").Next[0].At; !next.Equal(friday.Add(30*time.Minute + 40*time.Hour)) {
		t.Errorf("after 40 skipped times comes %v", next)
	}
}

// While the topic refuses pushes, its times wait. Afterwards those that are late are missed, of
// which the latest is stored, and the schedule goes on. The schedules of a topic that is deleted go
// with it.
func TestTopicsThatTakeNothing(t *testing.T) {
	r := newCronRig(t)
	ctx := t.Context()
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
	if _, err := r.queue.Configure(ctx, "sync", func(s *punctual.Settings) { s.PushPaused = true }); err != nil {
		t.Fatal(err)
	}
	r.clock.Set(friday.Add(30 * time.Minute))
	d := r.claim("sync")
	if err := r.settle(&d[0]); !errors.Is(err, punctual.ErrPaused) {
		t.Fatalf("pushes are paused, and the settlement says %v", err)
	}
	r.wantStored("sync")
	if _, err := r.queue.Configure(ctx, "sync", func(s *punctual.Settings) { s.PushPaused = false }); err != nil {
		t.Fatal(err)
	}
	r.at("sync", 0, "11:30:00")
	r.wantStored("sync", "hourly~20261120T110000Z")
	if info := r.get("sync", "hourly"); info.Counts.Stored != 1 || info.Counts.Missed != 2 {
		t.Errorf("%+v", info)
	}
	if _, err := r.store.DeleteTopic(ctx, "sync"); err != nil {
		t.Fatal(err)
	}
	r.at("sync", 0, "12:30:00")
	if _, err := schedule.Get(ctx, r.queue, "sync", "hourly"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("a schedule of a deleted topic: %v", err)
	}
}

// A schedule whose messages could not be copied to the groups of its topic is refused, as a push of
// such a message is.
func TestScheduleTooLargeForGroups(t *testing.T) {
	r := newCronRig(t)
	_, err := r.queue.Configure(t.Context(), "big", func(s *punctual.Settings) {
		for i := range limits.MaxGroups {
			s.Groups = append(s.Groups, fmt.Sprint("g", i))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s := schedule.Schedule{Topic: "big", Name: "daily", Spec: "@daily", Body: make([]byte, schedule.MaxBody)}
	if _, err := r.queue.Push(t.Context(), "big", s.Body); !errors.Is(err, punctual.ErrTooLarge) {
		t.Fatalf("this test shows nothing: a push of such a body: %v", err)
	}
	if _, err := schedule.Put(t.Context(), r.queue, s); !errors.Is(err, punctual.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	s.Topic = "other"
	r.put(s)
}

// A dead message with the ID of an occurrence does not hold its schedule up.
func TestDeadOccurrenceWithTheSameID(t *testing.T) {
	r := newCronRig(t)
	if _, err := r.queue.Push(t.Context(), "sync", []byte("old"), punctual.ID("hourly~20261120T090000Z")); err != nil {
		t.Fatal(err)
	}
	r.handle("sync", punctual.SettleDiscard)
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *"})
	r.at("sync", 0, "09:00:00")
	r.wantStored("sync", "hourly~20261120T090000Z")
}

// A duty that cannot read a schedule, or does not know its zone, snoozes it for other processes,
// and the error says so.
func TestLeftToOthers(t *testing.T) {
	for name, body := range map[string]string{
		"zone":        `{"v":1,"spec":"0 9 * * *","zone":"Mars/Base","grace":60000,"state":{"created":1,"changed":1,"revision":1,"next":{"at":1795165200000}}}`,
		"version":     `{"v":9,"spec":"0 9 * * *"}`,
		"no schedule": `hello`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newCronRig(t)
			if _, err := r.queue.Push(t.Context(), "sync@cron", []byte(body), punctual.ID("x"), punctual.MaxAttempts(1)); err != nil {
				t.Fatal(err)
			}
			d := r.claim("sync")
			err := r.duty.Handle(t.Context(), &d[0])
			if how := punctual.DecisionOf(err); how.Verb != punctual.SettleSnooze || how.Delay != time.Minute || !strings.Contains(err.Error(), "schedule x is left to other processes") {
				t.Errorf("%v, %+v", err, how)
			}
			if err := r.settle(&d[0]); err != nil {
				t.Fatal(err)
			}
			if m, err := r.queue.Get(t.Context(), "sync@cron", "x"); err != nil || m.State != punctual.StateScheduled || string(m.Body) != body {
				t.Errorf("%+v, %v", m, err)
			}
			info := r.get("sync", "x")
			if info.Problem == "" {
				t.Errorf("%+v", info)
			}
			if err := schedule.Pause(t.Context(), r.queue, "sync", "x", "", ""); (err == nil) != (name == "zone") {
				t.Errorf("pause: %v", err) // a pause needs no zone, and only the schedule of the case zone can be read
			}
		})
	}
}

// When the clock steps back, no occurrence is stored twice. When it steps forward by a day,
// MissedAll stores all times in between.
func TestClockSteps(t *testing.T) {
	r := newCronRig(t)
	r.put(schedule.Schedule{Topic: "sync", Name: "hourly", Spec: "0 * * * *", Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow})
	r.at("sync", 0, "09:00:00")
	// memstore's clock does not run backwards. A store whose clock did would show the duty an
	// earlier time in its deliveries.
	r.clock.Set(friday.Add(90 * time.Minute))
	d := r.claim("sync")
	d[0].Delivered = friday
	how := punctual.DecisionOf(r.duty.Handle(t.Context(), &d[0]))
	if how.Verb != punctual.SettleAck || len(how.Then) != 1 || how.Then[0].Topic != "sync@cron" || !how.Then[0].Due.Equal(friday.Add(90*time.Minute)) {
		t.Errorf("an hour and a half back: %+v", how)
	}
	r.clock.Set(friday.Add(24*time.Hour + time.Minute))
	r.tick("sync")
	if info := r.get("sync", "hourly"); info.Counts.Stored != 24 || len(r.stored("sync")) != 24 {
		t.Errorf("a day forward: %+v, %d messages", info, len(r.stored("sync")))
	}
}

// TestDutiesWithDifferentZoneData: of two duties, one knows that a zone has moved by an hour and
// the other does not. Each day has one occurrence all the same, at the instant that the one or the
// other knows.
func TestDutiesWithDifferentZoneData(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seedrig.Of(t), 1))
	zone := func(hours int) map[string]*time.Location {
		return map[string]*time.Location{"Europe/Berlin": time.FixedZone("moved", hours*3600)}
	}
	r := newCronRig(t)
	duties := []*schedule.Scheduler{schedule.NewSchedulerWith(r.store, zone(1)), schedule.NewSchedulerWith(r.store, zone(2))}
	r.put(schedule.Schedule{Topic: "sync", Name: "s", Spec: "0 9 * * *", Zone: "Europe/Berlin", Overlap: schedule.OverlapAllow})
	const days = 30
	for range days * 24 * 2 {
		r.clock.Advance(30 * time.Minute)
		r.duty = duties[rnd.IntN(2)]
		r.tick("sync")
	}
	seen := make(map[string]int)
	atEight, atSeven := 0, 0
	for _, id := range r.stored("sync") {
		day, clock, _ := strings.Cut(strings.TrimPrefix(id, "s~"), "T")
		seen[day]++
		switch clock {
		case "080000Z":
			atEight++
		case "070000Z":
			atSeven++
		default:
			t.Errorf("%s is at no instant that one of the duties knows", id)
		}
	}
	if atEight == 0 || atSeven == 0 {
		t.Errorf("%d and %d occurrences by the two versions, so this test shows nothing", atEight, atSeven)
	}
	for day, n := range seen {
		if n != 1 {
			t.Errorf("%s has %d occurrences", day, n)
		}
	}
	if c := r.get("sync", "s").Counts; len(seen) != days || c != (punctual.ScheduleCounts{Stored: days}) {
		t.Errorf("%d days of %d have one; %+v", len(seen), days, c)
	}
}

// TestEverySecondForDays: the duty comes to a schedule of each second once an hour, for 20 days, or
// for a year in make torture. Each of its times is counted.
func TestEverySecondForDays(t *testing.T) {
	r := newCronRig(t)
	r.put(schedule.Schedule{Topic: "sync", Name: "s", Spec: "* * * * * *"})
	hours := int64(20 * 24)
	if os.Getenv("PUNCTUAL_TORTURE_CYCLES") != "" {
		hours = 365 * 24
	}
	for range hours {
		r.clock.Advance(time.Hour)
		r.tick("sync")
		r.handle("sync", punctual.SettleAck)
	}
	// Of the 61 times within the grace one is stored, and the others overlap with it.
	want := punctual.ScheduleCounts{Stored: hours, Missed: hours * (3600 - 61), Skipped: hours * 60}
	if c := r.get("sync", "s").Counts; c != want {
		t.Errorf("%+v; want %+v", c, want)
	}
}

// settingsAway is a store whose settings cannot be read while away is true.
type settingsAway struct {
	*memstore.Store
	away bool
}

func (s *settingsAway) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if s.away {
		return punctual.Settings{}, fmt.Errorf("settings of %s: %w", topic, punctual.ErrUnreachable)
	}
	return s.Store.Settings(ctx, topic)
}

// A duty that cannot read whether the topic tells of missed times decides nothing, so that none of
// them goes untold.
func TestMissedTimesAreToldOnceTheSettingsCanBeRead(t *testing.T) {
	r := newCronRig(t)
	store := &settingsAway{Store: r.store, away: true}
	r.duty = schedule.NewScheduler(store)
	on := punctual.EventMissed
	if _, err := r.store.Configure(t.Context(), "reports", punctual.SettingsPatch{Emit: &on}); err != nil {
		t.Fatal(err)
	}
	r.put(schedule.Schedule{Topic: "reports", Name: "hourly", Spec: "0 * * * *", Missed: schedule.MissedNone, Grace: time.Minute})
	r.clock.Advance(3*time.Hour + 10*time.Minute) // 9, 10 and 11 o'clock have gone by
	d := r.claim("reports")
	if len(d) != 1 {
		t.Fatalf("%d schedules are due, want one", len(d))
	}
	how := punctual.DecisionOf(r.duty.Handle(t.Context(), &d[0]))
	if how.Verb != punctual.SettleSnooze || !errors.Is(how.Err, punctual.ErrUnreachable) {
		t.Fatalf("without the settings the duty decided %s, %v", how.Verb, how.Err)
	}
	if _, err := r.store.Settle(t.Context(), []punctual.Settlement{{Topic: d[0].Topic, ID: d[0].ID, Token: d[0].Token, Verb: how.Verb, Delay: how.Delay}}); err != nil {
		t.Fatal(err)
	}
	store.away = false
	r.clock.Advance(10 * time.Minute)
	r.tick("reports")
	ds, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"reports@events"}, Max: 10})
	if err != nil || len(ds) != 1 {
		t.Fatalf("told of %d events, %v; want one", len(ds), err)
	}
	if e, err := event.Parse(ds[0].Body); err != nil || e.Event != punctual.EventMissed || e.Count != 3 {
		t.Errorf("told of %+v, %v; want three missed times", e, err)
	}
}

// TestOccurrencesOfSchedules has six schedules, one after the other, live through random hours on a
// store in memory: with changes of the Spec, duties that die and lose their leases, late duties,
// and consumers that ack or give up. In the end the store has had exactly the IDs that the Specs
// give, each once.
func TestOccurrencesOfSchedules(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seedrig.Of(t), 1))
	for range 6 {
		r := newCronRig(t)
		seen := make(map[string]int)
		want := make(map[string]bool)
		const name = "s"
		s := schedule.Schedule{Topic: "sync", Name: name, Spec: "*/10 * * * *", Zone: "Europe/Berlin", Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow}
		since := friday
		note := func() {
			now := r.clock.Now()
			p, err := s.Preview(since, 5000)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range p.Next {
				if !o.At.After(now) {
					want[o.ID] = true
				}
			}
			since = now
		}
		take := func() {
			for _, id := range r.stored("sync") {
				seen[id]++
			}
			r.handle("sync", []punctual.Verb{punctual.SettleAck, punctual.SettleDiscard}[rnd.IntN(2)])
		}
		r.put(s)
		for range 100 {
			r.clock.Advance(time.Duration(rnd.Int64N(int64(3 * time.Hour))))
			switch rnd.IntN(6) {
			case 0:
				note()
				s.Spec = []string{"*/10 * * * *", "5 * * * *", "@every 25m"}[rnd.IntN(3)]
				if _, err := schedule.Put(t.Context(), r.queue, s); errors.Is(err, punctual.ErrOverloaded) {
					r.tick("sync")
					r.put(s)
				} else if err != nil {
					t.Fatal(err)
				}
			case 1:
				for _, d := range r.claim("sync") { // a duty that dies between its claim and its ack
					_ = r.duty.Handle(t.Context(), &d)
				}
				r.clock.Advance(5 * time.Second)
			default:
				r.tick("sync")
				take()
			}
		}
		note()
		r.tick("sync")
		take()
		for id, n := range seen {
			if !want[id] || n != 1 {
				t.Errorf("%s was stored %d times, and is a time: %v", id, n, want[id])
			}
		}
		if info := r.get("sync", name); len(seen) != len(want) || info.Counts.Stored != int64(len(want)) {
			t.Errorf("%d stored of %d, counted %d", len(seen), len(want), info.Counts.Stored)
		}
	}
}

// A Queue on a store without follow-ups refuses schedules.
func TestSchedulesNeedFollowUps(t *testing.T) {
	r := newCronRig(t)
	q := punctual.NewQueue(plainStore{r.store}, nil)
	if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "a", Name: "b", Spec: "@daily"}); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// plainStore has the methods of Store alone.
type plainStore struct{ below punctual.Store }

func (s plainStore) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return s.below.Push(ctx, ms)
}

func (s plainStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return s.below.Claim(ctx, c)
}

func (s plainStore) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return s.below.Settle(ctx, ss)
}

func (s plainStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.below.Amend(ctx, as)
}
func (s plainStore) Now(ctx context.Context) (time.Time, error) { return s.below.Now(ctx) }
func (s plainStore) Close() error                               { return s.below.Close() }

// TestScheduleHandsAttributesOn: each attribute that messages can have is kept in a schedule, and
// its occurrences have it.
func TestScheduleHandsAttributesOn(t *testing.T) {
	r := newCronRig(t)
	full := attributesrig.Full(t)
	s := schedule.Schedule{Topic: "reports", Name: "daily", Spec: "0 9 * * *"}
	s.SetAttributes(full)
	r.put(s)
	info := r.get("reports", "daily")
	if got := info.Schedule.Attributes(); got != full {
		t.Errorf("stored with %+v, want %+v", got, full)
	}
	r.clock.Set(info.Next[0].Due)
	r.tick("reports")
	m, err := r.queue.Get(t.Context(), "reports", info.Next[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := storekit.AttributesOf(&m.Message); got != full {
		t.Errorf("the occurrence has %+v, want %+v", got, full)
	}
	other := full
	for i, v := 0, reflect.ValueOf(&other).Elem(); i < v.NumField(); i++ {
		s.SetAttributes(full)
		r.put(s)
		other = full
		v.Field(i).SetZero()
		s.SetAttributes(other)
		if result, err := schedule.Put(t.Context(), r.queue, s); err != nil || result != punctual.PushReplaced {
			t.Errorf("a schedule with another %s: %v, %v", v.Type().Field(i).Name, result, err)
		}
	}
}

// A schedule whose occurrences have a key makes a topic with keys, where its occurrences come one
// after the other, and is refused in a topic without keys.
func TestScheduleWithAKey(t *testing.T) {
	r := newCronRig(t)
	s := schedule.Schedule{Topic: "reports", Name: "often", Spec: "* * * * *", Overlap: schedule.OverlapAllow, Missed: schedule.MissedAll, Key: "c7"}
	r.put(s)
	set, err := r.queue.Configure(t.Context(), "reports", func(s *punctual.Settings) { s.MaxKeyLeases = 1 })
	if err != nil || !set.Keyed {
		t.Fatalf("the topic has %+v, %v; want keys", set, err)
	}
	for range 2 {
		r.clock.Set(r.get("reports", "often").Next[0].Due)
		r.tick("reports")
	}
	ds, err := r.queue.Store().Claim(t.Context(), punctual.Claim{Topics: []string{"reports"}, Max: 9})
	if err != nil || len(ds) != 1 || ds[0].Key != "c7" {
		t.Fatalf("claimed %v, %v; want the first of two occurrences", ds, err)
	}
	if _, err := r.queue.Push(t.Context(), "plain", nil); err != nil {
		t.Fatal(err)
	}
	s.Topic = "plain"
	if _, err := schedule.Put(t.Context(), r.queue, s); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("put of a schedule with a key in a topic without keys: %v; want ErrInvalid", err)
	}
	s.Key = ""
	r.put(s)
}

// A Queue that was not made by NewQueue is an ErrInvalid that says so, also where a schedule is
// put.
func TestZeroQueue(t *testing.T) {
	_, err := schedule.Put(t.Context(), new(punctual.Queue), schedule.Schedule{Topic: "t", Name: "n", Spec: "@daily"})
	if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "NewQueue") {
		t.Errorf("put on a zero queue: %v; want an ErrInvalid that names NewQueue", err)
	}
}
