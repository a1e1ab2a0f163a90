package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
	"github.com/punctualmq/punctual/limits"
)

func TestConsumePrintsThenAcks(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "héllo <&>", "--id", "a", "--header", "k=v").ok()
	r.runInput("\xff", "push", "t", "-", "--id", "b", "--in", "1s").ok()
	r.clock.Advance(1250 * time.Millisecond)
	r.run("consume", "t", "--count", "2").ok().printsJSON(
		`{"id":"a","topic":"t","token":"1","body":"héllo <&>","headers":{"k":"v"},"due":"2026-11-20T10:00:00.000Z","first_due":"2026-11-20T10:00:00.000Z","created":"2026-11-20T10:00:00.000Z","delivered":"2026-11-20T10:00:01.250Z","late_ms":1250,"total_late_ms":1250,"lease_until":"2026-11-20T10:00:31.250Z","attempt":1}`,
		`{"id":"b","topic":"t","token":"2","body_base64":"/w==","headers":{},"due":"2026-11-20T10:00:01.000Z","first_due":"2026-11-20T10:00:01.000Z","created":"2026-11-20T10:00:00.000Z","delivered":"2026-11-20T10:00:01.250Z","late_ms":250,"total_late_ms":250,"lease_until":"2026-11-20T10:00:31.250Z","attempt":1}`,
	).contains("héllo <&>")
	r.run("get", "a", "b").exits(exitUnwished)
}

func TestConsumeClaimsNoMoreThanTheCount(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.run("push", "t", "x", "--id", fmt.Sprint(i)).ok()
	}
	got := r.run("consume", "t", "--count", "3", "--concurrency", "8").ok()
	if n := strings.Count(got.out, "\n"); n != 3 {
		t.Errorf("--count 3 printed %d lines:\n%s", n, got.out)
	}
	untouched := 0
	for i := range 10 {
		if m, err := r.store.Get(t.Context(), "t", fmt.Sprint(i)); err == nil && m.Attempt == 0 && m.State == punctual.StateReady {
			untouched++
		}
	}
	if untouched != 7 {
		t.Errorf("%d messages are untouched after --count 3 of 10, want 7", untouched)
	}
}

func TestConsumeUntilEmpty(t *testing.T) {
	r := newRig(t)
	r.run("consume", "none", "--until-empty").ok().prints("")
	r.run("push", "t", "1").ok()
	r.run("push", "u", "2").ok()
	r.run("push", "u", "dead").ok()
	r.claim("u", 1)
	r.clock.Advance(time.Minute) // the lease runs out
	got := r.run("consume", "t", "u", "t", "--until-empty").ok()
	if n := strings.Count(got.out, "\n"); n != 3 {
		t.Errorf("printed %d lines, want 3:\n%s", n, got.out)
	}
}

// A run with --id handles the messages named, in this order and each once, and no other message. It
// says which are not ready.
func TestConsumeStrict(t *testing.T) {
	r := newRig(t)
	for i := range 6 {
		r.run("push", []string{"mails", "codes"}[i/3], fmt.Sprint("m", i)).ok()
	}
	r.run("consume", "codes", "mails", "--strict", "--until-empty", "--exec", "cat; echo").ok().prints("m3\nm4\nm5\nm0\nm1\nm2\n")
}

func TestConsumeByID(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.run("push", "t", "x", "--id", id).ok()
	}
	r.run("push", "t", "x", "--id", "later", "--in", "1h").ok()
	r.run("consume", "t", "--id", "d", "--id", "b", "--id", "d", "--exec", "echo $PUNCTUAL_ID").ok().prints("d\nb\n")
	got := r.run("consume", "t", "--id", "later", "--id", "c", "--id", "b", "--concurrency", "3").exits(exitUnwished)
	if n := strings.Count(got.out, "\n"); n != 1 || !strings.Contains(got.out, `"id":"c"`) {
		t.Errorf("printed %d lines, want that of c:\n%s", n, got.out)
	}
	if !strings.Contains(got.err, "not ready: later, b") {
		t.Errorf("said %q, want that later and b are not ready", got.err)
	}
	if m, err := r.store.Get(t.Context(), "t", "a"); err != nil || m.Attempt != 0 {
		t.Errorf("a has %d attempts, %v; want none", m.Attempt, err)
	}
	r.run("consume", "t", "u", "--id", "a").exits(exitUsage)
	r.run("consume", "t", "--id", "").exits(exitUsage)
}

func TestNamedPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return &named{store: below} })
}

// A run with --until-empty waits for a message that is scheduled.
func TestConsumeUntilEmptyWaitsForScheduled(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "later", "--id", "a", "--in", "1h").ok()
	done := make(chan result)
	go func() { done <- r.run("consume", "t", "--until-empty") }()
	select {
	case res := <-done:
		t.Fatalf("ended with a message scheduled: %+v", res)
	case <-time.After(3 * emptyCheck): // a run that ended too soon would be seen by now
	}
	r.clock.Advance(time.Hour)
	(<-done).ok().contains(`"id":"a"`)
}

func TestConsumeEndsWithTheContext(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.runContext(ctx, "consume", "t").ok().prints("")
}

// A message whose line could not be written is not acked and has lost no attempt.
func TestConsumeDoesNotAckWhatItCouldNotWrite(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.run("push", "t", "x", "--id", fmt.Sprint(i)).ok()
	}
	var errs buffer
	code := r.app(brokenPipe{}, &errs).run(t.Context(), []string{"consume", "t", "--concurrency", "2"})
	if code != exitError || !strings.Contains(errs.String(), "write standard output: broken pipe") {
		t.Errorf("exit %d, standard error %q; want 1 and the reason", code, errs.String())
	}
	for i := range 5 {
		if m := r.get("t", fmt.Sprint(i)); m.State != punctual.StateReady || m.Attempt != 0 {
			t.Errorf("message %d is %s with %d attempts, want ready with none", i, m.State, m.Attempt)
		}
	}
}

// failingAfter is an output that breaks after n writes.
type failingAfter struct {
	n int
	w io.Writer
}

func (f *failingAfter) Write(p []byte) (int, error) {
	if f.n == 0 {
		return 0, errors.New("broken pipe")
	}
	f.n--
	return f.w.Write(p)
}

func TestConsumeAcksExactlyWhatItWrote(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.run("push", "t", "x", "--id", fmt.Sprint(i)).ok()
	}
	var out, errs buffer
	code := r.app(&failingAfter{2, &out}, &errs).run(t.Context(), []string{"consume", "t"})
	s, err := r.store.Stats(t.Context(), "t")
	if code != exitError || err != nil || s.Live() != 3 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("exit %d, %d messages left (%v), printed %q; want 1, 3 left, 2 lines", code, s.Live(), err, out.String())
	}
}

func TestConsumeRefusesBadInput(t *testing.T) {
	for _, c := range []struct {
		says string
		args []string
	}{
		{"no argument is given", []string{"consume"}},
		{"concurrency 0", []string{"consume", "t", "--concurrency", "0"}},
		{"count -1", []string{"consume", "t", "--count", "-1"}},
		{"--snooze goes with --exec", []string{"consume", "t", "--snooze", "1s"}},
		{"--timeout goes with --exec", []string{"consume", "t", "--timeout", "1s"}},
		{"--then goes with --exec", []string{"consume", "t", "--then"}},
		{"--zone goes with --quiet", []string{"consume", "t", "--zone", "UTC"}},
		{"write them like 22:00-08:00", []string{"consume", "t", "--quiet", "22:00"}},
		{`To is "8"`, []string{"consume", "t", "--quiet", "22:00-8"}},
		{`zone "Mars/Base" is not known here`, []string{"consume", "t", "--quiet", "22:00-08:00", "--zone", "Mars/Base"}},
		{`topic "a b"`, []string{"consume", "t", "a b"}},
		{"the command is empty", []string{"consume", "t", "--exec", " "}},
		{"lease 1ms", []string{"consume", "t", "--lease", "1ms"}},
	} {
		r := newRig(t)
		r.run(c.args...).exits(exitUsage, c.says)
	}
}

func TestConsumeStopsWhenTheStoreIsGone(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x").ok()
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.run("consume", "t").exits(exitError, "closed")
}

func TestExecGivesTheMessageToTheCommand(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "the body", "--id", "a", "--header", "content-type=text/plain").ok()
	command := `cat; echo " $PUNCTUAL_ID $PUNCTUAL_TOPIC $PUNCTUAL_ATTEMPT $PUNCTUAL_DUE $PUNCTUAL_HEADER_CONTENT_TYPE"; echo noise >&2`
	res := r.run("consume", "t", "--count", "1", "--exec", command)
	res.prints("the body a t 1 2026-11-20T10:00:00.000Z text/plain\n")
	if res.code != exitOK || res.err != "noise\n" {
		t.Errorf("exit %d, standard error %q; want 0 and the command's own", res.code, res.err)
	}
	r.run("get", "a").exits(exitUnwished)
}

func TestExecPrintsTheLineWithJSONAfterSuccess(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "b", "--id", "a").ok()
	r.run("consume", "t", "--count", "1", "--exec", `echo '"from the command"'`, "--json").ok().printsJSON(
		`"from the command"`,
		`{"id":"a","topic":"t","token":"1","body":"b","headers":{},"due":"2026-11-20T10:00:00.000Z","first_due":"2026-11-20T10:00:00.000Z","created":"2026-11-20T10:00:00.000Z","delivered":"2026-11-20T10:00:00.000Z","late_ms":0,"total_late_ms":0,"lease_until":"2026-11-20T10:00:30.000Z","attempt":1}`)
}

func TestExecExitCodesDecide(t *testing.T) {
	for _, c := range []struct {
		name, command string
		flags         []string
		state         punctual.State
		attempt       int
		dueIn         time.Duration
		failure       string
	}{
		{"snooze", "exit 75", nil, punctual.StateScheduled, 0, 30 * time.Second, ""},
		{"snooze for", "exit 75", []string{"--snooze", "5m"}, punctual.StateScheduled, 0, 5 * time.Minute, ""},
		{"discard", "echo bad address >&2; exit 65", nil, punctual.StateDead, 1, 0, "exit status 65: bad address"},
		{"retry", "echo try again >&2; exit 3", nil, punctual.StateScheduled, 1, 7 * time.Second, "exit status 3: try again"},
		{"killed", "kill -TERM $$", nil, punctual.StateScheduled, 1, 7 * time.Second, "signal: terminated"},
		{"no such command", "/no/such/command", nil, punctual.StateScheduled, 1, 7 * time.Second, "exit status 127"},
		{"timeout", "sleep 60", []string{"--timeout", "50ms"}, punctual.StateScheduled, 1, 7 * time.Second, "the command was ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.run("topic", "set", "t", "--backoff", "7s").ok()
			r.run("push", "t", "x", "--id", "a").ok()
			r.run(append([]string{"consume", "t", "--count", "1", "--exec", c.command}, c.flags...)...).exits(exitOK).prints("")
			m := r.get("t", "a")
			if m.State != c.state || m.Attempt != c.attempt || !m.Due.Equal(start.Add(c.dueIn)) {
				t.Errorf("message is %s with %d attempts, due %v; want %s, %d, %v", m.State, m.Attempt, m.Due, c.state, c.attempt, start.Add(c.dueIn))
			}
			switch {
			case c.failure == "" && len(m.Failures) > 0, c.failure != "" && len(m.Failures) != 1:
				t.Errorf("failures %+v, want %q", m.Failures, c.failure)
			case c.failure != "" && !strings.HasPrefix(m.Failures[0].Error, c.failure):
				t.Errorf("failure %q, want %q", m.Failures[0].Error, c.failure)
			}
		})
	}
}

func TestExecKeepsTheEndOfStandardError(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	r.run("consume", "t", "--count", "1", "--exec", `i=0; while [ $i -lt 500 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`).exits(exitOK)
	got := r.get("t", "a").Failures[0].Error
	if !strings.HasPrefix(got, "exit status 1: …") || !strings.HasSuffix(got, "line 499") || len(got) > limits.MaxErrorBytes {
		t.Errorf("kept %d bytes: %q; want the end within %d", len(got), got, limits.MaxErrorBytes)
	}
}

// The whole process group of a command ends with its context, not only sh.
func TestExecEndsTheProcessGroup(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	pidFile := filepath.Join(t.TempDir(), "pid")
	command := fmt.Sprintf(`sleep 60 & echo $! > %s; wait`, pidFile)
	began := time.Now()
	r.run("consume", "t", "--count", "1", "--timeout", "500ms", "--exec", command).exits(exitOK)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the command's child was waited for: %v", took)
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the command's child has ended", func() bool { return !running(strings.TrimSpace(string(pid))) })
}

// running tells whether a process runs. A process that has ended, but was not waited for, does not
// run. Without /proc none does.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return !slices.Contains([]string{"Z", "X"}, fields[0])
}

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for a minute: %s", what)
		}
	}
}

// A drain lets the command under way finish and acks its message.
func TestExecIsDrained(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	dir := t.TempDir()
	begun, goOn := filepath.Join(dir, "begun"), filepath.Join(dir, "go-on")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan result)
	go func() {
		done <- r.runContext(ctx, "consume", "t", "--exec", fmt.Sprintf(`touch %s; while [ ! -e %s ]; do sleep 0.01; done; echo finished`, begun, goOn))
	}()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(begun); return err == nil })
	cancel()
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	(<-done).ok().prints("finished\n")
	r.run("get", "a").exits(exitUnwished)
}

func TestKilledProcessesStartNoMore(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	var out, errs buffer
	a := r.app(&out, &errs)
	a.children.kill()
	a.run(t.Context(), []string{"consume", "t", "--count", "1", "--exec", "echo started"})
	if out.String() != "" {
		t.Errorf("a command was started after the kill: %q", out.String())
	}
}

// A retry moves the due time, while the first due time stays, from which the lateness in all is
// counted.
func TestConsumeTellsTheLatenessInAll(t *testing.T) {
	r := newRig(t)
	r.run("topic", "set", "t", "--backoff", "2m").ok()
	r.run("push", "t", "x", "--id", "a").ok()
	r.run("consume", "t", "--count", "1", "--exec", "exit 1").exits(exitOK)
	r.run("get", "a").ok().contains("due          2026-11-20T10:02:00.000Z", "first due    2026-11-20T10:00:00.000Z")
	r.clock.Advance(2*time.Minute + 5*time.Millisecond)
	r.run("consume", "t", "--count", "1").ok().contains(`"due":"2026-11-20T10:02:00.000Z","first_due":"2026-11-20T10:00:00.000Z"`, `"late_ms":5,"total_late_ms":120005`, `"attempt":2`)
}

// If the topic keeps finished records, get shows of a finished message how it ended and when, and
// if it was delivered, how late.
func TestGetTellsOfFinishedMessages(t *testing.T) {
	r := newRig(t)
	r.run("topic", "set", "t", "--finished-retention", "30d").ok()
	r.run("push", "t", "x", "--id", "a", "--in", "1m").ok()
	r.run("push", "t", "x", "--id", "b", "--in", "1h").ok()
	r.clock.Advance(time.Minute + 1500*time.Millisecond)
	r.run("consume", "t", "--count", "1").ok()
	r.run("cancel", "b").ok()
	r.run("get", "a").ok().contains("finished     acked at 2026-11-20T10:01:01.500Z", "delivered    2026-11-20T10:01:01.500Z, 1.5s after it was due", "kept until   2026-12-20T10:01:01.500Z")
	r.run("get", "b", "--topic", "t").ok().contains("finished     cancelled at", "attempts     0")
	r.run("get", "a", "--json").ok().printsJSON(`{"id":"a","topic":"t","outcome":"acked","at":"2026-11-20T10:01:01.500Z","due":"2026-11-20T10:01:00.000Z",` +
		`"first_due":"2026-11-20T10:01:00.000Z","created":"2026-11-20T10:00:00.000Z","attempt":1,"delivered":"2026-11-20T10:01:01.500Z","kept_until":"2026-12-20T10:01:01.500Z"}`)
	r.run("push", "t", "again", "--id", "a", "--in", "1m").ok()
	r.run("get", "a").ok().contains("state        scheduled", "body         again", "finished     acked at")
	r.run("get", "a", "c").exits(exitUnwished, `ID "c": not found`).contains("body         again")
	r.run("topic", "set", "t", "--finished-retention", "400d").exits(exitUsage, "finished retention")
	r.run("topic", "show", "t").ok().contains("finished retention", "30d")
}

// A message that falls due in quiet hours is put off to their end, or up to five minutes more, and
// no attempt is used.
func TestConsumeQuiet(t *testing.T) {
	r := newRig(t)
	r.clock.Set(time.Date(2026, 11, 20, 22, 30, 0, 0, time.UTC)) // half past eleven in Berlin
	r.run("push", "t", "x", "--id", "a").ok()
	quiet := []string{"consume", "t", "--count", "1", "--quiet", "23:00-07:00", "--zone", "Europe/Berlin"}
	r.run(quiet...).exits(exitOK).prints("")
	end := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	if m := r.get("t", "a"); m.State != punctual.StateScheduled || m.Attempt != 0 || m.Due.Before(end) || m.Due.After(end.Add(5*time.Minute)) {
		t.Errorf("it is %s with %d attempts, due %v; want it at %v or up to five minutes later", m.State, m.Attempt, m.Due, end)
	}
	r.clock.Set(end.Add(5 * time.Minute))
	r.run(quiet...).ok().contains(`"id":"a"`)
}

// The lines that commands print on standard error at the same time stay whole, also one that is
// written in parts and one without a line break behind it.
func TestExecKeepsLinesWhole(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for _, id := range []string{"a", "b"} {
		r.run("push", "t", "x", "--id", id).ok()
	}
	both := fmt.Sprintf(`printf "begin " >&2; touch %[1]s/$PUNCTUAL_ID; while [ ! -e %[1]s/a ] || [ ! -e %[1]s/b ]; do sleep 0.01; done; `, dir)
	got := r.run("consume", "t", "--count", "2", "--concurrency", "2", "--exec", both+`printf "end of $PUNCTUAL_ID" >&2`)
	lines := strings.Split(got.err, "\n")
	slices.Sort(lines)
	if want := []string{"", "begin end of a", "begin end of b"}; got.code != exitOK || !slices.Equal(lines, want) {
		t.Errorf("exit %d, standard error %q, want the lines %q", got.code, got.err, want)
	}
}

// A line of any length passes in bounded memory.
func TestLineWriter(t *testing.T) {
	var out buffer
	w := &lineWriter{out: &out}
	long := strings.Repeat("x", longestLine)
	for _, part := range []string{"a", "b\nc", "\n\nd", "e\n", long, "y", "z"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("write %d bytes: %d, %v", len(part), n, err)
		}
	}
	w.end()
	if want := "ab\nc\n\nde\n" + long + "yz\n"; out.String() != want || cap(w.rest) > 3*longestLine {
		t.Errorf("wrote %.40q, %d bytes of %d; kept room for %d", out.String(), len(out.String()), len(want), cap(w.rest))
	}
}
