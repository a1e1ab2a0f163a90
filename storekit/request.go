package storekit

import (
	"context"
	"time"
)

// Request travels in the context of a Push, Claim, Settle or Amend to a store that is a [Repeater]. It
// makes that call one which may be sent again.
type Request struct {
	// Key names the call: 1 to 128 printable ASCII bytes that no other call of any caller has.
	Key string
	// NotAfter, if not zero, is when the call must not be carried out any more, by the store's clock. It lies at
	// most Repeats ahead. A call without it can be carried out a second time by a copy that comes very late.
	NotAfter time.Time
	// First tells that no copy of the call was sent before, which may save looking for what that one has done.
	First bool
}

// Repeater is an optional interface of stores that know a call again. Whoever asks over a network needs it:
// when the answer is lost, the call is sent again and still carried out once. punctual.As finds it.
//
// The context of a Push, Claim, Settle or Amend may carry a [Request] with a key. Until Repeats after the
// first call with that key ended, a further one is not carried out and gets the first one's answer. While the
// first is under way it waits for it. What holds beside that:
//
//   - A call that ended with a definite error has no answer to keep: the next one is carried out. So is a claim
//     behind one that found nothing.
//   - A claim that is answered again returns those deliveries whose lease has not ended (P3). It leases no others.
//   - A key belongs to one call. One with the same key and other content is ErrInvalid and changes nothing.
//   - From Request.NotAfter on, by the store's clock, a call changes nothing. If the answer is known it is given,
//     else the error is context.DeadlineExceeded. A waiting claim ends then. So a copy with a NotAfter in the past
//     only asks what became of the call. NotAfter is not part of the content.
//
// Calls without a Request are as ever.
type Repeater interface {
	// Repeats is how long answers are kept; always the same and positive.
	Repeats() time.Duration
}

type requestKey struct{}

// WithRequest returns a context that carries r.
func WithRequest(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// WithoutRequest returns a context as ctx without its request, for a call that is another one. An example is a
// settlement that gives back what a claim has leased, also behind the claim's NotAfter.
func WithoutRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, nil)
}

// RequestOf returns the request that a context carries, and whether it carries one.
func RequestOf(ctx context.Context) (Request, bool) {
	r, ok := ctx.Value(requestKey{}).(Request)
	return r, ok
}

// CheckRequest returns an ErrInvalid that says what is wrong with the request, or nil. now is the store's clock,
// and repeats what the store's Repeats returns.
func CheckRequest(r Request, now time.Time, repeats time.Duration) error {
	switch {
	case r.Key == "":
		return invalidf("the request has no key")
	case len(r.Key) > maxKeyBytes:
		return invalidf("the key of the request has %d bytes: use at most %d", len(r.Key), maxKeyBytes)
	case r.NotAfter.Sub(now) > repeats:
		return invalidf("the request may be carried out until %s, which is more than %v ahead: the answer is not kept that long",
			r.NotAfter.UTC().Format(time.RFC3339Nano), repeats)
	}
	for i := range len(r.Key) {
		if r.Key[i] <= ' ' || r.Key[i] > '~' {
			return invalidf("the key of the request: byte %d is not printable ASCII", i+1)
		}
	}
	return nil
}

const maxKeyBytes = 128
