// A worker in Go, on a client that is generated from /openapi.json: it fails to compile when the
// description is wrong, and to run when the server does not keep to it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"

	"client/api"
)

const topic = "c/d"

func main() {
	log.SetFlags(0)
	c, err := api.NewClientWithResponses(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	push(ctx, c)
	work(ctx, c)
	stream(ctx, c)
	gone, err := c.CancelWithResponse(ctx, topic, "m", nil)
	if err != nil || gone.ApplicationproblemJSON404 == nil || gone.ApplicationproblemJSON404.Code != api.ProblemCodeNotFound || !gone.ApplicationproblemJSON404.Definite {
		log.Fatalf("cancel of what is done: %v, %s", err, gone.Body)
	}
}

// push pushes bytes as they are, moves that message, and pushes two in one request.
func push(ctx context.Context, c *api.ClientWithResponses) {
	in, attempts := "1h", int32(5)
	params := &api.PushWithIDParams{In: &in, MaxAttempts: &attempts}
	pushed, err := c.PushWithIDWithBodyWithResponse(ctx, topic, "x y?", params, "image/png", strings.NewReader("\xff\x00"))
	if err != nil || pushed.JSON201 == nil || *pushed.JSON201.Result != api.PushResultResultStored {
		log.Fatalf("push: %v, %s", err, pushed.Body)
	}
	now := "0s"
	moved, err := c.RescheduleWithResponse(ctx, topic, "x y?", &api.RescheduleParams{In: &now})
	if err != nil || moved.JSON200 == nil || *moved.JSON200.Outcome != api.AmendResultOutcomeRescheduled {
		log.Fatalf("reschedule: %v, %s", err, moved.Body)
	}
	name, id, text, wrong := topic, "m", "two", "5"
	many, err := c.PushManyWithResponse(ctx, nil, api.PushRequest{Messages: []api.PushItem{
		{Topic: &name, Id: &id, Body: &text}, {Topic: &name, Body: &text, In: &wrong},
	}})
	if err != nil || many.JSON200 == nil || *many.JSON200.Results[0].Result != api.PushResultResultStored ||
		many.JSON200.Results[1].Error == nil || many.JSON200.Results[1].Error.Code != api.ProblemCodeInvalid {
		log.Fatalf("push of many: %v, %s", err, many.Body)
	}
}

// work claims both messages and acks them.
func work(ctx context.Context, c *api.ClientWithResponses) {
	var done []string
	for wait := "10s"; len(done) < 2; {
		claimed, err := c.ClaimWithResponse(ctx, nil, api.ClaimRequest{Topics: []string{topic}, Max: 5, Wait: &wait})
		if err != nil || claimed.JSON200 == nil {
			log.Fatalf("claim: %v, %s", err, claimed.Body)
		}
		for _, m := range claimed.JSON200.Messages {
			ack := api.SettleItem{Topic: m.Topic, Id: m.Id, Token: m.Token, Verb: api.Ack}
			acked, err := c.SettleManyWithResponse(ctx, nil, api.SettleRequest{Settlements: []api.SettleItem{ack}})
			if err != nil || acked.JSON200 == nil || acked.JSON200.Results[0].Error != nil {
				log.Fatalf("ack: %v, %s", err, acked.Body)
			}
			body := ""
			if m.BodyBase64 != nil {
				body = string(*m.BodyBase64)
			} else {
				body = *m.Body
			}
			done = append(done, fmt.Sprintf("%s %q %d", m.Id, body, m.Attempt))
		}
	}
	slices.Sort(done)
	if got := strings.Join(done, ","); got != `m "two" 1,x y? "\xff\x00" 1` {
		log.Fatalf("messages: %s", got)
	}
}

// stream claims as a stream, whose lines are of the type that the description names, and ends it
// with the first message.
func stream(ctx context.Context, c *api.ClientWithResponses) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	answer, err := c.ClientInterface.ClaimTopic(ctx, topic, nil, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "application/x-ndjson")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	name, text := topic, "three"
	if _, err := c.PushManyWithResponse(ctx, nil, api.PushRequest{Messages: []api.PushItem{{Topic: &name, Body: &text}}}); err != nil {
		log.Fatal(err)
	}
	lines := json.NewDecoder(answer.Body)
	lines.DisallowUnknownFields()
	for {
		var line api.StreamLine
		if err := lines.Decode(&line); err != nil {
			log.Fatalf("stream: %v", err)
		}
		if line.Error != nil {
			log.Fatalf("stream: %s", line.Error.Detail)
		}
		if line.Message != nil {
			return
		}
	}
}
