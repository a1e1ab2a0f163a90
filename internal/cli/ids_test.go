package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

func TestRescheduleByAShift(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a", "--in", "1h").ok()
	r.run("push", "u", "x", "--id", "b", "--in", "2h").ok()
	r.run("reschedule", "a", "b", "--by", "+1d").ok().prints("a rescheduled, due 2026-11-21T11:00:00.000Z\nb rescheduled, due 2026-11-21T12:00:00.000Z\n")
	r.run("reschedule", "a", "--by", "-90m").ok().prints("a rescheduled, due 2026-11-21T09:30:00.000Z\n")
	r.run("reschedule", "b", "none", "--by", "30m", "--topic", "u").exits(exitUnwished, "1 of 2", "not found").
		prints("b rescheduled, due 2026-11-21T12:30:00.000Z\nnone not_found\n")
	r.run("reschedule", "a", "--by", "0s").exits(exitUsage, "changes nothing")
	r.run("reschedule", "a", "--by", "--1d").exits(exitUsage, "negative")
	r.run("reschedule", "a", "--by", "1d", "--now").exits(exitUsage, "use one")
	r.run("push", "t", "x", "--id", "last", "--at", "9999-12-31T23:59:59.999Z").ok()
	r.run("reschedule", "last", "--by", "1ms").exits(exitUsage, "last time possible")
	r.run("reschedule", "last", "--by", "-1d").ok().prints("last rescheduled, due 9999-12-30T23:59:59.999Z\n")
	r.run("push", "t", "x", "--id", "held").ok()
	r.claim("t", 1)
	r.run("reschedule", "held", "--by", "1d").exits(exitUnwished, "too late").prints("held leased\n")
}

func TestIDsFromStandardInput(t *testing.T) {
	r := newRig(t)
	n := 2*punctual.MaxBatch + 1
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
	dead.runInput("a\nb\n", "dead", "requeue", "t", "-").ok().contains("a requeued", "b requeued")
	dead.runInput("c\n", "dead", "requeue", "-").ok().contains("c requeued")
	dead.run("dead", "requeue", "t", "-", "a").exits(exitUsage, "stands alone")
}

// A signal ends a run between two batches: the one under way is finished, and its outcomes are told.
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
