package redisstore

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
)

// A client of a server hangs up when its claim has leased a message, at the time until which the
// claim may be carried out. The client gets nothing, the message is ready again, and the attempt is
// not counted.
func TestServedClientGone(t *testing.T) {
	t.Parallel()
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	below := openFresh(t, clock).(*Store)
	ctx, hangUp := context.WithCancel(t.Context())
	srv, err := server.New(&leavingStore{below, func() {
		clock.Advance(time.Second)
		hangUp()
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	if _, err := below.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, "POST", "/v1/topics/t/claim?lease=1h", nil)
	req.Host = "localhost"
	req.Header.Set("Punctual-Request", "k")
	req.Header.Set("Punctual-Not-After", clock.Now().Add(time.Second).UTC().Format(time.RFC3339Nano))
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, req)
	if ctx.Err() == nil || w.Body.Len() > 0 {
		t.Fatalf("the claim has leased: %v, answered %q", ctx.Err() != nil, w.Body)
	}
	srv.Close() // waits for what the server still does
	if i, err := below.Get(t.Context(), "t", "a"); err != nil || i.State != punctual.StateReady || i.Attempt != 0 {
		t.Errorf("the message is %v after %d attempts, %v; want ready after none", i.State, i.Attempt, err)
	}
}

// leavingStore calls claimed when a claim has leased messages.
type leavingStore struct {
	*Store
	claimed func()
}

func (s *leavingStore) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	ds, err := s.Store.Claim(ctx, c)
	if len(ds) > 0 {
		s.claimed()
	}
	return ds, err
}
