package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
)

// A parameter without a value is refused by name and changes nothing, unless it may be empty. A
// shell sends such a parameter for a variable that is not set.
func TestEmptyParameters(t *testing.T) {
	tried := 0
	for _, rt := range routes() {
		for _, p := range rt.params {
			if p.in != inQuery {
				continue
			}
			t.Run(rt.id+" "+p.name, func(t *testing.T) {
				r := newRig(t, nil)
				push(t, r, punctual.NewMessage{Topic: "t", ID: "m", Delay: time.Hour}, punctual.NewMessage{Topic: "t", ID: "n", Delay: 2 * time.Hour})
				before := r.snapshot()
				a := r.ask(rt.method+" "+targetOf(rt, p.name, ""), bodyOf(rt), "Accept: application/x-ndjson")
				if p.mayBeEmpty {
					if strings.Contains(a.body, "is empty") {
						t.Fatalf("refused: %s", a.body)
					}
					return
				}
				tried++
				problem := a.problem(t, http.StatusBadRequest, "invalid")
				if want := `parameter "` + p.name + `" is empty`; !strings.Contains(problem.Detail, want) {
					t.Errorf("%s; want it to say that %s", problem.Detail, want)
				}
				same(t, r.snapshot(), before)
			})
		}
	}
	if tried < 40 {
		t.Errorf("%d parameters were tried", tried)
	}
}

// targetOf returns a target of the route with one parameter of the query set to a value. The other
// parameters that the route requires are there with a value that they can have: their first one, an
// instant, or "1".
func targetOf(rt *route, name, value string) string {
	query := []string{name + "=" + value}
	for _, other := range rt.params {
		if !other.required || other.in != inQuery || other.name == name {
			continue
		}
		needed := "1"
		switch {
		case other.values != nil:
			needed = other.values[0]
		case other.schema["format"] == instant()["format"]:
			needed = "2026-11-20T10:00:00Z"
		}
		query = append(query, other.name+"="+needed)
	}
	return strings.NewReplacer("{topic}", "t", "{id}", "m", "{name}", "n").Replace(rt.path) + "?" + strings.Join(query, "&")
}

func bodyOf(rt *route) string {
	switch rt.id {
	case "claim":
		return `{"topics":["t"],"max":1}`
	case "pushMany":
		return `[{"topic":"t","body":"x"}]`
	}
	return ""
}

func push(t *testing.T, r *rig, ms ...punctual.NewMessage) {
	t.Helper()
	results, err := r.store.Push(t.Context(), ms)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

// A member of JSON with an empty text is refused as well, unless it may be empty, by its place in
// the body, and changes nothing.
func TestEmptyMembers(t *testing.T) {
	for _, c := range []struct{ line, body, place string }{
		{"POST /v1/push", `[{"topic":"t","body":"x","in":""}]`, "/0/in"},
		{"POST /v1/push", `{"messages":[{"topic":"t","body":"x","due":""}]}`, "/messages/0/due"},
		{"POST /v1/push", `[{"topic":"t","body":"x","at":""}]`, "/0/at"},
		{"POST /v1/push", `[{"topic":"t","body":"x","id":""}]`, "/0/id"},
		{"POST /v1/push?topic=t", `[{"topic":"","body":"x"}]`, "/0/topic"},
		{"POST /v1/push", `[{"topic":"t","body":"x","expire":""}]`, "/0/expire"},
		{"POST /v1/push", `[{"topic":"t","body":"x","if_exists":""}]`, "/0/if_exists"},
		{"POST /v1/amend", `{"amendments":[{"change":"reschedule","topic":"t","id":"m","in":""}]}`, "/amendments/0/in"},
		{"POST /v1/amend", `{"amendments":[{"change":"reschedule","topic":"t","id":"m","due":""}]}`, "/amendments/0/due"},
		{"POST /v1/amend", `{"amendments":[{"change":"reschedule","topic":"t","id":"m","at":""}]}`, "/amendments/0/at"},
		{"POST /v1/settle", `{"settlements":[{"topic":"t","id":"m","token":"1","verb":"retry","in":""}]}`, "/settlements/0/in"},
		{"POST /v1/claim", `{"topics":["t"],"max":1,"wait":""}`, "/wait"},
		{"POST /v1/claim", `{"topics":["t"],"max":1,"lease":""}`, "/lease"},
		{"PATCH /v1/topics/t/settings", `{"lease":""}`, "/lease"},
		{"PATCH /v1/topics/t/settings", `{"backoff":""}`, "/backoff"},
	} {
		r := newRig(t, nil)
		push(t, r, punctual.NewMessage{Topic: "t", ID: "m", Delay: time.Hour})
		before := r.snapshot()
		p := r.ask(c.line, c.body).problem(t, http.StatusBadRequest, "invalid")
		if !strings.Contains(p.Detail, `"`+c.place+`"`) {
			t.Errorf("%s %s: %s; want the place %s", c.line, c.body, p.Detail, c.place)
		}
		same(t, r.snapshot(), before)
	}
}

// A header that names a request, or says until when, and has no value is refused by name.
func TestEmptyRequestHeaders(t *testing.T) {
	for _, name := range []string{wire.HeaderRequest, wire.HeaderNotAfter, "Idempotency-Key"} {
		r := newRig(t, nil)
		headers := []string{name + ": "}
		if name == wire.HeaderNotAfter {
			headers = append(headers, wire.HeaderRequest+": a-request")
		}
		if p := r.ask("POST /v1/topics/t/messages", "", headers...).problem(t, http.StatusBadRequest, "invalid"); !strings.Contains(p.Detail, name) {
			t.Errorf("%s: %s; want it named", name, p.Detail)
		}
	}
}

// A name that is not UTF-8 in a path is answered with a problem. Nothing of it is recorded or
// logged, so that strangers do not fill the log.
func TestPathsThatAreNotUTF8(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	store := memstore.New(nil)
	entries := audit.New(store, logger)
	r := &rig{t, store, newServer(t, store, &Options{Logger: logger, Record: entries.Record})}
	name := regexp.MustCompile(`\{\w+\}`)
	tried := 0
	for _, rt := range routes() {
		if !name.MatchString(rt.path) {
			continue
		}
		tried++
		_, query, _ := strings.Cut(targetOf(rt, "", ""), "?")
		query = strings.TrimPrefix(query, "=")
		r.ask(rt.method+" "+name.ReplaceAllString(rt.path, "%FF")+"?"+strings.TrimPrefix(query, "&"), bodyOf(rt)).problem(t, http.StatusBadRequest, "invalid")
	}
	if tried < 20 {
		t.Errorf("%d routes were tried", tried)
	}
	entries.Close()
	if got := log.String(); got != "" {
		t.Errorf("logged\n%s", got)
	}
}
