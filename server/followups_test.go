package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	familyrig "github.com/punctualmq/punctual/internal/rigs/family"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// lease pushes a message and claims it. It returns the token.
func (r *rig) lease(topic, id string) int64 {
	r.Helper()
	if rs, err := r.store.Push(r.Context(), []punctual.NewMessage{{Topic: topic, ID: id}}); err != nil || rs[0].Err != nil {
		r.Fatal(rs, err)
	}
	ds, err := r.store.Claim(r.Context(), punctual.Claim{Topics: []string{topic}, Max: 1, Wait: time.Minute})
	if err != nil || len(ds) != 1 || ds[0].ID != id {
		r.Fatal(ds, err)
	}
	return ds[0].Token
}

// wantState fails the test unless the message is in this state. StateNone means that there must be
// no such message.
func (r *rig) wantState(topic, id string, want punctual.State) punctual.Info {
	r.Helper()
	m, err := r.store.Get(r.Context(), topic, id)
	if want == punctual.StateNone {
		if err == nil {
			r.Errorf("P13: %s in %s is stored as %v", id, topic, m.State)
		}
		return m
	}
	if err != nil || m.State != want {
		r.Errorf("P13: %s in %s is %v, %v; want %v", id, topic, m.State, err, want)
	}
	return m
}

// endsWithFollowUps are the verbs of settlements that may have follow-ups, each with the state in
// which it leaves its message.
var endsWithFollowUps = []struct {
	verb  string
	state punctual.State
}{{"ack", punctual.StateNone}, {"snooze", punctual.StateScheduled}, {"discard", punctual.StateDead}}

// settle sends a settlement of A-17 in orders, either by the request for one message or by the one
// for many.
func (r *rig) settle(many bool, verb string, token int64, then string, headers ...string) answer {
	r.Helper()
	in := map[string]string{"snooze": "1h"}[verb]
	if many {
		if in != "" {
			in = `,"in":"` + in + `"`
		}
		return r.ask("POST /v1/settle", fmt.Sprintf(`{"settlements":[{"topic":"orders","id":"A-17","token":"%d","verb":"%s"%s,"then":%s}]}`, token, verb, in, then), headers...)
	}
	if in != "" {
		in = "&in=" + in
	}
	return r.ask(fmt.Sprintf("POST /v1/topics/orders/messages/A-17/%s?token=%d%s", verb, token, in), `{"then":`+then+`}`, headers...)
}

// Follow-ups are stored together with the settlement, and a header of each says which message it
// came from.
func TestFollowUps(t *testing.T) {
	for _, many := range []bool{false, true} {
		for _, c := range endsWithFollowUps {
			r := newRig(t, nil)
			token := r.lease("orders", "A-17")
			a := r.settle(many, c.verb, token, `[{"topic":"invoice","id":"A-17~invoice","in":"2d","body":{"order":"A-17"},"headers":{"kind":"bill"}},{"topic":"orders@note","body":"x"}]`)
			a.want(t, 200, `"id":"A-17"`)
			if strings.Contains(a.body, "error") {
				t.Errorf("%s, many %v: %s", c.verb, many, a.body)
			}
			r.wantState("orders", "A-17", c.state)
			m := r.wantState("invoice", "A-17~invoice", punctual.StateScheduled)
			if string(m.Body) != `{"order":"A-17"}` || m.Headers["kind"] != "bill" || m.Headers[storekit.AfterHeader] != "orders/A-17" || m.Due.Sub(m.Created) < 47*60*60*1e9 {
				t.Errorf("%s, many %v: the follow-up is stored as %+v", c.verb, many, m)
			}
			if s, err := r.store.Stats(t.Context(), "orders@note"); err != nil || s.Ready != 1 {
				t.Errorf("%s, many %v: the second follow-up: %+v, %v", c.verb, many, s, err)
			}
			// The token has ended with the settlement, and its second use stores nothing.
			if c.verb == "ack" {
				a = r.settle(many, c.verb, token, `[{"topic":"invoice","id":"again","body":""}]`)
				a.want(t, map[bool]int{false: 409, true: 200}[many], "lease_lost")
				r.wantState("invoice", "again", punctual.StateNone)
			}
		}
	}
}

// The server sets the AfterHeader of follow-ups, unless the client asks it not to with
// after_header=false, as remotestore does.
func TestFollowUpsWithoutAfterHeader(t *testing.T) {
	for query, want := range map[string]string{"": "orders/A-17", "?after_header=true": "orders/A-17", "?after_header=false": "own"} {
		r := newRig(t, nil)
		token := r.lease("orders", "A-17")
		body := fmt.Sprintf(`{"settlements":[{"topic":"orders","id":"A-17","token":"%d","verb":"ack","then":[{"topic":"b","id":"x","body":"","headers":{"%s":"own"}}]}]}`, token, storekit.AfterHeader)
		r.ask("POST /v1/settle"+query, body).want(t, 200, `{"results":[{"topic":"orders","id":"A-17"}]}`)
		if m := r.wantState("b", "x", punctual.StateReady); m.Headers[storekit.AfterHeader] != want {
			t.Errorf("%q: the header is %q instead of %q", query, m.Headers[storekit.AfterHeader], want)
		}
	}
}

// When one follow-up is refused nothing happens: the lease stays, and none of the others is stored.
func TestRefusedFollowUps(t *testing.T) {
	const good = `{"topic":"mail","id":"good","body":"x"},`
	tooMany := strings.TrimSuffix(strings.Repeat(`{"topic":"mail","body":""},`, limits.MaxThen+1), ",")
	for name, c := range map[string]struct {
		then   string
		status int
		code   string
		says   string
		whole  bool // the whole request is refused, also one of many settlements
	}{
		"no right":              {good + `{"topic":"secret","id":"s","body":"x"}`, 403, "forbidden", "follow-up 2: clerk may not push", false},
		"no topic":              {good + `{"body":"x"}`, 400, "invalid", "follow-up 2: topic is empty", false},
		"malformed":             {good + `{"topic":"mail","body":"x","in":"soon"}`, 400, "invalid", `follow-up 2: \"in\"`, false},
		"unknown member":        {good + `{"topic":"mail","body":"x","inn":"1s"}`, 400, "invalid", "the name is not known", true},
		"body too large":        {good + `{"topic":"mail","body":"` + strings.Repeat("x", 101) + `"}`, 413, "too_large", "follow-up 2: body has 101 bytes", false},
		"the same ID twice":     {good + strings.TrimSuffix(good, ","), 400, "invalid", "follow-up 2: good in mail is also follow-up 1", false},
		"too many":              {tooMany, 413, "too_large", "more than 64 follow-ups", true},
		"ID in use":             {good + `{"topic":"mail","id":"old","body":"x","if_exists":"fail"}`, 409, "duplicate", "follow-up 2: ", false},
		"another due time":      {good + `{"topic":"mail","id":"old","body":"x","if_exists":"replace","if_due":"2020-01-01T00:00:00Z"}`, 409, "changed", "follow-up 2: ", false},
		"pushes are paused":     {good + `{"topic":"paused","body":"x"}`, 409, "paused", "follow-up 2: ", false},
		"a topic too many":      {good + `{"topic":"mail.new","body":"x"}`, 503, "overloaded", `follow-up 2: topic \"mail.new\" would be one more`, false},
		"a companion too many":  {good + `{"topic":"mail@new","body":"x"}`, 503, "overloaded", `follow-up 2: topic \"mail@new\" would be one more`, false},
		"a condition alone":     {good + `{"topic":"mail","id":"old","body":"x","if_due":"2020-01-01T00:00:00Z"}`, 400, "invalid", "follow-up 2: ", false},
		"a time beyond the end": {good + `{"topic":"mail","body":"x","due":"10000-01-01T00:00:00Z"}`, 400, "invalid", "follow-up 2: ", false},
	} {
		t.Run(name, func(t *testing.T) {
			clerk := &access.Principal{Name: "clerk", Grants: []access.Grant{{Actions: access.Work, Topics: "orders"}, {Actions: access.Push, Topics: "mail*"}, {Actions: access.Push, Topics: "paused"}}}
			r := newRig(t, &Options{Authenticator: roles{"clerk": clerk}, Limits: Limits{MaxBody: 100, MaxTopics: 3}})
			paused := true
			if _, err := r.store.Configure(t.Context(), "paused", punctual.SettingsPatch{PushPaused: &paused}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.store.Push(t.Context(), []punctual.NewMessage{{Topic: "mail", ID: "old"}}); err != nil {
				t.Fatal(err)
			}
			token := r.lease("orders", "A-17")
			before := r.snapshot()
			for _, many := range []bool{false, true} {
				for _, end := range endsWithFollowUps {
					a := r.settle(many, end.verb, token, "["+c.then+"]", "Authorization: Bearer clerk")
					status := c.status
					if many && !c.whole {
						status = 200
					}
					a.want(t, status, c.says, `"code":"`+c.code+`"`)
					if after := r.snapshot(); after != before {
						t.Fatalf("P13: %s, many %v, changed\n%s\ninto\n%s", end.verb, many, before, after)
					}
				}
			}
			if n := r.memory.held(); n != 0 {
				t.Errorf("%d bytes are still held", n)
			}
			r.settle(false, "ack", token, `[`+strings.TrimSuffix(good, ",")+`]`, "Authorization: Bearer clerk").want(t, 200)
			r.wantState("mail", "good", punctual.StateReady)
		})
	}
}

// Only an ack, a snooze and a discard have follow-ups.
func TestFollowUpsOfOtherVerbs(t *testing.T) {
	r := newRig(t, nil)
	token := r.lease("orders", "A-17")
	before := r.snapshot()
	for _, verb := range []string{"retry", "release", "extend"} {
		r.settle(false, verb, token, `[{"topic":"b","body":""}]`).problem(t, 400, "invalid")
		r.settle(true, verb, token, `[{"topic":"b","body":""}]`).want(t, 200, `"code":"invalid"`, verb+" with follow-ups")
	}
	for _, body := range []string{`{"then":{}}`, `{"than":[]}`, `[]`, `{"then":[]} {}`, `{`} {
		r.ask(fmt.Sprintf("POST /v1/topics/orders/messages/A-17/ack?token=%d", token), body).problem(t, 400, "invalid")
	}
	if after := r.snapshot(); after != before {
		t.Fatalf("P13: changed\n%s\ninto\n%s", before, after)
	}
	r.ask(fmt.Sprintf("POST /v1/topics/orders/messages/A-17/ack?token=%d", token), `{}`).want(t, 200)
}

// Follow-ups count in the server's memory as pushes do, also when they are many and tiny.
func TestMemoryOfFollowUps(t *testing.T) {
	tiny := `{"topic":"modest","id":"x","token":"1","verb":"ack","then":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"modest","body":""},`, limits.MaxThen), ",") + `]},`
	large := `{"topic":"modest","id":"x","token":"1","verb":"ack","then":[{"topic":"modest","body":"` + strings.Repeat("x", 1<<20) + `"}]},`
	for name, c := range map[string]struct {
		item   string
		n      int
		limits Limits
		status int
	}{
		"tiny ones, more than a request may take":  {tiny, 200, Limits{MaxRequest: 512 << 10}, 413},
		"tiny ones, more than a client may have":   {tiny, 400, Limits{MaxMemory: 16 << 20}, 503},
		"large ones, more than a client may have":  {large, 16, Limits{MaxMemory: 30 << 20}, 503},
		"large ones, less than a client may have":  {large, 4, Limits{MaxMemory: 30 << 20}, 200},
		"one with large ones, more than it may be": {strings.Replace(large, "[{", "["+strings.Repeat(`{"topic":"modest","body":"`+strings.Repeat("x", 1<<20)+`"},`, 8)+"{", 1), 1, Limits{}, 200},
	} {
		r := newRig(t, &Options{Authenticator: twoClients(), Limits: c.limits})
		a := r.ask("POST /v1/settle", `{"settlements":[`+strings.TrimSuffix(strings.Repeat(c.item, c.n), ",")+`]}`, asModest).want(t, c.status)
		if c.n == 1 && !strings.Contains(a.body, `"code":"too_large"`) {
			t.Errorf("%s: %.300s", name, a.body)
		}
		if n := r.memory.held(); n != 0 {
			t.Errorf("%s: %d bytes are still held", name, n)
		}
		if c.status == 200 && c.n == 4 && strings.Count(a.body, "lease_lost") != 4 {
			t.Errorf("%s: %.300s", name, a.body)
		}
	}
}

// A settlement that is sent again with its key is carried out once, and its follow-ups are stored
// once, also those without an ID.
func TestFollowUpsSentAgain(t *testing.T) {
	for _, many := range []bool{false, true} {
		r := newRig(t, nil)
		token := r.lease("orders", "A-17")
		const then = `[{"topic":"mail","body":"x"},{"topic":"mail","id":"own","body":"y"}]`
		first := r.settle(many, "ack", token, then, "Punctual-Request: k-1", "Punctual-Copy: 1").want(t, 200)
		before := r.snapshot()
		if s, err := r.store.Stats(t.Context(), "mail"); err != nil || s.Ready != 2 {
			t.Fatalf("many %v: the first request stored %+v, %v", many, s, err)
		}
		again := r.settle(many, "ack", token, then, "Punctual-Request: k-1", "Punctual-Copy: 2").want(t, 200)
		if again.body != first.body || r.snapshot() != before {
			t.Errorf("P7: many %v: the second copy is answered %s instead of %s, and the store has\n%s\ninstead of\n%s", many, again.body, first.body, r.snapshot(), before)
		}
		other := r.settle(many, "ack", token, strings.Replace(then, `"y"`, `"z"`, 1), "Punctual-Request: k-1")
		other.problem(t, 400, "invalid")
	}
}

// if_due changes a message only if it is due at that time, in a push, a cancel, a reschedule and a
// delete, of one message or of many, and in a requeue.
func TestConditions(t *testing.T) {
	const path = "/v1/topics/t/messages/x"
	const due, other = "2099-11-20T10:00:00.250Z", "2099-11-20T10:00:00.249Z"
	item := func(change, ifDue string) string {
		return `{"amendments":[{"change":"` + change + `","topic":"t","id":"x","if_due":"` + ifDue + `"}]}`
	}
	for name, c := range map[string]struct {
		line, body string // IFDUE stands for the value of if_due
		many       bool
	}{
		"PUT":         {"PUT " + path + "?if_exists=replace&in=1h&if_due=IFDUE", "b", false},
		"POST":        {"POST /v1/topics/t/messages?id=x&if_exists=replace&in=1h&if_due=IFDUE", "b", false},
		"push":        {"POST /v1/push", `[{"topic":"t","id":"x","body":"b","in":"1h","if_exists":"replace","if_due":"IFDUE"}]`, true},
		"cancel":      {"DELETE " + path + "?if_due=IFDUE", "", false},
		"reschedule":  {"POST " + path + "/reschedule?in=1h&if_due=IFDUE", "", false},
		"delete":      {"POST " + path + "/delete?if_due=IFDUE", "", false},
		"cancels":     {"POST /v1/amend", item("cancel", "IFDUE"), true},
		"reschedules": {"POST /v1/amend", item("reschedule", "IFDUE"), true},
		"deletes":     {"POST /v1/amend", item("delete", "IFDUE"), true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.ask("PUT "+path+"?at="+due, "a").want(t, 201)
			before := r.snapshot()
			ask := func(ifDue string) answer {
				return r.ask(strings.Replace(c.line, "IFDUE", ifDue, 1), strings.Replace(c.body, "IFDUE", ifDue, 1))
			}
			if a := ask(other); c.many {
				a.want(t, 200, `"status":409`, `"code":"changed"`, `"definite":true`)
			} else {
				a.problem(t, 409, "changed")
			}
			if c.many {
				ask("soon").want(t, 200, `"code":"invalid"`, "if_due")
				ask("0001-01-01T00:00:00Z").want(t, 200, `"code":"invalid"`, "if_due")
			} else {
				ask("soon").problem(t, 400, "invalid")
				ask("0001-01-01T00:00:00Z").problem(t, 400, "invalid")
			}
			if after := r.snapshot(); after != before {
				t.Fatalf("P13: changed\n%s\ninto\n%s", before, after)
			}
			if a := ask(due); strings.Contains(a.body, "code") || r.snapshot() == before {
				t.Errorf("with the right due time: %d %s", a.status, a.body)
			}
		})
	}
	t.Run("requeue", func(t *testing.T) {
		r := newRig(t, nil)
		token := r.lease("t", "x")
		m := r.wantState("t", "x", punctual.StateLeased)
		r.ask(fmt.Sprintf("POST %s/discard?token=%d", path, token), "").want(t, 200)
		r.ask("POST "+path+"/requeue?if_due="+other, "").problem(t, 409, "changed")
		r.wantState("t", "x", punctual.StateDead)
		r.ask("POST "+path+"/requeue?in=1h&if_due="+wire.TimeText(m.Due), "").want(t, 200, "requeued")
	})
	r := newRig(t, nil)
	r.ask("PUT "+path+"?if_due="+due, "a").problem(t, 400, "invalid")
	r.ask("PUT "+path+"?if_exists=replace&if_due="+due, "a").problem(t, 409, "changed") // there is no such message
}

// at_local and zone are an instant in a push, a reschedule, a retry and a snooze, of one message or
// of many. One without the other, and with another time, is refused.
func TestLocalTimes(t *testing.T) {
	const local, due = "at_local=2099-11-20+09:00&zone=Europe/Berlin", "2099-11-20T08:00:00.000Z"
	const member = `"at_local":"2099-11-20 09:00","zone":"Europe/Berlin"`
	r := newRig(t, nil)
	r.ask("PUT /v1/topics/t/messages/a?"+local, "").want(t, 201, due)
	r.ask("POST /v1/push", `[{"topic":"t","id":"b","body":"",`+member+`}]`).want(t, 200, due)
	r.ask("PUT /v1/topics/t/messages/c", "").want(t, 201)
	r.ask("POST /v1/topics/t/messages/c/reschedule?"+local, "").want(t, 200, due)
	r.ask("POST /v1/amend", `{"amendments":[{"change":"reschedule","topic":"t","id":"a",`+member+`}]}`).want(t, 200, due)
	for _, verb := range []string{"retry", "snooze"} {
		for _, many := range []bool{false, true} {
			id := fmt.Sprint(verb, many)
			token := r.lease(verb, id)
			if many {
				r.ask("POST /v1/settle", fmt.Sprintf(`{"settlements":[{"topic":"%s","id":"%s","token":"%d","verb":"%s",%s}]}`, verb, id, token, verb, member)).want(t, 200)
			} else {
				r.ask(fmt.Sprintf("POST /v1/topics/%s/messages/%s/%s?token=%d&%s", verb, id, verb, token, local), "").want(t, 200)
			}
			if m := r.wantState(verb, id, punctual.StateScheduled); wire.TimeText(m.Due) != due {
				t.Errorf("%s, many %v: due %s", verb, many, wire.TimeText(m.Due))
			}
		}
	}
	for _, query := range []string{"at_local=2099-11-20+09:00", "zone=Europe/Berlin", "at_local=2099-11-20+09:00&zone=Mars", local + "&in=1h", local + "&at=" + due, "at_local=nine&zone=UTC"} {
		r.ask("PUT /v1/topics/t/messages/d?"+query, "").problem(t, 400, "invalid")
	}
}

// Companions are topics like any others, whose @ may be escaped in a path. A pause of pushes and
// malformed names are refused.
func TestCompanions(t *testing.T) {
	r := newRig(t, nil)
	for i, topic := range []string{"orders@events", "orders%40events", "a%2Fb%40g.mail"} {
		path := "/v1/topics/" + topic
		id := fmt.Sprint("m", i)
		r.ask("PUT "+path+"/messages/"+id, "x").want(t, 201)
		a := r.ask("POST "+path+"/claim", "").want(t, 200, id)
		token := decode[wire.ClaimAnswer](t, a).Messages[0].Token
		r.ask(fmt.Sprintf("POST %s/messages/%s/ack?token=%d", path, id, token), "").want(t, 200)
		r.ask("GET "+path, "").want(t, 200)
		r.ask("PATCH "+path+"/settings", `{"max_attempts":3}`).want(t, 200)
		r.ask("PATCH "+path+"/settings", `{"push_paused":true}`).problem(t, 400, "invalid")
	}
	for _, topic := range []string{"@events", "orders@", "orders@a@b", "orders@a%2Fb"} {
		r.ask("PUT /v1/topics/"+topic+"/messages/m", "x").problem(t, 400, "invalid")
	}
	r.ask("DELETE /v1/topics/orders", "").want(t, 200)
	r.ask("GET /v1/topics/orders@events", "").problem(t, 404, "not_found")
}

// GET /v1/names has the topics that the client may inspect, by the beginning and the end of their
// names.
func TestNames(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"all": role("all", access.Inspect, "*"), "some": role("some", access.Inspect, "orders"), "none": role("none", access.Push, "*")}})
	for _, topic := range []string{"orders@cron", "orders@events", "orders2", "mail@cron"} {
		if _, err := r.store.Push(t.Context(), []punctual.NewMessage{{Topic: topic}}); err != nil {
			t.Fatal(err)
		}
	}
	const all, some, none = "Authorization: Bearer all", "Authorization: Bearer some", "Authorization: Bearer none"
	for _, c := range []struct{ query, who, want string }{
		{"", all, `["mail","mail@cron","orders","orders2","orders@cron","orders@events"]`},
		{"?prefix=orders@", all, `["orders@cron","orders@events"]`},
		{"?suffix=@cron", all, `["mail@cron","orders@cron"]`},
		{"?prefix=orders%40&suffix=%40cron", all, `["orders@cron"]`},
		{"?prefix=none", all, `[]`},
		{"", some, `["orders","orders@cron","orders@events"]`},
		{"?suffix=@cron", some, `["orders@cron"]`},
	} {
		a := r.ask("GET /v1/names"+c.query, "", c.who).want(t, 200)
		if want := `{"topics":` + c.want + "}\n"; a.body != want {
			t.Errorf("%s %s: %s; want %s", c.query, c.who, a.body, want)
		}
	}
	r.ask("GET /v1/names", "", none).problem(t, 403, "forbidden")
}

// A batch of settlements is as large as what it changes and stores, and of one topic only if all of
// that is.
func TestBatchesOfFollowUps(t *testing.T) {
	settle := func(topic string, then ...string) punctual.Settlement {
		x := punctual.Settlement{Topic: topic}
		for _, t := range then {
			x.Then = append(x.Then, punctual.NewMessage{Topic: t})
		}
		return x
	}
	for _, c := range []struct {
		ss    []punctual.Settlement
		topic string
		n     int
	}{
		{nil, "", 0},
		{[]punctual.Settlement{settle("a"), settle("a", "a", "a")}, "a", 4},
		{[]punctual.Settlement{settle("a"), settle("a", "b")}, "", 3},
		{[]punctual.Settlement{settle("a"), settle("b")}, "", 2},
	} {
		if topic, n := topicOfSettlements(c.ss), messagesOf(c.ss); topic != c.topic || n != c.n {
			t.Errorf("%v: topic %q and %d messages; want %q and %d", c.ss, topic, n, c.topic, c.n)
		}
	}
}

// A follow-up that the store does not reach in one step with the message is stored in an envelope.
// A client may push no envelope itself, and send none as a follow-up.
func TestFollowUpsBeyondReach(t *testing.T) {
	for _, silent := range []bool{false, true} {
		mem := memstore.New(nil)
		r := &rig{t, mem, newServer(t, familyrig.New(mem, 4, silent), nil)}
		for _, many := range []bool{false, true} {
			token := r.lease("orders", "A-17")
			r.settle(many, "ack", token, `[{"topic":"invoice","id":"i","in":"1h","body":""},{"topic":"orders@note","id":"A-17~n","body":""}]`).want(t, http.StatusOK)
			r.wantState("orders", "A-17", punctual.StateNone)
			r.wantState("orders@note", "A-17~n", punctual.StateReady)
			p, err := r.store.List(t.Context(), punctual.ListQuery{Topic: "orders@out", State: punctual.StateReady})
			if err != nil || len(p.Messages) != 1 {
				t.Fatalf("%v, %v; want one envelope", p.Messages, err)
			}
			m, err := storekit.Forwarded(&p.Messages[0].Message)
			if err != nil || m.Topic != "invoice" || m.ID != "i" || m.Headers[storekit.AfterHeader] != "orders/A-17" {
				t.Errorf("it carries %+v, %v", m, err)
			}
			for _, topic := range []string{"orders@out", "orders@note"} {
				if _, err := r.store.Purge(t.Context(), punctual.PurgeQuery{Topic: topic}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.ask("POST /v1/topics/orders%40out/messages", "forged").problem(t, http.StatusForbidden, "forbidden")
		token := r.lease("orders", "A-17")
		r.settle(false, "ack", token, `[{"topic":"orders@out","id":"x","body":""}]`).problem(t, http.StatusForbidden, "forbidden")
	}
}

// GET /v1 says whether the program does the duties of the store beside the server, also over a
// store that does not say what it can do.
func TestDutiesAreTold(t *testing.T) {
	for _, duties := range []bool{false, true} {
		mem := memstore.New(nil)
		for _, store := range []punctual.Store{mem, struct{ punctual.Store }{mem}} {
			r := &rig{t, mem, newServer(t, store, &Options{Duties: duties})}
			if got := strings.Contains(r.ask("GET /v1", "").body, `"duties":true`); got != duties {
				t.Errorf("%T, duties %v: told %v", store, duties, got)
			}
		}
	}
}

// A push or follow-up that could never be copied to the groups of its topic is refused.
func TestCopiesTooLarge(t *testing.T) {
	r := newRig(t, nil)
	groups := make([]string, 9)
	for i := range groups {
		groups[i] = fmt.Sprint("g", i)
	}
	if _, err := r.store.Configure(t.Context(), "orders", punctual.SettingsPatch{Groups: &groups}); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 1<<20)
	r.ask("POST /v1/topics/orders/messages", body).problem(t, http.StatusRequestEntityTooLarge, "too_large")
	r.ask("POST /v1/topics/plain/messages", body).want(t, http.StatusCreated)
	r.ask("POST /v1/topics/orders/messages", "small").want(t, http.StatusCreated)

	const large, small = `[{"topic":"plain","id":"p","body":""},{"topic":"orders","id":"f","body":"BODY"}]`, `[{"topic":"plain","id":"p","body":"BODY"}]`
	if _, err := r.store.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	token := r.lease("orders", "A-17")
	before := r.snapshot()
	for _, end := range endsWithFollowUps {
		r.settle(false, end.verb, token, strings.Replace(large, "BODY", body, 1)).problem(t, http.StatusRequestEntityTooLarge, "too_large")
		r.settle(true, end.verb, token, strings.Replace(large, "BODY", body, 1)).want(t, http.StatusOK, `"code":"too_large"`, "follow-up 2: ")
	}
	if after := r.snapshot(); after != before {
		t.Fatalf("P13: changed\n%s\ninto\n%s", before, after)
	}
	r.settle(false, "ack", token, strings.Replace(small, "BODY", body, 1)).want(t, http.StatusOK)
	r.wantState("plain", "p", punctual.StateReady)
}
