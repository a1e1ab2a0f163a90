package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

func TestThenStoresWhatTheCommandPrints(t *testing.T) {
	r := newRig(t)
	r.run("push", "orders", "x", "--id", "A-17").ok()
	command := `echo '{"topic":"invoice","id":"A-17~invoice","in":"2d","body":"49.90"}'; echo; echo '{"topic":"mail","id":"A-17~mail","body":"thanks"}'`
	r.run("consume", "orders", "--count", "1", "--exec", command, "--then").ok().
		prints("✓ A-17 acked, then invoice/A-17~invoice due in 2d, mail/A-17~mail due now\n")
	r.run("get", "A-17", "--topic", "orders").exits(exitUnwished)
	m := r.get("invoice", "A-17~invoice")
	if string(m.Body) != "49.90" || !m.Due.Equal(start.Add(48*time.Hour)) || m.Headers[storekit.AfterHeader] != "orders/A-17" {
		t.Errorf("the follow-up has body %q, due %v, headers %v", m.Body, m.Due, m.Headers)
	}
	if m := r.get("mail", "A-17~mail"); m.State != punctual.StateReady {
		t.Errorf("the second follow-up is %s", m.State)
	}
}

func TestThenWithoutOutputAcks(t *testing.T) {
	r := newRig(t)
	r.run("push", "orders", "x", "--id", "A-17").ok()
	r.run("consume", "orders", "--count", "1", "--exec", "true", "--then").ok().prints("")
	r.run("get", "A-17", "--topic", "orders").exits(exitUnwished)
}

// Whenever a follow-up cannot be stored, or CMD does not succeed, the message is not acked and no
// follow-up is stored.
func TestThenStoresAllOrNothing(t *testing.T) {
	const good = `echo '{"topic":"next","id":"good","body":""}'; `
	for _, c := range []struct {
		name, command string
		state         punctual.State
		attempt       int
		failure       string
	}{
		{"no JSON", good + "echo done", punctual.StateScheduled, 1, "line 2 of what the command printed: "},
		{"no topic", good + `echo '{"body":"x"}'`, punctual.StateScheduled, 1, "line 2 of what the command printed: topic"},
		{"too many", fmt.Sprintf(`for i in $(seq %d); do echo "{\"topic\":\"next\",\"body\":\"\"}"; done`, limits.MaxThen+1), punctual.StateScheduled, 1, "what the command printed: "},
		{"too much", fmt.Sprintf("head -c %d /dev/zero", maxPrinted+1), punctual.StateScheduled, 1, "the command printed more than"},
		{"held open", good + "sleep 60 &", punctual.StateScheduled, 1, "the command has ended, but"},
		{"a failure", good + "exit 1", punctual.StateScheduled, 1, "exit status 1"},
		{"a discard", good + "exit 65", punctual.StateDead, 1, "exit status 65"},
		{"a snooze", good + "exit 75", punctual.StateScheduled, 0, ""},
		{"a paused topic", good + `echo '{"topic":"paused","body":""}'`, punctual.StateScheduled, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.run("topic", "set", "orders", "--backoff", "7s").ok()
			r.run("topic", "set", "paused", "--backoff", "7s").ok()
			r.run("topic", "pause", "paused", "--push").ok()
			r.run("push", "orders", "x", "--id", "A-17").ok()
			r.run("consume", "orders", "--count", "1", "--exec", c.command, "--then").exits(exitOK).prints("")
			m := r.get("orders", "A-17")
			if m.State != c.state || m.Attempt != c.attempt {
				t.Errorf("the message is %s with %d attempts, want %s with %d", m.State, m.Attempt, c.state, c.attempt)
			}
			switch {
			case c.failure == "" && len(m.Failures) > 0, c.failure != "" && len(m.Failures) != 1:
				t.Errorf("failures %+v, want %q", m.Failures, c.failure)
			case c.failure != "" && !strings.HasPrefix(m.Failures[0].Error, c.failure):
				t.Errorf("failure %q, want %q", m.Failures[0].Error, c.failure)
			}
			r.run("get", "good", "--topic", "next").exits(exitUnwished)
		})
	}
}
