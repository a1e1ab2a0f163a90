package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

func TestIDsFromStandardInput(t *testing.T) {
	r := newRig(t)
	n := 2*limits.MaxBatch + 1
	var lines, ids strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"id":"m%d","body":"","in":"1h"}`+"\n", i)
		fmt.Fprintf(&ids, " m%d \n\n", i)
	}
	r.runInput(lines.String(), "push", "t", "--ndjson").ok()
	if out := r.runInput(ids.String(), "reschedule", "-", "--in", "2h").ok().out; strings.Count(out, " rescheduled, due 2026-11-20T12:00:00.000Z\n") != n {
		t.Errorf("of %d messages these were rescheduled: %.200s", n, out)
	}
	if out := r.runInput(ids.String()+"none", "cancel", "-").exits(exitUnwished, fmt.Sprintf("1 of %d messages", n+1), `"none"`).out; strings.Count(out, " cancelled\n") != n {
		t.Errorf("of %d messages these were cancelled: %.200s", n, out)
	}
	r.runInput("", "cancel", "-").ok().prints("")
	r.run("cancel", "-", "a").exits(exitUsage, "stands alone")
	r.runInput("a\x01b\n", "cancel", "-").exits(exitUsage, "not printable")
	r.runInput(strings.Repeat("x", 70_000), "cancel", "-").exits(exitUsage, "line 1", "longer than")

	dead := withDead(t)
	dead.runInput("a\nb\n", "dead", "requeue", "--topic", "t", "-").ok().contains("a requeued", "b requeued")
	dead.runInput("c\n", "dead", "requeue", "-").ok().contains("c requeued")
	dead.run("dead", "requeue", "-", "a").exits(exitUsage, "stands alone")
}

// When the context ends, as at a signal, the batch under way is finished and its outcomes are
// printed. Then the run ends.
func TestIDsFromStandardInputFinishTheBatchUnderWay(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	ctx, interrupt := context.WithCancel(t.Context())
	r.amended = func([]punctual.Amendment) error { interrupt(); return nil }
	in, end := io.Pipe()
	defer end.Close()
	go func() { _, _ = io.WriteString(end, "a\n") }()
	r.in = in
	r.runContext(ctx, "cancel", "-").exits(exitError, "interrupted", "IDs done before that: 1").prints("a cancelled\n")
	r.run("get", "a").exits(exitUnwished)
}

// An error that comes when earlier messages were changed already is not definite, and its exit code
// is not that of wrong usage, which says that nothing was changed.
func TestAnErrorBehindChangesIsNotDefinite(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	in, ids := io.Pipe()
	defer ids.Close()
	amended := make(chan struct{})
	r.amended = func([]punctual.Amendment) error { close(amended); return nil }
	go func() {
		_, _ = io.WriteString(ids, "a\n")
		<-amended // so that the malformed ID comes in a batch of its own
		_, _ = io.WriteString(ids, "b\x01\n")
		ids.Close()
	}()
	r.in = in
	r.run("cancel", "-", "--json").exits(exitError, "not printable", "IDs done before that: 1").failsWith("invalid", false).contains("cancelled")

	// The same within a batch: b is refused, and the outcomes of those around it are printed all
	// the same.
	r = newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("push", "t", "x", "--id", "c", "--in", "1h").ok()
	noSpace := fmt.Errorf("%w (by the test)", punctual.ErrNoSpace)
	r.outcome = func(a punctual.Amendment, out *punctual.Amended) {
		if a.ID == "b" {
			out.Err = noSpace
		}
	}
	r.run("push", "t", "x", "--id", "b", "--in", "1h").ok()
	r.run("cancel", "a", "b", "c", "--json").exits(exitError, `ID \"b\"`, "by the test", "IDs done before that: 2").failsWith("no_space", false).
		printsJSON(`{"id":"a","topic":"t","outcome":"cancelled"}`, `{"id":"c","topic":"t","outcome":"cancelled"}`)

	// An outcome that is not the wished one is definite only if no ID had the wished outcome. A
	// cancel that finds the message leased is definite, too, although the store notes it.
	r = newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("cancel", "none", "too", "--json").exits(exitUnwished).failsWith("not_found", true)
	r.run("cancel", "a", "none", "--json").exits(exitUnwished).failsWith("not_found", false)

	// In groups a malformed ID is refused before anything is changed.
	r = newRig(t)
	r.grouped()
	r.run("cancel", "A-17", "b\x01", "--topic", "orders", "--group", "all").exits(exitUsage, "not printable").prints("")
	r.run("get", "A-17", "--topic", "orders").ok()
}

// 'dead requeue --all' goes through pages. An error behind the first one is not definite.
func TestAnErrorBehindAPageIsNotDefinite(t *testing.T) {
	r := newRig(t)
	r.expirePages()
	pages := 0
	r.amended = func([]punctual.Amendment) error {
		if pages++; pages == 2 {
			return fmt.Errorf("the second page: %w", punctual.ErrUnreachable)
		}
		return nil
	}
	r.run("dead", "requeue", "t", "--all", "--json").exits(exitError, "the second page").failsWith("unreachable", false)
	if pages != 2 {
		t.Errorf("%d pages were requeued, want 2", pages)
	}
}
