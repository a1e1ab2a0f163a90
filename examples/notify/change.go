package main

import (
	"context"
	"errors"
	"time"

	"github.com/punctualmq/punctual"
)

// callOff takes a notice back. It returns true when the notice is certainly never delivered.
func callOff(ctx context.Context, payments *punctual.Topic[string], number string) (bool, error) {
	err := payments.Cancel(ctx, number)
	if errors.Is(err, punctual.ErrLeased) || errors.Is(err, punctual.ErrNotFound) {
		return false, nil // a handler works on it and no further attempt follows, or it is not stored any more
	}
	return err == nil, err
}

// postpone moves a notice to two hours from now. With ErrLeased or ErrNotFound nothing was changed.
func postpone(ctx context.Context, payments *punctual.Topic[string], number string) (due time.Time, err error) {
	return payments.Reschedule(ctx, number, punctual.In(2*time.Hour))
}
