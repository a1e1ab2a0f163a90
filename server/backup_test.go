package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/memstore"
)

// copyable is a store with a copy of eight bytes, of which it writes the first ones.
type copyable struct {
	*memstore.Store
	written string
	err     error
}

func (copyable) Backup(context.Context, string, func(int64, int64)) error {
	return errors.New("not asked for here")
}

func (s copyable) Archive(_ context.Context, w io.Writer, size func(int64)) error {
	if s.written == "" {
		return s.err
	}
	size(8)
	_, err := io.WriteString(w, s.written)
	return errors.Join(err, s.err)
}

// A copy needs both admin and inspect on all topics, and half a copy does not pass for a whole one.
func TestBackupRoute(t *testing.T) {
	get := func(s punctual.Store, o *Options, headers ...string) (*http.Response, string, error) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+serveForTest(t, newServer(t, s, o))+"/v1/backup", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp, string(body), err
	}
	whole := copyable{memstore.New(nil), "12345678", nil}
	if resp, body, err := get(whole, nil); resp.StatusCode != 200 || body != "12345678" || err != nil || resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("%v %q %v", resp, body, err)
	}
	if resp, body, err := get(copyable{memstore.New(nil), "1234", errors.New("the disk broke")}, nil); resp.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a copy: %v %q %v", resp.Status, body, err)
	}
	if resp, body, _ := get(copyable{memstore.New(nil), "", punctual.ErrNoSpace}, nil); resp.StatusCode != 507 || !strings.Contains(body, `"no_space"`) {
		t.Errorf("no copy: %v %q", resp.Status, body)
	}
	if resp, body, _ := get(memstore.New(nil), nil); resp.StatusCode != 422 || !strings.Contains(body, `"unsupported"`) {
		t.Errorf("a store without: %v %q", resp.Status, body)
	}
	auth := &Options{Authenticator: roles{"all": role("all", access.Admin|access.Inspect, "*"), "admin": role("admin", access.Admin, "*"), "some": role("some", access.All, "orders.*"), "reader": role("reader", access.Inspect, "*")}}
	for name, status := range map[string]int{"all": 200, "admin": 403, "some": 403, "reader": 403} {
		if resp, body, _ := get(whole, auth, "Authorization: Bearer "+name); resp.StatusCode != status {
			t.Errorf("%s: %v %q", name, resp.Status, body)
		}
	}
}
