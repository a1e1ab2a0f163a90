package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

func TestPushPrintsTheIDAlone(t *testing.T) {
	r := newRig(t)
	id := strings.TrimSuffix(r.run("push", "orders", "hello", "--in", "30m").ok().out, "\n")
	m := r.get("orders", id)
	if string(m.Body) != "hello" || !m.Due.Equal(start.Add(30*time.Minute)) || m.State != punctual.StateScheduled {
		t.Errorf("stored %+v, want body hello, due in 30 minutes", m)
	}
}

func TestPushTakesEveryFlag(t *testing.T) {
	r := newRig(t)
	r.run("push", "orders", "x", "--at", "2026-11-20T12:00:00.0001Z", "--id", "o-1", "--header", "a=1", "--header", "b=2=3",
		"--max-attempts", "3", "--expire", "1h", "--drop-expired", "--remember", "24h", "--timeout", "5m", "--json").ok().
		printsJSON(`{"id":"o-1","topic":"orders","due":"2026-11-20T12:00:00.001Z","result":"stored"}`)
	m := r.get("orders", "o-1")
	if m.Remember != 24*time.Hour {
		t.Errorf("stored with Remember %v, want 24h", m.Remember)
	}
	r.run("get", "o-1", "--json").ok().contains(`"remember":"1d"`, `"timeout":"5m"`)
	if m.Headers["a"] != "1" || m.Headers["b"] != "2=3" || m.MaxAttempts != 3 || !m.DropExpired || !m.Expires.Equal(m.Due.Add(time.Hour)) {
		t.Errorf("stored %+v", m)
	}
	r.run("push", "orders", "y", "--in", "1h", "--spread", "1h", "--id", "o-2").ok()
	if due := r.get("orders", "o-2").Due; due.Before(start.Add(time.Hour)) || due.After(start.Add(2*time.Hour)) {
		t.Errorf("due %v after --in 1h --spread 1h", due)
	}
}

func TestPushOfATakenID(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "first", "--id", "a", "--in", "1h").ok()
	r.run("push", "t", "second", "--id", "a", "--json").ok().
		printsJSON(`{"id":"a","topic":"t","due":"2026-11-20T11:00:00.000Z","result":"duplicate","existing":"scheduled"}`)
	r.run("push", "t", "second", "--id", "a").exits(exitOK, `push: ID "a" is in use (duplicate): the first message is kept`).prints("a\n")
	r.run("push", "t", "third", "--id", "a", "--if-exists", "fail", "--json").exits(exitUnwished).failsWith("duplicate", true)
	r.run("push", "t", "third", "--id", "a", "--if-exists", "fail").exits(exitUnwished, "a in t: ID is already in use: use another ID")
	r.run("push", "t", "fourth", "--id", "a", "--if-exists", "replace", "--in", "2h", "--json").ok().
		printsJSON(`{"id":"a","topic":"t","due":"2026-11-20T12:00:00.000Z","result":"replaced"}`)
	if got := string(r.get("t", "a").Body); got != "fourth" {
		t.Errorf("P7: body %q after a replace, want fourth", got)
	}
}

func TestPushReadsTheBodyFromStandardInput(t *testing.T) {
	r := newRig(t)
	body := "line 1\nline 2 \xff\n"
	r.runInput(body, "push", "t", "-", "--id", "a").ok()
	if got := string(r.get("t", "a").Body); got != body {
		t.Errorf("body %q, want %q byte for byte", got, body)
	}
	r.runInput(strings.Repeat("x", limits.DefaultMaxBody+1), "push", "t", "-").exits(exitError, "more than 1048576 bytes")
	r.runInput(strings.Repeat("x", limits.DefaultMaxBody), "push", "t", "-").ok()
}

func TestPushRefusesBadInput(t *testing.T) {
	for _, c := range []struct {
		says string
		args []string
	}{
		{"TOPIC and a BODY", []string{"push", "t"}},
		{"TOPIC and a BODY", []string{"push", "t", "a", "b"}},
		{`"-5m" is negative`, []string{"push", "t", "x", "--in", "-5m"}},
		{`"10000000000000ms" is too long`, []string{"push", "t", "x", "--in", "10000000000000ms"}},
		{`"soon" is not understood`, []string{"push", "t", "x", "--in", "soon"}},
		{"9999-12-31T23:59:59.999Z", []string{"push", "t", "x", "--at", "10000-01-01T00:00:00Z"}},
		{"use one", []string{"push", "t", "x", "--in", "1s", "--at", "2026-11-20T10:00:00Z"}},
		{"argument 1 is empty", []string{"push", "", "x"}},
		{`topic "a b"`, []string{"push", "a b", "x"}},
		{"not printable ASCII", []string{"push", "t", "x", "--id", "é"}},
		{`"novalue"`, []string{"push", "t", "x", "--header", "novalue"}},
		{"keep, replace, replace-dead or fail", []string{"push", "t", "x", "--if-exists", "maybe"}},
		{"max attempts -1", []string{"push", "t", "x", "--max-attempts", "-1"}},
		{"max attempts 1000001", []string{"push", "t", "x", "--max-attempts", "1000001"}},
		{"--id is empty", []string{"push", "t", "x", "--id", ""}},
		{"max attempts 1000001", []string{"push", "t", "--ndjson", "--max-attempts", "1000001"}},
		{"Did you mean this? push", []string{"pusc", "t", "x"}},
		{"unknown flag: --no-such: see 'punctual push --help'", []string{"push", "t", "x", "--no-such"}},
		{"at most a TOPIC", []string{"push", "t", "x", "--ndjson"}},
		{"with --ndjson", []string{"push", "t", "--ndjson", "--id", "a"}},
		{`topic "a b"`, []string{"push", "a b", "--ndjson"}},
		{"unknown command", []string{"pusch", "t", "x"}},
		{"unknown command", []string{"topic", "pusch"}},
		{"no known kind", []string{"push", "t", "x", "--store", "floppy:a"}},
		{"no known kind", []string{"push", "t", "x", "--store", "a"}},
	} {
		r := newRig(t)
		r.run(c.args...).exits(exitUsage, "punctual: ", c.says).prints("")
		if topics, err := r.store.Topics(t.Context()); err != nil || len(topics) != 0 {
			t.Errorf("%q: left topics %v, %v behind", c.args, topics, err)
		}
	}
}

func TestPushLines(t *testing.T) {
	r := newRig(t)
	input := `{"id":"a","body":"x","in":"30m"}
{"topic":"other","id":"b","body_base64":"/wA=","due":"2026-11-21T00:00:00Z","headers":{"h":"v"},"max_attempts":2,"expire":"1h"}

{"id":"a","body":"again"}
{"id":"c","body":""}`
	r.runInput(input, "push", "t", "--ndjson", "--in", "1h").exits(exitOK, "1 of 4 lines have an ID that is in use (duplicate)").printsJSON(
		`{"id":"a","topic":"t","due":"2026-11-20T10:30:00.000Z","result":"stored"}`,
		`{"id":"b","topic":"other","due":"2026-11-21T00:00:00.000Z","result":"stored"}`,
		`{"id":"a","topic":"t","due":"2026-11-20T10:30:00.000Z","result":"duplicate","existing":"scheduled"}`,
		`{"id":"c","topic":"t","due":"2026-11-20T11:00:00.000Z","result":"stored"}`,
	)
	b := r.get("other", "b")
	if !bytes.Equal(b.Body, []byte{0xff, 0}) || b.Headers["h"] != "v" || b.MaxAttempts != 2 || !b.Expires.Equal(b.Due.Add(time.Hour)) {
		t.Errorf("stored %+v", b)
	}
}

func TestPushLinesGoOnAfterABadOne(t *testing.T) {
	r := newRig(t)
	lines := []struct{ text, says string }{
		{`{"id":"1","body":"good"}`, ""},
		{`{"body":"x","in":"-1s"}`, `line 2: "in": duration "-1s" is negative`},
		{`not json`, "line 3: JSON at byte 1: invalid character"},
		{`{"body":"x","topc":"y"}`, `line 4: JSON at "/topc", byte 12: the name is not known: use topic, id, body`},
		{`{"id":"x"}`, `line 5: "body" is missing`},
		{`{"body":"x","body_base64":"eA=="}`, "line 6: "},
		{`{"body":"x","in":5}`, `line 7: JSON at "/in", byte 17: a number where a string is expected`},
		{`{"body":"x","due":"10000-01-01T00:00:00Z"}`, `line 8: "due": time "10000-01-01T00:00:00Z" lies after`},
		{`{"body":"x","in":"1s","due":"2026-11-21T00:00:00Z"}`, `line 9: "in" and "due" are both given`},
		{"{\"body\":\"\xff\"}", `line 10: JSON at "/body", byte 9: text that is not UTF-8: give bytes as body_base64`},
		{`{"body":"\ud800"}`, `line 11: JSON at "/body", byte 9: invalid surrogate pair`},
		{`{"body":"x"} {"body":"y"}`, "line 12: JSON at byte 13: invalid character '{' after top-level value"},
		{`{"body":"x"}}`, "line 13: JSON at byte 12: invalid character '}' after top-level value"},
		{`{"body":"x","topic":"a b"}`, `line 14: topic "a b"`},
		{`{"body":"x","id":""}`, `line 15: JSON at "/id", byte 17: the text is empty`},
		{`{"body_base64":"!"}`, `line 16: JSON at "/body_base64", byte 15: a string where a string of standard base64 is expected`},
		{`{"body":"x"`, "line 17: JSON at byte 11: the value is not complete"},
		{`[1]`, "line 18: JSON at byte 0: an array where an object is expected"},
		{`{"body":"` + strings.Repeat("x", maxLine) + `"}`, "line 19: the line is longer"},
		{`{"body":"` + strings.Repeat("x", limits.DefaultMaxBody+1) + `"}`, "line 20: body has"},
		{`{"body":"x","body_base64":null,"in":null,"id":"2"}`, ""},
		{`{"body":"\ud83d\ude00 \\ud800","id":"3"}`, ""},
	}
	var input strings.Builder
	for _, l := range lines {
		input.WriteString(l.text + "\n")
	}
	res := r.runInput(input.String(), "push", "t", "--ndjson").exits(exitError, "19 of 22 lines were not stored")
	for _, l := range lines {
		if !strings.Contains(res.err, l.says) {
			t.Errorf("standard error does not say %q:\n%s", l.says, res.err)
		}
	}
	if got := strings.Count(res.out, "\n"); got != 3 {
		t.Errorf("%d lines were answered, want 3:\n%s", got, res.out)
	}
	if got, want := string(r.get("t", "3").Body), "\U0001F600 \\ud800"; got != want {
		t.Errorf("body %q, want %q", got, want)
	}
}

func TestPushLinesErrorsAsJSON(t *testing.T) {
	r := newRig(t)
	res := r.runInput("{\n", "push", "t", "--ndjson", "--json").exits(exitError)
	lines := strings.Split(strings.TrimSpace(res.err), "\n")
	if len(lines) != 2 {
		t.Fatalf("standard error %q, want a line for the bad line and one for the whole", res.err)
	}
	if got := decode(t, lines[0]).(map[string]any)["line"]; got != 1.0 {
		t.Errorf("line is %v, want 1", got)
	}
	if got := decode(t, lines[1]).(map[string]any)["error"].(map[string]any)["code"]; got != codeSomeFailed {
		t.Errorf("code is %v, want %s", got, codeSomeFailed)
	}
}

func TestPushLinesOfTakenIDsOnly(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "x", "--id", "a").ok()
	r.runInput(`{"id":"a","body":"y"}`, "push", "t", "--ndjson", "--if-exists", "fail").
		exits(exitUnwished, "line 1: ", "1 of 1 lines have an ID that is in use").prints("")
}

func TestPushManyLinesInOrder(t *testing.T) {
	r := newRig(t)
	const n = 5000
	var input, want strings.Builder
	for i := range n {
		fmt.Fprintf(&input, `{"id":"%d","body":"%s"}`+"\n", i, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(i)}, i%400)))
		fmt.Fprintf(&want, `{"id":"%d","topic":"t","due":"2026-11-20T10:00:00.000Z","result":"stored"}`+"\n", i)
	}
	r.runInput(input.String(), "push", "t", "--ndjson").ok().prints(want.String())
}

// A line is pushed and answered at once, although no more input has come yet.
func TestPushLinesDoNotWaitForMore(t *testing.T) {
	r := newRig(t)
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	r.in = in
	done := make(chan int)
	go func() { done <- r.app(out, io.Discard).run(t.Context(), []string{"push", "t", "--ndjson"}) }()
	for _, id := range []string{"a", "b"} {
		fmt.Fprintf(typed, `{"id":%q,"body":""}`+"\n", id)
		line := make([]byte, 200)
		n, err := shown.Read(line)
		if err != nil || !strings.HasPrefix(string(line[:n]), `{"id":"`+id+`"`) {
			t.Fatalf("answer to line %s: %q, %v", id, line[:n], err)
		}
	}
	typed.Close()
	if code := <-done; code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
}

// A body may be any JSON value except null; what is not text is kept as it is written.
func TestPushLinesTakeJSONValues(t *testing.T) {
	r := newRig(t)
	bodies := []struct{ text, want string }{
		{`{"order": 42, "paid":false,"note":"5 €"}`, `{"order": 42, "paid":false,"note":"5 €"}`},
		{`[1,2.50,1e3]`, `[1,2.50,1e3]`},
		{`12345678901234567890`, `12345678901234567890`},
		{`true`, `true`},
		{`"text"`, `text`},
		{`"{\"a\":1}"`, `{"a":1}`},
	}
	var input strings.Builder
	for n, b := range bodies {
		fmt.Fprintf(&input, `{"id":"%d","body": %s }`+"\n", n, b.text)
	}
	r.runInput(input.String(), "push", "t", "--ndjson").ok()
	for n, b := range bodies {
		if got := string(r.get("t", fmt.Sprint(n)).Body); got != b.want {
			t.Errorf("body %s is stored as %q, want %q", b.text, got, b.want)
		}
	}
	r.runInput(`{"body":null}`, "push", "t", "--ndjson").exits(exitError, `"body" is missing`)
	r.runInput(`{"body":null,"body_base64":"eA=="}`, "push", "t", "--ndjson").ok()
	r.runInput(`{"body":{"a":"\ud800"}}`, "push", "t", "--ndjson").exits(exitError, "surrogate")
}

// A line may have the members that the HTTP interface takes. What it says of an ID in use takes the
// place of --if-exists.
func TestPushLinesTakeTheMembersOfHTTP(t *testing.T) {
	r := newRig(t)
	r.run("push", "t", "first", "--id", "a").ok()
	r.runInput(`{"id":"a","body":"x","if_exists":"replace","at_local":"2026-11-22 09:00","zone":"Europe/Berlin"}`, "push", "t", "--ndjson", "--if-exists", "fail").ok().
		printsJSON(`{"id":"a","topic":"t","due":"2026-11-22T08:00:00.000Z","result":"replaced"}`)
	r.runInput(`{"id":"a","body":"y","if_exists":"fail"}`, "push", "t", "--ndjson", "--replace").exits(exitUnwished, "ID is already in use")
	r.runInput(`{"id":"a","body":"y","if_exists":"replace","if_due":"2026-11-22T08:00:00.001Z"}`, "push", "t", "--ndjson").exits(exitError, "line 1")
	if m := r.get("t", "a"); string(m.Body) != "x" {
		t.Errorf("the body is %q", m.Body)
	}
}

// When the context ends, as at a signal, the batch under way is finished and its lines are printed.
// Then the run ends.
func TestPushLinesFinishTheBatchUnderWay(t *testing.T) {
	r := newRig(t)
	ctx, interrupt := context.WithCancel(t.Context())
	r.pushed = interrupt
	in, typed := io.Pipe()
	defer typed.Close()
	go func() { _, _ = io.WriteString(typed, `{"id":"a","body":"x"}`+"\n") }()
	r.in = in
	r.runContext(ctx, "push", "t", "--ndjson", "--json").exits(exitError, "interrupted", "messages stored before that: 1").failsWith("canceled", false).contains(`"id":"a"`)
}

// What refuses some lines is definite only if no line was stored.
func TestPushLinesInUseAreDefiniteIfNothingWasStored(t *testing.T) {
	r := newRig(t)
	push := func(lines string) result {
		t.Helper()
		r.in = strings.NewReader(lines)
		got := r.run("push", "t", "--ndjson", "--if-exists", "fail", "--json")
		_, got.err, _ = strings.Cut(got.err, "}\n") // behind the error of the line
		if !strings.HasPrefix(got.err, "{") {
			_, got.err, _ = strings.Cut(got.err, "\n")
		}
		return got
	}
	r.run("push", "t", "x", "--id", "a").ok()
	push(`{"id":"a","body":"x"}`).exits(exitUnwished).failsWith("duplicate", true)
	push(`{"id":"a","body":"x"}`+"\n"+`{"id":"b","body":"x"}`).exits(exitUnwished).failsWith("duplicate", false)
}

// An interrupted push ends although standard input stays silent.
func TestPushLinesCanBeInterrupted(t *testing.T) {
	r := newRig(t)
	in, typed := io.Pipe()
	defer typed.Close() // ends the reader that was left behind
	r.in = in
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.runContext(ctx, "push", "t", "--ndjson").exits(exitError, "interrupted")
}

func TestPushTellsWhenOutputCannotBeWritten(t *testing.T) {
	r := newRig(t)
	var errs buffer
	for _, args := range [][]string{{"push", "t", "x"}, {"push", "t", "x", "--json"}, {"topics"}, {"version"}} {
		code := r.app(brokenPipe{}, &errs).run(t.Context(), args)
		if code != exitError || !strings.Contains(errs.String(), "write standard output: broken pipe") {
			t.Errorf("%q: exit %d, standard error %q; want 1 and the reason", args, code, errs.String())
		}
	}
}

// TestPushLinesTellHowFarTheyCame: when the lines of the results cannot be written, the error says
// how many messages were stored.
func TestPushLinesTellHowFarTheyCame(t *testing.T) {
	r := newRig(t)
	r.in = strings.NewReader("{\"body\":\"x\"}\n")
	var errs buffer
	code := r.app(brokenPipe{}, &errs).run(t.Context(), []string{"push", "t", "--ndjson"})
	if want := "push: write standard output: broken pipe (messages stored before that: 1)"; code != exitError || !strings.Contains(errs.String(), want) {
		t.Errorf("P13: exit %d, standard error %q; want 1 and %q", code, errs.String(), want)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// Headers that are not text are stored as they are by push --ndjson, and list --json prints them in
// the same form.
func TestHeadersThatAreNotText(t *testing.T) {
	r := newRig(t)
	line := `{"topic":"t","id":"a","body":"x","headers_base64":{"aw==":"/w=="}}`
	r.runInput(line, "push", "--ndjson").exits(exitOK)
	if got := r.get("t", "a").Headers["k"]; got != "\xff" {
		t.Errorf("the header is %q", got)
	}
	r.run("list", "t", "--json").ok().contains(`"headers":{},"headers_base64":{"aw==":"/w=="}`)
	r.runInput(strings.Replace(line, "aw==", "!", 1), "push", "--ndjson").exits(exitError, "headers_base64")
}
