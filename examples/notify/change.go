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
		return false, nil // being worked on, and no repetition follows; or no longer stored
	}
	return err == nil, err
}

// postpone moves a notice to two hours from now. ErrLeased and ErrNotFound: nothing was changed.
func postpone(ctx context.Context, payments *punctual.Topic[string], number string) (due time.Time, err error) {
	return payments.Reschedule(ctx, number, punctual.In(2*time.Hour))
}
