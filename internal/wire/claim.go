package wire

import (
	"cmp"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// ClaimRequest is the body of POST /v1/claim.
type ClaimRequest struct {
	// Topics in order of preference.
	Topics TopicNames `json:"topics"`
	// Max bounds the number of deliveries, from 1. With IDs it may be left out.
	Max int `json:"max,omitzero"`
	// IDs are the only messages to lease, in this order, of the one topic named. Wait and PerTopic
	// are left out then.
	IDs Items[string] `json:"ids,omitzero"`
	// PerTopic bounds the deliveries of any one topic. Left out, only Max bounds them.
	PerTopic int `json:"per_topic,omitzero"`
	// Wait is how long the claim waits while nothing is due, at most Limits.MaxWait.
	Wait Duration `json:"wait,omitzero"`
	// Lease is the length of the leases. Left out, each topic's setting holds.
	Lease Duration `json:"lease,omitzero"`
}

// ClaimRequestOf returns c for a request. A name that is not UTF-8 is an ErrInvalid.
func ClaimRequestOf(c punctual.Claim) (ClaimRequest, error) {
	for _, t := range c.Topics {
		if err := checkText("topic", t); err != nil {
			return ClaimRequest{}, err
		}
	}
	return ClaimRequest{Topics: c.Topics, Max: c.Max, IDs: c.IDs, PerTopic: c.PerTopic, Wait: Duration(c.Wait), Lease: Duration(c.Lease)}, nil
}

// Claim returns the request as a punctual.Claim.
func (c *ClaimRequest) Claim() punctual.Claim {
	return punctual.Claim{Topics: c.Topics, Max: c.Max, IDs: c.IDs, PerTopic: c.PerTopic, Wait: time.Duration(c.Wait), Lease: time.Duration(c.Lease)}
}

// ClaimAnswer is the answer to a claim that brought messages. The answer to a claim without
// messages has status 204 and no body.
type ClaimAnswer struct {
	Messages []Delivery `json:"messages"`
}

// StreamLine is one line of a streaming claim. A line without members only shows that the stream is
// alive.
type StreamLine struct {
	Message *Delivery `json:"message,omitzero"`
	// Error is in the last line of a stream that ended with a failure.
	Error *Problem `json:"error,omitzero"`
}

// Delivery is a message under a lease.
type Delivery struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	// Token proves the lease.
	Token int64 `json:"token,string"`
	Body
	Headers
	Due       Time `json:"due"`
	FirstDue  Time `json:"first_due"`
	Created   Time `json:"created"`
	Delivered Time `json:"delivered"`
	// LateMS is how many milliseconds after Due the message was delivered, TotalLateMS how many
	// after FirstDue.
	LateMS      int64 `json:"late_ms"`
	TotalLateMS int64 `json:"total_late_ms"`
	LeaseUntil  Time  `json:"lease_until"`
	Attempt     int   `json:"attempt"`
	// MaxAttempts is left out if the topic's setting holds.
	MaxAttempts int  `json:"max_attempts,omitzero"`
	Expires     Time `json:"expires,omitzero"`
	DropExpired bool `json:"drop_expired,omitzero"`
	Attributes
	// Turn is when the turn of the message had come, in a topic with keys. It is left out for a
	// message without a key.
	Turn     Time      `json:"turn,omitzero"`
	Failures []Failure `json:"failures,omitzero"`
}

// DeliveryOf returns d for an answer. The result may share d's body and headers.
func DeliveryOf(d *punctual.Delivery) Delivery {
	return Delivery{
		ID: d.ID, Topic: d.Topic, Token: d.Token, Body: BodyOf(d.Body), Headers: HeadersOf(d.Headers),
		Due: Time(d.Due), FirstDue: Time(d.FirstDue), Created: Time(d.Created), Delivered: Time(d.Delivered),
		LateMS: max(0, d.Late().Milliseconds()), TotalLateMS: max(0, d.TotalLate().Milliseconds()),
		LeaseUntil: Time(d.LeaseUntil), Attempt: d.Attempt, MaxAttempts: d.MaxAttempts,
		Expires: Time(d.Expires), DropExpired: d.DropExpired, Attributes: attributesOf(storekit.AttributesOf(&d.Message)), Turn: Time(d.Turn), Failures: failuresOf(d.Failures),
	}
}

// Delivery returns the delivery as a punctual.Delivery, which may share the body and headers. A
// malformed one is an ErrIndeterminate.
func (d *Delivery) Delivery() (punctual.Delivery, error) {
	body, headers, err := content(d.Body, d.Headers)
	a, err2 := d.Attributes.answered()
	out := punctual.Delivery{
		Message: punctual.Message{
			ID: d.ID, Topic: d.Topic, Body: body, Headers: headers, Due: time.Time(d.Due), FirstDue: time.Time(d.FirstDue),
			Attempt: d.Attempt, MaxAttempts: d.MaxAttempts, Created: time.Time(d.Created), Expires: time.Time(d.Expires),
			DropExpired: d.DropExpired,
		},
		Token: d.Token, Delivered: time.Time(d.Delivered), LeaseUntil: time.Time(d.LeaseUntil), Turn: time.Time(d.Turn), Failures: failures(d.Failures),
	}
	a.Set(&out.Message)
	return out, cmp.Or(err, err2)
}

// content returns the body and headers of a message in an answer. Malformed ones are an
// ErrIndeterminate.
func content(b Body, h Headers) (body []byte, headers map[string]string, err error) {
	if body, err = b.Bytes(); err != nil {
		return nil, nil, strangeAnswer("%v", err)
	}
	if headers, err = h.Map(); err != nil {
		return nil, nil, strangeAnswer("%v", err)
	}
	return body, headers, nil
}

// Failure is one attempt that failed.
type Failure struct {
	Attempt int    `json:"attempt"`
	At      Time   `json:"at"`
	Error   string `json:"error"`
}

func failuresOf(fs []punctual.Failure) []Failure {
	if len(fs) == 0 {
		return nil
	}
	out := make([]Failure, len(fs))
	for i, f := range fs {
		out[i] = Failure{f.Attempt, Time(f.At), f.Error}
	}
	return out
}

func failures(fs []Failure) []punctual.Failure {
	if len(fs) == 0 {
		return nil
	}
	out := make([]punctual.Failure, len(fs))
	for i, f := range fs {
		out[i] = punctual.Failure{Attempt: f.Attempt, At: time.Time(f.At), Error: f.Error}
	}
	return out
}
