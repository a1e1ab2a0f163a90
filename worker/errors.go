package worker

import (
	"fmt"

	"github.com/punctualmq/punctual"
)

// errorf returns an error that wraps kind, with the formatted sentence in front.
func errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), kind)
}

func invalidf(format string, args ...any) error { return errorf(punctual.ErrInvalid, format, args...) }
