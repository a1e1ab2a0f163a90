package duties

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Processes that do the duty of schedules and are killed. Each that is killed at random runs the
// duty, claims and acks occurrences, and changes the definition of one of the schedules now and
// then. ledger.Occurrences then judges the answers that these processes have written down.

const (
	// killedSchedules is how many schedules there are. Each but the first, whose definition
	// changes, has a time in every second, spread over the second, so that a tick is due about
	// every 17 ms.
	killedSchedules = 60
	// ticked is the Child.Program of such a process.
	ticked = "ticks"
)

// killedSpecs are the Specs between which the first schedule changes.
var killedSpecs = []string{"* * * * * *", "*/2 * * * * *", "1-59/3 * * * * *"}

func killedSchedule(i int, spec string) schedule.Schedule {
	return schedule.Schedule{
		Topic: killTopic, Name: fmt.Sprintf("s%02d", i), Spec: spec, Spread: 999 * time.Millisecond,
		Missed: schedule.MissedAll, Overlap: schedule.OverlapAllow, Body: []byte("b"),
	}
}

// RunKilledSchedules kills processes that do the duty of schedules, before and after the ack of a
// tick, and then at random, 12 times or as often as PUNCTUAL_TORTURE_CYCLES says. It checks that
// each time was stored once. Its parameters are those of RunKilled.
func RunKilledSchedules(t *testing.T, test string, address func(t *testing.T) string, open Opener) {
	if c, ok := ledger.ChildOf(t); ok {
		store := open(t, c.Store)
		if c.Program == ticked {
			runTicks(t, c, store)
		}
		i := slices.IndexFunc(tickStages(), func(s stage) bool { return s.name == c.Program })
		over := &stopping{Store: store, stage: tickStages()[i], arrived: sync.OnceFunc(func() { c.Say(arrived) })}
		newBench(t, store, killTopic).duties(over)
		select {} // until it is killed
	}
	where := address(t)
	if store := open(t, where); !follows(t, store) {
		t.Skip("skipped: this store has no follow-ups")
	}
	for _, s := range tickStages() {
		t.Run(s.name, func(t *testing.T) { killTickAt(t, test, s, address(t), open) })
	}
	r := rand.New(rand.NewPCG(ledger.TortureSeed(t), 9))
	rounds := ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", 12)
	journal := filepath.Join(t.TempDir(), "journal")
	for n := range rounds {
		p, err := ledger.StartChild(test, ledger.Child{Program: ticked, Store: where, Journal: journal, Process: int64(n + 1), Seed: r.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		if what := <-p.Said; what != ledger.Working {
			t.Fatal(p.Kill())
		}
		time.Sleep(time.Duration(r.IntN(250)) * time.Millisecond)
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	closing(t, where, open, killTopic, func(b *bench) { judgeTicks(b, journal, rounds) })
}

// tickStages returns the stages before and after the ack of a tick.
func tickStages() []stage {
	const cron = killTopic + "@cron"
	never := func(bool, string) bool { return false }
	return []stage{
		{
			"between claim and ack of a tick",
			func(behind bool, topic string) bool { return !behind && topic == cron },
			never,
			func(b *bench) {
				if i := b.get(cron, "s00"); i.Attempt != 1 || len(b.ids(killTopic)) != 0 {
					b.Fatalf("the schedule is %+v, and there are %q, so the process was not killed with its first tick in hand", i.State, b.ids(killTopic))
				}
			},
		},
		{
			"behind the ack of a tick",
			func(behind bool, topic string) bool { return behind && topic == cron },
			never,
			func(b *bench) {
				if i := b.get(cron, "s00"); i.Attempt != 0 || len(b.ids(killTopic)) == 0 {
					b.Fatalf("%s: behind its ack the schedule is %+v, and there are %q", promise.P13, i, b.ids(killTopic))
				}
			},
		},
	}
}

// killTickAt has a process killed at a stage of a tick, and goes on with the duty in this process.
func killTickAt(t *testing.T, test string, s stage, address string, open Opener) {
	var told ledger.Occurrences
	closing(t, address, open, killTopic, func(b *bench) {
		x := killedSchedule(0, killedSpecs[0])
		now, err := b.store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := told.Putting(x, now)
		if _, err := schedule.Put(t.Context(), b.queue, x); err != nil {
			t.Fatal(err)
		}
		if now, err = b.store.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		done(now)
	})
	p, err := ledger.StartChild(test, ledger.Child{Program: s.name, Store: address})
	if err != nil {
		t.Fatal(err)
	}
	what := <-p.Said
	if err := p.Kill(); err != nil || what != arrived {
		t.Fatalf("the process has not come to be killed %s: %v", s.name, err)
	}
	closing(t, address, open, killTopic, func(b *bench) {
		s.hit(b)
		stop := b.duties()
		before := len(b.ids(killTopic))
		b.until(promise.P1, "the schedule comes again", func() bool { return len(b.ids(killTopic)) > before+1 })
		stop()
		if err := schedule.Pause(t.Context(), b.queue, killTopic, "s00", "", ""); err != nil {
			t.Fatal(err)
		}
		for _, id := range b.ids(killTopic) {
			told.Stored(id, b.get(killTopic, id).Created)
		}
		info, err := schedule.Get(t.Context(), b.queue, killTopic, "s00")
		if err != nil {
			t.Fatal(err)
		}
		now, err := b.store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range told.Judge(info, now) {
			t.Error(problem)
		}
	})
}

// judgeTicks does the duty until no time has been left undecided for more than two seconds, and
// judges each schedule.
func judgeTicks(b *bench, journal string, rounds int) {
	told := readTicks(b, journal)
	stop := runDuty(b.store, killTopic)
	b.until(promise.P1, "every time that has come is decided", func() bool {
		for info, err := range schedule.List(b.Context(), b.queue, schedule.Query{Topic: killTopic}) {
			now, err2 := b.store.Now(b.Context())
			if err != nil || err2 != nil {
				b.Fatal(err, err2)
			}
			if !info.Overdue.IsZero() && now.Sub(info.Overdue) > 2*time.Second {
				return false
			}
		}
		return true
	})
	if err := stop(); err != nil {
		b.Error(err)
	}
	// The occurrences that are in the topic now were claimed by no process, or not acked.
	for _, id := range b.ids(killTopic) {
		told.met(id, b.get(killTopic, id).Created.UnixMilli())
	}
	total := 0
	for i := range killedSchedules {
		name := killedSchedule(i, "").Name
		info, err := schedule.Get(b.Context(), b.queue, killTopic, name)
		if err != nil {
			b.Fatal(err)
		}
		info.Overdue = time.Time{} // the duty has ended, so that nobody decides about the times that come now
		now, err := b.store.Now(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, problem := range told.schedules[name].Judge(info, now) {
			b.Errorf("%s: %s", name, problem)
		}
		total += int(info.Counts.Stored)
	}
	b.Logf("%d occurrences of %d schedules, %d deliveries, %d puts, %d killed processes, %d ticks in hand at kills", total, killedSchedules, told.deliveries, told.puts, rounds, len(told.inHand))
	if total < rounds || rounds >= 500 && len(told.inHand) == 0 {
		b.Error("the processes did next to nothing, or no kill met a tick")
	}
}

// ticksTold has what the processes have written down.
type ticksTold struct {
	schedules        map[string]*ledger.Occurrences
	deliveries, puts int
	// inHand has the ticks whose lease of a killed process had not ended when the next process
	// looked for them, by the name of the schedule and the end of the lease.
	inHand map[string]bool
}

func (t *ticksTold) met(id string, created int64) {
	name, _, _ := strings.Cut(id, "~")
	if t.schedules[name] == nil {
		t.schedules[name] = &ledger.Occurrences{}
	}
	t.schedules[name].Stored(id, time.UnixMilli(created))
}

// tickLine is a line of the journal of runTicks.
type tickLine struct {
	// What is putting, put, met or left. A process writes putting before a call that puts a
	// schedule, and put after it if it succeeded. met is an occurrence that was delivered, and left
	// a schedule whose tick was leased to another process when that was killed.
	What string
	// Name is that of the schedule, or with met the ID of the occurrence.
	Name string
	// Spec, with putting, is an index of killedSpecs.
	Spec int `json:",omitzero"`
	// At is a time in Unix ms: with putting and put the store's clock, with met when the occurrence
	// was created, and with left the end of the lease.
	At int64
}

// runTicks works until the process is killed, and writes down what judgeTicks has to know.
func runTicks(t *testing.T, c ledger.Child, store punctual.Store) {
	b := newBench(t, store, killTopic)
	ctx := context.Background()
	journal, err := ledger.OpenJournal(c.Journal)
	if err != nil {
		t.Fatal(err)
	}
	put := func(i, spec int) error {
		s := killedSchedule(i, killedSpecs[spec])
		now, err := store.Now(ctx)
		if err != nil {
			return err
		}
		journal.Append(tickLine{What: "putting", Name: s.Name, Spec: spec, At: now.UnixMilli()})
		if _, err := schedule.Put(ctx, b.queue, s); err != nil {
			return err
		}
		if now, err = store.Now(ctx); err == nil {
			journal.Append(tickLine{What: "put", Name: s.Name, At: now.UnixMilli()})
		}
		return err
	}
	if c.Process == 1 { // the later processes find the schedules in the store
		for i := range killedSchedules {
			if err := put(i, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for info, err := range b.queue.List(ctx, punctual.ListQuery{Topic: killTopic + "@cron", State: punctual.StateLeased, Bare: true}) {
		if err != nil {
			t.Fatal(err)
		}
		journal.Append(tickLine{What: "left", Name: info.ID, At: info.LeaseUntil.UnixMilli()})
	}
	go func() {
		_ = duty.Run(ctx, store, &duty.Config{Topics: []string{killTopic}, Logger: slog.New(slog.DiscardHandler)})
	}()
	c.Say(ledger.Working)
	r := rand.New(rand.NewPCG(c.Seed, 1))
	go func() {
		for {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			_ = put(0, r.IntN(len(killedSpecs)))
		}
	}()
	for {
		ds, err := store.Claim(ctx, punctual.Claim{Topics: []string{killTopic}, Max: 8, Wait: time.Second, Lease: time.Second})
		if err != nil {
			continue
		}
		var acks []punctual.Settlement
		for _, d := range ds {
			journal.Append(tickLine{What: "met", Name: d.ID, At: d.Created.UnixMilli()})
			acks = append(acks, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		}
		if len(acks) > 0 {
			_, _ = store.Settle(ctx, acks)
		}
	}
}

// readTicks reads what runTicks has written down.
func readTicks(b *bench, journal string) *ticksTold {
	b.Helper()
	t := &ticksTold{schedules: make(map[string]*ledger.Occurrences), inHand: make(map[string]bool)}
	done := make(map[string]func(time.Time))
	err := ledger.ReadJournal(journal, func(l tickLine) {
		switch l.What {
		case "putting":
			if t.schedules[l.Name] == nil {
				t.schedules[l.Name] = &ledger.Occurrences{}
			}
			s := killedSchedule(0, killedSpecs[l.Spec])
			s.Name = l.Name
			done[l.Name] = t.schedules[l.Name].Putting(s, time.UnixMilli(l.At))
			t.puts++
		case "put":
			done[l.Name](time.UnixMilli(l.At))
		case "met":
			t.met(l.Name, l.At)
			t.deliveries++
		case "left":
			t.inHand[fmt.Sprint(l.Name, " ", l.At)] = true
		default:
			b.Fatalf("the journal has %+v", l)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return t
}
