package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestStoreCallsPassesCallsOn(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute} {
		calls.PassOn(t, func(below punctual.Store) punctual.Store {
			c := newStoreCalls(below, slog.New(slog.DiscardHandler), nil)
			if limit > 0 {
				c.gather(limit)
			}
			return c
		})
	}
}

// P13: a panic in any method of the store is the error of that call, which says that the call may
// have happened.
func TestEveryMethodIsGuarded(t *testing.T) {
	for _, m := range calls.Methods() {
		t.Run(m.Name, func(t *testing.T) {
			defer func() {
				if cause := recover(); cause != nil {
					t.Errorf("%s: the panic %v came through", m.Name, cause)
				}
			}()
			var log bytes.Buffer
			below := &calls.Store{Panic: "secret body"}
			_, err := m.Call(t.Context(), newStoreCalls(below, slog.New(slog.NewTextHandler(&log, nil)), nil))
			if !errors.Is(err, punctual.ErrIndeterminate) || strings.Contains(err.Error(), "secret") || !strings.Contains(log.String(), "secret body") {
				t.Errorf("%s: got error %v and log %q; want an ErrIndeterminate, and the panic in the log alone", m.Name, err, log.String())
			}
		})
	}
}
