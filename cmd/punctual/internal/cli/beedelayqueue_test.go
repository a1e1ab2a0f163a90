package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	BeeDelayQueue "github.com/punctualmq/punctual/compat/beedelayqueue"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// discarding is a listener of BeeDelayQueue that reports every message as failed.
type discarding struct {
	queue *BeeDelayQueue.DelayQueueController
}

func (d discarding) OnMassage(m *BeeDelayQueue.DelayMsg) bool {
	d.queue.Ack(*m, false)
	return true
}

// The command line lists the messages that BeeDelayQueue has discarded, by day, with their bodies,
// times and failures.
func TestDiscardedAreListedByDay(t *testing.T) {
	t.Parallel()
	const topic = "orderCancel"
	addr := redisrig.Start(t).Addr
	queue, err := BeeDelayQueue.NewDelayQueueController(BeeDelayQueue.RedisConfig{Addr: addr, Db: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := queue.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	queue.CreateDelayQueue(topic, 3600, 1)
	if err := queue.AddMassageListener(topic, discarding{queue}); err != nil {
		t.Fatal(err)
	}
	id, err := queue.Push(topic, `{"shopId":"s001"}`, 0)
	if err != nil {
		t.Fatal(err)
	}

	list := []string{"dead", "list", "--topic", topic, "--json", "--limit", "0", "--store", "redis://" + addr + "/1"}
	out := printed(t, list...)
	for end := time.Now().Add(time.Minute); len(out) == 0 && time.Now().Before(end); out = printed(t, list...) {
		time.Sleep(10 * time.Millisecond)
	}
	var got struct {
		ID, Topic, State, Body, Reason string
		Attempt                        int
		Due, Created, Died             time.Time
		Failures                       []struct{ Error string }
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("after a minute: %q, %v", out, err)
	}
	if got.ID != id || got.Topic != topic || got.State != "dead" || got.Body != `{"shopId":"s001"}` || got.Reason != "discarded" ||
		got.Attempt != 2 || got.Due.IsZero() || got.Created.IsZero() || got.Died.IsZero() {
		t.Errorf("listed as %+v", got)
	}
	if fmt.Sprint(got.Failures) != "[{Ack(msg, false)} {Ack(msg, false)}]" {
		t.Errorf("history %v", got.Failures)
	}
	day := got.Died.Local()
	if on := printed(t, append(list, "--on", day.Format(time.DateOnly))...); !bytes.Equal(on, out) {
		t.Errorf("on its day: %s, else %s", on, out)
	}
	if before := printed(t, append(list, "--on", day.AddDate(0, 0, -1).Format(time.DateOnly))...); len(before) > 0 {
		t.Errorf("listed on the day before, too: %s", before)
	}
}

// printed is what a command line prints.
func printed(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	if code := newApp(Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs}).run(t.Context(), args); code != 0 {
		t.Fatalf("punctual %q: exit %d, %s", args, code, errs.String())
	}
	return out.Bytes()
}
