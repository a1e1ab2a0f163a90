// Package random compares long random histories on a store with the same histories on package
// memstore.
package random

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/compare"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Run performs random histories on a store and on package memstore side by side. It compares every
// answer, and after each of six parts of a history everything that is stored. The store needs an
// Inspector. With storetest.WithReopen it is reopened after each part.
//
// The model follows the store in what the contract leaves open: which of equally due messages a
// claim takes, how many messages a claim ends beside those that it takes, the values of tokens, and
// how the store's clock catches up after a step back.
//
// A failure is made as short as possible and logged with the one command that repeats it. The
// number of histories is -rapid.checks, or else what the environment variable PUNCTUAL_HISTORIES
// says, or else 25. The length of their parts is -rapid.steps, by default that of package rapid.
func Run(t *testing.T, open storetest.Open, opts ...storetest.Option) {
	if _, err := punctual.As[punctual.Inspector](open(t, storekit.NewManualClock(noon))); err != nil {
		t.Skipf("skipped: the comparison needs an Inspector: %v", err)
	}
	o := storetest.Collect(opts)
	setHistories()
	begin := time.Now()
	defer func() {
		if t.Failed() {
			t.Logf("to repeat this history: %s", repeatCommand(t.Name(), newestFailFile(begin)))
		}
	}()
	opened := opener{open: func(clock storekit.Clock) punctual.Store { return open(t, clock) }, partition: o.Partition}
	if o.Reopen != nil {
		opened.reopen = func(old punctual.Store, clock storekit.Clock) punctual.Store { return o.Reopen(t, old, clock) }
	}
	rapid.Check(t, func(r *rapid.T) { compareHistory(r, opened) })
}

// opener opens the store of one history.
type opener struct {
	open      func(storekit.Clock) punctual.Store
	reopen    func(old punctual.Store, clock storekit.Clock) punctual.Store // nil: not durable
	partition func(id string) int                                           // nil: each topic is one partition
}

// noon is where the clocks of a history start: whole milliseconds, far from any edge.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// setHistories tells package rapid how many histories there are, unless -rapid.checks does. The
// flag belongs to the process, so it is set once, before the first history.
var setHistories = sync.OnceFunc(func() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if given {
		return
	}
	n := cmp.Or(os.Getenv("PUNCTUAL_HISTORIES"), "25") // a history takes half a second in a database
	if err := flag.Set("rapid.checks", n); err != nil {
		panic(fmt.Sprintf("PUNCTUAL_HISTORIES: %v", err))
	}
})

// repeatCommand is the one command that repeats a failed history.
func repeatCommand(test, failFile string) string {
	pkg := "."
	if info, ok := debug.ReadBuildInfo(); ok && strings.HasSuffix(info.Path, ".test") {
		pkg = strings.TrimSuffix(info.Path, ".test")
	}
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	cmd := fmt.Sprintf("go test %s -run '%s'", pkg, strings.Join(parts, "/"))
	if failFile == "" {
		return cmd + " with the -rapid.seed that is logged above"
	}
	return fmt.Sprintf("%s -rapid.failfile='%s'", cmd, failFile)
}

// newestFailFile finds the file in which rapid has just written the failure down.
func newestFailFile(since time.Time) string {
	files, err := filepath.Glob(filepath.Join("testdata", "rapid", "*", "*.fail"))
	if err != nil {
		return ""
	}
	newest := ""
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && !info.ModTime().Before(since.Truncate(time.Second)) {
			newest, since = f, info.ModTime()
		}
	}
	return newest
}

// comparison is one random history on two stores.
type comparison struct {
	*rapid.T
	opener    opener
	ctx       context.Context
	store     punctual.Store
	inspector punctual.Inspector      // of store
	keeper    punctual.FinishedKeeper // of store; nil: it has none
	clock     *storekit.ManualClock
	steps     bool      // the store's clock may step back
	told      time.Time // what the store's clock said last
	read      time.Time // where clock stood then; zero when the store was reopened since

	model      *memstore.Store
	modelClock *storekit.ManualClock // stands where the store's clock does

	topics []string
	leases []lease // every lease ever, newest last
	// partitions is how many the store's topics have, by their settings. Those of the model say
	// one.
	partitions int
	can        storekit.Abilities // of the store
}

// lease is one delivery with its tokens in both stores.
type lease struct {
	topic, id    string
	token, model int64
}

// eras is the number of parts of a history. Each part ends with a complete comparison and, if the
// store can be reopened, with a reopened store and another comparison.
const eras = 6

func compareHistory(r *rapid.T, o opener) {
	c := &comparison{T: r, opener: o, ctx: context.Background(), topics: []string{"a", "b", "a@f"}}
	c.clock, c.modelClock = storekit.NewManualClock(noon), storekit.NewManualClock(noon)
	c.model = memstore.New(&memstore.Options{Clock: c.modelClock})
	c.model.InPartitions(o.partition)
	c.steps = rapid.Bool().Draw(r, "steps")
	c.store = o.open(c.clock)
	defer func() {
		_ = c.store.Close() // whether Close fails is checked by group close of package storetest
		_ = c.model.Close()
	}()
	c.inspect()
	set, err := c.inspector.Settings(c.ctx, "never-heard-of")
	if err != nil {
		c.broken(promise.P13, "Settings: unexpected error: %v", err)
	}
	c.partitions = set.Partitions
	for _, topic := range c.topics {
		c.withoutJitter(topic)
		if c.keeper != nil && rapid.Bool().Draw(r, "keeps finished records from the beginning") {
			c.patch(topic, punctual.SettingsPatch{FinishedRetention: ptr(c.kept(time.Hour))})
		}
	}
	for range eras {
		r.Repeat(c.actions())
		c.compareAll()
		if o.reopen != nil {
			c.reopen()
			c.compareAll()
		}
	}
}

func (c *comparison) inspect() {
	i, err := punctual.As[punctual.Inspector](c.store)
	if err != nil {
		c.Fatalf("the comparison needs an Inspector: %v", err)
	}
	c.inspector, c.keeper, c.can = i, nil, storekit.Abilities{}
	if a, err := punctual.As[storekit.AbilityReporter](c.store); err == nil {
		if c.can, err = a.Abilities(c.ctx); err != nil {
			c.broken(promise.P13, "Abilities: unexpected error: %v", err)
		}
	}
	if k, err := compare.Keeper(c.ctx, c.store); err == nil {
		c.keeper = k
	}
}

// actions returns the actions of a history, which are drawn evenly. Those that matter most are
// there more than once.
func (c *comparison) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"push": c.push, "push more": c.push, "claim": c.claim, "claim more": c.claim, "claim again": c.claim, "claim by ID": c.claimByID,
		"settle": c.settle, "settle more": c.settle, "settle again": c.settle, "amend": c.amend, "amend more": c.amend,
		"configure": c.configure, "purge": c.purge, "delete topic": c.deleteTopic,
		"look": c.look, "look at what finished": c.lookAtFinished, "advance": c.advance, "advance more": c.advance, "step back": c.stepBack, "step": c.stepClock,
		"": func(*rapid.T) { c.compareStats() },
	}
}

// broken ends the history; the text says what the two stores answered.
func (c *comparison) broken(promise, format string, args ...any) {
	c.Helper()
	c.Fatalf("%s: %s", promise, fmt.Sprintf(format, args...))
}

// sync puts the model's clock to that of the store. The store's clock must not run backwards, but
// in stepClock, and must stand still while the clock that it was given does.
func (c *comparison) sync() {
	c.Helper()
	now, err := c.store.Now(c.ctx)
	if err != nil {
		c.broken(promise.P8, "Now: unexpected error: %v", err)
	}
	if now.Before(c.told) {
		c.broken(promise.P8, "the store's clock went back from %v to %v", c.told, now)
	}
	raw := c.clock.Now()
	if raw.Equal(c.read) && !now.Equal(c.told) {
		c.broken(promise.P8, "the store's clock went from %v to %v while the clock that it was given stood still", c.told, now)
	}
	c.told, c.read = now, raw
	c.modelClock.Set(now)
}

func (c *comparison) reopen() {
	c.Logf("reopen")
	c.store = c.opener.reopen(c.store, c.clock)
	c.read = time.Time{}
	c.inspect()
	c.sync()
}

func (c *comparison) advance(t *rapid.T) {
	// Whole steps of 2 ms: a clock that goes at half speed then stays at whole ms.
	d := rapid.SampledFrom([]time.Duration{
		2 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Hour,
	}).Draw(t, "advance")
	c.clock.Advance(d)
	c.sync()
	c.Logf("advance by %v to %v", d, c.told)
}

// stepBack sets the clock back by so little that the store's clock waits for it.
func (c *comparison) stepBack(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second}).Draw(t, "set back")
	if c.told.Sub(c.clock.Now().Add(-d)) > storekit.StepBeyond {
		return
	}
	c.clock.Advance(-d)
	c.sync()
	c.Logf("set back by %v", d)
}

// stepClock sets the clock back by more, and the store's clock steps. The model steps by the same
// time.
func (c *comparison) stepClock(t *rapid.T) {
	keeper, err := punctual.As[storekit.ClockKeeper](c.store)
	if err != nil || !c.steps {
		return
	}
	d := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 2 * time.Hour, 300 * 24 * time.Hour}).Draw(t, "step back")
	c.clock.Advance(-d)
	state, err := keeper.StepClock(c.ctx)
	if err != nil {
		c.broken(promise.P8, "StepClock: unexpected error: %v", err)
	}
	if to := c.clock.Now().Truncate(time.Millisecond); state.Ahead != 0 || state.Now.After(to.Add(time.Millisecond)) {
		c.broken(promise.P8, "after StepClock the store's clock says %v and is ahead by %v; the clock that it was given says %v", state.Now, state.Ahead, to)
	}
	c.Logf("step back by %v: %+v", d, state)
	if state.Last.To.Equal(state.Now) {
		c.modelClock.Set(state.Last.From)
		_, err1 := c.model.Now(c.ctx)
		c.modelClock.Set(state.Last.To)
		_, err2 := c.model.StepClock(c.ctx)
		if err := errors.Join(err1, err2); err != nil {
			c.broken(promise.P8, "step of the model's clock: unexpected error: %v", err)
		}
	}
	c.told, c.read = time.Time{}, time.Time{}
	c.sync()
}
