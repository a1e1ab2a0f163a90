package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// TestTopicLimit: in a store that was empty clients make no more topics than MaxTopics. Topics that
// exist go on as before, and a deleted one makes room after recountAfter.
func TestTopicLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Options{Limits: Limits{MaxTopics: 10}})
		for i := range 10 {
			r.ask(fmt.Sprintf("PUT /v1/topics/t%d/messages/a", i), "").want(t, 201)
		}
		for name, ask := range map[string]func() answer{
			"a push":     func() answer { return r.ask("PUT /v1/topics/more/messages/a", "") },
			"settings":   func() answer { return r.ask("PATCH /v1/topics/more/settings", `{"max_attempts":3}`) },
			"a pause":    func() answer { return r.ask("POST /v1/topics/more/pause", "") },
			"many items": func() answer { return r.ask("POST /v1/push", `[{"topic":"t1","body":""},{"topic":"more","body":""}]`) },
		} {
			a := ask()
			if !strings.Contains(a.body, `"overloaded"`) || !strings.Contains(a.body, "10 that this server lets clients make") {
				t.Errorf("%s: status %d: %.300s", name, a.status, a.body)
			}
		}
		if all, err := r.store.Topics(t.Context()); err != nil || len(all) != 10 {
			t.Errorf("there are %d topics, %v; want 10", len(all), err)
		}
		r.ask("PUT /v1/topics/t3/messages/b", "").want(t, 201)
		r.ask("DELETE /v1/topics/t3", "").want(t, 200)
		time.Sleep(recountAfter)
		r.ask("PUT /v1/topics/more/messages/a", "").want(t, 201)
		r.ask("PUT /v1/topics/t3/messages/a", "").problem(t, 503, "overloaded")
	})
}

// TestTopicLimitCountsCompanions: the companion topic that a schedule is stored in counts beside
// the topic of the schedule.
func TestTopicLimitCountsCompanions(t *testing.T) {
	r := newRig(t, &Options{Limits: Limits{MaxTopics: 3}})
	r.ask("PUT /v1/topics/t/messages/a", "").want(t, 201)
	r.ask("PUT /v1/topics/t/schedules/s", `{"spec":"@daily"}`).want(t, 201)
	r.ask("PUT /v1/topics/u/schedules/s", `{"spec":"@daily"}`).problem(t, 503, "overloaded")
	r.ask("PUT /v1/topics/t/schedules/other", `{"spec":"@daily"}`).want(t, 201)
	if names, err := r.store.TopicNames(t.Context(), storekit.NameQuery{}); err != nil || !slices.Equal(names, []string{"t", "t@cron"}) {
		t.Errorf("there are the topics %v, %v; want t and its companion", names, err)
	}
}

// TestTopicsThatExist: a server over a store that has more topics than MaxTopics lets clients use
// those topics.
func TestTopicsThatExist(t *testing.T) {
	first := newRig(t, nil)
	for i := range 5 {
		first.ask(fmt.Sprintf("PUT /v1/topics/t%d/messages/a", i), "").want(t, 201)
	}
	s := newServer(t, first.store, &Options{Limits: Limits{MaxTopics: 2}})
	for i := range 5 {
		if a := ask(s, first.request(fmt.Sprintf("PUT /v1/topics/t%d/messages/b", i), "")); a.status != 201 {
			t.Errorf("topic %d: status %d: %.300s", i, a.status, a.body)
		}
	}
	ask(s, first.request("PUT /v1/topics/more/messages/b", "")).problem(t, 503, "overloaded")
}

// TestTopicLimitAfterRestart: the topics that the store has when the server starts count, so that a
// restart makes no room for further topics.
func TestTopicLimitAfterRestart(t *testing.T) {
	first := newRig(t, &Options{Limits: Limits{MaxTopics: 3}})
	for i := range 3 {
		first.ask(fmt.Sprintf("PUT /v1/topics/t%d/messages/a", i), "").want(t, 201)
	}
	first.ask("PUT /v1/topics/more/messages/a", "").problem(t, 503, "overloaded")
	s := newServer(t, first.store, &Options{Limits: Limits{MaxTopics: 4}})
	push := func(topic string) answer { return ask(s, first.request("PUT /v1/topics/"+topic+"/messages/b", "")) }
	push("t0").want(t, 201)
	push("fourth").want(t, 201)
	push("fifth").problem(t, 503, "overloaded")
	push("t1").want(t, 201)
	if names, err := first.store.TopicNames(t.Context(), storekit.NameQuery{}); err != nil || len(names) != 4 {
		t.Errorf("there are the topics %v, %v; want 4", names, err)
	}
}

// slowNamer is a store that does not name its topics for as long as slow is set.
type slowNamer struct {
	*memstore.Store
	slow  atomic.Bool
	asked atomic.Int32 // how often it was asked for the names
}

func (s *slowNamer) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	s.asked.Add(1)
	if s.slow.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.TopicNames(ctx, q)
}

// TestTopicsOfSlowStore: a store that does not name its topics delays requests by a second, at most
// once in recountAfter. Meanwhile the limit counts only what clients make; it counts all topics
// once the store names them.
func TestTopicsOfSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		store := &slowNamer{Store: mem}
		store.slow.Store(true)
		r := &rig{t, mem, newServer(t, store, &Options{Limits: Limits{MaxTopics: 5}})}
		for i := range 4 {
			push(t, r, punctual.NewMessage{Topic: fmt.Sprint("t", i)})
		}
		began := time.Now()
		r.ask("PUT /v1/topics/a/messages/a", "").want(t, 201)
		r.ask("PUT /v1/topics/b/messages/a", "").want(t, 201)
		if took := time.Since(began); took < namingTime || took > namingTime+100*time.Millisecond || store.asked.Load() != 1 {
			t.Errorf("P14: two pushes took %v while the store was asked for its topics %d times; want once, for %v", took, store.asked.Load(), namingTime)
		}
		store.slow.Store(false)
		time.Sleep(recountAfter)
		r.ask("PUT /v1/topics/c/messages/a", "").problem(t, 503, "overloaded")
		r.ask("PUT /v1/topics/t3/messages/a", "").want(t, 201)
	})
}
