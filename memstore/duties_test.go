package memstore_test

import (
	"testing"

	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storetest/duties"
)

// TestFirstUse: what makes a companion is not late the first time.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	t.Cleanup(func() { _ = s.Close() })
	duties.RunFirst(t, s, s)
}
