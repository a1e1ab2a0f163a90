package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// bearer is an Authenticator whose tokens are grants: "amend:*", "inspect:a.*".
type bearer struct{}

func (bearer) Authenticate(r *http.Request) (*access.Principal, error) {
	p := &access.Principal{Name: "test"}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	for grant := range strings.SplitSeq(token, ",") {
		action, topics, _ := strings.Cut(grant, ":")
		a, err := access.ParseActions(action)
		if err != nil {
			return nil, err
		}
		p.Grants = append(p.Grants, access.Grant{Actions: a, Topics: topics})
	}
	return p, nil
}

// P5: a client that may not inspect all topics and names none is not simply told "not found". It is
// also told that some topics were not searched, and how to name the topic.
func TestCancelWithoutRightToLook(t *testing.T) {
	store := memstore.New(nil)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	handler, err := server.New(store, &server.Options{Authenticator: bearer{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handler.Close)
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	run := func(token string, args ...string) result {
		var out, errs buffer
		env := map[string]string{"PUNCTUAL_TOKEN": token, "PUNCTUAL_STORE": listening.URL}
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(name string) string { return env[name] }})
		return result{t, args, a.run(t.Context(), args), out.String(), errs.String()}
	}
	run("push:*", "push", "b.orders", "x", "--id", "A-17", "--in", "1h").ok()

	run("amend:*", "cancel", "A-17").exits(exitError, "may not inspect in any topic", "--topic")
	run("amend:*", "get", "A-17").exits(exitError, "may not inspect in any topic", "--topic")
	run("amend:*,inspect:a.*", "cancel", "A-17").exits(exitUnwished, "not found", "--topic")
	run("amend:*,inspect:a.*", "get", "A-17").exits(exitUnwished, "not found", "--topic")
	if got := run("amend:*", "cancel", "B-18", "--topic", "b.orders").exits(exitUnwished, "not found"); strings.Contains(got.err, "--topic") {
		t.Errorf("where the topic is named: %s", got.err)
	}
	run("inspect:a.*", "topics").exits(exitOK)
	run("amend:*", "topics").exits(exitError, "may not inspect in any topic")
	if _, err := store.Get(t.Context(), "b.orders", "A-17"); err != nil {
		t.Errorf("what was not found was changed: %v", err)
	}
	run("amend:*", "cancel", "A-17", "--topic", "b.orders").ok()
	if _, err := store.Get(t.Context(), "b.orders", "A-17"); storekit.ErrorCode(err) != "not_found" {
		t.Errorf("after the cancel: %v", err)
	}
}
