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
	// Max bounds the deliveries, from 1.
	Max int `json:"max"`
	// PerTopic bounds how many of them are of any one topic; left out: no bound of its own.
	PerTopic int `json:"per_topic,omitzero"`
	// Wait is how long to wait when nothing is due, at most Limits.MaxWait.
	Wait Duration `json:"wait,omitzero"`
	// Lease overrides the topics' length of a lease.
	Lease Duration `json:"lease,omitzero"`
}

// ClaimRequestOf is c for a request. Names that cannot stand in JSON are an ErrInvalid.
func ClaimRequestOf(c punctual.Claim) (ClaimRequest, error) {
	for _, t := range c.Topics {
		if err := checkText("topic", t); err != nil {
			return ClaimRequest{}, err
		}
	}
	return ClaimRequest{Topics: c.Topics, Max: c.Max, PerTopic: c.PerTopic, Wait: Duration(c.Wait), Lease: Duration(c.Lease)}, nil
}

// Claim is the request as a store takes it.
func (c *ClaimRequest) Claim() punctual.Claim {
	return punctual.Claim{Topics: c.Topics, Max: c.Max, PerTopic: c.PerTopic, Wait: time.Duration(c.Wait), Lease: time.Duration(c.Lease)}
}

// ClaimAnswer is the answer to a claim that brought messages. One that brought none has status 204 and no body.
type ClaimAnswer struct {
	Messages []Delivery `json:"messages"`
}

// StreamLine is one line of a claim that streams: a message, or neither, which only shows that the stream is alive.
type StreamLine struct {
	Message *Delivery `json:"message,omitzero"`
	// Error is the last line of a stream that a failure ended.
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
	// LateMS is how late the message is in this attempt, TotalLateMS since FirstDue, in milliseconds.
	LateMS      int64 `json:"late_ms"`
	TotalLateMS int64 `json:"total_late_ms"`
	LeaseUntil  Time  `json:"lease_until"`
	Attempt     int   `json:"attempt"`
	// MaxAttempts is left out when it is as the topic says.
	MaxAttempts int  `json:"max_attempts,omitzero"`
	Expires     Time `json:"expires,omitzero"`
	DropExpired bool `json:"drop_expired,omitzero"`
	Attributes
	Failures []Failure `json:"failures,omitzero"`
}

// DeliveryOf is d for an answer. It refers to d's body and headers.
func DeliveryOf(d *punctual.Delivery) Delivery {
	return Delivery{
		ID: d.ID, Topic: d.Topic, Token: d.Token, Body: BodyOf(d.Body), Headers: HeadersOf(d.Headers),
		Due: Time(d.Due), FirstDue: Time(d.FirstDue), Created: Time(d.Created), Delivered: Time(d.Delivered),
		LateMS: max(0, d.Late().Milliseconds()), TotalLateMS: max(0, d.TotalLate().Milliseconds()),
		LeaseUntil: Time(d.LeaseUntil), Attempt: d.Attempt, MaxAttempts: d.MaxAttempts,
		Expires: Time(d.Expires), DropExpired: d.DropExpired, Attributes: attributesOf(storekit.AttributesOf(&d.Message)), Failures: failuresOf(d.Failures),
	}
}

// Delivery is the delivery as a store returns it. It refers to the body and headers.
func (d *Delivery) Delivery() (punctual.Delivery, error) {
	body, headers, err := content(d.Body, d.Headers)
	a, err2 := d.Attributes.answered()
	out := punctual.Delivery{
		Message: punctual.Message{
			ID: d.ID, Topic: d.Topic, Body: body, Headers: headers, Due: time.Time(d.Due), FirstDue: time.Time(d.FirstDue),
			Attempt: d.Attempt, MaxAttempts: d.MaxAttempts, Created: time.Time(d.Created), Expires: time.Time(d.Expires),
			DropExpired: d.DropExpired,
		},
		Token: d.Token, Delivered: time.Time(d.Delivered), LeaseUntil: time.Time(d.LeaseUntil), Failures: failures(d.Failures),
	}
	a.Set(&out.Message)
	return out, cmp.Or(err, err2)
}

// content is the body and headers of an answer.
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
