package pgstore

import (
	"log/slog"
	"testing"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storetest/duties"
)

// An outage of the server, which has ended or does not answer, is two lines of a log.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		duties.RunOutage(t, func(t *testing.T, logger *slog.Logger) (store punctual.Store, away, back func() error) {
			server := pgrig.Start(t)
			store = openStore(t, newPool(t, server), &Options{Migrate: true, OwnPool: true, Logger: logger})
			if hangs {
				return store, server.Freeze, server.Thaw
			}
			return store, server.Stop, server.Restart
		})
	}
}
