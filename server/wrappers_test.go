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

func TestGuardedPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return guarded{below, slog.New(slog.DiscardHandler)} })
}

// P13: a panic in any method of the store is the error of that call, which says that the call may
// have happened.
func TestGuardedCoversEveryMethod(t *testing.T) {
	for _, m := range calls.Methods() {
		t.Run(m.Name, func(t *testing.T) {
			defer func() {
				if cause := recover(); cause != nil {
					t.Errorf("%s: the panic %v came through", m.Name, cause)
				}
			}()
			var log bytes.Buffer
			below := &calls.Store{Panic: "secret body"}
			_, err := m.Call(t.Context(), guarded{below, slog.New(slog.NewTextHandler(&log, nil))})
			if !errors.Is(err, punctual.ErrIndeterminate) || strings.Contains(err.Error(), "secret") || !strings.Contains(log.String(), "secret body") {
				t.Errorf("%s: got error %v and log %q; want an ErrIndeterminate, and the panic in the log alone", m.Name, err, log.String())
			}
		})
	}
}

func TestReachingPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return reaching{below, nil} })
}

func TestCoalescedPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return coalesce(below, time.Minute) })
}

func TestObservedPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return observed{below, &punctual.Observer{}} })
}
