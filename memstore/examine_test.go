package memstore

import (
	"errors"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

func TestExamineSaysVolatile(t *testing.T) {
	s := New(nil)
	fs, err := s.Examine(t.Context())
	if err != nil || len(fs) == 0 || fs[0].Value != string(s.Durability()) || fs[0].Severity != storekit.SeverityWarning || fs[0].Remedy == "" {
		t.Errorf("examine: %+v, %v; want the class %s, with a warning", fs, err, s.Durability())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Examine(t.Context()); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("examine after close: %v, want ErrClosed", err)
	}
}
