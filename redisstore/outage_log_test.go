package redisstore

import (
	"log/slog"
	"testing"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/storetest/duties"
)

// An outage of the server, which has ended or does not answer, is two lines of a log.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		duties.RunOutage(t, func(t *testing.T, logger *slog.Logger) (store punctual.Store, away, back func() error) {
			server := redisrig.Start(t)
			store = openStore(t, connect(t, server), &Options{Logger: logger})
			if hangs {
				return store, server.Stop, server.Continue
			}
			return store, server.Kill, server.Restart
		})
	}
}
