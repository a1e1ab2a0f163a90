package cli

import (
	"testing"

	"github.com/punctualmq/punctual"
)

// With --if-due a message is changed only if it is due at that time. The flag goes with one ID.
func TestIfDue(t *testing.T) {
	const due, other = "2026-11-21T09:00:00Z", "2026-11-21T09:00:01Z"
	for _, c := range []struct {
		args []string
		done string
	}{
		{[]string{"cancel", "a"}, "cancelled"},
		{[]string{"reschedule", "a", "--in", "1h"}, "rescheduled"},
	} {
		r := newRig(t)
		r.run("push", "t@x", "old", "--id", "a", "--at", due).ok()
		r.run(append(c.args, "--if-due", other)...).exits(exitUnwished, "due at another time").contains("a changed")
		if m, err := r.store.Get(t.Context(), "t@x", "a"); err != nil || stamp(m.Due) != "2026-11-21T09:00:00.000Z" {
			t.Fatalf("P13: %v: the message is %+v, %v", c.args, m, err)
		}
		r.run(append(c.args, "--if-due", due, "b")...).exits(exitUsage, "--if-due goes with one ID")
		r.run(append(c.args, "--if-due", due)...).ok().contains("a " + c.done)
	}
	r := withDead(t)
	r.run("dead", "delete", "a", "--if-due", other).exits(exitUnwished, "due at another time")
	r.run("dead", "requeue", "--all", "--if-due", other).exits(exitUsage, "--if-due goes with one ID")
	if m, err := r.store.Get(t.Context(), "t", "a"); err != nil || m.State != punctual.StateDead {
		t.Errorf("P13: the dead message is %v, %v", m.State, err)
	}

	r = newRig(t)
	r.run("push", "t", "old", "--id", "a", "--at", due).ok()
	r.run("push", "t", "new", "--id", "a", "--replace", "--if-due", other).exits(exitUnwished, "changed")
	r.run("push", "t", "new", "--id", "a", "--if-due", due).exits(exitUsage, "--replace")
	r.run("push", "t", "new", "--id", "a", "--replace", "--if-exists", "fail").exits(exitUsage, "use one")
	r.run("push", "t", "new", "--id", "a", "--replace", "--if-due", due).ok()
	if m, err := r.store.Get(t.Context(), "t", "a"); err != nil || string(m.Body) != "new" {
		t.Errorf("the message is %q, %v", m.Body, err)
	}
}

// With --zone the time of --at is one on the clocks of that zone. A time that these clocks skip
// stands for the first instant after the gap.
func TestZone(t *testing.T) {
	for at, want := range map[string]string{
		"2026-11-21 09:00": "2026-11-21T08:00:00.000Z",
		"2027-03-28 02:30": "2027-03-28T01:00:00.000Z",
		"2027-10-31T02:30": "2027-10-31T00:30:00.000Z",
		"tomorrow 9am":     "2026-11-21T08:00:00.000Z",
	} {
		r := newRig(t)
		r.env["TZ"] = "Europe/Berlin" // whose clocks skip the time, too
		r.run("push", "t", "x", "--id", "a", "--at", at, "--zone", "Europe/Berlin").exits(exitOK)
		if m, err := r.store.Get(t.Context(), "t", "a"); err != nil || stamp(m.Due) != want {
			t.Errorf("%s in Berlin is %s, %v; want %s", at, stamp(m.Due), err, want)
		}
	}
	r := newRig(t)
	r.env["TZ"] = "Europe/Berlin"
	r.run("push", "t", "x", "--id", "a", "--at", "2027-03-28 02:30").exits(exitOK, "clocks in Europe/Berlin are set forward")
	r.run("push", "t", "x", "--zone", "Europe/Berlin").exits(exitUsage, "--zone goes with --at")
	r.run("push", "t", "x", "--at", "2026-11-21T09:00:00Z", "--zone", "Europe/Berlin").exits(exitUsage, "offset from UTC")
	r.run("push", "t", "x", "--at", "2026-11-21 09:00", "--zone", "Mars").exits(exitUsage, "not known")
}
