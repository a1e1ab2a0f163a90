package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/answers"
)

// These tests show that one client, however much it takes of a server, leaves room for the others
// (P14).

const (
	asGreedy = "Authorization: Bearer greedy"
	asModest = "Authorization: Bearer modest"
)

// twoClients may both do everything, but in different topics.
func twoClients() roles {
	return roles{"greedy": role("greedy", access.All, "greedy"), "modest": role("modest", access.All, "modest")}
}

// TestAnswersOfOneClient: a client whose kept answers fill the share of one client is refused, and
// another client is not.
func TestAnswersOfOneClient(t *testing.T) {
	r := newRig(t, &Options{Authenticator: twoClients()})
	small := answers.New(r.calls, &answers.Options{Unchanged: true, MaxBytes: 1 << 20}) // the default takes seconds to fill
	r.answers, r.Server.store, r.takesBack = small, small, small
	item, sent := `{"topic":"greedy","id":"x","token":"7","verb":"ack"},`, 0
	for _, items := range []int{100, 1} {
		body, refused := `{"settlements":[`+strings.TrimSuffix(strings.Repeat(item, items), ",")+`]}`, false
		for range 60 {
			sent++
			if a := ask(r.Server, r.request("POST /v1/settle", body, asGreedy, fmt.Sprintf("Punctual-Request: %d", sent))); a.status != 200 {
				a.problem(t, 503, "overloaded")
				refused = true
				break
			}
		}
		if !refused {
			t.Fatalf("60 requests of %d items do not fill what is left of a client's share: the test shows nothing", items)
		}
	}
	for n := range 20 {
		r.ask("PUT /v1/topics/modest/messages/m?if_exists=replace", "x", asModest, fmt.Sprintf("Punctual-Request: %d", n))
	}
	r.ask("POST /v1/topics/modest/claim", "", asModest, "Punctual-Request: claim").want(t, 200, `"id":"m"`)
}

// TestClientsWithOneName: two tokens with the same name are two clients, so that neither gets an
// answer that the other asked for.
func TestClientsWithOneName(t *testing.T) {
	first, second := role("worker", access.All, "*"), role("worker", access.All, "*")
	first.ID, second.ID = "first", "second"
	r := newRig(t, &Options{Authenticator: roles{"first": first, "second": second}, Limits: Limits{Rate: 0.001, Burst: 4}})
	const asFirst, asSecond, key = "Authorization: Bearer first", "Authorization: Bearer second", "Punctual-Request: 1"
	r.ask("PUT /v1/topics/t/messages/a", "", asFirst).want(t, 201)
	r.ask("PUT /v1/topics/t/messages/b", "", asSecond).want(t, 201)
	r.ask("POST /v1/topics/t/claim", "", asFirst, key).want(t, 200, `"id":"a"`)
	r.ask("POST /v1/topics/t/claim", "", asSecond, key).want(t, 200, `"id":"b"`)
	r.ask("POST /v1/topics/t/claim", "", asFirst, key).want(t, 200, `"id":"a"`)
	r.ask("GET /v1", "", asFirst).want(t, 200)
	r.ask("GET /v1", "", asFirst).want(t, 429)
	r.ask("GET /v1", "", asSecond).want(t, 200) // each has a rate of its own
}

// held returns the sum of what all clients have.
func (s *shares) held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
