package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// TestObserver: the Observer is told what clients do, and with which outcome.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf(format, args...))
	}
	o := &punctual.Observer{
		OnPush: func(_ context.Context, r punctual.PushResult, _ time.Duration) {
			note("push %s %s%s", r.ID, r.Status, storekit.ErrorCode(r.Err))
		},
		OnAmend: func(_ context.Context, a punctual.Amendment, r punctual.Amended, _ time.Duration) {
			note("%s %s %s", a.Change, a.ID, storekit.ErrorCode(r.Err))
		},
		OnClaim: func(_ context.Context, n int, _ time.Duration) { note("claim %d", n) },
		OnStart: func(_ context.Context, d *punctual.Delivery) { note("start %s", d.ID) },
		OnSettle: func(_ context.Context, s punctual.Settlement, _ time.Duration, err error) {
			note("%s %s %s", s.Verb, s.ID, storekit.ErrorCode(err))
		},
		OnLeaseLost: func(_ context.Context, d *punctual.Delivery, err error) {
			note("lost %s %d %v", d.ID, d.Token, errors.Is(err, punctual.ErrLeaseLost))
		},
	}
	r := newRig(t, &Options{Observer: o})
	before := ""
	for _, c := range []struct {
		request, body string
		want          []string
		key           string
	}{
		{"POST /v1/topics/t/messages?id=a&at=2020-01-01T00:00:00Z", "x", []string{"push a stored"}, "key-1"},
		{"POST /v1/topics/t/messages?id=a&at=2020-01-01T00:00:00Z", "x", nil, "key-1"}, // sent again: answered from memory
		{"POST /v1/push", `[{"topic":"t","id":"a","body":"x"},{"topic":"t","id":"b","body":"x","in":"1h"}]`, []string{"push a duplicate", "push b stored"}, ""},
		{"DELETE /v1/topics/t/messages/b", "", []string{"cancel b "}, ""},
		{"DELETE /v1/topics/t/messages/c", "", []string{"cancel c not_found"}, ""},
		{"POST /v1/topics/t/claim", "", []string{"claim 1", "start a"}, ""},
		{"POST /v1/topics/t/claim", "", []string{"claim 0"}, ""},
		{"POST /v1/topics/t/messages/a/ack?token=999", "", []string{"ack a lease_lost", "lost a 999 true"}, ""},
	} {
		seen = nil
		var headers []string
		if c.key != "" {
			headers = []string{wire.HeaderRequest + ": " + c.key}
		}
		a := r.ask(c.request, c.body, headers...)
		if c.want == nil && (before == "" || a.body != before) {
			t.Errorf("%s sent again: %q, want the answer %q once more", c.request, a.body, before)
		}
		before = a.body
		mu.Lock()
		if !slices.Equal(seen, c.want) {
			t.Errorf("%s: %q, want %q", c.request, seen, c.want)
		}
		mu.Unlock()
	}
}

func TestMetricsNeedWhoKeepsThem(t *testing.T) {
	newRig(t, nil).ask("GET /metrics", "").problem(t, 422, "unsupported")
}
