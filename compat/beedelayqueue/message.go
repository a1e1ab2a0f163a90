package BeeDelayQueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
)

// DelayMsg is a message as a listener gets it. Its JSON is that of the original, with Token added.
type DelayMsg struct {
	// Id names the message within its topic. An ID that Push has made, as in
	// 20210826-042-1629936000123456-0001, consists of the local date, the last three digits of the
	// pushing process's number, Unix microseconds, and four digits that count. A message that
	// "punctual import" has taken over keeps the ID that it had, or gets a hash of it if no message
	// can have that ID.
	Id string `json:"id"`
	// Topic is the topic of the message.
	Topic string `json:"topic"`
	// Body is the body of the push.
	Body string `json:"body"`
	// ExecTime is when it was to be delivered, in Unix seconds, rounded down; a
	// retry may change it.
	ExecTime int64 `json:"execTime"`
	// RetryCount counts the deliveries, this one included: 1 for the first. Four deliveries
	// are three retries.
	RetryCount int64 `json:"retryCount"`
	// CreateTime is when it was pushed, in Unix seconds by Redis's clock, rounded down. For a
	// message that "punctual import" took over it is when that was pushed to BeeDelayQueue.
	CreateTime int64 `json:"createTime"`
	// Token proves to Ack which delivery is meant; it is not in the original. Whoever
	// acknowledges a copy of the message, in this process or elsewhere, hands it along.
	Token int64 `json:"token,omitempty"`
}

// importedCreateTime is the header in which an import from BeeDelayQueue's own keys keeps the
// CreateTime that a message had there.
const importedCreateTime = "beedelayqueue-create-time"

func messageOf(d *punctual.Delivery) *DelayMsg {
	created, err := strconv.ParseInt(d.Headers[importedCreateTime], 10, 64)
	if err != nil {
		created = d.Created.Unix()
	}
	return &DelayMsg{
		Id: d.ID, Topic: d.Topic, Body: string(d.Body), ExecTime: d.Due.Unix(),
		RetryCount: int64(d.Attempt), CreateTime: created, Token: d.Token,
	}
}

// Push stores a message to be delivered at execTime and returns its ID. When the error is nil
// it is as durable as Redis is set up to be.
//
// execTime is in Unix seconds. A number of less than ten digits means seconds from now, by Redis's
// clock, because the original's users use both forms. The two forms do not overlap in practice. As
// a time such a number lies before 9 September 2001, and ten digits of seconds are more than 31
// years. So 1630000000 is 26 August 2021 and delivered at once, being past, and 1800 is in half an
// hour. A negative number, or one after the year 9999, as milliseconds are, gives ErrInvalid.
//
// The ID is returned with most errors, too: after one that wraps ErrIndeterminate the message may
// be stored, and Remove takes it back.
func (p *DelayQueueController) Push(topic string, body string, execTime int64) (string, error) {
	when, err := dueAt(execTime)
	if err != nil {
		return "", fmt.Errorf("push: %w", err)
	}
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	c, err := p.ready(ctx, p.created(topic))
	if err != nil {
		return "", fmt.Errorf("push: %w", err)
	}
	for range maxIDTries {
		id := p.ids.next()
		_, err = c.queue.Push(ctx, topic, []byte(body), when, punctual.ID(id), punctual.FailIfExists())
		if !errors.Is(err, punctual.ErrDuplicate) {
			return id, err
		}
	}
	return "", fmt.Errorf("push: %d IDs in a row were taken: %w", maxIDTries, err)
}

// maxIDTries bounds how many IDs are tried until one is not in use. Already the first is hardly
// ever in use.
const maxIDTries = 100

const (
	// firstDate is the first number that is a time: the first one with ten digits.
	firstDate = 1_000_000_000
	// maxExecTime is the last second that a store takes.
	maxExecTime = 253402300799
)

func dueAt(execTime int64) (punctual.When, error) {
	switch {
	case execTime < 0:
		return punctual.When{}, fmt.Errorf("exec time %d is negative: use Unix seconds, or seconds from now: %w", execTime, punctual.ErrInvalid)
	case execTime < firstDate:
		return punctual.In(time.Duration(execTime) * time.Second), nil
	case execTime > maxExecTime:
		return punctual.When{}, fmt.Errorf("exec time %d lies after the year 9999: use seconds, not milliseconds: %w", execTime, punctual.ErrInvalid)
	}
	return punctual.At(time.Unix(execTime, 0)), nil
}

// Remove takes back a message that was pushed. The readme of the original promises that, but its
// code has no such call. Nil means that the message will never be delivered. punctual.ErrLeased
// means that a listener has the message, which will not be delivered again. punctual.ErrNotFound
// means that there is no such message, or that it was given up.
func (p *DelayQueueController) Remove(topic, id string) error {
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	c, err := p.connection(ctx)
	if err == nil {
		err = c.queue.Cancel(ctx, topic, id)
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
