package remotestore_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// TestKeysOfParts: a call whose caller gave the longest key that is allowed is sent in several
// requests. Each of them has a key of its own, and a repetition of the call has the same keys, so
// that nothing is stored twice.
func TestKeysOfParts(t *testing.T) {
	below := closing(t, memstore.New(nil), nil)
	h, err := server.New(below, &server.Options{Limits: server.Limits{MaxBody: 3000, MaxRequest: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	var mu sync.Mutex
	var keys []string // guarded by mu: of the pushes
	hs := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wire.PathPush {
			mu.Lock()
			keys = append(keys, r.Header.Get(wire.HeaderRequest))
			mu.Unlock()
		}
		h.ServeHTTP(w, r)
	}), true, true)
	t.Cleanup(hs.Close)
	s := connect(t, nil, hs.URL)
	ms := make([]punctual.NewMessage, 3) // any two of them are more than a request may have
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "t", Body: []byte(strings.Repeat("x", 3000))}
	}
	own := strings.Repeat("k", 128)
	push := func(own string) (ids, sent []string) {
		t.Helper()
		keys = nil
		rs, err := s.Push(storekit.WithRequest(t.Context(), storekit.Request{Key: own}), ms)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			if r.Err != nil || r.Status != punctual.PushStored {
				t.Errorf("a message of a push in parts: %v, %v; want it stored", r.Status, r.Err)
			}
			ids = append(ids, r.ID)
		}
		return ids, keys
	}
	ids, sent := push(own)
	if len(sent) != len(ms) || sent[0] != own {
		t.Fatalf("this shows nothing: %d requests came, with the keys %q; want one for each message", len(sent), sent)
	}
	if again, keys := push(own); !slices.Equal(again, ids) || !slices.Equal(keys, sent) {
		t.Errorf("P7: the repetition got %q with the keys %q; want %q and %q", again, keys, ids, sent)
	}
	if stats, err := below.Stats(t.Context(), "t"); err != nil || stats.Live() != int64(len(ms)) {
		t.Errorf("P7: the store holds %d messages, %v; want %d", stats.Live(), err, len(ms))
	}
	_, others := push(own[1:])
	if all := slices.Compact(slices.Sorted(slices.Values(append(sent, others...)))); len(all) != 2*len(ms) {
		t.Errorf("two calls of %d parts have the keys %q; want a different one for each part", len(ms), all)
	}
}
