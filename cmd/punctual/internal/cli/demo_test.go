package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/demo"
	"github.com/punctualmq/punctual/memstore"
)

// playVirtually plays the demo on a store in memory, in virtual time.
func playVirtually(t *testing.T, args ...string) (res result) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		var out, errs buffer
		a := newApp(Streams{Out: &out, Err: &errs})
		a.json = slices.Contains(args, "--json")
		a.operation = "demo"
		err := a.playDemo(t.Context(), func() (punctual.Store, error) { return keptOpen{s}, nil })
		res = result{t, args, a.report(err), out.String(), errs.String()}
	})
	return res
}

func TestDemoTellsItsStory(t *testing.T) {
	res := playVirtually(t)
	if res.code != exitOK || strings.Contains(res.out, "BROKEN") {
		t.Fatalf("exit %d: %s\n%s", res.code, res.err, res.out)
	}
	for text, want := range map[string]int{
		"paid: cancelled": 3, "closed at its new time": 1, "closed after a retry": 1, "dead: attempts used up": 1, "  closed\n": 6,
		"Lateness of 32 deliveries": 1, "kept ": 11, "billing was told of 8, mail was told of 8": 1,
	} {
		if got := strings.Count(res.out, text); got != want {
			t.Errorf("%q stands %d times in the output, want %d:\n%s", text, got, want, res.out)
		}
	}
}

func TestDemoAsJSON(t *testing.T) {
	res := playVirtually(t, "--json")
	v := decode(t, res.out).(map[string]any)
	if n := len(v["promises"].([]any)); n != 11 || v["lateness"].(map[string]any)["n"] != 32.0 || res.code != exitOK {
		t.Errorf("exit %d: %s", res.code, res.out)
	}
}

func TestDemoCanBeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := newApp(Streams{Out: &buffer{}, Err: &buffer{}}).playDemo(ctx, func() (punctual.Store, error) { return keptOpen{s}, nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted after 3 s: %v", err)
		}
	})
}

func TestDemoFailsOnABrokenPromise(t *testing.T) {
	var out, errs buffer
	a := newApp(Streams{Out: &out, Err: &errs})
	a.json = true
	broken := &demo.Report{Promises: []demo.Promise{{Promise: "P1", Kept: true}, {Promise: "P2", Detail: "order-1001 was early"}}}
	code := a.report(a.showDemo(broken))
	result{t, nil, code, out.String(), errs.String()}.exits(exitError).failsWith(codeProblems, true).contains("order-1001 was early")
}
