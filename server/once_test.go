package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// finishAll claims up to 100 messages of topic t, acks them, and returns how many they were.
func (r *rig) finishAll() (finished int) {
	r.Helper()
	ds, err := r.store.Claim(r.Context(), punctual.Claim{Topics: []string{"t"}, Max: 100})
	if err != nil {
		r.Fatal(err)
	}
	for _, d := range ds {
		errs, err := r.store.Settle(r.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
		if err != nil || errs[0] != nil {
			r.Fatal(errs, err)
		}
	}
	return len(ds)
}

// A request with an Idempotency-Key is done once, also when it is sent again up to 24 h after its
// message finished. The parameter or member remember says another time, with or without a key. An
// ID alone may be used again once its message has finished.
func TestIdempotencyKeyAfterItsMessage(t *testing.T) {
	const key, day = "Idempotency-Key: k-1", 24 * time.Hour
	for name, c := range map[string]struct {
		line, body string
		headers    []string
		kept       time.Duration // how long after its end a message is not stored anew
		stored     string        // the text by which an answer says that a message was stored
	}{
		"key":                  {"POST /v1/topics/t/messages", "b", []string{key}, day, `"result":"stored"`},
		"quoted key":           {"POST /v1/topics/t/messages", "b", []string{`Idempotency-Key: "k-1"`}, day, `"result":"stored"`},
		"key and the same ID":  {"POST /v1/topics/t/messages?id=k-1", "b", []string{key}, day, `"result":"stored"`},
		"key and an ID of PUT": {"PUT /v1/topics/t/messages/x", "b", []string{key}, day, `"result":"stored"`},
		"key and remember":     {"POST /v1/topics/t/messages?remember=1h", "b", []string{key}, time.Hour, `"result":"stored"`},
		"key and remember=0":   {"POST /v1/topics/t/messages?remember=0s", "b", []string{key}, 0, `"result":"stored"`},
		"remember alone":       {"POST /v1/topics/t/messages?id=x&remember=2h", "b", nil, 2 * time.Hour, `"result":"stored"`},
		"ID alone":             {"PUT /v1/topics/t/messages/x", "b", nil, 0, `"result":"stored"`},
		"many with a key":      {"POST /v1/push", `[{"topic":"t","body":"1"},{"topic":"t","id":"own","body":"2"}]`, []string{key}, day, `"result":"stored"`},
		"lines with a key":     {"POST /v1/push?topic=t", "{\"body\":\"1\"}\n{\"body\":\"2\"}\n", []string{key, "Content-Type: application/x-ndjson"}, day, `"result":"stored"`},
		"many with a key, and remember of their own": {
			"POST /v1/push", `[{"topic":"t","body":"1","remember":"90m"},{"topic":"t","id":"own","body":"2","remember":"90m"}]`,
			[]string{key},
			90 * time.Minute, `"result":"stored"`,
		},
		"member remember": {"POST /v1/push", `[{"topic":"t","id":"own","body":"2","remember":"90m"}]`, nil, 90 * time.Minute, `"result":"stored"`},
	} {
		clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
		store := memstore.New(&memstore.Options{Clock: clock})
		r := &rig{t, store, newServer(t, store, nil)}
		send := func() answer { return r.ask(c.line, c.body, c.headers...) }
		first := send()
		if !strings.Contains(first.body, c.stored) {
			t.Fatalf("%s: %d %s", name, first.status, first.body)
		}
		if a := send(); strings.Contains(a.body, c.stored) || !strings.Contains(a.body, "duplicate") {
			t.Errorf("%s: sent again while its message waits: %d %s", name, a.status, a.body)
		}
		clock.Advance(time.Millisecond)
		n := r.finishAll()
		if n != strings.Count(first.body, c.stored) {
			t.Fatalf("%s: %d messages finished, of those of %s", name, n, first.body)
		}
		if c.kept > 0 {
			clock.Advance(c.kept - time.Millisecond)
			if a := send(); strings.Contains(a.body, c.stored) || strings.Count(a.body, `"result":"duplicate"`) != n {
				t.Errorf("%s: sent again 1 ms less than %v after its message finished: %d %s", name, c.kept, a.status, a.body)
			}
			clock.Advance(2 * time.Millisecond)
		}
		if a := send(); strings.Count(a.body, c.stored) != n {
			t.Errorf("%s: sent again more than %v after its message finished: %d %s", name, c.kept, a.status, a.body)
		}
	}
}

func TestIdempotencyKeyIsRefused(t *testing.T) {
	r := newRig(t, nil)
	const key = "Idempotency-Key: k-1"
	for line, headers := range map[string][]string{
		"POST /v1/topics/t/messages?if_exists=replace":  {key},
		"PUT /v1/topics/t/messages/x?if_exists=replace": {key},
		"POST /v1/topics/t/messages?id=other":           {key},
		"POST /v1/topics/t/messages":                    {"Idempotency-Key: "},
		"PUT /v1/topics/t/messages/x":                   {key, key},
		"POST /v1/topics/t/messages?remember=soon":      nil,
		"POST /v1/topics/t/messages?remember=9000h":     nil,
		"POST /v1/topics/t/messages?remember=-1h":       nil,
	} {
		r.ask(line, "b", headers...).problem(t, 400, "invalid")
	}
	a := r.ask("POST /v1/push", `[{"topic":"t","id":"x","body":"1","if_exists":"replace"},{"topic":"t","id":"y","body":"1"}]`, key)
	if strings.Count(a.body, `"code":"invalid"`) != 1 || strings.Count(a.body, `"result":"stored"`) != 1 {
		t.Errorf("a replacing item and one that does not: %d %s", a.status, a.body)
	}
}

// A dead message can be deleted by a client that may purge. A cancel of the message answers that it
// is dead, and what can be done with it.
func TestDeadMessageIsDeleted(t *testing.T) {
	roles := roles{"admin": role("ann", access.Admin, "*"), "amend": role("bob", access.Amend, "*")}
	r := newRig(t, &Options{Authenticator: roles})
	const path, admin, amend = "/v1/topics/t/messages/x", "Authorization: Bearer admin", "Authorization: Bearer amend"
	ctx := context.Background()
	for range 2 {
		if _, err := r.store.Push(ctx, []punctual.NewMessage{{Topic: "t", ID: "x"}}); err != nil {
			t.Fatal(err)
		}
		ds, err := r.store.Claim(ctx, punctual.Claim{Topics: []string{"t"}, Max: 1, Wait: time.Minute})
		if err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		if errs, err := r.store.Settle(ctx, []punctual.Settlement{{Topic: "t", ID: "x", Token: ds[0].Token, Verb: punctual.SettleDiscard}}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		a := r.ask("DELETE "+path, "", amend)
		a.problem(t, 404, "not_found")
		if !strings.Contains(a.body, "it is dead; requeue it, or delete it") || strings.Contains(a.body, "never was") || !strings.Contains(a.body, "/delete removes it") {
			t.Errorf("a cancel of a dead message says %s", a.body)
		}
		r.ask("POST "+path+"/delete", "", amend).problem(t, 403, "forbidden")
		if i, err := r.store.Get(ctx, "t", "x"); err != nil || i.State != punctual.StateDead {
			t.Fatalf("after what was refused: %+v, %v", i, err)
		}
		many := `{"amendments":[{"change":"delete","topic":"t","id":"x"}]}`
		if a := r.ask("POST /v1/amend", many, amend); !strings.Contains(a.body, `"code":"forbidden"`) {
			t.Errorf("a delete by who may not: %s", a.body)
		}
		a = r.ask("POST "+path+"/delete", "", admin)
		if a.status != 200 || !strings.Contains(a.body, `"outcome":"deleted"`) {
			t.Errorf("a delete: %d %s", a.status, a.body)
		}
		r.ask("POST "+path+"/delete", "", admin).problem(t, 404, "not_found")
		if a := r.ask("POST /v1/amend", many, admin); !strings.Contains(a.body, `"code":"not_found"`) {
			t.Errorf("a delete of what is gone: %s", a.body)
		}
	}
	a := r.ask("DELETE /v1/topics/t/messages/unknown", "", amend)
	a.problem(t, 404, "not_found")
	if !strings.Contains(a.body, "never was") || strings.Contains(a.body, "dead") {
		t.Errorf("a cancel of an unknown message says %s", a.body)
	}
}

// A key that would not keep a request from being carried out twice is refused, and then nothing is
// done.
func TestKeysThatDoNothing(t *testing.T) {
	const own, request = "Idempotency-Key: k", "Punctual-Request: k"
	r := newRig(t, nil)
	r.ask("PUT /v1/topics/t/schedules/daily", `{"spec":"0 9 * * *"}`).want(t, 201)
	r.ask("PUT /v1/topics/t/messages/x?in=1h", "b").want(t, 201)
	state := func() string {
		return r.ask("GET /v1/topics/t/messages/x", "").body + r.ask("GET /v1/topics/t/schedules/daily", "").body + r.ask("GET /v1/topics/t", "").body
	}
	before := state()
	for _, c := range []struct{ line, body, header, remedy string }{
		{"POST /v1/topics/t/schedules/daily/run", "", own, "last times"},
		{"POST /v1/topics/t/schedules/daily/run", "", request, "last times"},
		{"POST /v1/topics/t/schedules/daily/skip", "", own, "next times"},
		{"POST /v1/topics/t/schedules/daily/skip", "", request, "next times"},
		{"POST /v1/topics/t/bulk", `{"do":"shift","by":"1h"}`, own, "by id"},
		{"POST /v1/topics/t/bulk", `{"do":"shift","by":"1h"}`, request, "by id"},
		{"POST /v1/topics/t/messages/x/reschedule?in=2h", "", own, request[:16]},
		{"POST /v1/amend", `[{"change":"reschedule","topic":"t","id":"x","in":"2h"}]`, own, request[:16]},
		{"POST /v1/claim", `{"topics":["t"]}`, own, request[:16]},
	} {
		a := r.ask(c.line, c.body, c.header)
		a.problem(t, 400, "invalid")
		if !strings.Contains(a.body, c.remedy) {
			t.Errorf("%s with %s: %s; want the remedy %q", c.line, c.header, a.body, c.remedy)
		}
	}
	if after := state(); after != before {
		t.Errorf("refused requests have changed\n%s to\n%s", before, after)
	}
	const line = "POST /v1/topics/t/messages/x/reschedule?in=2h"
	first := r.ask(line, "", request)
	first.want(t, 200)
	if second := r.ask(line, "", request); second.body != first.body {
		t.Errorf("a reschedule with a key is carried out again: %s, then %s", first.body, second.body)
	}
}
