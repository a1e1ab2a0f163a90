package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
)

// Every route that is no GET and needs the action amend or admin makes its change within
// Options.Record, which may refuse it.
func TestEveryChangeIsRecorded(t *testing.T) {
	refused := errors.New("not recorded")
	var recorded []audit.Change
	var changed int64
	refuse := false
	r := newRig(t, &Options{
		Authenticator: roles{"a": role("ann", access.All, "*")},
		Record: func(ctx context.Context, ch audit.Change, do func(context.Context) (int64, error)) (int64, error) {
			recorded = append(recorded, ch)
			if refuse {
				return 0, refused
			}
			n, err := do(ctx)
			changed = n
			return n, err
		},
	})
	const auth = "Authorization: Bearer a"
	asks := map[string]struct {
		query, body string
		want        audit.Change
		changed     int64
	}{
		"cancel":         {"", "", audit.Change{Verb: "cancel", Topic: "t", ID: "x", Amends: true}, 1},
		"reschedule":     {"?in=2h", "", audit.Change{Verb: "reschedule", Topic: "t", ID: "x", Detail: "in 2h", Amends: true}, 1},
		"requeue":        {"", "", audit.Change{Verb: "requeue", Topic: "t", ID: "x", Amends: true}, 1},
		"deleteMessage":  {"", "", audit.Change{Verb: "delete", Topic: "t", ID: "x"}, 1},
		"deleteTopic":    {"", "", audit.Change{Verb: "delete topic", Topic: "t"}, 2},
		"configure":      {"", ` {"max_attempts":3} `, audit.Change{Verb: "configure", Topic: "t", Detail: `{"max_attempts":3}`}, 1},
		"pause":          {"", "", audit.Change{Verb: "configure", Topic: "t", Detail: "delivery paused: true"}, 1},
		"resume":         {"", "", audit.Change{Verb: "configure", Topic: "t", Detail: "push paused: false, delivery paused: false"}, 1},
		"purge":          {"?state=live&to=2999-01-01T00:00:00Z", "", audit.Change{Verb: "purge", Topic: "t", Detail: "live, to 2999-01-01T00:00:00Z"}, 2},
		"stepClock":      {"", "", audit.Change{Verb: "step clock"}, 1},
		"bulk":           {"", `{"do":"cancel","id_prefix":"x"}`, audit.Change{Verb: "bulk cancel", Topic: "t", Detail: `{"do":"cancel","id_prefix":"x"}`}, 1},
		"deleteSchedule": {"", "", audit.Change{Verb: "delete schedule", Topic: "t", ID: "x"}, 1},
		"pauseSchedule":  {"?note=why", "", audit.Change{Verb: "pause schedule", Topic: "t", ID: "x", Detail: "why"}, 1},
		"resumeSchedule": {"", "", audit.Change{Verb: "resume schedule", Topic: "t", ID: "x", Detail: "catch up: false"}, 1},
		"runSchedule":    {"", "", audit.Change{Verb: "run schedule", Topic: "t", ID: "x"}, 1},
		"skipSchedule":   {"", "", audit.Change{Verb: "skip schedule", Topic: "t", ID: "x", Detail: "times: 1"}, 1},
		"backfillSchedule": {
			"?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", "",
			audit.Change{Verb: "backfill schedule", Topic: "t", ID: "x", Detail: "from 2026-01-01T00:00:00Z, to 2026-01-02T00:00:00Z"},
			1,
		},
		"amendMany": {
			"", `{"amendments":[{"change":"cancel","topic":"t","id":"x"},{"change":"cancel","topic":"t","id":"y"},{"change":"cancel","topic":"t","id":"z"}]}`,
			audit.Change{Verb: "cancel", Topic: "t", Amends: true},
			2,
		},
	}
	for _, rt := range routes() {
		if rt.method == http.MethodGet || rt.action&(access.Amend|access.Admin) == 0 {
			continue
		}
		a, ok := asks[rt.id]
		if !ok {
			t.Errorf("route %s changes something: say here what it records", rt.id)
			continue
		}
		for _, id := range []string{"x", "y"} {
			r.ask("PUT /v1/topics/t/messages/"+id+"?in=1h&if_exists=replace", "x", auth)
		}
		if strings.HasSuffix(rt.id, "Schedule") {
			r.ask("PUT /v1/topics/t/schedules/x", `{"spec":"@daily"}`, auth)
		}
		if rt.id == "requeue" {
			r.kill(auth)
		}
		line := rt.method + " " + strings.NewReplacer("{topic}", "t", "{id}", "x", "{name}", "x").Replace(rt.path) + a.query
		recorded, changed, refuse = nil, -1, true
		before := r.snapshot()
		if got := r.ask(line, a.body, auth); got.status < 400 || r.snapshot() != before {
			t.Errorf("%s: what is not recorded is answered with %d, and changed", rt.id, got.status)
		}
		recorded, refuse = nil, false
		if got := r.ask(line, a.body, auth); got.status >= 300 {
			t.Errorf("%s: %d %s", rt.id, got.status, got.body)
		}
		a.want.Who, a.want.From = "ann", "192.0.2.1"
		if len(recorded) == 1 && recorded[0].IDs != nil {
			if ids := recorded[0].IDs(); !slices.Equal(ids, []string{"x", "y"}) {
				t.Errorf("%s: recorded the IDs %q", rt.id, ids)
			}
			recorded[0].IDs = nil
		}
		if len(recorded) != 1 || !reflect.DeepEqual(recorded[0], a.want) || changed != a.changed {
			t.Errorf("%s: recorded %+v with %d changed\nwant %+v with %d", rt.id, recorded, changed, a.want, a.changed)
		}
	}
	// What the store refuses has changed nothing, so that the audit log says that it was refused.
	r.ask("PUT /v1/topics/t/messages/x?in=1h&if_exists=replace", "x", auth).want(t, 200)
	r.ask("PATCH /v1/topics/t/settings", `{"keyed":true}`, auth).want(t, 400)
	if changed != 0 {
		t.Errorf("refused settings are recorded with %d changed", changed)
	}
}

// kill makes the message x dead.
func (r *rig) kill(auth string) {
	r.Helper()
	r.ask("POST /v1/topics/t/messages/x/reschedule?in=0s", "", auth).want(r.T, 200)
	ds, err := r.store.Claim(r.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1})
	if err != nil || len(ds) != 1 {
		r.Fatalf("claimed %d, %v", len(ds), err)
	}
	if errs, err := r.store.Settle(r.Context(), []punctual.Settlement{{Topic: "t", ID: "x", Token: ds[0].Token, Verb: punctual.SettleDiscard}}); err != nil || errs[0] != nil {
		r.Fatal(errs, err)
	}
}

// A request with several kinds of changes in several topics is recorded as one change with the verb
// amend and without a topic. A request without items is not recorded.
func TestRecordOfMany(t *testing.T) {
	var recorded []audit.Change
	r := newRig(t, &Options{Record: func(ctx context.Context, ch audit.Change, do func(context.Context) (int64, error)) (int64, error) {
		recorded = append(recorded, ch)
		return do(ctx)
	}})
	r.ask("POST /v1/amend", `{"amendments":[{"change":"cancel","topic":"a","id":"x"},{"change":"requeue","topic":"b","id":"y"}]}`).want(t, 200)
	r.ask("POST /v1/amend", `{"amendments":[]}`).want(t, 200)
	if want := (audit.Change{Who: "anyone", From: "192.0.2.1", Verb: "amend", Amends: true}); len(recorded) != 1 || len(recorded[0].IDs()) != 0 {
		t.Errorf("recorded %+v of messages that are not there", recorded)
	} else if recorded[0].IDs = nil; !reflect.DeepEqual(recorded[0], want) {
		t.Errorf("recorded %+v, want %+v", recorded, want)
	}
}

// The detail that is recorded of a change has a bound, whatever the request has.
func TestRecordIsBounded(t *testing.T) {
	var recorded []audit.Change
	r := newRig(t, &Options{Record: func(ctx context.Context, ch audit.Change, do func(context.Context) (int64, error)) (int64, error) {
		recorded = append(recorded, ch)
		return do(ctx)
	}})
	spaces := strings.Repeat(" ", 1<<20)
	r.ask("PATCH /v1/topics/t/settings", `{"max_attempts":`+spaces+`3}`).want(t, 200)
	r.ask("PATCH /v1/topics/t/settings", `{"backoff":"`+strings.Repeat("1s,", 2000)+`1s"}`)
	for _, ch := range recorded {
		if len(ch.Detail) > limits.MaxErrorBytes {
			t.Errorf("%d bytes are recorded", len(ch.Detail))
		}
	}
	if len(recorded) == 0 || recorded[0].Detail != `{"max_attempts":3}` {
		t.Errorf("recorded %.200v", recorded)
	}
}

// The record of a cancelled message says by whom, to a client that may inspect the audit log.
func TestFinishedSaysByWhom(t *testing.T) {
	store := memstore.New(nil)
	log := audit.New(store, slog.New(slog.DiscardHandler))
	t.Cleanup(log.Close)
	o := Options{Authenticator: roles{"a": role("ann", access.All, "*"), "b": role("bob", access.All, "t")}, Record: log.Record}
	r := &rig{t, store, newServer(t, store, &o)}
	const ann, bob = "Authorization: Bearer a", "Authorization: Bearer b"
	r.ask("PATCH /v1/topics/t/settings", `{"finished_retention":"1d"}`, ann).want(t, http.StatusOK)
	for _, id := range []string{"x", "y"} {
		r.ask("PUT /v1/topics/t/messages/"+id+"?in=1h", "", ann).want(t, http.StatusCreated)
	}
	r.ask("DELETE /v1/topics/t/messages/x", "", bob).want(t, http.StatusOK)
	r.ask("GET /v1/topics/t/finished/x", "", ann).want(t, http.StatusOK, `"outcome":"cancelled"`, `"by":"bob"`)
	if a := r.ask("GET /v1/topics/t/finished/x", "", bob).want(t, http.StatusOK, `"outcome":"cancelled"`); strings.Contains(a.body, "bob") {
		t.Errorf("a client that may not inspect the audit log reads %s", a.body)
	}
	if _, err := store.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "t", ID: "y"}}); err != nil {
		t.Fatal(err)
	}
	if a := r.ask("GET /v1/topics/t/finished/y", "", ann).want(t, http.StatusOK, `"outcome":"cancelled"`); strings.Contains(a.body, `"by"`) {
		t.Errorf("a cancel that nobody entered: %s", a.body)
	}
}

// However delivery was paused over this interface, the audit log knows by whom.
func TestPauserOfEachForm(t *testing.T) {
	store := memstore.New(nil)
	log := audit.New(store, slog.New(slog.DiscardHandler))
	t.Cleanup(log.Close)
	r := &rig{t, store, newServer(t, store, &Options{Authenticator: roles{"a": role("ann", access.All, "*")}, Record: log.Record})}
	for topic, ask := range map[string][2]string{
		"one":   {"POST /v1/topics/one/pause", ""},
		"both":  {"POST /v1/topics/both/pause?push=true&delivery=true", ""},
		"patch": {"PATCH /v1/topics/patch/settings", `{"delivery_paused":true,"lease":"1m"}`},
	} {
		r.ask(ask[0], ask[1], "Authorization: Bearer a").want(t, http.StatusOK)
		now, err := store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e, err := log.Pauser(t.Context(), topic, now); err != nil || e == nil || e.Who != "ann" {
			t.Errorf("%s: paused by %+v, %v; want ann", topic, e, err)
		}
	}
}
