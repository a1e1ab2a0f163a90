package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// finishedIDs are the IDs of the records that finished --json prints.
func finishedIDs(out string) string {
	var ids []string
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(line, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func TestFinished(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "early").ok()
	r.run("consume", "t", "--count", "1").ok()
	r.run("finished", "t").exits(exitOK, "no finished records", "topic set t --finished-retention 30d").prints("")
	r.run("finished", "t", "--json").ok().prints("")
	r.run("topic", "set", "t", "--finished-retention", "30d").ok()
	if none := r.run("finished", "t").exits(exitOK).prints(""); none.err != "no finished records\n" {
		t.Errorf("finished of a topic without records says %q", none.err)
	}
	for n := range 5 {
		id := fmt.Sprint("m", n)
		r.run("push", "t", "x", "--id", id).ok()
		r.clock.Advance(time.Second)
		if n%2 == 0 {
			r.run("consume", "t", "--count", "1").ok()
		} else {
			r.run("cancel", id).ok()
		}
		r.clock.Advance(time.Hour - time.Second)
	}
	r.run("finished", "t").ok().contains("ID", "OUTCOME", "FINISHED", "LATE", "m0", "acked", "cancelled", "2026-11-20T10:00:01.000Z", "1s")
	list := func(want string, args ...string) {
		t.Helper()
		if got := finishedIDs(r.run(append([]string{"finished", "t", "--json"}, args...)...).ok().out); got != want {
			t.Errorf("finished %q shows %q; want %q", args, got, want)
		}
	}
	list("m0 m1 m2 m3 m4")
	list("m4 m3 m2 m1 m0", "--newest")
	list("m1 m3", "--outcome", "cancelled")
	list("m3 m4", "--last", "2h")
	list("m3", "--last", "2h", "--outcome", "cancelled")
	list("m1 m2", "--from", "2026-11-20T11:00:01Z", "--to", "2026-11-20T13:00:01Z")
	list("m0 m1 m2 m3 m4", "--on", "2026-11-20", "--utc")
	list("", "--on", "2026-11-21", "--utc")
	list("", "--from", "2026-11-21", "--utc")
	list("m0 m1 m2 m3 m4", "--to", "2026-11-21", "--utc", "--limit", "0")
	r.run("finished", "t", "--json", "--limit", "1", "--outcome", "cancelled").ok().contains(`"outcome":"cancelled"`, `"at":"2026-11-20T11:00:01.000Z"`, `"next":"`)

	// The cursor of a page continues behind it.
	first := r.run("finished", "t", "--limit", "2", "--newest").exits(exitOK)
	_, cursor, found := strings.Cut(first.err, "--after '")
	cursor, _, _ = strings.Cut(cursor, "'")
	if !found {
		t.Fatalf("a page of 2 of 5 records names no cursor: %q", first.err)
	}
	list("m2 m1 m0", "--newest", "--after", cursor)

	r.run("finished", "t", "--outcome", "lost").exits(exitUsage, `outcome "lost"`)
	r.run("finished", "t", "--limit", "-1").exits(exitUsage, "limit -1")
	r.run("finished", "t", "--after", "nonsense").exits(exitUsage, "use the Next of a former page")
	r.run("finished", "t", "--from", "2026-11-21", "--to", "2026-11-20").exits(exitUsage, "from is later than to")
	r.run("finished", "t", "--on", "2026-11-20", "--last", "2h").exits(exitUsage, "use one of them")
	r.run("finished", "t", "--from", "soon").exits(exitUsage)
	r.run("finished", "none").exits(exitUnwished, "not found")
	r.run("finished").exits(exitUsage)
}
