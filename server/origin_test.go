package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// A request that a page of another site has a browser send is refused on every route, whether it
// changes something or not.
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

// A link on another site leads to a page of the console. An image, a script or a form of another
// site does not.
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

func (s *checking) Check(ctx context.Context, progress func(int64)) (storekit.CheckReport, error) {
	s.at.Add(1)
	defer s.at.Add(-1)
	s.entered <- struct{}{}
	<-s.goOn
	return s.Store.Check(ctx, progress)
}

// A check reads everything that is stored, so few are under way at a time. The next one is told to
// wait, and may come when one has ended.
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

// A page that does not exist is HTML for a browser and a problem for a program.
func TestWrongPath(t *testing.T) {
	none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		if _, err := w.Write([]byte("<html>no such page")); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, &Options{Console: none})
	for _, header := range []string{"Accept: */*", "Accept: application/json", "User-Agent: curl/8"} {
		p := ask(r.Server, r.request("POST /v2/topics", "x", header)).problem(t, http.StatusNotFound, "unsupported")
		if !strings.Contains(p.Detail, "/v2/topics") {
			t.Errorf("%s: %s", header, p.Detail)
		}
	}
	for _, header := range []string{"Accept: text/html,application/xhtml+xml", "Sec-Fetch-Site: same-origin"} {
		if a := ask(r.Server, r.request("GET /v2/topics", "", header)); a.status != http.StatusNotFound || a.body != "<html>no such page" {
			t.Errorf("%s: %d %s", header, a.status, a.body)
		}
	}
}

// The Content-Type that curl -d adds by itself is no header of the message; another one is.
// Besides, due and at mean the same in a query and in JSON, and are refused together.
func TestContentTypeOfCurl(t *testing.T) {
	r := newRig(t, nil)
	for contentType, want := range map[string]string{"application/x-www-form-urlencoded": "", "text/plain": "text/plain"} {
		r.ask("PUT /v1/topics/t/messages/m?if_exists=replace", "x", "Content-Type: "+contentType).want(t, 200+1)
		info, err := r.store.Get(t.Context(), "t", "m")
		if err != nil || info.Headers["content-type"] != want {
			t.Errorf("%s is kept as %q, %v", contentType, info.Headers, err)
		}
		r.ask("DELETE /v1/topics/t/messages/m", "").want(t, http.StatusOK)
	}
	for _, line := range []string{"POST /v1/topics/t/messages?id=u&due=2099-01-01T00:00:00Z", "POST /v1/topics/t/messages?id=v&at=2099-01-01T00:00:00Z"} {
		r.ask(line, "").want(t, http.StatusCreated, "2099-01-01T00:00:00.000Z")
	}
	for _, name := range []string{"due", "at"} {
		r.ask("POST /v1/push", `[{"topic":"t","body":"x","`+name+`":"2099-01-01T00:00:00Z"}]`).want(t, http.StatusOK, "2099-01-01T00:00:00.000Z")
	}
	r.ask("POST /v1/topics/t/messages?at=2099-01-01T00:00:00Z&due=2099-01-01T00:00:00Z", "").problem(t, http.StatusBadRequest, "invalid")
}
