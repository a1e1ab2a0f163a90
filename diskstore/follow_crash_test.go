package diskstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
)

// TestCrashLeavesSettlementsWhole cuts the power, or kills the process, while goroutines settle
// messages with follow-ups. In what is left each settlement has happened with all its follow-ups or
// not at all. Three structures show that:
//
//   - A tree: whoever acks a node stores its children with the ack. So a node below a root is there
//     if and only if the ack of its parent has happened, and its own has not. The topic of a node
//     depends on its depth: "tree", its companion "tree@next", or "wood".
//   - The events of topic tree: it tells of each of its nodes that was stored, and of each that was
//     acked, once.
//   - A tick, as schedules have them: its ack stores an occurrence, and the tick itself anew with
//     the next number.
func TestCrashLeavesSettlementsWhole(t *testing.T) {
	t.Parallel()
	seed := tortureSeed(t)
	var seen sightings
	for run := uint64(0); run < 20 && (run < 3 || !seen.enough()) && !t.Failed(); run++ {
		c := newCrashRun(rand.New(rand.NewPCG(seed, run)))
		c.work(t)
		for i, f := range c.files {
			if problems := c.check(t, f, &seen); len(problems) > 0 {
				t.Errorf("P1, P7: run %d, crash %d, before %s, with %d %% of what was not synced:\n%s", run, i, f.op, f.percent, strings.Join(problems, "\n"))
			}
		}
	}
	t.Logf("settlements that were under way in a crash: %+v", seen)
	if !seen.enough() {
		t.Errorf("of the settlements under way in a crash %+v, want some of each", seen)
	}
}

// sightings counts settlements of nodes with children that were under way in a crash: which had
// happened, which had not.
type sightings struct{ Happened, NotHappened int }

func (s *sightings) enough() bool { return s.Happened > 0 && s.NotHappened > 0 }

// crashRun is a store with goroutines at work, and what crashes leave of its files.
type crashRun struct {
	mem *vfs.MemFS

	mu    sync.Mutex
	rng   *rand.Rand      // guarded by mu
	begun map[string]bool // guarded by mu: settlements that were begun, by ID
	done  map[string]bool // guarded by mu: those that were answered
	ticks counted         // guarded by mu
	files []crashFiles    // guarded by mu
}

// crashFiles is what a crash leaves, with what callers knew then.
type crashFiles struct {
	mem         *vfs.MemFS
	op          string
	percent     int
	begun, done map[string]bool
	ticks       counted
}

// counted are the ticks that were answered, and those under way. Two are under way at once when
// one goroutine has its answer, and before it counts it another one has claimed the next tick.
type counted struct{ answered, underWay int }

const (
	crashRoots  = 6
	crashDepth  = 4
	crashesEach = 25
)

func newCrashRun(rng *rand.Rand) *crashRun {
	return &crashRun{mem: vfs.NewCrashableMem(), rng: rng, begun: make(map[string]bool), done: make(map[string]bool)}
}

// hook copies the files before some changes of one. It holds mu, so that no caller writes an answer
// down meanwhile: what begun and done say is what callers knew before the crash.
func (c *crashRun) hook(op fsOp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.begun) == 0 || len(c.files) == crashesEach || c.rng.IntN(5) > 0 {
		return nil
	}
	f := crashFiles{op: op.kind + " of " + op.name, percent: []int{0, 100, c.rng.IntN(101)}[c.rng.IntN(3)], ticks: c.ticks}
	f.begun, f.done = make(map[string]bool), make(map[string]bool)
	for id := range c.begun {
		f.begun[id] = true
	}
	for id := range c.done {
		f.done[id] = true
	}
	f.mem = c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: f.percent, RNG: rand.New(rand.NewPCG(c.rng.Uint64(), 0))})
	c.files = append(c.files, f)
	return nil
}

// topicOfNode returns the topic of a node of a tree. A node is named by the path to it: 3.1.2 is
// the second child of 3.1.
func topicOfNode(id string) string {
	return []string{"tree", "tree@next", "wood"}[strings.Count(id, ".")%3]
}

func depthOf(id string) int { return strings.Count(id, ".") + 1 }

func children(id string) []string { return []string{id + ".1", id + ".2"} }

var crashTopics = []string{"tree", "tree@next", "wood", "tick"}

// work lets goroutines settle until all trees are done, and more than five ticks.
func (c *crashRun) work(t *testing.T) {
	s, err := Open("store", &Options{fs: hookFS{c.mem, c.hook}, Logger: quiet, claimLimit: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Configure(t.Context(), "tree", punctual.SettingsPatch{Emit: ptr(punctual.EventPushed | punctual.EventAcked)}); err != nil {
		t.Fatal(err)
	}
	ms := []punctual.NewMessage{{Topic: "tick", ID: "tick", Body: []byte("0")}}
	for i := range crashRoots {
		ms = append(ms, punctual.NewMessage{Topic: "tree", ID: fmt.Sprint(i)})
	}
	push(t, s, ms...)
	ctx, stop := context.WithTimeout(t.Context(), waitLimit)
	defer stop()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				ds, err := s.Claim(ctx, punctual.Claim{Topics: crashTopics, Max: 3, Wait: time.Minute, Lease: time.Hour})
				for _, d := range ds {
					err = errors.Join(err, c.settle(s, d))
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				if c.finished() {
					stop()
				}
			}
		})
	}
	workers.Wait()
	if !c.finished() && !t.Failed() {
		t.Error("P1: the trees did not end")
	}
	closeStore(t, s)
}

// finished tells whether all nodes of the trees were settled, and more than five ticks.
func (c *crashRun) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done) == crashRoots*(1<<crashDepth-1) && c.ticks.answered > 5
}

// settle settles a delivery as its structure asks.
func (c *crashRun) settle(s *Store, d punctual.Delivery) error {
	st := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
	if d.Topic == "tick" {
		n, err := strconv.Atoi(string(d.Body))
		if err != nil {
			return err
		}
		st.Then = []punctual.NewMessage{
			{Topic: "occurrence", ID: fmt.Sprint(n), Delay: time.Hour},
			{Topic: "tick", ID: "tick", Body: []byte(fmt.Sprint(n + 1)), Delay: 2 * time.Millisecond},
		}
	} else if depthOf(d.ID) < crashDepth {
		for _, id := range children(d.ID) {
			st.Then = append(st.Then, punctual.NewMessage{Topic: topicOfNode(id), ID: id})
		}
	}
	c.mu.Lock()
	if d.Topic == "tick" {
		c.ticks.underWay++
	} else {
		c.begun[d.ID] = true
	}
	c.mu.Unlock()
	errs, err := s.Settle(context.Background(), []punctual.Settlement{st})
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Topic == "tick" {
		c.ticks.underWay--
		c.ticks.answered++
	} else {
		c.done[d.ID] = true
	}
	return nil
}

// check opens what a crash left, and returns what is wrong with it.
func (c *crashRun) check(t *testing.T, f crashFiles, seen *sightings) (problems []string) {
	t.Helper()
	s, err := Open("store", &Options{fs: hookFS{f.mem, func(fsOp) error { return nil }}, Logger: quiet})
	if err != nil {
		return []string{err.Error()}
	}
	defer closeStore(t, s)
	mustBeSound(t, s)
	there := make(map[string]bool)
	bodies := make(map[string]string)
	told := make(map[string]int) // how often each event is told of
	for _, topic := range append([]string{"occurrence", "tree@events"}, crashTopics...) {
		for state := punctual.StateScheduled; state <= punctual.StateDead; state++ {
			page, err := s.List(t.Context(), punctual.ListQuery{Topic: topic, State: state, Limit: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				there[topic+"/"+m.ID], bodies[topic+"/"+m.ID] = true, string(m.Body)
				if e, err := event.Parse(m.Body); topic == "tree@events" && err == nil {
					told[e.Event.String()+" "+e.ID]++
				}
			}
		}
	}
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i := range crashRoots {
		f.checkNode(fmt.Sprint(i), true, there, told, seen, complain)
	}
	for event, n := range told { // checkNode has counted down each event that must be told of
		if n != 0 {
			complain("%q is told of %d times too often", event, n)
		}
	}
	n, err := strconv.Atoi(bodies["tick/tick"])
	if err != nil || n < f.ticks.answered || n > f.ticks.answered+f.ticks.underWay {
		complain("the tick is the %q, and of the settlements of ticks %+v", bodies["tick/tick"], f.ticks)
	}
	for i := range n + 2 {
		if is := there["occurrence/"+fmt.Sprint(i)]; is != (i < n) {
			complain("the tick is the %d, and occurrence %d is there: %v", n, i, is)
		}
	}
	return problems
}

// checkNode compares a node and its descendants with what callers knew. stored says that the node
// was stored.
func (f *crashFiles) checkNode(id string, stored bool, there map[string]bool, told map[string]int, seen *sightings, complain func(format string, args ...any)) {
	topic := topicOfNode(id)
	is, inner, emits := there[topic+"/"+id], depthOf(id) < crashDepth, topic == "tree"
	switch {
	case is && !stored:
		complain("%s is there, and nobody has stored it", id)
	case stored && !is && !f.begun[id]:
		complain("%s is gone, and nobody has settled it", id)
	case is && f.done[id] && (inner || emits || f.percent == 100): // because a power cut may undo an ack that stores nothing
		complain("%s is there, and its ack was answered", id)
	}
	if emits && stored {
		told["pushed "+id]--
	}
	if emits && stored && !is {
		told["acked "+id]--
	}
	if !inner {
		return
	}
	if f.begun[id] && !f.done[id] {
		if is {
			seen.NotHappened++
		} else {
			seen.Happened++
		}
	}
	for _, child := range children(id) {
		f.checkNode(child, stored && !is, there, told, seen, complain)
	}
}
