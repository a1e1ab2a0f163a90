package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
)

// fillVisits pushes n messages, of which the first is due in an hour, and each further one a minute
// later.
func fillVisits(t *testing.T, s punctual.Store, n int) {
	t.Helper()
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "visits", ID: fmt.Sprint("v-", i), Delay: time.Hour + time.Duration(i)*time.Minute}
	}
	if _, err := punctual.NewQueue(s, nil).PushMany(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
}

func TestBulk(t *testing.T) {
	var recorded []audit.Change
	r := newRig(t, &Options{Record: func(ctx context.Context, ch audit.Change, do func(context.Context) (int64, error)) (int64, error) {
		recorded = append(recorded, ch)
		return do(ctx)
	}})
	fillVisits(t, r.store, 100)
	bulk := func(body string) answer { return r.ask("POST /v1/topics/visits/bulk", body) }
	bulk(`{"do":"shift","by":"1h","id_prefix":"v-1","dry_run":true}`).want(t, 200, `"matched":11`, `"done":0`, `"first":[{"id":"v-19"`)
	if len(recorded) != 0 {
		t.Errorf("a dry run was recorded: %+v", recorded)
	}
	bulk(`{"do":"shift","by":"-30m","id_prefix":"v-1"}`).want(t, 200, `"matched":11`, `"done":11`)
	bulk(`{"do":"reschedule","in":"1h","rate":1000}`).want(t, 200, `"done":100`)
	bulk(`{"do":"cancel","state":"scheduled"}`).want(t, 200, `"done":100`)
	if len(recorded) != 3 || recorded[0].Verb != "bulk shift" || recorded[0].Topic != "visits" || !strings.Contains(recorded[0].Detail, "v-1") || recorded[0].Amends {
		t.Errorf("recorded %+v, want each bulk that changed messages, with what was asked", recorded)
	}
	for body, text := range map[string]string{
		`{}`:                           "bulk change",
		`{"do":"shift"}`:               "whole milliseconds",
		`{"do":"shift","by":"soon"}`:   "by",
		`{"do":"shift","by":"-"}`:      "no length",
		`{"do":"cancel","in":"1h"}`:    "due time",
		`{"do":"cancel","state":"x"}`:  "state",
		`{"do":"cancel","from":"x"}`:   "from",
		`{"do":"cancel","what":"x"}`:   "what",
		`{"do":"cancel","error":""}`:   "empty",
		`{"do":"requeue","at":"soon"}`: "at",
	} {
		if p := bulk(body).problem(t, 400, "invalid"); !strings.Contains(p.Detail, text) {
			t.Errorf("%s: %q does not say %q", body, p.Detail, text)
		}
	}
}

// A client that leaves stops its bulk. The same request sent again continues it, and no message is
// moved twice.
func TestBulkStream(t *testing.T) {
	store := &gatedAmends{Store: memstore.New(nil), gate: make(chan struct{})}
	s := newServer(t, store, nil)
	fillVisits(t, store, 300)
	web := httptest.NewServer(s)
	defer web.Close()
	post := func(ctx context.Context) io.ReadCloser {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/v1/topics/visits/bulk", strings.NewReader(`{"do":"shift","by":"30m","id":"night"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", wire.TypeNDJSON)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Body
	}
	ctx, leave := context.WithCancel(t.Context())
	body := post(ctx)
	lines := bufio.NewScanner(body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"matched":30,"done":0`) {
		t.Fatalf("line %q, %v; want what the first window has", lines.Text(), lines.Err())
	}
	for range 4 {
		store.gate <- struct{}{} // lets the messages of a window be moved
	}
	leave()
	body.Close()
	close(store.gate) // so that a call which is under way ends
	for s.bulks.taken() > 0 {
		time.Sleep(time.Millisecond)
	}
	rest := post(t.Context())
	defer rest.Close()
	data, err := io.ReadAll(rest)
	if err != nil || !strings.Contains(string(data), `"complete":true`) {
		t.Fatalf("continued: %s, %v", data, err)
	}
	for i := range 300 {
		m, err := store.Store.Get(t.Context(), "visits", fmt.Sprint("v-", i))
		if err != nil {
			t.Fatal(err)
		}
		want := m.Created.Add(time.Hour + time.Duration(i)*time.Minute + 30*time.Minute)
		if m.Due.Sub(want).Abs() > time.Second { // a delay and the time of the push are rounded apart
			t.Errorf("%s is due at %v, want %v", m.ID, m.Due, want)
		}
	}
}

// gatedAmends lets an Amend through for each value of gate, and all once gate is closed.
type gatedAmends struct {
	*memstore.Store
	gate   chan struct{}
	amends atomic.Int64
}

func (s *gatedAmends) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	<-s.gate
	s.amends.Add(1)
	return s.Store.Amend(ctx, as)
}

func TestBulksAreBounded(t *testing.T) {
	store := &gatedAmends{Store: memstore.New(nil), gate: make(chan struct{})}
	s := newServer(t, store, nil)
	fillVisits(t, store, 1)
	r := &rig{t, store.Store, s}
	ended := make(chan answer, maxBulks)
	for i := range maxBulks { // with different shifts, because of two calls with the same shift one stops
		body := fmt.Sprintf(`{"do":"shift","by":"%dh"}`, i+2)
		go func() { ended <- ask(s, r.request("POST /v1/topics/visits/bulk", body)) }()
	}
	for s.bulks.taken() < maxBulks {
		time.Sleep(time.Millisecond)
	}
	ask(s, r.request("POST /v1/topics/visits/bulk", `{"do":"shift","by":"1h"}`)).problem(t, 503, "overloaded")
	close(store.gate)
	for range maxBulks {
		(<-ended).want(t, 200)
	}
}

func (s *shares) taken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// One client has at most as many bulks as it leaves to others, and a bulk that waits for its rate
// takes nobody's place.
func TestBulksAreShared(t *testing.T) {
	store := &gatedAmends{Store: memstore.New(nil), gate: make(chan struct{})}
	auth := roles{"a": role("a", access.All, "*"), "b": role("b", access.All, "*")}
	s := newServer(t, store, &Options{Authenticator: auth})
	fillVisits(t, store, 3)
	r := &rig{t, store.Store, s}
	ended := make(chan answer, 2*maxBulks)
	shift := func(who string, hours int, more string) answer {
		body := fmt.Sprintf(`{"do":"shift","by":"%dh"%s}`, hours, more)
		return ask(s, r.request("POST /v1/topics/visits/bulk", body, "Authorization: Bearer "+who))
	}
	for i := range maxBulks / 2 {
		go func() { ended <- shift("a", i+1, "") }()
	}
	for s.bulks.taken() < maxBulks/2 {
		time.Sleep(time.Millisecond)
	}
	shift("a", 10, "").problem(t, 503, "overloaded")
	go func() { ended <- shift("b", 11, "") }()
	for s.bulks.taken() < maxBulks/2+1 {
		time.Sleep(time.Millisecond)
	}
	close(store.gate)
	for range maxBulks/2 + 1 {
		(<-ended).want(t, 200)
	}

	ctx, leave := context.WithCancel(t.Context())
	var slow sync.WaitGroup
	before := store.amends.Load()
	for i := range maxBulks { // at one change a second each waits for its second one
		slow.Go(func() {
			body := fmt.Sprintf(`{"do":"reschedule","in":"%dh","rate":1}`, 100+i)
			req := r.request("POST /v1/topics/visits/bulk", body, "Authorization: Bearer a").WithContext(ctx)
			s.ServeHTTP(httptest.NewRecorder(), req)
		})
		for store.amends.Load() <= before+int64(i) || s.bulks.taken() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	shift("a", 12, "").want(t, 200)
	leave()
	slow.Wait()
	if n := s.bulks.taken(); n != 0 {
		t.Errorf("%d bulks count when all have ended", n)
	}
}
