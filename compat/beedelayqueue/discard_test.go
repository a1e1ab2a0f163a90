package BeeDelayQueue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual/internal/cli"
)

// What was discarded is listed by day on the command line, with all that a database wants.
func TestDiscardedAreListedByDay(t *testing.T) {
	t.Parallel()
	p, topic := open(t), newTopicName()
	p.CreateDelayQueue(topic, 3600, 1)
	listen(t, p, topic, newHearing(func(m *DelayMsg) { p.Ack(*m, false) }))
	id, err := p.Push(topic, `{"shopId":"s001"}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	died := awaitDead(t, p, topic, id).Died.Local()

	var got struct {
		ID, Topic, State, Body, Reason string
		Attempt                        int
		Due, Created, Died             time.Time
		Failures                       []struct{ Error string }
	}
	if err := json.Unmarshal(deadOn(t, topic, died), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != id || got.Topic != topic || got.State != "dead" || got.Body != `{"shopId":"s001"}` || got.Reason != "discarded" ||
		got.Attempt != 2 || got.Due.IsZero() || got.Created.IsZero() || !got.Died.Equal(died) {
		t.Errorf("listed as %+v", got)
	}
	if fmt.Sprint(got.Failures) != "[{Ack(msg, false)} {Ack(msg, false)}]" {
		t.Errorf("history %v", got.Failures)
	}
	if out := deadOn(t, topic, died.AddDate(0, 0, -1)); len(out) > 0 {
		t.Errorf("listed on the day before, too: %s", out)
	}
}

// deadOn is what the command line exports for a topic and day.
func deadOn(t *testing.T, topic string, day time.Time) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	args := []string{"dead", "list", "--topic", topic, "--on", day.Format(time.DateOnly), "--json", "--limit", "0", "--store", "redis://" + shared.Addr + "/1"}
	if code := cli.Run(t.Context(), cli.Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs}, args); code != 0 {
		t.Fatalf("punctual %q: exit %d, %s", args, code, errs.String())
	}
	return out.Bytes()
}
