package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/answers"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
)

// A server that drains answers claims that wait without messages, refuses new claims, and answers
// other requests.
func TestDrainEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		answers := make(chan answer, 2)
		began := time.Now()
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			req := r.request("POST /v1/topics/t/claim", "", "Accept: "+accept)
			if accept == "application/json" {
				req = r.request("POST /v1/topics/t/claim?wait=50s", "")
			}
			go func() { answers <- ask(r.Server, req) }()
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		r.Drain()
		synctest.Wait()
		for range 2 {
			switch a := <-answers; {
			case a.header.Get("Content-Type") == wire.TypeNDJSON:
				a.want(t, 200, "{}\n")
			default:
				a.want(t, http.StatusNoContent)
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("P11: the waits ended after %v", took)
		}
		a := r.ask("POST /v1/topics/t/claim", "")
		if a.problem(t, 503, "closed"); a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		r.ask("GET /readyz", "").problem(t, 503, "closed")
		r.ask("GET /livez", "").want(t, 200)
		r.ask("PUT /v1/topics/t/messages/a", "x").want(t, 201)
	})
}

// A client that knows the key of another client's request does not get the answer to that request,
// and cannot have it forgotten.
func TestRequestKeysAreOnesOwn(t *testing.T) {
	r := newRig(t, &Options{Authenticator: roles{"a": role("a", access.All, "*"), "b": role("b", access.All, "*")}})
	const a, b, key = "Authorization: Bearer a", "Authorization: Bearer b", "Punctual-Request: k"
	first := r.ask("POST /v1/topics/t/messages?in=1h", "x", a, key).want(t, 201).body
	same(t, r.ask("POST /v1/topics/t/messages?in=1h", "x", a, key).want(t, 201).body, first)
	if r.ask("POST /v1/topics/t/messages?in=1h", "x", b, key).want(t, 201).body == first {
		t.Error("b is given the answer of a")
	}
	r.ask("GET /v1/clock", "", b, "Punctual-Answered: k")
	same(t, r.ask("POST /v1/topics/t/messages?in=1h", "x", a, key).want(t, 201).body, first)
	r.ask("GET /v1/clock", "", a, "Punctual-Answered: j, k")
	if r.ask("POST /v1/topics/t/messages?in=1h", "x", a, key).want(t, 201).body == first {
		t.Error("an answer that has arrived is kept")
	}
}

// A client that has gone while it waited gets no message.
func TestClientGoneWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"", "k1"} {
			r := newRig(t, nil)
			ctx, hangUp := context.WithCancel(t.Context())
			req := r.request("POST /v1/topics/t/claim?wait=50s", "", "Punctual-Request: "+key).WithContext(ctx)
			if key == "" {
				req.Header.Del("Punctual-Request")
			}
			done := make(chan answer)
			go func() { done <- ask(r.Server, req) }()
			synctest.Wait()
			hangUp()
			if a := <-done; a.body != "" {
				t.Errorf("the client that has gone is sent %q", a.body)
			}
			r.ask("PUT /v1/topics/t/messages/a", "x").want(t, 201)
			r.wantFree("t", 1)
		}
	})
}

// wantFree fails unless a claim has the message with this attempt. It waits for less than a lease
// of 30 s, so the message was given back.
func (r *rig) wantFree(topic string, attempt int) {
	r.Helper()
	c := decode[wire.ClaimAnswer](r.T, r.ask("POST /v1/topics/"+topic+"/claim?wait=20s", "").want(r.T, 200))
	if len(c.Messages) != 1 || c.Messages[0].Attempt != attempt {
		r.Errorf("claimed %+v, want attempt %d", c.Messages, attempt)
	}
}

// brokenWriter is a client that goes when its answer has more than room bytes.
type brokenWriter struct {
	*httptest.ResponseRecorder
	room int
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, errors.New("connection reset by peer")
	}
	return w.ResponseRecorder.Write(p)
}

// Messages that did not reach their client are released: they are ready again at once, and the
// attempt is not counted.
func TestAnswerThatDoesNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, headers := range map[string][]string{
			"json": nil, "raw": {"Accept: application/octet-stream"}, "stream": {"Accept: application/x-ndjson"}, "with a key": {"Punctual-Request: k1"},
		} {
			r := newRig(t, nil)
			r.ask("PUT /v1/topics/t/messages/a", "body").want(t, 201)
			w := &brokenWriter{httptest.NewRecorder(), len("{}\n")}
			path := "POST /v1/topics/t/claim?wait=20s"
			if name == "stream" {
				path = "POST /v1/topics/t/claim"
			}
			r.ServeHTTP(w, r.request(path, "", headers...))
			info, err := r.store.Get(t.Context(), "t", "a")
			if err != nil || info.State != punctual.StateReady || info.Attempt != 0 {
				t.Errorf("%s: %v after %d attempts, %v; want ready after none", name, info.State, info.Attempt, err)
			}
			r.wantFree("t", 1)
		}
	})
}

// A client that goes between the claim and its answer gets no message, and the message is released.
func TestClientGoneBehindTheClaim(t *testing.T) {
	store := &hangUpStore{Store: memstore.New(nil)}
	r := &rig{t, store.Store, newServer(t, store, nil)}
	r.ask("PUT /v1/topics/t/messages/a", "body").want(t, 201)
	ctx, hangUp := context.WithCancel(t.Context())
	store.claimed = hangUp
	if a := ask(r.Server, r.request("POST /v1/topics/t/claim?wait=20s", "").WithContext(ctx)); a.body != "" || ctx.Err() == nil {
		t.Errorf("the client that has gone is sent %q", a.body)
	}
	store.claimed = func() {}
	r.wantFree("t", 1)
}

// The same holds for a client whose claim has a key, over a store that recognizes repeated calls by
// itself.
func TestClientGoneBehindTheClaimOfARepeater(t *testing.T) {
	below := memstore.New(nil)
	repeater := &hangUpRepeater{Store: answers.New(below, nil)}
	r := &rig{t, below, newServer(t, repeater, nil)}
	r.ask("PUT /v1/topics/t/messages/a", "body").want(t, 201)
	ctx, hangUp := context.WithCancel(t.Context())
	repeater.claimed = hangUp
	if a := ask(r.Server, r.request("POST /v1/topics/t/claim?wait=20s", "", "Punctual-Request: k1").WithContext(ctx)); a.body != "" || ctx.Err() == nil {
		t.Errorf("the client that has gone is sent %q", a.body)
	}
	repeater.claimed = func() {}
	r.wantFree("t", 1)
}

// hangUpRepeater is hangUpStore over a Repeater.
type hangUpRepeater struct {
	*answers.Store
	claimed func()
}

func (s *hangUpRepeater) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	if len(ds) > 0 {
		s.claimed()
	}
	return ds, err
}

// hangUpStore calls claimed when a claim has brought messages.
type hangUpStore struct {
	*memstore.Store
	claimed func()
}

func (s *hangUpStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	if len(ds) > 0 {
		s.claimed()
	}
	return ds, err
}

// A token that is revoked while a claim waits brings no message.
func TestTokenRevokedWhileAClaimWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := &switched{roles: roles{"w": role("w", access.Work, "*")}}
		r := newRig(t, &Options{Authenticator: tokens})
		done := make(chan answer)
		go func() {
			done <- ask(r.Server, r.request("POST /v1/topics/t/claim?wait=50s", "", "Authorization: Bearer w"))
		}()
		synctest.Wait()
		tokens.roles = nil
		if _, err := r.store.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a"}}); err != nil {
			t.Fatal(err)
		}
		(<-done).problem(t, 401, "unauthenticated")
		if i, err := r.store.Get(t.Context(), "t", "a"); err != nil || i.State != punctual.StateReady || i.Attempt != 0 {
			t.Errorf("the message is %v after %d attempts, %v", i.State, i.Attempt, err)
		}
	})
}

type switched struct{ roles roles }

func (s *switched) Authenticate(r *http.Request) (*access.Principal, error) {
	return s.roles.Authenticate(r)
}

// A call that is sent again with the same key is carried out once and gets the same answer. The key
// of another call is refused.
func TestRequestsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		push := func() string {
			return r.ask("POST /v1/topics/t/messages", "x", "Punctual-Request: p1").want(t, 201).body
		}
		same(t, push(), push())
		time.Sleep(time.Second)
		claim := func() string {
			return r.ask("POST /v1/topics/t/claim?max=5", "", "Punctual-Request: c1").want(t, 200).body
		}
		first := claim()
		same(t, claim(), first)
		m := decode[wire.ClaimAnswer](t, answer{body: first}).Messages
		if len(m) != 1 {
			t.Fatalf("%d messages, want 1: the push was carried out twice", len(m))
		}
		for range 2 {
			r.ask(fmt.Sprintf("POST /v1/topics/t/messages/%s/ack?token=%d", m[0].ID, m[0].Token), "", "Punctual-Request: s1").want(t, 200)
		}
		r.ask("POST /v1/topics/t/messages", "another", "Punctual-Request: p1").problem(t, 400, "invalid")
		r.ask("POST /v1/topics/t/messages", "x", "Punctual-Request: a b").problem(t, 400, "invalid")
		r.ask("POST /v1/topics/t/messages", "x", "Punctual-Request: p2", "Punctual-Not-After: noon").problem(t, 400, "invalid")
		r.ask("POST /v1/topics/t/messages", "x", "Punctual-Request: p2", "Punctual-Instance: gone").problem(t, wire.StatusOtherInstance, "closed")
		if stats, err := r.store.Stats(t.Context(), "t"); err != nil || stats.Live() != 0 {
			t.Errorf("%+v, %v; want nothing stored", stats, err)
		}
	})
}

// A message is claimed by its ID, and one that is not ready is refused with the reason. Many
// are claimed with ids in the body.
func TestClaimByID(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"a", "b", "c", "later?in=1h"} {
		r.ask("PUT /v1/topics/t/messages/"+path, "x").want(t, 201)
	}
	const b = "POST /v1/topics/t/messages/b/claim"
	got := decode[wire.ClaimAnswer](t, r.ask(b+"?lease=1h", "").want(t, 200)).Messages
	if len(got) != 1 || got[0].ID != "b" || time.Time(got[0].LeaseUntil).Sub(time.Time(got[0].Delivered)) != time.Hour {
		t.Fatalf("a claim of b got %+v", got)
	}
	r.ask(b, "").problem(t, 409, "leased")
	r.ask(fmt.Sprintf("POST /v1/topics/t/messages/b/discard?token=%d", got[0].Token), "").want(t, 200)
	r.ask(b, "").problem(t, 404, "not_found")
	r.ask("POST /v1/topics/t/messages/none/claim", "").problem(t, 404, "not_found")
	if p := r.ask("POST /v1/topics/t/messages/later/claim", "").problem(t, 409, "changed"); !strings.Contains(p.Detail, "is due at") {
		t.Errorf("a message that is not due is refused with %q", p.Detail)
	}
	r.ask("POST /v1/topics/t/pause", "").want(t, 200)
	if p := r.ask("POST /v1/topics/t/messages/a/claim", "").problem(t, 409, "changed"); !strings.Contains(p.Detail, "pause") {
		t.Errorf("a message of a topic that is paused is refused with %q", p.Detail)
	}
	r.ask("POST /v1/topics/t/resume", "").want(t, 200)
	a := r.ask("POST /v1/topics/t/messages/a/claim", "", "Accept: "+wire.TypeRaw).want(t, 200, "x")
	same(t, a.header.Get("Punctual-Id"), "a")
	r.ask("POST /v1/topics/t/messages/c/claim", "", "Accept: "+wire.TypeNDJSON).problem(t, 400, "invalid")
	r.ask("POST /v1/claim", `{"topics":["t","u"],"ids":["c"]}`).problem(t, 400, "invalid")
	r.ask("POST /v1/claim", `{"topics":["t"],"ids":["c"],"wait":"1s"}`).problem(t, 400, "invalid")
	r.ask("PUT /v1/topics/t/messages/d", "x").want(t, 201)
	if ms := decode[wire.ClaimAnswer](t, r.ask("POST /v1/claim", `{"topics":["t"],"ids":["d","later","a","c"]}`).want(t, 200)).Messages; len(ms) != 2 || ms[0].ID != "d" || ms[1].ID != "c" {
		t.Errorf("a claim of d, later, a and c got %+v; want d and c", ms)
	}
	r.ask("POST /v1/claim", `{"topics":["t"],"ids":["d"]}`).want(t, 204)
}

func TestClaimLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Options{
			Limits:        Limits{MaxWaiting: 2, MaxClaim: 5, MaxWait: time.Second, MaxWindow: 3},
			Authenticator: roles{"a": role("a", access.All, "*"), "b": role("b", access.All, "*")},
		})
		const a, b = "Authorization: Bearer a", "Authorization: Bearer b"
		r.ask("POST /v1/topics/t/claim?max=6", "", a).problem(t, 413, "too_large")
		r.ask("POST /v1/topics/t/claim?wait=1001ms", "", a).problem(t, 400, "invalid")
		r.ask("POST /v1/topics/t/claim?max=0", "", a).problem(t, 400, "invalid")
		r.ask("POST /v1/topics/t/claim?window=2", "", a).problem(t, 400, "invalid")
		r.ask("POST /v1/topics/t/claim?window=4", "", a, "Accept: application/x-ndjson").problem(t, 400, "invalid")
		r.ask("POST /v1/claim", `{"topics":[],"max":1}`, a).problem(t, 400, "invalid")
		r.ask("POST /v1/claim", `{"topics":["t"],"ids":["1","2","3","4","5","6"]}`, a).problem(t, 413, "too_large")
		done := make(chan answer)
		for range 2 {
			req := r.request("POST /v1/topics/t/claim?wait=1s", "", a)
			go func() { done <- ask(r.Server, req) }()
		}
		synctest.Wait()
		refused := r.ask("POST /v1/topics/t/claim?wait=1s", "", a)
		if refused.problem(t, 429, "overloaded"); refused.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		r.ask("POST /v1/topics/t/claim", "", b).want(t, 204) // P14: another client is not affected
		for range 2 {
			(<-done).want(t, 204)
		}
		r.ask("POST /v1/topics/t/claim", "", a).want(t, 204)
	})
}

// A stream sends what falls due, and no more than its window has room for.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		for i := range 5 {
			r.ask(fmt.Sprintf("PUT /v1/topics/t/messages/%d", i), "x").want(t, 201)
		}
		s := newStream(r, "window=2&lease=1m")
		s.next()
		s.next()
		s.nothing(40 * time.Second)
		s.settle(0, "ack").want(t, 200)
		s.next() // the third takes the place of the first
		s.settle(1, "extend", "&in=1m").want(t, 200)
		s.nothing(25 * time.Second) // the first lease of the second would have ended by now, but it was extended
		s.settle(2, "discard").want(t, 200)
		s.next()
		s.nothing(30 * time.Second)
		time.Sleep(10 * time.Second) // the lease of the second ends, and the window has room again
		s.next()
		if h := s.lines.header; h.Get("Content-Type") != wire.TypeNDJSON || h.Get("X-Accel-Buffering") != "no" {
			t.Errorf("headers %v", h)
		}
		s.hangUp()
		<-s.done
		if n := len(r.windows.of); n != 0 {
			t.Errorf("%d messages are left in windows", n)
		}
		if stats, err := r.store.Stats(t.Context(), "t"); err != nil || stats.Leased == 0 {
			t.Errorf("%+v, %v: what the client was sent is its own while the lease lasts", stats, err)
		}
	})
}

// streaming is the client of a stream of the topic t. It is for tests in a synctest bubble.
type streaming struct {
	*rig
	lines  *lines
	held   []wire.Delivery // the messages that it was sent
	hangUp func()
	done   chan struct{} // closed when the stream has ended
}

// newStream opens a stream with these parameters.
func newStream(r *rig, query string) *streaming {
	ctx, hangUp := context.WithCancel(r.Context())
	s := &streaming{rig: r, lines: &lines{header: make(http.Header), got: make(chan string, 100)}, hangUp: hangUp, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		r.ServeHTTP(s.lines, r.request("POST /v1/topics/t/claim?"+query, "", "Accept: application/x-ndjson").WithContext(ctx))
	}()
	return s
}

// next waits for a message and adds it to held.
func (s *streaming) next() {
	s.Helper()
	for {
		l := decode[wire.StreamLine](s.T, answer{body: <-s.lines.got})
		if l.Message != nil {
			s.held = append(s.held, *l.Message)
			return
		}
	}
}

// nothing fails if a message is sent during wait.
func (s *streaming) nothing(wait time.Duration) {
	s.Helper()
	time.Sleep(wait)
	synctest.Wait()
	for len(s.lines.got) > 0 {
		if l := <-s.lines.got; l != "{}\n" {
			s.Errorf("the window is full, and %q is sent", l)
		}
	}
}

// settle settles the message with this place in held. more is appended to the query.
func (s *streaming) settle(i int, verb string, more ...string) answer {
	s.Helper()
	return s.ask(fmt.Sprintf("POST /v1/topics/t/messages/%s/%s?token=%d%s", s.held[i].ID, verb, s.held[i].Token, strings.Join(more, "")), "")
}

// An extension without a length has the length of the topic's lease, whatever the stream's claim
// has asked for. The message keeps its place in the window, and counts as held by its consumer,
// until that lease ends.
func TestWindowAfterAnExtensionWithoutLength(t *testing.T) {
	for _, many := range []bool{false, true} {
		for topic, claimed := range map[time.Duration]time.Duration{30 * time.Second: 10 * time.Minute, 10 * time.Minute: 30 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.ask("PATCH /v1/topics/t/settings", fmt.Sprintf(`{"lease":"%v"}`, topic)).want(t, 200)
				push(t, r, punctual.NewMessage{Topic: "t", ID: "a"}, punctual.NewMessage{Topic: "t", ID: "b"})
				s := newStream(r, "window=1&lease="+claimed.String())
				defer func() { s.hangUp(); <-s.done }()
				s.next()
				if many {
					item := fmt.Sprintf(`{"topic":"t","id":"%s","token":"%d","verb":"extend"}`, s.held[0].ID, s.held[0].Token)
					r.ask("POST /v1/settle", `{"settlements":[`+item+`]}`).want(t, 200, `{"results":[{"topic":"t","id":"a"}]}`)
				} else {
					s.settle(0, "extend").want(t, 200)
				}
				info, err := r.store.Get(t.Context(), "t", s.held[0].ID)
				if left := time.Until(info.LeaseUntil); err != nil || left.Round(time.Second) != topic {
					t.Fatalf("this test shows nothing: the lease goes on for %v, %v; want %v", left, err, topic)
				}
				all, err := r.Consumers(t.Context(), "t")
				if err != nil || len(all.All) != 1 || all.All[0].NextEnd.Sub(info.LeaseUntil).Abs() > time.Second {
					t.Errorf("consumers %+v, %v; want the lease to end at %v", all.All, err, info.LeaseUntil)
				}
				s.nothing(topic - time.Second)
				began := time.Now()
				s.next()
				if took := time.Since(began); took > time.Second+keepAlive {
					t.Errorf("the lease ended, and the window had no room for another %v", took)
				}
			})
		}
	}
}

// A message that is cancelled while its lease lasts keeps its place in the window. An extension is
// refused then, and leaves the lease as it is.
func TestWindowAfterARefusedExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		push(t, r, punctual.NewMessage{Topic: "t", ID: "a"}, punctual.NewMessage{Topic: "t", ID: "b"})
		s := newStream(r, "window=1&lease=1m")
		defer func() { s.hangUp(); <-s.done }()
		s.next()
		r.ask("DELETE /v1/topics/t/messages/"+s.held[0].ID, "").problem(t, 409, "leased")
		s.settle(0, "extend").problem(t, 409, "cancelled")
		if info, err := r.store.Get(t.Context(), "t", s.held[0].ID); err != nil || info.State != punctual.StateLeased {
			t.Fatalf("this test shows nothing: %+v, %v; want the message leased", info, err)
		}
		s.nothing(50 * time.Second)
		s.settle(0, "ack").want(t, 200)
		s.next()
	})
}

// A window may be larger than what one claim of a store brings.
func TestWindowBeyondOneClaim(t *testing.T) {
	const size = limits.MaxClaim + 1
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Options{Limits: Limits{MaxWindow: size}})
		if _, err := r.store.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: size}); err == nil {
			t.Fatalf("this shows nothing: the store takes a claim of %d messages", size)
		}
		push(t, r, punctual.NewMessage{Topic: "t", ID: "a"})
		ctx, hangUp := context.WithCancel(t.Context())
		w := &lines{header: make(http.Header), got: make(chan string, 100)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.ServeHTTP(w, r.request(fmt.Sprintf("POST /v1/topics/t/claim?window=%d", size), "", "Accept: application/x-ndjson").WithContext(ctx))
		}()
		<-w.got // the empty object with which a stream begins
		if l := <-w.got; !strings.Contains(l, `"id":"a"`) {
			t.Errorf("the stream sends %s; want the message", l)
		}
		hangUp()
		<-done
	})
}

// lines is a client of a stream.
type lines struct {
	header http.Header
	got    chan string
}

func (w *lines) Header() http.Header { return w.header }
func (w *lines) WriteHeader(int)     {}

func (w *lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		w.got <- line
	}
	return len(p), nil
}

// When the store is closed, a stream ends with a line that has the error.
func TestStreamEndsWithItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		done := make(chan answer)
		req := r.request("POST /v1/claim", `{"topics":["t"],"max":1}`, "Accept: application/x-ndjson")
		go func() { done <- ask(r.Server, req) }()
		synctest.Wait()
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		(<-done).want(t, 200, `{"error":{"status":503`, `"closed"`)
	})
}
