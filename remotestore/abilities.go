package remotestore

import (
	"context"
	"sync"
	"time"

	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/storekit"
)

// abilitiesKept is how long Abilities returns the same answer before it asks a server again: a
// server may be started over another store.
const abilitiesKept = time.Minute

// abilities is the last answer of a server to what its store can do.
type abilities struct {
	mu    sync.Mutex
	known storekit.Abilities // guarded by mu
	until time.Time          // guarded by mu: when known has to be asked for again; the zero Time before the first answer
}

// Abilities implements storekit.AbilityReporter with what a server says of its store, which is kept
// for a minute. An error, such as ErrUnreachable when the server itself does not know at the
// moment, is not kept: a later call asks again.
func (s *Store) Abilities(ctx context.Context) (storekit.Abilities, error) {
	s.abilities.mu.Lock()
	known, until := s.abilities.known, s.abilities.until
	s.abilities.mu.Unlock()
	if time.Now().Before(until) && ctx.Err() == nil && s.closing.Err() == nil {
		return known, nil
	}
	a, err := call(ctx, s, "abilities", nil, read(wire.PathInfo), nil, (*wire.Info).StoreAbilities)
	if err == nil {
		s.abilities.mu.Lock()
		s.abilities.known, s.abilities.until = a, time.Now().Add(abilitiesKept)
		s.abilities.mu.Unlock()
	}
	return a, err
}
