package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/duty"
	familyrig "github.com/punctualmq/punctual/internal/rigs/family"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
	"github.com/punctualmq/punctual/worker"
)

// RunFirst checks that the first use of a companion is later than the second one by a second at
// most (P11). First uses are the first message after the groups of a topic are set, the first
// follow-up that has to be forwarded, the first occurrence of a schedule, and the first message
// that a shift moves. does is the store of the process that carries out duties, and stores that of
// the process that stores. They may be one store, or two of one data set as two processes have
// them, also two that are not notified of each other. It takes some seconds. With
// PUNCTUAL_FIRST_USES=200 it logs how late those of 200 fresh topics are instead.
//
// The lateness is that of what the duty stores, by the store's clock. It is compared with that of
// the second use because the time that a duty takes depends on the machine.
func RunFirst(t *testing.T, does, stores punctual.Store) {
	if _, err := punctual.As[storekit.TopicNamer](stores); err != nil {
		t.Skipf("skipped: %v", err)
	}
	if n, _ := strconv.Atoi(os.Getenv("PUNCTUAL_FIRST_USES")); n > 0 {
		measureFirst(t, does, stores, n)
		return
	}
	for _, kind := range firstKinds() {
		for by, start := range map[string]func(*firstBench) (stop func()){"duty.Run": (*firstBench).startDuty, "a worker": (*firstBench).startWorker} {
			for _, restarted := range []bool{false, true} {
				name := fmt.Sprintf("%s by %s", kind.name, by)
				if restarted {
					name += " after a restart"
				}
				t.Run(name, func(t *testing.T) {
					notLater(t, func(try int) (first, second time.Duration) {
						b := newFirstBench(t, does, stores, fmt.Sprintf("%s %v %d", name, restarted, try))
						return b.uses(kind.use, start, restarted)
					})
				})
			}
		}
	}
	t.Run("a shift", func(t *testing.T) {
		notLater(t, func(try int) (first, second time.Duration) {
			b := newFirstBench(t, does, stores, fmt.Sprint("shift ", try))
			return b.shifts(1), b.shifts(2)
		})
	})
}

// firstKind is a kind of companion, with what uses it.
type firstKind struct {
	name string
	use  func(b *firstBench, n int) (topic, id string, due time.Time)
}

func firstKinds() []firstKind {
	return []firstKind{{"groups", useGroups}, {"follow-ups", useFollowUps}, {"schedules", useSchedule}}
}

// measureFirst logs how late the first uses of n fresh topics are, while duty.Run does the duties
// of the whole store.
func measureFirst(t *testing.T, does, stores punctual.Store, n int) {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- duty.Run(ctx, does, &duty.Config{Logger: slog.New(slog.DiscardHandler)}) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("duty.Run: %v", err)
		}
	})
	for _, kind := range firstKinds() {
		t.Run(kind.name, func(t *testing.T) {
			late := make([]time.Duration, n)
			t.Cleanup(func() {
				slices.Sort(late)
				t.Logf("%d fresh topics: p50 %v, p99 %v, at most %v late", n, late[n/2], late[n*99/100], late[n-1])
			})
			for i := range n {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					b := newFirstBench(t, does, stores, fmt.Sprint(kind.name, " measured ", i))
					topic, id, due := kind.use(b, 1)
					late[i] = b.lateness(topic, id, due)
					// A schedule that goes on would only make those of the others later.
					if err := schedule.Delete(b.Context(), b.queue, b.topic, "s"); err != nil && !errors.Is(err, punctual.ErrNotFound) {
						t.Error(err)
					}
				})
			}
		})
	}
}

// notLater fails the test if in each of three tries the first use is later than the second by more
// than a second.
func notLater(t *testing.T, try func(n int) (first, second time.Duration)) {
	t.Helper()
	var late []time.Duration
	for n := range 3 {
		first, second := try(n)
		if first <= second+time.Second {
			return
		}
		late = append(late, first-second)
	}
	t.Errorf("%s: the first use was later than the second by %v; want at most a second", promise.P11, late)
}

// firstBench is the bench of the process that stores, with the store of the process that carries
// out duties.
type firstBench struct {
	*bench
	does punctual.Store
	warm string // a topic with the group of firstGroup, whose duties run before the first use
}

// firstGroup is the group that each topic of these cases has.
const firstGroup = "g"

func newFirstBench(t *testing.T, does, stores punctual.Store, name string) *firstBench {
	name = strings.ReplaceAll(strings.ReplaceAll("first "+name, " ", "-"), "duty.Run", "duty")
	return &firstBench{bench: newBench(t, stores, name), does: does, warm: name + "-warm"}
}

// startDuty carries out the duties of the case's topics with duty.Run.
func (b *firstBench) startDuty() (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- duty.Run(ctx, b.does, &duty.Config{Topics: []string{b.topic, b.warm}, Logger: slog.New(slog.DiscardHandler)})
	}()
	return func() {
		end()
		if err := <-done; err != nil {
			b.Errorf("duty.Run: %v", err)
		}
	}
}

// startWorker has a worker carry out the duties of the case's topics. Its handlers leave the
// messages where they are.
func (b *firstBench) startWorker() (stop func()) {
	b.Helper()
	w := worker.New(familyrig.New(b.does, 1, false), &worker.Config{Schedules: true, Logger: slog.New(slog.DiscardHandler)})
	later := punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return punctual.Snooze(time.Hour) })
	for _, topic := range []string{b.topic, b.warm} {
		w.HandleGroup(topic, firstGroup, later)
	}
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := w.Stop(context.Background()); err != nil {
			b.Errorf("stop the worker: %v", err)
		}
	}
}

// uses makes the companion while duties run or, with restarted, before they start. It returns how
// late the first and the second use were.
func (b *firstBench) uses(use func(b *firstBench, n int) (topic, id string, due time.Time), start func(*firstBench) (stop func()), restarted bool) (first, second time.Duration) {
	b.Helper()
	b.configure(b.warm, punctual.SettingsPatch{Groups: &[]string{firstGroup}})
	var began time.Time
	if !restarted {
		b.running(start)
	}
	topic, id, due := use(b, 1)
	if restarted {
		if s := b.state(topic, id); s != punctual.StateNone {
			b.Fatalf("%s is %s before the duties start, so this case shows nothing", id, s)
		}
		began = b.now()
		b.running(start)
	}
	first = b.lateness(topic, id, latest(due, began))
	topic, id, due = use(b, 2)
	return first, b.lateness(topic, id, due)
}

// running carries out duties until the test ends, and returns when they run.
func (b *firstBench) running(start func(*firstBench) (stop func())) {
	b.Helper()
	b.Cleanup(sync.OnceFunc(start(b)))
	if _, err := b.queue.Push(b.Context(), b.warm, nil, punctual.ID("a")); err != nil {
		b.Fatal(err)
	}
	b.until(promise.P1, "the duties run", func() bool { return b.state(punctual.GroupTopic(b.warm, firstGroup), "a") != punctual.StateNone })
}

// now returns the store's clock.
func (b *firstBench) now() time.Time {
	b.Helper()
	now, err := b.store.Now(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return now
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// lateness returns how long after due a duty has stored a message.
func (b *firstBench) lateness(topic, id string, due time.Time) time.Duration {
	b.Helper()
	b.until(promise.P11, fmt.Sprintf("%s is in %s", id, topic), func() bool { return b.state(topic, id) != punctual.StateNone })
	return b.get(topic, id).Created.Sub(due)
}

// useGroups sets the groups of the case's topic the first time, and pushes a message.
func useGroups(b *firstBench, n int) (topic, id string, due time.Time) {
	b.Helper()
	if n == 1 {
		b.groups(firstGroup)
	}
	id = fmt.Sprint("m", n)
	due = b.now()
	b.push(id)
	return b.group(firstGroup), id, due
}

// useFollowUps acks a message with a follow-up that has to be forwarded.
func useFollowUps(b *firstBench, n int) (topic, id string, due time.Time) {
	b.Helper()
	topic, id = b.topic+"-to", fmt.Sprint("m", n, "~next")
	due = b.now()
	b.follow(fmt.Sprint("m", n), punctual.NewMessage{Topic: topic, ID: id})
	return topic, id, due
}

// useSchedule puts, the first time, a schedule that comes each second. It has all its times stored,
// whatever became of the occurrence before.
func useSchedule(b *firstBench, n int) (topic, id string, due time.Time) {
	b.Helper()
	const name = "s"
	from := b.now().Add(300 * time.Millisecond).Truncate(time.Second).Add(time.Second)
	if n == 1 {
		s := schedule.Schedule{Topic: b.topic, Name: name, Spec: "* * * * * *", From: from, Overlap: schedule.OverlapAllow, Missed: schedule.MissedAll}
		if _, err := schedule.Put(b.Context(), b.queue, s); err != nil {
			b.Fatal(err)
		}
	}
	return b.topic, name + "~" + from.UTC().Format("20060102T150405Z"), from
}

// shifts returns how late a claim gets a message that a shift makes due.
func (b *firstBench) shifts(n int) time.Duration {
	b.Helper()
	b.push(fmt.Sprint("m", n), punctual.In(time.Hour))
	type claimed struct {
		ds  []punctual.Delivery
		err error
	}
	got := make(chan claimed, 1)
	go func() {
		ds, err := b.does.Claim(b.Context(), punctual.Claim{Topics: []string{b.topic}, Max: 1, Wait: patience})
		got <- claimed{ds, err}
	}()
	due := b.now()
	if r, err := bulk.Run(b.Context(), b.queue, bulk.Job{Do: bulk.Shift, Select: bulk.Selection{Topic: b.topic}, By: -time.Hour}); err != nil || r.Done != 1 {
		b.Fatalf("the shift: %+v, %v", r, err)
	}
	c := <-got
	if c.err != nil || len(c.ds) != 1 {
		b.Fatalf("%s: the claim brought %v, %v", promise.P11, c.ds, c.err)
	}
	b.settle(punctual.Settlement{Topic: b.topic, ID: c.ds[0].ID, Token: c.ds[0].Token, Verb: punctual.SettleAck})
	return c.ds[0].Delivered.Sub(due)
}
