package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/wire"
)

// A client that may inspect a topic sees who works on it: name, leases and claims. A consumer whose
// leases have run out is shown no more. A stream that is open counts as a claim that waits, and a
// malformed name of a consumer is left out.
func TestConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(123 * time.Microsecond) // the times of the answer have whole milliseconds all the same
		r := newRig(t, &Options{Authenticator: roles{"w": role("worker", access.Work|access.Push, "*"), "i": role("looker", access.Inspect, "*")}})
		const w, i = "Authorization: Bearer w", "Authorization: Bearer i"
		r.ask("GET /v1/topics/t/consumers", "", w).problem(t, 403, "forbidden")
		same(t, len(decode[wire.Consumers](t, r.ask("GET /v1/topics/t/consumers", "", i).want(t, 200, `"consumers":[]`)).Consumers), 0)
		for _, id := range []string{"a", "b"} {
			r.ask("PUT /v1/topics/t/messages/"+id, "x", w).want(t, 201)
		}
		r.ask("POST /v1/topics/t/claim?max=2", "", w, "Punctual-Consumer: web-3").want(t, 200)
		one := decode[wire.Consumers](t, r.ask("GET /v1/topics/t/consumers", "", i).want(t, 200)).Consumers
		if len(one) != 1 || one[0].User != "worker" || one[0].Name != "web-3" || one[0].Leases != 2 || one[0].Claimed != 2 {
			t.Fatalf("%+v", one)
		}
		if seen, end := time.Time(one[0].LastSeen), time.Time(one[0].NextEnd); !seen.Equal(seen.Truncate(time.Millisecond)) || !end.Equal(end.Truncate(time.Millisecond)) {
			t.Errorf("seen at %v, the first lease ends at %v", seen, end)
		}
		time.Sleep(time.Hour)
		r.ask("GET /v1/topics/t/consumers", "", i).want(t, 200, `"consumers":[]`)
		req := r.request("POST /v1/topics/t/claim", "", w, "Accept: "+wire.TypeNDJSON, "Punctual-Consumer: gr\u00f6\u00dfe")
		ended := make(chan answer)
		go func() { ended <- ask(r.Server, req) }()
		synctest.Wait()
		one = decode[wire.Consumers](t, r.ask("GET /v1/topics/t/consumers", "", i).want(t, 200)).Consumers
		if len(one) != 1 || one[0].Waiting != 1 || one[0].Leases != 2 || one[0].Name != "" {
			t.Errorf("of a stream: %+v", one)
		}
		r.Drain()
		<-ended
	})
}
