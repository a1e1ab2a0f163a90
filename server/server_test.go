package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
)

// The life of a message, by the paths that a person would guess: push, reschedule, claim, cancel
// and ack.
func TestOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		a := r.ask("POST /v1/topics/order.close/messages?in=30m&id=A-17", `{"order":"A-17"}`, "Content-Type: text/plain", "Punctual-Header-Trace: t1").want(t, http.StatusCreated)
		if p := decode[wire.PushResult](t, a); p.Result != "stored" || p.ID != "A-17" {
			t.Errorf("pushed %+v", p)
		}
		r.ask("PUT /v1/topics/order.close/messages/A-17?in=1h", "again").want(t, http.StatusOK, `"duplicate"`, `"scheduled"`)
		r.ask("PUT /v1/topics/order.close/messages/A-17?if_exists=fail", "again").problem(t, http.StatusConflict, "duplicate")
		began := time.Now()
		r.ask("POST /v1/topics/order.close/messages/A-17/reschedule?in=2h", "").want(t, http.StatusOK, `"rescheduled"`)
		r.ask("POST /v1/topics/order.close/messages/A-17/reschedule", "").problem(t, http.StatusBadRequest, "invalid")
		r.ask("POST /v1/topics/order.close/claim", "").want(t, http.StatusNoContent)

		for d := (wire.ClaimAnswer{}); len(d.Messages) == 0; {
			a := r.ask("POST /v1/topics/order.close/claim?wait=55s&max=10", "")
			if a.status == http.StatusNoContent {
				continue
			}
			d = decode[wire.ClaimAnswer](t, a.want(t, http.StatusOK))
			m := d.Messages[0]
			if len(d.Messages) != 1 || string(m.Body.Text) != `{"order":"A-17"}` || m.Headers.Text["content-type"] != "text/plain" || m.Headers.Text["trace"] != "t1" {
				t.Errorf("claimed %+v", d)
			}
			if late := time.Since(began) - 2*time.Hour; late < 0 || late > time.Millisecond {
				t.Errorf("P2, P11: delivered %v after its time", late)
			}
			token := fmt.Sprint(m.Token)
			r.ask("DELETE /v1/topics/order.close/messages/A-17", "").problem(t, http.StatusConflict, "leased")
			r.ask("POST /v1/topics/order.close/messages/A-17/ack?token=77", "").problem(t, http.StatusConflict, "lease_lost")
			r.ask("POST /v1/topics/order.close/messages/A-17/ack?token=x", "").problem(t, http.StatusBadRequest, "invalid")
			r.ask("POST /v1/topics/order.close/messages/A-17/ack?token="+token, "").want(t, http.StatusOK)
		}
		r.ask("DELETE /v1/topics/order.close/messages/A-17", "").problem(t, http.StatusNotFound, "not_found")
	})
}

func TestSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		claim := func(attempt int) (path, token string) {
			t.Helper()
			m := decode[wire.ClaimAnswer](t, r.ask("POST /v1/topics/t/claim?wait=10s", "").want(t, 200)).Messages[0]
			if m.Attempt != attempt {
				t.Fatalf("attempt %d, want %d", m.Attempt, attempt)
			}
			return "POST /v1/topics/t/messages/a%20b%2Fc", fmt.Sprint(m.Token)
		}
		r.ask("PUT /v1/topics/t/messages/a%20b%2Fc", "x").want(t, http.StatusCreated)
		path, token := claim(1)
		r.ask(path+"/extend?in=1h&token="+token, "").want(t, 200)
		r.ask(path+"/release?token="+token, "").want(t, 200)
		path, token = claim(1)
		r.ask(path+"/snooze?in=5s&token="+token, "").want(t, 200)
		path, token = claim(1)
		r.ask(path+"/retry?in=3s&error=no+answer&token="+token, "").want(t, 200)
		path, token = claim(2)
		r.ask(path+"/retry?token="+token, "").want(t, 200) // without a delay, so by the backoff
		path, token = claim(3)
		r.ask(path+"/discard?error=gave+up&token="+token, "").want(t, 200)
		r.ask("GET /v1/topics/t/messages/a%20b%2Fc", "").want(t, 200, `"dead"`, `"no answer"`, `"gave up"`, `"discarded"`)
		r.ask("GET /v1/topics/t/messages?state=dead", "").want(t, 200, `"a b/c"`)
		r.ask(path+"/requeue", "").want(t, 200, `"requeued"`)
		claim(1)
	})
}

// A worker in a shell needs no JSON: the body is the message, and the rest stands in headers.
func TestRawClaim(t *testing.T) {
	r := newRig(t, nil)
	body := "\x00\xff<script>"
	for _, id := range []string{"1", "2"} {
		r.ask("PUT /v1/topics/t/messages/"+id, body, "Content-Type: text/html", "Punctual-Header-A: b").want(t, 201)
	}
	a := r.ask("POST /v1/topics/t/claim?wait=10s", "", "Accept: application/octet-stream").want(t, 200)
	h := a.header
	if a.body != body || h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("answer %q with %v", a.body, h)
	}
	if h.Get(wire.HeaderID) != "1" || h.Get(wire.HeaderTopic) != "t" || h.Get("Punctual-Header-Content-Type") != "text/html" || h.Get("Punctual-Header-A") != "b" || h.Get(wire.HeaderAttempt) != "1" || h.Get(wire.HeaderOthers) != "" {
		t.Errorf("headers %v", h)
	}
	r.ask("POST /v1/topics/t/messages/1/ack?token="+h.Get(wire.HeaderToken), "").want(t, 200)
	r.ask("POST /v1/topics/t/claim?max=2", "", "Accept: application/octet-stream").problem(t, 400, "invalid")
	if a := r.ask("GET /v1/topics/t/messages/2", "", "Accept: application/octet-stream").want(t, 200); a.body != body {
		t.Errorf("body %q", a.body)
	}
	odd := `{"messages":[{"topic":"u","id":"3","body":"","headers":{"":"x","Big":"1","line":"a\r\nSet-Cookie: x","ok":"v"}}]}`
	r.ask("POST /v1/push", odd).want(t, 200, `"stored"`)
	h = r.ask("POST /v1/topics/u/claim?wait=10s", "", "Accept: application/octet-stream").want(t, 200).header
	if h.Get("Punctual-Header-Ok") != "v" || h.Get(wire.HeaderOthers) == "" || h.Get("Set-Cookie") != "" {
		t.Errorf("headers %v", h)
	}
}

func TestBatches(t *testing.T) { synctest.Test(t, testBatches) }

func testBatches(t *testing.T) {
	r := newRig(t, nil)
	forms := map[string]string{
		"object": `{"messages":[{"topic":"t","id":"o1","body":"a"},{"topic":"!","body":"b"},{"topic":"t","body":"c","in":"5"}]}`,
		"array":  `[{"topic":"t","id":"a1","body":"a"},{"topic":"!","body":"b"},{"topic":"t","body":"c","in":"5"}]`,
	}
	for name, body := range forms {
		got := decode[wire.PushAnswer](t, r.ask("POST /v1/push", body).want(t, 200)).Results
		if len(got) != 3 || got[0].Result != "stored" || got[1].Error == nil || got[2].Error == nil || got[1].Error.Code != "invalid" || got[2].Error.Code != "invalid" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	lines := "{\"id\":\"l1\",\"body\":{\"a\":1}}\n\nnonsense\n{\"topic\":\"u\",\"body\":\"b\"}\n"
	a := r.ask("POST /v1/push?topic=t", lines, "Content-Type: application/x-ndjson").want(t, 200, "line 3")
	var got []string
	for _, line := range wire.Lines([]byte(a.body)) {
		p := decode[wire.PushResult](t, answer{body: string(line)})
		code := ""
		if p.Error != nil {
			code = p.Error.Code
		}
		got = append(got, p.Topic+p.Result+code)
	}
	same(t, got, []string{"tstored", "tinvalid", "ustored"})

	time.Sleep(time.Second)
	c := decode[wire.ClaimAnswer](t, r.ask("POST /v1/claim", `{"topics":["u","t"],"max":10}`).want(t, 200)).Messages
	if len(c) != 4 || c[0].Topic != "u" {
		t.Fatalf("claimed %+v", c)
	}
	var items []string
	for _, m := range c {
		items = append(items, fmt.Sprintf(`{"topic":%q,"id":%q,"token":"%d","verb":"discard","error":"no"}`, m.Topic, m.ID, m.Token))
	}
	items = append(items, `{"topic":"t","id":"o1","token":"1","verb":"eat"}`, `{"topic":"t","id":"o1","token":"99","verb":"ack"}`)
	settled := decode[wire.SettleAnswer](t, r.ask("POST /v1/settle", `{"settlements":[`+strings.Join(items, ",")+`]}`).want(t, 200)).Results
	for i, s := range settled {
		want := map[int]string{4: "invalid", 5: "lease_lost"}[i]
		if (s.Error == nil) != (want == "") || s.Error != nil && s.Error.Code != want {
			t.Errorf("settlement %d: %+v, want code %q", i, s, want)
		}
	}
	amended := decode[wire.AmendAnswer](t, r.ask("POST /v1/amend", `{"amendments":[{"change":"requeue","topic":"t","id":"o1","in":"1h"},{"change":"cancel","topic":"t","id":"o1"},{"change":"cancel","topic":"t","id":"x"},{"change":"burn","topic":"t","id":"a1"}]}`).want(t, 200)).Results
	if amended[0].Outcome != "requeued" || amended[1].Outcome != "cancelled" || amended[2].Error.Code != "not_found" || amended[3].Error.Code != "invalid" {
		t.Errorf("amended %+v", amended)
	}
}

func TestFinished(t *testing.T) {
	r := newRig(t, nil)
	r.ask("PATCH /v1/topics/t/settings", `{"finished_retention":"2d"}`).want(t, 200, `"finished_retention":"2d"`)
	r.ask("PATCH /v1/topics/t/settings", `{"finished_retention":"400d"}`).problem(t, 400, "invalid")
	r.ask("PUT /v1/topics/t/messages/a", "x").want(t, 201)
	c := decode[wire.ClaimAnswer](t, r.ask("POST /v1/topics/t/claim", "").want(t, 200)).Messages[0]
	r.ask("GET /v1/topics/t/finished/a", "").problem(t, 404, "not_found")
	r.ask(fmt.Sprintf("POST /v1/topics/t/messages/a/ack?token=%d", c.Token), "").want(t, 200)
	r.ask("GET /v1/topics/t/messages/a", "").problem(t, 404, "not_found")
	r.ask("GET /v1/topics/t/finished/a", "").want(t, 200, `"outcome":"acked"`, `"attempt":1`, `"delivered":`, `"kept_until":`)
	r.ask("GET /v1/topics/t/finished/b", "").problem(t, 404, "not_found")
	r.Server = newServer(t, spacious{r.store}, &Options{Limits: Limits{StoreTime: time.Minute}}) // spacious is no FinishedKeeper
	r.ask("GET /v1/topics/t/finished/a", "").problem(t, 422, "unsupported")
}

func TestTopics(t *testing.T) {
	r := newRig(t, nil)
	for i := range 5 {
		r.ask(fmt.Sprintf("PUT /v1/topics/t/messages/%d?in=%ds", i, 90+i), "x").want(t, 201)
	}
	r.ask("PATCH /v1/topics/t/settings", `{"lease":"1m","backoff":"1s,2s"}`).want(t, 200, `"1m"`, `"1s,2s"`)
	r.ask("GET /v1/topics/t/settings", "").want(t, 200, `"1m"`)
	r.ask("PATCH /v1/topics/t/settings", `{"lease":"1ms"}`).problem(t, 400, "invalid")
	r.ask("PATCH /v1/topics/t/settings", `{"leese":"1m"}`).problem(t, 400, "invalid")
	r.ask("POST /v1/topics/t/pause?push=true", "").want(t, 200, `"push_paused":true`, `"delivery_paused":false`)
	r.ask("PUT /v1/topics/t/messages/x", "x").problem(t, 409, "paused")
	r.ask("POST /v1/topics/t/pause", "").want(t, 200, `"delivery_paused":true`)
	r.ask("POST /v1/topics/t/resume", "").want(t, 200, `"push_paused":false`, `"delivery_paused":false`)
	r.ask("GET /v1/topics/t", "").want(t, 200, `"scheduled":5`)
	r.ask("GET /v1/topics/none", "").problem(t, 404, "not_found")
	r.ask("GET /v1/topics", "").want(t, 200, `"t"`)
	r.ask("GET /v1/forecast?buckets=3", "").want(t, 200, `[0,5,0]`)
	r.ask("GET /v1/forecast?topic=t&step=0s", "").problem(t, 400, "invalid")

	var ids []string
	for after := ""; ; {
		p := decode[wire.Page](t, r.ask("GET /v1/topics/t/messages?state=scheduled&limit=2&after="+after, "").want(t, 200))
		for _, m := range p.Messages {
			ids = append(ids, m.ID)
		}
		if after = p.Next; after == "" {
			break
		}
	}
	same(t, ids, []string{"0", "1", "2", "3", "4"})
	r.ask("GET /v1/topics/t/messages", "").problem(t, 400, "invalid")
	r.ask("POST /v1/topics/t/purge", "").problem(t, 400, "invalid")
	r.ask("POST /v1/topics/t/purge?state=dead", "").want(t, 200, `"purged":0`)
	r.ask("POST /v1/topics/t/purge?state=live", "").want(t, 200, `"purged":5`)
	r.ask("DELETE /v1/topics/t", "").want(t, 200)
	r.ask("DELETE /v1/topics/t", "").problem(t, 404, "not_found")
	r.ask("GET /v1/check", "").want(t, 200, `"problems":[]`)
	r.ask("GET /v1/check", "", "Accept: application/x-ndjson").want(t, 200, `"report"`)
	r.ask("GET /v1/examine", "").want(t, 200, `"findings"`)
	r.ask("POST /v1/topics/reports@cron/messages?id=daily", "no schedule").want(t, 201)
	r.ask("GET /v1/examine", "").want(t, 200, `"schedule daily in reports"`, `this message is no schedule`)
	r.ask("GET /v1/clock", "").want(t, 200, `"now"`)
	r.ask("GET /v1", "").want(t, 200, `"volatile"`, `"max_wait":"55s"`)
	if a := r.ask("HEAD /v1", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD is answered with %+v", a)
	}
}

// Every route is refused to a role that lacks its action, on the topic of its path, and not refused
// to one that has this action alone. A route without an action fails the test, unless it is public
// or for any principal.
func TestEveryRouteHasItsPolicy(t *testing.T) {
	all := []access.Action{access.Push, access.Work, access.Inspect, access.Amend, access.Admin}
	users := roles{}
	needed := slices.Clone(all)
	for _, rt := range routes() {
		if rt.action != 0 && !slices.Contains(needed, rt.action) { // it needs several
			needed = append(needed, rt.action)
		}
	}
	for _, a := range needed {
		users["only-"+a.String()] = role("only-"+a.String(), a, "mine.*")
		users["all-"+a.String()] = role("all-"+a.String(), a, "*")
		users["not-"+a.String()] = role("not-"+a.String(), access.All&^a, "*")
	}
	bodies := map[string]string{
		"pushMany": `[{"topic":"TOPIC","id":"m","body":""}]`, "claim": `{"topics":["TOPIC"],"max":1}`,
		"settleMany": `{"settlements":[{"topic":"TOPIC","id":"m","token":"1","verb":"ack"}]}`,
		"amendMany":  `{"amendments":[{"change":"cancel","topic":"TOPIC","id":"m"}]}`, "configure": `{}`,
	}
	queries := map[string]string{
		"list": "?state=dead", "purge": "?state=dead", "reschedule": "?in=1s", "forecast": "?topic=TOPIC",
		"ack": "?token=1", "retry": "?token=1", "snooze": "?token=1", "discard": "?token=1", "release": "?token=1", "extend": "?token=1",
	}
	for _, rt := range routes() {
		t.Run(rt.id, func(t *testing.T) {
			r := newRig(t, &Options{Authenticator: users})
			path := strings.NewReplacer("{topic}", "TOPIC", "{id}", "m").Replace(rt.path) + queries[rt.id]
			denied := func(user, topic string) bool {
				t.Helper()
				a := r.ask(rt.method+" "+strings.ReplaceAll(path, "TOPIC", topic), strings.ReplaceAll(bodies[rt.id], "TOPIC", topic), "Authorization: Bearer "+user)
				return a.status == http.StatusForbidden || a.status == 200 && strings.Contains(a.body, `"code":"forbidden"`) || rt.id == "topics" && a.body == "{\"topics\":[]}\n"
			}
			nobody := r.ask(rt.method+" "+path, bodies[rt.id], "Authorization: Bearer nobody")
			switch {
			case rt.public:
				nobody.want(t, 200)
				return
			case rt.anyPrincipal:
				nobody.problem(t, 401, "unauthenticated")
				if denied("only-push", "mine.a") {
					t.Error("refused to somebody who is known")
				}
				return
			case rt.action == 0:
				t.Fatal("the route needs no right: give it an action")
			}
			nobody.problem(t, 401, "unauthenticated")
			need := rt.action.String()
			if rt.id == "topics" {
				for _, topic := range []string{"mine.a", "theirs"} {
					if _, err := r.store.Push(t.Context(), []punctual.NewMessage{{Topic: topic, Delay: time.Hour}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			before := r.snapshot()
			for _, a := range all {
				if a != rt.action && !denied("all-"+a.String(), "mine.a") {
					t.Errorf("allowed to somebody who may %s", a)
				}
			}
			for _, a := range all {
				if rt.action&a != 0 && !denied("not-"+a.String(), "mine.a") {
					t.Errorf("allowed to somebody who may do all but %s", a)
				}
			}
			onTopic := strings.Contains(rt.path, "{topic}") || bodies[rt.id] != "" || strings.Contains(path, "TOPIC")
			if onTopic {
				for _, topic := range []string{"theirs", "mine", "Mine.a"} {
					if !denied("only-"+need, topic) {
						t.Errorf("allowed in %s to somebody who may do it in mine.*", topic)
					}
				}
			}
			if after := r.snapshot(); after != before {
				t.Errorf("what was refused changed the store from\n%s\nto\n%s", before, after)
			}
			if onTopic && denied("only-"+need, "mine.a") || denied("all-"+need, "theirs") {
				t.Error("refused to somebody who may do it")
			}
		})
	}
}

func TestRoutesWithoutAnActionAreRefused(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"root": role("root", access.All, "*")}})
	rt, _, _, ok := r.routes.Find(http.MethodGet, []string{"v1", "clock"})
	if !ok || !rt.anyPrincipal {
		t.Fatalf("the route of the clock is %+v", rt)
	}
	rt.anyPrincipal = false
	r.ask("GET /v1/clock", "", "Authorization: Bearer root").problem(t, 403, "forbidden")
}

// Names are compared as they are stored, whatever form the path writes them in.
func TestPolicyJudgesDecodedNames(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"a": role("a", access.All, "pub/*")}})
	before := r.snapshot()
	for _, topic := range []string{"pub%2F..%2Fsecret/../secret", "%2E%2E", "secret", "pub", "%70rivate", "pub%252Fx"} {
		a := r.ask("PUT /v1/topics/"+topic+"/messages/1", "x", "Authorization: Bearer a")
		if a.status < 400 || a.status >= 500 {
			t.Errorf("topic %s: status %d", topic, a.status)
		}
	}
	if r.snapshot() != before {
		t.Error("the store was changed")
	}
	r.ask("PUT /v1/topics/%70ub%2fx/messages/1", "x", "Authorization: Bearer a").want(t, 201, `"pub/x"`)
}
