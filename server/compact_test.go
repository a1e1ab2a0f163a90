package server

import (
	"fmt"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// In the compact form every item is judged as in JSON: its topic by the client's rights, its body
// and the number of items by the limits.
func TestCompactItemsAreJudged(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"w": role("w", access.Push|access.Work|access.Amend, "mine.*")}, Limits: Limits{MaxBody: 10, MaxBatch: 4}})
	compact := []string{"Authorization: Bearer w", "Content-Type: " + wire.TypeCompact, "Accept: " + wire.TypeCompact}
	send := func(line string, data []byte, err error) answer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return ask(r.Server, r.request(line, string(data), compact...))
	}
	ms := []punctual.NewMessage{
		{Topic: "mine.a", ID: "1", Body: []byte("0123456789")},
		{Topic: "theirs", ID: "2"},
		{Topic: "mine.a", ID: "3", Body: []byte("0123456789a")},
		{Topic: "no topic", ID: "4"},
	}
	data, err := wire.EncodePush(wire.Compact, ms)
	a := send("POST /v1/push", data, err).want(t, 200)
	rs, err := wire.DecodePushAnswer(wire.Compact, []byte(a.body))
	if err != nil || a.header.Get("Content-Type") != wire.TypeCompact {
		t.Fatal(a, err)
	}
	var codes []string
	for _, r := range rs {
		codes = append(codes, fmt.Sprintf("%s %v %s", r.ID, r.Status, storekit.ErrorCode(r.Err)))
	}
	same(t, codes, []string{"1 stored ", "2  forbidden", "3  too_large", "4  invalid"})

	a = ask(r.Server, r.request("POST /v1/claim", `{"topics":["mine.a"],"max":5,"wait":"10s"}`, "Authorization: Bearer w", "Accept: "+wire.TypeCompact)).want(t, 200)
	ds, err := wire.DecodeClaimAnswer(wire.Compact, []byte(a.body))
	if err != nil || len(ds) != 1 || ds[0].ID != "1" || string(ds[0].Body) != "0123456789" {
		t.Fatal(ds, err)
	}
	data, err = wire.EncodeSettle(wire.Compact, []punctual.Settlement{
		{Topic: "theirs", ID: "2", Token: 1, Verb: punctual.SettleAck},
		{Topic: "mine.a", ID: "1", Token: ds[0].Token, Verb: punctual.SettleAck},
		{Topic: "mine.a", ID: "1", Token: ds[0].Token + 1, Verb: punctual.SettleAck},
	})
	a = send("POST /v1/settle", data, err).want(t, 200)
	errs, err := wire.DecodeSettleAnswer(wire.Compact, []byte(a.body))
	if err != nil || storekit.ErrorCode(errs[0]) != "forbidden" || errs[1] != nil || storekit.ErrorCode(errs[2]) != "lease_lost" {
		t.Fatal(errs, err)
	}

	before := r.snapshot()
	data, err = wire.EncodePush(wire.Compact, append(ms, punctual.NewMessage{Topic: "mine.a"}))
	send("POST /v1/push", data, err).problem(t, 413, "too_large")
	data, err = wire.EncodePush(wire.Compact, ms)
	send("POST /v1/push", append(data, 0), err).problem(t, 400, "invalid")
	send("POST /v1/settle", data, err).problem(t, 400, "invalid")
	send("POST /v1/push", append(data, 2<<3, 1), err).problem(t, 400, "invalid") // a field that is not known
	send("POST /v1/amend", data, err).problem(t, 400, "invalid")                 // this route takes JSON alone
	same(t, r.snapshot(), before)
}

// An answer is in the form that the client asks for, whatever the form of the request is.
func TestFormsOfAnswers(t *testing.T) {
	r := newRig(t, nil)
	r.ask("GET /v1", "").want(t, 200, `"compact":4`)
	r.ask("GET /punctual.proto", "").want(t, 200, "message PushRequest {", "message SettleAnswer {")
	data, err := wire.EncodePush(wire.Compact, []punctual.NewMessage{{Topic: "t", ID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	r.ask("POST /v1/push", string(data), "Content-Type: "+wire.TypeCompact).want(t, 200, `"result":"stored"`)
	a := ask(r.Server, r.request("POST /v1/push", `[{"topic":"t","id":"1","body":""}]`, "Accept: "+wire.TypeCompact)).want(t, 200)
	if rs, err := wire.DecodePushAnswer(wire.Compact, []byte(a.body)); err != nil || rs[0].Status != punctual.PushDuplicate {
		t.Fatal(rs, err)
	}
}
