package worker

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
)

// observing returns those functions of o that the worker itself calls; each of them that is nil
// does nothing instead. o may be nil.
func observing(o *punctual.Observer) punctual.Observer {
	all := punctual.Observer{
		OnClaim:     func(context.Context, int, time.Duration) {},
		OnStart:     func(context.Context, *punctual.Delivery) {},
		OnFinish:    func(context.Context, *punctual.Delivery, punctual.Verb, time.Duration, error) {},
		OnSettle:    func(context.Context, punctual.Settlement, time.Duration, error) {},
		OnLeaseLost: func(context.Context, *punctual.Delivery, error) {},
		OnError:     func(context.Context, string, error) {},
	}
	if o == nil {
		return all
	}
	if o.OnClaim != nil {
		all.OnClaim = o.OnClaim
	}
	if o.OnStart != nil {
		all.OnStart = o.OnStart
	}
	if o.OnFinish != nil {
		all.OnFinish = o.OnFinish
	}
	if o.OnSettle != nil {
		all.OnSettle = o.OnSettle
	}
	if o.OnLeaseLost != nil {
		all.OnLeaseLost = o.OnLeaseLost
	}
	if o.OnError != nil {
		all.OnError = o.OnError
	}
	return all
}
