package server

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTopicLimit: clients make no more topics than may be. Topics that exist go on as before, and one that is deleted makes room.
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

// TestTopicsThatExist: a server over a store with more topics than clients may make lets those be used.
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
