package storekit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
)

func callsOf(log *bytes.Buffer) *Calls {
	return &Calls{Name: "test store", Logger: slog.New(slog.NewTextHandler(log, nil))}
}

// The errors of check and work get the name of the method in front, and those of work the subject,
// too. A plain error gets neither.
func TestCallErrors(t *testing.T) {
	broke := fmt.Errorf("broke: %w", punctual.ErrUnreachable)
	for _, tt := range []struct {
		subject     string
		check, work error
		want        string
	}{
		{subject: "m in t", check: broke, want: "get: " + broke.Error()},
		{subject: "m in t", check: Plain(broke), want: broke.Error()},
		{subject: "m in t", work: broke, want: "get m in t: " + broke.Error()},
		{work: broke, want: "get: " + broke.Error()},
		{subject: "m in t", work: Plain(broke), want: broke.Error()},
	} {
		var c Calls
		worked := false
		got, err := Call(t.Context(), &c, "get", tt.subject, tt.check, func() (int, error) {
			worked = true
			return 7, tt.work
		})
		if err == nil || err.Error() != tt.want || !errors.Is(err, punctual.ErrUnreachable) || got != 0 || worked != (tt.check == nil) {
			t.Errorf("call %+v = %d, %v, worked %t", tt, got, err, worked)
		}
	}
	if got, err := Call(t.Context(), &Calls{}, "get", "", Plain(nil), func() (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("call = %d, %v; want 7", got, err)
	}
}

// A call is refused because the store is closed before it is refused because the store has failed.
// Then comes the end of the context, and malformed arguments come last. The first failure of a
// store stays.
func TestCallsRefuse(t *testing.T) {
	var log bytes.Buffer
	c := callsOf(&log)
	ended, end := context.WithCancel(t.Context())
	end()
	call := func(ctx context.Context) error {
		_, err := Call(ctx, c, "get", "", punctual.ErrInvalid, func() (int, error) {
			t.Error("a call that is to be refused has worked")
			return 0, nil
		})
		return err
	}
	if err := call(t.Context()); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("malformed arguments: %v", err)
	}
	if err := call(ended); !errors.Is(err, context.Canceled) || err.Error() != "test store: context canceled" {
		t.Errorf("with an ended context: %v", err)
	}
	if err := errors.Join(c.Fail(punctual.ErrCorrupt), c.Fail(punctual.ErrNoSpace)); errors.Is(err, punctual.ErrNoSpace) {
		t.Errorf("a second failure took the place of the first: %v", err)
	}
	if err := call(ended); !errors.Is(err, punctual.ErrCorrupt) || strings.Count(log.String(), "test store stopped") != 1 {
		t.Errorf("of a failed store: %v; the log says %s", err, &log)
	}
	if err := c.BeginAnyway(t.Context()); err != nil {
		t.Errorf("what is admitted anyway, of a failed store: %v", err)
	} else {
		c.End()
	}
	if err := c.Close(); err != nil {
		t.Errorf("the first Close: %v", err)
	}
	for _, err := range []error{c.Close(), call(ended), c.BeginAnyway(t.Context())} {
		if !errors.Is(err, punctual.ErrClosed) || err.Error() != "test store: closed" {
			t.Errorf("of a closed store: %v", err)
		}
	}
}

// Wait returns when the calls under way, and what they have started, have ended.
func TestCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callsOf(&bytes.Buffer{})
		began := time.Now()
		go func() {
			_, err := Call(t.Context(), c, "work", "", nil, func() (int, error) {
				time.Sleep(time.Second)
				c.Go(func() { time.Sleep(time.Second) })
				return 0, nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Wait returned after %v; want 2s", took)
		}
	})
}
