package storekit

import (
	"context"
	"time"
)

// Request makes a call one that may be sent again and is still carried out once. The context of a
// Push, Claim, Settle or Amend carries it to a store that is a [Repeater]; see WithRequest.
type Request struct {
	// Key identifies the call: 1 to 128 printable ASCII bytes, without spaces, that no other call
	// of any caller has.
	Key string
	// NotAfter, if not zero, is the time by the store's clock from which the call is not carried
	// out any more. It lies at most Repeats in the future. A call without NotAfter is carried out a
	// second time if a copy of it arrives after the answer has been removed.
	NotAfter time.Time
	// First tells that no copy of the call was sent before. With it a store may skip the search for
	// an earlier answer.
	First bool
}

// Repeater is an optional interface of stores that recognize the copy of a call. Clients behind a
// network need it: when the answer is lost, they send the call again, and it is still carried out
// once. punctual.As finds it.
//
// The context of a Push, Claim, Settle or Amend may carry a [Request] with a key. Until Repeats
// after the end of the first call with that key, the store does not carry out a further call with
// it, but returns the answer of the first. While the first is under way, the further call waits for
// it. These rules hold beside that:
//
//   - The store keeps no answer of a call that ended with a definite error, nor of a claim that
//     found nothing. It carries out the next call with that key.
//   - A claim that is answered again returns those of its deliveries whose lease has not ended
//     (P3). It leases no others.
//   - A key belongs to one call. A call with the same key and other content is ErrInvalid and
//     changes nothing.
//   - From Request.NotAfter on, by the store's clock, a call changes nothing. It returns the answer
//     if the store has it, and otherwise context.DeadlineExceeded. A claim that waits ends then. So
//     a copy with a NotAfter in the past only asks what became of the call. NotAfter is not part of
//     the content.
//
// A call without a Request is carried out each time.
type Repeater interface {
	// Repeats returns how long the store keeps answers. It is positive and always the same.
	Repeats() time.Duration
}

type requestKey struct{}

// WithRequest returns a context that carries r.
func WithRequest(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// WithoutRequest returns a copy of ctx without its Request, for a further call to the store that is
// not the one of the Request. For example, a settlement gives back messages that a claim has
// leased, also after the claim's NotAfter.
func WithoutRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, nil)
}

// RequestOf returns the Request that ctx carries, and whether it carries one.
func RequestOf(ctx context.Context) (Request, bool) {
	r, ok := ctx.Value(requestKey{}).(Request)
	return r, ok
}

// CheckRequest returns an ErrInvalid that says what is wrong with the request, or nil. now is the
// store's clock, and repeats what the store's Repeats returns.
func CheckRequest(r Request, now time.Time, repeats time.Duration) error {
	switch {
	case r.Key == "":
		return Invalidf("the request has no key")
	case len(r.Key) > maxKeyBytes:
		return Invalidf("the key of the request has %d bytes: use at most %d", len(r.Key), maxKeyBytes)
	case r.NotAfter.Sub(now) > repeats:
		return Invalidf("the request may be carried out until %s, which is more than %v ahead: the answer is not kept that long",
			r.NotAfter.UTC().Format(time.RFC3339Nano), repeats)
	}
	for i := range len(r.Key) {
		if r.Key[i] <= ' ' || r.Key[i] > '~' {
			return Invalidf("the key of the request: byte %d is not printable ASCII", i+1)
		}
	}
	return nil
}

const maxKeyBytes = 128
