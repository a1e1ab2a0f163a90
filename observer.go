package punctual

import "time"

// Observer is told what a Queue or a Worker does, for metrics and traces. Each function
// may be nil. They are called synchronously, from any goroutine and from several at
// once, on the way of the message: they must be quick and must not block. What they
// are given is theirs to read during the call, not to keep or to change.
//
// An Observer must not be changed once a Queue or Worker has it.
type Observer struct {
	// OnPush is called once for each message pushed, when its outcome is known to the
	// caller: r.Status for what was stored, r.Err for what was refused or is not known.
	// took is the time that the whole call took.
	OnPush func(r PushResult, took time.Duration)
	// OnAmend is called once for each cancel, reschedule and requeue; o.Err is set when
	// it was refused or its outcome is not known. took is the time of the whole call.
	OnAmend func(a Amendment, o Outcome, took time.Duration)

	// OnClaim is called after each claim that did not fail, n being the number of
	// messages it brought. took includes the time spent waiting for the first to be due.
	OnClaim func(n int, took time.Duration)
	// OnStart is called before a handler is given d. d.Late() says how late it is.
	OnStart func(d *Delivery)
	// OnFinish is called when the handler of d is done and v has been decided: err is
	// what the handler returned (nil for SettleAck), took how long it ran.
	OnFinish func(d *Delivery, v Verb, took time.Duration, err error)
	// OnLeaseLost is called when a worker learns that d is not its own any more: err
	// wraps ErrLeaseLost, or ErrCancelled when somebody cancelled it meanwhile.
	OnLeaseLost func(d *Delivery, err error)
	// OnError is called for an error that no caller is there to receive: op is "claim",
	// "settle" or "extend".
	OnError func(op string, err error)
}

func (o *Observer) pushed(r PushResult, took time.Duration) {
	if o != nil && o.OnPush != nil {
		o.OnPush(r, took)
	}
}

func (o *Observer) amended(a Amendment, out Outcome, took time.Duration) {
	if o != nil && o.OnAmend != nil {
		o.OnAmend(a, out, took)
	}
}

func (o *Observer) claimed(n int, took time.Duration) {
	if o != nil && o.OnClaim != nil {
		o.OnClaim(n, took)
	}
}

func (o *Observer) started(d *Delivery) {
	if o != nil && o.OnStart != nil {
		o.OnStart(d)
	}
}

func (o *Observer) finished(d *Delivery, v Verb, took time.Duration, err error) {
	if o != nil && o.OnFinish != nil {
		o.OnFinish(d, v, took, err)
	}
}

func (o *Observer) leaseLost(d *Delivery, err error) {
	if o != nil && o.OnLeaseLost != nil {
		o.OnLeaseLost(d, err)
	}
}

func (o *Observer) failed(op string, err error) {
	if o != nil && o.OnError != nil {
		o.OnError(op, err)
	}
}
