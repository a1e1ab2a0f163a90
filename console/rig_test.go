package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// rig is a console over a store in memory whose clock the test moves.
type rig struct {
	t       *testing.T
	store   *memstore.Store
	clock   *storekit.ManualClock
	console *Console
	prefix  string
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// newRig opens a console with these options, nil for the default.
func newRig(t *testing.T, o *Options) *rig {
	t.Helper()
	clock := storekit.NewManualClock(noon)
	store := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return rigOver(t, store, store, clock, o)
}

// rigOver opens a console over a store that is, or wraps, the one in memory.
func rigOver(t *testing.T, over punctual.Store, store *memstore.Store, clock *storekit.ManualClock, o *Options) *rig {
	t.Helper()
	c, err := New(over, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: store, clock: clock, console: c}
	if o != nil {
		r.prefix = o.Prefix
	}
	return r
}

// answer is what the console sent.
type answer struct {
	*httptest.ResponseRecorder
	text string
}

// do sends a request from this machine.
func (r *rig) do(req *http.Request) answer {
	r.t.Helper()
	if req.RemoteAddr == "" || strings.HasPrefix(req.RemoteAddr, "192.0.2.") {
		req.RemoteAddr = "127.0.0.1:1234"
	}
	w := httptest.NewRecorder()
	r.console.ServeHTTP(w, req)
	return answer{w, w.Body.String()}
}

// get asks for a page, path being behind the prefix.
func (r *rig) get(path string) answer {
	r.t.Helper()
	return r.do(httptest.NewRequest(http.MethodGet, r.prefix+path, nil))
}

// page asks for a page that must be there, and returns its text.
func (r *rig) page(path string) string {
	r.t.Helper()
	a := r.get(path)
	if a.Code != http.StatusOK {
		r.t.Fatalf("GET %s: %d %s", path, a.Code, a.text)
	}
	return a.text
}

// post sends a form as a browser without script does.
func (r *rig) post(path string, form url.Values) answer {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodPost, r.prefix+path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return r.do(req)
}
