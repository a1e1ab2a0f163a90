package cli

import (
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
)

// typed returns v, which was parsed from the command line or from a line of input, and makes the parser's error one of usage.
func typed[T any](v T, err error) (T, error) {
	if err != nil {
		return v, usagef("%s", strings.TrimSuffix(err.Error(), ": "+punctual.ErrInvalid.Error()))
	}
	return v, nil
}

// durationFlag is a flag that takes a duration; nil means that it was not given.
type durationFlag struct{ d *time.Duration }

// Set, String and Type implement pflag.Value.
func (f *durationFlag) Set(s string) error {
	d, err := typed(notation.ParseDuration(s))
	f.d = &d
	return err
}

func (f *durationFlag) String() string {
	if f.d == nil {
		return ""
	}
	return notation.FormatDuration(*f.d)
}

// Type is the word for the value in a command's help.
func (f *durationFlag) Type() string { return "duration" }

func (f *durationFlag) or(otherwise time.Duration) time.Duration {
	if f.d == nil {
		return otherwise
	}
	return *f.d
}

// timeFlag is a flag that takes a time as read understands it; nil means that it was not given.
type timeFlag struct {
	t    *time.Time
	read func(string) (time.Time, error)
}

// Set, String and Type implement pflag.Value.
func (f *timeFlag) Set(s string) error {
	t, err := f.read(s)
	f.t = &t
	return err
}

func (f *timeFlag) orZero() time.Time {
	if f.t == nil {
		return time.Time{}
	}
	return *f.t
}

func (f *timeFlag) String() string {
	if f.t == nil {
		return ""
	}
	return stamp(*f.t).String()
}

// Type is the word for the value in a command's help.
func (f *timeFlag) Type() string { return "time" }
