package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// What a page of another site has a browser send is refused on every route, whether it changes something or not.
func TestOtherSitesAreRefused(t *testing.T) {
	r := newRig(t, &Options{Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the metrics were asked for") })})
	before := r.snapshot()
	for _, rt := range routes() {
		target := strings.NewReplacer("{topic}", "t", "{id}", "m").Replace(rt.path)
		for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://other.example.com", "Origin: null"} {
			a := r.ask(rt.method+" "+target, "", header, "Sec-Fetch-Mode: navigate")
			a.problem(t, http.StatusForbidden, "forbidden")
		}
	}
	same(t, r.snapshot(), before)
	for _, header := range []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "Origin: http://localhost:7878", "Accept: */*"} {
		r.ask("GET /v1/check", "", header).want(t, http.StatusOK)
	}
	trusting := newRig(t, &Options{Origins: []string{"https://console.example.com"}})
	trusting.ask("GET /v1/check", "", "Sec-Fetch-Site: cross-site", "Origin: https://console.example.com").want(t, http.StatusOK)
}

// A link on another site leads to a page of the console. What is no link does not.
func TestOtherSitesMayLinkToPages(t *testing.T) {
	r := newRig(t, &Options{Console: &pages{}})
	for mode, want := range map[string]int{"navigate": http.StatusTeapot, "no-cors": http.StatusForbidden, "cors": http.StatusForbidden} {
		if a := ask(r.Server, r.request("GET /topics", "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: "+mode)); a.status != want {
			t.Errorf("%s: %d, want %d", mode, a.status, want)
		}
	}
	if a := ask(r.Server, r.request("POST /topics", "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")); a.status != http.StatusForbidden {
		t.Errorf("a form of another site: %d", a.status)
	}
}

// checking is a store whose checks last until they are let go on.
type checking struct {
	*memstore.Store
	entered chan struct{}
	goOn    chan struct{}
	at      atomic.Int64
}

func (s *checking) Check(ctx context.Context, progress func(int64)) (punctual.CheckReport, error) {
	s.at.Add(1)
	defer s.at.Add(-1)
	s.entered <- struct{}{}
	<-s.goOn
	return s.Store.Check(ctx, progress)
}

// A check reads everything that is stored, so few are under way at a time. The next one is told to wait, and may come when one has ended.
func TestFewChecksAtATime(t *testing.T) {
	store := &checking{Store: memstore.New(nil), entered: make(chan struct{}), goOn: make(chan struct{})}
	r := &rig{t, store.Store, newServer(t, store, nil)}
	answers := make(chan int)
	for range maxChecks {
		req := r.request("GET /v1/check", "")
		go func() {
			w := httptest.NewRecorder()
			r.ServeHTTP(w, req)
			answers <- w.Code
		}()
		<-store.entered
	}
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		if a := r.ask("GET /v1/check", "", "Accept: "+accept); a.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After beside %s", a.body)
		} else {
			a.problem(t, http.StatusServiceUnavailable, "overloaded")
		}
	}
	if n := store.at.Load(); n != maxChecks {
		t.Errorf("%d checks are under way", n)
	}
	close(store.goOn)
	for range maxChecks {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("a check was answered with %d", status)
		}
	}
	go func() { <-store.entered }()
	r.ask("GET /v1/check", "").want(t, http.StatusOK)
}
