package duties

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Processes that do duties and are killed. A child process that is to be killed at a stage does
// them over a wrapper of the store, which tells the parent process when the stage has come. The
// call at which that happens goes no further.

// stage is the moment at which a process is killed, and what has to be true then.
type stage struct {
	name string
	// settle and push report whether the process is killed at a call of that method for a topic:
	// before the call is made or, if behind is set, after it.
	settle, push func(behind bool, topic string) bool
	// hit checks that the process was killed at this stage.
	hit func(b *bench)
}

// killTopic is the topic of the messages, and killTo the one to which their follow-ups go. stormed
// is the Child.Program of storm.
const (
	killTopic = "killed"
	killTo    = "killed-to"
	stormed   = "storm"
)

var killGroups = []string{"billing", "mail"}

// arrived is the byte that a child sends its parent when its stage has come.
const arrived = 'k'

func stages() []stage {
	never := func(bool, string) bool { return false }
	leased := func(b *bench, topic, id string) {
		b.Helper()
		if i := b.get(topic, id); i.Attempt != 1 || i.State != punctual.StateLeased && i.State != punctual.StateReady {
			b.Fatalf("%s of %s is %s after %d attempts, so the process was not killed with it in its hands", id, topic, i.State, i.Attempt)
		}
	}
	copies := func(b *bench) int { return len(b.ids(b.group("billing"))) + len(b.ids(b.group("mail"))) }
	envelope := func(b *bench) string {
		b.Helper()
		ids := b.ids(storekit.OutTopic(b.topic))
		if len(ids) != 1 {
			b.Fatalf("the envelopes are %q", ids)
		}
		return ids[0]
	}
	return []stage{
		{
			"between claim and ack of a copy",
			func(behind bool, topic string) bool { return !behind && topic == killTopic },
			never,
			func(b *bench) {
				if leased(b, killTopic, "a"); copies(b) != 0 {
					b.Fatalf("%s: there are copies before the ack", promise.P1)
				}
			},
		},
		{
			"behind the ack of a copy",
			func(behind bool, topic string) bool { return behind && topic == killTopic },
			never,
			func(b *bench) {
				if s := b.state(killTopic, "a"); s != punctual.StateNone || copies(b) != 2 {
					b.Fatalf("%s: behind the ack the message is %q, and there are %d copies", promise.P1, s, copies(b))
				}
			},
		},
		{
			"between claim and push of a follow-up",
			never,
			func(behind bool, topic string) bool { return !behind && topic == killTo },
			func(b *bench) {
				if leased(b, storekit.OutTopic(b.topic), envelope(b)); len(b.ids(killTo)) != 0 {
					b.Fatal("the follow-up is there before its push")
				}
			},
		},
		{
			"between push and ack of a follow-up",
			never,
			func(behind bool, topic string) bool { return behind && topic == killTo },
			func(b *bench) {
				if leased(b, storekit.OutTopic(b.topic), envelope(b)); !slices.Equal(b.ids(killTo), []string{"next"}) {
					b.Fatalf("%s: behind its push the follow-up is not there", promise.P1)
				}
			},
		},
		{
			"behind the ack of a follow-up",
			func(behind bool, topic string) bool { return behind && topic == storekit.OutTopic(killTopic) },
			never,
			func(b *bench) {
				if ids := b.ids(storekit.OutTopic(b.topic)); len(ids) != 0 || !slices.Equal(b.ids(killTo), []string{"next"}) {
					b.Fatalf("%s: behind the ack there are the envelopes %q", promise.P1, ids)
				}
			},
		},
	}
}

// Opener opens the store that an address says. The caller closes the store, unless its process is
// killed.
type Opener func(t *testing.T, address string) punctual.Store

// RunKilled kills processes that do duties of a store, at each stage and then at random, and checks
// that each copy and each follow-up is stored once. address returns where a fresh store is, and
// open opens it in any process. test is the name of the test that calls RunKilled: a child process
// runs that test alone and never returns from RunKilled.
func RunKilled(t *testing.T, test string, address func(t *testing.T) string, open Opener) {
	if c, ok := ledger.ChildOf(t); ok {
		runChild(t, c, open)
		return
	}
	if !follows(t, open(t, address(t))) {
		t.Skip("skipped: this store has no follow-ups")
	}
	for _, s := range stages() {
		t.Run(s.name, func(t *testing.T) { killAt(t, test, s, address(t), open) })
	}
	t.Run("at random", func(t *testing.T) { killAtRandom(t, test, address(t), open) })
}

// follows reports whether a store has follow-ups, and closes it.
func follows(t *testing.T, store punctual.Store) bool {
	t.Helper()
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := punctual.As[storekit.AbilityReporter](store)
	if err != nil {
		return false
	}
	can, err := r.Abilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return can.Follow != storekit.ReachNone
}

// closing runs f with the store, and then closes it, because only one process at a time can open
// some stores.
func closing(t *testing.T, address string, open Opener, topic string, f func(b *bench)) {
	t.Helper()
	store := open(t, address)
	f(newBench(t, store, topic))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// killAt has a process killed at a stage, and does the rest of the duties in this process.
func killAt(t *testing.T, test string, s stage, address string, open Opener) {
	closing(t, address, open, killTopic, func(b *bench) {
		short := punctual.SettingsPatch{Lease: ptr(time.Second)}
		b.configure(storekit.OutTopic(killTopic), short)
		b.follow("first", punctual.NewMessage{Topic: killTo, ID: "next", Delay: time.Hour, IfExists: punctual.IfExistsReplace})
		b.configure(killTopic, short)
		b.groups(killGroups...)
		b.push("a")
	})
	p, err := ledger.StartChild(test, ledger.Child{Program: s.name, Store: address})
	if err != nil {
		t.Fatal(err)
	}
	came := false
	for what := range p.Said {
		if came = what == arrived; came {
			break
		}
	}
	if err := p.Kill(); err != nil || !came {
		t.Fatalf("the process has not come to be killed %s: %v", s.name, err)
	}
	closing(t, address, open, killTopic, func(b *bench) {
		s.hit(b)
		stop := b.duties()
		for _, g := range killGroups {
			b.copied(g, "a")
		}
		b.until(promise.P1, "all is done", func() bool {
			return b.state(killTopic, "a") == punctual.StateNone && len(b.ids(storekit.OutTopic(killTopic))) == 0 && len(b.ids(killTo)) > 0
		})
		stop()
		for _, topic := range []string{b.group("billing"), b.group("mail")} {
			if got := b.ids(topic); !slices.Equal(got, []string{"a"}) {
				b.Errorf("%s: %s has %q; want one copy", promise.P1, topic, got)
			}
		}
		if got := b.ids(killTo); !slices.Equal(got, []string{"next"}) {
			b.Errorf("%s: %s has %q; want the follow-up once", promise.P1, killTo, got)
		}
	})
}

// runChild does what Child.Program says, until the process is killed.
func runChild(t *testing.T, c ledger.Child, open Opener) {
	store := open(t, c.Store)
	if c.Program == stormed {
		storm(t, c, store)
		return
	}
	i := slices.IndexFunc(stages(), func(s stage) bool { return s.name == c.Program })
	s := stages()[i]
	over := &stopping{Store: store, stage: s, arrived: sync.OnceFunc(func() { c.Say(arrived) })}
	b := newBench(t, store, killTopic)
	b.duties(over)
	select {} // until it is killed
}

// stopping is a wrapper of a store in which a call of Settle or Push that comes to the stage never
// returns.
type stopping struct {
	Store   punctual.Store
	stage   stage
	arrived func()
}

// Unwrap returns the store.
func (s *stopping) Unwrap() punctual.Store { return s.Store }

func (s *stopping) stop() {
	s.arrived()
	select {}
}

// Settle implements punctual.Store.
func (s *stopping) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	acks := ss[0].Verb == punctual.SettleAck
	if acks && s.stage.settle(false, ss[0].Topic) {
		s.stop()
	}
	errs, err := s.Store.Settle(ctx, ss)
	if acks && err == nil && errs[0] == nil && s.stage.settle(true, ss[0].Topic) {
		s.stop()
	}
	return errs, err
}

// Push implements punctual.Store.
func (s *stopping) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if s.stage.push(false, ms[0].Topic) {
		s.stop()
	}
	rs, err := s.Store.Push(ctx, ms)
	if err == nil && rs[0].Err == nil && s.stage.push(true, ms[0].Topic) {
		s.stop()
	}
	return rs, err
}

// Claim implements punctual.Store.
func (s *stopping) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return s.Store.Claim(ctx, c)
}

// Amend implements punctual.Store.
func (s *stopping) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.Store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (s *stopping) Now(ctx context.Context) (time.Time, error) { return s.Store.Now(ctx) }

// Close implements punctual.Store.
func (s *stopping) Close() error { return s.Store.Close() }

// killAtRandom kills processes that push, cancel and copy, one after the other, and judges the
// copies by the answers that the processes have written down.
func killAtRandom(t *testing.T, test, address string, open Opener) {
	seed := ledger.TortureSeed(t)
	r := rand.New(rand.NewPCG(seed, 8))
	closing(t, address, open, killTopic, func(b *bench) {
		b.configure(killTopic, punctual.SettingsPatch{Lease: ptr(300 * time.Millisecond), MaxAttempts: ptr(1000)})
		b.groups(killGroups...)
	})
	journal := filepath.Join(t.TempDir(), "journal")
	rounds := ledger.FromEnv(t, "PUNCTUAL_TORTURE_CYCLES", 4)
	for n := range rounds {
		p, err := ledger.StartChild(test, ledger.Child{Program: stormed, Store: address, Journal: journal, Process: int64(n + 1), Seed: r.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		if what := <-p.Said; what != ledger.Working {
			t.Fatal(p.Kill())
		}
		time.Sleep(time.Duration(50+r.IntN(400)) * time.Millisecond)
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	closing(t, address, open, killTopic, func(b *bench) {
		told := readJournal(b, journal)
		s, err := b.in.Stats(b.Context(), killTopic)
		if err != nil {
			b.Fatal(err)
		}
		stop := b.duties()
		told.settled(b, killGroups)
		stop()
		b.Logf("%d messages of %d killed processes; %d were left to copy", len(told.messages), rounds, s.Live())
		if len(told.messages) < rounds {
			b.Error("the processes did next to nothing")
		}
	})
}

// storm pushes and cancels messages, and does the duties meanwhile, until the process is killed. It
// writes down each push and each cancel before it makes the call, and its answer if that says that
// the message was stored, cancelled or gone already.
func storm(t *testing.T, c ledger.Child, store punctual.Store) {
	b := newBench(t, store, killTopic)
	file, err := os.OpenFile(c.Journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	note := func(what, id string) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintf(file, "%s %s\n", what, id); err != nil {
			panic(err)
		}
	}
	go func() {
		_ = duty.Run(context.Background(), store, &duty.Config{Topics: []string{killTopic}, Logger: slog.New(slog.DiscardHandler)})
	}()
	c.Say(ledger.Working)
	var all sync.WaitGroup
	for pusher := range 4 {
		r := rand.New(rand.NewPCG(c.Seed, uint64(pusher)))
		all.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("m%d-%d-%d", c.Process, pusher, i)
				note("pushing", id)
				if _, err := b.queue.Push(context.Background(), killTopic, []byte(id), punctual.ID(id), punctual.In(time.Duration(r.IntN(200))*time.Millisecond)); err == nil {
					note("pushed", id)
				}
				if r.IntN(8) == 0 {
					note("cancelling", id)
					switch err := b.queue.Cancel(context.Background(), killTopic, id); {
					case err == nil:
						note("cancelled", id)
					case errors.Is(err, punctual.ErrNotFound):
						note("gone", id)
					}
				}
				time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// readJournal reads what storm has written down.
func readJournal(b *bench, journal string) *tally {
	b.Helper()
	file, err := os.Open(journal)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	t := newTally()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		what, id, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "pushing":
			t.pushing(id)
		case "pushed":
			t.pushed(id)
		case "cancelling":
			t.cancelling(id)
		case "cancelled":
			t.cancelled(id, nil)
		case "gone":
			t.cancelled(id, punctual.ErrNotFound)
		default:
			b.Fatalf("the journal has %q", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		b.Fatal(err)
	}
	return t
}
