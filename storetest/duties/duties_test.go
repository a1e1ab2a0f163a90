package duties_test

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/duties"
)

func TestOverMemory(t *testing.T) {
	duties.Run(t, func(_ *testing.T, clock storekit.Clock) punctual.Store {
		return memstore.New(&memstore.Options{Clock: clock})
	})
}
