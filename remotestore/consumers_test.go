package remotestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/storekit"
)

// Two clients work on a topic, and each is shown with its own leases. When one vanishes while it
// waits, and its leases have run out, it is shown no more.
func TestConsumers(t *testing.T) {
	t.Parallel()
	address := serve(t, closing(t, memstore.New(nil), nil), "").url
	a := connect(t, &remotestore.Options{Name: "a/1"}, address)
	var ms []punctual.NewMessage
	for n := range 5 {
		ms = append(ms, punctual.NewMessage{Topic: "t", ID: fmt.Sprint("m", n)})
	}
	if _, err := a.Push(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	ds, err := a.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 3, Lease: time.Hour, Wait: 50 * time.Second}) // it waits because due times are rounded up
	if err != nil || len(ds) != 3 {
		t.Fatal(ds, err)
	}

	b := &stranger{t: t, url: address, client: &http.Client{Transport: &http.Transport{}}}
	var claimed struct {
		Messages []struct{ ID, Token string }
	}
	b.post(t.Context(), "/v1/topics/t/claim?max=2&lease=1h&wait=50s", &claimed)
	if len(claimed.Messages) != 2 {
		t.Fatalf("b got %d messages", len(claimed.Messages))
	}
	waiting, vanish := context.WithCancel(t.Context())
	defer vanish()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		b.post(waiting, "/v1/topics/t/claim?wait=50s", nil)
	}()
	until(t, a, "each has its leases, and b waits for more", func(all []storekit.Consumer) bool {
		return len(all) == 2 && all[0].Name == "a/1" && all[0].Leases == 3 && all[0].Claimed == 3 && all[0].Waiting == 0 &&
			all[1].Name == "b" && all[1].Leases == 2 && all[1].Waiting == 1 && all[1].Address == "127.0.0.1" && !all[1].NextEnd.IsZero()
	})
	settled, err := a.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: ds[0].ID, Token: ds[0].Token, Verb: punctual.SettleAck}})
	if err := errors.Join(append(settled, err)...); err != nil {
		t.Fatal(err)
	}
	until(t, a, "a holds one less", func(all []storekit.Consumer) bool {
		return slices.ContainsFunc(all, func(c storekit.Consumer) bool { return c.Name == "a/1" && c.Leases == 2 && c.Settled == 1 })
	})

	for _, m := range claimed.Messages {
		b.post(t.Context(), fmt.Sprintf("/v1/topics/t/messages/%s/extend?token=%s&in=1s", m.ID, m.Token), nil)
	}
	vanish()
	<-gone
	b.client.CloseIdleConnections()
	until(t, a, "b has gone, and a has not", func(all []storekit.Consumer) bool { return len(all) == 1 && all[0].Name == "a/1" && all[0].Leases == 2 })
	if c, err := a.Consumers(t.Context(), "other"); err != nil || len(c.All) != 0 || c.Since.IsZero() {
		t.Errorf("of a topic that nobody claims: %+v, %v", c, err)
	}
}

// stranger is a client that does not use remotestore.
type stranger struct {
	t      *testing.T
	url    string
	client *http.Client
}

// post sends a request and reads its answer into v, unless ctx ends before it comes.
func (s *stranger) post(ctx context.Context, path string, v any) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	req.Header.Set("Punctual-Consumer", "b")
	resp, err := s.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			s.t.Error(err)
		}
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && v != nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil || resp.StatusCode/100 != 2 {
		s.t.Errorf("POST %s: %d, %v: %s", path, resp.StatusCode, err, text)
	}
}

// until waits until the consumers of topic t are as wished.
func until(t *testing.T, s *remotestore.Store, what string, wished func([]storekit.Consumer) bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := s.Consumers(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if wished(c.All) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not so: %+v", what, c)
		}
	}
}

// A server that is too old has no path for consumers, which is an ErrUnsupported.
func TestConsumersOfAnOldServer(t *testing.T) {
	below, err := url.Parse(serve(t, closing(t, memstore.New(nil), nil), "").url)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(below)
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/consumers") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"status":404,"code":"unsupported","title":"There is no such path.","definite":true}`)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	defer old.Close()
	s := connect(t, nil, old.URL)
	if _, err := s.Consumers(t.Context(), "t"); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("%v; want ErrUnsupported", err)
	}
}

// Open refuses a name that cannot be a HeaderConsumer.
func TestConsumerName(t *testing.T) {
	address := serve(t, closing(t, memstore.New(nil), nil), "").url
	for _, name := range []string{"a\nb", "größe", strings.Repeat("x", 129)} {
		if _, err := remotestore.Open(t.Context(), []string{address}, &remotestore.Options{Name: name}); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("name %q: %v; want ErrInvalid", name, err)
		}
	}
}
