package memstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Examine implements storekit.Examiner with the findings of the function Examine and those about
// the clock.
func (s *Store) Examine(ctx context.Context) ([]storekit.Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.enter(ctx); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	return append(Examine(), storekit.ClockFindings(s.clock.State())...), nil
}

// Examine returns the findings about any store in memory: a warning that its messages are lost when
// the process ends.
func Examine() []storekit.Finding {
	return []storekit.Finding{{
		Name: "durability", Value: string(punctual.Volatile), Severity: storekit.SeverityWarning,
		Remedy: "messages are gone when their process ends: use another store for those that matter",
	}}
}
