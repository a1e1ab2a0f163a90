package console

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
)

// The page of a topic shows its consumers, as Options.Consumers reports them, and sums up those for whom there is no room.
func TestConsumersOfATopic(t *testing.T) {
	var told punctual.Consumers
	var fails error
	r := newRig(t, &Options{Consumers: func(_ context.Context, topic string) (punctual.Consumers, error) {
		if topic != "t" {
			t.Errorf("asked for topic %q", topic)
		}
		return told, fails
	}})
	r.push("t", "a", time.Hour)
	told.Since = noon
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, "Nobody claims from this topic") {
		t.Error("nobody works, and the page does not say so")
	}
	told.All = []punctual.Consumer{{User: "shop", Address: "10.0.0.7", Name: "web-3\u202e", Leases: 12, Waiting: 3, NextEnd: noon.Add(30 * time.Second), Claimed: 500, Settled: 250}}
	for n := range 30 {
		told.All = append(told.All, punctual.Consumer{User: fmt.Sprint("u", n), Leases: 2})
	}
	text := r.page("/topics/t/consumers")
	for _, want := range []string{`shop web-3\u202E`, "10.0.0.7", `<td class="n">12</td>`, `<td class="n">100</td><td class="n">50</td>`, "u18", "others", `<td class="n">22</td>`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %s", want)
		}
	}
	if strings.Contains(text, "u19") {
		t.Error("more than the most are shown")
	}
	fails = fmt.Errorf("no: %w", punctual.ErrUnsupported)
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, "does not know who claims") {
		t.Error("nobody knows, and the page does not say so")
	}
}

// A console that is mounted in a program shows how many leases the program's own handlers hold, once its Observer is told of their deliveries.
func TestConsumersOfThisProgram(t *testing.T) {
	r := newRig(t, nil)
	r.push("t", "a", time.Hour)
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, "does not know who claims") {
		t.Error("nobody is observed, and the page does not say so")
	}
	o := r.console.Observer()
	d := &punctual.Delivery{Message: punctual.Message{Topic: "t", ID: "a"}, Token: 7, Delivered: noon, LeaseUntil: noon.Add(time.Hour)}
	o.OnStart(t.Context(), d)
	if text := r.page("/topics/t/consumers"); !strings.Contains(text, wire.OwnName()) || !strings.Contains(text, `<td class="n">1</td>`) {
		t.Errorf("the page does not show what a handler holds: %s", text)
	}
	o.OnSettle(t.Context(), punctual.Settlement{Topic: "t", ID: "a", Token: 7, Verb: punctual.SettleAck}, 0, nil)
	if c, err := r.console.tracker.Consumers(t.Context(), "t"); err != nil || c.All[0].Leases != 0 || c.All[0].Settled != 1 {
		t.Errorf("after its ack: %+v, %v", c, err)
	}
}
