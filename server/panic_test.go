package server

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// panicking is a store that does what was asked, and panics when it is armed.
type panicking struct {
	*memstore.Store
	armed atomic.Bool
	fired atomic.Int64
}

func (s *panicking) fire() {
	if s.armed.CompareAndSwap(true, false) {
		s.fired.Add(1)
		panic("secret body")
	}
}

func (s *panicking) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	defer s.fire()
	return s.Store.Push(ctx, ms)
}

func (s *panicking) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	defer s.fire()
	return s.Store.Claim(ctx, c)
}

func (s *panicking) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	defer s.fire()
	return s.Store.Settle(ctx, ss)
}

func (s *panicking) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	defer s.fire()
	return s.Store.Amend(ctx, as)
}

// repeating is a panicking that is a Repeater, so that the server keeps no answers for it.
type repeating struct{ *panicking }

func (repeating) Repeats() time.Duration { return time.Minute }

// P13: a panic of the store is the error of that one call, which says that the call may have
// happened. The panic is logged with its stack, and the server goes on.
func TestPanicsOfTheStore(t *testing.T) {
	for name, of := range map[string]func(*panicking) punctual.Store{
		"plain":    func(s *panicking) punctual.Store { return s },
		"repeater": func(s *panicking) punctual.Store { return repeating{s} },
	} {
		t.Run(name, func(t *testing.T) {
			store := &panicking{Store: memstore.New(nil)}
			var log bytes.Buffer
			var codes []string
			s := newServer(t, of(store), &Options{
				Logger:    slog.New(slog.NewTextHandler(&log, nil)),
				OnRequest: func(_ context.Context, i RequestInfo) { codes = append(codes, i.Code) },
				Observer: &punctual.Observer{OnPush: func(_ context.Context, r punctual.PushResult, _ time.Duration) {
					codes = append(codes, storekit.ErrorCode(r.Err))
				}},
			})
			r := &rig{t, store.Store, s}
			for i, line := range []string{
				"PUT /v1/topics/t/messages/x", "POST /v1/topics/t/claim", "POST /v1/topics/t/messages/x/ack?token=1",
				"POST /v1/topics/t/messages/x/reschedule?in=1h", "DELETE /v1/topics/t/messages/x",
			} {
				for _, headers := range [][]string{nil, {wire.HeaderRequest + ": a-request-of-" + name + strings.Repeat("x", i)}} {
					log.Reset()
					fired := store.fired.Load()
					store.armed.Store(true)
					a := r.ask(line, "", headers...)
					if store.fired.Load() != fired+1 {
						t.Fatalf("this test shows nothing: %s did not panic: %v", line, a)
					}
					if p := a.problem(t, 500, "indeterminate"); strings.Contains(a.body, "secret") || strings.Contains(p.Detail, "goroutine") {
						t.Errorf("%s: the answer tells what only the log may: %s", line, a.body)
					}
					if text := log.String(); !strings.Contains(text, "panic") || !strings.Contains(text, "panic_test.go") {
						t.Errorf("%s: the log does not tell where the store panicked: %s", line, text)
					}
				}
			}
			r.ask("PUT /v1/topics/t/messages/y", "").want(t, 201)
			if len(codes) < 4 || codes[0] != "indeterminate" || codes[1] != "indeterminate" {
				t.Errorf("the observer has %q; want indeterminate of the push and of its request", codes)
			}
		})
	}
}

// An Observer that panics does not end the server, although it is called outside the goroutine of
// the request where the server keeps the answers.
func TestPanicsOfTheObserver(t *testing.T) {
	fire := func() { panic("secret body") }
	o := &punctual.Observer{
		OnPush:   func(context.Context, punctual.PushResult, time.Duration) { fire() },
		OnClaim:  func(context.Context, int, time.Duration) { fire() },
		OnSettle: func(context.Context, punctual.Settlement, time.Duration, error) { fire() },
		OnAmend:  func(context.Context, punctual.Amendment, punctual.Amended, time.Duration) { fire() },
	}
	r := newRig(t, &Options{Observer: o})
	for i, line := range []string{
		"PUT /v1/topics/t/messages/x", "POST /v1/topics/t/claim", "POST /v1/topics/t/messages/x/ack?token=1", "DELETE /v1/topics/t/messages/x",
	} {
		a := r.ask(line, "", wire.HeaderRequest+": request-number-"+strings.Repeat("x", i+1))
		if a.problem(t, 500, "indeterminate"); strings.Contains(a.body, "secret") {
			t.Errorf("%s: %s", line, a.body)
		}
	}
}

var _ storekit.Repeater = repeating{}
