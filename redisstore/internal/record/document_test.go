package record_test

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual/redisstore/internal/record"
)

// docs/format-redis.md decodes a message byte by byte. Read decodes the bytes on that page to what
// the page says.
func TestBytesInTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/format-redis.md")
	if err != nil {
		t.Fatal(err)
	}
	message, state := bytesBehind(t, string(page), "HGET punctual:{orders#0}:m A-17"), bytesBehind(t, string(page), "HGET punctual:{orders#0}:s A-17")
	if len(message) != 41 {
		t.Errorf("the page shows %d bytes of the message, and says that they are 41", len(message))
	}
	pushed, err := record.Read("A-17", message, "")
	if err != nil {
		t.Fatal(err)
	}
	m := pushed.In("orders", "A-17")
	due := time.Date(2026, 11, 26, 11, 41, 14, 103e6, time.UTC)
	if string(m.Body) != `{"n":17}` || m.Headers["trace"] != "7f3a" || len(m.Headers) != 1 || m.MaxAttempts != 5 || !m.Due.Equal(due) || m.Attempt != 0 {
		t.Errorf("the message is %+v", m)
	}
	failed, err := record.Read("A-17", message, state)
	if err != nil {
		t.Fatal(err)
	}
	m = failed.In("orders", "A-17")
	if m.Attempt != 1 || !m.FirstDue.Equal(due) || m.Due.Sub(failed.Failures[0].At) != time.Hour+time.Millisecond {
		t.Errorf("with its state the message is %+v, with %+v", m, failed.Failures)
	}
	if len(failed.Failures) != 1 || failed.Failures[0].Attempt != 1 || failed.Failures[0].Error != "exit status 1: no answer" || failed.Reason != "" || failed.Cancel {
		t.Errorf("its history is %+v", failed)
	}
	for _, instant := range []time.Time{m.Created, m.Due, m.FirstDue, failed.Failures[0].At} {
		if text := instant.UTC().Format("2006-01-02T15:04:05.000Z"); !strings.Contains(string(page), text) {
			t.Errorf("the page does not name %s, which its bytes say", text)
		}
	}
}

// bytesBehind returns the bytes that stand at the beginnings of the lines behind a heading, up to
// the end of its block.
func bytesBehind(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, heading+"\n")
	if !ok {
		t.Fatalf("the page has no %q", heading)
	}
	block, _, _ := strings.Cut(rest, "```")
	var all strings.Builder
	for line := range strings.Lines(block) {
		digits := strings.ReplaceAll(regexp.MustCompile(`^(?:[0-9a-f]{2} )*[0-9a-f]{2}\b`).FindString(line), " ", "")
		raw, err := hex.DecodeString(digits)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%q begins with no bytes: %v", line, err)
		}
		all.Write(raw)
	}
	return all.String()
}
