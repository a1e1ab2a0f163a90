package remotestore_test

import (
	"errors"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/memstore"
)

// TestSpace: Space returns the space of the store behind the server, or ErrUnsupported if that
// store does not know it.
func TestSpace(t *testing.T) {
	dir := t.TempDir()
	below, err := diskstore.Open(dir, nil)
	below = closing(t, below, err)
	got, err := connect(t, nil, serve(t, below, "").url).Space(t.Context())
	if err != nil || got.Total == 0 || got.Reserve == 0 {
		t.Errorf("space: %+v, %v", got, err)
	}
	s := connect(t, nil, serve(t, closing(t, memstore.New(nil), nil), "").url)
	if _, err := s.Space(t.Context()); !errors.Is(err, punctual.ErrUnsupported) {
		t.Errorf("space of a store that does not know: %v", err)
	}
}
