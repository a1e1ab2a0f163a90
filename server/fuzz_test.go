package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
)

// Whatever a request is, the handler answers it without a panic and without 5xx, and an error is
// always a problem, except for a HEAD. Streams are left out.
func FuzzRequests(f *testing.F) {
	f.Add("PUT", "/v1/topics/a%2Fb/messages/x%20y", "in=30m&if_exists=keep", "body", "text/plain", "")
	f.Add("POST", "/v1/topics/t/claim", "max=10&lease=1m", "", "", "application/octet-stream")
	f.Add("POST", "/v1/push", "topic=t", "{\"body\":1}\n{}", "application/x-ndjson", "")
	f.Add("POST", "/v1/settle", "", `{"settlements":[{"topic":"t","id":"a","token":"1","verb":"retry","in":"1m"}]}`, "application/json", "")
	f.Add("POST", "/v1/amend", "", `{"amendments":[{"change":"requeue","topic":"t","id":"a"}]}`, "", "")
	f.Add("PATCH", "/v1/topics/t/settings", "", `{"backoff":"exp:1s..1h,jitter=0.2","partitions":2}`, "", "")
	f.Add("GET", "/v1/topics/t/messages", "state=dead&from=2026-11-20T10:00:00Z&after=x&limit=3", "", "", "")
	f.Add("GET", "/v1/forecast", "step=1m&buckets=3", "", "", "*/*")
	f.Add("POST", "/v1/topics/t/purge", "state=live&to=2026-11-20T10:00:00Z", "", "", "")
	f.Fuzz(func(t *testing.T, method, path, query, body, contentType, accept string) {
		if strings.EqualFold(accept, wire.TypeNDJSON) || !validMethod(method) {
			return // a stream has no end; net/http refuses the method
		}
		store := memstore.New(nil)
		s, err := New(store, &Options{Limits: Limits{MaxWait: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		target, err := url.ParseRequestURI(path)
		if err != nil {
			return // net/http refuses it
		}
		target.RawQuery = query
		req := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
		req.URL, req.Host = target, "localhost"
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", accept)
		a := ask(s, req)
		if a.status >= 500 {
			t.Fatalf("%s %s?%s: %d: %s", method, path, query, a.status, a.body)
		}
		if a.status >= 400 && method != http.MethodHead {
			var p wire.Problem
			if err := wire.DecodeRequest([]byte(a.body), &p); err != nil || p.Status != a.status || !p.Definite {
				t.Fatalf("%s %s?%s: %d: %s: %v", method, path, query, a.status, a.body, err)
			}
		}
	})
}

func validMethod(m string) bool {
	return m != "" && strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
