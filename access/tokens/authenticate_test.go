package tokens

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/server"
)

func TestAuthenticate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := given(t, path)
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(name string, until time.Duration) *tls.ConnectionState {
		subject, err := asn1.Marshal(pkix.Name{CommonName: name, Organization: []string{"Example"}}.ToRDNSequence())
		if err != nil {
			t.Fatal(err)
		}
		leaf := &x509.Certificate{RawSubject: subject, NotAfter: time.Now().Add(until)}
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	}
	unverified := certificate("worker-1", time.Hour)
	unverified.VerifiedChains = nil
	for what, c := range map[string]struct {
		headers []string
		state   *tls.ConnectionState
		url     string
		want    string // the principal's name, or "" for nobody
	}{
		"a token":                          {headers: []string{"Bearer " + tokens["good"]}, want: "good"},
		"the scheme in lower case":         {headers: []string{"bearer  " + tokens["good"]}, want: "good"},
		"nothing":                          {},
		"an empty header":                  {headers: []string{""}},
		"another scheme":                   {headers: []string{"Basic " + tokens["good"]}},
		"no scheme":                        {headers: []string{tokens["good"]}},
		"two headers":                      {headers: []string{"Bearer " + tokens["good"], "Bearer " + tokens["good"]}},
		"a token in the URL":               {url: "?token=" + tokens["good"] + "&access_token=" + tokens["good"]},
		"a revoked one":                    {headers: []string{"Bearer " + tokens["revoked"]}},
		"an expired one":                   {headers: []string{"Bearer " + tokens["expired"]}},
		"a certificate":                    {state: certificate("worker-1", time.Hour), want: "worker"},
		"a certificate that has expired":   {state: certificate("worker-1", -time.Second)},
		"a certificate of nobody":          {state: certificate("worker-2", time.Hour)},
		"a certificate not verified":       {state: unverified},
		"a token and a certificate":        {headers: []string{"Bearer " + tokens["good"]}, state: certificate("worker-1", time.Hour), want: "good"},
		"a bad token and a certificate":    {headers: []string{"Bearer " + tokens["revoked"]}, state: certificate("worker-1", time.Hour)},
		"an empty token and a certificate": {headers: []string{"Bearer "}, state: certificate("worker-1", time.Hour)},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1"+c.url, nil)
		r.TLS = c.state
		for _, h := range c.headers {
			r.Header.Add("Authorization", h)
		}
		p, err := f.Authenticate(r)
		if c.want == "" {
			if p != nil || !errors.Is(err, punctual.ErrUnauthenticated) {
				t.Errorf("%s: %+v, %v; want ErrUnauthenticated", what, p, err)
			}
			if err != nil && strings.Contains(err.Error(), tokens["good"][len(tokenPrefix)+idLength+1:]) {
				t.Errorf("%s: the error holds the secret: %v", what, err)
			}
			continue
		}
		if err != nil || p.Name != c.want {
			t.Errorf("%s: %+v, %v; want %s", what, p, err, c.want)
		}
	}
}

// A server with a file lets each do what its entry says, and nobody once the file is gone.
func TestServerWithTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	var pusher, worker string
	err := Change(path, func([]Entry) ([]Entry, error) {
		a := Entry{Name: "pusher", Actions: []string{"push"}, Topics: []string{"order.*"}}
		b := Entry{Name: "worker", Actions: []string{"work", "inspect"}, Topics: []string{"*"}}
		pusher, worker = NewToken(&a), NewToken(&b)
		return []Entry{a, b}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store := newStore(t)
	h, err := server.New(store, &server.Options{Authenticator: f})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	send := func(token, method, path string) int {
		var body io.Reader
		if method == http.MethodPost {
			body = strings.NewReader("x")
		}
		r := httptest.NewRequest(method, "http://localhost"+path, body)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		token, method, path string
		want                int
	}{
		{"", "POST", "/v1/topics/order.close/messages?id=1", 401},
		{pusher[:len(pusher)-1] + "0", "POST", "/v1/topics/order.close/messages?id=1", 401},
		{pusher, "POST", "/v1/topics/order.close/messages?id=1", 201},
		{pusher, "POST", "/v1/topics/mail/messages?id=1", 403},
		{pusher, "GET", "/v1/topics/order.close/messages/1", 403},
		{pusher, "DELETE", "/v1/topics/order.close/messages/1", 403},
		{worker, "POST", "/v1/topics/order.close/messages?id=2", 403},
		{worker, "GET", "/v1/topics/order.close/messages/1", 200},
		{worker, "DELETE", "/v1/topics/order.close", 403},
	} {
		if got := send(c.token, c.method, c.path); got != c.want {
			t.Errorf("%s %s with %.20s: %d, want %d", c.method, c.path, c.token, got, c.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); send(worker, "GET", "/v1/topics/order.close/messages/1") != 401; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("without the file somebody is still let in")
		}
	}
}
